"""One run on view, live or opened from a file: its state, its rounds and how a page draws them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np

from app.studio.engine import Request
from app.studio.requested import Said, said_of
from app.view.explanation import Explainer
from app.view.rounds import header_view, round_line, tree_view
from core.errors import UserError
from core.methods.registry import shown_title
from core.rounds.round import Round
from core.traces.reader import TraceReader
from core.traces.schema import Header, Trace
from core.visible import flowing, visible

WAITING, RUNNING, DONE, STOPPED, FAILED = "waiting", "running", "done", "stopped", "failed"
ENDED = (DONE, STOPPED, FAILED)

ABANDONED_AFTER = 10.0  # seconds without a page: time enough to load it again
# estimates: a round's objects, a node as it is drawn, a masked position with its tokens
ROUND_BYTES, NODE_BYTES, PLACE_BYTES = 8_000, 250, 600
MAX_MESSAGE = 1000  # characters
ANSWER_ROUNDS, ANSWER_CALLS = 4_000, 64  # in one answer: about 1.5 million characters
ANSWER_ROWS = 2_000  # draft rows of the trees in one answer: about 80,000 characters


@dataclass(eq=False)
class StudioRun:
    """Rounds are only ever appended.

    footer  what a file holds beside its header and rounds; ``lies`` as in ``Trace``
    reading what is done before the first round, in words; empty when there is nothing to wait for
    seen    when a page last asked for it or watched it
    watchers  pages that watch it now
    left    when a page that showed it went to another run; −∞: none has, or one has come back
    file    the name of the file that was opened, any text; "" for another run
    example  the name of the example that it was opened as
    link    a second ticket, for looking only; None until the run is shared
    weight  about its bytes in memory
    drawn   set when a page has a tree to draw
    """

    ticket: str
    request: Request | None = None
    header: Header | None = None
    footer: Mapping[str, Any] = field(default_factory=dict)
    lies: tuple[str, ...] = ()
    rounds: list[Round] = field(default_factory=list)
    state: str = WAITING
    message: str = ""
    reading: str = ""
    seen: float = field(default_factory=time.monotonic)
    watchers: int = 0
    left: float = -math.inf
    stop: threading.Event = field(default_factory=threading.Event)
    drawn: threading.Event = field(default_factory=threading.Event)
    source: str = "live"
    file: str = ""
    example: str | None = None
    link: str | None = None
    weight: int = 0
    _trees: dict[int, dict[str, Any]] = field(default_factory=dict)

    def add(self, record: Round) -> None:
        self.rounds.append(record)
        self.weight += size_of(record) + ROUND_BYTES + NODE_BYTES * len(record.draft)
        if record.block is not None:
            self.weight += sum(PLACE_BYTES * len(step.ranking) for step in record.block.steps)

    @property
    def method(self) -> str:
        if self.header is not None:
            return self.header.method
        return self.request.method if self.request is not None else ""

    @cached_property
    def explainer(self) -> Explainer:
        """How its nodes are explained; for views, which come after the header."""
        return Explainer.of(self.header) if self.header is not None else Explainer()

    def end(self, state: str, message: str = "") -> None:
        """The message first: whoever sees the state may read it."""
        self.message, self.state = message, state

    @property
    def abandoned(self) -> bool:
        """Whether its page is gone."""
        return not self.watchers and time.monotonic() - self.seen > ABANDONED_AFTER

    @property
    def is_left(self) -> bool:
        """Whether its page went to another run, and the stream that ends now was that page's own.
        Later it may be another page's, which comes back or not."""
        return not self.watchers and time.monotonic() - self.left < ABANDONED_AFTER

    @property
    def made(self) -> Said:
        """Name it for an address, so that a link shows it in another browser."""
        return self.example if self.example is not None else said_of(self.request)

    @property
    def nodes(self) -> int:
        return sum(len(record.draft) for record in list(self.rounds))

    def tree(self, at: int) -> dict[str, Any]:
        """The tree of round ``at``. Made when first asked for: decoding does not wait for it."""
        if at not in self._trees:
            before = self.rounds[at - 1] if at else None
            self._trees[at] = tree_view(self.rounds[at], self.explainer, before)
        return self._trees[at]

    def trees(self, first: int, last: int) -> list[dict[str, Any]]:
        """Trees from round ``first`` to ``last``, as many as one answer should hold; at least one
        where there is one."""
        self.drawn.set()
        found, rows = [], 0
        for at in range(max(0, first), min(last + 1, len(self.rounds))):
            rows += len(self.rounds[at].draft)
            if found and rows > ANSWER_ROWS:
                break
            found.append(self.tree(at))
        return found

    def trace(self) -> Trace:
        """Return the trace of its rounds so far. Raises UserError before the first round."""
        rounds = tuple(self.rounds)
        if self.header is None or not rounds:
            yet = "" if self.state in ENDED else " yet"
            raise UserError(f"the run of {visible(self.method, 40)} has no round{yet}")
        return Trace(self.header, rounds, self.footer if self.state == DONE else None, self.lies)

    def lines(self, start: int) -> tuple[list[dict[str, Any]], bool]:
        """Lines of the rounds from ``start`` on, as many as one answer should hold, and whether
        there are more. A few rounds come with their trees, and all denoising calls; of many rounds
        the first of the run does, and the last, which is on view where a run is followed."""
        there = len(self.rounds)
        calls = there > 0 and self.rounds[0].block is not None
        end = min(there, start + (ANSWER_CALLS if calls else ANSWER_ROUNDS))
        lines = [round_line(self.rounds[at], at == 0) for at in range(start, end)]
        few = calls or sum(line["drafted"] + 1 for line in lines) <= ANSWER_ROWS
        for at, line in enumerate(lines, start):
            if few or at in (0, end - 1):
                line.update(self.tree(at))
        if few:
            self.drawn.set()
        return lines, end < there

    def read(self, trace: Trace | TraceReader, rounds: Iterator[Round], rows: float) -> bool:
        """Append about so many draft rows of a file; whether it is at its end."""
        for record in rounds:
            self.add(record)
            rows -= len(record.draft)
            if rows < 0 or self.stop.is_set():
                return False
        whole = Trace(trace.header, tuple(self.rounds), trace.footer, trace.lies)
        self.footer, self.lies = trace.footer or {}, trace.lies
        self.end(DONE if whole.complete else STOPPED, whole.remarks)
        return True

    def news(self, since: int) -> dict[str, Any]:
        """Return what a page draws, with the rounds from number ``since`` on."""
        since = max(0, since)
        state = self.state  # read before the rounds: an ended run's last rounds are then complete
        lines, more = self.lines(since)
        return {
            "state": state,
            "message": flowing(self.message, MAX_MESSAGE),
            "reading": self.reading,
            "header": header_view(self.header) if self.header is not None and not since else None,
            "started": self.header is not None,
            "source": self.source,
            "method": visible(shown_title(self.method)),  # known before there is a header
            "made": self.made if not since else None,
            "first": since,
            "rounds": lines,
            "more": more,
        }


def size_of(value: object) -> int:
    """About how many bytes the arrays and texts of a record take; a shared array counts once."""
    total, counted = 0, set[int]()
    todo: list[Any] = [value]
    for each in todo:  # which grows: a call for each takes twice as long
        kind = type(each)
        if kind is str:
            total += len(each)
        elif each is None or kind is int or kind is float:
            continue
        elif kind is np.ndarray:
            total += 0 if id(each) in counted else each.nbytes
            counted.add(id(each))
        elif isinstance(each, Mapping):
            todo += each.values()
        elif isinstance(each, (tuple, list)):
            todo += each
        elif is_dataclass(each):
            todo += vars(each).values()
    return total
