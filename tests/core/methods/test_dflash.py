"""DFlash's layer against transformers' own."""

import pytest
import torch
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3DecoderLayer,
    Qwen3Model,
    Qwen3RotaryEmbedding,
)

from core.models.layers import LayerContext, Rope
from tests.helpers import toys
from tests.helpers.drafter_reference import assert_close, numbers
from tests.helpers.slow_methods import LLAMA3

YARN = Rope.of({"rope_scaling": {"type": "yarn", "factor": 4.0}, "max_position_embeddings": 32})


@pytest.mark.parametrize("rope", [Rope(), LLAMA3, YARN])
def test_a_layer_without_context_is_a_qwen3_layer_without_causal_mask(rope):
    config = toys.dflash_config(num_hidden_layers=1, rope=rope)
    model = toys.dflash_model(3, num_hidden_layers=1, rope=rope)
    shape = {
        **toys.LAYER,
        "num_hidden_layers": 1,
        "attn_implementation": "eager",
        "rope_parameters": config.rope.to_json(),
    }
    theirs = Qwen3DecoderLayer(Qwen3Config(**shape), 0).double()
    theirs.load_state_dict(model.layers[0].state_dict())
    block, where = numbers(13, 1, 8, 32), torch.arange(8)[None] + 5
    rotary = Qwen3RotaryEmbedding(theirs.self_attn.config)(block, where)
    expected = theirs(block, position_embeddings=rotary, attention_mask=None)
    expected = expected[0] if isinstance(expected, tuple) else expected
    empty = [LayerContext(numbers(0, 2, 0, 8), numbers(0, 2, 0, 8))]
    assert_close(model(block, where, empty), expected)


@pytest.mark.parametrize("window", [1, 4, 40])
def test_a_sliding_layer_is_a_qwen3_layer_with_its_causal_window(window):
    """Of features that are the block's own states, so that context and block are one text."""
    mask = {"num_hidden_layers": 1, "sliding": (True,), "window": window}
    model, text = toys.dflash_model(3, target_layer_ids=(0,), **mask), numbers(14, 1, 20, 32)
    config = Qwen3Config(
        hidden_size=32, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, num_hidden_layers=1, vocab_size=4, layer_types=["sliding_attention"],
        use_sliding_window=True, sliding_window=window, attn_implementation="eager",
        rope_parameters=model.config.rope.to_json(),
    )  # fmt: skip
    theirs = Qwen3Model(config).double()
    theirs.layers[0].load_state_dict(model.layers[0].state_dict())
    theirs.norm = torch.nn.Identity()
    expected = theirs(inputs_embeds=text).last_hidden_state[:, 12:]
    normed = model.layers[0].input_layernorm(text[0, :12])
    rotary = model.rotary(torch.arange(12), text.dtype)
    context = model.layers[0].self_attn.keys_values(normed, rotary)
    assert_close(model(text[:, 12:], torch.arange(12, 20)[None], [context]), expected)


def test_a_low_temperature_and_a_checkpoint_s_scale_sharpen_q():
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    drafter = toys.dflash_drafter(logit_scale=0.25)
    assert torch.equal(drafter.log_softmax(logits), (logits * 0.25).log_softmax(-1))
    drafter = toys.dflash_drafter()
    drafter.temperature = 0.5
    assert torch.equal(drafter.log_softmax(logits), (logits * 2).log_softmax(-1))
