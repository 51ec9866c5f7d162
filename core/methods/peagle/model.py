"""The P-EAGLE network (arXiv 2602.01469): EAGLE-3's layers over the root and masked places behind
it.

The root's row is EAGLE-3's. Row k behind it joins a learned feature, which is the same in all, with
the embedding of a mask token, at the root's position + k. A row sees the text and the rows before
it. Parameter names are those of speculators and SpecForge: EAGLE-3's, ``mask_hidden``, and the
embedding where it was trained along.

Shapes: A blocks, F feature layers, L drafted depths, h hidden width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.methods.eagle3.model import (
    BESIDE,
    Contexts,
    EagleConfig,
    EagleModel,
    official_name,
    told_by_tensors,
)
from core.models import checkpoint
from core.models.layers import Embed, drawn

MASKS = ("mask_token_id", "pard_token", "ptd_token_id")  # what engines and trainers call it


@dataclass(frozen=True)
class ParallelConfig(EagleConfig):
    """EAGLE-3's fields, and P-EAGLE's.

    mask_token_id  the token that stands at the masked places
    """

    mask_token_id: int = 0

    @staticmethod
    def from_json(raw: dict[str, Any]) -> ParallelConfig:
        """Read a published config. Raises UserError or KeyError for any other."""
        mask = next((raw[name] for name in MASKS if name in raw), None)
        if mask is None:
            raise KeyError(MASKS[0])
        return ParallelConfig(**vars(EagleConfig.from_json(raw)), mask_token_id=mask)

    def to_json(self) -> dict[str, Any]:
        """The published form, as SpecForge has it."""
        return super().to_json() | {"architectures": ["PEagleDraftModel"]}


class ParallelModel(EagleModel):
    """The network without a head."""

    def __init__(self, config: ParallelConfig):
        super().__init__(config)
        self.config: ParallelConfig = config
        self.mask_hidden = drawn(1, 1, self.fc.in_features)

    def block(
        self,
        embed: Embed,
        roots: Tensor,
        last: Tensor,
        positions: Tensor,
        context: Contexts,
        visible: Tensor,
        depths: int,
    ) -> Tensor:
        """Rows [A, L, h] for the head.

        roots      int64 [A]
        last       the features of the tokens before them, [A, h], at ``positions`` [A]
        visible    bool [A, T], the context that each sees
        """
        steps = torch.arange(depths, device=last.device)
        masked = self.reduce(self.mask_hidden[0]).expand(len(last), depths - 1, -1)
        hidden = torch.cat([last[:, None], masked], 1)
        ids = torch.full_like(steps, self.config.mask_token_id).repeat(len(roots), 1)
        ids[:, 0] = roots
        where = positions[:, None] + steps
        embedded = embed(ids).to(hidden.dtype)
        rows = self.join(hidden.flatten(0, 1), embedded.flatten(0, 1), where.flatten())
        seen = self.seen(visible[:, None].repeat(1, depths, 1), where, visible.shape[1])
        _, out, _ = self(rows, context, seen, hidden=steps > steps[:, None])
        return out.unflatten(0, (len(last), depths))

    def rows_at(
        self, embed: Embed, tokens: Tensor, features: Tensor, anchors: Tensor, depths: int
    ) -> Tensor:
        """Rows [A, L, h] for the head, for roots at A places (≥ 1) of one text, as in EAGLE-3's."""
        ends = anchors - 1
        hidden, context = self.read(embed, tokens, features, int(anchors.max()))
        visible = torch.arange(context[0].rows, device=tokens.device) < ends[:, None]
        return self.block(embed, tokens[anchors], hidden[ends], ends, context, visible, depths)


FORM = checkpoint.Form(
    "P-EAGLE",
    ParallelConfig.from_json,
    ParallelModel,
    sizes=told_by_tensors,
    beside=BESIDE,
    rename=official_name,
)
