"""Tables of ``analysis`` as JSON records for the page's charts. pandas loads on first use.

Nothing is computed here: every share, mean and interval comes from ``analysis``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.studio.files import FileJson, plain_name
from core.errors import UserError
from core.traces.schema import Trace

if TYPE_CHECKING:
    import pandas as pd

MAX_EXAMPLES = 40  # of one cause
MAX_CELLS = 200_000  # of a table that a page sends to have it as a file

Records = list[dict[str, Any]]


def depth_records(traces: Mapping[str, Trace]) -> dict[str, Records]:
    """τ and everything per depth, of each run by its letter."""
    from analysis import acceptance
    from analysis.tables import Tables

    tables = Tables.of(dict(traces))
    return {
        "tau": records(acceptance.tau(tables, by="run", draws=500)),
        "depths": records(acceptance.per_depth(tables, by="run")),
    }


def calibration_records(traces: Mapping[str, Trace]) -> dict[str, Records]:
    """What the calibration view draws, of each run by its letter."""
    from analysis import acceptance, causes, reliability
    from analysis.findings import findings
    from analysis.tables import Tables

    tables = Tables.of(dict(traces))
    return depth_records(traces) | {
        "findings": [asdict(finding) for finding in findings(tables, by="run")],
        "lengths": records(acceptance.acceptance_histogram(tables, by="run")),
        "path": records(reliability.reliability(tables, "path", by="run")),
        "step": records(reliability.reliability(tables, "step", by="run")),
        "errors": records(reliability.calibration_error(tables, by="run")),
        "surrogate": records(reliability.surrogate(tables, by="run")),
        "surrogate_curve": records(reliability.surrogate_curve(tables, by="run")),
        "causes": records(causes.cause_shares(tables, "nodes", by="run")),
        "stops": records(causes.cause_shares(tables, "stops", by="run")),
        "sorts": records(causes.cause_shares(tables, "stops", "token_class", by="run")),
        "mismatches": records(causes.first_mismatches(tables, by="run")),
        "siblings": records(causes.after_sibling(tables, by="run")),
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
    """The curves of a result of ``calibrate``. Raises UserError for any other file."""
    from analysis import calibration

    try:
        table = calibration.read_table(file)
    except UserError as error:
        raise UserError(str(error).replace(str(file), "this file")) from None
    anchors = int(table.groupby(["seed", "number"]).ngroups) if "number" in table else len(table)
    about = f"{anchors} anchors, seeds {', '.join(map(str, sorted(set(table['seed']))[:8]))}"
    return {"curves": records(calibration.curves(table)), "about": about}


def records(frame: pd.DataFrame) -> Records:
    """A table as JSON: what is not finite is null."""
    columns = [str(name) for name in frame.columns]
    rows = zip(*(frame[name].tolist() for name in frame.columns), strict=True)
    return [dict(zip(columns, map(_plain, row), strict=True)) for row in rows]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    item = getattr(value, "item", None)
    return _plain(item()) if item else None  # pandas' own missing value


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
