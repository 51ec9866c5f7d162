"""What the views ask the server. Everything that comes in was written by a browser."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from app.studio.desk import Desk, Run
from app.studio.gallery import Gallery
from app.studio.numbers import as_parquet, calibrated, examples, measured
from app.studio.upload import download, download_svg
from app.view.comparison import LETTERS, differences, same_tokens
from app.view.explanation import candidate_width
from app.view.rounds import method_name, node_view
from app.view.text import flowing, visible
from app.view.tree import svg_tree
from core.errors import UserError
from core.rounds.round import Round
from core.traces.schema import Trace

GONE = {"error": "this run is no longer on the server"}
LISTED = 24  # runs a page may ask about at once

Asked = dict[str, Any]


class Answers:
    """The views' server functions. They only read: no model work happens in them.

    Everything that comes in was written by a browser, so nothing about it is believed.
    """

    def __init__(self, desk: Desk, gallery: Gallery):
        self._desk, self._gallery = desk, gallery

    def functions(self) -> list[Callable[[Asked], Any]]:
        """By the names a page calls them with."""

        def news(asked: Asked) -> Any:
            return self._desk.news(get(asked, "ticket"), whole(get(asked, "since")) or 0)

        def inspect(asked: Asked) -> Any:
            return self._inspect(asked)

        def save(asked: Asked) -> Any:
            return dict(download(self._run(get(asked, "ticket")).trace()))

        def draw(asked: Asked) -> Any:
            return self._draw(asked)

        def compare(asked: Asked) -> Any:
            return self._compare(asked)

        def halt(asked: Asked) -> Any:
            self._desk.halt(get(asked, "ticket"))
            return {}

        def gallery(asked: Asked) -> Any:
            return {"prompts": self._gallery.shelf}

        def example(asked: Asked) -> Any:
            return self._example(get(asked, "name"))

        def runs(asked: Asked) -> Any:
            found = ((ticket, self._desk.run(ticket)) for ticket in _tickets(asked, LISTED))
            return {"runs": [told(ticket, run) for ticket, run in found if run is not None]}

        def measure(asked: Asked) -> Any:
            return measured(self._traces(asked))

        known = [news, inspect, save, draw, compare, halt, gallery, example, runs, measure]
        return [*known, parquet]

    def calibrations(self) -> list[Callable[[Asked], Any]]:
        """Those of the calibration view."""

        def calibrate(asked: Asked) -> Any:
            return calibrated(self._traces(asked))

        def find(asked: Asked) -> Any:
            return self._find(asked)

        return [calibrate, find]

    # ── one run ──────────────────────────────────────────────────────────────────────────────────

    def _run(self, ticket: object) -> Run:
        run = self._desk.run(ticket)
        if run is None:
            raise UserError(GONE["error"])
        return run

    def _round(self, asked: Asked) -> tuple[Run, Round] | None:
        run, at = self._desk.run(get(asked, "ticket")), whole(get(asked, "round"))
        if run is None or at is None or not 0 <= at < len(run.rounds):
            return None
        return run, run.rounds[at]

    def _inspect(self, asked: Asked) -> dict[str, Any]:
        found, row = self._round(asked), whole(get(asked, "row"))
        if found is None or row is None:
            return GONE
        run, record = found
        try:
            return node_view(record, row, candidate_width(run.header))
        except IndexError:
            raise UserError("there is no such node") from None

    def _draw(self, asked: Asked) -> dict[str, Any]:
        """The shown tree as an SVG file, light or dark as the page is."""
        found = self._round(asked)
        if found is None or found[0].header is None:
            return GONE
        run, record = found
        svg = svg_tree(record, dark=get(asked, "dark") is True)
        return dict(download_svg(svg, run.header.method, record.number))

    def _example(self, name: object) -> dict[str, Any]:
        return {"ticket": self._desk.show(self._gallery.opened(name))}

    # ── several ──────────────────────────────────────────────────────────────────────────────────

    def _runs(self, asked: Asked) -> list[Run]:
        """Raises UserError where one is gone: the others would stand under its letter."""
        return [self._run(ticket) for ticket in _tickets(asked, len(LETTERS))]

    def _traces(self, asked: Asked) -> dict[str, Trace]:
        """By letter. Raises UserError where a run is gone or has no round yet."""
        return dict(zip(LETTERS, (run.trace() for run in self._runs(asked)), strict=False))

    def _compare(self, asked: Asked) -> dict[str, Any]:
        """What the headers of the runs do not share."""
        headers = [run.header for run in self._runs(asked) if run.header is not None]
        if len(headers) < 2:
            return {"cautions": [], "linkable": False}
        return {"cautions": differences(headers), "linkable": same_tokens(headers)}

    def _find(self, asked: Asked) -> dict[str, Any]:
        """Examples of one cause of death in one run."""
        cause, unit = get(asked, "cause"), get(asked, "unit")
        where = {name: get(asked, name) for name in ("depth", "token_class")}
        if not isinstance(cause, str) or unit not in ("nodes", "stops"):
            raise UserError("there is no such cause")
        kept = {name: value for name, value in where.items() if type(value) in (int, str)}
        trace = self._run(get(asked, "ticket")).trace()
        try:
            return {"examples": examples(trace, cause, str(unit), kept)}
        except ValueError:
            raise UserError("there is no such cause") from None


def told(ticket: object, run: Run) -> dict[str, Any]:
    """One line about a run on view, by the ticket that was asked with: a link stays a link."""
    header = run.header
    method = header.method if header else run.ask.method if run.ask else ""
    budget = header.settings.get("budget") if header else None
    return {
        "ticket": ticket,
        "state": run.state,
        "rounds": len(run.rounds),
        "method": visible(method_name(method)),
        "budget": budget if type(budget) is int else None,
        "prompt": flowing(header.prompt_text if header else "", 120),
    }


def said(answer: Callable[[Asked], Any]) -> Callable[[Asked], Any]:
    """The same answer, but a failure is a sentence; what nobody foresaw goes to the log too.

    The name stays: a page calls its server's functions by name.
    """

    @wraps(answer)
    def spoken(asked: Asked) -> Any:
        try:
            return answer(asked)
        except UserError as error:
            return {"error": flowing(str(error), 1000)}
        except Exception as error:
            logging.getLogger(__name__).exception("a view's question failed")
            return {"error": f"the server could not work this out ({type(error).__name__})"}

    return spoken


def parquet(asked: Asked) -> Any:
    """The numbers of a figure, sent back as a Parquet file."""
    return as_parquet(get(asked, "name"), get(asked, "records"))


def get(asked: object, name: str) -> object:
    return asked.get(name) if isinstance(asked, dict) else None


def _tickets(asked: Asked, most: int) -> list[object]:
    tickets = get(asked, "tickets")
    return tickets[:most] if isinstance(tickets, list) else []


def whole(value: object) -> int | None:
    return value if type(value) is int else None
