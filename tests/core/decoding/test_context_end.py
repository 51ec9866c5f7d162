"""Texts that fill their model's context: drafts reach beyond it, the text does not."""

from types import SimpleNamespace

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

from core.decoding.decode import Decoder, decode
from core.decoding.request import Settings
from core.errors import UserError
from core.models.hugging_face import ATTENTION
from core.models.target import Target, context_limit, no_graph_reason
from core.rounds.draft import MAX_BUDGET
from core.rounds.round import new_tokens
from tests.helpers import toys

PROMPT = [token % toys.VOCABULARY for token in range(3, 23)]
ROPES = {
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
    "longrope": {
        "rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0,
        "short_factor": [1.0] * 4, "long_factor": [4.0, 3.0, 2.0, 8.0],
        "original_max_position_embeddings": 32,
    },
}  # fmt: skip
LIMIT = 32


def rotary(kind):
    longest = LIMIT if kind == "dynamic" else 128
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=toys.VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=longest,
        rope_parameters=dict(ROPES[kind]), attn_implementation=ATTENTION,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    ))  # fmt: skip


def learned(_):
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=toys.VOCABULARY, n_positions=LIMIT, n_embd=32, n_layer=4, n_head=4,
        attn_implementation=ATTENTION, bos_token_id=None, eos_token_id=None,
    ))  # fmt: skip


MODELS = {"dynamic": rotary, "longrope": rotary, "learned": learned}


def target(kind):
    torch.manual_seed(0)
    made = MODELS[kind](kind).double().eval().requires_grad_(False)
    for parameter in made.parameters():
        if parameter.ndim > 1:
            parameter.data = torch.randn_like(parameter) * 0.25
    return Target(made, toys.LAYERS)


@pytest.mark.parametrize("kind", MODELS)
def test_a_text_may_fill_the_context_and_no_more(kind):
    where = target(kind)
    assert where.context_limit == LIMIT
    room = LIMIT - len(PROMPT)
    texts = []
    for method in (Decoder("ar"), toys.tree(toys.dflash_drafter())):
        texts.append(new_tokens(list(decode(where, method, PROMPT, Settings(64, room)))))
    assert texts[0] == texts[1] and len(texts[0]) == room
    with pytest.raises(UserError, match=f"do not fit the model's context of {LIMIT}"):
        next(decode(where, Decoder("ar"), PROMPT, Settings(64, room + 1)))


@pytest.mark.parametrize("kind", MODELS)
def test_nodes_beyond_the_end_change_nothing_before_it(kind):
    where = target(kind)
    seen = []
    for nodes in (1, 12):
        where.prefill(PROMPT + [1] * 10, 64)
        chain = toys.draft_of(list(range(-1, nodes)), [1] * (nodes + 1))
        seen.append(where.score(chain).logits[:2])
    torch.testing.assert_close(seen[0], seen[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ROPES)
def test_a_model_that_depends_on_the_texts_length_is_not_captured(kind):
    assert "rotary" in (no_graph_reason(target(kind).model) or "")


def test_no_row_of_a_draft_comes_to_where_llama_4_begins_to_scale_queries():
    """It counts rows of the cache, floor((row + 1) / floor_scale), and not positions."""
    config = Llama4TextConfig(attn_temperature_tuning=True, floor_scale=4096)
    last = context_limit(SimpleNamespace(config=config)) - 1 + MAX_BUDGET  # behind the last root
    assert (last + 1) // config.floor_scale == 0 < (last + 3) // config.floor_scale
