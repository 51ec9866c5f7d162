"""Traces put on view: the first rounds at once, the rest of a long file beside."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from app.studio import desk as desks
from app.studio.desk import DONE, FAILED, RUNNING, STOPPED, Desk
from core.errors import UserError
from core.trace import Trace, TraceReader, write_trace
from tests.fakes import FakeEngine, make_header, rounds_of

LONG = 40


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A trace's lines, of which about a tenth is read before it is shown."""
    monkeypatch.setattr(desks, "SOON", LONG * 17 // 10)
    path = tmp_path / "long.jsonl"
    write_trace(path, Trace(make_header(), tuple(islice(rounds_of(16, False, 0), LONG)), {}))
    return path.read_bytes().splitlines(keepends=True)


class Halting(io.BytesIO):
    """A file whose lines from number ``at`` on wait for ``go``."""

    def __init__(self, lines: list[bytes], at: int):
        super().__init__(b"".join(lines))
        self.at, self.given, self.go = at, 0, False

    def readline(self, size: int | None = -1) -> bytes:
        self.given += 1
        if self.given >= self.at:
            until(lambda: self.go)
        return super().readline(size)


def test_a_long_file_is_there_before_it_is_read(lines: list[bytes]):
    desk, file = Desk(FakeEngine()), Halting(lines, 20)
    run = desk.run(desk.show(TraceReader(file, "t")))
    assert run is not None
    until(lambda: len(run.rounds) == 18)
    news = desk.news(run.ticket, 0)["run"]
    assert run.state == RUNNING and news["source"] == "file" and len(news["rounds"]) == 18
    file.go = True
    until(lambda: run.state == DONE)
    assert len(run.rounds) == LONG and run.trace().complete


def test_what_is_wrong_at_the_beginning_is_no_run(lines: list[bytes]):
    desk, bad = Desk(FakeEngine()), [*lines[:2], b'{"kind":"round"}\n', *lines[3:]]
    with pytest.raises(UserError, match="line 3"):
        desk.show(TraceReader(io.BytesIO(b"".join(bad)), "t"))


def test_what_is_wrong_later_leaves_what_came_before(lines: list[bytes]):
    desk, bad = Desk(FakeEngine()), [*lines[:30], b'{"kind":"round"}\n', *lines[31:]]
    run = desk.run(desk.show(TraceReader(io.BytesIO(b"".join(bad)), "t")))
    assert run is not None
    until(lambda: run.state == FAILED)
    assert "line 31" in run.message and len(run.rounds) == 29


def test_a_file_without_its_end_and_a_reading_that_is_stopped(lines: list[bytes]):
    desk = Desk(FakeEngine())
    cut = desk.run(desk.show(TraceReader(io.BytesIO(b"".join(lines[:-1])), "t")))
    assert cut is not None
    until(lambda: cut.state == STOPPED)
    assert len(cut.rounds) == LONG and "no footer" in cut.message
    file = Halting(lines, 20)
    run = desk.run(desk.show(TraceReader(file, "t")))
    assert run is not None
    desk.halt(run.ticket)
    file.go = True
    until(lambda: run.state == STOPPED)
    assert len(run.rounds) < LONG and "stopped before" in run.message


def test_loading_waits_for_the_first_page():
    desk = Desk(FakeEngine(), patience=1e3)
    desk.open()
    time.sleep(0.1)
    assert desk.model.message == "waking up"
    desk.news("", 0)
    until(lambda: desk.model.state == "ready")
    desk.close()


def test_loading_does_not_wait_for_ever():
    desk = Desk(FakeEngine(), patience=0.05)
    desk.open()
    until(lambda: desk.model.state == "ready")
    desk.close()


def test_a_desk_that_closes_before_anybody_came_loads_nothing(monkeypatch: pytest.MonkeyPatch):
    engine, began = FakeEngine(), threading.Event()
    monkeypatch.setattr(engine, "prepare", lambda _: began.set())
    desk = Desk(engine, patience=1e3)
    desk.open()
    desk.close()
    assert not began.wait(0.2)
