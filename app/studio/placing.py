"""Files that somebody dropped on the page, or chose: where each opens, or what it seems to be."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis import kinds
from analysis.engines.trees import write_trees
from analysis.kinds import Kind, kind_of
from app.studio.files import open_upload
from app.studio.runs import Runs
from app.view.denoise import is_denoising
from core.errors import UserError
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.visible import visible

# the tab that opens a file of a kind, and the route of it that is told where the file lies
PLACES: Mapping[Kind, tuple[str, str]] = {
    kinds.CALIBRATION: ("calibration", "open"),
    kinds.COLLECTED: ("whatif", "open"),
    kinds.COST: ("whatif", "open_cost"),
    **dict.fromkeys(
        (kinds.COUNTS, kinds.GRID, kinds.TABLE, kinds.CONFIG, kinds.STEPS), ("results", "open")
    ),
}
MAX_NAME = 60  # characters of a file's name in a sentence


def place(runs: Runs, file: Path) -> dict[str, Any]:
    """Where an uploaded file opens: {view, ticket} of a trace, which is open then, {view, route} of
    another file, which that route is to open.

    Raises UserError for a file that opens nowhere, with what it seems to be.
    """
    name = visible(file.name, MAX_NAME)
    try:
        kind = kind_of(file)
    except UserError:
        raise UserError(f"{name} cannot be read") from None
    if kind in PLACES:
        view, route = PLACES[kind]
        return {"view": view, "route": route}
    if kind == kinds.EMPTY:
        raise UserError(f"{name} is empty")
    if kind not in (kinds.TRACE, kinds.TREES):
        raise UserError(f"{name} seems to be {kind}; it cannot be opened here")
    try:
        trace = open_upload(file) if kind == kinds.TRACE else _of_trees(file)
        view = "denoise" if is_denoising(trace.header.method) else "run"
        return {"view": view, "ticket": runs.open(trace, file=file.name)}
    except UserError as error:
        raise UserError(
            kinds.explained(error).replace(str(file), name).replace("this file", name)
        ) from None


def _of_trees(file: Path) -> Trace:
    """DDTree's saved trees as a trace, without q and p."""
    with tempfile.TemporaryDirectory(prefix="draftscope-") as folder:
        made = Path(folder) / "trees.jsonl"
        write_trees(file, made)
        return read_trace(made)
