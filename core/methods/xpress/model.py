"""The XPress network: DFlash's, and a refiner of its logits.

At row k of a block the refiner joins the row, the mean of all rows and the token before k, each
brought to r numbers: x. Then x_k ← x_k + Σ_{j ≤ k} M[·, k, j] ⊙ x_j, an MLP, and a matrix to the
logits. All b rows take part, the root's own too, whose token before is the last committed one. Rows
are those after the last norm. Parameter names are those of speculators.

Shapes: A blocks, b rows of a block, n of them that are asked for, h hidden width, r rank, C tokens
of the head, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.errors import UserError
from core.methods.dflash.before import CorrectedDrafter, Correction
from core.methods.dflash.drafter import loader
from core.methods.dflash.model import DFlashConfig, DFlashModel, form, of_speculators
from core.models.layers import Embed

_OWN = ("xpress_rank", "xpress_mlp_ratio")


@dataclass(frozen=True)
class XPressConfig(DFlashConfig):
    """Names are those of published configs."""

    xpress_rank: int = 256
    xpress_mlp_ratio: int = 2
    architecture: ClassVar[str] = "XPressSpeculator"

    @property
    def first_read(self) -> int:
        return 0

    @staticmethod
    def from_json(raw: dict[str, Any]) -> XPressConfig:
        """Read a published config. Raises UserError for any other."""
        raw = of_speculators(raw)
        own = {name: raw[name] for name in _OWN}
        if any(type(size) is not int or not 1 <= size <= 1 << 16 for size in own.values()):
            raise UserError("the XPress config has an impossible rank or ratio")
        return XPressConfig(**vars(DFlashConfig.from_json(raw)), **own)


class RefinerHead(Correction):
    def __init__(self, config: XPressConfig):
        super().__init__()
        rank, hidden, size = config.xpress_rank, config.hidden_size, config.block_size
        self._first_row = config.first_row
        self.token_embed = nn.Embedding(config.vocab_size, rank)
        self.down_h = nn.Linear(hidden, rank, bias=False)
        self.down_g = nn.Linear(hidden, rank, bias=False)
        self.in_proj = nn.Linear(3 * rank, rank, bias=False)
        self.mix_l = nn.Parameter(torch.zeros(rank, size, size))
        inner = rank * config.xpress_mlp_ratio
        self.mlp_gate = nn.Linear(rank, inner, bias=False)
        self.mlp_up = nn.Linear(rank, inner, bias=False)
        self.mlp_down = nn.Linear(inner, rank, bias=False)
        self.readout = nn.Linear(rank, config.draft_vocab_size or config.vocab_size, bias=False)

    def latents(self, rows: Tensor, paths: Tensor, embed: Embed) -> Tensor:
        # The token before row k is the path's k-th; of the root's own row the last committed one,
        # unless that row predicts: then it is the root.
        known = self.token_embed(paths if self._first_row else paths[:, 1:])
        size = known.shape[1]
        mean = self.down_g(rows.mean(1, keepdim=True)).expand(-1, size, -1)
        x = self.in_proj(torch.cat([self.down_h(rows[:, :size]), mean, known], -1))
        x = x + torch.einsum("ckj,njc->nkc", self.mix_l[:, :size, :size].tril(), x)
        x = x + self.mlp_down(F.silu(self.mlp_gate(x)) * self.mlp_up(x))
        return x[:, self._first_row :]

    def read_out(self, latents: Tensor, depths: Tensor) -> Tensor:
        return self.readout(latents)


class XPressModel(DFlashModel):
    def __init__(self, config: XPressConfig):
        super().__init__(config)
        self.refiner_head = RefinerHead(config)

    @property
    def correction(self) -> Correction:
        return self.refiner_head


FORM = form("XPress", XPressConfig.from_json, XPressModel)
load = loader("xpress", FORM, CorrectedDrafter)
