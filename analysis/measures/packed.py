"""Packs: the columns of many rounds as Parquet files, of which a report is made without reading
the traces again.

A pack is a folder of parts. A part is five files, NUMBER.TABLE.parquet; the one of its runs is
written last, and a part without it does not count. The traces stay the record: each run names its
file, relative to the pack, with the size and time that it had. When these change it is packed anew,
and the old part goes once all new ones are there. A file ``lock`` keeps a second packing out.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from analysis.frames import COVERAGE, Frame
from analysis.measures.parts import CAUSES, Name, RecordedPart, RunFacts
from analysis.measures.tokens import CLASSES
from analysis.parquet_sizes import column_parts
from analysis.table_files import open_parquet, reading_table
from core.declared import convert
from core.errors import UserError, reading
from core.files import LOCK, distinct, replacing
from core.journal import alone
from core.json_input import parse_json
from core.progress import Steps, silent
from core.rounds.draft import Array
from core.traces.schema import STAGES, Header, Trace

FORMAT, VERSION = "draftscope-pack", 6
OLDEST = 1  # version whose table of runs says what to pack again
RUNS = "runs"
BATCH, PART = 2_000, 32_000  # rounds whose columns are made together; that a part has, at least
SHARE_BYTES = 32 << 20  # of traces that another process packs at a time
MOST_PARTS = 1_000  # that a share may make
MAX_VALUES = 1 << 27  # of a column in a part: a small file may unpack to any number

_WHOLE, _REAL, _SHORT, _YES = pa.int32(), pa.float64(), pa.float32(), pa.bool_()
_WORD = pa.dictionary(pa.int16(), pa.string())
_CATEGORIES = {"stop": CAUSES, "cause": CAUSES, "token_class": CLASSES}


def _columns(**kinds: tuple[str, ...] | str) -> Mapping[str, pa.DataType]:
    """Columns in the order of their kinds."""
    types = {"whole": _WHOLE, "real": _REAL, "short": _SHORT, "yes": _YES, "word": _WORD}
    return {name: types[kind] for kind, names in kinds.items() for name in names}


_TABLES: Mapping[Name, Mapping[str, pa.DataType]] = {
    "rounds": _columns(
        whole=("run", "round", "position", "nodes", "depths", "accepted", "committed", "cut",
               "stop_row", "told", "strays"),
        real=("last_depth", "surrogate", "strays_allowed", *STAGES),
        yes=("drawn",),
        word=("stop", "token_class"),
    ),
    "positions": _columns(
        whole=("run", "round", "root", "depth", "parent_rank"),
        real=("rank", "best"),
        short=("tvd", "entropy_q", *COVERAGE),  # traces hold float32
        yes=("drafting", "tested", "accepted", "in_text", "outside", "spine"),
        word=("token_class", "script"),
    ),
    "nodes": _columns(
        whole=("run", "round", "row", "depth", "rank"),
        real=("q", "path_q", "p"),
        yes=("reached", "accepted"),
        word=("cause", "token_class"),
    ),
    "hindsight": _columns(
        whole=("run", "round", "accepted", "listed", "possible"), real=("marginal",)
    ),
}  # fmt: skip
_RUNS = {
    "file": pa.string(), "size": pa.int64(), "time": pa.int64(), "header": pa.string(),
    "complete": pa.bool_(), "mark": pa.string(), "tag": pa.string(), "rounds": pa.int64(),
    "tokens": pa.int64(), "wall_seconds": pa.float64(), "start": pa.int64(),
    "text": pa.list_(pa.int64()),
}  # fmt: skip
_FILES = (*_TABLES, RUNS)  # of a part, in the order in which they are written
_FILE = re.compile(rf"([0-9]{{5,9}})\.({'|'.join((RUNS, *_TABLES))})\.parquet(\.tmp)?")


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class PackedTrace:
    """The trace that a run was packed from: its path from the pack, its size in bytes, and when it
    was last written, in ns."""

    file: str
    size: int
    time: int

    @staticmethod
    def of(file: Path, folder: Path) -> PackedTrace:
        """Raises OSError."""
        found = file.stat()
        return PackedTrace(_from(folder, file), found.st_size, found.st_mtime_ns)

    def current(self, folder: Path) -> bool:
        """Whether the file is still there and the same."""
        with suppress(OSError):
            return PackedTrace.of(folder / self.file, folder) == self
        return False


def _from(folder: Path, file: Path) -> str:
    """The file's path from the folder, both without links: ".." leads out of where a link goes."""
    place = file.parent.resolve() / file.name
    return Path(os.path.relpath(place, folder.resolve())).as_posix()


