"""The measurements of runs as JSON for the page: tables and figures of ``analysis``.

Nothing is computed here. pandas loads on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from analysis.frames import plain_rows

if TYPE_CHECKING:
    import pandas as pd

    from analysis.measures.tables import Tables

DEPTHS = ("tvd-by-depth", "acceptance-by-depth", "coverage-by-depth")  # of the view Stats

Records = list[dict[str, Any]]


def depth_records(tables: Tables, names: Mapping[str, str]) -> dict[str, Any]:
    """τ and everything per depth, of each run by its letter; ``names``: what figures call each."""
    from analysis.charts.figures import shown_depths
    from analysis.measures import acceptance

    return {
        "tau": records(acceptance.tau(tables, by="run")),
        "depths": records(shown_depths(tables, "run")),
        "figures": figures_json(tables, names, DEPTHS),
    }


def figures_json(tables: Tables, names: Mapping[str, str], shown: Iterable[str]) -> dict[str, Any]:
    """Figures of the catalogue as the page draws them, a series for every run."""
    from analysis.charts.chart import as_json
    from analysis.charts.figures import FIGURES, Style

    style = Style("page", "run", names)
    return {name: as_json(FIGURES[name](tables, style)) for name in shown}


def numbers_only(figure: dict[str, Any]) -> dict[str, Any]:
    """The part of a figure that its table needs, for a page that has no script that draws."""
    data = [{"meta": trace["meta"]} for trace in figure["data"] if "meta" in trace]
    return {"data": data, "layout": {"meta": figure["layout"]["meta"]}}


def records(frame: pd.DataFrame) -> Records:
    """A table's lines as JSON, numbers at six decimals."""
    return [
        {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in row.items()
        }
        for row in plain_rows(frame)
    ]
