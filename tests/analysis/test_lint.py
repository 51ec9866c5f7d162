"""Faults that a checkpoint's file shows: each is planted in a toy's; a sound one has none."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.drafters.lint import covered, lint
from analysis.drafters.rounding import COARSE, mantissa_bits
from app.cli import main
from core.errors import UserError
from core.methods.dart.model import FORM as DART
from core.methods.dflash.model import FORM as DFLASH
from core.methods.eagle3.model import FORM as EAGLE
from core.methods.eagle3.model import save
from core.methods.medusa import model as medusa
from core.methods.sps import model as sps
from core.methods.treeflash import model as treeflash
from core.models.checkpoint import WithHead
from core.models.language import Language, load_language
from tests.helpers import toys
from tests.helpers.toys_on_disk import save_toys


@pytest.fixture(scope="module")
def language():
    return Language("toy", toys.language_model(), toys.tokenizer(), None)


def dflash(folder, change=lambda state: None, **config):
    """A DFlash folder whose tensors were changed."""
    shape = {"vocab_size": toys.LANGUAGE_SIZE, "mask_token_id": 258}
    made = toys.dflash_model(dtype=torch.bfloat16, **shape)
    DFLASH.save_model(made, folder)
    file = folder / "model.safetensors"
    state = load_file(file)
    change(state)
    save_file(state, file)
    raw = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


def wrong(found):
    return [remark.text for remark in found.remarks if remark.wrong]


def said(found):
    return " ".join(remark.text for remark in found.remarks)


def test_sound_files_have_no_fault(tmp_path, language):
    assert wrong(lint(DFLASH, dflash(tmp_path / "a"), language)) == []
    sizes = {"vocab_size": toys.LANGUAGE_SIZE}
    DART.save_model(
        toys.dart_model(draft_vocab_size=toys.LANGUAGE_SIZE, **sizes), tmp_path / "b", True
    )
    found = lint(DART, tmp_path / "b", language)
    assert wrong(found) == []
    assert any("I8" in each.text and "unquantised" in each.text for each in found.remarks)
    made = toys.treeflash_model(mask_token_id=258, dtype=torch.bfloat16, **sizes)
    treeflash.save_model(made, tmp_path / "c")
    assert wrong(lint(treeflash.FORM, tmp_path / "c", language)) == []


@pytest.mark.parametrize("layers", [1, 3])
def test_a_sound_file_of_eagle3s_has_no_fault(layers, tmp_path, language):
    size = {"vocab_size": toys.LANGUAGE_SIZE, "num_hidden_layers": layers}
    ids = torch.arange(0, 100, 2)
    made = toys.eagle_drafter(ids=ids, dtype=torch.float32, **size)
    save(WithHead(made.model, made.head.weight, ids), tmp_path)
    assert wrong(lint(EAGLE, tmp_path, language)) == []


@pytest.mark.parametrize(("by", "word"), [(1 / 32, "smaller"), (32.0, "larger")])
def test_a_matrix_of_another_scale_is_a_fact_and_no_fault(by, word, tmp_path, language):
    """A drafter whose attention is 32 times too weak was only said to be bad."""

    def scaled(state):
        state["layers.0.self_attn.o_proj.weight"] *= by

    assert "times" not in said(lint(DFLASH, dflash(tmp_path / "a"), language))
    found = lint(DFLASH, dflash(tmp_path / "b", scaled), language)
    assert wrong(found) == []
    assert re.search(rf"of layers\.0\.self_attn\.o_proj\.weight are 3\d times {word}", said(found))


def drop(name):
    return lambda state: state.pop(name)


def put(name, value):
    return lambda state: state.update({name: value})


def zero_rows(state):
    state["fc.weight"][3:5] = 0


def most_rows(state):
    state["fc.weight"][:17] *= 1e-6


def nan(state):
    state["layers.0.mlp.up_proj.weight"][0, 0] = torch.nan


PLANTED = {
    "hidden_norm.weight is missing": drop("hidden_norm.weight"),
    "extra.weight is read by nothing": put("extra.weight", torch.ones(3)),
    "fc.weight has shape (5, 5)": put("fc.weight", torch.ones(5, 5)),
    "2 of 32 rows (3, 4) of fc.weight are near zero": zero_rows,
    "17 of 32 rows (0 to 16) of fc.weight are near zero": most_rows,
    "layers.0.mlp.up_proj.weight holds NaN": nan,
    "hidden_norm.weight is all zero": put("hidden_norm.weight", torch.zeros(32)),
    "many gains of norm.weight are negative": put("norm.weight", torch.tensor([-0.5, 0.3] * 16)),
}


@pytest.mark.parametrize("sentence", PLANTED)
def test_a_planted_fault_is_said(tmp_path, language, sentence):
    found = wrong(lint(DFLASH, dflash(tmp_path, PLANTED[sentence]), language))
    assert len(found) == 1 and found[0].startswith(sentence)


def test_a_mask_whose_embedding_is_near_zero(tmp_path):
    model = toys.language_model()
    model.get_input_embeddings().weight.data[258] *= 1e-4
    own = Language("toy", model, toys.tokenizer(), None)
    (found,) = wrong(lint(DFLASH, dflash(tmp_path), own))
    assert found.startswith("the mask token 258 has an embedding")


def test_facts_of_config_and_gains(tmp_path, language):
    folder = dflash(
        tmp_path,
        put("norm.weight", torch.ones(32)),
        rope_theta=5.0,
        rms_norm_eps=0.5,
        max_position_embeddings=64,
    )
    raw = json.loads((folder / "config.json").read_text())
    raw.pop("rope_parameters")
    (folder / "config.json").write_text(json.dumps(raw))
    text = said(lint(DFLASH, folder, language))
    assert "gains of norm.weight are 1" in text
    assert "rope_theta is 5 and the target's 10000" in text
    assert "rms_norm_eps is 0.5 and the target's 1e-06" in text
    assert "64 positions" in text and "no head of its own" in text


def test_an_embedding_that_was_trained_along_is_told_and_is_no_fault(tmp_path, language):
    made = toys.eagle_drafter(vocab_size=toys.LANGUAGE_SIZE, dtype=torch.float32)
    weight = language.model.get_input_embeddings().weight.detach()
    for name, embedding in (("copy", weight), ("trained", weight + torch.randn_like(weight))):
        save(WithHead(made.model, None, None), tmp_path / name)
        file = tmp_path / name / "model.safetensors"
        save_file({**load_file(file), "embed_tokens.weight": embedding.contiguous()}, file)
    raw = {name: lint(EAGLE, tmp_path / name, language) for name in ("copy", "trained")}
    assert wrong(raw["copy"]) == []
    assert wrong(raw["trained"]) == []
    said = " ".join(remark.text for remark in raw["trained"].remarks)
    assert "its embedding is its own" in said


# ── the head over a part of the vocabulary ───────────────────────────────────────────────────────

IDS = torch.arange(3, 243, 2)  # 120 of the toy target's tokens


def eagle(folder, change=lambda state: None):
    """An EAGLE-3 folder in the published form: d2t as what is added, t2d as a mask."""
    made = toys.eagle_drafter(vocab_size=toys.LANGUAGE_SIZE, ids=IDS, dtype=torch.float32)
    save(WithHead(made.model, made.head.weight.detach(), IDS), folder)
    file = folder / "model.safetensors"
    state = load_file(file)
    change(state)
    save_file(state, file)
    return folder


def more_marked(state):
    state["t2d"][[0, 1]] = True


def moved(state):
    state["d2t"][-1] += 1
    state["lm_head.weight"][-1] += 1


MAPS = {
    "": lambda state: None,
    "d2t holds the token ids that t2d marks": lambda state: state.update(d2t=IDS),
    "d2t holds the token ids: readers add": lambda state: (
        drop("t2d")(state),
        state.update(d2t=IDS),
    ),
    "its token maps contradict each other: d2t names 0 tokens that t2d leaves out, and t2d marks "
    "2 that d2t lacks": more_marked,
    "its token maps contradict each other: d2t names 1 tokens that t2d leaves out, and t2d marks "
    "1 that d2t lacks": moved,
    "d2t gives 1 of 120 rows the token of another row": lambda s: s["d2t"][1:2].sub_(2),
    "d2t leads 1 of 120 rows outside the vocabulary": lambda s: s["d2t"][-1:].add_(500),
    "d2t is missing, and t2d marks other tokens than the first 120": drop("d2t"),
    "d2t is float32 [120]": lambda state: state.update(d2t=state["d2t"].float()),
}


@pytest.mark.parametrize("sentence", MAPS)
def test_token_maps_are_compared_both_ways(tmp_path, language, sentence):
    found = lint(EAGLE, eagle(tmp_path, MAPS[sentence]), language)
    assert any(text.startswith(sentence) for text in wrong(found)) == bool(sentence)
    assert sentence or not wrong(found)
    assert ("name the same 120 tokens" in said(found)) == (not sentence)


def test_a_map_of_another_form_is_not_compared(tmp_path, language):
    rows = torch.full((toys.LANGUAGE_SIZE,), -1).index_copy(0, IDS, torch.arange(len(IDS)))
    found = lint(EAGLE, eagle(tmp_path, lambda state: state.update(t2d=rows)), language)
    assert wrong(found) == [] and f"t2d is int64 [{toys.LANGUAGE_SIZE}], not a mask" in said(found)


@pytest.mark.parametrize("dead", [3, 60, 100])
def test_dead_rows_of_the_head_are_named_however_many(tmp_path, dead):
    """One whose token is dead in the target's head too is not a fault: the token is not in use."""
    model = toys.language_model()
    model.get_output_embeddings().weight.data[IDS[1]] = 0
    own = Language("toy", model, toys.tokenizer(), None)
    folder = eagle(tmp_path, lambda state: state["lm_head.weight"][:dead].mul_(1e-7))
    found = lint(EAGLE, folder, own)
    assert found.dead == tuple(range(dead))
    (text,) = wrong(found)
    assert text.startswith(f"{dead - 1} of 120 rows (0") and "one logit" in text
    assert "1 of 120 rows (1) of its head are near zero, as the target's are" in said(found)


