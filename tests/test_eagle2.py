"""The EAGLE-1 layer against the method recomputed token by token, and its published files."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from core.errors import UserError
from core.methods.eagle2.model import FORM, FeatureConfig
from core.models.layers import Rope
from tests import toys
from tests.test_dflash import assert_close, mlp, norm
from tests.test_eagle3 import slow_attention


def slow_log_q(drafter, tokens, features, path):
    """log q [V] after a path that begins with the root, as ``test_eagle3.slow_log_q``."""
    config, eps = drafter.model.config, drafter.model.config.rms_norm_eps
    w = {n.removeprefix("midlayer."): t for n, t in drafter.model.state_dict().items()}
    whole = [*tokens, *path]
    embedded = toys.model().get_input_embeddings().weight
    keys, values, out = [], [], None
    for i in range(len(whole) - 1):
        feature = features[i] if i < len(tokens) else out
        x = w["fc.weight"] @ torch.cat([embedded[whole[i + 1]], feature]) + w.get("fc.bias", 0)
        x = x + slow_attention(config, w, x, keys, values, i)
        out = x + mlp(norm(x, w["post_attention_layernorm.weight"], eps), w)
    head = toys.model().get_output_embeddings().weight
    return (head @ out / drafter.options.temperature).log_softmax(-1)


CHANGES = [{}, {"bias": False, "temperature": 0.5}, {"num_key_value_heads": 4, "rope": Rope(500.0)}]


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
