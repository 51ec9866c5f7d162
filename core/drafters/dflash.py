"""The DFlash block-diffusion drafter (arXiv 2602.06036): q for L future tokens from one pass.

Parameter names are those of the published checkpoints, so ``load``/``save`` need no mapping. The
embedding and the head are the target's; a checkpoint holds neither.

Shapes: T context tokens, F feature layers, h hidden width, A blocks ("anchors"; 1 when decoding),
b block size (L = b − 1 drafted depths), H query heads, G key/value heads, D head width.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from core.decode import Proposal
from core.drafters.compact import compress, expand
from core.errors import UserError
from core.types import Candidates

KEPT = 16  # candidates per depth a proposal holds at least


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
    rope_theta: float = 10000.0
    attention_bias: bool = False
    max_position_embeddings: int = 40960
    extra: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def depths(self) -> int:
        """L, the number of drafted depths."""
        return self.block_size - 1

    @staticmethod
    def from_json(raw: dict[str, Any]) -> DFlashConfig:
        """Read a published config, with the reference's defaults for absent optional fields.

        Raises UserError when a field that has no default is missing.
        """
        inner = raw.get("dflash_config") or {}
        rope = raw.get("rope_parameters") or {}
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
                rope_theta=rope.get("rope_theta") or raw.get("rope_theta") or 10000.0,
                attention_bias=raw.get("attention_bias", False),
                max_position_embeddings=raw.get("max_position_embeddings", 40960),
            )
        except KeyError as missing:
            raise UserError(f"the DFlash config has no field {missing}") from None

    def to_json(self) -> dict[str, Any]:
        """The published form: a Qwen3 config with DFlash's own fields."""
        plain = asdict(self)
        extra = plain.pop("extra")
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
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            **plain,
            "dflash_config": inner,
            **extra,
        }


def default_layer_ids(num_target_layers: int, num_draft_layers: int) -> tuple[int, ...]:
    """Feature layers when a config names none: evenly spaced from 1 to num_target_layers − 3."""
    if num_draft_layers == 1:
        return (num_target_layers // 2,)
    step = (num_target_layers - 4) / (num_draft_layers - 1)
    return tuple(round(1 + i * step) for i in range(num_draft_layers))


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps).to(x.dtype)


@dataclass(frozen=True)
class Rotary:
    """cos and sin for some positions, [N, D]."""

    cos: Tensor
    sin: Tensor

    def turn(self, x: Tensor) -> Tensor:
        """Rotate [N, heads, D] by its rows' positions."""
        low, high = x.chunk(2, -1)
        return x * self.cos[:, None] + torch.cat([-high, low], -1) * self.sin[:, None]


@dataclass(frozen=True)
class LayerContext:
    """One layer's projected context: keys (normed, rotated) and values, [G, T, D]."""

    keys: Tensor
    values: Tensor


class Attention(nn.Module):
    def __init__(self, config: DFlashConfig):
        super().__init__()
        c = config
        self.heads, self.groups, self.width = (
            c.num_attention_heads,
            c.num_key_value_heads,
            c.head_dim,
        )
        self.q_proj = nn.Linear(c.hidden_size, self.heads * self.width, bias=c.attention_bias)
        self.k_proj = nn.Linear(c.hidden_size, self.groups * self.width, bias=c.attention_bias)
        self.v_proj = nn.Linear(c.hidden_size, self.groups * self.width, bias=c.attention_bias)
        self.o_proj = nn.Linear(self.heads * self.width, c.hidden_size, bias=c.attention_bias)
        self.q_norm = RMSNorm(self.width, c.rms_norm_eps)
        self.k_norm = RMSNorm(self.width, c.rms_norm_eps)

    def keys_values(self, x: Tensor, rotary: Rotary) -> LayerContext:
        """[N, h] → keys and values [G, N, D]."""
        keys = self.k_norm(self.k_proj(x).view(-1, self.groups, self.width))
        values = self.v_proj(x).view(-1, self.groups, self.width)
        return LayerContext(rotary.turn(keys).transpose(0, 1), values.transpose(0, 1))

    def forward(
        self, x: Tensor, context: LayerContext, rotary: Rotary, visible: Tensor | None
    ) -> Tensor:
        """x [A, b, h] sees the context (where ``visible`` [A, T] says so) and its own block."""
        blocks, size, hidden = x.shape
        flat = x.reshape(-1, hidden)
        queries = rotary.turn(self.q_norm(self.q_proj(flat).view(-1, self.heads, self.width)))
        own = self.keys_values(flat, rotary)
        share = self.heads // self.groups  # query heads per key/value head
        # [A·b, G, R, D] → [G, A, R·b, D]: the heads of a group and the rows of a block as one axis
        q = queries.view(blocks, size, self.groups, share, self.width)
        q = q.permute(2, 0, 3, 1, 4).reshape(self.groups, blocks, share * size, self.width)
        q = q * self.width**-0.5
        own_k = own.keys.view(self.groups, blocks, size, self.width)
        own_v = own.values.view(self.groups, blocks, size, self.width)
        length = context.keys.shape[1]
        far = q.reshape(self.groups, -1, self.width) @ context.keys.transpose(1, 2)
        far = far.view(self.groups, blocks, share * size, length)
        if visible is not None:
            far = far.masked_fill(~visible[None, :, None], torch.finfo(far.dtype).min)
        scores = torch.cat([far, q @ own_k.transpose(2, 3)], -1)
        weights = scores.softmax(-1, dtype=torch.float32).to(x.dtype)
        out = weights[..., length:] @ own_v
        rows = blocks * share * size  # said in full: −1 cannot be inferred for an empty context
        far_out = weights[..., :length].reshape(self.groups, rows, length) @ context.values
        out = (out + far_out.view_as(out)).view(self.groups, blocks, share, size, self.width)
        out = out.permute(1, 3, 0, 2, 4).reshape(blocks, size, self.heads * self.width)
        return self.o_proj(out)