def test_how_much_of_a_text_the_head_covers():
    """Counted token by token. No share is a fault: few tokens show little, and the interval
    (Wilson's for 8 of 10, computed by hand) says how little."""
    texts, mean_p = [0] * 6 + [1] * 2 + [2] * 2, np.array([0.5, 0.3, 0.2, 0.0])
    used = np.bincount(texts, minlength=4)
    (remark,) = covered(torch.tensor([2, 0]), mean_p, used)
    assert not remark.wrong
    assert (
        "drafts 2 of the target's tokens. They cover 8 of the text's 10 tokens (80.0%, 95 %"
        in remark.text
    )
    assert "interval 49.0% to 94.3%" in remark.text
    assert "70.0% of p" in remark.text
    (remark,) = covered(torch.tensor([2, 0]), mean_p, used, dead=(1,))
    assert not remark.wrong
    assert (
        "drafts 2 of the target's tokens (not counting 1 near zero). They cover 2 of the text's"
        in remark.text
    )
    assert "20.0% of p" in remark.text
    (remark,) = covered(torch.tensor([0, 0]), mean_p, used, whose="the texts'")
    assert "They cover 6 of the texts' 10 tokens" in remark.text and "50.0% of p" in remark.text
    (remark,) = covered(None, mean_p, used, dead=(0, 3))
    assert (
        "drafts 4 of the target's tokens (not counting 2 near zero). They cover 4 of" in remark.text
    )
    (remark,) = covered(None, mean_p, used)
    assert remark.text == "it drafts every token of the vocabulary"


