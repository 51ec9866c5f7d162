"""Files in words, for the tab Results: counts, a grid, step times, a checkpoint's config.

A config is examined by ``model doctor`` in a process of its own, with limits: transformers makes
whatever layers it names.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from analysis.experiments.family import Entry
from analysis.numbers import plural
from app.report.advised import advice_sheets, size_words
from app.report.counted import sheets, strips
from app.report.scored import score_sheet
from app.report.sections import REPORT, cautions, notes
from app.report.shown import TextTable, parts
from app.studio.files import LIMITS
from core.declared import Count, convert
from core.errors import UserError
from core.json_input import read_json
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.visible import flowing, visible

MAX_LINE, MAX_CELL, MAX_STRIP, MAX_FLAGS = 600, 120, 1000, 8000  # characters
MAX_NODES = 2_000_000  # of traces that are measured together
MAX_LEFT = 8  # sentences about files that are left out
MAX_ENTRIES = 10_000  # rows of a table of methods
MAX_CONFIG = 4 << 20  # bytes
NUMBERS = (
    "tau",
    "engine-metrics",
    "per-depth",
    "acceptance-histogram",
    "stops-by-depth",
    "findings",
)
POOLED = tuple(section for section in REPORT if section.table in NUMBERS)
SECONDS = 120.0  # for a checkpoint: a usual one takes ten
MEMORY = 16 << 30  # bytes
BY_COMMAND = "`python -m app report FOLDER` has no such limit"
ROOT = Path(__file__).resolve().parents[3]
ONE = threading.Lock()  # checkpoints are examined one after the other
NO_WEIGHTS = "its weights are not here"


def counts(file: Path) -> dict[str, Any]:
    """An engine's counts of its drafts, as ``trace import`` shows them."""
    from analysis.engines.served import read_served
    from analysis.measures.counts import LABEL
    from analysis.measures.counts_in_words import sentences

    found = read_served(file)
    told = _told(found.engine, LABEL, list(sheets(found)), list(sentences(found)))
    return told | {
        "counted": True,
        "strips": [[title, marks[:MAX_STRIP]] for title, marks in strips(found)],
    }


def grid(file: Path) -> dict[str, Any]:
    """The table that ``grid run`` prints, of its results.parquet."""
    from analysis.experiments.sweep_table import read_results

    scores, places = read_results(file)
    about = "τ with its 95 % interval over texts, of every method and budget of a grid"
    return _told("A grid's results", about, [score_sheet(scores)], places)


def advice(file: Path, traces: Mapping[str, Trace], counted: Path | None = None) -> dict[str, Any]:
    """The words of ``advise`` on recorded rounds, with the step times in a file.

    ``traces``: those on view, by what a sentence calls them; ``counted``: an engine's counts that
    are on view instead. Raises UserError where there is none, where they are not of one setting,
    or say nothing of shorter drafts.
    """
    from analysis.charts.chart import as_json
    from analysis.charts.figures import PAGE, worth_by_size
    from analysis.engines.served import read_served
    from analysis.experiments.advise import advise, choices, flags, sentences, sizes_of
    from analysis.experiments.shorter import labels_of, of_counts, of_traces
    from analysis.experiments.step_times import read_step_times

    if counted is None and not traces:
        raise UserError("these are step times: open a run in Run first, whose drafts they time")
    settings = [] if counted is not None else labels_of(traces)
    if len(settings) > 1:
        raise UserError(
            f"these are step times of one setting, and Compare shows {len(settings)}: open the run "
            "whose drafts they time in Run, then this file once more"
        )
    times = read_step_times(file)
    choose, timed = sizes_of(times, ()), f"the rounds of {' and of '.join(traces)}"
    if counted is not None:
        shorter, timed = of_counts(read_served(counted), choose), "the counts that were open here"
    else:
        shorter = of_traces(traces, choose)
    found = advise(shorter, times)
    chosen, what = choices(found), size_words(shorter.drafts)
    told = _told(
        "Which draft pays",
        f"Which {what} pays at which batch, of {shorter.name}: {timed}, "
        "with the step times of this file. `advise` says the same.",
        list(advice_sheets(found, chosen, shorter)),
        list(sentences(chosen, shorter, times)),
    )
    pasted = [[each.engine, each.note, each.text] for each in flags(chosen, shorter)]
    shown = [[visible(cell, MAX_FLAGS) for cell in row] for row in pasted]
    return told | {
        "timed": True,
        "figure": as_json(worth_by_size(found, what, PAGE)),
        "flags": shown,
    }


