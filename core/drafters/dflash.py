"""The DFlash block-diffusion drafter (arXiv 2602.06036): q for L future tokens from one pass.

Parameter names are those of the published checkpoints, so ``load``/``save`` need no mapping. The
embedding and the head are the target's; a checkpoint holds neither.

Shapes: T context tokens, F feature layers, h hidden width, A blocks ("anchors"; 1 when decoding),
b block size (L = b − 1 drafted depths), H query heads, G key/value heads, D head width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.decode import Proposal
from core.drafters import checkpoint
from core.drafters.layers import (
    MLP,
    PLAIN_ROPE,
    Attention,
    LayerContext,
    RMSNorm,
    Rope,
    Rotary,
    Shape,
)
from core.errors import UserError
from core.fixed import CannotCapture, FixedPass, Fresh

Embed = Callable[[Tensor], Tensor]  # token ids [...] → the target's embeddings [..., h]
KEPT = 16  # candidates per depth a proposal holds at least: what coverage and inspectors show


@dataclass(frozen=True)
class DFlashConfig:
    """The fields of a published ``config.json`` that decide the drafter's shape."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    block_size: int
    num_target_layers: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    rms_norm_eps: float = 1e-6
    rope: Rope = PLAIN_ROPE
    attention_bias: bool = False
    max_position_embeddings: int = 40960
    extra: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def depths(self) -> int:
        """L, the number of drafted depths."""
        return self.block_size - 1

    @property
    def of_target(self) -> dict[str, int]:
        """What the target must be like."""
        return {
            "hidden size": self.hidden_size,
            "vocabulary size": self.vocab_size,
            "layer count": self.num_target_layers,
        }

    @property
    def shape(self) -> Shape:
        """The shape of its layers."""
        return Shape.of(self, self.hidden_size, bias=self.attention_bias)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> DFlashConfig:
        """Read a published config, with the reference's defaults for absent optional fields.

        Raises UserError when a field that has no default is missing, or for a layer of another
        kind: it would draft, but not what it was trained to.
        """
        inner = raw.get("dflash_config") or {}
        _check_layers(raw, inner)
        try:
            heads, layers = raw["num_attention_heads"], raw["num_hidden_layers"]
            of_target = raw["num_target_layers"]
            return DFlashConfig(
                hidden_size=raw["hidden_size"],
                intermediate_size=raw["intermediate_size"],
                num_hidden_layers=layers,
                num_attention_heads=heads,
                num_key_value_heads=raw.get("num_key_value_heads") or heads,
                head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
                vocab_size=raw["vocab_size"],
                block_size=raw["block_size"],
                num_target_layers=of_target,
                target_layer_ids=tuple(
                    inner.get("target_layer_ids") or default_layer_ids(of_target, layers)
                ),
                mask_token_id=inner["mask_token_id"],
                rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
                rope=Rope.of(raw),
                attention_bias=raw.get("attention_bias", False),
                max_position_embeddings=raw.get("max_position_embeddings", 40960),
            )
        except KeyError as missing:
            raise UserError(f"the DFlash config has no field {missing}") from None

    def to_json(self) -> dict[str, Any]:
        """The published form: a Qwen3 config with DFlash's own fields."""
        plain = asdict(self)
        extra, _ = plain.pop("extra"), plain.pop("rope")
        inner = {
            "target_layer_ids": list(plain.pop("target_layer_ids")),
            "mask_token_id": plain.pop("mask_token_id"),
        }
        return {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_dropout": 0.0,
            "layer_types": ["full_attention"] * self.num_hidden_layers,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "dtype": "bfloat16",
            "rope_parameters": self.rope.to_json(),
            "rope_theta": self.rope.theta,
            **plain,
            "dflash_config": inner,
            **extra,
        }


def _check_layers(raw: dict[str, Any], inner: dict[str, Any]) -> None:
    """Raises UserError for layers other than full attention and SiLU."""
    kinds = set(raw.get("layer_types") or ())
    if kinds - {"full_attention"} or raw.get("use_sliding_window") or inner.get("use_swa"):
        raise UserError("a DFlash drafter whose layers see a sliding window is not supported")
    if (act := raw.get("hidden_act", "silu")) != "silu":
        raise UserError(f"a DFlash drafter with the activation {act!r} is not supported")


