"""What a checkpoint's file shows: each fault is planted in a toy's file; a sound one has none."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.drafters.lint import covered, head_ids, lint
from app.cli import main
from core.errors import UserError
from core.methods.dart.model import FORM as DART
from core.methods.dflash.model import FORM as DFLASH
from core.methods.eagle3.model import FORM as EAGLE
from core.methods.eagle3.model import save
from core.methods.treeflash import model as treeflash
from core.models.checkpoint import WithHead
from core.models.language import Language
from tests import toys
from tests.toys_on_disk import save_toys


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


def wrong(remarks):
    return [remark.text for remark in remarks if remark.wrong]


def test_sound_files_have_no_fault(tmp_path, language):
    assert wrong(lint(DFLASH, dflash(tmp_path / "a"), language)) == []
    sizes = {"vocab_size": toys.LANGUAGE_SIZE}
    DART.save_model(
        toys.dart_model(draft_vocab_size=toys.LANGUAGE_SIZE, **sizes), tmp_path / "b", True
    )
    remarks = lint(DART, tmp_path / "b", language)
    assert wrong(remarks) == []
    assert any("I8" in remark.text and "unquantised" in remark.text for remark in remarks)
    made = toys.treeflash_model(mask_token_id=258, dtype=torch.bfloat16, **sizes)
    treeflash.save_model(made, tmp_path / "c")
    assert wrong(lint(treeflash, tmp_path / "c", language)) == []


def drop(name):
    return lambda state: state.pop(name)


def put(name, value):
    return lambda state: state.update({name: value})


def zero_rows(state):
    state["fc.weight"][3:5] = 0


def nan(state):
    state["layers.0.mlp.up_proj.weight"][0, 0] = torch.nan


PLANTED = {
    "hidden_norm.weight is missing": drop("hidden_norm.weight"),
    "extra.weight is read by nothing": put("extra.weight", torch.ones(3)),
    "fc.weight has shape (5, 5)": put("fc.weight", torch.ones(5, 5)),
    "2 of 32 rows of fc.weight are near zero": zero_rows,
    "layers.0.mlp.up_proj.weight holds NaN": nan,
    "hidden_norm.weight is all zero": put("hidden_norm.weight", torch.zeros(32)),
    "many gains of norm.weight are negative": put("norm.weight", torch.tensor([-0.5, 0.3] * 16)),
}


@pytest.mark.parametrize("said", PLANTED)
def test_a_planted_fault_is_said(tmp_path, language, said):
    found = wrong(lint(DFLASH, dflash(tmp_path, PLANTED[said]), language))
    assert len(found) == 1 and found[0].startswith(said)


def test_a_mask_whose_embedding_is_near_zero(tmp_path):
    model = toys.language_model()
    model.get_input_embeddings().weight.data[258] *= 1e-4
    own = Language("toy", model, toys.tokenizer(), None)
    (found,) = wrong(lint(DFLASH, dflash(tmp_path), own))
    assert found.startswith("the mask token 258 has an embedding")


def test_facts_of_config_and_gains(tmp_path, language):
    folder = dflash(
        tmp_path, put("norm.weight", torch.ones(32)), rope_theta=5.0, max_position_embeddings=64
    )
    raw = json.loads((folder / "config.json").read_text())
    raw.pop("rope_parameters")
    (folder / "config.json").write_text(json.dumps(raw))
    said = " ".join(remark.text for remark in lint(DFLASH, folder, language))
    assert "gains of norm.weight are 1" in said
    assert "rope_theta is 5 and the target's 10000" in said
    assert "64 positions" in said and "no head of its own" in said


def test_a_trained_embedding_that_is_not_used(tmp_path, language):
    made = toys.eagle_drafter(vocab_size=toys.LANGUAGE_SIZE, dtype=torch.float32)
    weight = language.model.get_input_embeddings().weight.detach()
    for name, embedding in (("copy", weight), ("trained", weight + torch.randn_like(weight))):
        save(WithHead(made.model, None, None), tmp_path / name)
        file = tmp_path / name / "model.safetensors"
        save_file({**load_file(file), "embed_tokens.weight": embedding.contiguous()}, file)
    raw = {name: lint(EAGLE, tmp_path / name, language) for name in ("copy", "trained")}
    assert wrong(raw["copy"]) == []
    assert wrong(raw["trained"])[0].startswith("its embedding differs from the target's")


def test_the_share_of_text_that_a_draft_vocabulary_covers():
    mean_p, used = np.array([0.5, 0.3, 0.2, 0.0]), np.array([6, 2, 2, 0])
    (remark,) = covered(torch.tensor([0, 2]), mean_p, used)
    assert remark.wrong and "80.0% of the text's tokens and 70.0% of p" in remark.text
    (remark,) = covered(None, mean_p, used)
    assert not remark.wrong
    ids = torch.tensor([1, 3])
    assert torch.equal(head_ids(toys.eagle_drafter(ids=ids)), ids)
    assert torch.equal(head_ids(toys.dart_drafter(head=toys.dart_head([1, 3]))), ids)
    assert head_ids(toys.dflash_drafter()) is None


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
