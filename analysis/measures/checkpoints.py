"""Before and after side by side: two checkpoints of one drafter, or one drafter under two targets,
precisions or versions of an engine.

Everything is paired by text (``measures.comparison``): the runs of two labels that differ in the
drafter's weights alone, or in the target and its engine alone. Rounds of two runs begin at
different tokens of one text, so the numbers by depth are those of the positions that each saw;
stretches of text show where one lives and the other dies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.frames import Frame, declared
from analysis.labels import OF_TARGETS
from analysis.measures import comparison
from analysis.measures.reliability import drawn_methods
from analysis.measures.tables import Tables, grouped
from core.rounds.draft import Array

MEASURES = ("acceptance", "tvd", "coverage_1", "coverage_4", "coverage_16", "bias")
SHOWN = 5  # stretches of each direction


def pairs(tables: Tables) -> list[tuple[str, str]]:
    """Labels that differ in the drafter's weights alone, then those that do in the target."""
    weights = comparison.pairs(tables, ("drafter",))
    return [*weights, *comparison.pairs(tables, OF_TARGETS)]


@declared("by_depth")
def by_depth(tables: Tables, chosen: Sequence[tuple[str, str]] | None = None) -> pd.DataFrame:
    """Before and after at each depth, paired by text."""
    runs, prompts = comparison.whole_runs(tables), comparison.prompts_of_texts(tables)
    labels, key_of = pairs(tables) if chosen is None else chosen, comparison.pairing(tables)
    needed: set[comparison.Key] = {key_of(*pair) for pair in labels}
    rows = []
    for measure in MEASURES:
        by_key = {key: _sums(tables, measure, runs, key) for key in needed}
        for one, other in labels:
            sums = by_key[key_of(one, other)]
            depths = (depth for label, depth in sums if label == one and (other, depth) in sums)
            for depth in sorted(depths):
                found = comparison.paired(sums[one, depth], sums[other, depth], prompts)
                if found["texts"]:
                    row = {"method": one, "other": other, "measure": measure, "depth": depth}
                    rows.append(row | found)
    return pd.DataFrame(rows)


def _sums(
    tables: Tables, measure: str, runs: Frame, key: comparison.Key
) -> dict[tuple[str, int], Frame]:
    """The sum and the count of a measure by label and depth, in every text of the runs."""
    texts = runs.set_index(runs["run"].astype(object))[key]
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
        lines = (
            part[part["reached"] & ~part["method"].isin(drawn_methods(tables))] if bias else part
        )
        values = lines["q"] - lines["accepted"] if bias else lines[column].astype(float)
        lines = lines[["method", "depth"]].assign(
            value=values, text=lines["run"].astype(object).map(texts)
        )
        yield lines[lines["value"].notna()]


# ── where one lives and the other dies ───────────────────────────────────────────────────────────


@declared("stretches")
def stretches(
    tables: Tables, chosen: Sequence[tuple[str, str]] | None = None, most: int = SHOWN
) -> pd.DataFrame:
    """List stretches of text that one checkpoint takes in one round and the other in several."""
    labels, key_of = pairs(tables) if chosen is None else chosen, comparison.pairing(tables)
    rows = []
    for one, other in labels:
        for alive, dead in ((one, other), (other, one)):
            every = _between(tables, alive, dead, key_of(one, other))
            found = [row for row in every if row["other_rounds"] > 1]
            found.sort(key=lambda row: (-row["other_rounds"], -row["tokens"]))
            rows += found[:most]
    return pd.DataFrame(rows)


def _between(
    tables: Tables, alive: str, dead: str, key: comparison.Key
) -> Iterator[dict[str, Any]]:
    """All stretches of the texts that both labels have."""
    runs = tables.runs.set_index(tables.runs["run"].astype(object))
    for _, run, other_run in runs_of_both(tables, alive, dead, key):
        both = {"method": alive, "other": dead, "prompt": runs["prompt"][run]}
        both |= {"run": run, "other_run": other_run}
        for stretch in aligned(written(tables, run), written(tables, other_run)):
            yield both | stretch


def alike(tables: Tables, one: str, other: str) -> tuple[int, int]:
    """In how many of the texts that both labels have they accepted the same in every round, and how
    many texts these are."""
    found = [
        all(
            np.array_equal(getattr(a, name), getattr(b, name))
            for name in ("text", "positions", "accepted")
        )
        for a, b in (
            (written(tables, run), written(tables, other_run))
            for _, run, other_run in runs_of_both(
                tables, one, other, comparison.pairing(tables)(one, other)
            )
        )
    ]
    return sum(found), len(found)


def runs_of_both(
    tables: Tables, one: str, other: str, key: comparison.Key
) -> Iterator[tuple[str, str, str]]:
    """The key of each text that both labels have, and the first run of each on it."""
    runs = comparison.whole_runs(tables)
    runs = runs.assign(run=runs["run"].astype(object))
    a, b = (runs[runs["method"] == n].drop_duplicates(key) for n in (one, other))
    both = a.merge(b, on=key, suffixes=("", "_other"))
    yield from zip(both[key], both["run"], both["run_other"], strict=True)


@dataclass(frozen=True, eq=False)
class WrittenText:
    """A run's text, int64 from the position ``start`` on, and its rounds: their numbers, the
    positions of their roots, how many nodes each drafted and accepted, int64 [R]."""

    start: int
    text: Array
    numbers: Array
    positions: Array
    nodes: Array
    accepted: Array


def written(tables: Tables, run: str) -> WrittenText:
    rounds = tables.rounds.iloc[tables.rounds_of.get(run, [])]
    columns = (rounds[name].to_numpy() for name in ("round", "position", "nodes", "accepted"))
    return WrittenText(tables.about[run].start, tables.about[run].text, *columns)


def aligned(mine: WrittenText, theirs: WrittenText) -> Iterator[dict[str, int]]:
    """Each round of a run, with the position of its root and the tokens it took (accepted + 1), and
    the other's rounds that begin in these, as far as both runs write the same text."""
    if not len(mine.text) or not len(theirs.text) or mine.start != theirs.start:
        return
    end = mine.start + common_length(mine.text, theirs.text)
    after = mine.positions + mine.accepted + 1
    inside = np.cumprod(after <= end, dtype=bool)
    lows, highs = (np.searchsorted(theirs.positions, x) for x in (mine.positions, after))
    for at in np.flatnonzero(inside & (highs > lows)).tolist():
        low = int(lows[at])
        yield {
            "position": int(mine.positions[at]), "tokens": int(mine.accepted[at]) + 1,
            "round": int(mine.numbers[at]), "other_round": int(theirs.numbers[low]),
            "other_rounds": int(highs[at]) - low,
        }  # fmt: skip


def common_length(one: Sequence[int] | Array, other: Sequence[int] | Array) -> int:
    """How many tokens two texts have in common from their beginning."""
    shorter = min(len(one), len(other))
    apart = np.flatnonzero(np.asarray(one[:shorter]) != np.asarray(other[:shorter]))
    return int(apart[0]) if len(apart) else shorter
