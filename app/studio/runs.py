"""Runs: the worker that decodes them one after the other, the queue before it, those on view.

A run is known by an unguessable ticket and by nothing else. The page asks for what is new by
ticket, or watches it (``events.Events``); viewing, stepping and saving never wait for the worker. A
run that no page watches or asks for is stopped after some seconds: its page is gone.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.studio.engine import LiveEngine, Request, Started
from app.studio.examples import BEING_WRITTEN, OpenFile
from app.studio.run import DONE, ENDED, FAILED, MAX_MESSAGE, RUNNING, STOPPED, StudioRun
from core.errors import UserError, unwritable
from core.memory import release
from core.progress import told
from core.rounds.round import Round
from core.traces.reader import TraceReader
from core.traces.schema import Trace
from core.visible import flowing

MAX_WAITING = 32  # runs in the queue
MAX_RUNS, MAX_BYTES = 64, 350 << 20  # on view; the longest unseen run goes first
ROWS_AT_ONCE = 2_000  # draft rows of a file that are read before it is shown
FIRST_TREE = 1.0  # seconds that reading on waits until a page draws it, for reading takes a core


@dataclass(frozen=True)
class ModelState:
    """The model's state as the page shows it: ``loading``, ``ready`` or ``failed``."""

    state: str
    message: str
    fraction: float | None = None

    def to_json(self) -> dict[str, Any]:
        message = flowing(self.message, MAX_MESSAGE)
        return {"state": self.state, "message": message, "fraction": self.fraction}


