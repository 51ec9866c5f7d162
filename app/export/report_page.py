"""A report as one HTML page that needs nothing else, and its tables as files."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.frames import plain_rows
from app.page_files import PLOTLY, css, enclosed
from app.report.shown import ReportPart, as_html
from core.files import replacing

if TYPE_CHECKING:
    from analysis.measures.tables import Tables

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Draftscope report</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}</style></head><body>
<header class="ds-page-head"><h1>Draftscope</h1><p>report</p>
<button type="button" id="ds-theme" aria-label="Dark or light"></button></header>
<main class="ds-scope ds-report">
{first}
<section class="ds-card" aria-label="Figures"><div class="ds-figures"></div></section>
{sections}
{notes}
</main>
<script type="application/json" id="ds-report">{figures}</script>
<script>{plotly}</script>
<script>{code}</script></body></html>
"""


def html_page(
    tables: Tables, sections: Iterable[ReportPart], first: Iterable[str], notes: Iterable[str]
) -> str:
    """A report's sections and all figures of the catalogue, drawn as the studio draws them, with
    sentences before and after them."""
    from analysis.charts.chart import as_json
    from analysis.charts.figures import FIGURES, Style

    methods = list(dict.fromkeys(tables.labels.values()))
    style = Style("page", names={method: method for method in methods})
    figures = json.dumps([as_json(draw(tables, style)) for draw in FIGURES.values()])
    return _PAGE.format(
        style=css(("offline.css",)), code=enclosed("report.js"),
        plotly=PLOTLY.read_text(encoding="utf-8"),
        sections=as_html(sections, methods),
        first=_paragraphs(first), notes=_paragraphs(notes),
        figures=figures.replace("<", "\\u003c"),  # no text can end the script element
    )  # fmt: skip


def _paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{html.escape(each)}</p>" for each in sentences)


def write_table(frame: Any, path: Path) -> None:
    """One table as CSV, Parquet or JSON, by the file's ending; the latter two document its
    columns."""
    form = path.suffix[1:]
    with replacing(path) as file:
        if form == "json":
            whole = {**frame.attrs.get("about", {}), "rows": plain_rows(frame)}
            file.write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")
        else:
            from analysis.table_files import table_bytes

            file.write_bytes(table_bytes(frame, form))
