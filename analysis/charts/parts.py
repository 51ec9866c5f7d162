"""The parts of a chart's description: axes, points, series. Plain data, no library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["line", "points", "bars", "stack"]


@dataclass(frozen=True)
class Axis:
    """One axis.

    name    what it measures
    range   its bounds; None: all points with their intervals
    log     whether it goes by its logarithm
    ticks   where numbers stand; (): where Plotly puts them
    places  words for the places 0, 1, … of an axis that has no numbers
    """

    name: str
    range: tuple[float, float] | None = None
    log: bool = False
    ticks: Sequence[float] = ()
    places: Sequence[str | int] = ()


@dataclass(frozen=True)
class Point:
    """A value with its interval, of ``n`` observations; ``words`` say more about it. ``doubt``: why
    it may not be right, in words; such a point is hollow."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    words: str = ""
    doubt: str = ""


@dataclass(frozen=True)
class Series:
    """Points with one name.

    kind    a line with markers, markers only, bars side by side, or bars that are stacked
    paint   a colour and a hatch of its own, in place of those of its place among the series
    band    intervals as a band, not as whiskers
    choice  with which entry of the figure's list it is shown; "": always
    live    a ring that the page moves; it has no points of its own
    key     what the page asks about when a part is pressed
    total   what its shares are of, in words, such as "31 rounds"
    """

    name: str
    points: Sequence[Point]
    kind: Kind = "line"
    paint: tuple[str, str] | None = None
    band: bool = False
    choice: str = ""
    live: bool = False
    key: str = ""
    total: str = ""


@dataclass(frozen=True)
class About:
    """A figure's title, its meaning in a sentence, its axes and thin lines for the eye.

    guides  "diagonal", where y is x, or a y
    chosen  the entry of the list that is shown first, where series have a ``choice``
    """

    title: str
    says: str
    x: Axis
    y: Axis
    guides: Sequence[Literal["diagonal"] | float] = ()
    chosen: str = ""
