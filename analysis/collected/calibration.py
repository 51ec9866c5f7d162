"""Calibration tables: what ``calibrate`` measured, its curves and figures. Never imports torch.

A line of the table is one anchor, depth and series, averaged over the continuations that reach it:

    number, seed, prompt, position  the anchor
    series          a drafter, by its name, or "marginal", the Monte-Carlo reference: the mean of p
                    over the continuations; "marginal, held out": over the others of each
    depth           1 … L
    continuations   how many of the N reach this depth (a text may end)
    tvd             mean ½ Σ_v |q − p(v | true prefix)|
    coverage_K      mean C_K, p of the K best tokens
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.collected.many_texts import HELD_OUT, MARGINAL, departing, several_texts
from analysis.frames import COVERAGE
from analysis.table_files import (
    CSV,
    PARQUET,
    check_columns,
    open_parquet,
    reading_table,
    table_bytes,
)
from core.errors import UserError
from core.files import replacing
from core.stats import FEW_SEEN, FEW_UNITS, TOO_FEW, Z

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from analysis.charts.figures import Style

BETWEEN = (
    "The marginal is the mean of p over the very continuations that it is compared with; held out, "
    "over the others of each. The most that a q which knows only the context can cover lies "
    "between the two, on average."
)
_COLUMNS = ("seed", "series", "depth", "continuations", "tvd", *COVERAGE)
_OPTIONAL = ("number", "prompt", "position")
_WHOLE = ("seed", "depth", "continuations", *_OPTIONAL)
MAX_ROWS = 1 << 20  # 4,096 anchors at 64 depths of a few series are some 1,000,000
MAX_CSV = 256 << 20  # bytes
MAX_SERIES = 64
MAX_DRAWN = 1 << 15  # texts × depths × series whose band is over texts: a file may hold a million
TABLE, CURVES = "calibration", "curves"


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """Means over anchors by series and depth, in the columns the figures read.

    ``observed`` counts anchors. ``tvd_low`` and ``tvd_high`` are a 95 % interval, as in
    ``acceptance.per_depth``: the mean ± 1.96 standard errors, within [0, 1], anchors taken as
    independent. ``…_sd`` is the paper's band, the standard deviation over the seeds' means. NaN
    of fewer than ``FEW_SEEN`` anchors, or of one seed.
    """
    by = ["series", "depth"]
    measured = ["tvd", *COVERAGE]
    grouped = table.groupby(by, sort=False)
    means = pd.DataFrame(grouped[measured].mean())
    of_seeds = pd.DataFrame(table.groupby([*by, "seed"], sort=False)[measured].mean())
    spread = pd.DataFrame(of_seeds.groupby(by, sort=False).std(ddof=1))
    error = Z * grouped["tvd"].sem().where(grouped.size() >= FEW_SEEN)
    found = means.assign(
        observed=grouped.size(),
        tvd_sd=spread["tvd"],
        tvd_low=(means["tvd"] - error).clip(0, 1),
        tvd_high=(means["tvd"] + error).clip(0, 1),
        coverage_1_sd=spread["coverage_1"],
    )
    columns = ["observed", "tvd", "tvd_sd", "tvd_low", "tvd_high", "coverage_1_sd", *COVERAGE]
    return found[columns].reset_index()


def figures(table: pd.DataFrame, style: Style) -> dict[str, go.Figure]:
    """Both figures of a table, by their names in the catalogue. The band of TVD is over texts where
    there are several, else over anchors."""
    from analysis.charts.figures import coverage_by_depth, tvd_by_depth

    drawn = curves(table)
    own = MARGINAL in set(table["series"])  # a text that was kept is followed alone
    where = "the target's own continuations" if own else "the texts that were kept"
    far = f"½ Σ |q − p| along {where}: mean over anchors"
    few = "prompt" in table and table.groupby(["series", "depth", "prompt"]).ngroups <= MAX_DRAWN
    texts, bands = several_texts(table) if few else None, drawn
    within = " and its 95 % interval."
    if texts is not None:
        count = int(texts["texts"].to_numpy().max())
        known = f" and its 95 % interval across {count} texts."
        within = known if count >= FEW_UNITS else f". {TOO_FEW}"
        bands = texts.rename(columns={"low": "tvd_low", "high": "tvd_high"})
        bands = bands.merge(drawn[["series", "depth", "observed"]])
        bands["words"] = departing(texts, "tvd")
    held = f"How much of p the K best tokens hold, along {where}."
    if HELD_OUT in set(table["series"]):
        held += f" {BETWEEN}"
    return {
        "tvd-by-depth": tvd_by_depth(bands, style, says=far + within, band=True),
        "coverage-by-depth": coverage_by_depth(drawn, style, says=held),
    }


def write_tables(table: pd.DataFrame, folder: Path) -> None:
    """The table and its curves as Parquet and CSV; both figures as pages that need no net."""
    from analysis.charts.figures import Style

    for name, frame in ((TABLE, table), (CURVES, curves(table))):
        for form in (PARQUET, CSV):
            with replacing(folder / f"{name}.{form}") as file:
                file.write_bytes(table_bytes(frame, form))
    for name, figure in figures(table, Style("light")).items():
        short = name.partition("-")[0]
        with replacing(folder / f"{short}.html") as file:
            figure.write_html(file, include_plotlyjs=True)


def read_table(path: Path) -> pd.DataFrame:
    """The table of a folder, or of its Parquet or CSV file.

    Raises UserError when there is none, it is another table, or it is too large: sizes and column
    types are looked at before any value is read.
    """
    file = path / f"{TABLE}.parquet" if path.is_dir() else path
    with reading_table(file):
        table = _read_csv(file) if file.suffix == ".csv" else _read_parquet(file)
    if not len(table):
        raise UserError(f"{file} is not a calibration table: it lacks rows")
    return _typed(table, file)


def _read_parquet(file: Path) -> pd.DataFrame:
    """The columns of the table. A small Parquet file may unpack to any number of rows."""
    with open_parquet(file) as found:
        wanted = _columns(found.schema_arrow.names, found.metadata.num_rows, file)
        table = found.read(columns=wanted)
        return table.to_pandas(ignore_metadata=True)  # which may name other columns


def _read_csv(file: Path) -> pd.DataFrame:
    if file.stat().st_size > MAX_CSV:
        raise UserError(f"{file} is larger than {MAX_CSV >> 20} MB")
    table = pd.read_csv(file, nrows=MAX_ROWS + 1)
    return pd.DataFrame(table[_columns(table.columns, len(table), file)])


def _columns(found: Iterable[object], rows: int, file: Path) -> list[str]:
    """The columns that are read of a file; others are ignored. Raises UserError where one is
    missing, or there are too many rows."""
    names = [str(name) for name in found]
    check_columns(file, names, _COLUMNS, "a calibration table")
    if rows > MAX_ROWS:
        raise UserError(f"{file} has {rows:,} rows; a calibration table has up to {MAX_ROWS:,}")
    return [name for name in names if name in _COLUMNS or name in _OPTIONAL]


def _typed(table: pd.DataFrame, file: Path) -> pd.DataFrame:
    """The table with numbers where numbers belong. Raises UserError for anything else."""
    try:
        for name in table.columns:
            if name == "series":
                if not all(isinstance(value, str) for value in table[name]):
                    raise ValueError(name)
                continue
            numbers: Any = pd.to_numeric(table[name], errors="raise")
            values = numbers.astype(float)
            if values.isin([np.inf, -np.inf]).any() or (name in _WHOLE and values.isna().any()):
                raise ValueError(name)
            if name in _WHOLE:
                if not values.between(0, 1 << 31).all() or (values % 1 != 0).any():
                    raise ValueError(name)
                values = values.astype(int)
            table = table.assign(**{name: values})
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        raise UserError(f"{file}: the column {name} holds values of another kind") from None
    if len(set(table["series"])) > MAX_SERIES:
        raise UserError(f"{file} names more than {MAX_SERIES} series")
    return table
