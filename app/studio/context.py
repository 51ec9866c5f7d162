"""What every view of the page is given."""

from __future__ import annotations

from dataclasses import dataclass

from app.studio.choices import Choices
from app.studio.desk import Desk


@dataclass(frozen=True)
class Context:
    """The desk with its runs and its only worker, and what a person may choose."""

    desk: Desk
    choices: Choices
