"""What a round costs: as the command ``cost`` measured it, or from the example runs that ship.

The second is an estimate to draw with: its times are of the machine that made the examples, never
of this one. The arithmetic is ``analysis.cost``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from analysis.cost import Cost, Fit, Stage, Timed, best, cost_from_json, expected, fit
from app.studio.gallery import Gallery
from core.errors import UserError
from core.methods.registry import built_in, recipe

if TYPE_CHECKING:
    from analysis.whatif import Simulation, WhatIf
    from core.rounds.round import Round

SIZES = ("maths-ar", "maths-dflash", "maths-ddtree-16", "maths-ddtree-64")  # 1, 8, 17, 65 rows
DRAFTERS = {"dflash": "maths-ddtree-16", "treeflash": "maths-treeflash", "dart": "maths-dart"}
PLACES = 6  # positions whose drafts are counted, per budget
UPLOAD = 4 << 20  # bytes of a result


def read_cost(path: Path) -> Cost:
    """An uploaded result of ``cost --json``, of a method that comes with Draftscope.

    Raises UserError for anything else.
    """
    try:
        if path.stat().st_size > UPLOAD:
            raise UserError("this file is too large for a result of `cost`")
        cost = cost_from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        raise UserError("this is no result of `cost --json`") from None
    if built_in(cost.method) is None:
        raise UserError("this result is of a method that does not come with Draftscope")
    return cost


def speeds(
    simulation: Simulation, runs: Sequence[WhatIf], measured: Cost | None = None
) -> dict[str, Any] | None:
    """Expected tokens/s of each run as far as rows were timed, the best budget, plain decoding's.

    None where the drafter was not timed: in ``measured``, or in what ships.
    """
    drafter = recipe(simulation.method).drafter
    own = built_in(measured.method) if measured is not None else None
    cost = _shipped(drafter) if own is None else measured if own.drafter == drafter else None
    if cost is None:
        return None
    timed = [run for run in runs if run.budget <= cost.most]
    stages = [cost.stage(run.budget, _rows(simulation, run.budget)) for run in timed]
    found = expected(cost.verify, stages, timed)
    if not found:
        return None
    points = [{"budget": e.budget, "speed": e.tokens_per_second} for e in found]
    plain = 1 / cost.verify.seconds(1)
    return {"points": points, "best": best(found).budget, "plain": plain}


def _shipped(drafter: object) -> Cost | None:
    if not isinstance(drafter, str) or drafter not in DRAFTERS:
        return None
    rounds = _rounds(DRAFTERS[drafter])
    of = {s: median(getattr(r.times, s) for r in rounds) for s in ("draft", "build", "commit")}
    stage = Stage(len(rounds[0].draft) - 1, **of, rows=len(rounds[0].draft))
    return Cost("", drafter, _verify(), (stage,))


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
