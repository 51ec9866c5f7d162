"""The DFlash 2 drafter at work."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from core.drafting.best import top
from core.drafting.work import DraftWork
from core.methods.dflash.before import BeforeSession, BlockOutput, before
from core.methods.dflash.drafter import DFlashDrafter, loader
from core.methods.dflash2.model import FORM, DFlash2Model


class DFlash2Drafter(DFlashDrafter):
    """DFlash's pass, then the selector after each token that a builder asks about. Tokens beyond a
    depth's best have q = 0."""

    model: DFlash2Model

    @property
    def work(self) -> DraftWork:
        return replace(super().work, state=self.model.candidate_selector)

    def logits(self, hidden: Tensor, paths: Tensor) -> Tensor:
        normed = self.model.norm(hidden).flatten(0, 1)
        known = paths[:, 1 : 1 + hidden.shape[1]]
        found = self._selected(normed, *self._best(self.head(normed)), known.flatten())
        return found.unflatten(0, known.shape)

    def _best(self, logits: Tensor) -> torch.return_types.topk:
        return top(logits, self.model.candidate_selector.top_k)

    def _selected(self, normed: Tensor, values: Tensor, ids: Tensor, before: Tensor) -> Tensor:
        """Scores [N, V] of the best tokens' logits [N, K] at rows [N, h], after the tokens before
        them; −∞ for other tokens."""
        scores = values + self.model.candidate_selector(normed, before, ids)
        size = len(ids), self.model.config.vocab_size
        whole = scores.new_full(size, -torch.inf, dtype=torch.float32)
        return whole.scatter(1, ids, scores.float())

    def session(self, hidden: Tensor, ends: tuple[int, int], width: int) -> BeforeSession:
        normed = self.model.norm(hidden)
        logits = self.head(normed)
        values, ids = self._best(logits)

        def after(depths: Tensor, paths: Tensor) -> Tensor:
            known = before(depths, paths)
            scores = self._selected(normed[depths], values[depths], ids[depths], known)
            return self.log_softmax(scores)

        return BeforeSession(BlockOutput(self.log_softmax(logits), after), ends, width)


load = loader("dflash2", FORM, DFlash2Drafter)
