"""The questions of a page to the server, JSON in and out.

Routes only read, or queue work; no model works in them. A mapping's keys are the names that the
page's script calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from analysis.charts.palette import LETTERS
from analysis.labels import budget, temperature
from app.studio import shipped
from app.studio.examples import BEING_WRITTEN, Examples
from app.studio.faults import note_bug, refuse
from app.studio.files import (
    GRAPHS,
    graph_file,
    parquet_file,
    run_file,
    trace_file,
    tree_file,
)
from app.studio.methods import Methods
from app.studio.questions import (
    Inches,
    OfNode,
    OfRound,
    OfRun,
    OfRuns,
    Question,
    Route,
    Whole,
)
from app.studio.requested import requests_of
from app.studio.run import StudioRun
from app.studio.runs import Runs
from app.view.beside import Place, beside_view
from app.view.comparison import apart, comparison_view
from app.view.drawing import tree_drawing
from app.view.node import node_view
from app.view.rounds import fold_view, why_view
from app.view.statistics import depth_records
from core.chat import last_message
from core.errors import UserError
from core.methods.registry import shown_title
from core.rounds.round import Round
from core.traces.schema import Trace
from core.visible import flowing, visible

GONE = {"error": "this run is no longer on the server"}
MAX_LISTED = 24  # runs a page may ask about at once


class Updates(OfRun, frozen=True):
    since: Whole = 0


class RoundsAsked(OfRun, frozen=True):
    """The rounds from ``round`` to before ``until``."""

    round: Whole = 0
    until: Whole = 0


class Opened(OfRound, frozen=True):
    """A tree folded but for the rows in ``open``, or ``whole``."""

    open: tuple[Whole, ...] = ()
    whole: bool = False


class Pictured(Opened, frozen=True):
    legend: bool = False
    inches: Inches | None = None


class ExportedRun(OfRound, frozen=True):
    form: str | None = None


class Stop(OfRun, frozen=True):
    """``left``: nobody pressed Stop, and this page shows the run no more."""

    left: bool = False


class Beside(Question, frozen=True):
    """A token at a place of several runs; null where a run's prefix differs."""

    places: list[OfNode | None] | None = None
    token: Whole | None = None


class ExampleAsked(Question, frozen=True):
    name: str | None = None


class Start(Question, frozen=True):
    """The requests that an address holds."""

    asked: tuple[dict[str, Any], ...] = ()


class Records(Question, frozen=True):
    """The numbers of a figure, sent back."""

    name: str | None = None
    records: list[dict[str, Any]] | None = None


