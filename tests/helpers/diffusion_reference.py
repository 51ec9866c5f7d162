"""An independent masked-diffusion transformer in float64: whole sequences, no cache.

Weights are read by the names of the published checkpoints. T rows of one sequence; ``allowed``
[T, T] says which row (first index) sees which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LLAMA = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "block": "model.layers.{}.",
    "before": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "between": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}
LLADA = {
    "embed": "model.transformer.wte.weight",
    "norm": "model.transformer.ln_f.weight",
    "head": "model.transformer.ff_out.weight",
    "block": "model.transformer.blocks.{}.",
    "before": "attn_norm.weight",
    "q": "q_proj.weight",
    "k": "k_proj.weight",
    "v": "v_proj.weight",
    "o": "attn_out.weight",
    "between": "ff_norm.weight",
    "gate": "ff_proj.weight",
    "up": "up_proj.weight",
    "down": "ff_out.weight",
}


@dataclass(frozen=True)
class Shape:
    """Sizes that the weights do not show."""

    layers: int
    head_width: int
    eps: float = 1e-6
    theta: float = 10000.0


@dataclass(frozen=True)
class Adapted:
    """Other weights, by the same names, for some rows (bool [T])."""

    state: Mapping[str, Tensor]
    rows: Tensor


@torch.no_grad()
def forward(
    state: Mapping[str, Tensor],
    names: Mapping[str, str],
    shape: Shape,
    ids: Sequence[int],
    allowed: Tensor,
    positions: Sequence[int] | None = None,
    adapted: Adapted | None = None,
) -> Tensor:
    """Logits [T, V]. Norms and the head are always those of ``state``."""
    weight = {name: tensor.double() for name, tensor in state.items()}
    other = {name: t.double() for name, t in adapted.state.items()} if adapted else weight
    rows = adapted.rows[:, None] if adapted else torch.zeros(len(ids), 1, dtype=torch.bool)
    place = torch.tensor(range(len(ids)) if positions is None else positions).double()
    tokens = torch.tensor(ids)
    x = torch.where(rows, other[names["embed"]][tokens], weight[names["embed"]][tokens])
    for layer in range(shape.layers):
        prefix = names["block"].format(layer)
        own = {key: weight.get(prefix + name) for key, name in names.items() if key != "block"}

        def apply(key: str, x: Tensor, prefix: str = prefix) -> Tensor:
            name = prefix + names[key]
            return torch.where(rows, x @ other[name].T, x @ weight[name].T)

        normed = _norm(x, own["before"], shape.eps)
        x = x + apply("o", _attention(normed, apply, own, shape, allowed, place))
        normed = _norm(x, own["between"], shape.eps)
        gate = apply("gate", normed)
        x = x + apply("down", gate / (1 + torch.exp(-gate)) * apply("up", normed))
    head = weight.get(names["head"], weight[names["embed"]])
    return _norm(x, weight[names["norm"]], shape.eps) @ head.T


def _norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return gain * x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def _attention(
    x: Tensor, apply: Callable, own: Mapping, shape: Shape, allowed: Tensor, place: Tensor
) -> Tensor:
    """One head at a time: [T, H·D]."""
    width, outs = shape.head_width, []
    queries, keys, values = apply("q", x), apply("k", x), apply("v", x)
    heads, groups = queries.shape[1] // width, keys.shape[1] // width
    for head in range(heads):
        mine, shared = _slice(head, width), _slice(head * groups // heads, width)
        q, k, v = queries[:, mine], keys[:, shared], values[:, shared]
        if own.get("q_norm") is not None:
            q, k = _norm(q, own["q_norm"], shape.eps), _norm(k, own["k_norm"], shape.eps)
        q, k = _rotate(q, place, shape.theta), _rotate(k, place, shape.theta)
        scores = (q @ k.T / math.sqrt(width)).masked_fill(~allowed, -math.inf)
        outs.append(torch.softmax(scores, -1) @ v)
    return torch.cat(outs, -1)


def _slice(index: int, width: int) -> slice:
    return slice(index * width, (index + 1) * width)


def _rotate(x: Tensor, place: Tensor, theta: float) -> Tensor:
    """Rotary embedding: each pair (i, i + D/2) rotated by position · theta^(−2i/D)."""
    half = x.shape[-1] // 2
    angle = place[:, None] * theta ** (-torch.arange(half).double() / half)
    first, second = x[:, :half], x[:, half:]
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


Run = Callable[
    ..., Tensor
]  # (ids, allowed) → logits [T, V]; and adapted rows, where there are some


def bidirectional(run: Run, tokens: Sequence[int], begin: int, state: Sequence[int]) -> Tensor:
    """A bidirectional model: ``tokens`` with ``state`` in place of the current block → [L, V]."""
    end = begin + len(state)
    ids = [*tokens[:begin], *state, *tokens[end:]]
    return run(ids, torch.ones(len(ids), len(ids), dtype=torch.bool))[begin:end]


def block_causal(
    run: Run, prompt: Sequence[int], blocks: Sequence[Sequence[int]], state: Sequence[int], **layout
) -> Tensor:
    """A block-causal model on finished ``blocks`` and the current ``state`` → [L, V].

    ``layout``: shift, clean, size (the block length), as ``core.diffusion.target.BlockLayout`` has
    them, and for its ``left`` the id of the mask.
    """
    if "left" in layout:
        return gated(
            lambda ids, allowed, _: run(ids, allowed), prompt, blocks, state, layout["left"]
        )
    shift, size = int(layout["shift"]), layout["size"]
    text = [*prompt, *(token for block in blocks for token in block)]
    ids = [*text, *state]
    # Which group a row belongs to; a row sees all groups up to its own.
    end = len(prompt) - shift
    group = [(i - end) // size for i in range(len(text) - shift)]
    if layout["clean"] == "causal":
        group = [i - len(group) for i in range(len(group))]
    group += [10**6] * (len(state) + shift)
    rows = torch.tensor(group)
    return run(ids, rows[:, None] >= rows[None, :])[len(text) - shift :][: len(state)]


def gated(
    run: Run,
    prompt: Sequence[int],
    blocks: Sequence[Sequence[int]],
    state: Sequence[int],
    mask: int,
) -> Tensor:
    """A causal LM with a gated adapter, on finished ``blocks`` and the current ``state`` → [L, V].

    ``run`` takes (ids, allowed, adapted rows). Position i is read at the row before it.
    """
    text = [*prompt, *(token for block in blocks for token in block)]
    first = state.index(mask) if mask in state else len(state)
    behind = any(token != mask for token in state[first:])
    begin = len(text) + first - behind  # of the adapted rows, which see all
    row = torch.arange(len(text) + len(state))
    allowed = (row[:, None] >= row) | (row[:, None] >= begin)
    return run([*text, *state], allowed, row >= begin)[len(text) - 1 : -1]
