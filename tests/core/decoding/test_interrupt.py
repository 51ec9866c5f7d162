"""Ctrl-C ends a run wherever it comes."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from app.decoding import Decoding, decode_prompt
from core.decoding.request import RunRequest
from tests.helpers.fakes import make_run


class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)


@pytest.fixture
def heard():
    """Ctrl-C as in a terminal: a shell's job in the background is started without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends the process there")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("heard")
def test_one_that_a_deletion_swallows_is_heard_after_the_round():
    told = []

    def rounds():
        for number, record in enumerate(make_run(5)):
            if number == 2:
                Late()  # deleted at once
            yield record

    run = SimpleNamespace(header=None, rounds=rounds(), tokens=list, text=lambda t: str(len(t)))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        decode_prompt(
            Decoding(lambda *_: run, RunRequest("a")), "a", lambda so_far: told.append(so_far.text)
        )
    assert told == ["1", "2", "3"]
    assert signal.getsignal(signal.SIGINT) is before
