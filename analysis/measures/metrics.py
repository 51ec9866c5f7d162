"""All tables of a report by name, in the order one reads them. Never imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pandas as pd

from analysis.frames import Frame, declared_columns
from analysis.measures import (
    acceptance,
    begins,
    causes,
    checkpoints,
    comparison,
    conventions,
    findings,
    oracle,
    places,
    reliability,
)
from analysis.measures.tables import Tables
from core.progress import Steps, silent

TABLES: Mapping[str, Callable[[Tables], pd.DataFrame]] = {
    "runs": lambda t: t.runs,
    "tau": acceptance.tau,
    "paired": comparison.compare,
    "same-begins": begins.begins,
    "checkpoints-by-depth": checkpoints.by_depth,
    "checkpoints-stretches": checkpoints.stretches,
    "per-depth": acceptance.per_depth,
    "per-depth-by-run": lambda t: acceptance.per_depth(t, by="run"),
    "engine-metrics": conventions.engine_metrics,
    "acceptance-histogram": acceptance.acceptance_histogram,
    "stages": acceptance.stages,
    "causes-by-depth": causes.cause_shares,
    "causes-by-token": lambda t: causes.cause_shares(t, over="token_class"),
    "stops-by-depth": lambda t: causes.cause_shares(t, "stops"),
    "stops-by-token": lambda t: causes.cause_shares(t, "stops", "token_class"),
    "findings": findings.table,
    "by-place": places.by_place,
    "by-token-class": places.by_kind,
    "by-script": lambda t: places.by_kind(t, "script"),
    "by-tag": lambda t: places.by_kind(t, "tag"),
    "oracle": oracle.oracle,
    "oracle-by-round": oracle.oracle_rounds,
    "first-mismatches": causes.first_mismatches,
    "after-sibling": causes.after_sibling,
    "after-sibling-by-depth": lambda t: causes.after_sibling(t, per_depth=True),
    "calibration-error": reliability.calibration_error,
    "calibration-error-by-depth": lambda t: reliability.calibration_error(t, per_depth=True),
    "reliability-path": reliability.reliability,
    "reliability-step": lambda t: reliability.reliability(t, "step"),
    "reliability-path-width": lambda t: reliability.reliability(t, spacing="width"),
    "reliability-step-width": lambda t: reliability.reliability(t, "step", "width"),
    "surrogate": reliability.surrogate,
    "surrogate-curve": reliability.surrogate_curve,
    "rounds": lambda t: t.rounds,
    "positions": lambda t: t.positions,
    "nodes": lambda t: t.nodes,
}


class Report(Mapping[str, pd.DataFrame]):
    """Every table of ``TABLES``, each made when it is first read.

    Nothing to measure gives an empty table, never an error.
    """

    def __init__(self, tables: Tables, at: Steps = silent):
        """``at`` hears before each table how many are made, and its name."""
        self._tables, self._made, self._at = tables, dict[str, pd.DataFrame](), at

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._made:
            self._at(len(self._made), name)
            self._made[name] = TABLES[name](self._tables)
        return self._made[name]

    def pieces(self, name: str) -> Iterator[Frame]:
        """A table in pieces with few enough lines to be in memory, in order."""
        if name in ("positions", "nodes"):
            yield from self._tables.each(name, list(declared_columns(name))[2:])
        else:
            yield self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)
