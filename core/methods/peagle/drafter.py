"""The P-EAGLE drafter at work: one pass over the root and masked places, on one text."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from core.drafting.session import DraftSession
from core.drafting.work import DraftWork
from core.methods.eagle3.drafter import EagleDrafter, loader
from core.methods.eagle3.model import Contexts
from core.methods.peagle.model import FORM, ParallelModel


class ParallelDrafter(EagleDrafter):
    """The layers with an embedding and a head, and one text's keys and values."""

    model: ParallelModel

    @property
    def work(self) -> DraftWork:
        depths, every = self.max_depth, nn.ModuleList(self.model.stack)
        return DraftWork(
            network=nn.ModuleList([self.model.fc, self.model.norm, every]),
            context=nn.ModuleList([self.model.fc, *self.model.stack[:-1]]),
            block=every,
            head=self.head,
            rows=depths,
            pairs=depths * (depths + 1) / 2,
            scored=depths,
        )

    def session(self, context: Contexts, last: Tensor, root: int, width: int) -> DraftSession:
        roots, count = torch.tensor([root], device=last.device), context[0].rows
        visible = torch.ones(1, count, dtype=torch.bool, device=last.device)
        rows = self.model.block(
            self.embedding, roots, last, roots.new_tensor([count]), context, visible, self.max_depth
        )
        return self.by_depth(self.log_softmax(self.head(rows[0])), width)


load = loader("peagle", FORM, ParallelDrafter)
