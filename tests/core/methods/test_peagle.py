"""P-EAGLE: its published files."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.drafters.lint import lint
from core.errors import UserError
from core.methods.eagle3.model import FORM as EAGLE
from core.methods.eagle3.model import save
from core.methods.method import DepthOptions
from core.methods.peagle.drafter import load
from core.methods.peagle.model import FORM
from core.models.checkpoint import WithHead
from core.models.language import Language
from tests.helpers import slow_methods, toys
from tests.helpers.drafter_reference import IDS, assert_close, log_q, numbers
from tests.helpers.toys_on_disk import write_checkpoint as write

# ── files ────────────────────────────────────────────────────────────────────────────────────────

LAYER = {
    **toys.LAYER, "num_hidden_layers": 2, "vocab_size": 48, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}  # fmt: skip


def published(folder, by="speculators", embedding=True, **fields):
    """A checkpoint as its trainer writes it; (the drafter it should give, its tensors)."""
    drafter = toys.parallel_drafter(ids=IDS, dtype=torch.float32, own_embedding=embedding)
    state = {n.replace("midlayer.", "layers.0."): t for n, t in drafter.model.state_dict().items()}
    state |= {
        "lm_head.weight": drafter.head.weight,
        "d2t": IDS - torch.arange(len(IDS)),
        "t2d": torch.isin(torch.arange(48), IDS),
    }
    own = {"draft_vocab_size": len(IDS), "mask_token_id": 47, "norm_before_residual": False}
    if by == "speculators":
        raw = own | {
            "architectures": ["PEagleSpeculator"], "speculators_model_type": "peagle",
            "eagle_aux_hidden_state_layer_ids": [2, 3, 4],
            "transformer_layer_config": LAYER | {"model_type": "llama"},
        }  # fmt: skip
    else:
        raw = own | LAYER | {"architectures": ["PEagleDraftModel"], "model_type": "llama"}
    write(folder, {n: v for n, v in (raw | fields).items() if v is not None}, state)
    return drafter, state


@pytest.mark.parametrize("embedding", [True, False])
@pytest.mark.parametrize("by", ["speculators", "SpecForge"])
def test_the_published_layouts_are_read(by, embedding, tmp_path):
    drafter, state = published(tmp_path, by, embedding)
    assert {"mask_hidden", "layers.0.hidden_norm.weight", "layers.1.mlp.up_proj.weight"} <= {*state}
    assert ("embed_tokens.weight" in state) == embedding
    assert state["mask_hidden"].shape == (1, 1, 96)
    found = FORM.load_checkpoint(tmp_path, torch.float32, "cpu")
    for name, tensor in drafter.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], tensor), name
    assert torch.equal(found.head, drafter.head.weight) and torch.equal(found.ids, IDS)
    config = found.model.config
    assert config.mask_token_id == 47 and config.own_embedding == embedding
    assert config.feature_layers(30) == ((1, 2, 3) if by == "speculators" else (1, 14, 26))
    save(found, tmp_path / "again")
    assert FORM.load_config(tmp_path / "again") == config
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == state.keys()


def test_with_an_embedding_of_its_own_it_may_be_narrower_than_its_target(tmp_path):
    published(tmp_path / "own", "SpecForge", target_hidden_size=64)
    assert FORM.load_config(tmp_path / "own").of_target["hidden size"] == 64
    published(tmp_path / "shared", "SpecForge", embedding=False, target_hidden_size=64)
    with pytest.raises(UserError, match="reads the embedding of a target of hidden size 64"):
        FORM.load_config(tmp_path / "shared")


@pytest.mark.parametrize("name", ["pard_token", "ptd_token_id"])
def test_engines_names_of_the_mask_are_read(name, tmp_path):
    published(tmp_path, "SpecForge", mask_token_id=None, **{name: 46})
    assert FORM.load_config(tmp_path).mask_token_id == 46


@pytest.mark.parametrize("embedding", [True, False])
def test_an_embedding_that_was_trained_along_is_used(embedding, tmp_path):
    own = Language("toy", toys.model(dtype=torch.float32), toys.tokenizer(), None)
    drafter, state = published(tmp_path, embedding=embedding)
    found, features = load(own, tmp_path, DepthOptions(5)), numbers(1, 2, 96).float()
    found.reset(20)
    found.extend([3, 4], features)
    table = state["embed_tokens.weight"] if embedding else own.embedding.weight
    assert torch.equal(found.embed([7, 9]), table[[7, 9]]) and found.layers == (1, 2, 3)
    drafter.model.to(torch.float64)
    drafter.head.to(torch.float64)
    slow = slow_methods.peagle(drafter, [3, 4], features.double(), 5)
    assert_close(log_q(found.begin(5, 16), [5] * 5).exp(), slow.exp(), 1e-5)


@pytest.mark.parametrize(
    ("fields", "drop", "words"),
    [
        ({"mask_token_id": None}, "", "mask_token_id"),
        ({"mask_token_id": 48}, "", "mask token 48 is outside"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 3]}, "", "fc.weight has shape"),
        ({}, "mask_hidden", "mask_hidden is missing"),
        ({"transformer_layer_config": LAYER | {"num_hidden_layers": 3}}, "", "layers.2"),
    ],
)
def test_what_is_wrong_in_a_checkpoint_is_one_sentence(fields, drop, words, tmp_path):
    published(tmp_path, **fields)
    state = load_file(tmp_path / "model.safetensors")
    save_file({n: t for n, t in state.items() if n != drop}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=words) as error:
        FORM.load_checkpoint(tmp_path, torch.float32, "cpu")
    assert "\n" not in str(error.value)


def test_eagle3_does_not_read_its_file(tmp_path):
    published(tmp_path)
    with pytest.raises(UserError, match=r"mask_hidden.*none of this name"):
        EAGLE.load_checkpoint(tmp_path, torch.float32, "cpu")


# ── the file's look ──────────────────────────────────────────────────────────────────────────────


def looked_through(folder, embedding, change=lambda model: None):
    own = Language("toy", toys.language_model(), toys.tokenizer(), None)
    size = {"vocab_size": toys.LANGUAGE_SIZE, "own_embedding": embedding}
    made = toys.parallel_drafter(dtype=torch.float32, **size)
    change(made.model)
    save(WithHead(made.model, made.head.weight), folder)
    return lint(FORM, folder, own).remarks


@pytest.mark.parametrize("embedding", [True, False])
def test_a_sound_file_has_no_fault_and_its_embedding_is_its_own(embedding, tmp_path):
    found = looked_through(tmp_path, embedding)
    assert [remark.text for remark in found if remark.wrong] == []
    said = " ".join(remark.text for remark in found)
    assert ("its embedding is its own" in said) == embedding


def test_a_mask_that_is_near_zero_in_its_own_embedding_is_said(tmp_path):
    def shrink(model):
        model.embed_tokens.weight[47] *= 1e-2

    wrong = [remark.text for remark in looked_through(tmp_path, True, shrink) if remark.wrong]
    assert [text[:35] for text in wrong] == ["the mask token 47 has an embedding "]
