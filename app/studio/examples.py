"""The traces that a page can open: the examples that ship, and files of the command line.

A name that comes from a page is looked up in these lists, never joined to a path.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from analysis import numbers
from analysis.labels import budget
from analysis.numbers import plural
from app.studio import shipped
from app.trace_files import TraceFile, TraceFiles
from app.view.denoise import is_denoising, run_title
from core import ASSETS
from core.chat import last_message
from core.errors import UserError, reading
from core.lines import LIMITS, Limits, open_regular
from core.methods.names import METHODS
from core.methods.registry import shown_title
from core.rounds.round import Round
from core.traces.reader import TraceReader, read_ends
from core.traces.schema import Header, Trace
from core.visible import flowing, visible

TRACES = ASSETS / "traces"
HEADING = "From the command line"
MAX_LABEL, MAX_PROMPT, MAX_TROUBLE, MAX_ASKED = 160, 120, 200, 60  # characters that are shown
QUIET, LOOK = 30.0, 0.2  # seconds: after which a file no longer grows, between two looks at one
BEING_WRITTEN = "being written"  # a file without a footer: more may come
MAX_EXAMPLE_PROMPT = 400


def title_of(header: Header) -> str:
    """A run in a few words: its method, and the budget where that matters."""
    if is_denoising(header.method):
        return visible(run_title(header.settings))
    title, size = shown_title(header.method), budget(header)
    return visible(title if size is None else f"{title} B {size}")


# ── what ships ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class ExampleRun:
    """A trace that ships. ``ends`` has no rounds; ``topic`` is its prompt's name."""

    name: str
    ends: Trace

    @property
    def method(self) -> str:
        return self.ends.header.method

    @property
    def topic(self) -> str:
        return self.name.partition("-")[0]

    @property
    def order(self) -> tuple[Any, ...]:
        """Prompts as they were recorded, methods as they are listed, smaller budgets first."""
        budget = self.ends.header.settings.get("budget") or 0
        topics = (*shipped.RECORDED, *shipped.DENOISED)
        return _place(self.topic, topics), _place(self.method, METHODS), budget

    def to_json(self) -> dict[str, Any]:
        header = self.ends.header
        return {
            "name": self.name,
            "method": visible(header.method),
            "title": title_of(header),
            "prompt": flowing(header.prompt_text, MAX_EXAMPLE_PROMPT),
            "words": result_of(self.ends),
        }


def _place(name: str, names: Iterable[str]) -> tuple[int, str]:
    """A name's place among ``names``; others come after them."""
    return [*names, name].index(name), name


