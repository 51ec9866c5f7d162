"""Where a sweep lies, so that a kill at any moment loses no finished run and doubles none.

sweep.json       the plan
traces/          a trace per finished run: written elsewhere, renamed when it is whole
results.parquet  the table, made from the traces and the failures
failures.json    runs that failed, each with its sentence; the next call tries them again
unfinished/      what is being written; a killed call's leftovers go with the next one
lock             held while a sweep works here
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analysis.experiments.sweep import (
    SCHEMA,
    Job,
    Plan,
    Row,
    failed_row,
    results,
    row_of,
    with_same_as_plain,
)
from core.errors import UserError, writing
from core.files import LOCK, replacing, write_json
from core.journal import alone, plan_difference
from core.json_input import read_json
from core.progress import At, silent
from core.traces.reader import read_ends

PLAN, TABLE, FAILURES = "sweep.json", "results.parquet", "failures.json"
TRACES, UNFINISHED = "traces", "unfinished"
FORMAT, VERSION = "draftscope-sweep", 1


class Folder:
    """The runs of a plan in their folder: those done, those that failed, and those to do.

    Every method that writes raises UserError when the folder cannot be written.
    """

    def __init__(self, path: Path, plan: Plan):
        self.path, self.plan = path, plan
        self._rows: dict[str, Row] = {}
        self._failures: dict[str, str] = {}

    @property
    def jobs(self) -> list[Job]:
        """The runs of all turns that can be asked: each follows the answer to the one before."""
        return self.plan.jobs(self._answer)

    def _answer(self, job: Job) -> str | None:
        row = self._rows.get(job.name)
        return None if row is None else row["text"]

    @property
    def size(self) -> int:
        """How many runs there are, those of turns to come among them."""
        return len(self.jobs) + self.plan.waiting(self._answer)

    @property
    def done(self) -> int:
        return len(self._rows)

    @property
    def failures(self) -> dict[str, str]:
        """Run → sentence, in the plan's order."""
        return {
            job.name: self._failures[job.name] for job in self.jobs if job.name in self._failures
        }

    def remaining(self) -> list[Job]:
        """Runs that have no whole trace: never begun, interrupted, or failed."""
        return [job for job in self.jobs if job.name not in self._rows]

    def rows(self) -> list[Row]:
        """The table's lines in the plan's order: finished runs and failed ones."""
        terms, found = self.plan.terms, []
        for job in self.jobs:
            if job.name in self._rows:
                found.append(self._rows[job.name])
            elif job.name in self._failures:
                found.append(failed_row(job, terms, self._failures[job.name]))
        return with_same_as_plain(found)

    def read(self, report: At = silent) -> None:
        """Find what earlier calls finished; a trace that is broken or another's is made again."""
        there, seen = {entry.name for entry in (self.path / TRACES).iterdir()}, set[str]()
        while some := [job for job in self.remaining() if job.file in there - seen]:
            for done, job in enumerate(some):
                report((len(seen) + done) / len(there))
                if (row := _row(job, self.path / TRACES / job.file)) is not None:
                    self._rows[job.name] = row
            seen |= {job.file for job in some}
        failures = _json(self.path / FAILURES)
        left = {job.name for job in self.remaining()}
        self._failures = {k: v for k, v in failures.items() if k in left and isinstance(v, str)}
        if self._failures != failures:  # some were mended before a kill, or left the plan
            self._write_failures()

    def unfinished(self, job: Job) -> Path:
        """Where the run's trace is to be written."""
        return self.path / UNFINISHED / job.file

    def finish(self, job: Job) -> None:
        """The run is done and its trace written: from now on it counts.

        Raises UserError for a trace that is not this run's, or not whole.
        """
        written = self.unfinished(job)
        if (row := _row(job, written)) is None:
            raise UserError(f"the trace {written} does not read back as it was written")
        with writing(self.path):
            with written.open("rb+") as file:  # on disk before it has its name, for a power cut
                os.fsync(file.fileno())
            written.replace(self.path / TRACES / job.file)
        self._rows[job.name] = row
        if self._failures.pop(job.name, None) is not None:
            self._write_failures()

    def fail(self, job: Job, sentence: str) -> None:
        """The run failed; what it wrote of a trace goes."""
        with writing(self.path):
            self.unfinished(job).unlink(missing_ok=True)
        self._failures[job.name] = sentence
        self._write_failures()

    def write_table(self) -> None:
        """results.parquet, as things stand."""
        place = self.path / TABLE
        with writing(self.path), replacing(place) as unfinished, unfinished.open("wb") as file:
            results(self.rows()).to_parquet(file, index=False, schema=SCHEMA)

    def _write_failures(self) -> None:
        path = self.path / FAILURES
        with writing(self.path):
            if self._failures:
                write_json(path, self.failures)
            else:
                path.unlink(missing_ok=True)


