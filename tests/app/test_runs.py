"""Runs: long files read in the background, loading after the first page, bounds on what is held."""

from __future__ import annotations

import errno
import io
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from app.studio import run as run_module
from app.studio import runs as module
from app.studio.engine import Started
from app.studio.examples import BEING_WRITTEN
from app.studio.run import DONE, FAILED, RUNNING, STOPPED, StudioRun, size_of
from app.studio.runs import Runs
from app.view.rounds import round_view
from core.decoding.request import RunRequest
from core.errors import UserError
from core.progress import silent
from core.traces.reader import TraceReader
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.helpers.fakes import FakeEngine, make_header, make_round, make_run, rounds_of

LONG = 40


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A trace's lines, of which about a tenth is read before it is shown."""
    monkeypatch.setattr(module, "ROWS_AT_ONCE", LONG * 17 // 10)
    path = tmp_path / "long.jsonl"
    write_trace(path, Trace(make_header(), tuple(islice(rounds_of(16, False, 0), LONG)), {}))
    return path.read_bytes().splitlines(keepends=True)


class Halting(io.BytesIO):
    """A file whose lines from number ``at`` on wait for ``go``."""

    def __init__(self, lines: list[bytes], at: int):
        super().__init__(b"".join(lines))
        self.at, self.read_lines, self.go = at, 0, False

    def readline(self, size: int | None = -1) -> bytes:
        self.read_lines += 1
        if self.read_lines >= self.at:
            until(lambda: self.go)
        return super().readline(size)


def test_a_long_file_is_there_before_it_is_read(lines: list[bytes]):
    runs, file = Runs(FakeEngine()), Halting(lines, 20)
    run = runs.get(runs.open(TraceReader(file, "t")))
    assert run is not None
    until(lambda: len(run.rounds) == 18)
    news = runs.updates(run.ticket, 0)["run"]
    assert run.state == RUNNING and news["source"] == "file" and len(news["rounds"]) == 18
    file.go = True
    until(lambda: run.state == DONE)
    assert len(run.rounds) == LONG and run.trace().complete
    said = TraceReader(io.BytesIO(b"".join(lines)), "t").trace().footer
    assert said and run.trace().footer == said


def test_a_long_file_is_read_on_when_a_tree_of_it_is_drawn(
    lines: list[bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "FIRST_TREE", 1e6)
    monkeypatch.setattr(run_module, "ANSWER_ROWS", 20)
    runs = Runs(FakeEngine())
    run = runs.get(runs.open(TraceReader(io.BytesIO(b"".join(lines)), "t")))
    assert run is not None and run.lines(0)[1] is False
    assert 0 < len(run.rounds) < LONG and not run.drawn.is_set()
    assert len(run.trees(0, 0)) == 1
    until(lambda: run.state == DONE)
    assert len(run.rounds) == LONG


def test_trees_come_with_a_few_rounds_and_else_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
):
    rounds = tuple(make_run(9))
    runs = Runs(FakeEngine())
    run = runs.get(runs.open(Trace(make_header(), rounds, {})))
    assert run is not None
    views = [round_view(record, run.explainer, at == 0) for at, record in enumerate(rounds)]
    assert run.lines(0) == (views, False)
    monkeypatch.setattr(run_module, "ANSWER_ROWS", 150)  # of rounds with 65
    monkeypatch.setattr(run_module, "ANSWER_ROUNDS", 7)
    lines, more = run.lines(0)
    assert more and ["parents" in line for line in lines] == [True, *5 * [False], True]
    assert run.lines(7) == (views[7:], False)
    assert [line | run.trees(at, at)[0] for at, line in enumerate(lines)] == views[:7]
    assert len(run.trees(3, 9)) == 2 and run.trees(9, 12) == [] and run.trees(-4, -1) == []


def test_what_is_wrong_at_the_beginning_is_no_run(lines: list[bytes]):
    runs, bad = Runs(FakeEngine()), [*lines[:2], b'{"kind":"round"}\n', *lines[3:]]
    with pytest.raises(UserError, match="line 3"):
        runs.open(TraceReader(io.BytesIO(b"".join(bad)), "t"))


def test_what_is_wrong_later_leaves_what_came_before(lines: list[bytes]):
    runs, bad = Runs(FakeEngine()), [*lines[:30], b'{"kind":"round"}\n', *lines[31:]]
    run = runs.get(runs.open(TraceReader(io.BytesIO(b"".join(bad)), "t")))
    assert run is not None
    until(lambda: run.state == FAILED)
    assert "line 31" in run.message and len(run.rounds) == 29


def test_a_file_without_its_end_and_a_reading_that_is_stopped(lines: list[bytes]):
    runs = Runs(FakeEngine())
    cut = runs.get(runs.open(TraceReader(io.BytesIO(b"".join(lines[:-1])), "t")))
    assert cut is not None
    until(lambda: cut.state == STOPPED)
    assert len(cut.rounds) == LONG and "no footer" in cut.message
    file = Halting(lines, 20)
    run = runs.get(runs.open(TraceReader(file, "t")))
    assert run is not None
    runs.stop(run.ticket)
    file.go = True
    until(lambda: run.state == STOPPED)
    assert len(run.rounds) < LONG and "stopped before" in run.message


def test_loading_waits_for_the_first_page():
    runs = Runs(FakeEngine(), patience=1e3)
    runs.start()
    time.sleep(0.1)
    assert runs.model.message == "waking up"
    runs.updates("", 0)
    until(lambda: runs.model.state == "ready")
    runs.close()


def test_loading_waits_only_so_long():
    runs = Runs(FakeEngine(), patience=0.05)
    runs.start()
    until(lambda: runs.model.state == "ready")
    runs.close()


def test_a_cache_that_cannot_be_written_is_a_sentence(caplog: pytest.LogCaptureFixture):
    engine = FakeEngine()

    def prepare(report):
        raise OSError(errno.EROFS, "Read-only file system", "cache/models")

    engine.prepare = prepare
    runs = Runs(engine)
    runs.start()
    until(lambda: runs.model.state == "failed")
    assert runs.model.message == "cache/models cannot be used: Read-only file system"
    assert not caplog.records
    runs.close()


def test_runs_that_close_before_the_first_page_load_nothing(monkeypatch: pytest.MonkeyPatch):
    engine, began = FakeEngine(), threading.Event()
    monkeypatch.setattr(engine, "prepare", lambda _: began.set())
    runs = Runs(engine, patience=1e3)
    runs.start()
    runs.close()
    assert not began.wait(0.2)


# ── limits ───────────────────────────────────────────────────────────────────────────────────────


def short(count: int = 2) -> Trace:
    return Trace(make_header(), tuple(make_run(count)), {})


def test_the_longest_unseen_run_makes_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_RUNS", 2)
    runs = Runs(FakeEngine())
    first, second = runs.open(short()), runs.open(short())
    link = runs.share(second)
    assert runs.get(first) is not None  # looked at: now the second is the older one
    third = runs.open(short())
    assert [runs.get(t) is None for t in (first, second, third)] == [False, True, False]
    assert runs.get(link) is None and runs.updates(second, 0)["run"] is None


def test_a_heavy_run_makes_others_leave_and_stays(monkeypatch: pytest.MonkeyPatch):
    runs = Runs(FakeEngine())
    light, heavy = runs.open(short()), runs.open(short(20))
    run = runs.get(heavy)
    assert run is not None
    monkeypatch.setattr(module, "MAX_BYTES", run.weight)
    last = runs.open(short())
    assert [runs.get(t) is None for t in (light, heavy, last)] == [True, True, False]
    again = runs.open(short(80))  # alone it may be heavier than all together
    assert runs.get(again) is not None and runs.get(last) is None


def test_a_run_weighs_what_its_records_hold():
    record = make_round()
    assert record.by_depth is not None and record.target_probs is not None
    lists = record.by_depth.log_q.nbytes + record.by_depth.ids.nbytes
    texts = sum(map(len, record.texts.values()))
    assert lists + record.target_probs.top_ids.nbytes + texts < size_of(record) < 40 * 1024
    without = replace(record, draft=replace(record.draft, proposal=None))
    assert record.proposal is not None and record.proposal.factorised_lists  # and counted once
    assert size_of(record) - size_of(without) == lists + record.proposal.after.nbytes
    assert size_of(record.with_texts({1: "x" * 9000})) - size_of(record.with_texts({})) == 9000


def test_a_run_whose_page_is_gone_stops_and_says_why(monkeypatch: pytest.MonkeyPatch):
    runs = Runs(FakeEngine())
    runs.start()
    running, waiting = runs.submit(RunRequest("slow"), RunRequest("hello"))
    until(lambda: bool(runs._runs[running].rounds))  # unlike runs.get, no question
    monkeypatch.setattr(run_module, "ABANDONED_AFTER", -1.0)
    for ticket in (running, waiting):
        until(lambda: runs._runs[ticket].state == STOPPED)  # noqa: B023 (called at once)
        assert "page that showed this run is gone" in runs.updates(ticket, 0)["run"]["message"]
    runs.close()


def test_a_run_that_is_watched_goes_on_until_nobody_watches(monkeypatch: pytest.MonkeyPatch):
    runs = Runs(FakeEngine())
    monkeypatch.setattr(run_module, "ABANDONED_AFTER", 0.3)
    (ticket,) = runs.submit(RunRequest("slow"))
    run = runs._runs[ticket]
    with runs.watching([ticket, "gone"]), runs.watching([ticket]):
        runs.start()
        until(lambda: len(run.rounds) >= 3)  # a quarter of a second each, and no question
        assert run.watchers == 2 and run.state == RUNNING
    until(lambda: run.state == STOPPED)
    runs.close()


class SlowReader(FakeEngine):
    """Reads a prompt part by part, and reports as often as it is let."""

    def __init__(self):
        super().__init__()
        self.may_end, self.reports = threading.Event(), 0

    def start(self, request, report=silent):
        made = super().start(request, report)

        def rounds():
            while not self.may_end.wait(0.01):
                self.reports += 1
                report(0.25, "reading the prompt")
            yield from made.rounds

        return Started(made.header, rounds())


def test_a_prompt_that_is_read_can_be_stopped_and_says_how_far_it_is():
    engine = SlowReader()
    runs = Runs(engine)
    runs.start()
    stopped, goes_on = runs.submit(RunRequest("hello"), RunRequest("hello"))
    until(lambda: runs.updates(stopped, 0)["run"]["reading"] == "reading the prompt: 25%")
    runs.stop(stopped)
    until(lambda: runs.updates(stopped, 0)["run"]["state"] == STOPPED)
    assert not runs._runs[stopped].rounds and engine.reports
    until(lambda: runs.updates(goes_on, 0)["run"]["reading"] != "")
    engine.may_end.set()
    until(lambda: runs.updates(goes_on, 0)["run"]["state"] == DONE)
    assert runs.updates(goes_on, 0)["run"]["reading"] == ""
    runs.close()


def test_a_run_that_is_asked_for_goes_on_and_one_that_is_stopped_says_nothing():
    runs = Runs(FakeEngine())
    runs.start()
    (ticket,) = runs.submit(RunRequest("slow"))
    until(lambda: len(runs.updates(ticket, 0)["run"]["rounds"]) > 1)
    runs.stop(ticket)
    until(lambda: runs.updates(ticket, 0)["run"]["state"] == STOPPED)
    assert runs.updates(ticket, 0)["run"]["message"] == ""
    runs.close()


def test_no_more_runs_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    runs = Runs(FakeEngine())  # not opened: nothing is decoded
    runs.submit(RunRequest("one"), RunRequest("two"))
    with pytest.raises(UserError, match="2 runs are waiting already"):
        runs.submit(RunRequest("three"), RunRequest("four"))
    (third,) = runs.submit(RunRequest("three"))  # none of the two was queued
    runs.stop(third)
    assert runs.submit(RunRequest("four"))


def test_a_page_that_leaves_a_run_stops_it_unless_another_watches_it():
    """A tab that was made of another has its tickets, and each page's stream may end late."""
    runs = Runs(FakeEngine())
    ticket, waiting = runs.submit(RunRequest("slow"), RunRequest("hello"))
    run, queued = runs._runs[ticket], runs._runs[waiting]
    with runs.watching([ticket]):
        with runs.watching([ticket, waiting]):
            runs.leave(ticket)
            runs.leave(waiting)
            assert not run.stop.is_set() and not queued.stop.is_set()
        assert not run.stop.is_set(), "the other page watches it"
        assert queued.state == STOPPED, "nobody is left"
        runs.get(ticket)  # the other page asks for it
    assert not run.stop.is_set(), "it may be loading again"
    runs.leave(runs.share(ticket))
    assert not run.stop.is_set(), "a link stops nothing"
    runs.leave(ticket)
    assert run.stop.is_set()


def test_a_stream_that_goes_on_after_its_page_has_left_keeps_no_run():
    runs = Runs(FakeEngine())
    left, back, late = runs.submit(*[RunRequest("slow")] * 3)
    with runs.watching([left, back, late]):
        for ticket in (left, back, late):
            runs.leave(ticket)
            runs.mark(ticket)  # as the stream does until it ends
            runs.updates(ticket, 0)
        runs.asked(back, 0)
        runs._runs[late].left -= run_module.ABANDONED_AFTER
    assert runs._runs[left].stop.is_set(), "its page is gone"
    assert not runs._runs[back].stop.is_set(), "its page is back"
    assert not runs._runs[late].stop.is_set(), "another page's stream, which may come back"


def test_a_file_that_is_read_is_news_when_it_has_doubled():
    """A page lays out all of a run's text for each piece of news of it."""
    runs = Runs(FakeEngine())
    made = {
        name: StudioRun(name, state=RUNNING, source=source, reading=reading)
        for name, source, reading in (
            ("read", "file", ""),
            ("written", "file", BEING_WRITTEN),
            ("live", "live", ""),
        )
    }
    seen = {name: set[object]() for name in made}
    for run in made.values():
        runs._add(run)
        for record in make_run(16, 1):
            run.rounds.append(record)
            seen[run.ticket].add(runs.mark(run.ticket))
    assert {name: len(marks) for name, marks in seen.items()} == {
        "read": 5,
        "written": 16,
        "live": 16,
    }
    before = runs.mark("read")
    made["read"].state = DONE
    assert runs.mark("read") != before, "its end is news, with all its rounds"
