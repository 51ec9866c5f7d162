"""Acceptance by the names that papers and other engines give it, from one trace. Never torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.frames import By, Frame, declared
from analysis.measures.counts import by_length, reached
from analysis.measures.tables import Tables

PAPERS = "EAGLE, DDTree, TreeFlash, DART"


@dataclass(frozen=True)
class Metric:
    """A ratio of sums over a method's rounds, by the names of ``sums``."""

    engine: str
    name: str
    above: tuple[str, ...]
    below: str

    @property
    def formula(self) -> str:
        above = " + ".join(self.above)
        return f"({above}) ÷ {self.below}" if len(self.above) > 1 else f"{above} ÷ {self.below}"


METRICS = (
    Metric(PAPERS, "τ, average acceptance length", ("accepted", "rounds"), "rounds"),
    Metric("EAGLE", "τ without the bonus token", ("accepted",), "rounds"),
    Metric("vLLM", "mean acceptance length", ("accepted", "drafts"), "drafts"),
    Metric("vLLM", "draft acceptance rate", ("accepted",), "drafted"),
    Metric("SGLang", "spec_accept_length", ("new tokens",), "rounds"),
    Metric("llama.cpp", "draft_n_accepted ÷ draft_n", ("accepted",), "drafted"),
    Metric("Hugging Face", "matches per candidate", ("accepted",), "drafts"),
)


def at_least(n: int) -> str:
    """The name of one of ``sums``."""
    return f"rounds that accepted ≥ {n}"


def by_place(depths: int) -> Iterator[tuple[int, Metric]]:
    """Those of each place of a draft, 0 … depths − 1, by their engine."""
    for n in range(depths):
        yield n, Metric("vLLM", f"acceptance at {n}", (at_least(n + 1),), "drafts")
    for n in range(depths):
        yield n, Metric("EAGLE", f"{n}-α", (at_least(n + 1),), at_least(n))


def sums(rounds: Frame, runs: Frame, depths: int) -> dict[str, int]:
    """Sum up what the metrics are made of.

    rounds      target passes after the prompt's
    drafts      rounds that drafted anything
    drafted     drafted nodes, accepted of them
    new tokens  those of the texts, the one that the prompt's pass gave included
    and the rounds that accepted at least 0 … depths nodes
    """
    accepted = rounds["accepted"]
    lengths = by_length(accepted.value_counts().to_dict())
    kept = (len(rounds), *reached(lengths, depths))
    return {
        "rounds": len(rounds),
        "drafts": int((rounds["nodes"] > 0).sum()),
        "drafted": int(rounds["nodes"].sum()),
        "accepted": int(accepted.sum()),
        "new tokens": int(runs["tokens"].sum()),
        **{at_least(n): count for n, count in enumerate(kept)},
    }


@declared("engine_metrics")
def engine_metrics(tables: Tables, by: By = "method") -> pd.DataFrame:
    """One line per drafting method and metric, as the engine or paper defines it.

    Engines count chains. For a tree ``drafted`` counts all nodes, so what divides by it is small
    however good the drafter is. What an end of text cuts off counts everywhere but in SGLang's.
    """
    rows = []
    for name, runs in tables.runs.groupby(by, observed=True):
        rounds = tables.rounds[tables.rounds[by] == name]
        # a drafter's depth may be anything; no place is deeper than a draft has nodes
        deepest = rounds[["depths", "nodes"]].min(axis=1).max() if len(rounds) else 0
        depths = int(deepest)
        found = sums(rounds, runs, depths)
        placed = [*((None, metric) for metric in METRICS), *by_place(depths)]
        for place, metric in placed if found["drafts"] else ():
            above, below = sum(found[each] for each in metric.above), found[metric.below]
            rows.append({
                by: name,
                "engine": metric.engine,
                "metric": metric.name,
                "place": place,
                "value": above / below if below else np.nan,
                "formula": metric.formula,
            })  # fmt: skip
    return pd.DataFrame(rows).astype({"place": "Int64"}) if rows else pd.DataFrame()
