"""Calibration tables: what ``calibrate`` measured, its curves and figures. Never imports torch.

A line of the table is one anchor, depth and series, averaged over the continuations that reach it:

    number, seed, prompt, position  the anchor
    series          a drafter, by its name, or "marginal", the Monte-Carlo reference
    depth           1 … L
    continuations   how many of the N reach this depth (a text may end)
    tvd             mean ½ Σ_v |q − p(v | true prefix)|
    coverage_K      mean C_K, p of the K best tokens
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.tables import COVERAGE
from core.errors import UserError
from core.stats import Z

MARGINAL = "marginal"
_COLUMNS = ("seed", "series", "depth", "continuations", "tvd", *COVERAGE)
TABLE, CURVES = "calibration", "curves"


def curves(table: pd.DataFrame) -> pd.DataFrame:
    """Means over anchors by series and depth, in the columns the figures read.

    ``observed`` counts anchors. ``tvd_low`` and ``tvd_high`` are a 95 % interval, as in
    ``acceptance.per_depth``: the mean ± 1.96 standard errors, within [0, 1], anchors taken as
    independent. ``…_sd`` is the paper's band, the standard deviation over the seeds' means. NaN
    where there is but one anchor, or one seed.
    """
    by = ["series", "depth"]
    measured = ["tvd", *COVERAGE]
    grouped = table.groupby(by, sort=False)
    means = pd.DataFrame(grouped[measured].mean())
    of_seeds = pd.DataFrame(table.groupby([*by, "seed"], sort=False)[measured].mean())
    spread = pd.DataFrame(of_seeds.groupby(by, sort=False).std(ddof=1))
    error = Z * grouped["tvd"].sem()
    found = means.assign(
        observed=grouped.size(),
        tvd_sd=spread["tvd"],
        tvd_low=(means["tvd"] - error).clip(0, 1),
        tvd_high=(means["tvd"] + error).clip(0, 1),
        coverage_1_sd=spread["coverage_1"],
    )
    columns = ["observed", "tvd", "tvd_sd", "tvd_low", "tvd_high", "coverage_1_sd", *COVERAGE]
    return found[columns].reset_index()


def write_tables(table: pd.DataFrame, folder: Path) -> None:
    """The table and its curves as Parquet and CSV; both figures as pages that need no net."""
    from analysis import figures

    drawn = curves(table)
    for name, frame in ((TABLE, table), (CURVES, drawn)):
        frame.to_parquet(folder / f"{name}.parquet", index=False)
        frame.to_csv(folder / f"{name}.csv", index=False)
    for name, figure in (
        ("tvd", figures.tvd_by_depth(drawn, "light")),
        ("coverage", figures.coverage_by_depth(drawn, "light")),
    ):
        figure.write_html(folder / f"{name}.html", include_plotlyjs=True)


def read_table(path: Path) -> pd.DataFrame:
    """The table of a folder, or of its Parquet or CSV file.

    Raises UserError when there is none or it is another table.
    """
    file = path / f"{TABLE}.parquet" if path.is_dir() else path
    try:
        table = pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)
    except FileNotFoundError:
        raise UserError(f"there is no file {file}") from None
    except Exception as error:  # pandas and pyarrow raise anything on damaged files
        raise UserError(f"{file} cannot be read as a table: {type(error).__name__}") from None
    missing = [name for name in _COLUMNS if name not in table]
    if missing or not len(table):
        raise UserError(f"{file} is no calibration table: it lacks {', '.join(missing) or 'rows'}")
    return table
