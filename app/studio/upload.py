"""Traces in and out: an upload is only ever parsed as a trace, a download is made in memory.

Gradio names an upload's folder by what the file holds, so two tabs with one file share it, and
neither may take it away from the other: Gradio itself removes what has lain there for a minute.
"""

from __future__ import annotations

import base64
import gzip
import io
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from app.view.rounds import method_name
from core.errors import UserError
from core.traces.reader import TraceReader
from core.traces.schema import Trace
from core.traces.writer import write_trace

UPLOAD = 64 << 20  # bytes of a file
UNPACKED = 512 << 20  # bytes of what a gzip file may unpack to
LEFT = 60  # seconds an upload stays on the disk; it is read at once


def tidy(folder: Path) -> None:
    """Remove what Gradio leaves of an upload that is gone: an empty file and an empty folder."""
    for empty in _empty(folder, time.time() - LEFT):
        with suppress(OSError):  # it may be another's, or gone by now
            empty.rmdir() if empty.is_dir() else empty.unlink()


def _empty(folder: Path, before: float) -> Iterator[Path]:
    for path in folder.glob("*"):
        with suppress(OSError):
            about = path.stat()
            if about.st_mtime < before and (path.is_dir() or not about.st_size):
                yield path


def open_upload(path: Path) -> TraceReader:
    """The trace in an uploaded file, which may go now. Raises UserError, with one sentence, for
    anything else; the reader does too, where it comes to that."""
    try:
        if path.stat().st_size > UPLOAD:
            raise UserError(f"the file is larger than {UPLOAD >> 20} MB")
        raw = io.BytesIO(path.read_bytes())
        zipped = raw.getvalue()[:2] == b"\x1f\x8b"
        file = gzip.GzipFile(fileobj=raw) if zipped else raw
        return TraceReader(cast(Any, _Bounded(file)), "this file")
    except (OSError, EOFError):
        raise UserError("this file cannot be read") from None


class _Bounded(io.RawIOBase):
    """A file that ends with a sentence when it unpacks to more than it may."""

    def __init__(self, file: Any):
        self._file, self._left = file, UNPACKED

    def read(self, size: int = -1) -> bytes:
        return self._count(self._file.read(size))

    def readline(self, size: int | None = -1) -> bytes:
        return self._count(self._file.readline(-1 if size is None else size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def _count(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise UserError(f"this file unpacks to more than {UNPACKED >> 20} MB")
        return data


def download(trace: Trace) -> dict[str, str]:
    """A trace as a file for the browser: its name, and its bytes in base64.

    Raises UserError for one that no page would open again.
    """
    name = saved_name(trace.header.method, f"{plain_name(trace.header.created)}.jsonl.gz")
    with tempfile.TemporaryDirectory(prefix="draftscope-") as folder:
        path = Path(folder) / "run.jsonl.gz"
        write_trace(path, trace)
        if path.stat().st_size > UPLOAD:
            raise UserError(
                f"this trace would be larger than {UPLOAD >> 20} MB: the command run --trace "
                "writes one of any size"
            )
        return {"name": name, "data": base64.b64encode(path.read_bytes()).decode("ascii")}


def download_svg(svg: str, method: str, index: int) -> dict[str, str]:
    """A drawn tree as a file for the browser, likewise."""
    name = saved_name(method, f"round-{index + 1}.svg")
    return {"name": name, "data": base64.b64encode(svg.encode()).decode("ascii")}


def saved_name(method: object, rest: str) -> str:
    """A file's name that begins with the method's."""
    return f"draftscope-{plain_name(method_name(method).removesuffix('.py'))}-{rest}"


def plain_name(text: str) -> str:
    """Only what every file system takes: a header may come from a hostile file."""
    return re.sub(r"[^0-9A-Za-z]+", "-", text)[:40].strip("-") or "run"
