"""Figures by draft budget, of simulated runs and their expected speed. Never torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from analysis.charts.figures import AUTO, Style, points
from analysis.charts.parts import About, Axis, Point, Series
from analysis.collected.many_texts import departing
from analysis.frames import Frame
from analysis.numbers import plural
from core.stats import FEW_UNITS, TOO_FEW

if TYPE_CHECKING:
    from analysis.collected.whatif import SimulatedRun

# Always there, so that nothing moves when the points come.
HOLLOW = " Hollow points are not exact."


def doubt(exact: bool) -> str:
    """Return the remark on a point whose simulated rounds a real run may not take; else ""."""
    return "" if exact else "not exact"


def tau_by_budget(curves: Mapping[str, Sequence[SimulatedRun]], style: Style = AUTO) -> go.Figure:
    """τ by draft budget, a line for each setting by its name."""
    lines = [
        Series(name, tuple(
            Point(run.budget, run.tau, doubt=doubt(run.exact)) for run in runs
        ), total="1 text, simulated")
        for name, runs in curves.items()
    ]  # fmt: skip
    says = (
        "Tokens per forward pass of the target over the whole text, simulated: where the curve is "
        "flat, more nodes buy nothing."
    )
    return _taus(lines, says + " The ring is this setting.", style)


def tau_over_texts(curves: Mapping[str, Frame], style: Style = AUTO) -> go.Figure:
    """The same over several texts: a table of ``many_texts.whatif_texts`` for each setting. A point
    says which text differs most."""
    count = max((int(table["texts"].max()) for table in curves.values()), default=0)
    total = f"{plural(count, 'text')}, simulated"
    lines = [
        Series(
            name,
            points(
                table.assign(words=departing(table, "tau"), doubt=table["exact"].map(doubt)),
                "budget",
                "tau",
                "",
            ),
            band=True,
            total=total,
        )
        for name, table in curves.items()
    ]
    says = f"Tokens per forward pass of the target over {plural(count, 'text')}, simulated. " + (
        "The band is the 95 % interval across texts." if count >= FEW_UNITS else TOO_FEW
    )
    return _taus(lines, says + " The ring is this setting on the text shown.", style)


def _taus(lines: Sequence[Series], says: str, style: Style) -> go.Figure:
    """With a ring that a page moves."""
    highest = Axis("τ", (1.0, _highest(lines, 1.5)))
    about = About("τ by budget", says + HOLLOW, _budgets(lines), highest)
    return style.chart(about, [*lines, Series("this setting", (), live=True)])


def speed_by_budget(
    name: str, speeds: Sequence[Point], plain: float, says: str, style: Style = AUTO
) -> go.Figure:
    """Expected tokens/s by draft budget, and those of plain decoding. ``says``: whose times."""
    lines = [
        Series(name, tuple(speeds)),
        Series("plain decoding", tuple(Point(point.x, plain) for point in speeds)),
    ]
    about = About("Expected speed by budget", says + HOLLOW, _budgets(lines), Axis("tokens/s"))
    return style.chart(about, lines)


def _budgets(lines: Sequence[Series]) -> Axis:
    """Draft budgets by their logarithm."""
    found = sorted({1, *(int(point.x) for line in lines for point in line.points)})
    return Axis("draft budget B", (found[0], found[-1]), log=True, ticks=found)


def _highest(lines: Sequence[Series], least: float) -> float:
    return max([least, *(point.high or point.y for line in lines for point in line.points)])
