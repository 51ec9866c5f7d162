"""llama.cpp's drafters in GGUF files: the same q at every node, and one sentence for others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from analysis.drafters.lint import lint
from app.cli import main
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods.dflash import model as dflash
from core.methods.dflash2 import model as dflash2
from core.methods.dspark import model as dspark
from core.methods.eagle3 import model as eagle3
from core.methods.loading import form_of
from core.methods.method import drafter_source, find_drafter
from core.methods.registry import choose
from core.models.checkpoint import WithHead
from core.models.hub import Source
from core.models.layers import Rope
from tests.helpers import toys
from tests.helpers.gguf_files import write_drafter
from tests.helpers.timing import amount
from tests.helpers.toys_on_disk import BYTES

Q8 = gguf.GGMLQuantizationType.Q8_0
LLAMA3 = (("factor", 8.0), ("high_freq_factor", 4.0), ("low_freq_factor", 1.0),
          ("original_max_position_embeddings", 64), ("rope_type", "llama3"))  # fmt: skip
YARN = (("beta_fast", 16.0), ("factor", 4.0), ("original_max_position_embeddings", 64),
        ("rope_type", "yarn"))  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A drafter: its kind, its config's fields, and how many tokens its head scores."""

    kind: str
    fields: dict[str, Any]
    tokens: int = BYTES


CASES = {
    "EAGLE-3": Case("eagle3", {}),
    "a part of the vocabulary": Case("eagle3", {}, 100),
    "a normed residual": Case("eagle3", {"norm_before_residual": True, "layers": (0, 1, 3)}),
    "a norm before fc": Case("eagle3", {"norm_before_fc": True, "layers": (-1, 3)}),
    "DFlash": Case("dflash", {}),
    "one causal block": Case("dflash", {"causal": False}),
    "sliding layers": Case("dflash", {"sliding": (True, False), "window": 5, "causal": False}),
    "DSpark": Case("dspark", {}),
    "DSpark without confidence": Case(
        "dspark", {"enable_confidence_head": False, "confidence_head_with_markov": False}
    ),
    "DSpark past its anchor": Case("dspark", {"sample_from_anchor": False}),
    "DFlash 2": Case("dflash2", {}),
    "yarn": Case("dflash", {"rope": Rope(10000.0, YARN)}),
    "yarn in EAGLE-3": Case("eagle3", {"rope": Rope(10000.0, YARN)}),
}


BLOCKS = {
    "dflash": (toys.dflash_model, dflash.FORM),
    "dspark": (toys.dspark_model, dspark.FORM),
    "dflash2": (toys.dflash2_model, dflash2.FORM),
}


@pytest.fixture(scope="module")
def target(toys_folder):
    return toys_folder / "target"


pytestmark = pytest.mark.usefixtures("models_cache")


def saved(case, folder):
    """A drafter of random weights as safetensors."""
    sizes = {"vocab_size": BYTES, "dtype": torch.float32}
    if case.kind in BLOCKS:
        make, form = BLOCKS[case.kind]
        form.save_model(make(mask_token_id=BYTES - 1, **sizes, **case.fields), folder)
        return folder
    ids = None if case.tokens == BYTES else torch.arange(case.tokens) * 2
    config = {"draft_vocab_size": case.tokens, **sizes, **case.fields}
    drafter = toys.eagle_drafter(ids=ids, **config)
    head = toys.numbers_like(torch.zeros(case.tokens, 32), 5) * 0.3
    eagle3.save(WithHead(drafter.model, head, ids), folder)
    return folder


def both(case, folder, **more):
    """Its folder and its file."""
    made, file = saved(case, folder / "published"), folder / "drafter.gguf"
    write_drafter(made, file, "dflash" if case.kind in BLOCKS else case.kind, **more)
    return made, file


TOKENS = amount(12, 24)


def drafts(target, drafter, method, tokens=TOKENS):
    """Every round's draft and feature layers."""
    engine = Engine(str(target), "cpu", drafter)
    engine.check(method)
    request = RunRequest(prompt="the cat sat", method=method, budget=12, max_new_tokens=tokens)
    run = engine.start(request)
    found = [record.draft for record in run.rounds if record.draft is not None]
    assert len(found) > 3
    return found, run.header.drafter["layers"]


