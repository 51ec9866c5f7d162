"""Tables of ``analysis`` as JSON records for the page's charts. pandas loads on first use.

Nothing is computed here: every share, mean and interval comes from ``analysis``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.numbers import plural
from app.studio.files import FileJson, plain_name
from app.view.statistics import Records, figures_json, records
from core.errors import UserError
from core.traces.schema import Trace

MAX_EXAMPLES = 40  # of one cause
MAX_CELLS = 200_000  # of a table that a page sends to have it as a file


def calibration_records(traces: Mapping[str, Trace], names: Mapping[str, str]) -> dict[str, Any]:
    """What the calibration view shows, of each run by its letter: every figure of the catalogue."""
    from analysis import acceptance, causes, reliability
    from analysis.figures import FIGURES, shown_depths
    from analysis.findings import findings
    from analysis.tables import Tables

    tables = Tables.of(dict(traces))
    return {
        "names": dict(names),
        "findings": [asdict(finding) for finding in findings(tables, by="run")],
        "tau": records(acceptance.tau(tables, by="run", draws=500)),
        "depths": records(shown_depths(tables, "run")),
        "errors": records(reliability.calibration_error(tables, by="run")),
        "surrogate": records(reliability.surrogate(tables, by="run")),
        "siblings": records(causes.after_sibling(tables, by="run")),
        "figures": figures_json(tables, names, FIGURES),
    }


def cause_examples(trace: Trace, cause: object, unit: object, where: Mapping[str, Any]) -> Records:
    """Where one cause can be looked at. Raises UserError for what there is none of."""
    from analysis import causes
    from analysis.tables import Tables

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
    from analysis import calibration
    from analysis.charts import as_json
    from analysis.figures import PAGE

    try:
        table = calibration.read_table(file)
    except UserError as error:
        raise UserError(str(error).replace(str(file), "this file")) from None
    anchors = int(table.groupby(["seed", "number"]).ngroups) if "number" in table else len(table)
    about = f"{anchors} anchors, seeds {', '.join(map(str, sorted(set(table['seed']))[:8]))}"
    if "prompt" in table:
        about += f", {plural(len(set(table['prompt'])), 'text')}"
    drawn = calibration.figures(table, PAGE)
    return {"figures": {name: as_json(figure) for name, figure in drawn.items()}, "about": about}


def parquet_file(name: object, rows: object) -> FileJson:
    """A page's own records as a Parquet file. Raises UserError when they are no table."""
    import pandas as pd

    from app.export.tables import PARQUET, download_table

    table = rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else []
    if not table or sum(map(len, table)) > MAX_CELLS:
        raise UserError("this is no table that can be saved")
    columns = list(dict.fromkeys(str(key) for row in table for key in row))
    found = {c: pd.Series([_cell(row.get(c)) for row in table]) for c in columns}
    for column, values in found.items():
        if values.map(lambda value: isinstance(value, str)).any():
            found[column] = values.map(lambda value: None if value is None else str(value))
    return download_table(pd.DataFrame(found), plain_name(str(name)), PARQUET)


def _cell(value: object) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else None
