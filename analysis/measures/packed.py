"""Packs: the columns of many rounds as Parquet files, of which a report is made without reading
the traces again.

A pack is a folder of parts, which ``packing.py`` writes. A part is five files,
NUMBER.TABLE.parquet; the one of its runs is written last, and a part without it does not count. The
traces stay the record: each run names its file, relative to the pack, with the size and time that
it had.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.frames import COVERAGE, Frame
from analysis.measures.parts import CAUSES, Name, RunFacts
from analysis.measures.tokens import CLASSES
from analysis.parquet_sizes import column_parts
from analysis.table_files import open_parquet, reading_table
from core.declared import convert
from core.errors import UserError
from core.files import LOCK
from core.json_input import parse_json
from core.traces.schema import STAGES, Header

FORMAT, VERSION = "draftscope-pack", 6
OLDEST = 1  # version whose table of runs says what to pack again
RUNS = "runs"
MAX_VALUES = 1 << 27  # of a column in a part: a small file may unpack to any number

_WHOLE, _REAL, _SHORT, _YES = pa.int32(), pa.float64(), pa.float32(), pa.bool_()
_WORD = pa.dictionary(pa.int16(), pa.string())
_CATEGORIES = {"stop": CAUSES, "cause": CAUSES, "token_class": CLASSES}


def _columns(**kinds: tuple[str, ...] | str) -> Mapping[str, pa.DataType]:
    """Columns in the order of their kinds."""
    types = {"whole": _WHOLE, "real": _REAL, "short": _SHORT, "yes": _YES, "word": _WORD}
    return {name: types[kind] for kind, names in kinds.items() for name in names}


TABLES: Mapping[Name, Mapping[str, pa.DataType]] = {
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
RUN_COLUMNS = {
    "file": pa.string(), "size": pa.int64(), "time": pa.int64(), "header": pa.string(),
    "complete": pa.bool_(), "mark": pa.string(), "tag": pa.string(), "rounds": pa.int64(),
    "tokens": pa.int64(), "wall_seconds": pa.float64(), "start": pa.int64(),
    "text": pa.list_(pa.int64()),
}  # fmt: skip
FILES = (*TABLES, RUNS)  # of a part, in the order in which they are written
FILE_NAME = re.compile(rf"([0-9]{{5,9}})\.({'|'.join((RUNS, *TABLES))})\.parquet(\.tmp)?")


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
        names = [name for name in RUN_COLUMNS if name not in ("file", "size", "time", "text")]
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
        return _read(self.path(RUNS), RUN_COLUMNS, OLDEST)

    @property
    def outdated(self) -> bool:
        """Whether the part is of an older version."""
        path = self.path(RUNS)
        with reading_table(path), open_parquet(path) as found:
            return _version(found.schema_arrow) != VERSION

    def frame(self, table: Name, columns: Sequence[str] | None = None) -> Frame:
        """These columns of a table, or all. Raises UserError for a file that is damaged."""
        kinds = TABLES[table]
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
    names = (FILE_NAME.fullmatch(path.name) for path in folder.glob(f"*.{RUNS}.parquet"))
    return [PackedPart(folder, number) for number in sorted(int(name[1]) for name in names if name)]


def is_free(folder: Path) -> bool:
    """Whether a folder holds nothing but files of a pack, whole or of a packing that stopped."""
    return all(path.name == LOCK or FILE_NAME.fullmatch(path.name) for path in folder.iterdir())


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
            found = found.cast(schema_of(kinds))
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


def schema_of(kinds: Mapping[str, pa.DataType]) -> pa.Schema:
    """The schema of a table with these columns, marked with the version."""
    return pa.schema(list(kinds.items()), {FORMAT: str(VERSION)})
