"""The catalogue of statistical figures: the page, reports and notebooks draw these. Never torch.

Each function makes a Plotly figure of one table with ``analysis.charts.chart``. ``FIGURES`` lists
those of runs, by the names that the page and reports know them by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go

from analysis.charts.chart import chart
from analysis.charts.palette import CAUSE_COLOURS, Theme
from analysis.charts.parts import About, Axis, Point, Series
from analysis.frames import COVERAGE, By, Frame
from analysis.measures import acceptance, causes, reliability
from analysis.measures.parts import CAUSES
from analysis.measures.tables import Tables
from analysis.numbers import plural
from core.rounds.causes import Cause
from core.rounds.node import known

USUAL_K, FEW_K = 8, (1, 4, 16)  # of coverage: shown first for several runs, and for one
_POWERS = (1, 2, 4, 8, 16)
_SHARE = (0.0, 1.0)

# of causes whose colours alone do not tell them apart
_HATCHES = {
    Cause.OUTRANKED: "/",
    Cause.STOPPED: "x",
    Cause.NOT_READ: "-",
    Cause.SHORT_LIST: "|",
    Cause.OUTSIDE: "\\",
    Cause.VOCABULARY: "+",
    Cause.REFUSED: "x",
    Cause.NOT_TAKEN: "x",
    Cause.UNKNOWN: ".",
    Cause.TEXT_ENDED: "/",
}


@dataclass(frozen=True)
class Style:
    """How figures are drawn.

    by     a series for every method, or for every run
    names  what methods or runs are called; their order gives each its colour, in all figures
    """

    theme: Theme = "auto"
    by: By = "method"
    names: Mapping[str, str] = field(default_factory=dict)

    def parts(self, table: Frame) -> Iterator[tuple[str, Frame]]:
        """Each method or run of a table, in its order: what it is called, and its lines."""
        by = table.columns[0]
        for name in dict.fromkeys(table[by]):
            yield self.names.get(name, str(name)), table[table[by] == name]

    def chart(self, about: About, series: Sequence[Series]) -> go.Figure:
        return chart(about, series, self.theme, tuple(self.names.values()))


AUTO, PAGE = Style(), Style("page")


# ── by depth ─────────────────────────────────────────────────────────────────────────────────────


def tvd_by_depth(
    per_depth: Frame, style: Style = AUTO, *, says: str = "", band: bool = False
) -> go.Figure:
    """TVD by depth with its 95 % intervals; a ring is for the round that a page shows."""
    says = says or (
        "How far the drafter's q is from the target's p, ½ Σ |q − p|: 0 is the same distribution, "
        "1 has nothing in common. Mean ± 1.96 standard errors."
    )
    counted = "probed" if "probed" in per_depth else "observed"
    lines = [
        Series(name, points(part, "depth", "tvd", "tvd", counted), band=band)
        for name, part in style.parts(per_depth)
    ]
    about = About("TVD by depth", says, _depths(per_depth), Axis("TVD", _SHARE))
    return style.chart(about, [*lines, Series("this round", (), live=True)])


def acceptance_by_depth(per_depth: Frame, style: Style = AUTO) -> go.Figure:
    """Conditional acceptance by depth with Wilson's 95 % intervals; of one method also how often
    its best token was right, and how many rounds came so far."""
    parts = list(style.parts(per_depth))
    lines = [
        Series(name, points(part, "depth", "acceptance", "acceptance", "observed"))
        for name, part in parts
    ]
    says = (
        "How often the target's token was drafted, given that everything before it was accepted. "
        "Wilson's 95 % interval."
    )
    if len(parts) == 1:
        part = parts[0][1]
        best = points(part, "depth", "top1", "top1", "observed")
        whole = points(part, "depth", "marginal", "marginal", "rounds")
        lines = [
            Series("given its parent", lines[0].points),
            Series("best token right", best),
            Series("from the root on", whole),
        ]
        first = "how often the drafter's best token was right, and " if best else ""
        says += f" Also {first}the share of rounds accepted from the root on."
    about = About("Acceptance by depth", says, _depths(per_depth), Axis("accepted", _SHARE))
    return style.chart(about, lines)


def coverage_by_depth(per_depth: Frame, style: Style = AUTO, says: str = "") -> go.Figure:
    """Top-K coverage by depth: of one method a few K at once, of several a list of K."""
    parts = list(style.parts(per_depth))
    counted = "probed" if "probed" in per_depth else "observed"

    def line(name: str, part: Frame, k: int, choice: str = "") -> Series:
        of = points(part, "depth", COVERAGE[k - 1], n=counted)
        return Series(name, of, choice=choice)

    if len(parts) == 1:
        lines = [line(f"K = {k}", parts[0][1], k) for k in FEW_K]
    else:
        lines = [line(name, part, k, f"K = {k}") for k in _POWERS for name, part in parts]
    says = says or (
        "How much of the target's p the drafter's K best tokens hold: at temperature 1, how often "
        "its token is among them. Means over observed positions, fewer at every depth."
    )
    about = About(
        "Top-K coverage by depth", says, _depths(per_depth), Axis("coverage", _SHARE),
        chosen=f"K = {USUAL_K}",
    )  # fmt: skip
    return style.chart(about, lines)


def coverage_by_width(per_depth: Frame, style: Style = AUTO) -> go.Figure:
    """Top-K coverage by K: of one method its first depths, of several a list of depths."""
    parts = list(style.parts(per_depth))
    depths = sorted({int(depth) for depth in per_depth["depth"]})

    def line(name: str, part: Frame, depth: int, choice: str = "") -> Series:
        rows = part[part["depth"] == depth].to_dict("records")
        of = (
            Point(k, row[column], n=int(row["probed"]))
            for row in rows
            for k, column in enumerate(COVERAGE, 1)
            if known(row[column]) is not None
        )
        return Series(name, tuple(of), choice=choice)

    if len(parts) == 1:
        lines = [line(f"depth {depth}", parts[0][1], depth) for depth in depths[:4]]
    else:
        lines = [line(name, part, d, f"depth {d}") for d in depths for name, part in parts]
    about = About(
        "Top-K coverage by K",
        "What one more candidate at a depth is worth: where the curve is flat, a wider tree buys "
        "little.",
        Axis("K", (1, _POWERS[-1]), log=True, ticks=_POWERS), Axis("coverage", _SHARE),
    )  # fmt: skip
    return style.chart(about, lines)


def _depths(table: Frame) -> Axis:
    deepest = int(max([2, *table["depth"]])) if len(table) else 2
    return Axis("depth", (1, deepest), ticks=range(1, deepest + 1))


# ── by round ─────────────────────────────────────────────────────────────────────────────────────


def lengths(acceptance_histogram: Frame, style: Style = AUTO) -> go.Figure:
    """Histogram of tokens per round (accepted + 1), from ``acceptance.acceptance_histogram``."""
    return _lengths({
        name: dict(zip(part["length"], part["rounds"], strict=True))
        for name, part in style.parts(acceptance_histogram)
    }, style)  # fmt: skip


def lengths_of(name: str, run: Sequence[int], style: Style = AUTO) -> go.Figure:
    """The same of one run's acceptance lengths (accepted + 1, round by round)."""
    return _lengths({name: Counter(run)}, style)


