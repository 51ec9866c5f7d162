"""A chart's series as Plotly's traces. Colours are names of a palette, with "@" before them."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from analysis.charts.palette import SLOTS, series_colour
from analysis.charts.parts import About, Point, Series
from analysis.numbers import estimate, short
from core.stats import FEW_SEEN

Json = dict[str, Any]

_FAINT = 0.3
_ASIDE = 0.05  # of a step of x, between two series whose intervals would hide each other
_CROWDED = 80  # points of a line that are too many to mark each
_MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "x-thin-open")
_HATCHES = ("", "/", ".", "x", "\\", "-")  # of bars
_DASHES = ("solid", "7px,3px", "2px,3px", "9px,3px,2px,3px", "4px,2px", "12px,4px")


@dataclass(frozen=True)
class Placed:
    """A series with its colour and its place beside the others. Colours are names of a palette."""

    series: Series
    slot: int
    aside: float

    @property
    def colour(self) -> str:
        paint = self.series.paint
        return f"@{paint[0]}" if paint else f"@{series_colour(self.slot)}"

    @property
    def _group(self) -> str:
        """The group of traces that the legend hides together."""
        return html.escape(self.series.name)

    def traces(self, about: About) -> Iterator[Json]:
        points = self.series.points
        if self.series.live:
            yield self._ring()
        elif self.series.kind in ("bars", "stack"):
            yield self._bars(about)
        else:
            if self.series.band:
                yield self._band()
            faint = [point.n is not None and point.n < FEW_SEEN for point in points]
            yield self._line(about, faint)
            if any(faint):
                yield self._faint(about, faint)

    def _told(self, about: About, points: Sequence[Point | None]) -> Json:
        """Return the words shown where somebody points, and the numbers for tables and files."""
        own = self.series.points
        numbers = [{k: v for k, v in vars(point).items() if v not in (None, "")} for point in own]
        hover = ["" if point is None else _hover(about, point) for point in points]
        return {"name": html.escape(self.series.name), "hovertext": hover,
                "hoverinfo": "text+name", "meta": self._meta() | {"points": numbers}}  # fmt: skip

    def _meta(self) -> Json:
        """Return the names by which the page finds a trace. None is ever drawn as markup."""
        own = self.series
        meta = {"name": own.name, "choice": own.choice, "key": own.key, "live": own.live}
        return {name: value for name, value in meta.items() if value}

    def _line(self, about: About, faint: Sequence[bool]) -> Json:
        """Whole points; a line between neighbours that are both whole."""
        points: list[Point | None] = []
        for at, (point, few) in enumerate(zip(self.series.points, faint, strict=True)):
            points += [None] if few or (at and faint[at - 1]) else []
            points += [] if few else [point]
        return self._scatter(about, points) | self._told(about, points)

    def _faint(self, about: About, faint: Sequence[bool]) -> Json:
        """Points of few observations, and the lines to and from them."""
        points = list(self.series.points)
        drawn: list[Point | None] = []
        whole: list[bool] = []
        for (one, few), (other, also) in pairwise([*zip(points, faint, strict=True), (None, True)]):
            if other is None:
                drawn += [one]
                whole += [not few]
            elif few or also:
                drawn += [one, other, None]
                whole += [not few, not also, True]
        bare = [p and (replace(p, low=None) if w else p) for p, w in zip(drawn, whole, strict=True)]
        made = self._scatter(about, bare)
        made["marker"]["size"] = [0 if w else made["marker"]["size"] for w in whole]
        told = self._told(about, [None if w else p for p, w in zip(drawn, whole, strict=True)])
        return made | told | {"opacity": _FAINT, "showlegend": False, "meta": self._meta()}

    def _scatter(self, about: About, points: Sequence[Point | None]) -> Json:
        crowded = len(points) > _CROWDED
        mode = {"line": "lines" if crowded else "lines+markers"}.get(self.series.kind, "markers")
        symbol, rim = _MARKERS[self.slot % SLOTS], 1.6 if self.slot % SLOTS == 5 else 0
        marker = {"symbol": symbol, "size": 7, "color": self.colour}
        marker["line"] = {"width": rim, "color": self.colour}
        if any(p and p.doubt for p in points):
            hollow = [bool(p and p.doubt) for p in points]
            marker["symbol"] = [symbol.removesuffix("-thin-open") if h else symbol for h in hollow]
            marker["color"] = ["@card" if each else self.colour for each in hollow]
            marker["line"]["width"] = [1.6 if each else rim for each in hollow]
        made: Json = {
            "type": "scatter", "mode": mode, "marker": marker, "legendgroup": self._group,
            "x": [p and p.x + self.aside for p in points], "y": [p and p.y for p in points],
            "line": {"color": self.colour, "dash": _DASHES[self.slot % SLOTS], "width": 2},
            "cliponaxis": False,  # a marker at the end of an axis is whole
        }  # fmt: skip
        if not self.series.band and any(p and p.low is not None for p in points):
            made["error_y"] = {
                "type": "data", "symmetric": False, "thickness": 1.2, "width": 3,
                "color": self.colour,
                "array": [_beyond(p, "high") for p in points],
                "arrayminus": [_beyond(p, "low") for p in points],
            }  # fmt: skip
        return made

    def _band(self) -> Json:
        known = [p for p in self.series.points if p.low is not None and p.high is not None]
        around = [*((p.x, p.high) for p in known), *((p.x, p.low) for p in reversed(known))]
        return {
            "type": "scatter", "mode": "lines", "fill": "toself", "fillcolor": self.colour,
            "x": [x for x, _ in around], "y": [y for _, y in around], "opacity": 0.16,
            "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False,
            "legendgroup": self._group, "meta": self._meta(),
        }  # fmt: skip

    def _bars(self, about: About) -> Json:
        points = self.series.points
        hatch = self.series.paint[1] if self.series.paint else _HATCHES[self.slot % SLOTS]
        few = [_FAINT if point.n is not None and point.n < FEW_SEEN else 1 for point in points]
        marker = {
            "color": self.colour, "opacity": few if self.series.kind == "bars" else 1,
            "line": {"color": "@card", "width": 0.8},
            "pattern": {"shape": hatch, "fillmode": "overlay", "fgcolor": "@card", "size": 8,
                        "fgopacity": 0.45, "solidity": 0.15},
        }  # fmt: skip
        made = {"type": "bar", "x": [p.x for p in points], "y": [p.y for p in points]}
        return made | {"marker": marker} | self._told(about, points)

    def _ring(self) -> Json:
        marker = {"symbol": "circle-open", "size": 13, "color": "@ink", "line": {"width": 2.2}}
        return {
            "type": "scatter", "mode": "markers", "x": [], "y": [], "marker": marker,
            "name": html.escape(self.series.name), "showlegend": False, "meta": self._meta(),
        }  # fmt: skip


def placed(shown: Sequence[Series], about: About, names: Sequence[str] = ()) -> Iterator[Placed]:
    """Slots are places in ``names``; of any other name, among the series shown together."""
    orders: dict[str, list[str]] = {}
    for each in shown:
        orders.setdefault(each.choice, []).append(each.name)
    for each in shown:
        order = orders[each.choice]
        at, many = order.index(each.name), len(order)
        step = 0.6 / many if about.x.places else _ASIDE
        beside = each.kind in ("line", "points") and not about.x.log and not each.band
        whiskers = any(point.low is not None for point in each.points)
        apart = beside and (bool(about.x.places) or (whiskers and about.x.ticks))
        aside = step * (at - (many - 1) / 2) if apart else 0.0
        yield Placed(each, names.index(each.name) if each.name in names else at, aside)


def _beyond(point: Point | None, side: Literal["low", "high"]) -> float:
    value = None if point is None else getattr(point, side)
    return 0.0 if point is None or value is None or point.low is None else abs(value - point.y)


def _hover(about: About, point: Point) -> str:
    places = about.x.places
    x = str(places[int(point.x)]) if places else short(point.x)
    told = f"{about.x.name} {x}: {estimate(point.y, point.low, point.high)}"
    few = point.n is not None and point.n < FEW_SEEN
    counted = "" if point.n is None else f"n = {point.n}{', too few to rely on' if few else ''}"
    lines = (told, point.doubt, point.words, counted)
    return "<br>".join(html.escape(each) for each in lines if each)
