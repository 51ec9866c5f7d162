"""Chapter 11: what the methods reach with the drafters that ship, as measured by four commands.

``assets/measured`` holds what they wrote (of the first and the last only the columns read here); made
anew it is shown anew:

    python -m app grid table --prompts FILE --out FOLDER --budget … --time-every 0    (its table.json as tau-….json)
    python -m app calibrate --out FOLDER      (its curves.csv)
    python -m app bench … --json > assets/measured/bench.json
    python -m app denoise --prompts FILE --table --real 0 --json > assets/measured/spiffy.json
"""  # noqa: E501 (commands are not broken)

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.charts.chart import as_json, chart
from analysis.charts.parts import About, Axis, Point, Series
from analysis.collected.many_texts import HELD_OUT, MARGINAL
from analysis.numbers import number
from app.learn.figures import NAMES
from app.learn.material import Material
from app.learn.words import ChapterStep, Json, chapter, scene
from core import ASSETS
from core.errors import UserError

FOLDER = ASSETS / "measured"
SOURCES = {"gsm8k": "math", "humaneval": "code", "mt_bench": "chat"}
TREES = ("ddtree", "treeflash", "dart")
ORDER = tuple(NAMES[m] for m in (*TREES, "dflash"))  # their colours, from figure to figure
SERIES = {"dflash": "DFlash's q", "treeflash": "TreeFlash's q′", "dart": "DART's q",
          MARGINAL: "the marginal", HELD_OUT: "the marginal, held out"}  # fmt: skip
DRAFTERS = tuple(SERIES.get(m, m) for m in (*TREES, "dflash", MARGINAL, HELD_OUT))  # same colours
NO_METHOD = ("ink", "soft")  # colours of series that are no method's
PACES = {"k1": "one token a step", "k2": "two tokens a step", "t0.9": "all with p ≥ 0.9"}
K = 8  # of the coverage shown