@dataclass(frozen=True, eq=False)
class PackedPart:
    """A part of a pack. Only the columns that are asked for are read, and none is kept."""

    folder: Path
    number: int

    def path(self, table: str) -> Path:
        return self.folder / f"{self.number:05}.{table}.parquet"

    @cached_property
    def sources(self) -> Sequence[PackedTrace]:
        names = ("file", "size", "time")
        lines = zip(*(self._runs[name].to_pylist() for name in names), strict=True)
        return [PackedTrace(*line) for line in lines]

    @cached_property
    def runs(self) -> Sequence[RunFacts]:
        names = [name for name in _RUNS if name not in ("file", "size", "time", "text")]
        texts = self._runs["text"].combine_chunks()
        ends, tokens = texts.offsets.to_numpy(), texts.values.to_numpy()
        lines = self._runs.select(names).to_pylist()
        for line, first, end in zip(lines, ends[:-1], ends[1:], strict=True):
            line |= {"header": self._header(line["header"]), "text": tokens[first:end]}
        return [RunFacts(**line) for line in lines]

    def _header(self, text: str) -> Header:
        place = self.path(RUNS).name
        return convert(parse_json(text, place), Header, place)

    @cached_property
    def _runs(self) -> pa.Table:
        return _read(self.path(RUNS), _RUNS, OLDEST)

    @property
    def outdated(self) -> bool:
        """Whether the part is of an older version."""
        path = self.path(RUNS)
        with reading_table(path), open_parquet(path) as found:
            return _version(found.schema_arrow) != VERSION

    def frame(self, table: Name, columns: Sequence[str] | None = None) -> Frame:
        """These columns of a table, or all. Raises UserError for a file that is damaged."""
        kinds = _TABLES[table]
        wanted = {name: kinds[name] for name in columns or kinds}
        found = _read(self.path(table), wanted)
        numbers = found["run"].to_numpy()
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < self._runs.num_rows:
            raise UserError(f"{self.path(table)} is not of the same pack as its runs")
        return pd.DataFrame({name: _values(name, found[name]) for name in wanted})


def is_pack(path: Path) -> bool:
    return bool(parts_of(path))


def parts_of(folder: Path) -> list[PackedPart]:
    """The parts of a pack, in order; none of a folder that is another. No file is opened."""
    names = (_FILE.fullmatch(path.name) for path in folder.glob(f"*.{RUNS}.parquet"))
    return [PackedPart(folder, number) for number in sorted(int(name[1]) for name in names if name)]


def is_free(folder: Path) -> bool:
    """Whether a folder holds nothing but files of a pack, whole or of a packing that stopped."""
    return all(path.name == LOCK or _FILE.fullmatch(path.name) for path in folder.iterdir())


def changed_traces(folder: Path) -> int:
    """How many traces are other than they were when they were packed; not those that are not where
    they were, for a pack may be elsewhere without them."""
    sources = (source for part in parts_of(folder) for source in part.sources)
    return sum(not each.current(folder) for each in sources if (folder / each.file).exists())


def _version(schema: pa.Schema) -> int:
    """The version of a pack's table; 0: it is not a pack's."""
    said = (schema.metadata or {}).get(FORMAT.encode(), b"")
    return int(said) if said.isdigit() else 0


def _read(file: Path, kinds: Mapping[str, pa.DataType], oldest: int = VERSION) -> pa.Table:
    with reading_table(file):
        with open_parquet(file) as opened:
            if not oldest <= _version(opened.schema_arrow) <= VERSION:
                raise UserError(f"{file} is not of a pack of version {VERSION}: pack again")
            if _most_values(file, opened.metadata.num_rows) > MAX_VALUES:
                raise UserError(f"{file} is too large for a part of a pack")
            found = opened.read(columns=list(kinds)).select(list(kinds))
            found.validate(full=True)  # that no code lies outside of its dictionary
            found = found.cast(_schema(kinds))
        lists = (each for each in found.columns if pa.types.is_list(each.type))
        inside = (pc.call_function("list_flatten", [each]) for each in lists)
        if any(each.null_count for each in (*found.columns, *inside)):
            raise UserError(f"{file} lacks values")
        return found


def _most_values(file: Path, rows: int) -> int:
    """The values of the column that has most, those in lists one by one."""
    counts: Counter[str] = Counter()
    for part in column_parts(file):
        counts[part.column] += part.values
    return max(rows, *counts.values(), 0)


def _values(name: str, column: pa.ChunkedArray) -> Any:
    """A column as the tables of traces have it."""
    if not pa.types.is_dictionary(column.type):
        values = column.to_numpy()
        wide = {"i": np.int64, "f": np.float64}.get(values.dtype.kind)
        return values if wide is None else values.astype(wide)
    words = column.unify_dictionaries().combine_chunks()
    if isinstance(words, pa.ChunkedArray):  # of no chunk
        words = pa.array([], _WORD)
    known, codes = words.dictionary.to_pylist(), words.indices.to_numpy()
    if name not in _CATEGORIES:
        return np.array(known, object)[codes]
    names = pd.Index(_CATEGORIES[name], dtype=object)
    places = names.get_indexer(known)  # −1 for a word that this version does not know
    return pd.Categorical.from_codes(places[codes] if known else codes, names)


def _schema(kinds: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema(list(kinds.items()), {FORMAT: str(VERSION)})


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


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
        found = _FILE.fullmatch(path.name)
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
        for table in _FILES:
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
            tables = [{name: part.path(name).read_bytes() for name in _FILES} for part in parts]
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
        for name in _FILES:
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
            tables.append(_table(frame.assign(run=frame["run"] + first), _TABLES[name]))
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
        _save(pa.Table.from_pylist(lines, _schema(_RUNS)), part.path(RUNS))
        self._sources, self._runs, self._rounds = [], [], 0
        self._next += 1


def _table(frame: Frame, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    columns = [_array(frame[name], kind) for name, kind in kinds.items()]
    return pa.Table.from_arrays(columns, schema=_schema(kinds))


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
