"""How far a long preparation is: what loaders report, and a bar or a page shows. Light."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One stage of a long preparation and how much of it is done (0 to 1; None: unknown)."""

    stage: str
    fraction: float | None


Report = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """The report nobody listens to."""
