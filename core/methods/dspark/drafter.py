"""The DSpark drafter at work."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from core.drafting.session import Covered
from core.errors import UserError
from core.methods.dflash.before import CorrectedDrafter
from core.methods.dspark import DSparkOptions
from core.methods.dspark.model import FORM, DSparkModel
from core.methods.loading import loaded
from core.models.language import Language


def load(language: Language, folder: Path | None, options: DSparkOptions) -> DSparkDrafter:
    """The DSpark drafter in ``folder`` on the target's device.

    Raises UserError when there is none, it was made for another target, or has no head for the
    confidence that is asked for.
    """
    model, embedding, head, covered = loaded("dspark", FORM, language, folder)
    if options.confidence and model.confidence_head is None:
        raise UserError("this DSpark drafter has no confidence head: leave the option confidence 0")
    return DSparkDrafter(model, embedding, head, options, covered)


class DSparkDrafter(CorrectedDrafter):
    """DFlash's pass, then a bias after each token that a builder asks about."""

    model: DSparkModel

    def __init__(
        self,
        model: DSparkModel,
        embedding: nn.Module,
        head: nn.Module,
        options: DSparkOptions = DSparkOptions(),  # noqa: B008 (frozen)
        covered: Covered | None = None,
    ):
        super().__init__(model, embedding, head, options.temperature, covered=covered)
        self.options, self.least = options, options.confidence
