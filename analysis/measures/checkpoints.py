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
from analysis.measures.comparison import paired, whole_runs
from analysis.measures.tables import Tables
from core.rounds.draft import Array
from core.rounds.round import Round, new_tokens
from core.traces.schema import Header

MEASURES = ("acceptance", "tvd", "coverage_1", "coverage_4", "coverage_16", "bias")
SHOWN = 5  # stretches of each direction


def pairs(tables: Tables) -> list[tuple[str, str]]:
    """Labels of the same method and settings with different weights, in the order of the runs."""
    first: dict[str, Header] = {}
    for run, label in tables.labels.items():
        first.setdefault(label, tables.traces[run].header)
    return [
        (one, other)
        for (one, a), (other, b) in combinations(first.items(), 2)
        if a.method == b.method
        and a.drafter.get("kind") == b.drafter.get("kind")
        and a.drafter.get("sha256") != b.drafter.get("sha256")
        and a.settings.get("budget") == b.settings.get("budget")
        and a.settings.get("options") == b.settings.get("options")
    ]


@declared("by_depth")
def by_depth(
    tables: Tables, chosen: Sequence[tuple[str, str]] | None = None, draws: int = 2000
) -> pd.DataFrame:
    """Two checkpoints at each depth, paired by text."""
    texts = _texts(tables)
    labels = pairs(tables) if chosen is None else chosen
    rows = []
    for measure in MEASURES:
        sums = _sums(tables, measure, texts) if labels else {}
        for one, other in labels:
            depths = {depth for label, depth in sums if label in (one, other)}
            for depth in sorted(depths):
                a, b = (_every(sums.get((n, depth)), texts, n) for n in (one, other))
                found = paired(a, b, draws)
                if found["texts"] and np.isfinite(found["difference"]):
                    row = {"method": one, "other": other, "measure": measure, "depth": depth}
                    rows.append(row | found)
    return pd.DataFrame(rows)


def _texts(tables: Tables) -> Frame:
    """The text of each run that may be in a pair, and its label."""
    runs = whole_runs(tables)
    return runs.set_index(runs["run"].astype(object))[["text", "method"]]


def _sums(tables: Tables, measure: str, texts: Frame) -> dict[tuple[str, int], Frame]:
    """By label and depth: the sum and the count of a measure in every text."""
    if measure == "bias":
        nodes = tables.nodes[tables.nodes["reached"] & tables.nodes["q"].notna()]
        lines = nodes.assign(value=nodes["q"] - nodes["accepted"])
    else:
        column = "accepted" if measure == "acceptance" else measure
        lines = tables.positions.assign(value=tables.positions[column].astype(float))
    lines = lines[lines["value"].notna()]
    lines = lines.assign(text=lines["run"].astype(object).map(texts["text"]))
    grouped = lines.groupby(["method", "depth", "text"], observed=True)["value"]
    found = grouped.agg(["sum", "count"])
    return {
        (str(label), int(depth)): part.droplevel(["method", "depth"])
        for (label, depth), part in found.groupby(level=["method", "depth"], observed=True)
    }


def _every(found: Frame | None, texts: Frame, label: str) -> Frame:
    """A line for every text of a label: nothing was counted in those that never came so deep."""
    own = texts.loc[texts["method"] == label, "text"].unique()
    empty = pd.DataFrame({"sum": 0.0, "count": 0}, index=pd.Index(own, name="text"))
    return empty if found is None else found.reindex(empty.index, fill_value=0)


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
        mine, theirs = (tables.traces[row[name]].rounds for name in ("run", "run_other"))
        for each in aligned(mine, theirs):
            yield {
                "method": alive, "other": dead, "prompt": row["prompt"],
                "position": each.position, "tokens": each.tokens,
                "run": row["run"], "round": each.round,
                "other_run": row["run_other"], "other_round": each.other_first,
                "other_rounds": each.other_rounds,
            }  # fmt: skip


def aligned(mine: Sequence[Round], theirs: Sequence[Round]) -> Iterator[Stretch]:
    """Every round of a run with the other's rounds that begin in its tokens, as far as both runs
    write the same text."""
    mine, theirs = ([r for r in rounds if r.committed] for rounds in (mine, theirs))
    if not mine or not theirs or mine[0].position != theirs[0].position:
        return
    end = mine[0].position + common_length(new_tokens(mine), new_tokens(theirs))
    starts = np.array([r.position for r in theirs])
    for record in mine:
        after = record.position + record.accepted + 1
        if after > end:
            return
        low, high = np.searchsorted(starts, [record.position, after])
        if high > low:
            count, first = int(high - low), theirs[int(low)].number
            yield Stretch(record.position, record.accepted + 1, record.number, count, first)


def common_length(one: Sequence[int] | Array, other: Sequence[int] | Array) -> int:
    """How many tokens two texts have in common from their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
