"""Ctrl-C and SIGTERM end a run wherever they come."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from app import ray_workers
from app.decoding import Decoding, decode_prompt
from app.interrupts import SAME, SIGNALS, delayed_interrupt, sigterm_heard
from core.decoding.request import RunRequest
from tests.helpers.fakes import make_run


class Late:
    def __init__(self, number):
        self._number = number

    def __del__(self):
        os.kill(os.getpid(), self._number)
        time.sleep(0.01)


@pytest.fixture
def heard():
    """Ctrl-C as in a terminal: a shell's job in the background is started without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with sigterm_heard():
        yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends the process there")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("sent", SIGNALS)
def test_one_that_a_deletion_swallows_is_heard_after_the_round(sent):
    told = []

    def rounds():
        for number, record in enumerate(make_run(5)):
            if number == 2:
                Late(sent)  # deleted at once
            yield record

    run = SimpleNamespace(header=None, rounds=rounds(), tokens=list, text=str)
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(KeyboardInterrupt):
        decode_prompt(
            Decoding(lambda *_: run, RunRequest("a")), "a", lambda it: told.append(len(it.tokens))
        )
    assert told == [1, 2, 3]
    assert [signal.getsignal(each) for each in SIGNALS] == before


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("sent", SIGNALS)
def test_one_that_comes_while_something_is_kept_waits_for_it(sent):
    kept = []
    with pytest.raises(KeyboardInterrupt), delayed_interrupt():
        signal.raise_signal(sent)
        kept.append(sent)
    assert kept == [sent]


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with delayed_interrupt():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_two_that_come_at_once_are_one():
    with sigterm_heard() as sigterm:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert sigterm.came is not None
        sigterm.came -= SAME
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("during", [True, False])
def test_ray_s_own_handler_ends_no_command(monkeypatch, during):
    """It would end the command without a word: with exit code 15."""

    def init(**_):
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
        if during:
            signal.raise_signal(signal.SIGTERM)

    ray = SimpleNamespace(init=init, shutdown=lambda: None)
    monkeypatch.setattr(ray_workers, "_ray", lambda: ray)
    with sigterm_heard(), pytest.raises(KeyboardInterrupt), ray_workers._connected("local", 1):
        signal.raise_signal(signal.SIGTERM)
