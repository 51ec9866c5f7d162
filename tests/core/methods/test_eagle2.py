"""The EAGLE-1 layer: what it reads, and its published files."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from core.errors import UserError
from core.methods.eagle2.model import FORM, FeatureConfig
from tests.helpers import toys
from tests.helpers.drafter_reference import assert_close


def test_it_reads_the_targets_last_hidden_state_after_the_final_norm():
    drafter = toys.feature_drafter()
    assert drafter.layers == (3,)
    tokens = [5, 17, 3, 44]
    features = toys.full_forward(tokens, layers=drafter.layers).features
    head = toys.model().get_output_embeddings().weight
    assert_close(features @ head.T, toys.full_forward(tokens).logits)


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def published(folder, bias=True, fields=None):
    """A checkpoint in the official layout, written here; (the network it should give)."""
    drafter = toys.feature_drafter(dtype=torch.float32, bias=bias, own_embedding=True)
    model = drafter.model
    state = {n.replace("midlayer.", "layers.0."): t for n, t in model.state_dict().items()}
    assert state.keys() >= {"fc.weight", "layers.0.self_attn.q_proj.weight"}
    assert state["embed_tokens.weight"].shape == (48, 32)
    usual = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": 48,
        "rms_norm_eps": 1e-6,
        "model_type": "llama",
    }
    if not bias:
        usual["bias"] = False
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(usual | (fields or {})))
    save_file({n: t.contiguous() for n, t in state.items()}, folder / "model.safetensors")
    return model


@pytest.mark.parametrize("bias", [True, False])
def test_the_published_layout_is_read(tmp_path, bias):
    model = published(tmp_path, bias)
    found = FORM.load_model(tmp_path, torch.float32, "cpu")
    assert found.config.bias is bias and found.config.feature_layers(30) == (29,)
    for name, tensor in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
    FORM.save_model(found, tmp_path / "again")
    again = FORM.load_config(tmp_path / "again")
    assert again == found.config
    raw = FeatureConfig.from_json(found.config.to_json())
    assert again == replace(raw, own_embedding=True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"bias": False}, "fc.bias"),
        ({"qkv_bias": True}, "qkv_bias"),
        ({"num_hidden_layers": 2}, "2 layers"),
        ({"hidden_size": None}, "EAGLE-2"),
    ],
)
def test_what_is_wrong_in_a_checkpoint_is_one_sentence(tmp_path, fields, words):
    published(tmp_path, fields=fields)
    with pytest.raises(UserError, match=words) as error:
        FORM.load_model(tmp_path, torch.float32, "cpu")
    assert "\n" not in str(error.value)
