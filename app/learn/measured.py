"""Chapter 10: what the methods reach with the drafters that ship, as measured by four commands.

``assets/measured`` holds what they wrote (of the last one only the columns read here); made anew it is
shown anew:

    python -m core.train.report --prompts FILE --work FOLDER --budget … --json assets/measured/tau-….json
    python -m app calibrate FOLDER            (its curves.csv)
    python -m app bench … --json > assets/measured/bench.json
    python -m app denoise --prompts FILE --table --block 32 --real 0 --json > assets/measured/spiffy.json
"""  # noqa: E501 (commands are not broken)

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from app.learn.material import Material
from app.learn.words import Json, chapter, para, quiz, step
from core import ASSETS
from core.errors import UserError

FOLDER = ASSETS / "measured"
SOURCES = {"gsm8k": "math", "humaneval": "code", "mt_bench": "chat"}
NAMES = {"dflash": "DFlash", "ddtree": "DDTree", "treeflash": "TreeFlash", "dart": "DART"}
TREES = ("ddtree", "treeflash", "dart")
SERIES = {"dflash": "DFlash's q", "treeflash": "TreeFlash's q′", "dart": "DART's q",
          "marginal": "the marginal"}  # fmt: skip
PACES = {"k1": "one token a step", "k2": "two tokens a step", "t0.9": "all with p ≥ 0.9"}
K = 8  # of the coverage shown