@dataclass(frozen=True)
class Rate:
    """τ of a method at a budget on some texts, with its 95 % interval."""

    method: str
    budget: int
    plain: bool  # DART without its n-grams
    temperature: float
    source: str
    tau: float
    low: float
    high: float
    lengths: tuple[int, ...]  # rounds by accepted + 1, from 1 on

    @staticmethod
    def of(row: Json) -> Rate:
        return Rate(
            row["method"], row["budget"], row["options"].get("ngram_weight") == 0,
            row["temperature"], row["source"], row["tau"], row["low"], row["high"],
            tuple(row["lengths"]),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class CourseMeasurements:
    """The measurements that the course shows: all files of the folder."""

    folder: Path = FOLDER

    @cached_property
    def rates(self) -> tuple[Rate, ...]:
        files = sorted(self.folder.glob("tau-*.json"))
        return tuple(Rate.of(row) for file in files for row in self._json(file.name)["rows"])

    @cached_property
    def curves(self) -> list[dict[str, str]]:
        try:
            with (self.folder / "curves.csv").open(encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))
        except OSError as error:
            raise UserError(f"{self.folder}: curves.csv cannot be read: {error}") from None

    @cached_property
    def table(self) -> Any:
        return self._json("table.json")

    def row(self, method: str, budget: int = 64) -> Json:
        """A method's row of the one table, greedy and over all its prompts. Raises UserError when
        it was not measured."""
        wanted = (method, budget, 0, "all")
        for row in self.table["rows"]:
            if (row["method"], row["budget"], row["temperature"], row["source"]) == wanted:
                return row
        raise UserError(f"{self.folder}: table.json holds no τ of {method} at B = {budget}")

    @cached_property
    def bench(self) -> Any:
        return self._json("bench.json")

    @cached_property
    def spiffy(self) -> Any:
        return self._json("spiffy.json")

    def _json(self, name: str) -> Any:
        try:
            return json.loads((self.folder / name).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{self.folder}: {name} cannot be read: {error}") from None

    def some(
        self, method: str, *, temperature: float = 0, source: str = "all", plain: bool = False
    ) -> list[Rate]:
        """A method's rates by budget."""
        found = [
            r for r in self.rates
            if (r.method, r.temperature, r.source, r.plain) == (method, temperature, source, plain)
        ]  # fmt: skip
        return sorted(found, key=lambda r: r.budget)

    def at(self, method: str, budget: int = 64, **which: Any) -> Rate:
        """The one rate at a budget. Raises UserError when it was not measured."""
        for rate in self.some(method, **which):
            if rate.budget == budget:
                return rate
        raise UserError(
            f"{self.folder} holds no τ of {method} at B = {budget} {which or ''}".rstrip()
        )


def measured(material: Material) -> Json:
    found = CourseMeasurements()
    made = (_budgets, _sources, _samplings, _lengths, _distances, _coverages, _speeds, _calls)
    return chapter("11-measured", [make(found) for make in made], "speeds")


# ── steps ────────────────────────────────────────────────────────────────────────────────────────


def _budgets(found: CourseMeasurements) -> ChapterStep:
    chain = found.at("dflash")
    lines = [_line(NAMES[m], found.some(m)) for m in TREES]
    bare = _line("DART, no n-grams", found.some("dart", plain=True))
    budgets = sorted({p.x for line in (*lines, bare) for p in line.points})
    few, *_, many = found.some("ddtree")
    dot = Series("DFlash, chain of 7", [_point(7, chain)], "points")
    ends = (min(7, budgets[0]), budgets[-1])
    about = About(
        "τ by draft budget",
        "Tokens per pass of the target, greedy; bands are 95 % bootstrap intervals over prompts.",
        Axis("draft budget B", ends, log=True, ticks=budgets), _tau([*lines, bare, dot]),
    )  # fmt: skip
    tree, nodes = found.at("ddtree"), many.budget / few.budget
    return _shown(
        "budgets", about, [*lines, dot, bare], chain=chain.tau, tree=tree.tau, budget=tree.budget,
        few=few.budget, many=many.budget, first=few.tau, last=many.tau, nodes=nodes,
        tokens=many.tau / few.tau, ends=_ends([*lines, bare]),
    )  # fmt: skip


def _sources(found: CourseMeasurements) -> ChapterStep:
    each = [_points(NAMES[m], [found.at(m, source=s) for s in SOURCES]) for m in TREES]
    names = list(SOURCES.values())
    math, chat = (found.at("treeflash", source=s).tau for s in ("gsm8k", "mt_bench"))
    says = "40 prompts of each, greedy."
    about = About("τ by source, B = 64", says, Axis("prompts", places=names), Axis("τ"))
    return _shown("sources", about, each, math=math, chat=chat, each=_words(each, names))


def _samplings(found: CourseMeasurements) -> ChapterStep:
    shown = ("dflash", *TREES)
    each = [
        replace(
            _points(name, [found.at(m, temperature=t) for m in shown]), paint=(NO_METHOD[t], "")
        )
        for name, t in (("greedy", 0), ("temperature 1", 1))
    ]
    names = [NAMES[m] for m in shown]
    cold, hot = (found.at("ddtree", temperature=t).tau for t in (0, 1))
    methods = Axis("method, trees with B = 64", places=names)
    says = "120 prompts, the same for both."
    about = About("Greedy and sampled", says, methods, Axis("τ"))
    return _shown("samplings", about, each, cold=cold, hot=hot, each=_words(each, names))


def _lengths(found: CourseMeasurements) -> ChapterStep:
    bars = []
    for method in ("dflash", "ddtree", "treeflash"):
        lengths = found.at(method).lengths
        points = [Point(n, count / sum(lengths)) for n, count in enumerate(lengths)]
        bars.append(Series(NAMES[method], points, "bars"))
    chain, ddtree, treeflash = (bar.points[0].y for bar in bars)
    places = range(1, 1 + max(len(bar.points) for bar in bars))
    about = About(
        "Acceptance lengths", "Greedy, B = 64.", Axis("accepted + 1", places=places),
        Axis("share of rounds"),
    )  # fmt: skip
    shares = {"chain": chain, "ddtree": ddtree, "treeflash": treeflash}
    return _shown("lengths", about, bars, ORDER, **shares)


def _distances(found: CourseMeasurements) -> ChapterStep:
    lines = _by_depth(found, "tvd", "tvd_low", "tvd_high")
    anchors = max(int(row["observed"]) for row in found.curves)
    about = About(
        "TVD by depth",
        f"½ Σ |q − p| along the target's own continuations of {anchors} anchors at temperature 1; "
        "bands are 95 % intervals of the means.",
        _depths(lines), Axis("TVD", (0, 1)),
    )  # fmt: skip
    series = {line.name: {p.x: p for p in line.points} for line in lines}
    given, mark = series[SERIES["treeflash"]], series[SERIES[HELD_OUT]]
    shared = sorted(given.keys() & mark.keys())
    worse = tuple(at for at in shared if (given[at].low or 0) > (mark[at].high or 0))
    return _shown("distances", about, lines, DRAFTERS, ends=_ends(lines), worse=worse)


def _coverages(found: CourseMeasurements) -> ChapterStep:
    lines = _by_depth(found, f"coverage_{K}")
    title = f"Coverage of p by the {K} best tokens"
    about = About(title, "", _depths(lines), Axis(f"coverage at K = {K}", (0, 1)))
    return _shown("coverages", about, lines, DRAFTERS, k=K, ends=_ends(lines))


def _speeds(found: CourseMeasurements) -> ChapterStep:
    rows = [row for row in found.bench["rows"] if row["budget"] and row["method"] in TREES]
    each = []
    for at, budget in enumerate(sorted({row["budget"] for row in rows})):
        paint = NO_METHOD[at % len(NO_METHOD)], ""
        points = [
            Point(TREES.index(row["method"]), row["plain_ratio"])
            for row in rows
            if row["budget"] == budget
        ]
        each.append(Series(f"B = {budget}", points, "points", paint))
    best = max(rows, key=lambda row: row["plain_ratio"])
    about = About(
        "Speed against plain decoding",
        "The line is plain decoding; every text is the same.",
        Axis("method", places=[NAMES[m] for m in TREES]), Axis("× plain"), (1,),
    )  # fmt: skip
    return _shown("speeds", about, each, threads=found.bench["threads"], name=NAMES[best["method"]],
                  budget=best["budget"], ratio=best["plain_ratio"])  # fmt: skip


def _calls(found: CourseMeasurements) -> ChapterStep:
    cells, lines = found.spiffy["cells"], []
    for pace, name in PACES.items():
        points = [Point(c["drafts"], c["nfe_speedup"]) for c in cells if c["pace"] == pace]
        lines.append(Series(name, points))
    one, two = (max(c["nfe_speedup"] for c in cells if c["pace"] == pace) for pace in ("k1", "k2"))
    drafts = Axis("drafts D", ticks=sorted({c["drafts"] for c in cells}))
    says = "Blocks of 16, 128 tokens."
    about = About("Spiffy: calls saved", says, drafts, Axis("NFE speedup"), (1,))
    best = max(c["nfe_speedup"] for c in cells)
    return _shown("calls", about, lines, saved=1 - 1 / best, one=one, two=two)


# ── figures ──────────────────────────────────────────────────────────────────────────────────────


def _shown(
    section: str, about: About, series: Sequence[Series], order: Sequence[str] = (),
    **values: object,
) -> ChapterStep:  # fmt: skip
    figure = as_json(chart(about, series, "page", order))
    return scene(section, side={"kind": "plots", "figures": [figure]}, **values)


def _line(name: str, rates: Iterable[Rate]) -> Series:
    """τ by budget."""
    return Series(name, [_point(r.budget, r) for r in rates], band=True)


def _points(name: str, rates: Iterable[Rate]) -> Series:
    """One rate for each of the axis' places, in their order."""
    return Series(name, [_point(at, r) for at, r in enumerate(rates)], "points")


def _point(x: float, rate: Rate) -> Point:
    return Point(x, rate.tau, rate.low, rate.high)


def _tau(lines: Sequence[Series]) -> Axis:
    """τ is at least 1."""
    return Axis("τ", (1.0, max(p.high or p.y for line in lines for p in line.points)))


def _depths(lines: Sequence[Series]) -> Axis:
    return Axis("depth", ticks=sorted({p.x for line in lines for p in line.points}))


def _by_depth(found: CourseMeasurements, y: str, low: str = "", high: str = "") -> list[Series]:
    def of(row: Mapping[str, str]) -> Point:
        bounds = (float(row[low]), float(row[high])) if low else (None, None)
        return Point(int(row["depth"]), float(row[y]), *bounds)

    return [
        Series(
            name,
            [of(row) for row in found.curves if row["series"] == series],
            paint={MARGINAL: ("ink", ""), HELD_OUT: ("soft", "")}.get(series),
            band=bool(low),
        )
        for series, name in SERIES.items()
    ]


def _ends(lines: Sequence[Series]) -> str:
    """Each line's first and last value, in words."""
    ends = ((line.name, line.points[0].y, line.points[-1].y) for line in lines)
    return ", ".join(f"{name} {number(first)} to {number(last)}" for name, first, last in ends)


def _words(groups: Sequence[Series], names: Sequence[str]) -> str:
    """Every group's values, in words."""
    return "; ".join(
        f"{group.name} " + ", ".join(f"{names[int(p.x)]} {number(p.y)}" for p in group.points)
        for group in groups
    )
