"""The XPress drafter at work."""

from __future__ import annotations

from pathlib import Path

from core.methods.dflash import DFlashOptions
from core.methods.dflash.before import CorrectedDrafter
from core.methods.dflash.drafter import loaded
from core.methods.xpress.model import FORM
from core.models.language import Language


def load(language: Language, folder: Path | None, options: DFlashOptions) -> CorrectedDrafter:
    """The XPress drafter in ``folder`` on the target's device.

    Raises UserError when there is none or it was made for another target.
    """
    model, embedding, head, covered = loaded("xpress", FORM, language, folder)
    return CorrectedDrafter(model, embedding, head, options.temperature, covered=covered)
