"""The desk: one worker decodes one run after the other; everybody else only reads.

A person's run is known by an unguessable ticket and by nothing else. The page asks for what is new
by ticket, and viewing, stepping and saving never wait for the worker. A run that nobody has asked
about for a while is stopped: its page is gone.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from app.studio.engine import AnyAsk, StudioEngine
from app.view.rounds import header_view, round_view
from app.view.text import flowing
from core.errors import UserError
from core.models.embedded import Progress
from core.rounds.round import Round
from core.traces.reader import TraceReader
from core.traces.schema import Header, Trace

WAITING, RUNNING, DONE, STOPPED, FAILED = "waiting", "running", "done", "stopped", "failed"
ENDED = (DONE, STOPPED, FAILED)

LOST_AFTER = 150.0  # seconds without a question; browsers wake hidden pages once a minute
QUEUED = 32  # runs that may wait
KEPT_RUNS, KEPT_BYTES = 64, 350 << 20  # on view; the longest unseen goes
OBJECTS, VIEWED = 8_000, 250  # about the bytes of a round's objects, and of a node as it is drawn
LONGEST = 1000  # characters of a sentence
SOON = 5_000  # draft rows of a file that are read before it is shown
BATCH = 1_500_000  # about this many characters of rounds in one answer
FIRST = 150_000  # and in a run's first, so that something is there to look at


@dataclass(eq=False)
class Run:
    """One person's run, live or opened from a file. Rounds are only ever appended."""

    ticket: str
    ask: AnyAsk | None = None
    header: Header | None = None
    footer: Mapping[str, Any] = field(default_factory=dict)  # what a file said beside its rounds
    rounds: list[Round] = field(default_factory=list)
    views: dict[int, dict[str, Any]] = field(default_factory=dict)  # of the rounds asked for so far
    state: str = WAITING
    message: str = ""
    seen: float = field(default_factory=time.monotonic)
    stop: threading.Event = field(default_factory=threading.Event)
    source: str = "live"
    link: str | None = None  # a ticket that only lets one look, once somebody has shared the run
    weight: int = 0  # about its bytes in memory

    def add(self, record: Round) -> None:
        self.rounds.append(record)
        self.weight += weight(record) + OBJECTS + VIEWED * len(record.draft)

    @property
    def nodes(self) -> int:
        return sum(len(record.draft) for record in list(self.rounds))

    def view(self, at: int) -> dict[str, Any]:
        """Round number ``at`` as the page draws it, made when it is first asked for: decoding does
        not wait for it, and a long trace opens at its beginning."""
        if at not in self.views:
            self.views[at] = round_view(self.rounds[at], first=at == 0)
        return self.views[at]

    def trace(self) -> Trace:
        """What can be saved of it now. Raises UserError before the first round."""
        rounds = tuple(self.rounds)
        if self.header is None or not rounds:
            raise UserError("there is nothing to save yet")
        return Trace(self.header, rounds, self.footer if self.state == DONE else None)


@dataclass(frozen=True)
class ModelState:
    """What the page says about the model: ``loading``, ``ready`` or ``failed``."""

    state: str
    message: str
    fraction: float | None = None


