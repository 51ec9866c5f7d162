"""The Domino drafter at work."""

from __future__ import annotations

from pathlib import Path

from core.methods.dflash import DFlashOptions
from core.methods.dflash.before import CorrectedDrafter
from core.methods.dflash.drafter import loaded
from core.methods.domino.model import FORM
from core.models.language import Language


def load(language: Language, folder: Path | None, options: DFlashOptions) -> CorrectedDrafter:
    """The Domino drafter in ``folder`` on the target's device.

    Raises UserError when there is none or it was made for another target.
    """
    model, embedding, head, covered = loaded("domino", FORM, language, folder)
    return CorrectedDrafter(model, embedding, head, options.temperature, covered=covered)
