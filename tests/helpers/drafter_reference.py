"""Drafters' networks in float64, written out head by head and row by row, and how the drafters are
compared with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from core.drafting.session import DraftSession
from core.rounds.draft import Candidates


def assert_close(found, expected, tolerance=1e-5):
    """To float32's precision: norms and rotary angles are computed in it."""
    found, expected = (torch.as_tensor(numbers).double() for numbers in (found, expected))
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def norm(x, weight, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


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


IDS = torch.tensor([1, 4, 5, 9, 11, 17, 20, 21, 28, 30, 33, 40, 44, 46])


def slow_layers(config, w, x, embedding, kept, i, count):
    """Row i, with the embedding that stands beside it, through every layer.

    kept   keys and values of the rows before, by layer; row i joins them
    count  rows of the text. In a layer with a window a row of the draft sees the text's last one
    """
    eps = config.rms_norm_eps
    for number, (keys, values) in enumerate(kept):
        name = f"layers.{number}." if number else "midlayer."
        layer = {n.removeprefix(name): t for n, t in w.items() if n.startswith(name)}
        if number:
            read, residual = norm(x, layer["input_layernorm.weight"], eps), x
        else:
            normed = norm(x, layer["hidden_norm.weight"], eps)
            beside = norm(embedding, layer["input_layernorm.weight"], eps)
            read = torch.cat([beside, normed])
            residual = normed if config.norm_before_residual else x
        before = 0
        if config.window and number not in config.whole:
            before = min(max(0, i - config.window + 1), count - 1)
        x = residual + slow_attention(config, layer, read, keys, values, i, before)
        x = x + mlp(norm(x, layer["post_attention_layernorm.weight"], eps), layer)
    return x


def slow_attention(config, layer, x, keys, values, position, before=0):
    """Compute what a row reads of itself and of the rows from ``before`` on; it joins these."""
    width, share = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    query, key, value = (layer[f"self_attn.{n}_proj.weight"] @ x for n in "qkv")
    query, key, value = (part.view(-1, width) for part in (query, key, value))
    if config.qk_norm:
        query = norm(query, layer["self_attn.q_norm.weight"], config.rms_norm_eps)
        key = norm(key, layer["self_attn.k_norm.weight"], config.rms_norm_eps)
    keys.append(torch.stack([rotate(row, position, config.rope) for row in key]))
    values.append(value)
    mixed = []
    for head, row in enumerate(query):
        seen = torch.stack([k[head // share] for k in keys[before:]])
        scores = seen @ rotate(row, position, config.rope) / math.sqrt(width)
        odds = scores.softmax(-1)
        mixed.append(odds @ torch.stack([v[head // share] for v in values[before:]]))
    return layer["self_attn.o_proj.weight"] @ torch.cat(mixed)


def tokens_after(draft, row):
    """The tokens of a row's path, the root's first."""
    return [int(draft.tokens[r]) for r in draft.path(row)]


def check_draft(draft, slow, near):
    """log q of every drafted node is ``slow``'s log q [V] after the path before it."""
    after = cache(lambda parent: slow(tokens_after(draft, parent)))  # siblings share it
    for row in range(1, len(draft)):
        parent, token = int(draft.parents[row]), int(draft.tokens[row])
        assert draft.log_q[row] == pytest.approx(float(after(parent)[token]), abs=near)
