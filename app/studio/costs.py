"""What a round costs, from the stage times of the example runs that ship.

An estimate to draw with: the times are of the machine that made the examples, never of this one;
the command ``cost`` measures here. The arithmetic is ``analysis.cost``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from analysis.cost import Fit, Stage, Timed, best, expected, fit
from app.studio.gallery import Gallery
from core.methods import recipe

if TYPE_CHECKING:
    from analysis.whatif import Simulation, WhatIf
    from core.types import Round

SIZES = ("maths-ar", "maths-dflash", "maths-ddtree-16", "maths-ddtree-64")  # 1, 8, 17, 65 rows
DRAFTERS = {"dflash": "maths-ddtree-16", "treeflash": "maths-treeflash", "dart": "maths-dart"}
LARGEST = 64  # budget: beyond it nothing was timed, and nothing is guessed
PLACES = 6  # positions whose drafts are counted, per budget


def speeds(simulation: Simulation, runs: Sequence[WhatIf]) -> dict[str, Any] | None:
    """Expected tokens/s of each run as far as rows were timed, the best budget, plain decoding's.

    None where no times of the drafter ship.
    """
    drafter = recipe(simulation.method).drafter
    if not isinstance(drafter, str) or drafter not in DRAFTERS:
        return None
    rounds, verify = _rounds(DRAFTERS[drafter]), _verify()
    of = {s: median(getattr(r.times, s) for r in rounds) for s in ("draft", "build", "commit")}
    timed = [run for run in runs if run.budget <= LARGEST]
    stages = [Stage(run.budget, **of, rows=_rows(simulation, run.budget)) for run in timed]
    found = expected(verify, stages, timed)
    if not found:
        return None
    points = [{"budget": e.budget, "speed": e.tokens_per_second} for e in found]
    return {"points": points, "best": best(found).budget, "plain": 1 / verify.seconds(1)}


@cache
def _rounds(name: str) -> tuple[Round, ...]:
    return Gallery().trace(name).rounds


@cache
def _verify() -> Fit:
    """Verify seconds by rows. The middle half of the rounds stands beside each median."""
    points = []
    for name in SIZES:
        rounds = _rounds(name)
        low, middle, high = quantiles([r.times.verify for r in rounds], n=4)
        points.append(Timed(len(rounds[0].draft), middle, low, high))
    return fit(points)


def _rows(simulation: Simulation, budget: int) -> float:
    """Mean rows of the drafts, root included."""
    places = simulation.collected.positions
    some = places[:: max(1, len(places) // PLACES)]
    return 1 + sum(simulation.draft(at, budget).nodes for at in some) / len(some)
