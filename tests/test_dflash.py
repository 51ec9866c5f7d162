"""The DFlash drafter against the method written out plainly."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3DecoderLayer,
    Qwen3Model,
    Qwen3RotaryEmbedding,
)

from core.drafting.session import DraftSession
from core.models.layers import LayerContext, Rope
from core.rounds.draft import Candidates
from tests import toys


def assert_close(found, expected, tolerance=1e-5):
    """To float32's precision: norms and rotary angles are computed in it."""
    found, expected = (torch.as_tensor(numbers).double() for numbers in (found, expected))
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


# ── the method, plainly ──────────────────────────────────────────────────────────────────────────


def norm(x, weight, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


# Waves of 6, 63, 628 and 6283 positions: one kept, one between, two slowed eightfold.
SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = Rope.of({"rope_theta": 10000.0, "rope_scaling": SCALING})


def turn(rope, wave):
    """The frequency of one wave as Llama 3.1 scales it, or as it is."""
    if not rope.scaling:
        return wave
    scaling, length = dict(rope.scaling), 2 * math.pi / wave
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    if length < original / high:
        return wave
    if length > original / low:
        return wave / factor
    smooth = (original / length - low) / (high - low)
    return (1 - smooth) * wave / factor + smooth * wave


def rotate(x, position, rope):
    """One head vector at one position: pairs (i, i + D/2) turn by position · θ^(−2i/D)."""
    half = len(x) // 2
    waves = [turn(rope, rope.theta ** (-2 * i / len(x))) for i in range(half)]
    angle = torch.tensor([position * wave for wave in waves], dtype=x.dtype)
    if rope.neighbours:  # pairs (2i, 2i + 1)
        own = rotate(torch.cat([x[::2], x[1::2]]), position, replace(rope, neighbours=False))
        return torch.stack([own[:half], own[half:]], 1).flatten()
    low, high = x[:half], x[half:]
    return torch.cat(
        [low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()]
    )


def mlp(x, layer):
    gate, up = x @ layer["mlp.gate_proj.weight"].T, x @ layer["mlp.up_proj.weight"].T
    return (gate * gate.sigmoid() * up) @ layer["mlp.down_proj.weight"].T


def written_out(config, w, features, block):
    """Hidden rows after the final norm."""
    return norm(residual_rows(config, w, features, block), w["norm.weight"], config.rms_norm_eps)


def residual_rows(config, w, features, block):
    """methods.md word by word, head by head and row by row: the residual stream of the block."""
    eps, width, count = config.rms_norm_eps, config.head_dim, len(features)
    share = config.num_attention_heads // config.num_key_value_heads
    context = norm(features @ w["fc.weight"].T, w["hidden_norm.weight"], eps)
    x = block
    for number in range(config.num_hidden_layers):
        layer = {k.removeprefix(f"layers.{number}."): v for k, v in w.items()}
        plain = norm(x, layer["input_layernorm.weight"], eps)
        normed = convolved(plain, plain, layer, "attention_conv", 0)
        source = torch.cat([context, normed])
        out = torch.zeros(len(x), config.num_attention_heads, width, dtype=x.dtype)
        for head in range(config.num_attention_heads):
            at, kv = slice(head * width, (head + 1) * width), head // share
            kv_at = slice(kv * width, (kv + 1) * width)
            query = normed @ layer["self_attn.q_proj.weight"][at].T
            key = source @ layer["self_attn.k_proj.weight"][kv_at].T
            value = source @ layer["self_attn.v_proj.weight"][kv_at].T
            query = norm(query, layer["self_attn.q_norm.weight"], eps)
            key = norm(key, layer["self_attn.k_norm.weight"], eps)
            query = torch.stack([rotate(q, count + i, config.rope) for i, q in enumerate(query)])
            key = torch.stack([rotate(k, i, config.rope) for i, k in enumerate(key)])
            odds = query @ key.T / math.sqrt(width)
            odds[torch.tensor(unseen(config, number, count, len(x)))] = -math.inf
            weights = odds.exp()
            total = weights.sum(-1, keepdim=True)
            if config.attention_sink_bias:
                total = total + layer["self_attn.attention_sink_bias"][head].exp()
            out[:, head] = weights / total @ (value * config.attention_value_scale)
        out = out.flatten(1) @ layer["self_attn.o_proj.weight"].T
        x = x + convolved(out, plain, layer, "attention_conv", 1)
        plain = norm(x, layer["post_attention_layernorm.weight"], eps)
        out = mlp(convolved(plain, plain, layer, "mlp_conv", 0), layer)
        x = x + convolved(out, plain, layer, "mlp_conv", 1)
    return x


def convolved(x, plain, layer, name, side):
    """DFlash 2's convolution of the rows of a block, tap by tap; without one, the rows."""
    if f"{name}.base_kernel" not in layer:
        return x
    base = layer[f"{name}.base_kernel"]
    taps, width = base.shape[1:]
    moved = (plain @ layer[f"{name}.kernel_projection.weight"].T).view(len(x), 2, taps, -1)
    out = torch.zeros_like(x)
    for row in range(len(x)):
        for tap in range(min(taps, row + 1)):
            for channel in range(width):
                group = channel * moved.shape[-1] // width
                kernel = base[side, tap, channel] + moved[row, side, tap, group]
                out[row, channel] += kernel * x[row - tap, channel]
    return out


def unseen(config, number, count, size):
    """Mark what a block's rows do not see of ``count`` context rows and the block, [b, T + b]."""
    window = config.window if config.sliding and config.sliding[number] else None
    causal = window is not None if config.causal is None else config.causal
    hidden = [[False] * (count + size) for _ in range(size)]
    for row in range(size):
        for column in range(count + size):
            behind = count + row - column
            outside = window is not None and abs(behind) >= window
            if window is not None and config.of_root:
                outside = column < count - window
            hidden[row][column] = outside or (causal and behind < 0)
    return hidden


def log_q(session: DraftSession, path: Sequence[int] | None = None) -> Tensor:
    """All of log q along a path; where it depends on the depth alone, any path will do."""
    found = session.log_q(path or [0] * session.max_depth)
    assert found is not None
    return found


def listed(session: DraftSession) -> Candidates:
    """The session's lists by depth."""
    assert session.by_depth is not None
    return session.by_depth


def numbers(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def committed(drafter, width):
    """Rounds of a drafter: (the text that is committed, its features [n, ``width``], the root)."""
    rng, text, features, root = np.random.default_rng(3), [], numbers(0, 0, width), 7
    drafter.reset(40)
    for size in (5, 1, 3):  # tokens that a round commits, in one extension or two
        fresh = [root, *rng.integers(0, 47, size - 1).tolist()]
        own = numbers(len(text) + 1, size, width)
        drafter.extend(fresh[:1], own[:1])
        if size > 1:
            drafter.extend(fresh[1:], own[1:])
        text, features, root = text + fresh, torch.cat([features, own]), int(rng.integers(0, 47))
        yield text, features, root


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
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
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