def same(mine, its):
    return all(
        np.array_equal(getattr(mine, name), getattr(its, name))
        for name in ("tokens", "parents", "log_q")
    )


@pytest.mark.parametrize("what", CASES)
def test_every_node_has_the_q_of_the_same_weights_in_safetensors(what, target, tmp_path):
    case = CASES[what]
    method = {"dflash": "ddtree"}.get(case.kind, case.kind)
    one, two = (drafts(target, path, method) for path in both(case, tmp_path))
    assert one[1] == two[1] and len(one[0]) == len(two[0]) and all(map(same, one[0], two[0]))


def test_llama3_s_frequencies_are_those_of_its_fields(target, tmp_path):
    """A file keeps what they are divided by, not the fields."""
    folder, file = both(Case("eagle3", {"rope": Rope(10000.0, LLAMA3)}), tmp_path)
    engines = [Engine(str(target), "cpu", path) for path in (folder, file)]
    ropes = [each.load_drafter(choose("eagle3")).model.config.rope for each in engines]
    (one, scale), (two, same_scale) = (rope.frequencies(8, torch.device("cpu")) for rope in ropes)
    torch.testing.assert_close(one, two, rtol=1e-6, atol=0)
    assert scale == same_scale == 1 and not torch.equal(one, Rope().frequencies(8, one.device)[0])


@pytest.mark.parametrize("kind", ["eagle3", *BLOCKS])
def test_a_quantised_file_is_rounded_to_bfloat16(kind, tmp_path):
    folder, file = both(Case(kind, {}), tmp_path, stored=Q8)
    made = load_file(drafter_source(find_drafter(kind), Source(str(file))).full_folder()
                     / "model.safetensors")  # fmt: skip
    whole = load_file(folder / "model.safetensors")
    where = "midlayer" if kind == "eagle3" else "layers.0"
    found, own = (state[f"{at}.mlp.gate_proj.weight"]
                  for state, at in ((made, "layers.0"), (whole, where)))  # fmt: skip
    wanted = gguf.dequantize(gguf.quantize(own.float().numpy(), Q8), Q8)
    assert torch.equal(found, torch.from_numpy(wanted).bfloat16()) and not torch.equal(found, own)


def config_of(case, folder, **more):
    """The config.json that its file becomes."""
    _, file = both(case, folder, **more)
    source = drafter_source(find_drafter(case.kind), Source(str(file)))
    return json.loads((source.full_folder() / "config.json").read_text())


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_positions_of_text_are_one_on_three_axes(kind, tmp_path):
    plain = config_of(Case(kind, {}), tmp_path / "plain")
    sections = told(rope__dimension_sections=[2, 1, 1, 0])
    assert config_of(Case(kind, {}), tmp_path / "sections", change=sections) == plain


def test_the_vocabulary_is_the_config_s_where_the_tokenizer_has_fewer_tokens(tmp_path):
    def change(fields, state):
        fields["vocab_size"] = BYTES + 7
        state.pop("output.weight", None)

    found = config_of(Case("eagle3", {}), tmp_path, change=change)
    assert found["vocab_size"] == found["draft_vocab_size"] == BYTES + 7


def test_it_is_exported_in_the_official_form(target, tmp_path, capsys):
    folder, file = both(Case("eagle3", {}, 100), tmp_path)
    words = ["--kind", "eagle3", "--model", str(target), "--out", str(tmp_path / "out")]
    assert main(["model", "export", *words, "--drafter", str(file)]) == 0, capsys.readouterr().err
    mine, its = (load_file(each / "model.safetensors") for each in (folder, tmp_path / "out"))
    assert mine.keys() == its.keys()
    assert all(torch.equal(tensor.to(its[name].dtype), its[name]) for name, tensor in mine.items())


def moved(old, new):
    return lambda fields, state: state.update({new: state.pop(old)})