@dataclass(frozen=True)
class Examples:
    """The traces of a folder, by file name without its ending, and before them a list of files."""

    folder: Path = TRACES
    files: TraceList = field(default_factory=lambda: TraceList())

    @cached_property
    def _paths(self) -> dict[str, Path]:
        return {f.name.removesuffix(".jsonl.gz"): f for f in sorted(self.folder.glob("*.jsonl.gz"))}

    @cached_property
    def runs(self) -> tuple[ExampleRun, ...]:
        """All that ship, in the order they are listed."""
        found = (ExampleRun(name, read_ends(path)) for name, path in self._paths.items())
        return tuple(sorted(found, key=lambda run: run.order))

    def groups(self, denoising: bool) -> list[dict[str, Any]]:
        """List what the page offers: the listed files, then a group of runs for each prompt."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for run in self.runs:
            if is_denoising(run.method) == denoising:
                groups.setdefault(run.topic, []).append(run.to_json())
        return [*self.files.group(denoising), *(_group(*each) for each in groups.items())]

    def path(self, name: object) -> Path:
        """The path of an example or a listed file. Raises UserError for any other name."""
        listed = self.files.find(name)
        path = self._paths.get(name) if isinstance(name, str) else None
        if listed is None and path is None:
            called = f" called {visible(name, MAX_LABEL)}" if name and isinstance(name, str) else ""
            raise UserError(f"there is no example{called}")
        return listed.path if listed is not None else cast(Path, path)

    def ships(self, name: object) -> bool:
        """Whether it is no listed file, which may be written anew."""
        return self.files.find(name) is None and name in self._paths

    def open(self, name: object) -> TraceReader:
        """A trace whose rounds are yet to be read: a listed file may be long.

        Raises UserError for any other name, and for a file that is not a trace.
        """
        return OpenFile(self.path(name))


def _group(topic: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    words = {run["name"]: run["words"] for run in runs}
    names = [name for end in shipped.TOGETHER if (name := f"{topic}-{end}") in words]
    title, about = f"All {len(names)}", "side by side"
    if is_denoising(runs[0]["method"]):
        title = "Plain and Spiffy, side by side"
        about = " against ".join(words[name] for name in reversed(names))
    together = {"names": names, "title": title, "words": about} if len(names) > 1 else None
    return {"topic": topic, "prompt": runs[0]["prompt"], "runs": runs, "together": together}


def result_of(ends: Trace) -> str:
    """Say in two words what a whole run came to."""
    footer = ends.footer or {}
    tau, calls = footer.get("tau"), footer.get("rounds")
    if is_denoising(ends.header.method):
        return visible(plural(calls, "model call")) if type(calls) is int else "no calls"
    if calls == 0:
        return "no rounds"
    return f"τ {numbers.tau(tau)}" if type(tau) is float and math.isfinite(tau) else "no τ"


# ── files of the command line ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class FileLine:
    """The line on a file, as far as it is read. ``trouble``: why it cannot be opened.

    asked  the served request's id and its tag, where the header tells them
    """

    title: str = ""
    prompt: str = ""
    denoising: bool = False
    result: str = "…"
    trouble: str = ""
    asked: tuple[str, ...] = ()
    tau: float | None = None

    def to_json(self, file: TraceFile) -> dict[str, Any]:
        return {
            "name": file.name,
            "label": visible(file.label, MAX_LABEL),
            "words": self.trouble or " · ".join((self.title, self.result, *self.asked)),
            "tau": self.tau,
            "prompt": self.prompt,
            "opens": not self.trouble,
        }


class TraceList:
    """The listed files, by their names; no other file is ever opened.

    Headers are read on the first request, which takes a moment for hundreds of files. τ comes after
    a file's rounds, so it is read in the background, and the page asks again. A folder is looked
    through again at each request: a recorder may add to it.
    """

    def __init__(self, files: TraceFiles | None = None):
        self._found = files or TraceFiles()
        self._files = {file.name: file for file in self._found.files}
        self._looked = False
        self._lines: dict[str, FileLine] = {}
        self._read: dict[str, int] = {}  # when a file was changed last before its result was read
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    def find(self, name: object) -> TraceFile | None:
        return self._files.get(name) if isinstance(name, str) else None

    def group(self, denoising: bool) -> list[dict[str, Any]]:
        """Their group, of denoising runs or of the others; an empty list where there are none."""
        with self._lock:
            self._look()
            grows = self._found.may_grow
            lines = [
                (self._files[name], line)
                for name, line in self._lines.items()
                if line.denoising == denoising
            ]
            reading = self._reader is not None and self._reader.is_alive()
        if not lines and (denoising or not grows or self._lines):
            return []
        files = [line.to_json(file) for file, line in lines]
        note = self._found.note
        return [
            {"topic": HEADING, "note": note, "files": files, "reading": reading, "grows": grows}
        ]

    def _look(self) -> None:
        """Bring the list up to date: files that came or went, and results that are to be read."""
        if self._looked and self._found.may_grow:
            self._found = self._found.again()
            self._files = {file.name: file for file in self._found.files}
        self._looked = True
        self._lines = {
            name: self._lines.get(name) or _line(file) for name, file in self._files.items()
        }
        alive = self._reader is not None and self._reader.is_alive()
        if not alive and (todo := self._unread()):
            self._reader = threading.Thread(
                target=self._read_results, args=(todo,), name="draftscope-list", daemon=True
            )
            self._reader.start()

    def _unread(self) -> dict[str, int]:
        """The files that open and were changed since their results were read, with the time."""
        found = {name: _changed(self._files[name].path) for name in self._lines}
        return {
            name: at
            for name, at in found.items()
            if not (line := self._lines[name]).trouble
            and (self._read.get(name) != at or (line.result == BEING_WRITTEN and not _is_new(at)))
        }

    def _read_results(self, todo: Mapping[str, int]) -> None:
        for name, at in todo.items():
            with self._lock:
                line, file = self._lines.get(name), self._files.get(name)
            if line is None or file is None:
                continue
            result, tau = _result(file)
            with self._lock:
                self._read[name] = at
                if name in self._lines:
                    self._lines[name] = replace(line, result=result, tau=tau)


def _line(file: TraceFile) -> FileLine:
    try:
        header = file.header()
        title = title_of(header)
        prompt = flowing(last_message(header.prompt_text), MAX_PROMPT)
        told = (header.settings.get(name) for name in ("request", "tag"))
        asked = tuple(flowing(each, MAX_ASKED) for each in told if each and isinstance(each, str))
        return FileLine(title, prompt, is_denoising(header.method), asked=asked)
    except Exception as error:
        return FileLine(trouble=_trouble(error))


def _changed(path: Path) -> int:
    """The time of a file's last change, in ns; 0 where it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _result(file: TraceFile) -> tuple[str, float | None]:
    """The words on how a file ended, and τ where that is known."""
    try:
        ends = read_ends(file.path)
    except Exception as error:
        return _trouble(error), None
    if ends.footer is None:
        return BEING_WRITTEN if _is_new(_changed(file.path)) else "interrupted", None
    if ends.mark:
        return visible(ends.mark, MAX_TROUBLE), None
    return result_of(ends), None if is_denoising(ends.header.method) else ends.footer["tau"]


