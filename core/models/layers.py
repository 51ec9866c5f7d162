"""Transformer layers of drafter networks.

Shapes: N rows, A blocks (one per anchor; 1 when decoding), b rows of a block, T context tokens, h
hidden width, H query heads, G key/value heads, D head width. The rows of a block see the context
and their own block, causally or all of it (``Shape.causal``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.errors import UserError, first_line

# Rope types: those that know the length that the model was trained for, and all that are scaled.
OF_LENGTH = ("llama3", "longrope", "yarn")
SCALED = ("dynamic", "linear", *OF_LENGTH)
# Older names. Of text alone, mrope's three positions of a token are one, and it turns plainly.
RENAMED = {"mrope": "default", "su": "longrope"}
WIDEST_HEAD = 1 << 14  # numbers of a head: beyond them nothing is published
Embed = Callable[[Tensor], Tensor]  # token ids [...] → the target's embeddings [..., h]


@dataclass(frozen=True)
class Shape:
    """The sizes and options of an attention and an MLP.

    inputs   width of attention's input: h, or 2h for an embedding beside a feature
    qk_norm  whether queries and keys are normed per head (Qwen3) or not (Llama)
    causal   whether the rows of a block see only the rows before them
    window   how far a row sees: tokens behind it, itself included, and as many ahead; 0: everything
    sinks    whether each query head may also attend to nothing, at a learned score
    values   what values are multiplied by
    """

    hidden: int
    intermediate: int
    heads: int
    groups: int
    head_dim: int
    inputs: int
    eps: float
    bias: bool = False
    qk_norm: bool = True
    causal: bool = False
    window: int = 0
    sinks: bool = False
    values: float = 1.0

    @staticmethod
    def of(config: Any, inputs: int, **more: Any) -> Shape:
        """Sizes from a drafter's config; the fields have the same names in every kind."""
        return Shape(
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_attention_heads,
            groups=config.num_key_value_heads,
            head_dim=config.head_dim,
            inputs=inputs,
            eps=config.rms_norm_eps,
            **more,
        )


def drawn(*size: int, std: float = 1.0) -> nn.Parameter:
    """A parameter drawn at random; on the meta device its shape alone: drawing there would import
    torch's compiler."""
    made = torch.empty(*size)
    return nn.Parameter(made if made.is_meta else made.normal_(std=std))


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        # One kernel on a GPU; half precisions are summed in float32 and rounded once.
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