class Runs:
    """Owns the engine's only worker, the queue before it and the runs on view.

    patience  seconds to wait for the first page before the model is loaded: loading takes every
              core, and a page that is fetched meanwhile appears later
    """

    def __init__(self, engine: LiveEngine, patience: float = 0.0):
        self._engine = engine
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._queue: deque[StudioRun] = deque()
        self._current: StudioRun | None = None
        self._runs: OrderedDict[str, StudioRun] = OrderedDict()
        self._links: dict[str, str] = {}  # a ticket for looking → the run's own
        self._closed = False
        self._visited = threading.Event()
        self.model = ModelState("loading", "waking up")
        self._worker = _thread("draftscope-worker", self._serve, patience)

    def start(self) -> None:
        """Load the model and then serve the queue, in the background."""
        self._worker.start()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Stop everything; the worker ends after its current round."""
        with self._work:
            self._closed = True
            for run in self._runs.values():
                run.stop.set()
            self._visited.set()
            self._work.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for the worker to end, at most so long: a process that exits while torch computes in
        a thread is aborted."""
        if self._worker.is_alive():
            self._worker.join(seconds)

    # ── what people do ───────────────────────────────────────────────────────────────────────────

    def submit(self, *requests: Request) -> list[str]:
        """Queue runs, all or none; returns their tickets. Raises UserError when too many wait."""
        runs = [StudioRun(_new_ticket(), request) for request in requests]
        with self._work:
            if len(self._queue) + len(runs) > MAX_WAITING:
                raise UserError(f"{len(self._queue)} runs are waiting already: try again later")
            for run in runs:
                self._add(run)
            self._queue.extend(runs)
            self._work.notify_all()
        return [run.ticket for run in runs]

    def open(self, trace: Trace | TraceReader, example: str | None = None, file: str = "") -> str:
        """Put a trace on view; returns its ticket. The first rounds of a ``TraceReader`` are read
        here and the rest in the background, so that a long file shows soon. A file that is being
        written is followed, until the run is stopped. ``example``: its name in addresses.

        file  the name of the file that it is of, for a list of runs

        Raises UserError for a file that is not a trace, if that shows in the first rounds; later it
        is the run's message, and the rounds before it stay.
        """
        rounds = iter(trace.rounds if isinstance(trace, Trace) else trace)
        about: Any = {"header": trace.header, "source": "file", "example": example, "file": file}
        run = StudioRun(_new_ticket(), state=RUNNING, **about)
        grows = isinstance(trace, OpenFile) and trace.grows
        if isinstance(trace, OpenFile) and grows:
            trace.unwanted = partial(_follow, run)
        if grows or not run.read(trace, rounds, ROWS_AT_ONCE):
            _thread("draftscope-reader", self._read_rest, run, trace, rounds).start()
        with self._lock:
            self._add(run)
        return run.ticket

    def get(self, ticket: object) -> StudioRun | None:
        """The run of a ticket, for a page that asks: one that left the run is back."""
        run = self.find(ticket)
        if run is not None:
            run.left = -math.inf
        return run

    def find(self, ticket: object) -> StudioRun | None:
        """The run of a ticket, which is kept alive: for a stream, which goes on for a while after
        its page has left the run."""
        with self._lock:
            own = self._links.get(ticket, ticket) if isinstance(ticket, str) else None
            run = self._runs.get(own) if own is not None else None
            if run is not None:
                run.seen = time.monotonic()
                self._runs.move_to_end(run.ticket)
            return run

    def share(self, ticket: object) -> str | None:
        """A second ticket of a run, by which others may look and not stop it; it ends with the run.
        A link shares itself."""
        run = self.get(ticket)
        if run is None:
            return None
        with self._lock:
            if run.link is None:
                run.link = _new_ticket()
                self._links[run.link] = run.ticket
            return run.link

    @contextmanager
    def watching(self, tickets: Sequence[object]) -> Iterator[None]:
        """While a page watches these runs they are not abandoned."""
        watched = [run for run in map(self.get, tickets) if run is not None]
        self._count(watched, 1)
        try:
            yield
        finally:
            self._count(watched, -1)

    def _count(self, watched: Sequence[StudioRun], by: int) -> None:
        with self._lock:
            for run in watched:
                run.watchers += by
                run.seen = time.monotonic()
                if by > 0:
                    run.left = -math.inf
                elif run.is_left:
                    self._stop(run)

    def mark(self, ticket: object) -> tuple[object, ...]:
        """Return a value that changes as soon as there is news about a run, or about the model."""
        run = self.find(ticket)
        if run is None:
            return (self.model,)
        news = (run.state, run.message, run.reading, run.header is None, _told(run))
        return (self.model, *news, self._ahead(run))

    def stop(self, ticket: object) -> None:
        """Stop a run; a waiting one leaves the queue at once. A link stops nothing."""
        run = self.get(ticket)
        if run is None or ticket != run.ticket:
            return
        with self._lock:
            self._stop(run)

    def leave(self, ticket: object) -> None:
        """A page shows this run no more: it is stopped, unless another page watches it, such as a
        tab that was made of this one. The last watcher may be the page's own stream, which ends
        later than the page says so."""
        run = self.get(ticket)
        if run is None or ticket != run.ticket:
            return
        with self._lock:
            if run.watchers <= 1:
                run.left = time.monotonic()
            if run.is_left:
                self._stop(run)

    def _stop(self, run: StudioRun) -> None:
        run.stop.set()
        if run in self._queue:
            self._queue.remove(run)
            run.state = STOPPED

    def updates(self, ticket: object, since: int) -> dict[str, Any]:
        """The model's state, the run's, and its rounds from number ``since`` on; for a stream."""
        self._visited.set()
        run = self.find(ticket)
        answer: dict[str, Any] = {"model": self.model.to_json(), "run": None}
        if run is None:
            return answer
        # the ticket as asked: a link must not become the run's own
        answer["run"] = run.news(since) | {"ticket": ticket, "ahead": self._ahead(run)}
        return answer

    def asked(self, ticket: object, since: int) -> dict[str, Any]:
        """``updates`` for a page that asks by itself: one that left the run is back."""
        self.get(ticket)
        return self.updates(ticket, since)

    def _ahead(self, run: StudioRun) -> int:
        """How many runs come before a waiting one."""
        with self._lock:
            if run not in self._queue:
                return 0
            return self._queue.index(run) + (self._current is not None)

    def _add(self, run: StudioRun) -> None:
        """Put a run on view; ended ones make room, the longest unseen first."""
        self._runs[run.ticket] = run
        held = sum(r.weight for r in self._runs.values())
        for old in [r for r in self._runs.values() if r.state in ENDED and r is not run]:
            if len(self._runs) <= MAX_RUNS and held <= MAX_BYTES:
                return
            held -= old.weight
            del self._runs[old.ticket]
            self._links.pop(old.link or "", None)

    # ── reading a file ───────────────────────────────────────────────────────────────────────────

    def _read_rest(
        self, run: StudioRun, trace: Trace | TraceReader, rounds: Iterator[Round]
    ) -> None:
        if run.rounds:
            run.drawn.wait(FIRST_TREE)
        try:
            if not run.read(trace, rounds, math.inf):
                run.end(STOPPED, "stopped before all of the file was read")
        except UserError as error:
            run.end(FAILED, str(error))
        except Exception as error:
            logging.getLogger(__name__).exception("a file could not be read on")
            run.end(FAILED, f"the file could not be read on ({type(error).__name__})")
        with self._lock:
            if run.ticket in self._runs:
                self._add(run)  # it has its whole weight now

    # ── the worker ───────────────────────────────────────────────────────────────────────────────

    def _serve(self, patience: float) -> None:
        self._visited.wait(patience)
        if self._closed:
            return
        try:
            self._engine.prepare(self._report)
        except UserError as error:
            self.model = ModelState("failed", str(error))
        except Exception as error:
            sentence = unwritable(error)
            if sentence is None:
                logging.getLogger(__name__).exception("the model could not be loaded")
            why = sentence or f"loading failed: {type(error).__name__}"
            self.model = ModelState("failed", why)
        else:
            self.model = ModelState("ready", "ready", 1.0)
        release()
        while (run := self._next()) is not None:
            self._decode(run)
            release()

    def _report(self, done: float | None, what: str) -> None:
        self.model = ModelState("loading", what, done)

    def _next(self) -> StudioRun | None:
        with self._work:
            self._current = None
            while not self._queue and not self._closed:
                self._work.wait()
            if self._closed:
                return None
            self._current = self._queue.popleft()
            return self._current

    def _decode(self, run: StudioRun) -> None:
        if self.model.state == "failed":
            run.end(FAILED, f"the model is not loaded: {self.model.message}")
            return
        if self._must_stop(run):
            run.state = STOPPED
            return
        assert run.request is not None
        run.state, began = RUNNING, time.monotonic()

        def report(done: float | None, what: str) -> None:
            run.reading = told(done, what, time.monotonic() - began)
            if self._must_stop(run):
                raise _Interrupted

        try:
            self._append_rounds(run, self._engine.start(run.request, report))
            run.state = STOPPED if run.stop.is_set() else DONE
        except _Interrupted:
            run.state = STOPPED
        except UserError as error:
            run.end(FAILED, str(error))
        except Exception as error:
            # The details go to the log only: they may hold a path or a prompt.
            logging.getLogger(__name__).exception("a run broke")
            run.end(FAILED, f"the run broke ({type(error).__name__})")

    def _append_rounds(self, run: StudioRun, started: Started) -> None:
        run.header = started.header
        with closing(started.rounds) as rounds:  # closing the generator is what stops a run
            for record in rounds:
                run.reading = ""
                run.add(record)
                if self._must_stop(run):
                    return

    def _must_stop(self, run: StudioRun) -> bool:
        """Whether it was stopped, or its page is gone."""
        if not run.stop.is_set() and run.abandoned:
            run.message = "stopped: the page that showed this run is gone"
            run.stop.set()
        return run.stop.is_set()


class _Interrupted(Exception):
    """A run was stopped before its first round."""


def _thread(name: str, target: Any, *args: Any) -> threading.Thread:
    return threading.Thread(target=target, args=args, name=name, daemon=True)


def _new_ticket() -> str:
    return secrets.token_urlsafe(18)


def _told(run: StudioRun) -> int:
    """A number that grows with the rounds. While a file is read, only when there are twice as many:
    a page lays out all of a run's text for each piece of news of it."""
    count = len(run.rounds)
    is_read = run.source == "file" and run.state == RUNNING and run.reading != BEING_WRITTEN
    return count.bit_length() if is_read else count


def _follow(run: StudioRun) -> bool:
    """Say that more of a run's file is awaited; whether nobody wants it any more. A file that was
    finished a moment ago never comes here, so that it opens as every trace does."""
    run.reading = BEING_WRITTEN
    return run.stop.is_set() or run.abandoned
