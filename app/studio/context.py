"""What every view of the page is given."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.studio.choices import Choices
from app.studio.desk import Desk
from app.studio.gallery import Gallery


@dataclass(frozen=True)
class Context:
    """The desk with its runs, what a person may choose, and the examples that ship."""

    desk: Desk
    choices: Choices
    gallery: Gallery = field(default_factory=Gallery)