@dataclass(frozen=True)
class Rope:
    """Rotary positions: the base θ and how its frequencies are scaled.

    scaling     Hugging Face's rope parameters as (name, value) pairs, in order; () for none
    neighbours  numbers 2i and 2i + 1 of a head turn together (``is_neox_style`` false), not i and
                i + D/2

    Dynamic ones turn as in a text that fits ``max_position_embeddings``, longrope's as in one that
    fits the original length.
    """

    theta: float = 10000.0
    scaling: tuple[tuple[str, Any], ...] = ()
    neighbours: bool = False

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Rope:
        """As a published config says, in the older spelling (rope_theta, rope_scaling) or the new.

        What is not said is filled in as transformers does. Raises UserError for rotary positions
        of a kind that is not supported.
        """
        newer = _of_layers(raw.get("rope_parameters") or {})
        own = {**(raw.get("rope_scaling") or newer)}
        neighbours = own.pop("is_neox_style", raw.get("is_neox_style")) is False
        theta = float(own.pop("rope_theta", 0) or newer.get("rope_theta") or raw.get("rope_theta")
                      or 10000.0)  # fmt: skip
        older = own.pop("type", None)
        kind = own.get("rope_type") or older or "default"
        kind = own["rope_type"] = RENAMED.get(kind, kind)
        _check_kind({**raw, **own}, kind)
        if kind == "default":
            return Rope(theta, neighbours=neighbours)
        if kind in OF_LENGTH:
            trained, limit = "original_max_position_embeddings", raw.get("max_position_embeddings")
            own[trained] = raw.get(trained) or own.get(trained) or limit
            if kind != "llama3" and own.get("factor") is None and limit:
                own["factor"] = limit / own[trained]
        pairs = ((n, tuple(v) if isinstance(v, list) else v) for n, v in sorted(own.items()))
        plain = tuple(pair for pair in pairs if not isinstance(pair[1], Mapping))
        return Rope(theta, plain, neighbours)

    @property
    def limit(self) -> int | None:
        """The length of a text beyond which longrope's positions are not those of training."""
        told = dict(self.scaling)
        if told.get("short_factor") == told.get("long_factor"):
            return None
        return told["original_max_position_embeddings"]

    def to_json(self) -> dict[str, Any]:
        """Hugging Face's rope parameters, in the newer spelling."""
        own = {n: list(v) if isinstance(v, tuple) else v for n, v in self.scaling}
        style = {"is_neox_style": False} if self.neighbours else {}
        return {"rope_type": "default", "rope_theta": self.theta} | own | style

    def to_older_json(self) -> dict[str, Any]:
        """The fields ``rope_theta`` and, where it is scaled, ``rope_scaling``."""
        own = self.to_json()
        apart = {name: own.pop(name) for name in ("rope_theta", "is_neox_style") if name in own}
        return apart | ({"rope_scaling": own} if self.scaling else {})

    def check(self, width: int) -> None:
        """Raises UserError when heads of ``width`` cannot turn so."""
        try:
            if width > WIDEST_HEAD:  # before a tensor of that size is made
                raise ValueError(f"heads of {width} numbers")
            found, factor = self.frequencies(width, torch.device("cpu"))
        except KeyError as missing:
            raise UserError(f"its rotary positions have no field {missing}") from None
        except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"its rotary positions are not valid: {first_line(error)}") from None
        whole = found.shape == (width // 2,) and bool((found.isfinite() & (found > 0)).all())
        if not (whole and math.isfinite(factor)):
            raise UserError("its rotary positions have impossible angles")

    def frequencies(self, width: int, device: torch.device) -> tuple[Tensor, float]:
        """Angle per position [width / 2], and the factor of cos and sin."""
        if self.scaling:
            return _scaled(self, width, device)
        return self.theta ** -(torch.arange(0, width, 2, device=device).float() / width), 1.0


PLAIN_ROPE = Rope()


def _of_layers(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rope parameters, where they may stand once for each kind of layers. Raises UserError for
    kinds that turn differently."""
    kinds = list(parameters.values())
    if not kinds or not all(isinstance(each, Mapping) for each in kinds):
        return parameters
    if any(each != kinds[0] for each in kinds):
        raise UserError("a drafter whose layers have different rotary positions is not supported")
    return kinds[0]


def _check_kind(told: Mapping[str, Any], kind: Any) -> None:
    """Raises UserError for rotary positions that are not computed here."""
    if told.get("partial_rotary_factor", 1.0) != 1.0:
        raise UserError("a drafter that rotates only a part of its heads is not supported")
    if kind == "dynamic" and "alpha" in told:
        raise UserError("a drafter with dynamic rotary positions by alpha is not supported")
    if kind != "default" and kind not in SCALED:
        raise UserError(f"a drafter with rotary positions of type {kind!r} is not supported")


@lru_cache
def _scaled(rope: Rope, width: int, device: torch.device) -> tuple[Tensor, float]:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(hidden_size=width, num_attention_heads=1, head_dim=width)
    # Set afterwards: the constructor compares them with a length that is not the drafter's, and
    # warns on the terminal.
    config.rope_parameters = replace(rope, neighbours=False).to_json()
    return ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]](config, device)


@dataclass(frozen=True)
class Rotary:
    """cos and sin [N, D] of some positions; ``neighbours`` as in ``Rope``."""

    cos: Tensor
    sin: Tensor
    neighbours: bool = False

    @staticmethod
    def at(positions: Tensor, width: int, rope: Rope, dtype: torch.dtype) -> Rotary:
        """Make the rotation for positions [N] and heads of ``width``."""
        frequencies, factor = rope.frequencies(width, positions.device)
        angle = positions.float()[:, None] * frequencies[None]
        twice = angle.repeat_interleave(2, -1) if rope.neighbours else torch.cat([angle, angle], -1)
        cos, sin = (twice.cos() * factor).to(dtype), (twice.sin() * factor).to(dtype)
        return Rotary(cos, sin, rope.neighbours)

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate [N, heads, D] by its rows' positions."""
        if self.neighbours:
            turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        else:
            low, high = x.chunk(2, -1)
            turned = torch.cat([-high, low], -1)
        return x * self.cos[:, None] + turned * self.sin[:, None]


@dataclass(frozen=True)
class LayerContext:
    """One layer's projected context: keys (normed, rotated) and values, [G, T, D]."""

    keys: Tensor
    values: Tensor

    @property
    def rows(self) -> int:
        """The number of context tokens that fit."""
        return self.keys.shape[1]

    @staticmethod
    def empty(shape: Shape, rows: int, like: Tensor) -> LayerContext:
        """Room for ``rows`` context tokens, or some more, on the device and in the precision of
        ``like``."""
        size = (shape.groups, -(-rows // 256) * 256, shape.head_dim)
        return LayerContext(like.new_zeros(size), like.new_zeros(size))

    def write(self, start: int, fresh: LayerContext) -> None:
        """Write newly projected tokens at ``start``."""
        end = start + fresh.keys.shape[1]
        self.keys[:, start:end] = fresh.keys
        self.values[:, start:end] = fresh.values

    def write_at(self, slots: Tensor, fresh: LayerContext) -> None:
        """Write newly projected tokens at ``slots`` int64 [T], a tensor on the device."""
        self.keys.index_copy_(1, slots, fresh.keys)
        self.values.index_copy_(1, slots, fresh.values)

    def then(self, fresh: LayerContext) -> LayerContext:
        """These rows, and others behind them."""
        keys, values = (self.keys, fresh.keys), (self.values, fresh.values)
        return LayerContext(torch.cat(keys, 1), torch.cat(values, 1))

    def first(self, rows: int) -> LayerContext:
        """A view of the first ``rows`` tokens."""
        return LayerContext(self.keys[:, :rows], self.values[:, :rows])


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        s = self.shape = shape
        self.q_proj = nn.Linear(s.inputs, s.heads * s.head_dim, bias=s.bias)
        self.k_proj = nn.Linear(s.inputs, s.groups * s.head_dim, bias=s.bias)
        self.v_proj = nn.Linear(s.inputs, s.groups * s.head_dim, bias=s.bias)
        self.o_proj = nn.Linear(s.heads * s.head_dim, s.hidden, bias=s.bias)
        if s.qk_norm:
            self.q_norm = RMSNorm(s.head_dim, s.eps)
            self.k_norm = RMSNorm(s.head_dim, s.eps)
        self.attention_sink_bias = nn.Parameter(torch.zeros(s.heads)) if s.sinks else None

    def keys_values(self, x: Tensor, rotary: Rotary) -> LayerContext:
        """[N, inputs] → keys and values [G, N, D]."""
        keys = self.k_proj(x).view(-1, self.shape.groups, self.shape.head_dim)
        if self.shape.qk_norm:
            keys = self.k_norm(keys)
        values = self.v_proj(x).view(-1, self.shape.groups, self.shape.head_dim)
        values = values if self.shape.values == 1 else values * self.shape.values
        return LayerContext(rotary.rotate(keys).transpose(0, 1), values.transpose(0, 1))

    def queries(self, x: Tensor, rotary: Rotary) -> Tensor:
        """[N, inputs] → [N, H, D]."""
        queries = self.q_proj(x).view(-1, self.shape.heads, self.shape.head_dim)
        return rotary.rotate(self.q_norm(queries) if self.shape.qk_norm else queries)

    def forward(
        self, x: Tensor, context: LayerContext, rotary: Rotary, visible: Tensor | None
    ) -> Tensor:
        """Attention of x [A, b, inputs] over the context and its own blocks → [A, b, h].

        ``visible`` bool [A, T], or [A, b, T] for each row: which context rows it sees; None: all.
        """
        blocks, size, inputs = x.shape
        flat = x.reshape(-1, inputs)
        own = self.keys_values(flat, rotary)
        queries = self.queries(flat, rotary).unflatten(0, (blocks, size))
        return self.attend(queries, context, own, visible, self._hidden(size, x.device))

    def _hidden(self, size: int, device: torch.device) -> Tensor | None:
        """Which rows of its own block a row does not see, bool [b, b]; None: it sees them all."""
        if not self.shape.causal and not 0 < self.shape.window < size:
            return None
        row = torch.arange(size, device=device)
        ahead = row[None] - row[:, None]
        far = ahead.abs() >= (self.shape.window or size)
        return far | (ahead > 0) if self.shape.causal else far

    def attend(
        self,
        queries: Tensor,
        context: LayerContext,
        near: LayerContext,
        visible: Tensor | None,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """Attention of queries [A, b, H, D] over the context and the rows near each block.

        near     n rows of each block, [G, A·n, D]; its own (n = b), or others too
        visible  bool [A, T] or [A, b, T], which context rows a block or a row sees; None: all
        hidden   bool [b, n], which near rows a row does not see; None: it sees all of them
        """
        blocks, size = queries.shape[:2]
        groups, width = self.shape.groups, self.shape.head_dim
        share = self.shape.heads // groups  # query heads per key/value head
        # [A, b, G, R, D] → [G, A, R·b, D]: the heads of a group and the rows of a block as one axis
        q = queries.reshape(blocks, size, groups, share, width)
        q = q.permute(2, 0, 3, 1, 4).reshape(groups, blocks, share * size, width) * width**-0.5
        near_k, near_v = (x.unflatten(1, (blocks, -1)) for x in (near.keys, near.values))
        length = context.keys.shape[1]
        far = q.reshape(groups, -1, width) @ context.keys.transpose(1, 2)
        far = far.view(groups, blocks, share * size, length)
        if visible is not None:
            seen = visible[:, None] if visible.ndim == 2 else visible.repeat(1, share, 1)
            far = far.masked_fill(~seen, torch.finfo(far.dtype).min)
        close = q @ near_k.transpose(2, 3)
        if hidden is not None:
            close = close.masked_fill(hidden.repeat(share, 1), torch.finfo(close.dtype).min)
        scores = [far, close]
        if (sinks := self.attention_sink_bias) is not None:
            each = sinks.view(groups, 1, -1, 1).repeat_interleave(size, 2)
            scores.append(each.expand(-1, blocks, -1, -1))
        weights = torch.cat(scores, -1).softmax(-1)
        out = weights[..., length : length + close.shape[-1]] @ near_v
        rows = blocks * share * size  # explicit: −1 cannot be inferred for an empty context
        far_out = weights[..., :length].reshape(groups, rows, length) @ context.values
        out = (out + far_out.view_as(out)).view(groups, blocks, share, size, width)
        out = out.permute(1, 3, 0, 2, 4).reshape(blocks, size, self.shape.heads * width)
        return self.o_proj(out)


class MLP(nn.Module):
    def __init__(self, hidden: int, intermediate: int):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Attention over a context and the rows' own blocks, then an MLP; a norm before each."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = MLP(shape.hidden, shape.intermediate)
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)

    def forward(
        self, x: Tensor, context: LayerContext, rotary: Rotary, visible: Tensor | None
    ) -> Tensor:
        """Rows [A, b, h] → [A, b, h]; what is visible as in ``Attention``."""
        x = x + self.self_attn(self.input_layernorm(x), context, rotary, visible)
        return x + self.mlp(self.post_attention_layernorm(x))
