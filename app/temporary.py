"""The temporary files of a server, which go with it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.files import scratch


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
