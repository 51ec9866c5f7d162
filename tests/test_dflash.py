"""The DFlash drafter against the method written out plainly."""

import numpy as np
import pytest
import torch
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3DecoderLayer,
    Qwen3Model,
    Qwen3RotaryEmbedding,
)

from core.models.layers import LayerContext, Rope
from tests import toys
from tests.drafter_reference import assert_close, listed, log_q, numbers, written_out

# ── the method, plainly ──────────────────────────────────────────────────────────────────────────


# Waves of 6, 63, 628 and 6283 positions: one kept, one between, two slowed eightfold.
SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = Rope.of({"rope_theta": 10000.0, "rope_scaling": SCALING})


MASKS = [
    {"causal": True},
    {"sliding": (True, False), "window": 5},
    {"sliding": (True, True), "window": 10, "causal": False},
    {"sliding": (False, True), "window": 3, "causal": False},
    {"sliding": (True, False), "window": 1, "causal": True},
]


def with_context(features, changes=None):
    """A fresh drafter that has taken in this context."""
    drafter = toys.dflash_drafter(**(changes or {}))
    drafter.reset(64)
    drafter.extend([0] * len(features), features)
    return drafter


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "head_dim": 16},
        {"num_hidden_layers": 1, "block_size": 2},
        {"rope": LLAMA3},
        {"rope": Rope(500.0), "rms_norm_eps": 1e-2, "target_layer_ids": (0, 1, 2)},
        *MASKS,
    ],
)
@pytest.mark.parametrize("context", [0, 1, 13])
def test_the_network_equals_the_method_written_out(changes, context):
    model = toys.dflash_model(1, **changes)
    config, size = model.config, model.config.block_size
    features = numbers(2, context, len(config.target_layer_ids) * 32)
    block = numbers(3, size, 32)
    where = torch.arange(context, context + size)[None]
    found = model.norm(model(block[None], where, model.project(features, torch.arange(context))))[0]
    expected = written_out(config, model.state_dict(), features, block)
    assert_close(found, expected)


def test_the_drafters_q_is_the_method_with_the_targets_embedding_and_head():
    features, owner = numbers(4, 9, 64), toys.model()
    drafter = with_context(features)
    found = log_q(drafter.begin(7, 16))
    block = owner.get_input_embeddings().weight[[7] + [47] * 7]
    hidden = written_out(drafter.model.config, drafter.model.state_dict(), features, block)
    expected = (hidden[1:] @ owner.get_output_embeddings().weight.T).log_softmax(-1)
    assert_close(found, expected)
    assert found.shape == (drafter.max_depth, toys.VOCABULARY) == (7, 48)


