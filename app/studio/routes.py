"""What a page may ask the server: plain JSON in, plain JSON out.

Routes only read; no model works in them. A question was written by a browser, so nothing in it is
believed. A mapping's keys are the names that the page's script calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from analysis.palette import LETTERS
from app.studio import shipped
from app.studio.examples import Examples, budget_of
from app.studio.files import GRAPHS, graph_file, run_file, trace_file, tree_file
from app.studio.records import calibration_records, cause_examples, parquet_file
from app.studio.runs import Run, Runs
from app.view.beside import Place, beside_view
from app.view.comparison import comparison_view
from app.view.rounds import fold_view, method_name, node_view, why_view
from app.view.statistics import depth_records
from app.view.text import flowing, visible
from core.errors import UserError
from core.rounds.round import Round
from core.traces.schema import Trace

GONE = {"error": "this run is no longer on the server"}
MAX_LISTED = 24  # runs a page may ask about at once

Question = dict[str, Any]
Route = Callable[[Question], Any]


class Routes:
    """Those about runs, which the tabs Run and Compare have, and other tabs in part."""

    def __init__(self, runs: Runs, examples: Examples):
        self._runs, self._examples = runs, examples

    def of_runs(self) -> dict[str, Route]:
        return {
            "updates": lambda q: self._runs.updates(get(q, "ticket"), whole(get(q, "since")) or 0),
            "inspect": self._inspect,
            "save": lambda q: trace_file(self._run(get(q, "ticket")).trace()),
            "fold": self._fold,
            "why": self._why,
            "draw": self._draw,
            "export": self._export,
            "share": self._share,
            "compare": self._compare,
            "beside": self._beside,
            "stop": self._stop,
            "examples": lambda _: {
                "prompts": self._examples.groups(denoising=False),
                "first": shipped.FIRST,
            },
            "example": lambda q: {"ticket": self._runs.open(self._examples.open(get(q, "name")))},
            "runs": self._list,
            "measure": lambda q: depth_records(self._traces(q), self._names(q)),
            "parquet": parquet,
        }

    def of_calibration(self) -> dict[str, Route]:
        return self.of_runs() | {
            "calibrate": lambda q: calibration_records(self._traces(q), self._names(q)),
            "find": self._find,
        }

    # ── one run ──────────────────────────────────────────────────────────────────────────────────

    def _run(self, ticket: object) -> Run:
        run = self._runs.get(ticket)
        if run is None:
            raise UserError(GONE["error"])
        return run

    def _round(self, question: Question) -> tuple[Run, Round]:
        """A run and one of its rounds. Raises UserError where either is gone."""
        run, at = self._run(get(question, "ticket")), whole(get(question, "round"))
        if at is None or not 0 <= at < len(run.rounds):
            raise UserError(GONE["error"])
        return run, run.rounds[at]

    def _stop(self, question: Question) -> Any:
        self._runs.stop(get(question, "ticket"))
        return {}

    def _share(self, question: Question) -> Any:
        link = self._runs.share(get(question, "ticket"))
        return GONE if link is None else {"link": link}

    def _inspect(self, question: Question) -> Any:
        run, record = self._round(question)
        row = whole(get(question, "row"))
        try:
            return node_view(record, -2 if row is None else row, run.explainer)
        except IndexError:
            raise UserError("there is no such node") from None

    def _why(self, question: Question) -> Any:
        run, _ = self._round(question)
        return why_view(run.rounds, whole(get(question, "round")) or 0)

    def _fold(self, question: Question) -> Any:
        _, record = self._round(question)
        return fold_view(record, _rows(question))

    def _draw(self, question: Question) -> Any:
        """The tree as it is on view: folded but for the rows in ``open``, or ``whole``."""
        run, record = self._round(question)
        dark, opened = get(question, "dark") is True, _rows(question)
        return tree_file(record, run, dark, None if get(question, "whole") is True else opened)

    def _export(self, question: Question) -> Any:
        """A file of the run or of one of its rounds, by the form's name."""
        run, record = self._round(question)
        form = get(question, "form")
        if form == "trace":
            return trace_file(run.trace())
        if form in GRAPHS:
            return graph_file(record, form, run.method)
        return run_file(run, form, opens=whole(get(question, "round")) or 0)

    # ── several ──────────────────────────────────────────────────────────────────────────────────

    def _list(self, question: Question) -> Any:
        """The runs that are there; those that are gone are left out, since each has its ticket."""
        found = ((ticket, self._runs.get(ticket)) for ticket in _tickets(question, MAX_LISTED))
        return {"runs": [run_line(ticket, run) for ticket, run in found if run is not None]}

    def _several(self, question: Question) -> list[Run]:
        """Raises UserError where one is gone: the others would move to its letter."""
        return [self._run(ticket) for ticket in _tickets(question, len(LETTERS))]

    def _traces(self, question: Question) -> dict[str, Trace]:
        """By letter. Raises UserError where a run is gone or has no round yet."""
        return {letter: run.trace() for letter, run in self._lettered(question).items()}

    def _names(self, question: Question) -> dict[str, str]:
        """By letter, what figures call the runs; "" where none has a letter before the last, since
        the places here give the colours."""
        runs = self._lettered(question)
        names = {letter: f"{letter} {setting(run)}" for letter, run in runs.items()}
        last = max(map(LETTERS.index, runs), default=-1)
        return {letter: names.get(letter, "") for letter in LETTERS[: last + 1]}

    def _lettered(self, question: Question) -> dict[str, Run]:
        """The runs by the letters that the question gives them, else by A, B and so on."""
        runs, asked = self._several(question), get(question, "letters")
        letters = asked if isinstance(asked, str) else ""
        known = len(set(letters)) == len(letters) == len(runs) and set(letters) <= set(LETTERS)
        return dict(zip(letters if known else LETTERS, runs, strict=False))

    def _compare(self, question: Question) -> Any:
        """What the headers of the runs do not share."""
        runs = self._several(question)
        return comparison_view([run.header for run in runs if run.header is not None])

    def _beside(self, question: Question) -> Any:
        """A token at a place of several runs; ``places`` has null where a run's prefix differs."""
        places, token = get(question, "places"), whole(get(question, "token"))
        if not isinstance(places, list) or token is None:
            raise UserError("there is no such place")
        asked = [None if place is None else self._place(place) for place in places[: len(LETTERS)]]
        return beside_view(asked, token)

    def _place(self, question: Any) -> Place:
        _, record = self._round(question)
        row = whole(get(question, "row"))
        if row is None or not 0 <= row < len(record.draft):
            raise UserError("there is no such node")
        return record, row

    def _find(self, question: Question) -> Any:
        """Examples of one cause in one run."""
        cause, unit = get(question, "cause"), get(question, "unit")
        where = {name: get(question, name) for name in ("depth", "token_class")}
        where = {name: value for name, value in where.items() if type(value) in (int, str)}
        trace = self._run(get(question, "ticket")).trace()
        return {"examples": cause_examples(trace, cause, unit, where)}


