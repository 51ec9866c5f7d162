"""Files in and out of the page: an upload is only ever parsed, a download is made in memory.

A page names no file but its own uploads. Gradio names an upload's folder by what the file holds, so
two tabs with one file share it, and neither may remove it: Gradio itself removes uploads after a
minute.
"""

from __future__ import annotations

import base64
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.studio.examples import OpenFile
from app.studio.run import StudioRun
from app.view.shapes import INCH, Drawing, Paper
from app.view.svg import svg
from core.errors import UserError
from core.lines import Limits
from core.methods.method import file_name
from core.rounds.round import Round
from core.traces.reader import TraceReader
from core.traces.schema import Trace
from core.traces.writer import write_trace

MAX_UPLOAD = 64 << 20  # bytes of a file
MAX_UPLOADS = 4 * MAX_UPLOAD + (1 << 20)  # bytes of the files that are sent together
LIMITS = Limits(unpacked=512 << 20)  # of what an upload may unpack to
UPLOAD_SECONDS = 60  # an upload stays on the disk so long; it is read at once
MAX_NODES = 200_000  # of a run that is made into one file here; larger ones: the command line
MAX_CELLS = 200_000  # of a table that a page sends to have it as a file
TOO_LARGE = "this run is too large for the page: save its trace and use the export command"

GRAPHS = ("dot", "graphml")
SVG = "image/svg+xml"
FileJson = dict[str, str]  # {name, type, data}; the data in base64


# ── in ───────────────────────────────────────────────────────────────────────────────────────────


def remove_leftovers(folder: Path) -> None:
    """Remove what Gradio leaves of an upload that is gone: an empty file and an empty folder."""
    for empty in _empty(folder, time.time() - UPLOAD_SECONDS):  # noqa: TID251 (as files have it)
        with suppress(OSError):  # it may be another's, or gone by now
            empty.rmdir() if empty.is_dir() else empty.unlink()


def _empty(folder: Path, before: float) -> Iterator[Path]:
    for path in folder.glob("*"):
        with suppress(OSError):
            about = path.stat()
            if about.st_mtime < before and (path.is_dir() or not about.st_size):
                yield path


def uploaded(place: object, folder: Path) -> Path:
    """The file at a place that a page names, if that is in the folder of uploads.

    Raises UserError for any other place.
    """
    with suppress(OSError, ValueError):
        path = Path(str(place)).resolve()
        if path.is_relative_to(folder.resolve()) and path.is_file():
            return path
    raise UserError("this file is no longer on the server: open it again")


def open_upload(path: Path) -> TraceReader:
    """The trace in an uploaded file, which is closed after the last round. It is read from the
    disk: in memory it would stand beside all of its rounds.

    Raises UserError, with one sentence, for anything else; so does the reader, for its rounds.
    """
    try:
        if path.stat().st_size > MAX_UPLOAD:
            raise UserError(f"the file is larger than {MAX_UPLOAD >> 20} MB")
        return OpenFile(path, "this file", LIMITS, whole=True)
    except OSError:
        raise UserError("this file cannot be read") from None


# ── out ──────────────────────────────────────────────────────────────────────────────────────────


def trace_file(trace: Trace) -> FileJson:
    """A trace. Raises UserError as ``trace_bytes``."""
    name = f"{plain_name(trace.header.created)}.jsonl.gz"
    return _file(trace.header.method, name, "application/gzip", trace_bytes(trace, ".jsonl.gz"))


def trace_bytes(trace: Trace, kind: str) -> bytes:
    """A trace as a file of this kind. Raises UserError for one that no page would open again."""
    with tempfile.TemporaryDirectory(prefix="draftscope-") as folder:
        path = Path(folder) / f"run{kind}"
        write_trace(path, trace)
        data = path.read_bytes()
    if len(data) > MAX_UPLOAD:
        raise UserError(
            f"this trace would be larger than {MAX_UPLOAD >> 20} MB: the command run --trace "
            "writes one of any size"
        )
    return data


def tree_file(
    method: str, name: str, draw: Callable[..., Drawing], inches: float | None
) -> FileJson:
    """A tree or graph as SVG, drawn for a ``paper`` so wide; None: as large as on the page."""
    width = inches and inches * INCH
    paper = Paper(ground="transparent", width=width)  # the page adds the ground: save/paper.js
    return _file(method, f"{name}.svg", SVG, svg(draw(paper=paper), paper).encode())


def graph_file(record: Round, form: object, method: str) -> FileJson:
    """A round's draft in one of ``GRAPHS``. Raises UserError for another form."""
    from app.export.graphs import FORMS

    if form not in GRAPHS:
        raise UserError("there is no such file")
    write, kind = FORMS[str(form)]
    return _file(method, f"round-{record.number}.{form}", kind, write(record))


def run_file(run: StudioRun, form: object, opens: int = 0) -> FileJson:
    """A run as a page that opens at a round, as a timeline or a table.

    Raises UserError for another form, or a huge run.
    """
    if run.nodes > MAX_NODES:
        raise UserError(TOO_LARGE)
    trace = run.trace()
    if form == "html":
        from app.export.offline import offline_page

        return _file(
            run.method, "run.html", "text/html", offline_page([trace], opens=opens).encode()
        )
    if form == "perfetto":
        from app.export.timeline import perfetto

        timeline = perfetto(trace).encode()
        return _file(run.method, "run.perfetto.json", "application/json", timeline)
    return _table_file(trace, str(form))


def _table_file(trace: Trace, name: str) -> FileJson:
    """The table of rounds or of nodes, as "rounds.csv" and so on."""
    from analysis.measures.rows import nodes_table, rounds_table
    from analysis.table_files import TYPES, table_bytes

    table, _, form = name.partition(".")
    if table not in ("rounds", "nodes") or form not in TYPES:
        raise UserError("there is no such file")
    frame = rounds_table(trace) if table == "rounds" else nodes_table(trace.rounds)
    return _file(trace.header.method, name, TYPES[form], table_bytes(frame, form))


def parquet_file(name: object, rows: object) -> FileJson:
    """A page's own records as a Parquet file. Raises UserError when they are not a table."""
    from analysis.table_files import PARQUET, download_table

    table = rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else []
    unlike = UserError("this is not a table that can be saved")
    if not table or sum(map(len, table)) > MAX_CELLS:
        raise unlike
    try:
        return download_table(_frame(table), plain_name(str(name)), PARQUET)
    except (ValueError, OverflowError):  # numbers beyond all types, kinds that no column can mix
        raise unlike from None


def _frame(table: list[dict[str, Any]]) -> Any:
    import pandas as pd

    columns = list(dict.fromkeys(str(key) for row in table for key in row))
    found = {c: pd.Series([_cell(row.get(c)) for row in table]) for c in columns}
    for column, values in found.items():
        if values.map(lambda value: isinstance(value, str)).any():
            found[column] = values.map(lambda value: None if value is None else str(value))
    return pd.DataFrame(found)


def _cell(value: object) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else None


def _file(method: str, name: str, kind: str, data: bytes) -> FileJson:
    """The file's name begins with the method's."""
    begin = plain_name(file_name(method))
    encoded = base64.b64encode(data).decode("ascii")
    return {"name": f"draftscope-{begin}-{name}", "type": kind, "data": encoded}


def plain_name(text: str) -> str:
    """Only what every file system takes: a header may come from a hostile file."""
    return re.sub(r"[^0-9A-Za-z]+", "-", text)[:40].strip("-") or "run"