def _lengths(counts: Mapping[str, Mapping[int, int]], style: Style) -> go.Figure:
    """Rounds by length, of each method or run."""
    longest = max([2, *(int(length) for own in counts.values() for length in own)])
    bars = [
        Series(name, tuple(
            Point(int(length) - 1, float(rounds / total), words=plural(int(rounds), "round"))
            for length, rounds in sorted(own.items())
        ), "bars", total=plural(total, "round"))
        for name, own in counts.items()
        for total in [sum(own.values())]
    ]  # fmt: skip
    about = About(
        "Acceptance lengths",
        "How many tokens a round was good for: accepted nodes + 1. Their mean is τ.",
        Axis("accepted + 1", places=range(1, longest + 1)), Axis("share of rounds"),
    )  # fmt: skip
    return style.chart(about, bars)


def expected_against_accepted(surrogate_curve: Frame, style: Style = AUTO) -> go.Figure:
    """Mean accepted nodes against Σq, what q expected; the diagonal is a calibrated drafter."""
    lines = [
        Series(name, points(part, "expected", "accepted", "", "rounds"))
        for name, part in style.parts(surrogate_curve)
    ]
    end = max([1.0, *(point.x for line in lines for point in line.points)])
    about = About(
        "Σq against accepted nodes",
        "Rounds by the sum of their nodes' path probabilities, which best-first building "
        "maximises, against what was accepted. Bins of equal mass; dashed, where both are the "
        "same.",
        Axis("Σ q", (0.0, end)), Axis("accepted nodes"), ("diagonal",),
    )  # fmt: skip
    return style.chart(about, lines)


