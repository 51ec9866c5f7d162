"""Progress of work that takes long, and tables, on a terminal."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from app.decoding import Decoding, decode_prompt
from app.terminal import ProgressBar
from core.decoding.request import RunRequest
from core.progress import told
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.helpers.fakes import make_header, make_run


@pytest.mark.parametrize(
    ("fraction", "seconds", "said"),
    [
        (None, 100, "at work"),
        (0.5, 1, "at work: 50%"),  # too early to say
        (0.01, 100, "at work: 1%"),
        (0.25, 10, "at work: 25%, about 30 s left"),
        (0.9, 20, "at work: 90%, about 5 s left"),
        (0.99, 20, "at work: 99%, about 5 s left"),
        (0.2, 60, "at work: 20%, about 4 min left"),
        (1.0, 60, "at work: 100%"),
    ],
)
def test_the_time_left_follows_from_the_time_it_took(fraction, seconds, said):
    assert told(fraction, "at work", seconds) == said


def test_a_text_that_nobody_watches_is_made_once_however_many_rounds_it_takes():
    asked: list[int] = []

    def text(tokens: list[int]) -> str:
        asked.append(len(tokens))
        return "a text"

    run = SimpleNamespace(header=None, rounds=iter(make_run(50)), tokens=list, text=text)
    found = decode_prompt(Decoding(lambda *_: run, RunRequest("a")), "a")
    assert found.text == "a text" and asked == [50]


def test_reading_that_is_soon_done_says_nothing(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr("app.terminal.SOON", 2.0)
    monkeypatch.setattr("app.terminal.time", SimpleNamespace(monotonic=lambda: now[0]))
    with ProgressBar("reading", late=True) as progress:
        progress.at(0.1, "a")
        now[0] += 1.9
        progress.at(0.4, "a")
        assert capsys.readouterr().err == ""
        now[0] += 0.2
        progress.at(0.5, "a")
        progress.at(0.6, "a")
        assert capsys.readouterr().err == "reading: a (50%)\n"
        now[0] += 10
        progress.at(None, "b")
    assert capsys.readouterr().err == "reading: b\n"


@pytest.mark.parametrize("zipped", [False, True])
def test_reading_tells_how_far_it_is(tmp_path, zipped):
    path = tmp_path / ("t.jsonl.gz" if zipped else "t.jsonl")
    rounds = tuple(replace(r, index=n) for n, r in enumerate(make_run(1, 4) * 400))
    write_trace(path, Trace(make_header(), rounds, {}))
    shares = list[float]()
    trace = read_trace(path, at=shares.append)
    assert len(trace.rounds) == 400 and len(shares) == 4
    assert shares == sorted(shares) and 0 < shares[0] <= shares[-1] <= 1


def test_one_long_step_is_told_of_though_nothing_moves(monkeypatch, capsys):
    monkeypatch.setattr("app.terminal.SOON", 2.0)
    timers = list[object]()
    now = [0.0]

    class Timer:
        def __init__(self, seconds, call):
            self.seconds, self.call, self.daemon, self.cancelled = seconds, call, False, False
            timers.append(self)

        def start(self):
            pass

        def cancel(self):
            self.cancelled = True

    monkeypatch.setattr("app.terminal.threading", SimpleNamespace(Timer=Timer))
    monkeypatch.setattr("app.terminal.time", SimpleNamespace(monotonic=lambda: now[0]))
    with ProgressBar("to html", late=True) as progress:
        progress.at(0.5, "reading")
        progress.at(None, "making the file")
        (timer,) = timers
        assert timer.seconds == 2.0 and capsys.readouterr().err == ""
        now[0] = 2.0
        timer.call()
        assert capsys.readouterr().err == "to html: making the file\n"
    assert timer.cancelled
