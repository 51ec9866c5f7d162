"""The programs that tests start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from subprocess import Popen
from typing import Any


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
