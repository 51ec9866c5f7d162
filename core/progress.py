"""How far long work is: who does it tells, and a bar or a page shows. Light."""

from __future__ import annotations

from collections.abc import Callable

# Is told how much is done, of 1 or in steps that are counted elsewhere (None: not known), and what
# is being done. What it raises ends the work.
Progress = Callable[[float | None, str], None]
Steps = Callable[[float, str], None]  # the same of work whose end is known
At = Callable[[float], None]  # is told how much is done, of 1

EARLY = 3.0  # seconds, or this share of the work, before which nothing is said about its end
LITTLE = 0.02


def told(done: float | None, what: str, seconds: float) -> str:
    """The work and, where it is known, its percentage and about how long the rest takes if it goes
    on as in the ``seconds`` since it began: "layers + 1: 34%, about 40 s left"."""
    if done is None:
        return what
    words = f"{what}: {done:.0%}"
    if seconds < EARLY or not LITTLE <= done < 1:
        return words
    left = seconds * (1 - done) / done
    if left > 90:
        return f"{words}, about {left / 60:.0f} min left"
    return f"{words}, about {5 * max(1, round(left / 5))} s left"


def part(report: Steps, number: int, count: int, what: str = "") -> Callable[..., None]:
    """The report of part ``number``, from 0, of so many; ``what``: all that is said of it."""
    return lambda done, own="": report((number + done) / count, what or own)


def silent(*_: object) -> None:
    """The progress that nobody listens to."""
