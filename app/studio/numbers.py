"""The numbers under the charts: tables of ``analysis`` as plain records. pandas loads on first use.

Nothing is defined here: every share, mean and interval comes from ``analysis``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.traces.schema import Trace

if TYPE_CHECKING:
    import pandas as pd

EXAMPLES = 40  # of one cause
MOST_CELLS = 200_000  # of a table that a page sends to have it as a file


def measured(traces: Mapping[str, Trace]) -> dict[str, Any]:
    """τ and everything per depth, of each run by its letter."""
    from analysis import online
    from analysis.tables import Tables

    tables = Tables.of(dict(traces))
    return {
        "tau": records(online.tau(tables, by="run", draws=500)),
        "depths": records(online.per_depth(tables, by="run")),
    }


def calibrated(traces: Mapping[str, Trace]) -> dict[str, Any]:
    """What the calibration view draws, of each run by its letter."""
    from analysis import deaths, online, reliability
    from analysis.tables import Tables

    tables = Tables.of(dict(traces))
    return measured(traces) | {
        "lengths": records(online.acceptance_histogram(tables, by="run")),
        "path": records(reliability.reliability(tables, "path", by="run")),
        "step": records(reliability.reliability(tables, "step", by="run")),
        "errors": records(reliability.calibration_error(tables, by="run")),
        "surrogate": records(reliability.surrogate(tables, by="run")),
        "surrogate_curve": records(reliability.surrogate_curve(tables, by="run")),
        "causes": records(deaths.causes(tables, "nodes", by="run")),
        "stops": records(deaths.causes(tables, "stops", by="run")),
        "sorts": records(deaths.causes(tables, "stops", "token_class", by="run")),
        "mismatches": records(deaths.first_mismatches(tables, by="run")),
        "siblings": records(deaths.after_sibling(tables, by="run")),
    }


def examples(trace: Trace, cause: str, unit: str, where: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where one cause can be looked at. Raises ValueError for what there is none of."""
    from analysis import deaths
    from analysis.tables import Tables

    assert unit in ("nodes", "stops")
    found = deaths.examples(Tables.of({"A": trace}), cause, unit, EXAMPLES, **where)
    return records(found[["round", "row", "depth", "token_class"]])


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
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


def as_parquet(name: object, rows: object) -> dict[str, str]:
    """A page's own records as a Parquet file. Raises UserError when they are no table."""
    import pandas as pd

    from app.export.tables import PARQUET, download_table
    from app.studio.upload import plain_name

    good = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    if not good or not rows or sum(map(len, rows)) > MOST_CELLS:
        raise UserError("this is no table that can be saved")
    columns = list(dict.fromkeys(str(key) for row in rows for key in row))
    found = {c: pd.Series([_cell(row.get(c)) for row in rows]) for c in columns}
    for column, values in found.items():
        if values.map(lambda value: isinstance(value, str)).any():
            found[column] = values.map(lambda value: None if value is None else str(value))
    return download_table(pd.DataFrame(found), plain_name(str(name)), PARQUET)


def _cell(value: object) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else None


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