def _row(job: Job, path: Path) -> Row | None:
    try:
        return row_of(job, read_ends(path))
    except UserError:
        return None


@contextmanager
def open_folder(path: Path, plan: Plan) -> Iterator[Folder]:
    """The sweep's folder, made if need be, for this process alone.

    A plan that holds all of the plan there, on the same terms, extends it. Raises UserError for a
    folder with anything else, another sweep, or a sweep at work.
    """
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        there = {entry.name for entry in path.iterdir()}
        if PLAN not in there and there - {LOCK, f"{PLAN}.tmp"}:
            raise UserError(f"{path} holds other things than a sweep: name a new or empty folder")
    with alone(path, "sweep"):
        _agree(path / PLAN, plan)
        with writing(path):
            (path / TRACES).mkdir(exist_ok=True)
            shutil.rmtree(path / UNFINISHED, ignore_errors=True)
            (path / UNFINISHED).mkdir(exist_ok=True)
        try:
            yield Folder(path, plan)
        finally:
            shutil.rmtree(path / UNFINISHED, ignore_errors=True)


def _agree(path: Path, plan: Plan) -> None:
    """Write the plan, if there is none, or the one there is a part of it, or never had a run."""
    new = {"format": FORMAT, "version": VERSION, **json.loads(json.dumps(plan.as_json()))}
    if path.exists():
        old = _json(path)
        if old.get("format") != FORMAT or old.get("version") != VERSION:
            raise UserError(f"{path} is not a plan of a sweep that this Draftscope knows")
        begun = (path.parent / TRACES).is_dir() and any((path.parent / TRACES).iterdir())
        if begun and (other := _difference(old, new)):
            raise UserError(f"{path.parent} holds another sweep ({other}): name another folder")
        if old == new:
            return
    with writing(path.parent):
        write_json(path, new)


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Say what the plan there has and the new one has not, in a few words; empty for nothing."""
    try:
        if other := plan_difference(dict(old["terms"]), new["terms"]):
            return other
        for what, key in (("methods", "field"), ("prompts", "prompts"), ("seeds", "seeds")):
            if missing := _set(map(_opening, old[key])) - _set(map(_opening, new[key])):
                return f"{len(missing)} of its {what} are not in this one"
        if missing := _set(_later(old)) - _set(_later(new)):
            return f"{len(missing)} of its turns are not in this one, or follow another method"
        for file, digest in old["files"].items():
            if new["files"].get(file, digest) != digest:
                return f"{file} has changed since"
    except (AttributeError, KeyError, TypeError):
        return "its plan cannot be read"
    return ""


def _opening(value: Any) -> Any:
    """A prompt without its further turns; any other value as it is."""
    return {k: v for k, v in value.items() if k != "more"} if isinstance(value, dict) else value


def _later(plan: Mapping[str, Any]) -> Iterator[Any]:
    """The further turns of a plan, each with all that decides it: those before, and the method
    whose answers they follow."""
    for prompt in plan["prompts"]:
        more = prompt.get("more", [])
        yield from ([plan["field"][0], prompt["text"], more[:n]] for n in range(1, len(more) + 1))


def _set(values: Iterable[Any]) -> set[str]:
    return {json.dumps(value, sort_keys=True) for value in values}


def _json(path: Path) -> dict[str, Any]:
    """A JSON file's object; empty where there is none."""
    try:
        value = read_json(path)
    except UserError:
        return {}
    return value if isinstance(value, dict) else {}