def told(**own):
    return lambda fields, state: fields.update({n.replace("__", "."): v for n, v in own.items()})


def added(name):
    return lambda fields, state: state.update({name: torch.zeros(4, 32)})


OF_RELATIVES = {
    ("dflash", "dspark"): "has no tensor 'markov_w1.weight', by which DSpark is known among llama",
    ("dflash", "dflash2"): "has no tensor 'selector_hidden.weight', by which DFlash 2 is known",
    ("dspark", "dflash"): "looks like a drafter with a Markov head (dspark), and of llama.cpp's",
    ("dspark", "dflash2"): "has no tensor 'selector_hidden.weight', by which DFlash 2 is known",
    ("dflash2", "dflash"): "looks like a drafter with a selector (dflash2), and of llama.cpp's",
    ("dflash2", "dspark"): "has no tensor 'markov_w1.weight', by which DSpark is known among llama",
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_three_kinds_of_one_architecture_are_told_apart(kind, target, tmp_path, capsys):
    _, file = both(Case(kind, {}), tmp_path)
    assert main(["model", "doctor", str(file)]) == 0
    assert f"opens as a drafter: {kind}, for a target of" in capsys.readouterr().out
    for (whose, method), words in OF_RELATIVES.items():
        if whose == kind:
            run = ["run", method, "--model", str(target), "--drafter", str(file), "--prompt", "hi"]
            assert main([*run, "--device", "cpu"]) == 2
            said = capsys.readouterr().err.strip().splitlines()[-1]
            assert words in said and str(file) in said


WRONG = {
    "no selector's rank": ("dflash2", lambda f, s: f.pop("selector_rank"), "'selector_rank'"),
    "a gate": ("dspark", added("markov_gate.weight"), "'markov_gate.weight' is not known here"),
    "sinks": (
        "dflash",
        added("blk.0.attn_sinks.weight"),
        "it looks like a drafter with attention sinks",
    ),
    "axes": ("dflash", told(rope__dimension_sections=[1, 1, 1, 1]), "on a fourth axis"),
    "no window": ("dflash", told(attention__sliding_window=4), "sliding_window_pattern"),
    "a scale": ("dflash", told(logit_scale=2.0), "the field 'dflash.logit_scale' is not known"),
    "a norm": (
        "eagle3",
        added("blk.0.attn_q_norm.weight"),
        "'blk.0.attn_q_norm.weight' is not known",
    ),
    "a bias": (
        "eagle3",
        added("blk.0.attn_q.bias"),
        "of llama.cpp's 'eagle3' plain EAGLE-3 is read",
    ),
    "old fields": (
        "eagle3",
        told(extract_layers=[2, 2, 1]),
        "'eagle3.extract_layers' is not known",
    ),
    "no layers": ("eagle3", lambda f, s: f.pop("target_layers"), "no field 'target_layers'"),
    "no tensor": ("eagle3", lambda f, s: s.pop("fc.weight"), "tensor fc.weight is missing"),
    "a shape": ("eagle3", told(feed_forward_length=48), "has shape (32, 40), expected (32, 48)"),
    "a half turn": ("eagle3", told(rope__dimension_count=4), "rotates only a part of its heads"),
    "narrow": (
        "eagle3",
        told(target_hidden_size=64),
        "its hidden size is 32, and it reads the embedding of a target of hidden size 64",
    ),
    "two widths": ("eagle3", told(attention__value_length=4), "keys and values have other widths"),
    "no heads": ("eagle3", told(attention__head_count=0), "holds no EAGLE-3 checkpoint"),
    "lists": ("eagle3", told(attention__head_count=[4]), "holds no EAGLE-3 checkpoint"),
    "a huge one": (
        "eagle3",
        told(feed_forward_length=1 << 31),
        "intermediate_size cannot be 2147483648",
    ),
    "another": ("eagle3", told(architecture="dflash-draft"), "of the architecture 'dflash-draft'"),
    "below": ("eagle3", moved("blk.0.attn_q.weight", "attn_q.weight"), "self_attn.q_proj.weight"),
}


@pytest.mark.parametrize("what", WRONG)
def test_another_variant_is_refused_in_one_sentence(what, target, tmp_path, capsys, models_cache):
    kind, change, words = WRONG[what]
    _, file = both(Case(kind, {}), tmp_path, change=change)
    run = ["run", kind, "--model", str(target), "--drafter", str(file), "--prompt", "hi"]
    assert main([*run, "--device", "cpu"]) == 2
    printed = capsys.readouterr()
    said = printed.err.strip().splitlines()[-1]
    assert words in said and str(file) in said and "Traceback" not in printed.err
    assert not models_cache.exists() or list(models_cache.iterdir()) == []
    assert main(["model", "doctor", str(file)]) == 1
    printed = capsys.readouterr().out
    assert (words in printed or what == "another") and "does not open: " in printed


def test_a_file_of_another_kind_is_said(target, tmp_path):
    _, file = both(Case("eagle3", {}), tmp_path)
    with pytest.raises(UserError, match="holds a model of the architecture 'eagle3', and of GGUF"):
        Engine(str(target), "cpu", file).check("dflash")
    Engine(str(target), "cpu", file).check("eagle3")
    with pytest.raises(UserError, match="architecture 'eagle3'"):
        Engine(str(target), "cpu", file).check("ddtree")


@pytest.mark.parametrize(("kind", "count"), [("eagle3", 3), ("dflash", 2)])
def test_a_drafter_of_another_target_is_said_by_its_file(kind, count, target, tmp_path):
    _, file = both(Case(kind, {}), tmp_path, change=told(target_layers=[2, 9, 1][-count:]))
    with pytest.raises(UserError, match=r"but .* has the layers 0 to 3$") as found:
        Engine(str(target), "cpu", file).check(kind)
    assert str(found.value).startswith(f"the drafter in {file} reads")


def test_the_doctor_opens_it_by_its_header(tmp_path, capsys, models_cache):
    _, file = both(Case("eagle3", {}, 100), tmp_path)
    assert main(["model", "doctor", str(file)]) == 0
    printed = capsys.readouterr().out
    assert (
        "opens as a drafter: eagle3, for a target of hidden size 32, vocabulary size 257" in printed
    )
    assert "drafts 100 of the target's tokens" in printed and "does not" not in printed
    assert "opens as a target" not in printed and not models_cache.exists()
    _, file = both(Case("dflash", {}), tmp_path / "other")
    assert main(["model", "doctor", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "opens as a drafter: dflash" in printed and "drafts 7 tokens at most" in printed


def test_lint_has_no_false_alarm(target, tmp_path):
    folder, file = both(Case("eagle3", {}, 100), tmp_path)
    language = Engine(str(target), "cpu").prepare()
    source = drafter_source(find_drafter("eagle3"), Source(str(file)))
    mine, its = (lint(form_of(find_drafter("eagle3")), path, language).remarks[1:]
                 for path in (folder, source.full_folder()))  # fmt: skip
    assert [each for each in mine if "t2d" not in each.text] == list(its)
    assert not any(remark.wrong for remark in its)


def test_a_preset_names_files(target, tmp_path, capsys, models_cache):
    _, file = both(Case("eagle3", {}), tmp_path)
    preset = tmp_path / "toy.toml"
    preset.write_text(f'[toy]\ntarget = "{target}"\ndrafters.dflash = "{file}"\n')
    assert main(["model", "doctor", str(preset)]) == 1
    assert f"{file}: it holds a model of the architecture 'eagle3'" in capsys.readouterr().out
    preset.write_text(f'[toy]\ntarget = "{target}"\ndrafters.eagle3 = "{file}"\n')
    assert main(["model", "doctor", str(preset)]) == 0
    assert "opens as a drafter: eagle3" in capsys.readouterr().out and not models_cache.exists()
    assert main(["model", "fetch", str(preset)]) == 0
    words = ["--model", str(preset), "--prompt", "hi", "--max-new-tokens", "8", "--device", "cpu"]
    assert main(["run", "eagle3", *words]) == 0
