"""Figures of the tables, for reports and the studio. Never imports torch.

Each function makes a plotly figure of one table. A method has one colour (``analysis.palette``)
and, as a second sign, its own marker and dash; causes of death have a hatch. Names come from traces
and are escaped: plotly would read markup in them.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from analysis import acceptance, causes, reliability
from analysis.frames import Frame
from analysis.palette import SERIES
from analysis.tables import FATES, Tables
from core.rounds.round import (
    ACCEPTED,
    BEYOND,
    NO_DRAFT,
    OUTRANKED,
    OUTSIDE,
    PRUNED,
    REFUSED,
    UNREACHED,
)

Theme = Literal["auto", "light", "dark"]

_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_FATES = {
    ACCEPTED: ("#009E73", ""),
    OUTRANKED: ("#E69F00", "/"),
    PRUNED: ("#0072B2", "x"),
    OUTSIDE: ("#D55E00", "\\"),
    BEYOND: ("#CC79A7", "-"),
    NO_DRAFT: ("#56B4E9", "|"),
    REFUSED: ("#7a5195", "+"),
    UNREACHED: ("#9a9a9a", "."),
}


@dataclass(frozen=True)
class _Ink:
    """What lines and words are drawn with. ``paper`` may be see-through."""

    words: str
    grid: str
    paper: str


_INKS: Mapping[str, _Ink] = {
    # a grey that can be read on white and on black alike (4.5 : 1)
    "auto": _Ink("#767676", "rgba(128,128,128,0.25)", "rgba(0,0,0,0)"),
    "light": _Ink("#1f2328", "#e3e6ea", "#ffffff"),
    "dark": _Ink("#e6e6e6", "#3a3f47", "#14171c"),
}


# ── the figures ──────────────────────────────────────────────────────────────────────────────────


def tvd_by_depth(per_depth: Frame, theme: Theme = "auto") -> go.Figure:
    """TVD against depth with its 95 % intervals."""
    return _by_depth(per_depth, "tvd", "TVD, ½ Σ|q − p|", "TVD by depth", theme)


def acceptance_by_depth(per_depth: Frame, theme: Theme = "auto") -> go.Figure:
    """Conditional acceptance against depth with Wilson's 95 % intervals."""
    title = "Acceptance by depth, of observed"
    return _by_depth(per_depth, "acceptance", "accepted ÷ observed", title, theme)


def coverage_by_depth(
    per_depth: Frame, theme: Theme = "auto", k: Sequence[int] = (1, 4, 16)
) -> go.Figure:
    """Top-K coverage against depth: a line per method and K, the marker's size shows K."""
    figure = _figure("Top-K coverage by depth", theme)
    for look, name, part in _series(per_depth):
        for size, best in enumerate(k):
            column = f"coverage_{best}"
            known = part[part[column].notna()]
            if len(known):
                marker = {"symbol": look.marker, "size": 5 + 3 * size}
                figure.add_scatter(
                    x=known["depth"], y=known[column], mode="lines+markers", marker=marker,
                    name=f"{name}, K = {best}", line=look.line,
                    hovertemplate="depth %{x}: %{y:.3f}",
                )  # fmt: skip
    return _framed(figure, "depth", "coverage C_K", share=True)


def lengths(acceptance_histogram: Frame, theme: Theme = "auto") -> go.Figure:
    """Histogram of tokens per round (accepted + 1)."""
    figure = _figure("How long the accepted paths were", theme)
    for look, name, part in _series(acceptance_histogram):
        figure.add_bar(
            x=part["length"], y=part["share"], name=name, customdata=part["rounds"],
            marker={"color": look.colour, "pattern": _hatched(look.hatch)},
            hovertemplate="%{x} tokens: %{y:.1%} (%{customdata} rounds)",
        )  # fmt: skip
    figure.update_layout(barmode="group")
    return _framed(figure, "tokens per round, accepted + 1", "share of rounds")