def default_layer_ids(num_target_layers: int, num_draft_layers: int) -> tuple[int, ...]:
    """Feature layers when a config names none: evenly spaced from 1 to num_target_layers − 3."""
    if num_draft_layers == 1:
        return (num_target_layers // 2,)
    step = (num_target_layers - 4) / (num_draft_layers - 1)
    return tuple(round(1 + i * step) for i in range(num_draft_layers))


class Layer(nn.Module):
    def __init__(self, config: DFlashConfig):
        super().__init__()
        self.self_attn = Attention(config.shape)
        self.mlp = MLP(config.shape)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, x: Tensor, context: LayerContext, rotary: Rotary, visible: Tensor | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, rotary, visible)
        return x + self.mlp(self.post_attention_layernorm(x))


class DFlashModel(nn.Module):
    """The network alone: features and block embeddings in, hidden rows for the head out."""

    def __init__(self, config: DFlashConfig):
        super().__init__()
        self.config = config
        c = config
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.fc = nn.Linear(len(c.target_layer_ids) * c.hidden_size, c.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(c.hidden_size, c.rms_norm_eps)

    def rotary(self, positions: Tensor, dtype: torch.dtype) -> Rotary:
        return Rotary.at(positions, self.config.head_dim, self.config.rope, dtype)

    def project(self, features: Tensor, positions: Tensor) -> list[LayerContext]:
        """Context features [T, F·h] at their positions → every layer's keys and values."""
        x = self.hidden_norm(self.fc(features))
        rotary = self.rotary(positions, x.dtype)
        return [layer.self_attn.keys_values(x, rotary) for layer in self.layers]  # type: ignore[operator, union-attr]

    def forward(
        self,
        block: Tensor,
        positions: Tensor,
        context: list[LayerContext],
        visible: Tensor | None = None,
    ) -> Tensor:
        """Block embeddings [A, b, h] at positions [A, b] → the residual stream [A, b, h].

        ``norm`` is not applied: TreeFlash's head reads the stream before and after it.
        """
        rotary = self.rotary(positions.reshape(-1), block.dtype)
        x = block
        for layer, far in zip(self.layers, context, strict=True):
            x = layer(x, far, rotary, visible)
        return x

    def rows_at(self, embed: Embed, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """The masked positions' residual stream [A, L, h] for roots at A places of one text.

        tokens [T] and features [≥ the last anchor, F·h] of the text; every block sees what stands
        before its own root, and no other block.
        """
        last, config, where = int(anchors.max()), self.config, tokens.device
        positions = torch.arange(last, device=where)
        context = self.project(features[:last], positions)
        ids = torch.full((len(anchors), config.block_size), config.mask_token_id, device=where)
        ids[:, 0] = tokens[anchors]
        own = anchors[:, None] + torch.arange(config.block_size, device=where)
        visible = positions[None] < anchors[:, None]
        return self(embed(ids).to(features.dtype), own, context, visible)[:, 1:]


def save_model(model: DFlashModel, folder: Path, small: bool = False) -> None:
    """Write the official form, or with ``small`` its int8 one (see ``checkpoint.write``)."""
    checkpoint.write(folder, model.config.to_json(), model.state_dict(), small)


def load_config(folder: Path) -> DFlashConfig:
    """Raises UserError when the folder holds no readable DFlash config."""
    return checkpoint.load_config(folder, "DFlash", DFlashConfig.from_json)


def outline(folder: Path) -> DFlashModel:
    """The model a folder's config describes, without weights. Raises UserError."""
    config = load_config(folder)
    with checkpoint.outlined(folder, "DFlash"):
        return DFlashModel(config)


read_shapes = checkpoint.read_shapes  # a file holds the network and nothing beside it


def load_model(folder: Path, dtype: torch.dtype, device: torch.device | str) -> DFlashModel:
    """Load a checkpoint folder (single file or sharded), checking every name and shape.

    Raises UserError when a tensor is missing, surplus or of another shape.
    """
    model = checkpoint.fill(outline(folder), checkpoint.read_state(folder), folder)
    return model.to(device=device, dtype=dtype).eval()


class DFlashDrafter:
    """The network with the target's embedding and head, and one text's projected context.

    Context keys and values are kept across rounds: each round projects only what was committed.
    ``temperature`` divides the logits of q; the published methods use 1. ``fixed``: draft in shapes
    that never change, which a GPU replays as a CUDA graph (the default there).
    """

    def __init__(
        self,
        model: DFlashModel,
        embedding: nn.Module,
        head: nn.Module,
        temperature: float = 1.0,
        fixed: bool | None = None,
    ):
        self.model, self.embedding, self.head = model, embedding, head
        self.temperature = temperature
        self._fixed = model.norm.weight.device.type == "cuda" if fixed is None else fixed
        self._waiting: list[Tensor] = []
        self._context: list[LayerContext] = []
        self._pass: FixedPass | None = None  # on this context
        self._length = 0

    @property
    def depths(self) -> int:
        return self.model.config.depths

    @property
    def layers(self) -> tuple[int, ...]:
        return self.model.config.target_layer_ids

    def reset(self, rows: int) -> None:
        """Forget the text; room for ``rows`` tokens, in the last one's memory if that is enough."""
        if not self._context or self._context[0].rows < rows:
            shape, like = self.model.config.shape, self.model.norm.weight
            rows = -(-rows // 256) * 256
            self._context = [LayerContext.empty(shape, rows, like) for _ in self.model.layers]
            self._pass = None
        self._waiting, self._length = [], 0

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Features [T, F·h] of newly committed tokens; projected when the next round drafts."""
        self._waiting.append(features)

    @torch.inference_mode()
    def propose(self, root: int, width: int) -> Proposal:
        """One pass over [root, mask × L]: log q [L, V] and the best tokens of every depth."""
        return self.offer(self.hidden(root), root, width)

    @torch.inference_mode()
    def propose_each(
        self, tokens: Tensor, features: Tensor, anchors: Tensor, width: int
    ) -> Iterator[Proposal]:
        """What rounds with roots at A places of one text are offered, in one pass.

        tokens [T], features [T, F·h], anchors [A] ascending. What ``extend`` was told stays.
        """
        features = features.to(self.model.norm.weight.dtype)
        rows = self.model.rows_at(self.embedding, tokens, features, anchors)
        for hidden, root in zip(rows, tokens[anchors].tolist(), strict=True):
            yield self.offer(hidden, root, width)

    def offer(self, hidden: Tensor, root: int, width: int) -> Proposal:
        """The proposal that a pass's residual rows [L, h] make."""
        logits = self.head(self.model.norm(hidden))
        return Proposal.factorised(self.log_softmax(logits), max(width, KEPT))

    def log_softmax(self, logits: Tensor) -> Tensor:
        """log q [L, V] in float32, at the drafter's temperature."""
        return (logits.float() / self.temperature).log_softmax(-1)

    def hidden(self, root: int) -> Tensor:
        """The residual stream of the masked rows, [L, h]; takes in the waiting context first."""
        if self._fixed and (rows := self._fixed_hidden(root)) is not None:
            return rows
        self._project()
        config, like = self.model.config, self.model.norm.weight
        ids = torch.full((1, config.block_size), config.mask_token_id, device=like.device)
        ids[0, 0] = root
        where = torch.arange(config.block_size, device=like.device)[None] + self._length
        seen = [layer.first(self._length) for layer in self._context]
        return self.model(self.embedding(ids).to(like.dtype), where, seen)[0, 1:]

    def _fixed_hidden(self, root: int) -> Tensor | None:
        """The same by a fixed pass; None when this round's context does not fit one."""
        count = sum(map(len, self._waiting))
        if self._pass is None:
            self._pass = self._new_pass()
        if not self._pass.fits(self._length, count):
            return None
        features = self._taken() if count else self._pass.fresh.features[:0]
        try:
            rows = self._pass(features, self._length, (root,))
        except CannotCapture:
            self._fixed, self._waiting = False, [features]
            return None
        self._length += count
        return rows

    def _new_pass(self) -> FixedPass:
        """At most a block of tokens is taken in; behind the root stand masks."""
        config, rows = self.model.config, self._context[0].rows
        features = (config.block_size, self.model.fc.in_features)
        block = torch.full((config.block_size,), config.mask_token_id)
        return FixedPass(self._run, features, block, rows, self.model.norm.weight)

    def _run(self, fresh: Fresh) -> Tensor:
        """A fixed pass: all context rows are read, behind a mask."""
        projected = self.model.project(fresh.features, fresh.slots)
        for kept, new in zip(self._context, projected, strict=True):
            kept.put(fresh.slots, new)
        length = fresh.known + fresh.count
        columns = torch.arange(self._context[0].rows, device=length.device)
        block = self.embedding(fresh.ids[None]).to(fresh.features.dtype)
        where = (length + fresh.offsets)[None]
        return self.model(block, where, self._context, (columns < length)[None])[0, 1:]

    def _taken(self) -> Tensor:
        """The waiting features [T, F·h], which wait no longer."""
        features = torch.cat(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting = []
        return features

    def _project(self) -> None:
        if not self._waiting:
            return
        features = self._taken()
        start, end = self._length, self._length + len(features)
        positions = torch.arange(start, end, device=features.device)
        fresh = self.model.project(features.to(self.model.norm.weight.dtype), positions)
        for kept, new in zip(self._context, fresh, strict=True):
            kept.write(start, new)
        self._length = end
