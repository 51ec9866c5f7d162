"""A report as one HTML page that needs nothing else, and its tables as files."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.charts.palette import SERIES, letter
from analysis.numbers import number
from app.page_files import PLOTLY, css, joined
from app.terminal import one_line

if TYPE_CHECKING:
    from analysis.measures.tables import Tables

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Draftscope report</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}</style></head><body>
<header class="ds-page-head"><h1>Draftscope</h1><p>report</p>
<button type="button" id="ds-theme" aria-label="Dark or light"></button></header>
<main class="ds-scope ds-report">
<div class="ds-table">{tau}</div>
{notes}
<section class="ds-card" aria-label="Figures"><div class="ds-figures"></div></section>
</main>
<script type="application/json" id="ds-report">{figures}</script>
<script>{plotly}</script>
<script>{code}</script></body></html>
"""
_COLUMNS = {"method": "", "tau": "τ", "low": "95 % from", "high": "to", "over": "drawn over",
            "texts": "texts", "rounds": "rounds"}  # fmt: skip


def html_page(tables: Tables, notes: Iterable[str]) -> str:
    """All figures of the catalogue in one page, drawn as the studio draws them."""
    from analysis.charts.chart import as_json
    from analysis.charts.figures import FIGURES, Style
    from analysis.measures.acceptance import tau

    rows = tau(tables).to_dict("records")
    style = Style("page", names={row["method"]: row["method"] for row in rows})
    figures = json.dumps([as_json(draw(tables, style)) for draw in FIGURES.values()])
    return _PAGE.format(
        style=css(("offline.css",)), code=joined("report.js"),
        plotly=PLOTLY.read_text(encoding="utf-8"),
        tau=_html_table(rows),
        notes="".join(f"<p>{html.escape(note)}</p>" for note in notes),
        figures=figures.replace("<", "\\u003c"),  # no text can end the script element
    )  # fmt: skip


def _html_table(rows: Iterable[Mapping[Any, Any]]) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title in _COLUMNS.values())
    body = "".join(
        f"<tr><th>{_sign(at)} {html.escape(_cell(row['method']))}</th>"
        + "".join(f"<td>{html.escape(_cell(row[name]))}</td>" for name in [*_COLUMNS][1:])
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _sign(at: int) -> str:
    """The letter and the colour that the figures give to line ``at``."""
    slot = at % len(SERIES["light"]) + 1
    return f'<i class="ds-letter" style="background: var(--ds-series-{slot})">{letter(at)}</i>'


def _cell(value: object) -> str:
    return number(value, 3) if isinstance(value, float) else one_line(str(value), 60)


def write_table(frame: Any, path: Path) -> None:
    """One table as CSV, Parquet or JSON, by the file's ending; the latter two document its
    columns."""
    form = path.suffix[1:]
    if form == "parquet":
        frame.to_parquet(path, index=False)
    elif form == "json":
        rows = json.loads(frame.to_json(orient="records", double_precision=15))
        whole = {**frame.attrs.get("about", {}), "rows": rows}
        path.write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")
    else:
        from app.export.tables import table_csv

        path.write_bytes(table_csv(frame))