def reliability_curve(curve: Frame, theme: Theme = "auto") -> go.Figure:
    """Accepted share against the mean probability, with Wilson's 95 % intervals."""
    event = "".join(curve["event"].head(1))
    titles = {"path": "Reliability of path probabilities", "step": "Reliability of q at each step"}
    figure = _figure(titles.get(event, "Reliability"), theme)
    end = 1.05 * max([0.0, *curve["mean_q"], *curve["share"]])
    _diagonal(figure, end)
    for look, name, part in _series(curve):
        figure.add_scatter(
            x=part["mean_q"], y=part["share"], name=name, mode="lines+markers", line=look.line,
            marker={"symbol": look.marker, "size": 8}, error_y=_bars(part, "share"),
            customdata=part["nodes"],
            hovertemplate="q %{x:.3f}: %{y:.3f} accepted (%{customdata} nodes)",
        )  # fmt: skip
    figure = _framed(figure, "mean probability in the bin", "share accepted")
    figure.update_yaxes(range=[-0.01 * end, end])
    return figure


def cause_bars(causes: Frame, theme: Theme = "auto", observed: bool = True) -> go.Figure:
    """Shares of the causes, stacked, by depth or sort of token; a group of bars per method.

    ``observed`` leaves out the unreached nodes, whose outcome is not known.
    """
    ends = not {ACCEPTED, OUTRANKED}.intersection(causes["cause"])
    nodes = "What became of observed nodes" if observed else "What became of drafted nodes"
    figure = _figure("Why the walks ended" if ends else nodes, theme)
    by, over = causes.columns[0], causes.columns[1]
    several, column = causes[by].nunique() > 1, "observed_share" if observed else "share"
    for cause in FATES:
        part = causes[(causes["cause"] == cause) & causes[column].notna()]
        if len(part):
            colour, hatch = _FATES[cause]
            names = [[_name(v) for v in part[by]], part[over].astype(str).tolist()]
            figure.add_bar(
                x=names if several else names[1], y=part[column], name=cause,
                marker={"color": colour, "pattern": _hatched(hatch)},
                customdata=part[["count", "total"]],
                hovertemplate="%{y:.1%} (%{customdata[0]} of %{customdata[1]})",
            )  # fmt: skip
    if several:
        figure.update_xaxes(type="multicategory")
    else:
        places = list(dict.fromkeys(causes.sort_values(over)[over].astype(str)))
        figure.update_xaxes(type="category", categoryarray=places)
    figure.update_layout(barmode="stack", legend_traceorder="normal")
    return _framed(figure, "depth" if over == "depth" else "sort of token", "share", share=True)


def _hatched(shape: str) -> dict[str, Any]:
    """A hatch drawn over the bar's colour."""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "rgba(0,0,0,0.45)", "size": 7}


def expected_against_accepted(surrogate_curve: Frame, theme: Theme = "auto") -> go.Figure:
    """Mean accepted nodes against Σq, what q expected; the diagonal is a calibrated drafter."""
    figure = _figure("Σq against what was accepted", theme)
    known = surrogate_curve["expected"].tolist() + surrogate_curve["accepted"].tolist()
    _diagonal(figure, max([1.0, *known]))
    for look, name, part in _series(surrogate_curve):
        figure.add_scatter(
            x=part["expected"], y=part["accepted"], name=name, mode="lines+markers",
            line=look.line, marker={"symbol": look.marker, "size": 8}, customdata=part["rounds"],
            error_y=_bars(part.rename(columns={"low": "accepted_low", "high": "accepted_high"}),
                          "accepted"),
            hovertemplate="Σq %{x:.2f}: %{y:.2f} accepted (%{customdata} rounds)",
        )  # fmt: skip
    return _framed(figure, "Σq over the round's nodes", "accepted nodes")


FIGURES: Mapping[str, Callable[[Tables, Theme], go.Figure]] = {
    "acceptance-by-depth": lambda t, theme: acceptance_by_depth(acceptance.per_depth(t), theme),
    "tvd-by-depth": lambda t, theme: tvd_by_depth(acceptance.per_depth(t), theme),
    "coverage-by-depth": lambda t, theme: coverage_by_depth(acceptance.per_depth(t), theme),
    "lengths": lambda t, theme: lengths(acceptance.acceptance_histogram(t), theme),
    "causes-by-depth": lambda t, theme: cause_bars(causes.cause_shares(t), theme),
    "stops-by-token": lambda t, theme: cause_bars(
        causes.cause_shares(t, "stops", "token_class"), theme
    ),
    "reliability-path": lambda t, theme: reliability_curve(reliability.reliability(t), theme),
    "reliability-step": lambda t, theme: reliability_curve(
        reliability.reliability(t, "step"), theme
    ),
    "expected-accepted": lambda t, theme: expected_against_accepted(
        reliability.surrogate_curve(t), theme
    ),
}


