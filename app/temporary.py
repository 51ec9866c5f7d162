"""The end of a server, by Ctrl-C and by SIGTERM: no file of it stays."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.files import scratch


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end this process with exit code 143 as an exception does: what ends with a block
    ends. Only the main thread hears of signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def temporary_files() -> Iterator[None]:
    """Have this process make its temporary files, Gradio's uploads among them, in a folder that
    goes at the end. What killed studios left goes, too. Gradio makes a folder when it is imported,
    which must be within."""
    with scratch(Path(tempfile.gettempdir()), "draftscope-studio-") as folder:
        before, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = before
