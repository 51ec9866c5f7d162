"""Results: all methods on the same prompts, as ``grid table`` measured them; and what files say
that are opened here (``results_answers``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from gradio.utils import get_upload_folder

from analysis import kinds
from app.studio.components import Studio, Tab, of_upload, view
from app.studio.files import uploaded
from app.studio.questions import OfRuns, Question, Route, Upload
from app.studio.routes import PARQUET
from app.studio.tabs.results_answers import (
    advice,
    checkpoint,
    counts,
    grid,
    method_table,
    pooled,
)
from core import ASSETS
from core.errors import UserError
from core.methods.registry import built_in
from core.traces.schema import Trace

SHIPPED = ASSETS / "measured" / "table.json"


class Opens(Upload, frozen=True):
    """A file, or several; the runs on view, and where the engine's counts on view lie (``file``):
    step times are asked about these."""

    tickets: tuple[str | None, ...] = ()
    letters: str = ""
    file: str | None = None


def build(studio: Studio) -> None:
    made, routes = cache(table), studio.routes

    def opens(question: Opens) -> Any:
        runs = OfRuns(question.tickets, question.letters)
        one = partial(
            opened, on_view=lambda: routes.on_view(runs), counted=lambda: _counted(question)
        )
        return of_upload(question, one, pooled)

    answers = {"table": Route(Question, lambda _: made()), "open": Route(Opens, opens)}
    view("results", "ds-results", {**answers, "parquet": PARQUET})


TAB = Tab("results", "Results", build, ("view.css",))


def table(path: Path = SHIPPED) -> dict[str, Any]:
    """The rows with each method's title and what its q depends on. Raises UserError for a file that
    is not a table of ``grid table``."""
    found = method_table(path)
    return {**found, "rows": [row | _about(row["method"]) for row in found["rows"]]}


def _counted(question: Opens) -> Path | None:
    """The engine's counts that are on view here. Raises UserError where they are gone."""
    if question.file is None:
        return None
    try:
        return uploaded(question.file, Path(get_upload_folder()))
    except UserError:
        raise UserError(
            "these are step times, and the counts that are open here are no longer on the server: "
            "open the counts again, then this file"
        ) from None


def opened(
    file: Path,
    on_view: Callable[[], Mapping[str, Trace]] = dict,
    counted: Callable[[], Path | None] = lambda: None,
) -> dict[str, Any]:
    """An uploaded file in words: {title, about, sheets, strips, lines, figure, flags}, or {table}
    of methods. ``on_view``: the runs whose drafts step times are asked about, by their names;
    ``counted``: the engine's counts that are, instead.

    Raises UserError for a file that says nothing here.
    """
    kind = kinds.kind_of(file)
    if kind == kinds.TABLE:
        return {"table": table(file)}
    if kind == kinds.STEPS:
        return advice(file, on_view(), counted())
    return {kinds.GRID: grid, kinds.CONFIG: checkpoint}.get(kind, counts)(file)


def _about(name: str) -> dict[str, str]:
    method = built_in(name)
    if method is None:
        return {"title": name, "knows": ""}
    drafter, _, builder = name.partition("+")
    own = built_in(drafter)
    title = f"{own.title}, {builder}" if builder and own is not None else method.title
    info = method.drafter_info
    return {"title": title, "knows": info.knows if info is not None else ""}
