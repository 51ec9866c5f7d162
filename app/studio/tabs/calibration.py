"""Calibration: TVD, coverage, reliability and causes of runs on view, with examples.

Nothing is computed here: every share, mean and interval comes from ``analysis``, as JSON for the
page. pandas loads on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.numbers import plural
from app.studio.background import Diagnosing
from app.studio.components import Studio, Tab, for_upload, view
from app.studio.questions import OfRun, OfRuns, Route, Whole
from app.studio.routes import Routes
from app.view.statistics import Records, figures_json, records
from core.errors import UserError
from core.traces.schema import Trace

MAX_EXAMPLES = 40  # of one cause


def build(studio: Studio) -> None:
    diagnosing = Diagnosing(studio.runs, studio.methods)
    opens = {"open": for_upload(calibrate_result)}
    view("calibration", "ds-k-scope", routes(studio.routes) | diagnosing.routes() | opens)


TAB = Tab("calibration", "Calibration", build)


class Find(OfRun, frozen=True):
    """Examples of a cause in one run, of these places alone."""

    cause: str | None = None
    unit: str | None = None
    depth: Whole | str | None = None
    token_class: Whole | str | None = None


def routes(of: Routes) -> dict[str, Route[Any]]:
    """The common ones, with the figures of runs and examples of causes."""

    def examples(question: Find) -> Any:
        asked = {"depth": question.depth, "token_class": question.token_class}
        where = {name: value for name, value in asked.items() if value is not None}
        trace = of.run(question).trace()
        return {"examples": cause_examples(trace, question.cause, question.unit, where)}

    return of.of_runs() | {
        "calibrate": Route(OfRuns, lambda q: calibration_records(of.traces(q), of.names(q))),
        "find": Route(Find, examples),
    }


def calibration_records(traces: Mapping[str, Trace], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the calibration view of each run by its letter: every figure of the catalogue."""
    from analysis.charts.figures import FIGURES, shown_depths
    from analysis.measures import acceptance, causes, reliability
    from analysis.measures.findings import findings
    from analysis.measures.tables import Tables

    tables = Tables.of(dict(traces))
    return {
        "names": dict(names),
        "findings": [asdict(finding) for finding in findings(tables, by="run")],
        "tau": records(acceptance.tau(tables, by="run")),
        "depths": records(shown_depths(tables, "run")),
        "errors": records(reliability.calibration_error(tables, by="run")),
        "surrogate": records(reliability.surrogate(tables, by="run")),
        "siblings": records(causes.after_sibling(tables, by="run")),
        "figures": figures_json(tables, names, FIGURES),
    }


def cause_examples(trace: Trace, cause: object, unit: object, where: Mapping[str, Any]) -> Records:
    """Where one cause can be looked at. Raises UserError for what there is none of."""
    from analysis.measures import causes
    from analysis.measures.tables import Tables

    if not isinstance(cause, str) or unit not in ("nodes", "stops"):
        raise UserError("there is no such cause")
    try:
        tables = Tables.of({"A": trace})
        found = causes.examples(tables, cause, unit, MAX_EXAMPLES, **where)
    except ValueError:
        raise UserError("there is no such cause") from None
    found = found.assign(index=found["round"] - 1)
    return records(found.filter(["round", "index", "row", "depth", "token_class"]))


def calibrate_result(file: Path) -> dict[str, Any]:
    """The figures of a result of ``calibrate``. Raises UserError for any other file."""
    from analysis.charts.chart import as_json
    from analysis.charts.figures import PAGE
    from analysis.collected import calibration

    table = calibration.read_table(file)
    anchors = int(table.groupby(["seed", "number"]).ngroups) if "number" in table else len(table)
    about = f"{anchors} anchors, seeds {', '.join(map(str, sorted(set(table['seed']))[:8]))}"
    if "prompt" in table:
        about += f", {plural(len(set(table['prompt'])), 'text')}"
    drawn = calibration.figures(table, PAGE)
    return {"figures": {name: as_json(figure) for name, figure in drawn.items()}, "about": about}
