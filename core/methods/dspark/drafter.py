"""The DSpark drafter at work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from core.drafting.work import DraftWork
from core.errors import UserError
from core.methods.dflash.before import BeforeSession, Block
from core.methods.dflash.drafter import DFlashDrafter, network
from core.methods.dspark import DSparkOptions
from core.methods.dspark.model import FORM, DSparkModel
from core.models.language import Language


def load(language: Language, folder: Path | None, options: DSparkOptions) -> DSparkDrafter:
    """The DSpark drafter in ``folder`` on the target's device.

    Raises UserError when there is none, it was made for another target, or has no head for the
    confidence that is asked for.
    """
    model = network("dspark", FORM, language, folder)
    if options.confidence and model.confidence_head is None:
        raise UserError("this DSpark drafter has no confidence head: leave the option confidence 0")
    return DSparkDrafter(model, language.embedding, language.head, options)


class DSparkDrafter(DFlashDrafter):
    """DFlash's pass, then a bias after each token that a builder asks about."""

    model: DSparkModel

    def __init__(
        self,
        model: DSparkModel,
        embedding: nn.Module,
        head: nn.Module,
        options: DSparkOptions = DSparkOptions(),  # noqa: B008 (frozen)
    ):
        super().__init__(model, embedding, head, options.temperature)
        self.options = options

    @property
    def work(self) -> DraftWork:
        return replace(super().work, state=self.model.markov_head)

    def after(self, hidden: Tensor, before: Tensor) -> Tensor:
        normed = self.model.norm(hidden)
        return self.log_softmax(self.head(normed) + self.model.markov_head(before, normed))

    def session(self, hidden: Tensor, root: int, width: int) -> BeforeSession:
        model, normed = self.model, self.model.norm(hidden)
        logits = self.head(normed)

        def after(depths: Tensor, before: Tensor) -> Tensor:
            return self.log_softmax(logits[depths] + model.markov_head(before, normed[depths]))

        def confidence(depths: Tensor, before: Tensor) -> Tensor:
            found = model.confidence(normed[depths], before)
            unknown = normed.new_full(depths.shape, torch.nan)
            return unknown if found is None else found

        block = Block(self.log_softmax(logits), after, confidence)
        return BeforeSession(block, root, width, self.options.confidence)
