"""How far a long preparation is: what loaders report, and a bar or a page shows. Light."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One stage of a long preparation and how much of it is done (0 to 1; None: unknown)."""

    stage: str
    fraction: float | None


EARLY = 3.0  # seconds, or this share of the work, before which nothing is said about its end
LITTLE = 0.02


def told(progress: Progress, seconds: float) -> str:
    """A stage, its percentage and about how long the rest takes if it goes on as in the
    ``seconds`` since it began: "layers + 1: 34%, about 40 s left"."""
    done = progress.fraction or 0.0
    words = f"{progress.stage}: {done:.0%}"
    if seconds < EARLY or not LITTLE <= done < 1:
        return words
    left = seconds * (1 - done) / done
    if left > 90:
        return f"{words}, about {left / 60:.0f} min left"
    return f"{words}, about {5 * max(1, round(left / 5))} s left"


Report = Callable[[Progress], None]
At = Callable[[float], None]  # is told how much is done, of 1


def silent(_: Progress) -> None:
    """The report nobody listens to."""
