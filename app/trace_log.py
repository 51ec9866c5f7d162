"""A run being logged and timed: the trace file and the clock."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from app.interrupts import delayed_interrupt
from core.errors import UserError
from core.files import check_place, held
from core.rounds.round import Round
from core.traces.reader import read_header
from core.traces.schema import ENDINGS
from core.traces.writer import TraceWriter

if TYPE_CHECKING:
    from core.decoding.decode import Observation, Scene
    from core.decoding.engine import Run


@dataclass(eq=False)
class TimedProbe:
    """The probe with a stopwatch: what observing costs is not decoding time."""

    seconds: float = 0.0

    def __call__(self, scene: Scene) -> Observation:
        from analysis.measures.probe import observe

        start = time.perf_counter()
        observation = observe(scene)
        self.seconds += time.perf_counter() - start
        return observation


@dataclass(eq=False)
class Clock:
    """Iterates rounds and counts only the time spent waiting for them, without the probe's.

    prefill  seconds before the first round
    """

    rounds: Iterator[Round]
    probe: TimedProbe | None = None
    prefill: float = field(default=0.0, init=False)
    _waited: float = field(default=0.0, init=False)

    def __iter__(self) -> Iterator[Round]:
        first = True
        while True:
            start = time.perf_counter()
            record = next(self.rounds, None)
            self._waited += time.perf_counter() - start
            if record is None:
                return
            if first:
                first, self.prefill = False, max(0.0, self.seconds - record.times.total)
            yield record

    @property
    def seconds(self) -> float:
        return self._waited - (self.probe.seconds if self.probe else 0.0)


class TraceLog:
    """The trace of one run, or none. Its file is made when the first round is there, so a run that
    fails before leaves an older file alone."""

    def __init__(self, path: Path | None, run: Run):
        self._path, self._run = path, run
        self._writer: TraceWriter | None = None
        self._held = ExitStack()

    def __enter__(self) -> TraceLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._held:
            if self._writer is not None:
                self._guarded(self._writer.close)
        if kind is KeyboardInterrupt and self._writer is not None:
            raise KeyboardInterrupt(f"{self._path} holds the rounds so far") from None

    def write(self, record: Round) -> None:
        if self._path is None:
            return
        path, whole = self._path, self._run.with_texts(record)

        def append() -> None:
            if self._writer is None:
                self._hold(path)
                self._writer = TraceWriter(path, self._run.header)
            self._writer.write(whole)

        self._guarded(append)

    def finish(self, text: str, seconds: float, **more: Any) -> None:
        """Write the footer: the text, its seconds, and ``more``."""
        if (writer := self._writer) is not None:
            self._guarded(lambda: writer.finish(text=text, wall_seconds=seconds, **more))

    def _hold(self, path: Path) -> None:
        """Two that write one trace would make one file of two runs. Raises UserError.

        On Windows nobody could read a file that is held, and a trace may be looked at as it grows.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        if sys.platform != "win32":
            self._held.enter_context(held(path, UserError(f"another run is writing {path}")))

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            with delayed_interrupt():
                action()
        except OSError as error:
            why = error.strerror or error
            raise UserError(f"the trace {self._path} cannot be written: {why}") from None


# ── where it is written ──────────────────────────────────────────────────────────────────────────


@overload
def nth_path(path: None, number: int) -> None: ...
@overload
def nth_path(path: Path, number: int) -> Path: ...
def nth_path(path: Path | None, number: int) -> Path | None:
    """The trace of one of several prompts: run.jsonl.gz → run-3.jsonl.gz"""
    if path is None:
        return None
    stem, dot, suffixes = path.name.partition(".")
    return path.with_name(f"{stem}-{number}{dot}{suffixes}")


def check_trace(path: Path | None, prompts: int) -> None:
    """Raises UserError for a trace, or a trace of each of several prompts, that cannot be written
    or would replace a file that is not a trace. Asked before anything is decoded."""
    if path is None:
        return
    if not path.name.endswith(ENDINGS):
        raise UserError(f"the trace {path} must be named NAME{' or NAME'.join(ENDINGS)}")
    check_place(path)
    for number in range(1, prompts + 1):
        _check_replaceable(path if prompts == 1 else nth_path(path, number))


def _check_replaceable(path: Path) -> None:
    """Only the header is read. An empty file is what a run leaves that is killed before it."""
    if path.is_dir():
        raise UserError(f"the trace {path} cannot be written: it is a folder")
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        read_header(path)
    except UserError:
        raise UserError(f"{path} exists and is not a trace") from None