def test_every_drafter_says_which_tokens_it_drafts():
    ids = torch.tensor([1, 3])
    for made in (toys.eagle_drafter(ids=ids), toys.dart_drafter(ids=[1, 3])):
        assert made.covered is not None and torch.equal(made.covered.ids, ids)
    assert toys.dflash_drafter().covered is None and toys.sps_drafter().covered is None


# ── precision ────────────────────────────────────────────────────────────────────────────────────


def eighths(matrix, kind=torch.float8_e4m3fn):
    """Rounded to eight bits with a scale for each row, and written back."""
    scale = matrix.abs().amax(1, keepdim=True) / torch.finfo(kind).max
    return (matrix / scale).to(kind).float() * scale


def integers(matrix, most, group):
    """Rounded to integers of at most this size, with a scale for each group of columns."""
    groups = matrix.unflatten(1, (-1, group))
    scale = groups.abs().amax(-1, keepdim=True) / most
    return ((groups / scale).round() * scale).flatten(1)


ROUNDED = {
    "float32": (lambda w: w, torch.float32, False),
    "bf16": (lambda w: w, torch.bfloat16, False),
    "bf16 in float32": (lambda w: w.bfloat16(), torch.float32, False),
    "half of it pruned": (lambda w: w * (w > 0), torch.bfloat16, False),
    "e4m3": (eighths, torch.bfloat16, True),
    "e5m2 in float32": (lambda w: eighths(w, torch.float8_e5m2), torch.float32, True),
    "int8, a row": (lambda w: integers(w, 127, 192), torch.bfloat16, True),
    "int8, groups of 32": (lambda w: integers(w, 127, 32), torch.float16, True),
    "int4, groups of 64": (lambda w: integers(w, 7, 64), torch.bfloat16, True),
}


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("spread", [torch.randn, torch.rand])
def test_weights_that_were_rounded_before_they_were_stored(name, spread):
    change, kind, coarse = ROUNDED[name]
    weights = spread(256, 192, generator=torch.Generator().manual_seed(1)) - 0.1
    bits = mantissa_bits(change(weights).to(kind))
    assert (bits < COARSE) == coarse
    if kind == torch.bfloat16 and not coarse:
        assert 6.5 < bits < 7.1


