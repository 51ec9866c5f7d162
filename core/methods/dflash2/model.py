"""The DFlash 2 network (z-lab/dflash): DFlash's with convolutions, and a selector.

A convolution mixes each row of a block with the rows before it: out[i] = Σ_t (base[t] + δ[i, t]) ⊙
x[i − t], nothing from before the block. δ comes from the normed row and is shared by a group of
channels. One convolution stands before and one behind attention, and the same around the MLP.

The selector scores a depth's best tokens b after a token a: S = U(b) + ⟨A[a] ⊙ H(h), B[b]⟩, U the
logit and h the normed row. Parameter names are those of the published checkpoints.

Shapes: A blocks, b rows of a block, h hidden width, K taps, R nodes, k best tokens, r rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.errors import UserError
from core.methods.dflash.model import DFlashConfig, DFlashModel, Layer, form
from core.models.layers import LayerContext, Rotary

OWN = ("selector_rank", "selector_top_k", "conv_kernel_size", "conv_group_size")


@dataclass(frozen=True)
class DFlash2Config(DFlashConfig):
    """Names are those of published configs."""

    selector_rank: int = 256
    selector_top_k: int = 16
    conv_kernel_size: int = 2
    conv_group_size: int = 16
    architecture: ClassVar[str] = "DFlash2DraftModel"

    @staticmethod
    def from_json(raw: dict[str, Any]) -> DFlash2Config:
        """Read a published config. Raises UserError for any other."""
        own = {**raw, **(raw.get("dflash_config") or {})}
        for name in OWN:
            if type(own[name]) is not int or not 1 <= own[name] <= 1 << 16:
                raise UserError(f"the DFlash 2 config has an impossible {name}")
        base = DFlashConfig.from_json(raw)
        if base.draft_vocab_size or base.logit_scale != 1:
            raise UserError(
                "a DFlash 2 drafter with a draft vocabulary or a logit_scale is not supported"
            )
        if base.hidden_size % own["conv_group_size"]:
            raise UserError("the DFlash 2 config's conv_group_size does not divide hidden_size")
        return DFlash2Config(**vars(base), **{name: own[name] for name in OWN})


class BlockConvolution(nn.Module):
    def __init__(self, hidden: int, taps: int, group: int):
        super().__init__()
        self._shape, self._group = (2, taps, hidden // group), group
        self.base_kernel = nn.Parameter(torch.zeros(2, taps, hidden))
        self.kernel_projection = nn.Linear(hidden, 2 * taps * (hidden // group), bias=False)

    def kernels(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Normed rows [A, b, h] → the kernels before and behind the sublayer, [A, b, K, h] each."""
        moved = self.kernel_projection(x).unflatten(-1, self._shape)
        before, behind = (self.base_kernel + moved.repeat_interleave(self._group, -1)).unbind(-3)
        return before, behind

    @staticmethod
    def mix(x: Tensor, kernel: Tensor) -> Tensor:
        """Rows [A, b, h] with those before them → [A, b, h]."""
        size = x.shape[1]
        taps = (F.pad(x, (0, 0, tap, 0))[:, :size] for tap in range(kernel.shape[-2]))
        return sum(
            (k * row for k, row in zip(kernel.unbind(-2), taps, strict=True)), x.new_zeros(())
        )


class ConvolvedLayer(Layer):
    def __init__(self, config: DFlash2Config, number: int):
        super().__init__(config, number)
        sizes = config.hidden_size, config.conv_kernel_size, config.conv_group_size
        self.attention_conv, self.mlp_conv = BlockConvolution(*sizes), BlockConvolution(*sizes)

    def forward(
        self, x: Tensor, context: LayerContext, rotary: Rotary, visible: Tensor | None
    ) -> Tensor:
        mix, normed = BlockConvolution.mix, self.input_layernorm(x)
        before, behind = self.attention_conv.kernels(normed)
        out = self.self_attn(mix(normed, before), context, rotary, visible)
        x = x + mix(out, behind)
        normed = self.post_attention_layernorm(x)
        before, behind = self.mlp_conv.kernels(normed)
        return x + mix(self.mlp(mix(normed, before)), behind)


class CandidateSelector(nn.Module):
    def __init__(self, config: DFlash2Config):
        super().__init__()
        self.top_k, size = config.selector_top_k, (config.vocab_size, config.selector_rank)
        self.predecessor_codebook = nn.Parameter(torch.zeros(size))
        self.successor_codebook = nn.Parameter(torch.zeros(size))
        self.hidden_projection = nn.Linear(config.hidden_size, config.selector_rank, bias=False)

    def forward(self, normed: Tensor, before: Tensor, ids: Tensor) -> Tensor:
        """Normed rows [R, h], tokens before them [R] and best tokens [R, k] → what is added to
        their logits, [R, k]."""
        gate = self.predecessor_codebook[before] * self.hidden_projection(normed)
        return (self.successor_codebook[ids] @ gate[..., None])[..., 0]


class DFlash2Model(DFlashModel):
    layer = ConvolvedLayer

    def __init__(self, config: DFlash2Config):
        super().__init__(config)
        self.candidate_selector = CandidateSelector(config)


FORM = form("DFlash 2", DFlash2Config.from_json, DFlash2Model)
