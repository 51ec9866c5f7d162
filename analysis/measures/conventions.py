"""Acceptance by the names that papers and other engines give it, from one trace. Never torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.frames import By, Frame, declared
from analysis.measures.tables import Tables

PAPERS = "EAGLE, DDTree, TreeFlash, DART"
AT_LEAST = tuple(f"rounds that accepted ≥ {n}" for n in range(4))


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
    *(Metric("EAGLE", f"{n}-α", (AT_LEAST[n + 1],), AT_LEAST[n]) for n in range(3)),
    Metric("vLLM", "mean acceptance length", ("accepted", "drafts"), "drafts"),
    Metric("vLLM", "draft acceptance rate", ("accepted",), "drafted"),
    *(Metric("vLLM", f"acceptance at {n}", (AT_LEAST[n + 1],), "drafts") for n in range(3)),
    Metric("SGLang", "spec_accept_length", ("new tokens",), "rounds"),
    Metric("llama.cpp", "draft_n_accepted ÷ draft_n", ("accepted",), "drafted"),
    Metric("Hugging Face", "matches per candidate", ("accepted",), "drafts"),
)


def sums(rounds: Frame, runs: Frame) -> dict[str, int]:
    """Sum up what the metrics are made of.

    rounds      target passes after the prompt's
    drafts      rounds that drafted anything
    drafted     drafted nodes, accepted of them
    new tokens  those of the texts, the one that the prompt's pass gave included
    """
    accepted = rounds["accepted"]
    return {
        "rounds": len(rounds),
        "drafts": int((rounds["nodes"] > 0).sum()),
        "drafted": int(rounds["nodes"].sum()),
        "accepted": int(accepted.sum()),
        "new tokens": int(runs["tokens"].sum()),
        **{name: int((accepted >= n).sum()) for n, name in enumerate(AT_LEAST)},
    }


@declared("engine_metrics")
def engine_metrics(tables: Tables, by: By = "method") -> pd.DataFrame:
    """One line per drafting method and metric, as the engine or paper defines it.

    Engines count chains. For a tree ``drafted`` counts all nodes, so what divides by it is small
    however good the drafter is. What an end of text cuts off counts everywhere but in SGLang's.
    """
    rows = []
    for name, runs in tables.runs.groupby(by, observed=True):
        found = sums(tables.rounds[tables.rounds[by] == name], runs)
        for metric in METRICS if found["drafts"] else ():
            above, below = sum(found[each] for each in metric.above), found[metric.below]
            rows.append({
                by: name,
                "engine": metric.engine,
                "metric": metric.name,
                "value": above / below if below else np.nan,
                "formula": metric.formula,
            })  # fmt: skip
    return pd.DataFrame(rows)