@dataclass(frozen=True)
class Rate:
    """τ of a method at a budget (None: a chain) on some texts, with its 95 % interval."""

    method: str
    budget: int | None
    plain: bool  # DART without its n-grams
    sampling: str
    source: str
    tau: float
    low: float
    high: float
    lengths: tuple[int, ...]  # rounds by accepted + 1, from 1 on

    @staticmethod
    def of(row: Json) -> Rate:
        """From a line of the report."""
        method, _, budget = row["method"].partition(" ")
        weight = row["options"].get("ngram_weight")
        return Rate(
            method, int(budget) if budget else None, weight is not None and float(weight) == 0,
            row["sampling"], row["source"], row["tau"], row["low"], row["high"],
            tuple(row["lengths"]),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything in the folder."""

    folder: Path = FOLDER

    @cached_property
    def rates(self) -> tuple[Rate, ...]:
        files = sorted(self.folder.glob("tau-*.json"))
        return tuple(Rate.of(row) for file in files for row in self._json(file.name))

    @cached_property
    def curves(self) -> list[dict[str, str]]:
        try:
            with (self.folder / "curves.csv").open(encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))
        except OSError as error:
            raise UserError(f"{self.folder}: curves.csv cannot be read: {error}") from None

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
        self, method: str, *, sampling: str = "greedy", source: str = "all", plain: bool = False
    ) -> list[Rate]:
        """A method's rates by budget."""
        found = [
            r for r in self.rates
            if (r.method, r.sampling, r.source, r.plain) == (method, sampling, source, plain)
        ]  # fmt: skip
        return sorted(found, key=lambda r: r.budget or 0)

    def at(self, method: str, budget: int | None = 64, **which: Any) -> Rate:
        """The one rate at a budget. Raises UserError when it was not measured."""
        for rate in self.some(method, **which):
            if rate.budget == budget:
                return rate
        raise UserError(
            f"{self.folder} holds no τ of {method} at B = {budget} {which or ''}".rstrip()
        )


def measured(material: Material) -> Json:
    """Many prompts in place of one round."""
    found = Measured()
    steps = [
        _budgets(found),
        _sources(found),
        _samplings(found),
        _lengths(found),
        _distances(found),
        _coverages(found),
        _speeds(found),
        _calls(found),
    ]
    asked = quiz(
        "A method's τ is twice another's. Is it twice as fast?",
        ("Yes: τ counts tokens per pass of the target.", "A pass over more nodes takes longer."),
        (
            "Only if its rounds take no longer.",
            "Yes: tokens per second are τ by the time of a round, and a larger tree, or a drafter "
            "that asks more, makes rounds longer.",
        ),
        ("No: it writes another text.", "Every method here writes the text of plain decoding."),
        answer=1,
    )
    return chapter(
        "Measured",
        "What the shipped drafters reach",
        "How much is a tree worth, over many prompts?",
        steps,
        asked,
    )


# ── steps ────────────────────────────────────────────────────────────────────────────────────────


def _budgets(found: Measured) -> Json:
    chain, tree = found.at("dflash", None), found.at("ddtree")
    lines = [_line(NAMES[m], found.some(m)) for m in TREES]
    lines.append(_line("DART, no n-grams", found.some("dart", plain=True)))
    lines.append({**_line("DFlash, a chain of 7", [chain], 7), "only": "points"})
    budgets = sorted({p["x"] for line in lines[:-1] for p in line["points"]})
    ends = [min(7, budgets[0]), budgets[-1]]
    few, *_, many = found.some("ddtree")
    return _shown(
        para(
            "So far it was one round of one prompt. Here are 120 prompts that the drafters "
            "never saw, a third each of math, code and chat, with 128 new tokens each.",
        ),
        para(
            "DFlash's chain brings {chain} tokens a pass; DDTree makes {tree} of the same lists "
            "with {budget} nodes. From {few} nodes to {many} it goes from {first} to {last}: "
            "{nodes} times the nodes for {tokens} times the tokens.",
            chain=f"{chain.tau:.2f}",
            tree=f"{tree.tau:.2f}",
            budget=tree.budget,
            few=few.budget,
            many=many.budget,
            first=f"{few.tau:.2f}",
            last=f"{many.tau:.2f}",
            nodes=f"{(many.budget or 1) / (few.budget or 1):g}",
            tokens=f"{many.tau / few.tau:.2f}",
        ),
        _figure(
            "τ by draft budget", "draft budget B", "τ",
            "Tokens per pass of the target, greedy; bands are 95 % bootstrap intervals over "
            "prompts.",
            lines, {"log": True, "ticks": budgets, "x": ends},
        ),
        alt=f"τ by budget: {_ends(lines[:-1])}.",
    )  # fmt: skip


def _sources(found: Measured) -> Json:
    each = [_points(NAMES[m], [found.at(m, source=s) for s in SOURCES]) for m in TREES]
    math, chat = (found.at("treeflash", source=s).tau for s in ("gsm8k", "mt_bench"))
    return _shown(
        para(
            "What is asked decides as much as the method. A calculation repeats the question's "
            "numbers in set phrases: TreeFlash reaches {math}. A chat may go on in many ways: "
            "{chat}.",
            math=f"{math:.2f}",
            chat=f"{chat:.2f}",
        ),
        para("So never compare two methods by numbers from different prompts."),
        _figure(
            "τ by source, B = 64", "prompts", "τ", "40 prompts of each, greedy.",
            each, {"names": list(SOURCES.values())},
        ),
        alt=f"τ by source: {_plain(each, list(SOURCES.values()))}.",
    )  # fmt: skip


def _samplings(found: Measured) -> Json:
    shown = [("dflash", None), *((m, 64) for m in TREES)]
    each = [
        _points(name, [found.at(m, b, sampling=s) for m, b in shown])
        for name, s in (("greedy", "greedy"), ("temperature 1", "T=1"))
    ]
    cold, hot = (found.at("ddtree", sampling=s).tau for s in ("greedy", "T=1"))
    names = [NAMES[m] for m, _ in shown]
    return _shown(
        para(
            "At temperature 1 the target draws its tokens, and no drafter can know the dice. "
            "DDTree has a τ of {cold} greedily, and of {hot} so.",
            cold=f"{cold:.2f}",
            hot=f"{hot:.2f}",
        ),
        para("The text is still exactly plain decoding's: only the speed is at stake."),
        _figure(
            "Greedy and sampled", "method, trees with B = 64", "τ",
            "120 prompts, the same for both.",
            each, {"names": names},
        ),
        alt=f"τ by method: {_plain(each, names)}.",
    )  # fmt: skip


def _lengths(found: Measured) -> Json:
    shown = [("dflash", None), ("ddtree", 64), ("treeflash", 64)]
    lines = []
    for method, budget in shown:
        rate = found.at(method, budget)
        whole = sum(rate.lengths)
        points = [{"x": n, "y": count / whole} for n, count in enumerate(rate.lengths, 1)]
        lines.append({"name": NAMES[method], "points": points})
    nothing = [found.at(m, b).lengths[0] / sum(found.at(m, b).lengths) for m, b in shown]
    return _shown(
        para(
            "τ is a mean, and rounds differ. DFlash's chain gains nothing but the bonus token in "
            "{one} of all rounds, DDTree in {two}, TreeFlash in {three}.",
            **dict(zip(("one", "two", "three"), map(_percent, nothing), strict=True)),
        ),
        para(
            "That is what the tree is for: a round is rarely saved by going deeper, and "
            "often by having the second token at hand."
        ),
        _figure(
            "Acceptance lengths", "accepted + 1", "share of rounds", "Greedy, B = 64.", lines, {}
        ),
        alt="Shares of rounds by how many tokens they brought.",
    )


def _distances(found: Measured) -> Json:
    lines = _by_depth(found, "tvd", "tvd_low", "tvd_high")
    anchors = max(int(row["observed"]) for row in found.curves)
    return _shown(
        para(
            "Why does it end so soon? *TVD* says how far a drafter's q is from the target's p at a "
            "depth: 0 is the same distribution, 1 has nothing in common.",
        ),
        para(
            "The *marginal* is the mean of p over many continuations: what a drafter would say "
            "that knew the target perfectly, and only the context, not the tokens between. It is "
            "the mark for DFlash's q. TreeFlash's q′ knows the token before, so it may pass it.",
        ),
        _figure(
            "TVD by depth", "depth", "TVD",
            f"½ Σ |q − p| along the target's own continuations of {anchors} anchors at "
            "temperature 1; bands are 95 % intervals of the means.",
            lines, {"y": [0, 1]},
        ),
        alt=f"TVD by depth, from the first to the last: {_ends(lines)}.",
    )  # fmt: skip


def _coverages(found: Measured) -> Json:
    lines = _by_depth(found, f"coverage_{K}")
    return _shown(
        para(
            "A tree does not need the right distribution, only the right token among its "
            "branches. So look at how much of p the drafter's {k} best tokens hold together.",
            k=K,
        ),
        para(
            "Where this is near 1, width is enough. Deep down it is not: there, more nodes "
            "cannot help, only a better drafter.",
        ),
        _figure(
            f"Coverage of p by the {K} best tokens", "depth", f"coverage at K = {K}", "",
            lines, {"y": [0, 1]},
        ),
        alt=f"Coverage by the {K} best tokens, from the first depth to the last: {_ends(lines)}.",
    )  # fmt: skip


def _speeds(found: Measured) -> Json:
    rows = [row for row in found.bench["rows"] if row["budget"] and row["method"] in TREES]
    budgets = sorted({row["budget"] for row in rows})
    each = [
        {
            "name": f"B = {budget}",
            "points": [
                {"x": TREES.index(row["method"]), "y": row["plain_ratio"]}
                for row in rows
                if row["budget"] == budget
            ],
            "only": "points",
        }
        for budget in budgets
    ]
    best = max(rows, key=lambda row: row["plain_ratio"])
    return _shown(
        para(
            "Tokens per second, as a multiple of plain decoding on the same machine: {threads} "
            "cores of a CPU, where every further node costs. The best here is {name} with "
            "B = {budget}: {ratio} times plain decoding.",
            threads=found.bench["threads"],
            name=NAMES[best["method"]],
            budget=best["budget"],
            ratio=f"{best['plain_ratio']:.2f}",
        ),
        para(
            "A GPU has arithmetic to spare while it reads the weights, so the papers draft larger "
            "trees. What pays on yours, the commands bench and cost say.",
        ),
        _figure(
            "Speed against plain decoding", "method", "× plain",
            "The line is plain decoding; every text is the same.",
            each, {"names": [NAMES[m] for m in TREES]}, extras=[{"y": 1}],
        ),
        alt=f"The fastest is {NAMES[best['method']]} at B = {best['budget']}, "
        f"{best['plain_ratio']:.2f} times plain decoding.",
    )  # fmt: skip


def _calls(found: Measured) -> Json:
    cells = found.spiffy["cells"]
    lines = [
        {
            "name": PACES[pace],
            "points": [
                {"x": c["drafts"], "y": c["nfe_speedup"]} for c in cells if c["pace"] == pace
            ],
        }
        for pace in PACES
    ]
    best = max(cells, key=lambda c: c["nfe_speedup"])
    one, two = (max(c["nfe_speedup"] for c in cells if c["pace"] == p) for p in ("k1", "k2"))
    return _shown(
        para(
            "And masked diffusion: model calls (*NFE*) of plain denoising by those with Spiffy's "
            "graphs, on the same prompts. The best saves {saved} of all calls.",
            saved=_percent(1 - 1 / best["nfe_speedup"]),
        ),
        para(
            "With two tokens a step a draft must guess two positions at once: the best graph then "
            "divides the calls by {two}, with one token a step by {one}.",
            one=f"{one:.2f}",
            two=f"{two:.2f}",
        ),
        _figure(
            "Spiffy: calls saved", "drafts D", "NFE speedup", "Blocks of 32, 128 tokens.",
            lines, {"ticks": sorted({c["drafts"] for c in cells})}, extras=[{"y": 1}],
        ),
        alt="NFE speedup by the number of drafts, for three paces.",
    )  # fmt: skip


# ── figures ──────────────────────────────────────────────────────────────────────────────────────


def _shown(*parts: Any, alt: str) -> Json:
    *text, figure = parts
    return step(*text, trees=[], side={"kind": "plots", "figures": [figure]}, alt=alt)


def _figure(
    title: str,
    x: str,
    y: str,
    says: str,
    series: Sequence[Json],
    range_: Json,
    extras: Sequence[Json] = (),
) -> Json:
    return {
        "title": title, "x": x, "y": y, "says": says,
        "series": list(series), "range": range_, "extras": list(extras),
    }  # fmt: skip


def _line(name: str, rates: Iterable[Rate], chain: int = 0) -> Json:
    """τ by budget; ``chain``: where to draw what has none."""
    points = [{"x": r.budget or chain, "y": r.tau, "low": r.low, "high": r.high} for r in rates]
    return {"name": name, "points": points, "band": True}


def _points(name: str, rates: Iterable[Rate]) -> Json:
    """One rate for each of the figure's names, in their order."""
    points = [{"x": at, "y": r.tau, "low": r.low, "high": r.high} for at, r in enumerate(rates)]
    return {"name": name, "points": points, "only": "points"}


def _by_depth(found: Measured, y: str, low: str = "", high: str = "") -> list[Json]:
    lines = []
    for series, name in SERIES.items():
        rows = [row for row in found.curves if row["series"] == series]
        points = [{"x": int(r["depth"]), "y": float(r[y])} for r in rows]
        if low:
            bounds = ({"low": float(r[low]), "high": float(r[high])} for r in rows)
            points = [{**p, **b} for p, b in zip(points, bounds, strict=True)]
        lines.append({"name": name, "points": points, "band": bool(low)})
    return lines


def _ends(lines: Sequence[Json]) -> str:
    """Each line's first and last value, in words."""
    ends = ((line["name"], line["points"][0]["y"], line["points"][-1]["y"]) for line in lines)
    return ", ".join(f"{name} {first:.2f} to {last:.2f}" for name, first, last in ends)


def _plain(groups: Sequence[Json], names: Sequence[str]) -> str:
    """Every group's values, in words."""
    return "; ".join(
        f"{group['name']} " + ", ".join(f"{names[p['x']]} {p['y']:.2f}" for p in group["points"])
        for group in groups
    )


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"