def _trouble(error: Exception) -> str:
    """Return one sentence: one broken file among many does not fail the list."""
    if isinstance(error, UserError):
        return visible(str(error), MAX_TROUBLE)
    logging.getLogger(__name__).error("a listed file could not be read", exc_info=error)
    return f"this file could not be read ({type(error).__name__})"


def address_end(files: TraceFiles | None) -> str:
    """Return the end of an address that opens the only listed file at once; the tab of denoising
    runs has no links."""
    listed = files.files if files else ()
    with suppress(UserError):
        if len(listed) == 1 and not is_denoising(listed[0].header().method):
            return f"/#trace={listed[0].name}"
    return ""


def _is_new(changed: int) -> bool:
    """Whether a file that was changed then, in ns, may still be written to."""
    return time.time_ns() - changed < QUIET * 1e9


class OpenFile(TraceReader):
    """A trace file whose rounds are read one by one; it is closed after the last of them.

    One that is being written is followed: iterating waits for its next round, until the footer
    comes, nothing was written for ``QUIET`` seconds, or nobody wants more.

    name      for messages; the file's own unless given
    whole     nobody writes to it
    unwanted  asked again and again while it waits
    """

    def __init__(self, path: Path, name: str = "", limits: Limits = LIMITS, whole: bool = False):
        self._path, self._whole = path, whole
        self.unwanted: Callable[[], bool] = lambda: False
        with reading(name or path.name):
            self._open = open_regular(path)
        try:
            super().__init__(self._open, name or path.name, limits, self._wait)
        except BaseException:
            self._open.close()
            raise

    def __iter__(self) -> Iterator[Round]:
        with self._open:
            yield from super().__iter__()

    @property
    def grows(self) -> bool:
        """Whether it may still be written to."""
        return not self._whole and _is_new(_changed(self._path))

    def _wait(self) -> bool:
        """Wait a moment; whether to look for more then."""
        if self._whole:
            return False
        time.sleep(LOOK)
        return self.grows and not self.unwanted()