class Desk:
    """Owns the engine's only worker, the queue before it and the runs on view.

    Loading the model takes every core there is, and a first page that is fetched meanwhile appears
    later: ``patience`` is how many seconds it is waited for.
    """

    def __init__(self, engine: StudioEngine, patience: float = 0.0):
        self._engine = engine
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._queue: deque[Run] = deque()
        self._current: Run | None = None
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._links: dict[str, str] = {}  # a ticket for looking → the run's own
        self._closed = False
        self._visited = threading.Event()
        self.model = ModelState("loading", "waking up")
        self._worker = threading.Thread(
            target=self._serve, args=(patience,), name="draftscope-desk", daemon=True
        )

    def open(self) -> None:
        """Start loading the model and then serving the queue, in the background."""
        self._worker.start()

    def close(self) -> None:
        """Stop everything; the worker ends after its current round."""
        with self._work:
            self._closed = True
            for run in self._runs.values():
                run.stop.set()
            self._visited.set()
            self._work.notify_all()

    # ── what people do ───────────────────────────────────────────────────────────────────────────

    def submit(self, *asks: AnyAsk) -> list[str]:
        """Queue runs, all or none; returns their tickets. Raises UserError when too many wait."""
        runs = [Run(_new_ticket(), ask) for ask in asks]
        with self._work:
            if len(self._queue) + len(runs) > QUEUED:
                raise UserError(f"{len(self._queue)} runs are waiting already: try again later")
            for run in runs:
                self._keep(run)
            self._queue.extend(runs)
            self._work.notify_all()
        return [run.ticket for run in runs]

    def show(self, trace: Trace | TraceReader) -> str:
        """Put a trace on view; returns its ticket. Of one that is still to be read the first rounds
        are read here and the rest beside, so that a long one is soon there to be looked at.

        Raises UserError for what is no trace, if that shows in the first rounds; later it is the
        run's message, and the rounds before it stay.
        """
        rounds = iter(trace.rounds if isinstance(trace, Trace) else trace)
        run = Run(_new_ticket(), header=trace.header, state=RUNNING, source="file")
        if not self._read(run, trace, rounds, SOON):
            rest = threading.Thread(
                target=self._read_rest,
                args=(run, trace, rounds),
                name="draftscope-reader",
                daemon=True,
            )
            rest.start()
        with self._lock:
            self._keep(run)
        return run.ticket

    def _read(
        self, run: Run, trace: Trace | TraceReader, rounds: Iterator[Round], rows: float
    ) -> bool:
        """Append about so many draft rows of a file; whether it is at its end."""
        for record in rounds:
            run.add(record)
            rows -= len(record.draft)
            if rows < 0 or run.stop.is_set():
                return False
        interrupted = trace.footer is None
        run.message = "this trace was interrupted: it has no footer" if interrupted else ""
        run.footer = trace.footer or {}
        run.state = STOPPED if interrupted else DONE
        return True

    def _read_rest(self, run: Run, trace: Trace | TraceReader, rounds: Iterator[Round]) -> None:
        try:
            if not self._read(run, trace, rounds, math.inf):
                run.message, run.state = "stopped before all of the file was read", STOPPED
        except UserError as error:
            run.message, run.state = str(error), FAILED
        except Exception as error:
            logging.getLogger(__name__).exception("a file could not be read on")
            run.message, run.state = (
                f"the file could not be read on ({type(error).__name__})",
                FAILED,
            )
        with self._lock:
            if run.ticket in self._runs:
                self._keep(run)  # it has its whole weight now

    def share(self, ticket: object) -> str | None:
        """A second ticket of a run, by which others may look and not stop it; it ends with the run.
        One that was shared shares itself."""
        run = self.run(ticket)
        if run is None:
            return None
        with self._lock:
            if run.link is None:
                run.link = _new_ticket()
                self._links[run.link] = run.ticket
            return run.link

    def run(self, ticket: object) -> Run | None:
        """The run of a ticket; asking keeps it alive."""
        with self._lock:
            own = self._links.get(ticket, ticket) if isinstance(ticket, str) else None
            run = self._runs.get(own) if own is not None else None
            if run is not None:
                run.seen = time.monotonic()
                self._runs.move_to_end(run.ticket)
            return run

    def halt(self, ticket: object) -> None:
        """Stop a run; a waiting one leaves the queue at once."""
        run = self.run(ticket)
        if run is None or ticket != run.ticket:  # whoever was sent a link may look
            return
        with self._lock:
            run.stop.set()
            if run in self._queue:
                self._queue.remove(run)
                run.state = STOPPED

    def news(self, ticket: object, since: int) -> dict[str, Any]:
        """The model's state, the run's, and its rounds from number ``since`` on."""
        self._visited.set()
        run = self.run(ticket)
        answer: dict[str, Any] = {"model": _plain(self.model), "run": None}
        if run is None:
            return answer
        state = run.state  # read before the rounds: an ended run's last rounds are then complete
        views, more = _batch(run, max(0, since))
        answer["run"] = {
            "ticket": ticket,  # as asked: a link must not become the run's own ticket
            "state": state,
            "message": flowing(run.message, LONGEST),
            "ahead": self._ahead(run),
            "header": header_view(run.header) if run.header is not None and since <= 0 else None,
            "started": run.header is not None,
            "source": run.source,
            "rounds": views,
            "more": more,
        }
        return answer

    def _ahead(self, run: Run) -> int:
        """How many runs come before a waiting one."""
        with self._lock:
            if run not in self._queue:
                return 0
            return self._queue.index(run) + (self._current is not None)

    def _keep(self, run: Run) -> None:
        self._runs[run.ticket] = run
        held = sum(r.weight for r in self._runs.values())
        for old in [r for r in self._runs.values() if r.state in ENDED and r is not run]:
            if len(self._runs) <= KEPT_RUNS and held <= KEPT_BYTES:
                return
            held -= old.weight
            del self._runs[old.ticket]
            self._links.pop(old.link or "", None)

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
            logging.getLogger(__name__).exception("the model could not be loaded")
            self.model = ModelState("failed", f"loading failed: {type(error).__name__}")
        else:
            self.model = ModelState("ready", "ready", 1.0)
        while (run := self._next()) is not None:
            self._decode(run)

    def _report(self, progress: Progress) -> None:
        self.model = ModelState("loading", progress.stage, progress.fraction)

    def _next(self) -> Run | None:
        with self._work:
            self._current = None
            while not self._queue and not self._closed:
                self._work.wait()
            if self._closed:
                return None
            self._current = self._queue.popleft()
            return self._current

    def _decode(self, run: Run) -> None:
        if self.model.state == "failed":
            run.message, run.state = f"the model is not loaded: {self.model.message}", FAILED
            return
        if self._stops(run):
            run.state = STOPPED
            return
        assert run.ask is not None
        run.state = RUNNING
        try:
            started = self._engine.start(run.ask)
            run.header = started.header
            # Closing the generator is what stops a run.
            with closing(iter(started)) as rounds:
                for record in rounds:
                    run.add(record)
                    if self._stops(run):
                        break
            run.state = STOPPED if run.stop.is_set() else DONE
        except UserError as error:
            run.message, run.state = str(error), FAILED
        except Exception as error:
            # What broke inside is for the log; a path or a prompt may stand in it.
            logging.getLogger(__name__).exception("a run broke")
            run.message, run.state = f"the run broke ({type(error).__name__})", FAILED

    def _stops(self, run: Run) -> bool:
        """Whether somebody has stopped it, or nobody asks for it any more."""
        if not run.stop.is_set() and time.monotonic() - run.seen > LOST_AFTER:
            run.message = f"stopped: no page has asked for this run for {LOST_AFTER:.0f} seconds"
            run.stop.set()
        return run.stop.is_set()


def _new_ticket() -> str:
    return secrets.token_urlsafe(18)


def _plain(model: ModelState) -> dict[str, Any]:
    message = flowing(model.message, LONGEST)
    return {"state": model.state, "message": message, "fraction": model.fraction}


def weight(held: object) -> int:
    """About how many bytes the arrays and texts of a record take."""
    if isinstance(held, np.ndarray):
        return held.nbytes
    if isinstance(held, str):
        return len(held)
    if is_dataclass(held):
        return sum(weight(getattr(held, each.name)) for each in fields(held))
    if isinstance(held, Mapping):
        return sum(map(weight, held.values()))
    return sum(map(weight, held)) if isinstance(held, (tuple, list)) else 0


def _batch(run: Run, since: int) -> tuple[list[dict[str, Any]], bool]:
    """Views from ``since`` on, as many as one answer should hold, and whether more are there."""
    taken: list[dict[str, Any]] = []
    size, end = 0, len(run.rounds)
    for at in range(since, end):
        view = run.view(at)
        taken.append(view)
        size += 400 + 40 * len(view["tokens"]) + sum(map(len, view["labels"].values()))
        if size > (BATCH if since else FIRST):
            break
    return taken, since + len(taken) < end