# ── what they share ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Look:
    """One method's signs."""

    colour: str
    marker: str
    dash: str
    hatch: str

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "dash": self.dash, "width": 2}


def _series(table: Frame) -> Iterator[tuple[_Look, str, Frame]]:
    """Look, escaped name and lines of each method (or run), in the table's order."""
    by = table.columns[0]
    for n, name in enumerate(dict.fromkeys(table[by])):
        hatches = ("", "/", "x", "\\", "-", "|")
        look = _Look(
            *(signs[n % len(signs)] for signs in (SERIES["auto"], _MARKERS, _DASHES, hatches))
        )
        yield look, _name(name), table[table[by] == name]


def _name(value: object) -> str:
    return html.escape(str(value))


def _by_depth(per_depth: Frame, column: str, axis: str, title: str, theme: Theme) -> go.Figure:
    figure = _figure(title, theme)
    series = list(_series(per_depth))
    for n, (look, name, part) in enumerate(series):
        known = part[part[column].notna()]
        aside = 0.05 * (n - (len(series) - 1) / 2)  # so that no interval hides another
        if len(known):
            figure.add_scatter(
                x=known["depth"] + aside, y=known[column], name=name, mode="lines+markers",
                line=look.line, marker={"symbol": look.marker, "size": 8},
                error_y=_bars(known, column), customdata=known[["depth", "observed"]],
                hovertemplate="depth %{customdata[0]}: %{y:.3f} (%{customdata[1]} observed)",
            )  # fmt: skip
    return _framed(figure, "depth", axis, share=True)


def _bars(part: Frame, column: str) -> dict[str, Any]:
    """Error bars from the columns ``…_low`` and ``…_high``."""
    return {
        "type": "data", "symmetric": False, "thickness": 1, "width": 3,
        "array": (part[f"{column}_high"] - part[column]).fillna(0),
        "arrayminus": (part[column] - part[f"{column}_low"]).fillna(0),
    }  # fmt: skip


def _diagonal(figure: go.Figure, end: float) -> None:
    line = {"color": "#808080", "dash": "dot", "width": 1}
    figure.add_scatter(
        x=[0, end], y=[0, end], mode="lines", line=line, name="calibrated", hoverinfo="skip"
    )


def _figure(title: str, theme: Theme) -> go.Figure:
    figure = go.Figure(layout={
        "title": {"text": title, "font": {"size": 15}, "x": 0, "xref": "paper", "y": 0.99,
                  "yref": "container", "yanchor": "top", "automargin": True, "pad": {"b": 6}},
        "font": {"family": "system-ui, sans-serif", "size": 13}, "template": "none",
        "margin": {"l": 60, "r": 16, "t": 64, "b": 48},
        "legend": {"orientation": "h", "y": 1.0, "x": 0, "yanchor": "bottom"},
        "showlegend": True, "hovermode": "closest", "autosize": True,
    })  # fmt: skip
    figure.update_layout(colours(theme))
    return figure


def colours(theme: Theme) -> dict[str, str]:
    """A theme's colours in the form that ``update_layout`` and Plotly.relayout take."""
    ink = _INKS[theme]
    lines = {f"{a}axis_{n}color": ink.grid for a in "xy" for n in ("grid", "zeroline", "line")}
    return {
        "font_color": ink.words, "paper_bgcolor": ink.paper, "plot_bgcolor": ink.paper, **lines
    }  # fmt: skip


def _framed(figure: go.Figure, x: str, y: str, share: bool = False) -> go.Figure:
    """Axis titles; a figure without data says so."""
    figure.update_xaxes(title={"text": x}, automargin=True)
    figure.update_yaxes(title={"text": y}, rangemode="tozero", automargin=True)
    drawn: tuple[Any, ...] = figure.data  # pyright: ignore[reportAssignmentType]
    if share:
        figure.update_yaxes(range=[0, 1.02])
    if x == "depth":
        figure.update_xaxes(dtick=1)
    if not any(trace.name != "calibrated" for trace in drawn):
        figure.data = ()
        figure.update_layout(showlegend=False)
        figure.update_xaxes(visible=False)
        figure.update_yaxes(visible=False)
        figure.add_annotation(text="nothing to show", showarrow=False, font={"size": 14})
    return figure
