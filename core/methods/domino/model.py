"""The Domino network: DFlash's, and a correction of its logits by the path.

A GRU reads the target's embeddings of the path's tokens, the root's first. A place's correction is
E2 · SiLU(E1 · [row ; the GRU's state]); the first places may have none. Rows are those after the
last norm. Parameter names are those of SpecForge. Where its labels are shifted the root's own row
predicts, as it was trained to; its sampler then leaves the block's last row unused.

Shapes: A blocks, L drafted depths, h hidden width, g width of the GRU, e of the correction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.methods.dflash.before import CorrectedDrafter, Correction
from core.methods.dflash.drafter import loader
from core.methods.dflash.model import DFlashConfig, DFlashModel, form
from core.models.layers import Embed

_OWN = ("emb_dim", "gru_hidden_dim")


@dataclass(frozen=True)
class DominoConfig(DFlashConfig):
    """Names are those of published configs.

    pure_draft_prefix_len  how many of the first drafted places have no correction
    """

    emb_dim: int = 256
    gru_hidden_dim: int = 1024
    pure_draft_prefix_len: int = 0
    architecture: ClassVar[str] = "DominoDraftModel"

    @staticmethod
    def from_json(raw: dict[str, Any]) -> DominoConfig:
        """Read a published config. Raises UserError for any other."""
        own = {**raw, **(raw.get("dflash_config") or {})}
        sizes = {name: own[name] for name in _OWN}
        if any(type(size) is not int or not 1 <= size <= 1 << 16 for size in sizes.values()):
            raise UserError("the Domino config has an impossible width")
        told = {"sample_from_anchor": bool(own.get("shift_label"))}
        return DominoConfig(
            **(vars(DFlashConfig.from_json(raw)) | told),
            **sizes,
            pure_draft_prefix_len=own.get("pure_draft_prefix_len", 0),
        )

    def to_json(self) -> dict[str, Any]:
        plain = super().to_json()
        own = {name: plain.pop(name) for name in (*_OWN, "pure_draft_prefix_len")}
        own |= {"projector_type": "domino", "shift_label": self.sample_from_anchor}
        return plain | {"dflash_config": plain["dflash_config"] | own}


class DominoHead(Correction):
    def __init__(self, config: DominoConfig):
        super().__init__()
        hidden, state = config.hidden_size, config.gru_hidden_dim
        self._pure = config.pure_draft_prefix_len
        self.prefix_gru = nn.GRU(hidden, state, batch_first=True, bias=False)
        self.embed_proj = nn.Sequential(
            nn.Linear(hidden + state, config.emb_dim, bias=False),
            nn.SiLU(),
            nn.Linear(config.emb_dim, config.vocab_size, bias=False),
        )

    def latents(self, rows: Tensor, paths: Tensor, embed: Embed) -> Tensor:
        states, _ = self.prefix_gru(embed(paths[:, 1:]).to(rows.dtype))
        return torch.cat([rows[:, : states.shape[1]], states], -1)

    def read_out(self, latents: Tensor, depths: Tensor) -> Tensor:
        return self.embed_proj(latents) * (depths >= self._pure)[..., None]


class DominoModel(DFlashModel):
    correction: DominoHead

    def __init__(self, config: DominoConfig):
        super().__init__(config)
        head = DominoHead(config)
        # By their published names the parts are the network's own; the head is not a second child.
        self.prefix_gru, self.embed_proj = head.prefix_gru, head.embed_proj
        self.__dict__["correction"] = head


FORM = form("Domino", DominoConfig.from_json, DominoModel)
load = loader("domino", FORM, CorrectedDrafter)
