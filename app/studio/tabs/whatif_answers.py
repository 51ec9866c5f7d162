"""The answer for a simulated setting: its figures, and the speed that may be expected of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from app.studio import shipped
from app.studio.examples import Examples
from core.errors import UserError, WrongKind
from core.json_input import read_json
from core.methods.method import Method
from core.methods.registry import built_in, find_method
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.visible import visible

if TYPE_CHECKING:
    from analysis.collected.whatif import SimulatedRun, Simulation
    from analysis.experiments.cost import Cost
    from analysis.frames import Frame

MAX_COST_FILE = 4 << 20  # bytes
PARTS = ("draft", "build", "commit")  # of a round, beside its verification
PLACES = 6  # positions whose drafts are counted for the rows of a budget
ESTIMATE = (
    "An estimate, not a measurement of this machine: τ here with the stage times of the shipped "
    "example runs. The command cost, with --json, measures yours."
)


def curve_figures(
    curves: Mapping[str, Sequence[SimulatedRun]],
    found: Mapping[str, Any] | None,
    of: str | None = None,
    over: Mapping[str, Frame] | None = None,
) -> dict[str, Any]:
    """τ by budget of some settings, and the first one's expected speed where it is known.

    ``of``: whose times were opened; None: the estimate's. ``over``: the settings over several
    texts, in place of the shown one's τ.
    """
    from analysis.charts.chart import as_json
    from analysis.charts.figures import PAGE
    from analysis.charts.parts import Point
    from analysis.collected import budget_figures as figures

    points = found["points"] if found else ()
    expected = [Point(p["budget"], p["speed"], doubt=figures.doubt(p["exact"])) for p in points]
    plain, name = found["plain"] if found else 0.0, next(iter(curves), "")
    says = ESTIMATE if of is None else f"τ here with the times that cost measured: {of}."
    if over is None:
        taus = figures.tau_by_budget(curves, PAGE)
    else:
        taus = figures.tau_over_texts(over, PAGE)
    speed = figures.speed_by_budget(name, expected, plain, says, PAGE)
    drawn = {"tau": taus, "speed": speed}
    return {name: as_json(figure) for name, figure in drawn.items()}


def lengths_figure(name: str, lengths: Sequence[int]) -> Any:
    """The rounds of one setting by their length."""
    from analysis.charts import figures
    from analysis.charts.chart import as_json

    return as_json(figures.lengths_of(name, lengths, figures.PAGE))


def read_cost(path: Path) -> Cost:
    """An uploaded result of ``cost --json``, of a method that comes with Draftscope.

    Raises UserError for anything else.
    """
    from analysis.experiments.cost import cost_from_json

    if path.is_file() and path.stat().st_size > MAX_COST_FILE:
        raise UserError("this file is too large for a result of `cost`")
    try:
        cost = cost_from_json(read_json(path))
    except (UserError, ValueError):
        raise WrongKind("this is not a result of `cost --json`", path) from None
    if built_in(cost.method) is None:
        raise UserError("this result is of a method that does not come with Draftscope")
    return cost


def costs_of(cost: Cost) -> str:
    """Name whose times a result of cost holds."""
    return f"{find_method(cost.method).title} on {visible(cost.model, 120)}"


def speeds(
    simulation: Simulation, runs: Sequence[SimulatedRun], cost: Cost | None
) -> dict[str, Any] | None:
    """Expected tokens/s of each run as far as rows were timed, the best budget, plain decoding's.

    None where the drafter was not timed.
    """
    from analysis.experiments.cost import best_budget, speed_estimates

    if cost is None or find_method(cost.method).drafter != find_method(simulation.method).drafter:
        return None
    timed = [run for run in runs if run.budget <= cost.most]
    stages = [cost.stage(run.budget, _rows(simulation, run.budget)) for run in timed]
    found = speed_estimates(cost.verify, stages, timed)
    if not found:
        return None
    points = [{"budget": e.budget, "speed": e.tokens_per_second, "exact": e.exact} for e in found]
    plain = 1 / cost.verify.seconds(1)
    return {"points": points, "best": best_budget(found).budget, "plain": plain}


def _rows(simulation: Simulation, budget: int) -> float:
    """Mean rows of the drafts, root included."""
    places = simulation.collection.positions
    some = places[:: max(1, len(places) // PLACES)]
    return 1 + sum(simulation.draft(at, budget).nodes for at in some) / len(some)


def example_cost(examples: Examples, simulation: Simulation) -> Cost | None:
    """An estimate from the example runs that ship: their times are of the machine that made them.

    None where no example drafts a tree with this drafter.
    """
    from analysis.experiments.cost import Cost, Stage

    drafter = find_method(simulation.method).drafter
    stages = []
    for method, rounds in _timed(examples):
        if method.drafter == drafter and method.builder != "chain":
            nodes, times = rounds[0].draft.nodes, [record.times for record in rounds]
            parts = (median(getattr(each, part) for each in times) for part in PARTS)
            stages.append(Stage(nodes, *parts, rows=nodes + 1))
    stages.sort(key=lambda stage: stage.budget)
    return Cost("", simulation.method, _verify_cost(examples), tuple(stages)) if stages else None


@cache
def _timed(examples: Examples) -> list[tuple[Method, tuple[Round, ...]]]:
    """The examples that are timed: each one's method and rounds."""
    return [
        (method, read_trace(examples.path(run.name)).rounds)
        for run in examples.runs
        if run.topic == shipped.TIMED and (method := built_in(run.method)) is not None
    ]


@cache
def _verify_cost(examples: Examples) -> Any:
    """Verify seconds by rows. Each median with the middle half of the rounds."""
    from analysis.experiments.cost import ForwardTime, fit

    seconds: dict[int, list[float]] = {}
    for _, rounds in _timed(examples):
        seconds.setdefault(len(rounds[0].draft), []).extend(r.times.verify for r in rounds)
    quartiles = {rows: np.quantile(s, [0.25, 0.5, 0.75]).tolist() for rows, s in seconds.items()}
    return fit([ForwardTime(rows, q[1], q[0], q[2]) for rows, q in sorted(quartiles.items())])
