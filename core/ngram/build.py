"""Documents in, store out: sort chunks of grams, merge the sorted runs, write the levels.

Every position of a document gives one key: its window of three tokens as 3 × 21 bits, 0 where the
document has ended. Sorted, the keys walk the trie depth first, and the count of any gram is the
sum over its consecutive keys; so nothing but a chunk at a time is ever held in memory.
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
from core.models.embedded import Progress, Report
from core.ngram.store import (
    CODE_BITS,
    TENSORS,
    NgramStore,
    check_vocabulary,
    describe,
    file_header,
    pack_nodes,
    saturated,
)
from core.rounds.draft import Array

BYTES_PER_TOKEN = 60  # what sorting needs for a token of a chunk
BYTES_PER_ROW = 200  # what merging needs for a row of the windows
_STEP = 1 << 18  # tokens of a long document taken at once
_LARGEST_LEVEL = (1 << 32) - 1  # starts are uint32


@dataclass(frozen=True)
class Options:
    """How to build a store. ``min_count`` drops rarer trigrams; what is left stays exact.

    ``memory`` is in bytes and bounds what building itself holds, not the documents it is given.
    ``tokenizer`` (a hash) and ``sources`` (free text) are kept in the store's metadata.
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

    ``report`` hears of the merging; how far the reading is, the iterable of documents knows.
    Nothing appears at ``path`` until it is complete. Raises UserError for a token outside the
    vocabulary, for a document that is no row of integers, and when files cannot be written.
    """
    check_vocabulary(vocabulary)
    with workshop(path) as folder:
        pieces = _codes(documents, vocabulary)
        room = max(options.memory // BYTES_PER_TOKEN, 1)
        runs = [
            save_run(folder, number, _counted(_windows(block)))
            for number, block in enumerate(_blocks(pieces, room))
        ]
        made = Levels(folder, vocabulary)
        for rows in merged(runs, options.memory, report):
            made.add(rows, options.min_count)
        made.finish(path, options)
    return NgramStore.open(path)


@contextmanager
def workshop(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path``, gone afterwards whatever happens.

    Raises UserError for a path where no file can be made, and for a full disk.
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


def _codes(documents: Iterable[Sequence[int] | Array], vocabulary: int) -> Iterator[Array]:
    """Pieces of codes, int64: token + 1, and a 0 where a document ends."""
    for number, document in enumerate(documents, 1):
        for start in range(0, len(document), _STEP):
            tokens = np.asarray(document[start : start + _STEP])
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


def _blocks(pieces: Iterable[Array], room: int) -> Iterator[Array]:
    """The pieces in blocks of ``room`` codes and the two that follow, which windows reach into.

    A block is only valid until the next one is asked for.
    """
    try:
        block, filled = np.empty(room + 2, np.int64), 0
    except (MemoryError, ValueError):  # ValueError: more than any machine can address
        size = room * BYTES_PER_TOKEN >> 20
        raise UserError(f"this machine has no {size:,} MiB of memory for sorting") from None
    for piece in pieces:
        while len(piece):
            taken = piece[: len(block) - filled]
            block[filled : filled + len(taken)] = taken
            filled, piece = filled + len(taken), piece[len(taken) :]
            if filled == len(block):
                yield block
                block[:2] = block[-2:]
                filled = 2
    yield np.concatenate([block[:filled], [0, 0]])


def _windows(codes: Array) -> Array:
    """Keys int64 of the windows that begin at a token, in any order; all codes but the last two
    begin one."""
    first, second, third = codes[:-2], codes[1:-1], codes[2:]
    keys = (first << CODE_BITS | second) << CODE_BITS
    keys |= np.where(second > 0, third, 0)  # behind the end stands another document
    return keys[first > 0]


def _counted(keys: Array) -> Array:
    """Rows (key, count), int64 [n, 2], keys ascending, of keys that are sorted here in place."""
    keys.sort()
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    return np.stack([keys[firsts], np.diff(firsts, append=len(keys))], axis=1)


def save_run(folder: Path, number: int, rows: Array) -> Path:
    """Keep sorted rows int64 [n, 2] in a file."""
    path = folder / f"run-{number}"
    rows.tofile(path)
    return path


# ── merging ──────────────────────────────────────────────────────────────────────────────────────


class _Window:
    """The next rows of a run file."""

    def __init__(self, path: Path, room: int):
        self.path, self.room = path, room
        self.unread = path.stat().st_size // 16
        self.rows = np.empty((0, 2), np.int64)

    def fill(self) -> bool:
        """Read on when nothing is left; False at the end of the run."""
        if not len(self.rows) and self.unread:
            at = self.path.stat().st_size - 16 * self.unread
            count = min(self.room, self.unread)
            self.rows = np.fromfile(self.path, np.int64, 2 * count, offset=at).reshape(-1, 2)
            self.unread -= count
        return len(self.rows) > 0

    def take(self, bound: int) -> Array:
        """The rows up to and with the key ``bound``."""
        count = int(np.searchsorted(self.rows[:, 0], bound, "right"))
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken


def merged(runs: Sequence[Path], memory: int, report: Report) -> Iterator[Array]:
    """Blocks of rows (key, count) of all runs together: keys ascend, each stands once.

    Rows up to the smallest of the windows' last keys are complete: no run has more of them.
    """
    room = max(memory // BYTES_PER_ROW // max(len(runs), 1), 16)
    windows = [_Window(run, room) for run in runs]
    total, done = sum(window.unread for window in windows), 0
    while windows := [window for window in windows if window.fill()]:
        bounds = [int(window.rows[-1, 0]) for window in windows if window.unread]
        bound = min(bounds, default=np.iinfo(np.int64).max)
        rows = np.concatenate([window.take(bound) for window in windows])
        done += len(rows)
        yield summed(rows)
        report(Progress("merging", done / total))


def summed(rows: Array) -> Array:
    """Rows sorted by key, the counts of equal keys added."""
    # Stable is timsort here, which merges what is already sorted in pieces.
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    firsts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
    return np.stack([rows[firsts, 0], np.add.reduceat(rows[:, 1], firsts)], axis=1)


# ── sorted rows → the levels of a store ──────────────────────────────────────────────────────────


@numba.njit(cache=True)
def _finish(level, state, before, out):
    """Write the open node of this level, if one is open."""
    if state[level, 0] > 0:
        out[level, state[2, level] - before[level]] = state[level]
        state[2, level] += 1


@numba.njit(cache=True)
def _grow(rows, least, state, out):
    """Walk sorted rows and write finished nodes (code, count, first child) to out[level].

    rows   int64 [n, 2]          key and count; a last key of 0 finishes what is open
    state  int64 [3, 3]          the open unigram and bigram as such nodes; then the number of
                                 nodes finished so far on each level
    out    int64 [3, n + 1, 3]   this call's nodes, of each level as many as its number grew by
    """
    mask = (1 << CODE_BITS) - 1
    before = state[2].copy()
    for row in range(len(rows)):
        key, count = rows[row, 0], rows[row, 1]
        first, second, third = key >> 2 * CODE_BITS, (key >> CODE_BITS) & mask, key & mask
        new = first != state[0, 0]
        if new or second != state[1, 0]:
            # The lower one first, so that its parent knows where its children end.
            _finish(1, state, before, out)
            if new:
                _finish(0, state, before, out)
                state[0, 0], state[0, 1], state[0, 2] = first, 0, state[2, 1]
            state[1, 0], state[1, 1], state[1, 2] = second, 0, state[2, 2]
        state[0, 1] += count
        state[1, 1] += count
        if third > 0 and count >= least:
            at = state[2, 2] - before[2]
            out[2, at, 0], out[2, at, 1] = third, count
            state[2, 2] += 1


class Levels:
    """The levels of a store, written to files in ``folder`` as they grow, joined at the end."""

    def __init__(self, folder: Path, vocabulary: int):
        self.folder, self.vocabulary = folder, vocabulary
        self.rows, self.tokens = 0, 0
        self._state = np.zeros((3, 3), np.int64)
        # Counts too large for a node are few: at most one for every few thousand tokens.
        self._large: list[list[Array]] = [[], [], []]
        for name in TENSORS:
            (folder / name).touch()

    def add(self, rows: Array, min_count: int) -> None:
        """Take the next rows (key, count), int64 [n, 2], keys ascending over all calls."""
        self.rows += len(rows)
        out = np.empty((3, len(rows) + 1, 3), np.int64)
        before = self._state[2].copy()
        _grow(rows, min_count, self._state, out)
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
        large = np.flatnonzero(counts >= saturated(self.vocabulary))
        self._large[level].append(np.stack([large + first, counts[large]]))
        if first + len(nodes) > _LARGEST_LEVEL:
            raise UserError(f"more than {_LARGEST_LEVEL:,} distinct grams of one length")

    def _write(self, name: str, values: Array) -> None:
        with (self.folder / name).open("ab") as file:
            values.tofile(file)

    def finish(self, path: Path, options: Options) -> None:
        """Join the levels to a store and put it in place."""
        self.add(np.zeros((1, 2), np.int64), options.min_count)
        sizes = self._state[2]
        self._write("bigram_starts", sizes[1:2].astype(np.uint32))
        self._write("trigram_starts", sizes[2:3].astype(np.uint32))
        for level, parts in enumerate(self._large):
            nodes, counts = np.concatenate(parts, axis=1)
            self._write("large_nodes", nodes + sizes[:level].sum())
            self._write("large_counts", counts)
        metadata = describe(
            self.vocabulary,
            self.tokens,
            min_count=options.min_count,
            tokenizer=options.tokenizer,
            sources=options.sources,
        )
        whole = self.folder / "whole"
        with whole.open("wb") as file:
            width = {"I64": 8, "U32": 4}
            lengths = {n: (self.folder / n).stat().st_size // width[k] for n, k in TENSORS.items()}
            file.write(file_header(lengths, metadata))
            for name in TENSORS:
                with (self.folder / name).open("rb") as part:
                    shutil.copyfileobj(part, file, 1 << 20)
        os.replace(whole, path)