# ── by probability ───────────────────────────────────────────────────────────────────────────────


def reliability_of_paths(curve: Frame, style: Style = AUTO) -> go.Figure:
    """Accepted share against the path probability, which goes by its logarithm."""
    return _reliability(curve, style, log=True, title="Reliability of path probability", says=(
        "Nodes by the product of q along their path, against the share that was accepted: below "
        "the dashed curve, where both are the same, the drafter promises too much. Bins of equal "
        "mass, Wilson's interval."
    ))  # fmt: skip


def reliability_of_steps(curve: Frame, style: Style = AUTO) -> go.Figure:
    """Accepted share against q of the nodes whose parent was accepted."""
    return _reliability(curve, style, log=False, title="Reliability of q, parent accepted", says=(
        "Nodes whose parent was accepted, by their own q, against the share that was accepted: on "
        "the dashed line q means what it says."
    ))  # fmt: skip


def _reliability(curve: Frame, style: Style, *, log: bool, title: str, says: str) -> go.Figure:
    lines = [
        Series(name, points(part, "mean_q", "share", "share", "nodes"))
        for name, part in (style.parts(curve) if len(curve) else ())
    ]
    every = [point for line in lines for point in line.points if point.x > 0 or not log]
    lines = [
        Series(each.name, tuple(p for p in each.points if p.x > 0 or not log)) for each in lines
    ]
    highest = max([0.1, *(max(p.x, p.high or p.y) for p in every)])
    least = min([highest / 10, *(p.x for p in every)]) if log else 0.0
    x = Axis("path probability" if log else "q", (least, highest), log=log)
    about = About(title, says, x, Axis("accepted", (0.0, highest)), ("diagonal",))
    return style.chart(about, lines)


# ── by draft size ────────────────────────────────────────────────────────────────────────────────


def worth_by_size(advice: Frame, sizes: str, style: Style = AUTO) -> go.Figure:
    """Speed against plain decoding by draft size, a line for each batch and a list of contexts; of
    the table ``experiments.advise.advise``. ``sizes``: what a size is."""
    lines = []
    contexts = advice["context"].unique()
    for (context, batch), part in advice.groupby(["context", "batch"], dropna=False):
        estimated = "a step between measured ones"
        doubts = part["doubt"].where(part["measured"], estimated)
        n = None if part["rounds"].isna().any() else "rounds"
        own = points(part.assign(doubt=doubts), "size", "ratio", "ratio", n)
        choice = f"context {context:g}" if len(contexts) > 1 else ""
        lines.append(Series(f"batch {batch}", own, band=True, choice=choice))
    found = sorted({1, *map(int, advice["size"])})
    about = About(
        "Speed by draft size and batch",
        "Expected tokens per second against plain decoding at the same batch, which is the dashed "
        "line; bands are 95 % intervals of the rounds. Hollow points are estimates.",
        Axis(sizes, (found[0], max(2, found[-1])), ticks=found if len(found) <= 16 else ()),
        Axis("× plain decoding"), (1.0,),
    )  # fmt: skip
    return style.chart(about, lines)


# ── causes ───────────────────────────────────────────────────────────────────────────────────────


def node_causes(shares: Frame, style: Style = AUTO) -> go.Figure:
    """The causes for which drafted nodes ended, as shares at each depth."""
    return _stacked(shares, style, "What became of drafted nodes", (
        "All nodes by their depth; unreached ones are unobserved, never counted as rejected. Of a "
        "rejected node the reason says why the wanted token was not there."
    ), Axis("depth"), "node")  # fmt: skip