@pytest.mark.parametrize("mask", [{}, *MASKS])
def test_context_in_pieces_equals_the_whole_context_at_once(mask):
    features, pieces, low = numbers(5, 40, 64), with_context(numbers(0, 0, 64), mask), 0
    for size in (13, 1, 1, 5, 8, 2, 10):
        for piece in features[low : low + size].split(max(1, size // 2)):  # several may wait
            pieces.extend([0] * len(piece), piece)
        low += size
        one, two = pieces.begin(low, 20), with_context(features[:low], mask).begin(low, 20)
        assert_close(log_q(one), log_q(two))
        assert (listed(one).ids[:, 0] == listed(two).ids[:, 0]).all()


def test_a_session_leaves_nothing_behind():
    """A root is not committed by a session that begins there: another may begin next."""
    drafter = with_context(numbers(7, 5, 64))
    first = log_q(drafter.begin(3, 16))
    drafter.begin(9, 16)
    assert torch.equal(log_q(drafter.begin(3, 16)), first)


def test_reset_forgets_the_text_and_what_was_waiting():
    drafter = with_context(numbers(8, 9, 64))
    drafter.begin(1, 16)
    drafter.extend([0] * 4, numbers(9, 4, 64))
    drafter.reset(64)
    drafter.extend([0] * 6, numbers(10, 6, 64))
    fresh = with_context(numbers(10, 6, 64))
    assert torch.equal(log_q(drafter.begin(2, 16)), log_q(fresh.begin(2, 16)))


@pytest.mark.parametrize(("width", "length"), [(1, 16), (16, 16), (20, 20), (48, 48), (1024, 48)])
def test_lists_are_sorted_and_as_long_as_asked_for(width, length):
    session = with_context(numbers(7, 5, 64)).begin(3, width)
    lists, whole = listed(session), log_q(session)
    assert session.factorised and lists.ids.shape == lists.log_q.shape == (7, length)
    assert (lists.log_q[:, :-1] >= lists.log_q[:, 1:]).all()
    assert torch.equal(whole.gather(1, torch.from_numpy(lists.ids)), torch.from_numpy(lists.log_q))
    assert torch.allclose(whole.exp().sum(-1), torch.ones(7))


@pytest.mark.parametrize("mask", [{}, *MASKS])
def test_blocks_side_by_side_equal_blocks_alone(mask):
    """Training runs many anchors of a text in one pass; each must see its own context only."""
    model, features = toys.dflash_model(1, **mask), numbers(11, 20, 64)
    anchors = torch.tensor([3, 9, 10, 20])
    blocks = numbers(12, 4, 8, 32)
    where = anchors[:, None] + torch.arange(8)
    visible = torch.arange(20)[None] < anchors[:, None]
    together = model(blocks, where, model.project(features, torch.arange(20)), visible)
    for index, anchor in enumerate(anchors.tolist()):
        context = model.project(features[:anchor], torch.arange(anchor))
        alone = model(blocks[index : index + 1], where[index : index + 1], context)
        assert_close(together[index : index + 1], alone)


BATCHED = [
    *(toys.dflash_drafter, toys.treeflash_drafter, toys.dart_drafter, toys.medusa_drafter),
    *(toys.eagle_drafter, toys.feature_drafter, toys.hydra_drafter, toys.hydra_plus_drafter),
    *(toys.dspark_drafter, toys.dflash2_drafter),
]


@pytest.mark.parametrize("make", BATCHED)
def test_sessions_at_many_places_of_a_text_equal_sessions_begun_one_by_one(make):
    """Of every drafter here; its own text stays as it is."""
    drafter, text = make(), [5, 17, 3, 44, 9, 28, 3, 11, 30, 2, 8, 21]
    features = toys.full_forward(text, layers=drafter.layers).features
    drafter.reset(40)
    drafter.extend(text[:3], features[:3])
    before, anchors = log_q(drafter.begin(9, 16), [9, 4]), torch.tensor([1, 4, 5, 9])
    sessions = drafter.begin_each(torch.tensor(text), features, anchors, 16)
    for session, anchor in zip(sessions, anchors.tolist(), strict=True):
        alone = make()
        alone.reset(40)
        alone.extend(text[:anchor], features[:anchor])
        expected, path = alone.begin(text[anchor], 16), text[anchor : anchor + 3]
        assert_close(log_q(session, path), log_q(expected, path), 2e-5)
        one, two = (s.expand(np.zeros(1, np.int32)).log_q[0] for s in (session, expected))
        assert_close(one, two, 2e-5)
    assert torch.equal(log_q(drafter.begin(9, 16), [9, 4]), before)


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


def test_every_row_sees_the_whole_block():
    """No causal mask: the last position's embedding moves the first row."""
    model = toys.dflash_model(1)
    context = model.project(numbers(2, 4, 64), torch.arange(4))
    block, where = numbers(3, 1, 8, 32), torch.arange(4, 12)[None]
    before = model(block, where, context)
    block[0, -1] += 1
    assert (model(block, where, context) - before)[0, 0].abs().max() > 1e-4


def test_a_low_temperature_sharpens_q():
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    drafter = toys.dflash_drafter()
    drafter.temperature = 0.5
    assert torch.equal(drafter.log_softmax(logits), (logits * 2).log_softmax(-1))


def test_logits_are_multiplied_by_the_checkpoint_s_scale():
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    drafter = toys.dflash_drafter(logit_scale=0.25)
    assert torch.equal(drafter.log_softmax(logits), (logits * 0.25).log_softmax(-1))
