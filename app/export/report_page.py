"""A report as one HTML page that needs nothing else, and its tables as files."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.numbers import number
from analysis.palette import SERIES, letter, variables
from app.terminal import one_line

if TYPE_CHECKING:
    from analysis.tables import Tables

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Draftscope report</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; --ink: #1f2328; --paper: #ffffff; --line: #e3e6ea }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6e6e6; --paper: #14171c; --line: #3a3f47 }} }}
body {{ font: 15px system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 1.5rem auto; max-width: 1400px; padding: 0 1rem }}
.figures {{ display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)) }}
.figures > div {{ height: 420px; min-width: 0 }}
.scroll {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line) }}
th:first-child, td:first-child {{ text-align: left }}
:root {{ {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
.sign {{ font: 700 .75em system-ui; padding: .1em .4em; border-radius: .3em; color: var(--paper) }}
</style></head><body>
<h1>Draftscope report</h1>
<div class="scroll">{tau}</div>
{notes}
<div class="figures">{figures}</div>
<script>
const looks = {looks};
const dark = matchMedia("(prefers-color-scheme: dark)");
function dress() {{
  for (const plot of document.querySelectorAll(".plotly-graph-div"))
    Plotly.relayout(plot, looks[dark.matches ? "dark" : "light"]);
}}
dress();
dark.addEventListener("change", dress);
</script></body></html>
"""
_COLUMNS = {"method": "", "tau": "τ", "low": "95 % from", "high": "to", "over": "drawn over",
            "texts": "texts", "rounds": "rounds"}  # fmt: skip


def html_page(tables: Tables, notes: Iterable[str]) -> str:
    """All figures in one page; plotly's script is in it once."""
    from analysis.acceptance import tau
    from analysis.figures import FIGURES, colours

    figures = [
        draw(tables, "light").to_html(
            full_html=False, include_plotlyjs=n == 0, config={"responsive": True},
            default_height="420px",
        )
        for n, draw in enumerate(FIGURES.values())
    ]  # fmt: skip
    return _PAGE.format(
        light=variables("light"),
        dark=variables("dark"),
        tau=_html_table(tau(tables).to_dict("records")),
        notes="".join(f"<p>{html.escape(note)}</p>" for note in notes),
        figures="".join(f"<div>{figure}</div>" for figure in figures),
        looks=json.dumps({theme: _relayout(colours(theme)) for theme in ("light", "dark")}),
    )


def _relayout(colours: Mapping[str, str]) -> dict[str, str]:
    """plotly.py joins names by "_", plotly.js by "."."""
    axes = ("font", "xaxi", "yaxi")
    return {k.replace("_", ".", 1) if k[:4] in axes else k: v for k, v in colours.items()}


def _html_table(rows: Iterable[Mapping[Any, Any]]) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title in _COLUMNS.values())
    body = "".join(
        f"<tr><td>{_sign(at)} {html.escape(_cell(row['method']))}</td>"
        + "".join(f"<td>{html.escape(_cell(row[name]))}</td>" for name in [*_COLUMNS][1:])
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _sign(at: int) -> str:
    """The letter and the colour that the figures give to line ``at``."""
    slot = at % len(SERIES["light"]) + 1
    return f'<i class="sign" style="background: var(--ds-series-{slot})">{letter(at)}</i>'


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