class MLP(nn.Module):
    def __init__(self, config: DFlashConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: DFlashConfig):
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
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
        width = self.config.head_dim
        exponent = torch.arange(0, width, 2, device=positions.device).float() / width
        angle = positions.float()[:, None] * self.config.rope_theta ** -exponent[None]
        angle = torch.cat([angle, angle], -1)
        return Rotary(angle.cos().to(dtype), angle.sin().to(dtype))

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


def save_model(model: DFlashModel, folder: Path, small: bool = False) -> None:
    """Write config.json and model.safetensors: bf16, the official form, or ``small`` (int8).

    Loading a small file gives bf16 values exactly, so saving it again in the official form
    (``python -m app export``) loses nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {n: p.detach().to("cpu", torch.bfloat16) for n, p in model.state_dict().items()}
    weights = compress(weights) if small else weights
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(model.config.to_json(), indent=2) + "\n")


def load_config(folder: Path) -> DFlashConfig:
    """Raises UserError when the folder holds no readable DFlash config."""
    try:
        return DFlashConfig.from_json(json.loads((folder / "config.json").read_text()))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{folder} holds no DFlash checkpoint: {error}") from None


def load_model(folder: Path, dtype: torch.dtype, device: torch.device | str) -> DFlashModel:
    """Load a checkpoint folder (single file or sharded), checking every name and shape.

    Raises UserError when a tensor is missing, surplus or of another shape.
    """
    model = DFlashModel(load_config(folder))
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"{folder} holds no .safetensors file")
    state: dict[str, Tensor] = {}
    for file in files:
        try:
            state |= load_file(file)
        except Exception as error:  # safetensors raises its own untyped errors
            raise UserError(f"{file} cannot be read: {error}") from None
    state = expand(state)
    expected = {name: tuple(p.shape) for name, p in model.state_dict().items()}
    found = {name: tuple(p.shape) for name, p in state.items()}
    for name in expected.keys() | found.keys():
        if expected.get(name) != found.get(name):
            raise UserError(
                f"{folder}: tensor {name} has shape {found.get(name, 'missing')}, "
                f"expected {expected.get(name, 'none of this name')}"
            )
    model.load_state_dict(state)
    return model.to(device=device, dtype=dtype).eval()


class DFlashDrafter:
    """The network with the target's embedding and head, and one text's projected context.

    Context keys and values are kept across rounds: each round projects only what was committed.
    """

    def __init__(self, model: DFlashModel, embedding: nn.Module, head: nn.Module):
        self.model, self.embedding, self.head = model, embedding, head
        self._waiting: list[Tensor] = []
        self._context: list[LayerContext] = []
        self._length = 0

    @property
    def depths(self) -> int:
        return self.model.config.depths

    @property
    def layers(self) -> tuple[int, ...]:
        return self.model.config.target_layer_ids

    def reset(self, rows: int) -> None:
        """Forget the text; allocate context for ``rows`` tokens."""
        c, like = self.model.config, self.model.norm.weight
        shape = (c.num_key_value_heads, rows, c.head_dim)
        self._context = [
            LayerContext(like.new_zeros(shape), like.new_zeros(shape)) for _ in self.model.layers
        ]
        self._waiting, self._length = [], 0

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Features [T, F·h] of newly committed tokens; projected when the next round drafts."""
        self._waiting.append(features)

    @torch.inference_mode()
    def propose(self, root: int, width: int) -> Proposal:
        """One pass over [root, mask × L]: log q [L, V] and the best tokens of every depth.

        At least the 16 best are kept, whatever the width: coverage is read off them.
        """
        self._project()
        config, device = self.model.config, self.model.norm.weight.device
        ids = torch.full((1, config.block_size), config.mask_token_id, device=device)
        ids[0, 0] = root
        where = torch.arange(config.block_size, device=device)[None] + self._length
        seen = [
            LayerContext(c.keys[:, : self._length], c.values[:, : self._length])
            for c in self._context
        ]
        x = self.model(self.embedding(ids).to(self.model.norm.weight.dtype), where, seen)
        logits = self.head(self.model.norm(x[0, 1:]))
        log_q = logits.float().log_softmax(-1)
        best = log_q.topk(min(max(width, KEPT), log_q.shape[-1]))
        return Proposal(Candidates(best.indices.cpu().numpy(), best.values.cpu().numpy()), log_q)

    def _project(self) -> None:
        if not self._waiting:
            return
        features = torch.cat(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting = []
        start, end = self._length, self._length + len(features)
        positions = torch.arange(start, end, device=features.device)
        fresh = self.model.project(features.to(self.model.norm.weight.dtype), positions)
        for kept, new in zip(self._context, fresh, strict=True):
            kept.keys[:, start:end] = new.keys
            kept.values[:, start:end] = new.values
        self._length = end