def run_line(ticket: object, run: Run) -> dict[str, Any]:
    """One line about a run on view, with the ticket of the question: a link stays a link."""
    return {
        "ticket": ticket,
        "state": run.state,
        "rounds": len(run.rounds),
        "method": visible(method_name(run.method)),
        "budget": budget_of(run.method, run.header.settings) if run.header else None,
        "prompt": flowing(run.header.prompt_text if run.header else "", 120),
    }


def setting(run: Run) -> str:
    """A run's method and budget: ddtree B 64."""
    method = visible(method_name(run.method), 40)
    budget = budget_of(run.method, run.header.settings) if run.header else None
    return f"{method} B {budget}" if budget else method


def named(name: str, route: Route) -> Route:
    """The route as a page calls it: under this name, with one sentence for every failure.

    Unexpected errors go to the log too.
    """

    @wraps(route)
    def answer(question: Question) -> Any:
        try:
            return route(question)
        except UserError as error:
            return {"error": flowing(str(error), 1000)}
        except Exception as error:
            logging.getLogger(__name__).exception("a page's question failed")
            return {"error": f"the server could not work this out ({type(error).__name__})"}

    answer.__name__ = name  # Gradio knows server functions by their names
    return answer


def parquet(question: Question) -> Any:
    """The numbers of a figure, sent back as a Parquet file."""
    return parquet_file(get(question, "name"), get(question, "records"))


def get(question: object, name: str) -> object:
    return question.get(name) if isinstance(question, dict) else None


def whole(value: object) -> int | None:
    return value if type(value) is int else None


def _rows(question: Question) -> list[int]:
    """The rows that were opened."""
    rows = get(question, "open")
    return [row for row in rows if type(row) is int] if isinstance(rows, list) else []


def _tickets(question: Question, most: int) -> list[object]:
    tickets = get(question, "tickets")
    return tickets[:most] if isinstance(tickets, list) else []
