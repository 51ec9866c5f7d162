"""Trace files that the command line names: found, labelled, counted, read. No torch, no Gradio."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError, WrongKind, reading
from core.files import by_name, distinct
from core.lines import Limits, open_regular
from core.progress import Steps, part
from core.traces.reader import TraceReader, named_like_traces, read_trace, traces_in
from core.traces.schema import Header, Trace

if TYPE_CHECKING:
    from analysis.measures.parts import RoundsPart
    from analysis.measures.tables import Tables

MAX_FILES = 500  # that are listed


@dataclass(frozen=True)
class TraceFile:
    """A file, and its name within the folder it was found in: any text at all."""

    path: Path
    label: str

    @cached_property
    def name(self) -> str:
        """The name the page knows it by. It reveals nothing of the path, and a link with it still
        means this file after the studio was started again."""
        return f"file-{sha256(os.fsencode(self.path)).hexdigest()[:16]}"

    def header(self) -> Header:
        """Reads only the first line. Raises UserError for a file that is not a trace."""
        return _header(self.path)


@dataclass(frozen=True)
class TraceFiles:
    """The files that are listed, how many there are, and the paths they were found at."""

    files: tuple[TraceFile, ...] = ()
    found: int = 0
    paths: tuple[Path, ...] = ()

    @property
    def note(self) -> str:
        """A sentence where not all are listed, or none is there yet."""
        listed = len(self.files)
        if not listed and self.may_grow:
            return "no trace yet: they are listed as they come"
        return f"the first {listed} of {self.found} files, by name" if listed < self.found else ""

    @property
    def may_grow(self) -> bool:
        """Whether files may come: a folder was named."""
        return any(path.is_dir() for path in self.paths)

    def again(self) -> TraceFiles:
        """The files that are there now; those of before where a path is gone."""
        try:
            return find_traces(self.paths, empty=True)
        except UserError:
            return self


def find_traces(paths: Sequence[Path], empty: bool = False) -> TraceFiles:
    """The traces at these paths, files or folders of any depth, sorted by name.

    empty  whether a folder may have no file yet

    Raises UserError for a path that is not there or holds no trace. Only as many of a folder's
    files are opened as it takes to find one.
    """
    labels: dict[Path, str] = {}
    for path in paths:
        for file in _at(path, empty):
            label = file.name if file == path else file.relative_to(path).as_posix()
            labels.setdefault(file.resolve(), label)
    files = [TraceFile(path, label) for path, label in _distinct(labels).items()]
    files.sort(key=lambda file: by_name(file.label))
    return TraceFiles(tuple(files[:MAX_FILES]), len(files), tuple(paths))


def read_all(
    paths: Sequence[Path], report: Steps, limits: Limits, left_out: list[str]
) -> dict[str, Trace]:
    """The traces by name: the file's, with enough of its folders where two files share one.

    A folder's file that is not a trace is left out, and ``left_out`` gets a sentence on why. Raises
    UserError for a path that is not a trace, or a folder without any.
    """
    found = list(_read(paths, report, limits, left_out))
    names = _names(str(file) for file, _ in found)
    return {name: trace for name, (_, trace) in zip(names, found, strict=True)}


def read_tables(
    paths: Sequence[Path], report: Steps, limits: Limits, left_out: list[str]
) -> Tables:
    """The tables of these traces, folders of traces, and packs; the rest as ``read_all``."""
    from analysis.measures.packed import is_pack, parts_of
    from analysis.measures.parts import RecordedPart
    from analysis.measures.tables import Tables

    files: list[str] = []
    parts: list[RoundsPart] = []
    for packed, some in groupby(paths, is_pack):
        if packed:
            found = [part for path in dict.fromkeys(some) for part in parts_of(path)]
            files += [str(part.folder / each.file) for part in found for each in part.sources]
            parts += found
        else:
            own = list(_read(list(some), report, limits, left_out))
            files += [str(file) for file, _ in own]
            parts.append(RecordedPart([trace for _, trace in own]))
    often = Counter(map(os.path.realpath, files))
    if len(often) < len(files):
        twice = next(file for file, count in often.items() if count > 1)
        raise UserError(
            f"{twice} would count twice: it is named by itself and in a pack, or is in two packs, "
            "or in one whose packing was stopped (pack again)"
        )
    return Tables(_names(files), parts)


def trace_paths(paths: Sequence[Path]) -> Iterable[Path]:
    """The traces at these paths, in folders at any depth; each once, also where a link leads to it.
    Raises UserError for a folder without any."""
    files: list[Path] = []
    for path in paths:
        files += traces_in(path) if path.is_dir() else [path]
    return distinct(files).values()


def _read(
    paths: Sequence[Path], report: Steps, limits: Limits, left_out: list[str]
) -> Iterator[tuple[Path, Trace]]:
    files, bad = list(trace_paths(paths)), list[UserError]()
    for done, file in enumerate(files):
        at = part(report, done, len(files), file.name)
        at(0.0)
        try:
            trace = read_trace(file, limits, at)
        except UserError as why:
            if file in paths or len(bad) + 1 == len(files):
                raise
            bad.append(why)
            continue
        yield file, trace
    left_out += map(str, bad)


def _names(files: Iterable[str]) -> list[str]:
    """A name of each file. Bytes that are not UTF-8 are written as escapes: a name is also a cell
    of tables."""
    names = _distinct({path: path.name for path in map(Path, files)}).values()
    return [name.encode("utf-8", "backslashreplace").decode() for name in names]


def _at(path: Path, empty: bool) -> list[Path]:
    with reading(path):
        if path.is_file():
            _header(path)
            return [path]
        if not path.is_dir():
            raise UserError(f"there is no file or folder {path}")
    files = named_like_traces(path)
    if not any(map(_is_trace, files)) and (files or not empty):
        raise WrongKind(f"the folder {path} holds no trace (.jsonl or .jsonl.gz)", path)
    return files


def _is_trace(file: Path) -> bool:
    try:
        _header(file)
    except UserError:
        return False
    return True


def _header(path: Path) -> Header:
    try:
        with reading(path.name), open_regular(path) as file:
            return TraceReader(file, path.name).header
    except WrongKind as error:
        raise WrongKind(error, path) from None


def _distinct(labels: Mapping[Path, str]) -> dict[Path, str]:
    """Labels that several files share, each with enough of its folders to differ."""
    distinct = dict(labels)
    while clash := _shared(distinct):
        for path in clash:
            parts = len(Path(distinct[path]).parts) + 1
            distinct[path] = Path(*path.parts[-parts:]).as_posix()
    return distinct


def _shared(labels: Mapping[Path, str]) -> list[Path]:
    counts = Counter(labels.values())
    return [path for path, label in labels.items() if counts[label] > 1]
