"""Traces put on view: the first rounds at once, the rest of a long file beside."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from app.studio import desk as desks
from app.studio.desk import DONE, FAILED, RUNNING, STOPPED, Desk, weight
from app.studio.engine import Ask
from core.errors import UserError
from core.traces.reader import TraceReader
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.fakes import FakeEngine, make_header, make_round, make_run, rounds_of

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
    said = TraceReader(io.BytesIO(b"".join(lines)), "t").trace().footer
    assert said and run.trace().footer == said


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


# ── limits ───────────────────────────────────────────────────────────────────────────────────────


def short(count: int = 2) -> Trace:
    return Trace(make_header(), tuple(make_run(count)), {})


def test_the_run_that_nobody_asked_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(desks, "KEPT_RUNS", 2)
    desk = Desk(FakeEngine())
    first, second = desk.show(short()), desk.show(short())
    link = desk.share(second)
    assert desk.run(first) is not None  # looked at: now the second is the older one
    third = desk.show(short())
    assert [desk.run(t) is None for t in (first, second, third)] == [False, True, False]
    assert desk.run(link) is None and desk.news(second, 0)["run"] is None


def test_a_heavy_run_makes_others_leave_and_stays(monkeypatch: pytest.MonkeyPatch):
    desk = Desk(FakeEngine())
    light, heavy = desk.show(short()), desk.show(short(40))
    run = desk.run(heavy)
    assert run is not None
    monkeypatch.setattr(desks, "KEPT_BYTES", run.weight)
    last = desk.show(short())
    assert [desk.run(t) is None for t in (light, heavy, last)] == [True, True, False]
    again = desk.show(short(80))  # alone it may be heavier than all together
    assert desk.run(again) is not None and desk.run(last) is None


def test_a_run_weighs_what_its_records_hold():
    record = make_round()
    assert record.candidates is not None and record.target_probs is not None
    arrays = record.candidates.log_q.nbytes + record.target_probs.top_ids.nbytes
    texts = sum(map(len, record.texts.values()))
    assert arrays + texts < weight(record) < 40 * 1024
    bare = weight(replace(record, candidates=None))
    both = record.candidates.log_q.nbytes + record.candidates.ids.nbytes
    assert weight(record) - bare == both
    assert weight(record.with_texts({1: "x" * 9000})) - weight(record.with_texts({})) == 9000


def test_a_run_that_no_page_asks_for_stops_and_says_why(monkeypatch: pytest.MonkeyPatch):
    desk = Desk(FakeEngine())
    desk.open()
    running, waiting = desk.submit(Ask("slow"), Ask("hello"))
    until(lambda: bool(desk._runs[running].rounds))  # unlike desk.run, no question
    monkeypatch.setattr(desks, "LOST_AFTER", -1.0)
    for ticket in (running, waiting):
        until(lambda: desk._runs[ticket].state == STOPPED)  # noqa: B023 (called at once)
        assert "no page has asked" in desk.news(ticket, 0)["run"]["message"]
    desk.close()


def test_a_run_that_is_asked_for_goes_on_and_one_that_is_stopped_says_nothing():
    desk = Desk(FakeEngine())
    desk.open()
    (ticket,) = desk.submit(Ask("slow"))
    until(lambda: len(desk.news(ticket, 0)["run"]["rounds"]) > 1)
    desk.halt(ticket)
    until(lambda: desk.news(ticket, 0)["run"]["state"] == STOPPED)
    assert desk.news(ticket, 0)["run"]["message"] == ""
    desk.close()


def test_no_more_runs_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(desks, "QUEUED", 3)
    desk = Desk(FakeEngine())  # not opened: nothing is decoded
    desk.submit(Ask("one"), Ask("two"))
    with pytest.raises(UserError, match="2 runs are waiting already"):
        desk.submit(Ask("three"), Ask("four"))
    (third,) = desk.submit(Ask("three"))  # none of the two was queued
    desk.halt(third)
    assert desk.submit(Ask("four"))