class Routes:
    """The routes about runs, which the tabs Run and Compare have, and other tabs in part."""

    def __init__(self, runs: Runs, examples: Examples, methods: Methods | None = None):
        self._runs, self._examples = runs, examples
        self._methods = methods or Methods.of()

    def of_runs(self, denoising: bool = False) -> dict[str, Route[Any]]:
        """``denoising``: which runs the shelf offers, of blocks or of trees."""
        return {
            "updates": Route(Updates, lambda q: self._runs.asked(q.ticket, q.since)),
            "trees": Route(RoundsAsked, lambda q: {"trees": self.run(q).trees(q.round, q.until)}),
            "inspect": Route(OfNode, self._inspect),
            "save": Route(OfRun, lambda q: trace_file(self.run(q).trace())),
            "fold": Route(Opened, lambda q: fold_view(self._round(q)[1], q.open)),
            "why": Route(OfRound, lambda q: why_view(self._round(q)[1])),
            "draw": Route(Pictured, self._draw),
            "export": Route(ExportedRun, self._export),
            "share": Route(OfRun, self._share),
            "compare": Route(OfRuns, self._compare),
            "beside": Route(Beside, self._beside),
            "stop": Route(Stop, self._stop),
            "examples": Route(Question, lambda _: self._offered(denoising)),
            "example": Route(ExampleAsked, self._example),
            "start": Route(Start, self._start),
            "runs": Route(OfRuns, self._list),
            "measure": Route(OfRuns, self._measure),
            "parquet": PARQUET,
        }

    def _offered(self, denoising: bool) -> Any:
        """The shelf, and what a page without a link opens on, by view: nothing, where files were
        named."""
        groups = self._examples.groups(denoising)
        named = any("files" in group for group in groups)
        return {"prompts": groups, "first": {} if named else shipped.OPENED}

    def _example(self, question: ExampleAsked) -> Any:
        """``ships``: the same name is the same run at any time."""
        name = question.name
        ticket = self._runs.open(self._examples.open(name), name)
        return {"ticket": ticket, "ships": self._examples.ships(name)}

    def _start(self, question: Start) -> Any:
        return {"tickets": self._runs.submit(*requests_of(self._methods, question.asked))}

    # ── one run ──────────────────────────────────────────────────────────────────────────────────

    def run(self, question: OfRun) -> StudioRun:
        """The run of the question's ticket. Raises UserError where it is gone."""
        run = self._runs.get(question.ticket)
        if run is None:
            raise UserError(GONE["error"])
        return run

    def _round(self, question: OfRound) -> tuple[StudioRun, Round]:
        """A run and one of its rounds. Raises UserError where either is gone."""
        run, at = self.run(question), question.round
        if at is None or not 0 <= at < len(run.rounds):
            raise UserError(GONE["error"])
        return run, run.rounds[at]

    def _stop(self, question: Stop) -> Any:
        end = self._runs.leave if question.left else self._runs.stop
        end(question.ticket)
        return {}

    def _share(self, question: OfRun) -> Any:
        link = self._runs.share(question.ticket)
        return GONE if link is None else {"link": link}

    def _inspect(self, question: OfNode) -> Any:
        run, record = self._round(question)
        try:
            return node_view(record, -2 if question.row is None else question.row, run.explainer)
        except IndexError:
            raise UserError("there is no such node") from None

    def _draw(self, question: Pictured) -> Any:
        run, record = self._round(question)
        opened = None if question.whole else question.open
        draw = partial(tree_drawing, record, run.explainer, opened, question.legend)
        return tree_file(run.method, f"round-{record.number}", draw, question.inches)

    def _export(self, question: ExportedRun) -> Any:
        """A file of the run or of one of its rounds, by the form's name."""
        run, record = self._round(question)
        form = question.form
        if form == "trace":
            return trace_file(run.trace())
        if form in GRAPHS:
            return graph_file(record, form, run.method)
        return run_file(run, form, opens=question.round or 0)

    # ── several ──────────────────────────────────────────────────────────────────────────────────

    def _list(self, question: OfRuns) -> Any:
        """The runs that are there; those that are gone are left out, since each has its ticket."""
        found = ((ticket, self._runs.get(ticket)) for ticket in question.tickets[:MAX_LISTED])
        return {"runs": [run_line(ticket, run) for ticket, run in found if run is not None]}

    def _several(self, question: OfRuns) -> list[StudioRun]:
        """Raises UserError where one is gone: the others would move to its letter."""
        return [self.run(OfRun(ticket)) for ticket in question.tickets[: len(LETTERS)]]

    def traces(self, question: OfRuns) -> dict[str, Trace]:
        """The traces by letter. Raises UserError where a run is gone or has no round yet."""
        return {letter: run.trace() for letter, run in self._lettered(question).items()}

    def on_view(self, question: OfRuns) -> dict[str, Trace]:
        """The same by what a sentence calls them."""
        runs = self._lettered(question)
        alone = len(runs) == 1
        return {
            called(run) if alone else f"{letter}, {called(run)}": run.trace()
            for letter, run in runs.items()
        }

    def names(self, question: OfRuns) -> dict[str, str]:
        """The runs' names in figures, by letter; "" where none has a letter before the last, since
        the places here give the colours."""
        runs = self._lettered(question)
        headers = [run.header for run in runs.values()]
        known = [header for header in headers if header is not None]
        more = iter(apart(known))
        names = {
            letter: " ".join(f"{letter} {setting(run)} {next(more) if run.header else ''}".split())
            for letter, run in runs.items()
        }
        last = max(map(LETTERS.index, runs), default=-1)
        return {letter: names.get(letter, "") for letter in LETTERS[: last + 1]}

    def _lettered(self, question: OfRuns) -> dict[str, StudioRun]:
        """The runs by the letters that the question gives them, else by A, B and so on."""
        runs, letters = self._several(question), question.letters
        known = len(set(letters)) == len(letters) == len(runs) and set(letters) <= set(LETTERS)
        return dict(zip(letters if known else LETTERS, runs, strict=False))

    def _measure(self, question: OfRuns) -> Any:
        from analysis.measures.tables import Tables

        return depth_records(Tables.of(self.traces(question)), self.names(question))

    def _compare(self, question: OfRuns) -> Any:
        """Return what the headers of the runs do not share."""
        runs = self._several(question)
        return comparison_view([run.header for run in runs if run.header is not None])

    def _beside(self, question: Beside) -> Any:
        places, token = question.places, question.token
        if places is None or token is None:
            raise UserError("there is no such place")
        asked = [None if place is None else self._place(place) for place in places[: len(LETTERS)]]
        return beside_view(asked, token)

    def _place(self, question: OfNode) -> Place:
        _, record = self._round(question)
        row = question.row
        if row is None or not 0 <= row < len(record.draft):
            raise UserError("there is no such node")
        return record, row


def run_line(ticket: object, run: StudioRun) -> dict[str, Any]:
    """One line about a run on view, with the ticket of the question: a link stays a link."""
    return {
        "ticket": ticket,
        "state": run.state,
        "follows": run.reading == BEING_WRITTEN,
        "rounds": len(run.rounds),
        "file": visible(run.file, 60) if run.file else "",
        "method": visible(shown_title(run.method)),
        "budget": budget(run.header) if run.header else None,
        "temperature": temperature(run.header) if run.header else None,
        "prompt": flowing(last_message(run.header.prompt_text) if run.header else "", 120),
        "made": run.made,
    }


def called(run: StudioRun) -> str:
    """A run in a sentence, by its file or its prompt."""
    if run.file:
        return visible(run.file, 60)
    prompt = flowing(last_message(run.header.prompt_text) if run.header else "", 60)
    return f"the {'example' if run.example else 'run'} on “{prompt}”"


def setting(run: StudioRun) -> str:
    """A run's method and budget: DDTree B 64."""
    method = visible(shown_title(run.method), 40)
    size = budget(run.header) if run.header else None
    return f"{method} B {size}" if size else method


def named(name: str, route: Route[Any]) -> Callable[[object], Any]:
    """The route as a page calls it: under this name, with one sentence for every failure."""

    def answer(question: object) -> Any:
        try:
            return route(question)
        except Exception as error:
            if not isinstance(error, UserError):
                note_bug(f"the question {name} failed", error)
            return {"error": refuse(error)}

    answer.__name__ = name  # Gradio knows server functions by their names
    return answer


PARQUET = Route(Records, lambda question: parquet_file(question.name, question.records))


async def pdf_of_picture(request: Request) -> Response:
    """``POST /pdf``: a picture that the page saves as SVG, as PDF; or a sentence, why not."""
    from app.export.figure import pdf

    try:
        made = await run_in_threadpool(pdf, await request.body())
    except UserError as error:
        return PlainTextResponse(f"{error}\n", 400)
    return Response(made, media_type="application/pdf")
