"""Building a store from documents: sort chunks of grams, merge the sorted runs, write the levels.

Every position of a document gives one key: its window of three tokens as 3 × 21 bits, 0 after the
document's end. Sorted keys visit the trie depth first, and the count of a gram is the sum over its
consecutive keys. So only one chunk at a time is held in memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np

from core.errors import UserError
from core.ngram.store import (
    CODE_BITS,
    TENSORS,
    NgramStore,
    check_vocabulary,
    count_limit,
    file_header,
    make_metadata,
    pack_nodes,
)
from core.progress import Progress, Report
from core.rounds.draft import Array

BYTES_PER_TOKEN = 60  # what sorting needs for a token of a chunk
BYTES_PER_ROW = 200  # what merging needs for a row of the windows
_PIECE = 1 << 18  # tokens of a long document that are processed at once
_LARGEST_LEVEL = (1 << 32) - 1  # starts are uint32


@dataclass(frozen=True)
class Options:
    """How to build a store.

    min_count  rarer trigrams are dropped; the other counts stay exact
    memory     bytes that building may use, documents not included
    tokenizer, sources  a hash and free text for the store's metadata
    """

    min_count: int = 1
    memory: int = 512 << 20
    tokenizer: str = ""
    sources: str = ""


DEFAULTS = Options()


def build_store(
    documents: Iterable[Sequence[int] | Array],
    path: Path,
    vocabulary: int,
    options: Options = DEFAULTS,
    report: Report = lambda _: None,
) -> NgramStore:
    """Count the grams of all documents (flat rows of token ids) into a store at ``path``.

    ``report`` gets the progress of merging alone. The file appears at ``path`` when it is complete.
    Raises UserError for a token outside the vocabulary, for a document that is not a row of
    integers, and when files cannot be written.
    """
    check_vocabulary(vocabulary)
    with build_folder(path) as folder:
        pieces = _code_pieces(documents, vocabulary)
        room = max(options.memory // BYTES_PER_TOKEN, 1)
        runs = [
            save_run(folder, number, _count_keys(_window_keys(block)))
            for number, block in enumerate(_in_blocks(pieces, room))
        ]
        levels = LevelWriter(folder, vocabulary)
        for rows in merge_runs(runs, options.memory, report):
            levels.add(rows, options.min_count)
        levels.finish(path, options)
    return NgramStore.open(path)


@contextmanager
def build_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path``, which is always removed.

    Raises UserError when no file can be written to ``path``.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent}")
    try:
        with tempfile.TemporaryDirectory(prefix=".ngram-", dir=path.parent) as folder:
            yield Path(folder)
    except OSError as error:
        raise UserError(f"{path} could not be made: {error.strerror or error}") from None


# ── documents → sorted runs ──────────────────────────────────────────────────────────────────────


def _code_pieces(documents: Iterable[Sequence[int] | Array], vocabulary: int) -> Iterator[Array]:
    """Pieces of codes, int64: token + 1, and a 0 where a document ends."""
    for number, document in enumerate(documents, 1):
        for start in range(0, len(document), _PIECE):
            tokens = np.asarray(document[start : start + _PIECE])
            if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
                raise UserError(f"document {number} is not a row of token ids")
            for odd in (tokens.min(), tokens.max()):
                if not 0 <= odd < vocabulary:
                    raise UserError(
                        f"document {number} holds token {odd}, outside the vocabulary "
                        f"of {vocabulary:,}"
                    )
            yield tokens.astype(np.int64) + 1
        yield np.zeros(1, np.int64)


def _in_blocks(pieces: Iterable[Array], room: int) -> Iterator[Array]:
    """The pieces in blocks of ``room`` codes, plus the two that follow, for windows at the end.

    A block is only valid until the next one is requested.
    """
    try:
        block, filled = np.empty(room + 2, np.int64), 0
    except (MemoryError, ValueError):  # ValueError: more than a machine can address
        size = room * BYTES_PER_TOKEN >> 20
        raise UserError(f"this machine has no {size:,} MiB of memory for sorting") from None
    for piece in pieces:
        while len(piece):
            part = piece[: len(block) - filled]
            block[filled : filled + len(part)] = part
            filled, piece = filled + len(part), piece[len(part) :]
            if filled == len(block):
                yield block
                block[:2] = block[-2:]
                filled = 2
    yield np.concatenate([block[:filled], [0, 0]])


def _window_keys(codes: Array) -> Array:
    """The keys, int64, of the windows that begin at a token; the last two codes begin none."""
    first, second, third = codes[:-2], codes[1:-1], codes[2:]
    keys = (first << CODE_BITS | second) << CODE_BITS
    keys |= np.where(second > 0, third, 0)  # a third code after an end is of another document
    return keys[first > 0]


def _count_keys(keys: Array) -> Array:
    """Rows (key, count), int64 [n, 2], with ascending keys. Sorts ``keys`` in place."""
    keys.sort()
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    return np.stack([keys[firsts], np.diff(firsts, append=len(keys))], axis=1)


def save_run(folder: Path, number: int, rows: Array) -> Path:
    """Write sorted rows int64 [n, 2] to a file."""
    path = folder / f"run-{number}"
    rows.tofile(path)
    return path


# ── merging ──────────────────────────────────────────────────────────────────────────────────────


class _RunReader:
    """Reads a run file, ``room`` rows at a time."""

    def __init__(self, path: Path, room: int):
        self.path, self.room = path, room
        self.unread = path.stat().st_size // 16
        self.rows = np.empty((0, 2), np.int64)

    def fill(self) -> bool:
        """Read more rows when none are left. Returns False at the end of the run."""
        if not len(self.rows) and self.unread:
            at = self.path.stat().st_size - 16 * self.unread
            count = min(self.room, self.unread)
            self.rows = np.fromfile(self.path, np.int64, 2 * count, offset=at).reshape(-1, 2)
            self.unread -= count
        return len(self.rows) > 0

    def pop_until(self, bound: int) -> Array:
        """Remove and return the rows up to and including the key ``bound``."""
        count = int(np.searchsorted(self.rows[:, 0], bound, "right"))
        popped, self.rows = self.rows[:count], self.rows[count:]
        return popped


def merge_runs(runs: Sequence[Path], memory: int, report: Report) -> Iterator[Array]:
    """Blocks of rows (key, count) of all runs, with ascending keys, each key once.

    Rows up to the smallest of the readers' last keys are complete: no run has more of them.
    """
    room = max(memory // BYTES_PER_ROW // max(len(runs), 1), 16)
    readers = [_RunReader(run, room) for run in runs]
    total, done = sum(reader.unread for reader in readers), 0
    while readers := [reader for reader in readers if reader.fill()]:
        bounds = [int(reader.rows[-1, 0]) for reader in readers if reader.unread]
        bound = min(bounds, default=np.iinfo(np.int64).max)
        rows = np.concatenate([reader.pop_until(bound) for reader in readers])
        done += len(rows)
        yield sum_counts(rows)
        report(Progress("merging", done / total))


def sum_counts(rows: Array) -> Array:
    """Rows sorted by key, with the counts of equal keys added."""
    # The stable sort is timsort here, which merges runs that are sorted already.
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    firsts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
    return np.stack([rows[firsts, 0], np.add.reduceat(rows[:, 1], firsts)], axis=1)


# ── sorted rows → the levels of a store ──────────────────────────────────────────────────────────


@numba.njit(cache=True)
def _close(level, state, before, out):
    """Write the open node of this level, if there is one."""
    if state[level, 0] > 0:
        out[level, state[2, level] - before[level]] = state[level]
        state[2, level] += 1


@numba.njit(cache=True)
def _write_nodes(rows, min_count, state, out):
    """Write the finished nodes (code, count, first child) of sorted rows to out[level].

    rows   int64 [n, 2]         key and count; a last key of 0 closes the open nodes
    state  int64 [3, 3]         the open unigram and bigram, as nodes; then the number of nodes
                                finished so far on each level
    out    int64 [3, n + 1, 3]  this call's nodes, on each level as many as its number grew by
    """
    mask = (1 << CODE_BITS) - 1
    before = state[2].copy()
    for row in range(len(rows)):
        key, count = rows[row, 0], rows[row, 1]
        first, second, third = key >> 2 * CODE_BITS, (key >> CODE_BITS) & mask, key & mask
        new = first != state[0, 0]
        if new or second != state[1, 0]:
            # The bigram first: the unigram must include it among its children.
            _close(1, state, before, out)
            if new:
                _close(0, state, before, out)
                state[0, 0], state[0, 1], state[0, 2] = first, 0, state[2, 1]
            state[1, 0], state[1, 1], state[1, 2] = second, 0, state[2, 2]
        state[0, 1] += count
        state[1, 1] += count
        if third > 0 and count >= min_count:
            at = state[2, 2] - before[2]
            out[2, at, 0], out[2, at, 1] = third, count
            state[2, 2] += 1


class LevelWriter:
    """Writes the levels of a store to files in ``folder``, and joins them at the end."""

    def __init__(self, folder: Path, vocabulary: int):
        self.folder, self.vocabulary = folder, vocabulary
        self.rows, self.tokens = 0, 0
        self._state = np.zeros((3, 3), np.int64)
        # Large counts are few: at most one for every few thousand tokens.
        self._large: list[list[Array]] = [[], [], []]
        for name in TENSORS:
            (folder / name).touch()

    def add(self, rows: Array, min_count: int) -> None:
        """Add rows (key, count), int64 [n, 2], with keys ascending over all calls."""
        self.rows += len(rows)
        out = np.empty((3, len(rows) + 1, 3), np.int64)
        before = self._state[2].copy()
        _write_nodes(rows, min_count, self._state, out)
        for level, count in enumerate(self._state[2] - before):
            self._append(level, int(before[level]), out[level, :count])

    def _append(self, level: int, first: int, nodes: Array) -> None:
        counts = nodes[:, 1]
        words = pack_nodes(nodes[:, 0] - 1, counts, self.vocabulary)
        self._write(("unigrams", "bigrams", "trigrams")[level], words)
        if level < 2:
            starts = ("bigram_starts", "trigram_starts")[level]
            self._write(starts, nodes[:, 2].astype(np.uint32))
        if level == 0:
            self.tokens += int(counts.sum())
        large = np.flatnonzero(counts >= count_limit(self.vocabulary))
        self._large[level].append(np.stack([large + first, counts[large]]))
        if first + len(nodes) > _LARGEST_LEVEL:
            raise UserError(f"more than {_LARGEST_LEVEL:,} distinct grams of one length")

    def _write(self, name: str, values: Array) -> None:
        with (self.folder / name).open("ab") as file:
            values.tofile(file)

    def finish(self, path: Path, options: Options) -> None:
        """Join the levels into a store and move it to ``path``."""
        self.add(np.zeros((1, 2), np.int64), options.min_count)
        sizes = self._state[2]
        self._write("bigram_starts", sizes[1:2].astype(np.uint32))
        self._write("trigram_starts", sizes[2:3].astype(np.uint32))
        for level, parts in enumerate(self._large):
            nodes, counts = np.concatenate(parts, axis=1)
            self._write("large_nodes", nodes + sizes[:level].sum())
            self._write("large_counts", counts)
        metadata = make_metadata(
            self.vocabulary,
            self.tokens,
            min_count=options.min_count,
            tokenizer=options.tokenizer,
            sources=options.sources,
        )
        whole = self.folder / "whole"
        with whole.open("wb") as file:
            sizes = {name: (self.folder / name).stat().st_size for name in TENSORS}
            file.write(file_header(sizes, metadata))
            for name in TENSORS:
                with (self.folder / name).open("rb") as part:
                    shutil.copyfileobj(part, file, 1 << 20)
        os.replace(whole, path)