def pooled(files: Sequence[Path], gone: int = 0) -> dict[str, Any]:
    """The numbers of ``report`` on many traces together. What is not a trace is left out, as are
    so many that are ``gone``. Raises UserError for too many nodes, and where no trace is left."""
    from analysis.measures.metrics import Report
    from analysis.measures.tables import Tables

    traces, left, nodes = dict[str, Trace](), list[str](), 0
    for number, file in enumerate(files, 1):
        try:
            name = file.name if file.name not in traces else f"{file.name} ({number})"
            traces[name] = read_trace(file, LIMITS)
        except UserError as error:
            left.append(f"Left out: {str(error).replace(str(file), file.name)}.")
            continue
        nodes += sum(len(record.draft) for record in traces[name].rounds)
        if nodes > MAX_NODES:
            raise UserError(f"together they have more than {MAX_NODES} nodes: {BY_COMMAND}")
    if gone:
        left.append(f"Left out: {plural(gone, 'file')} no longer on the server: {BY_COMMAND}.")
    if not traces:
        raise UserError(left[0] if left else "there are no files")
    tables = Tables.of(traces)
    grids = [
        (part.title, each) for part in parts(POOLED, Report(tables), tables) for each in part.body
    ]
    words = [each for _, each in grids if isinstance(each, str)]
    more = [f"And {len(left) - MAX_LEFT} more are left out."] if left[MAX_LEFT:] else []
    return _told(
        "Traces together",
        f"The rounds of {plural(len(traces), 'trace')} together. `report` says the same, and more.",
        [replace(each, title=title) for title, each in grids if isinstance(each, TextTable)],
        [*cautions(tables), *words, *notes(tables), *left[:MAX_LEFT], *more],
    )


def _told(title: str, about: str, found: list[TextTable], lines: list[str]) -> dict[str, Any]:
    return {
        "title": title,
        "about": about,
        "sheets": [
            {
                "title": sheet.title,
                "heads": list(sheet.heads),
                "words": sorted(sheet.words),
                "rows": [[flowing(cell, MAX_CELL) for cell in row] for row in sheet.rows],
            }
            for sheet in found
        ],
        "lines": [flowing(line, MAX_LINE) for line in lines],
    }


# ── a table of methods ───────────────────────────────────────────────────────────────────────────


class _Table(Struct):
    """The file that ``grid table`` writes."""

    model: str
    max_new_tokens: Count
    rows: Annotated[list[Entry], Meta(min_length=1, max_length=MAX_ENTRIES)]
    hardware: str | None = None
    threads: Count | None = None


def method_table(file: Path) -> dict[str, Any]:
    """The table in a file, as JSON. Raises UserError for anything else."""
    found = convert(read_json(file), _Table, str(file))
    return structs.asdict(found) | {"rows": [_row(entry) for entry in found.rows]}


def _row(entry: Entry) -> dict[str, Any]:
    return asdict(entry) | {"method": flowing(entry.method, MAX_CELL), "options": {}}


# ── a checkpoint ─────────────────────────────────────────────────────────────────────────────────


def checkpoint(file: Path) -> dict[str, Any]:
    """The lines of ``model doctor`` on a folder that holds this config alone.

    Raises UserError where the config cannot be read, or takes too long.
    """
    if file.stat().st_size > MAX_CONFIG:
        raise UserError(f"{file} is too large for a checkpoint's config")
    with tempfile.TemporaryDirectory(prefix="draftscope-") as folder:
        config = Path(folder) / "checkpoint" / "config.json"
        config.parent.mkdir()
        config.write_bytes(file.read_bytes())
        said = _doctor(config.parent)
    lines = [line for line in said if line and NO_WEIGHTS not in line]
    next_ = (
        "Only config.json was sent. Where the folder lies, `python -m app model doctor FOLDER` "
        "tells the weights' size, and `python -m app diagnose METHOD@FOLDER` tries the drafter's "
        "wiring and checks its weights."
    )
    about = "what `model doctor` says of its config.json"
    return _told("A checkpoint", about, [], [*lines, next_])


def _doctor(folder: Path) -> list[str]:
    """The lines of the command after the first, which is the folder's name."""
    command = [sys.executable, "-m", "app", "model", "doctor", str(folder)]
    try:
        with ONE:
            done = subprocess.run(
                [sys.executable, "-c", _LIMITED, str(MEMORY), *command],
                cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UserError(f"examining the config was stopped after {SECONDS:g} seconds") from None
    if done.returncode not in (0, 1) or not done.stdout.strip():
        why = done.stderr.strip().removeprefix("draftscope: ").splitlines()[-1:] or ["it ended"]
        raise UserError(f"the config cannot be examined: {why[0]}".replace(str(folder), "it"))
    return [line.strip().replace(str(folder), "it") for line in done.stdout.splitlines()[1:]]


_LIMITED = """
import os, sys
try:
    import resource
    most = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
except (ImportError, OSError, ValueError):
    pass
os.execv(sys.argv[2], sys.argv[2:])
"""
