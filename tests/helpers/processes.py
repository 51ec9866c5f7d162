"""The programs that tests start."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from subprocess import PIPE, Popen
from typing import Any

from tests import ROOT


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[Popen[str]]:
    """Start a program, and wait at the end of the block until it has ended.

    A block that fails kills it: `Popen` would wait without an end for a server that nobody stops.
    """
    with Popen(command, text=True, **options) as program:
        try:
            yield program
        except BaseException:
            program.kill()
            raise


def start(*words: object, **more) -> Popen[str]:
    """The command line in a process of its own."""
    return Popen(
        [sys.executable, "-m", "app", *map(str, words)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | more.pop("env", {}),
        stdout=PIPE,
        stderr=more.pop("stderr", PIPE),
        text=True,
        # A shell starts background jobs with SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **more,
    )
