"""Charts: points, axes and words in, a Plotly figure out. Never imports torch or pandas.

All statistical figures are made here, so that they look the same in the page, in reports and in
notebooks. A series has a colour and, as a second sign, its own marker and dash. Points of few
observations are faint. Intervals are inside the axes. A few lines carry their names at their ends,
more have a legend.

A name may come from a trace. Plotly reads markup in every text, so all names are escaped.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from analysis.charts.palette import PALETTES, Theme, painted
from analysis.charts.parts import About, Axis, Point, Series
from analysis.charts.traces import Json, Placed, placed
from core.stats import FEW_SEEN

_LABELLED, _LETTERS = 5, 14  # lines that carry their names, and letters of a line of a name


def chart(
    about: About, series: Sequence[Series], theme: Theme = "auto", order: Sequence[str] = ()
) -> go.Figure:
    """The figure. One without points says so. A name in ``order`` has the colour of its place
    there, whatever else is shown."""
    shown = [each for each in series if each.points or each.live]
    if not any(each.points for each in shown):
        return _nothing(about, theme)
    about = _framed(about, [point for each in shown for point in each.points])
    choices = list(dict.fromkeys(each.choice for each in shown if each.choice))
    chosen = about.chosen if about.chosen in choices else (choices or [""])[0]
    drawn = list(placed(shown, about, order))
    labels = {choice: _labels(drawn, choice) for choice in choices or [""]}
    traces = [*_guides(about), *(trace for each in drawn for trace in each.traces(about))]
    owners = [trace.get("meta", {}).get("choice", "") for trace in traces]
    for trace, owner in zip(traces, owners, strict=True):
        trace["visible"] = owner in ("", chosen)
    names = {each.series.name for each in drawn if not each.series.live}
    legend = len(names) > 1 and not any(labels.values())
    titles = {choice: _title(about, shown, choice) for choice in labels}
    layout: Json = {
        **_layout(about, legend), "annotations": labels[chosen], "title": titles[chosen]
    }  # fmt: skip
    layout["barmode"] = "stack" if any(each.kind == "stack" for each in shown) else "group"
    if any(labels.values()):
        layout["margin"]["r"] = 14 + 7 * max(_widest(each) for each in labels.values())
    if len(choices) > 1:
        shows = {c: {"annotations": labels[c], "title": titles[c]} for c in choices}
        layout["updatemenus"] = [_menu(chosen, owners, shows)]
        layout["meta"] |= {"choices": choices, "chosen": chosen}
    return go.Figure(painted({"data": traces, "layout": layout}, PALETTES[theme]))


def as_json(figure: go.Figure) -> Json:
    """The figure as plain lists and numbers."""
    return figure.to_plotly_json()


# ── the frame ────────────────────────────────────────────────────────────────────────────────────


def _framed(about: About, points: Sequence[Point]) -> About:
    """The axes with bounds that all points, whiskers and markers are inside of."""
    known = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
    levels = [guide for guide in about.guides if guide != "diagonal"]
    low, high = about.y.range or (min([0.0, *known]), max([0.01, *known, *levels]))
    room = 0.04 * (high - low)
    y = replace(about.y, range=(low - (room if low else 0.3 * room), high + room))
    if about.x.places:
        return replace(about, y=y, x=replace(about.x, range=(-0.5, len(about.x.places) - 0.5)))
    xs = [point.x for point in points]
    start, end = about.x.range or (min(xs), max(xs))
    if about.x.log:
        pad = (end / start) ** 0.04 if end > start else 2.0
        return replace(about, y=y, x=replace(about.x, range=(start / pad, end * pad)))
    pad = max(0.04 * (end - start) or 0.5, 0.2 if about.x.ticks else 0)
    return replace(about, y=y, x=replace(about.x, range=(start - pad, end + pad)))


def _title(about: About, shown: Sequence[Series], choice: str) -> Json:
    """The title, and in small type what was chosen and what the points are of. It is in files and
    notebooks; the page has a title of its own."""
    own = [each for each in shown if each.choice in ("", choice)]
    points = [point for each in own for point in each.points]
    counts = [point.n for point in points if point.n is not None]
    told = [choice, *dict.fromkeys(each.total for each in own)]
    if counts:
        told.append(f"n = {min(counts)}" + (f" to {max(counts)}" if len(set(counts)) > 1 else ""))
    told += ["95 % intervals"] * any(point.low is not None for point in points)
    told += [f"faint: n < {FEW_SEEN}"] * any(count < FEW_SEEN for count in counts)
    told += [f"hollow: {why}" for why in dict.fromkeys(point.doubt for point in points) if why]
    small = html.escape(", ".join(filter(None, told)))
    # Anchored at its middle: below one that hangs from its top Plotly leaves an empty line.
    return {
        "text": html.escape(about.title), "font": {"size": 15},
        "subtitle": {"text": small, "font": {"size": 12, "color": "@soft"}},
        "x": 0, "xref": "paper", "y": 0.96, "yref": "container", "yanchor": "middle",
        "automargin": True, "pad": {"b": 18 if small else 10},
    }  # fmt: skip


def _layout(about: About, legend: bool) -> Json:
    return {
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "@ink"},
        "template": {}, "paper_bgcolor": "@card", "plot_bgcolor": "@card",
        "margin": {"l": 10, "r": 14, "t": 12, "b": 8},
        "legend": {"orientation": "h", "y": 1.02, "x": 0, "yanchor": "bottom",
                   "traceorder": "normal", "itemwidth": 30},
        "showlegend": legend, "hovermode": "closest", "bargap": 0.25,
        "hoverlabel": {"namelength": -1, "align": "left"}, "autosize": True,
        "xaxis": _axis(about.x), "yaxis": _axis(about.y),
        "meta": {"title": about.title, "says": about.says, "x": about.x.name, "y": about.y.name,
                 "places": list(about.x.places)},
    }  # fmt: skip


def _axis(axis: Axis) -> Json:
    made: Json = {
        "title": {"text": html.escape(axis.name), "standoff": 6}, "automargin": True,
        "gridcolor": "@line", "zeroline": False, "linecolor": "@faint", "showline": True,
        "tickfont": {"color": "@soft"}, "ticks": "",
    }  # fmt: skip
    if axis.range:
        made["range"] = [math.log10(end) for end in axis.range] if axis.log else list(axis.range)
    if axis.log:
        made["type"] = "log"
    if axis.places:
        words = [html.escape(str(place)) for place in axis.places]
        return made | {"tickvals": list(range(len(words))), "ticktext": words, "showgrid": False}
    if ticks := list(axis.ticks) or _powers_of_ten(axis):
        words = [f"{tick:g}" for tick in ticks]
        made |= {"tickmode": "array", "tickvals": ticks, "ticktext": words}
    return made


def _powers_of_ten(axis: Axis) -> list[float]:
    """Those inside a logarithmic axis: every second or third where there are many, and of few also
    their doubles and halves."""
    if not axis.log or not axis.range:
        return []
    low, high = (math.log10(end) for end in axis.range)
    powers = range(math.ceil(low), math.floor(high) + 1)
    if len(powers) > 2:
        return [10.0**power for power in powers[:: -(-len(powers) // 5)]]
    near = (times * 10.0**power for power in range(math.floor(low), 1 + math.floor(high))
            for times in (1, 2, 5))  # fmt: skip
    return [tick for tick in near if axis.range[0] <= tick <= axis.range[1]]


def _guides(about: About) -> list[Json]:
    look = {"color": "@faint", "dash": "4px,4px", "width": 1.2}
    return [
        {"type": "scatter", "mode": "lines", "line": look, "hoverinfo": "skip",
         "showlegend": False, "x": xs, "y": xs if guide == "diagonal" else [guide] * len(xs)}
        for guide in about.guides
        for xs in [_along(about, guide == "diagonal")]
    ]  # fmt: skip


def _along(about: About, diagonal: bool) -> list[float]:
    """The two ends of a thin line, or places between them where it is drawn as a curve. The
    diagonal ends where it leaves the plot."""
    start, end = about.x.range or (0.0, 1.0)
    low, high = about.y.range or (0.0, 1.0)
    if diagonal:
        start, end = max(start, low), min(end, high)
    if not about.x.log or not 0 < start < end:
        return [start, end]
    bend = end / start
    return [start, *(start * bend ** (step / 48) for step in range(1, 48)), end]


def _nothing(about: About, theme: Theme) -> go.Figure:
    layout = _layout(about, False) | {"title": _title(about, (), "")}
    for axis in ("xaxis", "yaxis"):
        layout[axis]["visible"] = False
    layout["annotations"] = [{"text": "not recorded", "showarrow": False, "font": {"size": 14}}]
    return go.Figure(painted({"data": [], "layout": layout}, PALETTES[theme]))


# ── names at the ends of lines, and the list of what is shown ────────────────────────────────────


def _labels(series: Sequence[Placed], choice: str) -> list[Json]:
    """The names of a few lines at their ends, which the page moves apart by the height that it
    has; [] where a legend says them."""
    own = [each for each in series if each.series.choice in ("", choice) and not each.series.live]
    lines = [_wrapped(each.series.name) for each in own]
    fits = all(len(each) in (1, 2) and max(map(len, each)) <= _LETTERS for each in lines)
    drawn = all(each.series.kind == "line" for each in own)
    if not (1 < len(own) <= _LABELLED and fits and drawn):
        return []
    return [
        {"text": "<br>".join(map(html.escape, words)), "x": 1, "xref": "paper",
         "y": each.series.points[-1].y,
         "xanchor": "left", "align": "left", "showarrow": False, "xshift": 4,
         "font": {"color": each.colour, "size": 12}}
        for each, words in zip(own, lines, strict=True)
    ]  # fmt: skip


def _wrapped(name: str) -> list[str]:
    """A name in one line, or in two that are about as long."""
    if len(name) <= _LETTERS:
        return [name]
    longest = max(map(len, name.split()), default=0)
    widths = range(max(longest, len(name) // 2), len(name) + 1)
    return next(lines for width in widths if len(lines := textwrap.wrap(name, width)) <= 2)


def _widest(labels: Sequence[Json]) -> int:
    lines = [html.unescape(line) for each in labels for line in each["text"].split("<br>")]
    return max(map(len, lines), default=0)


def _menu(chosen: str, owners: Sequence[str], shows: Mapping[str, Json]) -> Json:
    """A list of what can be shown, each with its names and title; the page makes an ordinary list
    of it."""
    buttons = [
        {"label": html.escape(choice), "method": "update",
         "args": [{"visible": [owner in ("", choice) for owner in owners]}, layout]}
        for choice, layout in shows.items()
    ]  # fmt: skip
    return {
        "buttons": buttons, "active": list(shows).index(chosen), "x": 1, "xanchor": "right",
        "y": 1.02, "yanchor": "bottom", "font": {"color": "@ink"}, "bgcolor": "@card",
    }  # fmt: skip
