"""Bringing a pack up to date: the columns of traces, written in parts.

A trace whose size or time changed is packed anew, and the old part goes once all new ones are
there. A file ``lock`` keeps a second packing out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from analysis.frames import Frame
from analysis.measures.packed import (
    FILE_NAME,
    FILES,
    RUN_COLUMNS,
    RUNS,
    TABLES,
    PackedPart,
    PackedTrace,
    parts_of,
    schema_of,
)
from analysis.measures.parts import Name, RecordedPart, RunFacts
from core.errors import UserError, reading
from core.files import distinct, replacing
from core.journal import alone
from core.progress import Steps, silent
from core.rounds.draft import Array
from core.traces.schema import Trace

BATCH, PART = 2_000, 32_000  # rounds whose columns are made together; that a part has, at least
SHARE_BYTES = 32 << 20  # of traces that another process packs at a time
MOST_PARTS = 1_000  # that a share may make


@dataclass
class Done:
    """The outcome of packing: traces that were added, that were there before, that left because
    their files are gone, rounds of the added, and a sentence for each file that is not a trace."""

    added: int = 0
    kept: int = 0
    gone: int = 0
    rounds: int = 0
    refused: list[str] = field(default_factory=list)

    def count(self, other: Done) -> None:
        """Add what another process did."""
        self.added, self.rounds = self.added + other.added, self.rounds + other.rounds
        self.refused += other.refused


def pack(
    files: Sequence[Path],
    folder: Path,
    read: Callable[[Path], Trace],
    report: Steps = silent,
    elsewhere: Elsewhere | None = None,
) -> Done:
    """Bring a pack up to date: add these traces, and pack those anew that changed since.

    What is in the pack already stays; a trace whose file is gone leaves it. Parts are written one
    after the other, each whole: a packing that was stopped goes on where it stopped. Old parts go
    last, so that at any time all that was packed is in the pack. With ``elsewhere`` other processes
    read the traces and make the parts (``Share.make``), and this one writes them.

    Raises UserError where another process packs there, and where all traces of the pack are gone:
    it was moved without them.
    """
    with alone(folder, "packing", resumes=True):
        _clear(folder)
        return _pack(files, folder, read, report, elsewhere)


def _clear(folder: Path) -> None:
    """Remove what a packing that was stopped left: tables of parts without runs."""
    whole = {part.number for part in parts_of(folder)}
    for path in folder.iterdir():
        found = FILE_NAME.fullmatch(path.name)
        if found and (found[3] or int(found[1]) not in whole):
            path.unlink(missing_ok=True)


def _pack(
    files: Sequence[Path],
    folder: Path,
    read: Callable[[Path], Trace],
    report: Steps,
    elsewhere: Elsewhere | None,
) -> Done:
    parts = parts_of(folder)[::-1]  # the newest first: a stopped packing may have left older ones
    found, kept, waiting = Done(gone=_gone(parts)), set[str](), dict[str, Path]()
    stale: list[PackedPart] = []
    for part in parts:
        there = distinct(file for each in part.sources if (file := folder / each.file).exists())
        current = not part.outdated and all(each.current(folder) for each in part.sources)
        if current and kept.isdisjoint(there) and len(there) == len(part.sources):
            kept.update(there)
        else:
            stale.append(part)
            waiting |= there
    waiting |= distinct(files)
    some = [file for place, file in waiting.items() if place not in kept]
    found.kept = len(kept)
    first = 1 + max((part.number for part in parts), default=0)
    if elsewhere is None:
        Share(0, tuple(some), folder).fill(_Writer(folder, first), read, found, report)
    else:
        shares = _shares(some, folder)
        for share, made in elsewhere(shares) if shares else ():
            if isinstance(made, str):
                found.refused += [f"{file}: {made}" for file in share.files]
                continue
            _adopt(made, folder, first + share.number * MOST_PARTS)
            found.count(made.done)
    for part in stale:
        for table in FILES:
            part.path(table).unlink(missing_ok=True)
    return found


def _gone(parts: Sequence[PackedPart]) -> int:
    """How many traces of the pack are no longer where they were. Raises UserError for all."""
    files = {part.folder / each.file for part in parts for each in part.sources}
    gone = sum(not file.exists() for file in files)
    if files and gone == len(files):
        raise UserError(
            f"no trace of the pack {parts[0].folder} is where it was: move them with it, or name a "
            "new folder"
        )
    return gone


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # said when its turn comes
        return 0


def _source(file: Path, folder: Path) -> PackedTrace:
    try:
        with reading(file):
            found = PackedTrace.of(file, folder)
            found.file.encode()
    except UnicodeEncodeError:
        raise UserError(f"{file} has a path that is not UTF-8, which a pack cannot hold") from None
    return found


@dataclass(frozen=True)
class Made:
    """A share that was packed: the files of its parts, each by its table, and what was done."""

    parts: Sequence[Mapping[str, bytes]]
    done: Done


@dataclass(frozen=True)
class Share:
    """Traces that are packed together, in this process or another.

    number  among the shares of a packing, which gives its parts their order
    folder  the pack's; another process need not see it
    """

    number: int
    files: Sequence[Path]
    folder: Path

    @property
    def title(self) -> str:
        return self.files[0].name

    def make(self, read: Callable[[Path], Trace]) -> Made:
        """Pack them in a folder that goes again."""
        done = Done()
        with TemporaryDirectory(prefix="draftscope-") as place:
            self.fill(_Writer(Path(place), 1), read, done)
            parts = parts_of(Path(place))
            tables = [{name: part.path(name).read_bytes() for name in FILES} for part in parts]
        return Made(tables, done)

    def fill(
        self,
        writer: _Writer,
        read: Callable[[Path], Trace],
        done: Done,
        report: Steps = silent,
    ) -> None:
        """Read them and write their parts."""
        sizes = np.array([_size(file) for file in self.files], float)
        ends = np.cumsum(sizes) / max(1.0, sizes.sum())
        for begun, file in zip([0.0, *ends], self.files, strict=False):
            report(begun, file.name)
            try:
                # before it is read: it may be written on meanwhile
                source, trace = _source(file, self.folder), read(file)
            except UserError as why:
                done.refused.append(str(why))
                continue
            writer.add(source, trace)
            done.added, done.rounds = done.added + 1, done.rounds + len(trace.rounds)
        writer.end()


Elsewhere = Callable[[Sequence[Share]], Iterator[tuple[Share, Made | str]]]
"""Shares packed by other processes, each with the sentence of its failure where it failed."""


def _shares(files: Sequence[Path], folder: Path) -> list[Share]:
    """The files in their order, as shares of so many bytes that each makes about one part."""
    shares, some, size = list[Share](), list[Path](), 0
    for file in files:
        some, size = [*some, file], size + _size(file)
        if size >= SHARE_BYTES or file is files[-1]:
            shares.append(Share(len(shares), tuple(some), folder.resolve()))
            some, size = [], 0
    return shares


def _adopt(made: Made, folder: Path, first: int) -> None:
    """Write the parts that another process made; their runs last, as ``_Writer`` does."""
    assert len(made.parts) <= MOST_PARTS, "the next share's parts would be written over"
    for number, files in enumerate(made.parts, first):
        for name in FILES:
            with replacing(PackedPart(folder, number).path(name)) as file:
                file.write_bytes(files[name])


class _Writer:
    """Gathers traces, and writes a part whenever they are enough for one."""

    def __init__(self, folder: Path, first: int):
        self._folder, self._next = folder, first
        self._sources, self._runs = list[PackedTrace](), list[RunFacts]()
        self._tables: dict[Name, list[pa.Table]] = {name: [] for name in get_args(Name)}
        self._traces, self._waiting, self._rounds = list[Trace](), 0, 0

    def add(self, source: PackedTrace, trace: Trace) -> None:
        self._sources.append(source)
        self._traces.append(trace)
        self._waiting += len(trace.rounds)
        if self._waiting >= BATCH:
            self._make()
        if self._rounds >= PART:
            self._write()

    def end(self) -> None:
        self._make()
        if self._runs:
            self._write()

    def _make(self) -> None:
        """The columns of the traces that wait."""
        part, first = RecordedPart(self._traces), len(self._runs)
        for name, tables in self._tables.items():
            frame = part.frame(name)
            tables.append(_table(frame.assign(run=frame["run"] + first), TABLES[name]))
        self._runs += part.runs
        self._rounds += self._waiting
        self._traces, self._waiting = [], 0

    def _write(self) -> None:
        part = PackedPart(self._folder, self._next)
        for name, tables in self._tables.items():
            _save(pa.concat_tables(tables).unify_dictionaries(), part.path(name))
            tables.clear()
        lines = [
            vars(source) | vars(run) | {"header": json.dumps(asdict(run.header))}
            for source, run in zip(self._sources, self._runs, strict=True)
        ]
        _save(pa.Table.from_pylist(lines, schema_of(RUN_COLUMNS)), part.path(RUNS))
        self._sources, self._runs, self._rounds = [], [], 0
        self._next += 1


def _table(frame: Frame, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    columns = [_array(frame[name], kind) for name, kind in kinds.items()]
    return pa.Table.from_arrays(columns, schema=schema_of(kinds))


def _array(values: Frame, kind: pa.DataType) -> pa.Array:
    """NaN stays a number that is not known; only words have codes."""
    if not pa.types.is_dictionary(kind):
        return pa.array(values.to_numpy(), from_pandas=False).cast(kind)
    words = values if values.dtype == "category" else values.astype("category")
    codes: Array = words.cat.codes.to_numpy()
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int16)), pa.array(list(words.cat.categories), pa.string())
    )


def _save(table: pa.Table, path: Path) -> None:
    shared: Any = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        parquet.write_table(table, file, compression="lz4", use_dictionary=shared)