def test_too_few_numbers_tell_nothing():
    assert mantissa_bits(torch.randn(8, 32)) is None
    assert mantissa_bits(torch.ones(64, 64)) is None
    assert mantissa_bits(torch.randn(500, 31)) is None


def test_what_is_said_of_precision_is_what_is_known(tmp_path, language):
    def rounded(state):
        state["fc.weight"] = eighths(state["fc.weight"].float()).bfloat16()

    for name, change, sentence in (
        ("plain", lambda state: None, "BF16 100%: the numbers show no rounding to fewer bits"),
        ("rounded", rounded, "They look rounded to eight bits or fewer before they were stored"),
    ):
        assert sentence in said(lint(DFLASH, dflash(tmp_path / name, change), language))


def test_a_head_by_another_name_is_not_denied(tmp_path):
    """A draft model has its own embedding and head, whatever their names."""
    target, _ = save_toys(tmp_path)
    language = load_language(str(target), "cpu")
    assert "of its own and uses" not in said(lint(sps.FORM, tmp_path / "sps", language))
    assert said(lint(medusa.FORM, tmp_path / "medusa", language)).count("of its own and uses") == 2
    made = medusa.MedusaModel(medusa.MedusaConfig(5, 32, 2, language.vocabulary)).bfloat16()
    medusa.FORM.save_model(made, tmp_path / "own")
    assert "of its own and uses" not in said(lint(medusa.FORM, tmp_path / "own", language))


def test_no_checkpoint_is_one_sentence(tmp_path, language):
    with pytest.raises(UserError, match="no DFlash checkpoint"):
        lint(DFLASH, tmp_path, language)


def test_the_command_shows_what_is_wrong_before_it_refuses_the_file(tmp_path, capsys):
    target, drafter = save_toys(tmp_path)
    file = drafter / "model.safetensors"
    state = load_file(file)
    del state["hidden_norm.weight"]
    save_file(state, file)
    assert main(["diagnose", "ddtree", "--model", str(target), "--drafter", str(drafter)]) == 2
    shown = capsys.readouterr()
    assert "wrong: hidden_norm.weight is missing" in shown.out
    assert "hidden_norm.weight" in shown.err


def test_a_config_that_reads_layers_its_target_has_not_contradicts_itself(tmp_path, capsys):
    _, drafter = save_toys(tmp_path)
    config = json.loads((drafter / "config.json").read_text())
    inner = config["dflash_config"] | {"target_layer_ids": [1, 2, 9]}
    lies = config | {"num_target_layers": 6, "dflash_config": inner}
    (drafter / "config.json").write_text(json.dumps(lies))
    assert main(["model", "doctor", str(drafter)]) == 1
    shown = capsys.readouterr().out
    assert "contradicts itself: the drafter reads what comes out of the target's layers" in shown
    assert "1, 2, 9, but its target has the layers 0 to 5" in shown
