"""Sections as text: every number in its declared format, for the terminal and for the page."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from analysis.charts.palette import letter, series_colour
from analysis.frames import Column, declared_columns
from analysis.numbers import interval, number, share, signed
from app.report.sections import Section
from app.terminal import FittingTable, bar, one_line
from core.rounds.causes import Cause

if TYPE_CHECKING:
    from analysis.measures.tables import Tables

# Formats that columns.toml may name. Of one that ends with "low" the interval is shown.
FORMATS: Mapping[str, Callable[[Any], str]] = {
    "0.0": lambda value: number(value, 1),
    "0.000": lambda value: number(value, 3),
    "+0.00": signed,
    "+0.000": lambda value: signed(value, 3),
    "%": lambda value: share(value, 0),
    "0.0%": share,
    "cause": lambda value: Cause(value).short,
    "bar": lambda value: bar(value, 1.0),
}


@dataclass(frozen=True)
class TextTable(FittingTable):
    """A table of texts for the terminal and the page, with a title, which is not printed.
    ``signed``: lines begin with a method."""

    title: str = ""
    signed: bool = False

    @property
    def words(self) -> frozenset[int]:
        """Numbers of the columns that hold words."""
        return frozenset(at for at, head in enumerate(self.heads) if head in self.left)


@dataclass(frozen=True)
class ReportPart:
    """A title, and the sentences and tables below it."""

    title: str
    body: Sequence[str | TextTable]


def parts(
    sections: Iterable[Section], frames: Mapping[str, Any], tables: Tables
) -> Iterator[ReportPart]:
    """The sections that have something to show, of tables by name."""
    for section in sections:
        frame = frames[section.table]
        shown = section.keep(frame) if len(frame) else frame
        below = list(section.below(tables, frame))
        if not section.each:
            body = list(_body(section, shown, frame.attrs["declared"])) if len(shown) else []
            if body or below:
                yield ReportPart(section.title, [*body, *below])
            continue
        for key, some in shown.groupby(list(section.each), observed=True, sort=False):
            title = f"{section.title}: {one_line(' against '.join(map(str, key)), 120)}"
            yield ReportPart(title, list(_body(section, some, frame.attrs["declared"])))


def _body(section: Section, frame: Any, declared: str) -> Iterator[str | TextTable]:
    if section.above:
        yield section.above
    if section.words:
        yield from (section.words.format_map(row) for row in frame.to_dict("records"))
    else:
        yield _grid(section, frame, declared_columns(declared))


def _grid(section: Section, frame: Any, own: Mapping[str, Column]) -> TextTable:
    names = section.columns.split()
    heads, rows, left = list[str](), list[list[str]](), list[str]()
    lines: Mapping[Any, list[Any]] | None = None  # entries of the index that share a line
    if section.across:
        keys = [name for name in names if name != "*"]
        lines = dict(frame.groupby(keys, observed=True, sort=False).groups)
    for name in names:
        if lines is not None and name == "*":
            for value, cells in _across(section, frame, lines, own):
                heads.append(value)
                rows.append(cells)
            continue
        name, _, form = name.partition(":")
        values = frame if lines is None else frame.loc[[at[0] for at in lines.values()]]
        words = not form and values[name].dtype.kind not in "biuf"
        heads.append(" " if form else _declared(name, own).title or "")
        rows.append(_cells(values, name, form or _declared(name, own).format))
        left += heads[-1:] if words or form == "bar" else []
    return TextTable(heads, [*zip(*rows, strict=True)], left, signed=names[0] == "method")


def _across(
    section: Section, frame: Any, lines: Mapping[Any, Any], own: Mapping[str, Column]
) -> Iterator[tuple[str, list[str]]]:
    """A column per value of ``across``: its title and its cells."""
    first, *more = section.cell.split()
    over = frame[section.across]
    known = over.cat.categories if over.dtype.name == "category" else over.unique()
    form = FORMATS.get(_declared(section.across, own).format, lambda value: one_line(value, 60))
    for value in known:
        some = frame[over == value]
        if some.empty and section.across == "cause":
            continue
        cells = []
        for entries in lines.values():
            found = some.loc[some.index.isin(entries)]
            assert len(found) < 2, f"{section.title}: a cell has one line"
            inside = [_cells(found, name, "%")[0] for name in more if len(found)]
            cell = _cells(found, first, "")[0] if len(found) else section.absent
            cells.append(" ".join([cell, *(f"({each})" for each in inside)]))
        yield form(value), cells


def _declared(name: str, own: Mapping[str, Column]) -> Column:
    """Title and format of a column: the table's own, the shared ones, or by its name."""
    column, shared = own.get(name, Column()), declared_columns("shown").get(name, Column())
    title = column.title if column.title is not None else shared.title
    if title is None:
        title = "95 %" if name.endswith("low") else name.replace("_", " ")
    return Column(title=title, format=column.format or shared.format)


def _cells(frame: Any, name: str, form: str) -> list[str]:
    values = frame[name].tolist()
    if name.endswith("low"):
        highs = frame[f"{name.removesuffix('low')}high"].tolist()
        return [interval(*both, sign=form == "+") for both in zip(values, highs, strict=True)]
    if form == "bar":
        return [bar(value, max(values)) for value in values]
    if form in FORMATS:
        return [FORMATS[form](value) for value in values]
    kind = frame[name].dtype.kind
    return [number(v) if kind == "f" else one_line(str(v), 100) for v in values]


# ── the terminal ─────────────────────────────────────────────────────────────────────────────────


def show(out: Console, parts: Iterable[ReportPart]) -> None:
    """Print parts, a blank line after each."""
    for part in parts:
        out.print(part.title, style="bold", soft_wrap=True)
        for each in part.body:
            if isinstance(each, str):
                out.print(one_line(each, 1000), soft_wrap=True)
            else:
                out.print(each)
        out.print()


# ── the page ─────────────────────────────────────────────────────────────────────────────────────


def as_html(parts: Iterable[ReportPart], order: Sequence[str]) -> str:
    """The parts as sections of a page. A method has the letter and colour of its place in
    ``order``, as in the figures."""
    return "".join(
        f'<section class="ds-card"><h2>{html.escape(part.title)}</h2>'
        + "".join(
            f"<p>{html.escape(one_line(each, 1000))}</p>"
            if isinstance(each, str)
            else _html_table(each, order)
            for each in part.body
        )
        + "</section>"
        for part in parts
    )


def _html_table(grid: TextTable, order: Sequence[str]) -> str:
    looks = [' class="ds-words"' if at in grid.words else "" for at in range(len(grid.heads))]
    head = "".join(
        f"<th{look}>{html.escape(title)}</th>"
        for title, look in zip(grid.heads, looks, strict=True)
    )
    body = "".join(
        f"<tr><th>{_sign(row[0], order) if grid.signed else ''}{html.escape(row[0])}</th>"
        + "".join(
            f"<td{look}>{html.escape(cell)}</td>"
            for cell, look in zip(row[1:], looks[1:], strict=True)
        )
        + "</tr>"
        for row in grid.rows
    )
    return f'<div class="ds-table"><table><thead><tr>{head}</tr></thead>{body}</table></div>'


def _sign(method: str, order: Sequence[str]) -> str:
    if method not in order:
        return ""
    at = order.index(method)
    colour = f"background: var(--ds-{series_colour(at)})"
    return f'<i class="ds-letter" style="{colour}">{letter(at)}</i> '