def walk_ends(shares: Frame, style: Style = AUTO) -> go.Figure:
    """Why the walks ended, by depth or by sort of token."""
    if shares.columns[1] == "depth":
        says = "One cause a round, by the depth where its walk stopped."
        axes = Axis("depth"), "round"
        return _stacked(shares, style, "Why the walk ended", says, *axes)
    says = "The same causes, by the sort of the token that the target wanted."
    axes = Axis("token"), "round"
    return _stacked(shares, style, "Why the walk ended, by sort of token", says, *axes)


def _stacked(shares: Frame, style: Style, title: str, says: str, x: Axis, noun: str) -> go.Figure:
    """Shares of the causes, stacked; of several methods a list. ``noun``: what is shared out."""
    over, several = shares.columns[1], shares.iloc[:, 0].nunique() > 1
    places = shares[over].drop_duplicates().astype(int if over == "depth" else str).tolist()
    places = sorted(places) if over == "depth" else places
    parts = [
        Series(
            cause.node if title.startswith("What") else cause.short,
            tuple(
                Point(
                    places.index(row[over]), row["share"],
                    words=f"{row['count']} of {row['total']}",
                )
                for row in part[part["cause"] == cause].to_dict("records")
            ),
            "stack", paint=(CAUSE_COLOURS[cause], _HATCHES.get(cause, "")),
            choice=name if several else "", key=cause.value, total=plural(total, noun),
        )
        for name, part in style.parts(shares)
        for total in [int(part.drop_duplicates(over)["total"].sum())]
        for cause in map(Cause, CAUSES)
    ]  # fmt: skip
    about = About(title, says, Axis(x.name, places=places), Axis(f"share of {noun}s", _SHARE))
    return style.chart(about, parts)


# ── of runs ──────────────────────────────────────────────────────────────────────────────────────

Draw = Callable[[Tables, Style], go.Figure]
DEEPEST = 256  # depths on view: no drafter comes near, but a file may hold a chain of any length


def shown_depths(tables: Tables, by: By = "method") -> Frame:
    """``acceptance.per_depth`` as far down as anybody looks at it."""
    table: Frame = acceptance.per_depth(tables, by=by)
    return table[table["depth"] <= DEEPEST]


def _of_depths(draw: Callable[[Frame, Style], go.Figure]) -> Draw:
    return lambda tables, style: draw(shown_depths(tables, style.by), style)


FIGURES: Mapping[str, Draw] = {
    "lengths": lambda t, s: lengths(acceptance.acceptance_histogram(t, by=s.by), s),
    "acceptance-by-depth": _of_depths(acceptance_by_depth),
    "coverage-by-width": _of_depths(coverage_by_width),
    "coverage-by-depth": _of_depths(coverage_by_depth),
    "tvd-by-depth": _of_depths(tvd_by_depth),
    "reliability-path": lambda t, s: reliability_of_paths(
        reliability.reliability(t, "path", by=s.by), s
    ),
    "reliability-step": lambda t, s: reliability_of_steps(
        reliability.reliability(t, "step", by=s.by), s
    ),
    "expected-accepted": lambda t, s: expected_against_accepted(
        reliability.surrogate_curve(t, by=s.by), s
    ),
    "stops-by-depth": lambda t, s: walk_ends(causes.cause_shares(t, "stops", by=s.by), s),
    "causes-by-depth": lambda t, s: node_causes(causes.cause_shares(t, "nodes", by=s.by), s),
    "stops-by-token": lambda t, s: walk_ends(
        causes.cause_shares(t, "stops", "token_class", by=s.by), s
    ),
}


# ── points of tables ─────────────────────────────────────────────────────────────────────────────


def points(
    table: Frame, x: str, y: str, stem: str | None = None, n: str | None = None
) -> tuple[Point, ...]:
    """The known values of a column, with the interval in ``stem``_low and ``stem``_high ("low" and
    "high" for an empty stem) and the number of observations in ``n``; what a point says is in the
    columns "words" and "doubt", if they are there."""
    low, high = ((f"{stem}_low", f"{stem}_high") if stem else ("low", "high"))  # fmt: skip
    rows = [row for row in table.to_dict("records") if known(row[y]) is not None]
    return tuple(
        Point(
            float(row[x]), float(row[y]),
            None if stem is None else known(row[low]), None if stem is None else known(row[high]),
            None if n is None else int(row[n]), str(row.get("words", "")),
            str(row.get("doubt", "")),
        )
        for row in rows
    )  # fmt: skip
