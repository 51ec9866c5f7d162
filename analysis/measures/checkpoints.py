"""Two checkpoints of one drafter side by side: before and after a training, int8 and bf16.

Everything is paired by text (``measures.comparison``): the runs of two labels that differ in the
drafter's weights alone. Rounds of two runs begin at different tokens of one text, so the numbers by
depth are those of the positions that each saw; stretches of text show where one lives and the other
dies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from analysis.frames import Frame, declared
from analysis.labels import settings_of
from analysis.measures.comparison import paired, prompts_of_texts, whole_runs
from analysis.measures.reliability import drawn
from analysis.measures.tables import Tables, grouped
from core.rounds.draft import Array

MEASURES = ("acceptance", "tvd", "coverage_1", "coverage_4", "coverage_16", "bias")
SHOWN = 5  # stretches of each direction


def pairs(tables: Tables) -> list[tuple[str, str]]:
    """Labels of the same method and settings with different weights, in the order of the runs."""
    headers = {run: tables.about[run].header for run in tables.labels}
    settings, first = settings_of(headers), dict[str, tuple[object, dict[str, str]]]()
    for run, label in tables.labels.items():
        rest = {k: v for k, v in settings[run].items() if k not in ("drafter", "weights")}
        first.setdefault(label, (headers[run].drafter.get("sha256"), rest))
    return [
        (one, other)
        for (one, (a, rest)), (other, (b, same)) in combinations(first.items(), 2)
        if a != b and rest == same
    ]


@declared("by_depth")
def by_depth(
    tables: Tables, chosen: Sequence[tuple[str, str]] | None = None, draws: int = 2000
) -> pd.DataFrame:
    """Two checkpoints at each depth, paired by text."""
    texts, prompts = _texts(tables), prompts_of_texts(tables)
    labels = pairs(tables) if chosen is None else chosen
    rows = []
    for measure in MEASURES:
        sums = _sums(tables, measure, texts) if labels else {}
        for one, other in labels:
            depths = (depth for label, depth in sums if label == one and (other, depth) in sums)
            for depth in sorted(depths):
                found = paired(sums[one, depth], sums[other, depth], draws, prompts)
                if found["texts"]:
                    row = {"method": one, "other": other, "measure": measure, "depth": depth}
                    rows.append(row | found)
    return pd.DataFrame(rows)


def _texts(tables: Tables) -> Frame:
    """The text of each run that may be in a pair, and its label."""
    runs = whole_runs(tables)
    return runs.set_index(runs["run"].astype(object))[["text", "method"]]


def _sums(tables: Tables, measure: str, texts: Frame) -> dict[tuple[str, int], Frame]:
    """By label and depth: the sum and the count of a measure in every text."""
    lines = grouped(_lines(tables, measure, texts), ["method", "depth", "text"], ["value"])
    lines = lines.rename(columns={"value": "sum", "size": "count"})
    return {
        (str(label), int(depth)): part.droplevel(["method", "depth"])
        for (label, depth), part in lines.groupby(level=["method", "depth"], observed=True)
    }


def _lines(tables: Tables, measure: str, texts: Frame) -> Iterator[Frame]:
    """Each node or position that tells a measure, part by part, with its text and the value.

    Drawn drafts promise nothing by their q, so they tell no bias (``reliability``).
    """
    column = "accepted" if measure == "acceptance" else measure
    bias = measure == "bias"
    names = ["depth", *(("q", "reached", "accepted") if bias else (column,))]
    for part in tables.each("nodes" if bias else "positions", names):
        lines = part[part["reached"] & ~part["method"].isin(drawn(tables))] if bias else part
        values = lines["q"] - lines["accepted"] if bias else lines[column].astype(float)
        lines = lines[["method", "depth"]].assign(
            value=values, text=lines["run"].astype(object).map(texts["text"])
        )
        yield lines[lines["value"].notna()]


# ── where one lives and the other dies ───────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Stretch:
    """Tokens that one run took in one round, and the other run's rounds that begin in them.

    position  of the round's root; ``tokens``: accepted + 1
    """

    position: int
    tokens: int
    round: int
    other_rounds: int
    other_first: int


@declared("stretches")
def stretches(
    tables: Tables, chosen: Sequence[tuple[str, str]] | None = None, most: int = SHOWN
) -> pd.DataFrame:
    """Where one checkpoint takes in one round what costs the other several."""
    labels = pairs(tables) if chosen is None else chosen
    rows = []
    for one, other in labels:
        for alive, dead in ((one, other), (other, one)):
            found = [row for row in _between(tables, alive, dead) if row["other_rounds"] > 1]
            found.sort(key=lambda row: (-row["other_rounds"], -row["tokens"]))
            rows += found[:most]
    return pd.DataFrame(rows)


def _between(tables: Tables, alive: str, dead: str) -> Iterator[dict[str, Any]]:
    """All stretches of the first run of each text that both labels have."""
    runs = whole_runs(tables)
    runs = runs.assign(run=runs["run"].astype(object))
    a, b = (runs[runs["method"] == n].drop_duplicates("text") for n in (alive, dead))
    for row in a.merge(b, on="text", suffixes=("", "_other")).to_dict("records"):
        mine, theirs = (written(tables, row[name]) for name in ("run", "run_other"))
        for each in aligned(mine, theirs):
            yield {
                "method": alive, "other": dead, "prompt": row["prompt"],
                "position": each.position, "tokens": each.tokens,
                "run": row["run"], "round": each.round,
                "other_run": row["run_other"], "other_round": each.other_first,
                "other_rounds": each.other_rounds,
            }  # fmt: skip


@dataclass(frozen=True, eq=False)
class WrittenText:
    """A run's text, int64 from the position ``start`` on, and its rounds: their numbers, the
    positions of their roots and what each accepted, int64 [R]."""

    start: int
    text: Array
    numbers: Array
    positions: Array
    accepted: Array


def written(tables: Tables, run: str) -> WrittenText:
    rounds = tables.rounds[tables.rounds["run"] == run]
    columns = (rounds[name].to_numpy() for name in ("round", "position", "accepted"))
    return WrittenText(tables.about[run].start, tables.about[run].text, *columns)


def aligned(mine: WrittenText, theirs: WrittenText) -> Iterator[Stretch]:
    """Every round of a run with the other's rounds that begin in its tokens, as far as both runs
    write the same text."""
    if not len(mine.text) or not len(theirs.text) or mine.start != theirs.start:
        return
    end = mine.start + common_length(mine.text, theirs.text)
    after = mine.positions + mine.accepted + 1
    inside = np.cumprod(after <= end, dtype=bool)
    lows, highs = (np.searchsorted(theirs.positions, x) for x in (mine.positions, after))
    for at in np.flatnonzero(inside & (highs > lows)).tolist():
        low, high = int(lows[at]), int(highs[at])
        tokens, number = int(mine.accepted[at]) + 1, int(mine.numbers[at])
        first = int(theirs.numbers[low])
        yield Stretch(int(mine.positions[at]), tokens, number, high - low, first)


def common_length(one: Sequence[int] | Array, other: Sequence[int] | Array) -> int:
    """How many tokens two texts have in common from their beginning."""
    shorter = min(len(one), len(other))
    apart = np.flatnonzero(np.asarray(one[:shorter]) != np.asarray(other[:shorter]))
    return int(apart[0]) if len(apart) else shorter
