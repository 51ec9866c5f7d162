"""DART's released ``.trie`` format of n-grams, converted to and from a store as a stream.

Little-endian: order u64, node count u64, then every node: token i32, parent u64, count i32, child
count u64, and each child's token i32 and node u64. Node 0 is the root. All sizes are multiples of
four bytes, so a file is read and written as a row of uint32 words.

Released files have nodes and children in any order, and the root's own fields have no meaning (a
pruned file has a negative count there). Files written here are canonical: breadth first, children
by token; the root has token 0, parent 0 and the number of tokens counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

from core.errors import UserError
from core.ngram.build import (
    DEFAULTS,
    LevelWriter,
    Options,
    build_folder,
    merge_runs,
    save_run,
    sum_counts,
)
from core.ngram.store import CODE_BITS, MAX_VOCABULARY, ORDER, NgramStore, check_vocabulary
from core.progress import Progress, Report
from core.rounds.draft import Array

HEADER, NODE, CHILD = 4, 6, 3  # words
_LARGEST_COUNT = (1 << 31) - 1
_BATCH = 1 << 18  # nodes processed between two reports
_CHILDREN = 1 << 20  # children written at once
_BYTES_PER_NODE = 128  # that sorting needs

# The scan's codes for what is wrong with a node.
_ENDS, _PARENT, _COUNT, _TOKEN, _DEEP = 1, 2, 3, 4, 5
_FAULTS = {
    _ENDS: "the file ends within it",
    _PARENT: "its parent does not exist",
    _COUNT: "its count is negative",
    _TOKEN: "its token is outside the vocabulary",
    _DEEP: f"it is not within {ORDER} steps of the root",
}


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def read_trie(
    path: Path,
    out: Path,
    vocabulary: int | None = None,
    options: Options = DEFAULTS,
    report: Report = lambda _: None,
) -> NgramStore:
    """Convert a ``.trie`` file to a store at ``out``, with the same counts on every level.

    Without a ``vocabulary`` it is one more than the largest token. Raises UserError for a file
    that is not a trie of order 3, is damaged, or holds a token outside the vocabulary.
    """
    words = _map_words(path)
    check_vocabulary(1 if vocabulary is None else vocabulary)
    with build_folder(out) as folder:
        columns = _columns(folder, int(words[2]) | int(words[3]) << 32)
        _read_nodes(path, words, vocabulary or MAX_VOCABULARY, columns, report)
        levels = LevelWriter(folder, vocabulary or int(columns.codes.max()) or 1)
        room = max(options.memory // _BYTES_PER_NODE, 1)
        runs = [
            save_run(folder, number, sum_counts(rows))
            for number, rows in enumerate(_rows(path, columns, room, report))
        ]
        for rows in merge_runs(runs, options.memory, report):
            # A released count of 0 is kept: it was pruned, not rare.
            levels.add(rows, options.min_count if options.min_count > 1 else 0)
        if levels.rows != len(columns.codes) - 1:
            raise UserError(f"{path} is damaged: two of its nodes are the same gram")
        levels.finish(out, options)
    return NgramStore.open(out)


def _map_words(path: Path) -> Array:
    """The file's words, uint32. Checks the header. Raises UserError."""
    try:
        size = path.stat().st_size
        words = np.memmap(path, "<u4", "r", shape=(size // 4,)) if size >= 4 else np.empty(0)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(words) < HEADER:
        raise UserError(f"{path} is no .trie file: it ends before its first node")
    order, count = (int(words[at]) | int(words[at + 1]) << 32 for at in (0, 2))
    if order != ORDER:
        raise UserError(f"{path} is no .trie file of order {ORDER}: its order reads {order}")
    if not 1 <= count <= min((len(words) - HEADER) // NODE, 1 << 32):
        raise UserError(f"{path} is no .trie file, or is cut off: it cannot hold {count} nodes")
    if size % 4:
        raise UserError(f"{path} is damaged: its length is no multiple of four bytes")
    return np.asarray(words)


class _Columns(NamedTuple):
    """The fields of a trie's nodes, one entry per node.

    The own count is the node's count minus its children's. Building adds these up again.
    """

    codes: Array  # int32: token + 1; 0 for the root
    parents: Array  # uint32
    own: Array  # int64


def _columns(folder: Path, count: int) -> _Columns:
    """Zeros in mapped files, because a released trie may not fit in memory."""
    kinds = {"codes": np.int32, "parents": np.uint32, "own": np.int64}
    return _Columns(
        *(np.asarray(np.memmap(folder / n, k, "w+", shape=(count,))) for n, k in kinds.items())
    )


def _read_nodes(
    path: Path, words: Array, vocabulary: int, columns: _Columns, report: Report
) -> None:
    """Fill the columns from the file. Raises UserError naming the first node that is wrong."""
    count = len(columns.codes)
    state = np.array([HEADER, 0, 0, 0], np.int64)
    for low in range(0, count, _BATCH):
        fault = _scan(words, (low, min(low + _BATCH, count)), vocabulary, state, columns)
        _raise_fault(path, fault, int(state[1]))
        report(Progress("reading", float(state[0]) / len(words)))
    if state[0] != len(words):
        raise UserError(f"{path} is damaged: it continues after its last node")
    if state[2] != 0 or state[3] != 0:
        raise UserError(f"{path} is damaged: its lists of children do not match its nodes")


def _rows(path: Path, columns: _Columns, room: int, report: Report) -> Iterator[Array]:
    """Rows (key, own count), int64 [≤ room, 2], of all nodes but the root."""
    count = len(columns.codes)
    for low in range(1, count, room):
        high = min(low + room, count)
        keys = np.empty(high - low, np.int64)
        deep = int(_keys(low, columns, keys))
        _raise_fault(path, _DEEP if deep else 0, deep)
        yield np.stack([keys, columns.own[low:high]], axis=1)
        report(Progress("sorting", high / count))


def _raise_fault(path: Path, fault: int, node: int) -> None:
    if fault:
        raise UserError(f"{path} is damaged at node {node:,}: {_FAULTS[fault]}")


@numba.njit(cache=True)
def _u64(words, at):
    """The u64 at a word, as int64: negative when it is 2^63 or more."""
    return np.int64(words[at]) | np.int64(words[at + 1]) << 32


@numba.njit(cache=True)
def _hash(parent, token, node):
    """A 64-bit hash of one entry of a list of children."""
    # Unsigned numbers wrap around; numba does not guarantee this for signed ones.
    mixed = np.uint64(parent) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(token)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(node)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return np.int64(mixed ^ (mixed >> np.uint64(30)))


@numba.njit(cache=True)
def _scan(words, span, vocabulary, state, columns):
    """Read the nodes of a span (low, high). Returns 0, or the fault of node state[1].

    state int64 [4]: the word where the next node begins; the node; the xor of ``_hash`` over all
    listed children and all nodes; and the number of listed children minus that of nodes. The last
    two end as 0 when every node is listed once, by its parent.
    """
    codes, parents, own = columns.codes, columns.parents, columns.own
    for node in range(span[0], span[1]):
        at = state[0]
        state[1] = node
        if at + NODE > len(words):
            return _ENDS
        token, count = np.int32(words[at]), np.int32(words[at + 3])
        parent, children = _u64(words, at + 1), _u64(words, at + 4)
        if children < 0 or children > (len(words) - at - NODE) // CHILD:
            return _ENDS
        if node > 0:
            if parent < 0 or parent >= len(codes):
                return _PARENT
            if count < 0:
                return _COUNT
            if token < 0 or token >= vocabulary:
                return _TOKEN
            codes[node], parents[node] = token + 1, parent
            own[node] += count
            own[parent] -= count
            state[2] ^= _hash(parent, token, node)
            state[3] -= 1
        for child in range(at + NODE, at + NODE + CHILD * children, CHILD):
            state[2] ^= _hash(node, np.int32(words[child]), _u64(words, child + 1))
        state[3] += children
        state[0] = at + NODE + CHILD * children
    return 0


@numba.njit(cache=True)
def _keys(low, columns, keys):
    """Fill the keys of the nodes from ``low`` on. Returns the first one too deep, or 0."""
    for row in range(len(keys)):
        node, key, steps = np.int64(low + row), np.int64(0), 0
        while node != 0:
            if steps == ORDER:
                return low + row
            key = key >> CODE_BITS | np.int64(columns.codes[node]) << (ORDER - 1) * CODE_BITS
            node = np.int64(columns.parents[node])
            steps += 1
        keys[row] = key
    return 0


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


def write_trie(store: NgramStore, path: Path, report: Report = lambda _: None) -> None:
    """Write a store as a canonical ``.trie`` file.

    Raises UserError when a count does not fit the format (2^31 or more) or the disk is full.
    """
    with build_folder(path) as folder:
        whole = folder / "whole"
        with whole.open("wb") as file:
            np.array([ORDER, store.nodes + 1], "<u8").tofile(file)
            _root_words(store).tofile(file)
            done = 0
            for length in (1, 2, 3):
                for low, high in _slices(store, length):
                    _level_words(store, length, low, high).tofile(file)
                    done += high - low
                    report(Progress("writing", done / store.nodes))
        os.replace(whole, path)


def _root_words(store: NgramStore) -> Array:
    count = store.sizes[0]
    tokens, _ = store.level(1, 0, count)
    root = np.zeros((1, 3), np.int64)
    root[0, 2] = min(store.tokens, _LARGEST_COUNT)  # readers ignore it
    words = np.empty(NODE + CHILD * count, np.uint32)
    _write_nodes(words, root, np.array([0, count]), tokens, 1)
    return words


def _slices(store: NgramStore, length: int) -> Iterator[tuple[int, int]]:
    """Ranges of a level's nodes, with a bounded number of children each."""
    low, size = 0, store.sizes[length - 1]
    while low < size:
        high = min(low + _BATCH, size)
        if length < ORDER:
            starts = _starts(store, length)
            ends = starts[low + 1 : high + 1]
            # A node with more children is a range of its own.
            fitting = int(np.searchsorted(ends, int(starts[low]) + _CHILDREN, "right"))
            high = low + max(fitting, 1)
        yield low, high
        low = high


def _starts(store: NgramStore, length: int) -> Array:
    """Where the children of a level's nodes begin."""
    return (store.arrays.bigram_starts, store.arrays.trigram_starts)[length - 1]


def _level_words(store: NgramStore, length: int, low: int, high: int) -> Array:
    """The words of the nodes [low, high) of a level. A gram's node number is 1 + its number."""
    tokens, counts = store.level(length, low, high)
    if counts.max() > _LARGEST_COUNT:
        raise UserError(f"a gram occurs {counts.max():,} times: more than a .trie file can hold")
    firsts = 1 + np.concatenate([[0], np.cumsum(store.sizes)])  # the first node of each level
    parents = np.zeros(high - low, np.int64)
    if length > 1:
        above, children = _starts(store, length - 1), np.arange(low, high, dtype=np.uint32)
        parents = np.searchsorted(above, children, "right") - 1 + firsts[length - 2]
    starts = np.zeros(high - low + 1, np.int64)
    below = np.empty(0, np.int64)
    if length < ORDER:
        starts = _starts(store, length)[low : high + 1].astype(np.int64)
        below, _ = store.level(length + 1, int(starts[0]), int(starts[-1]))
    words = np.empty(NODE * len(tokens) + CHILD * len(below), np.uint32)
    nodes = np.stack([tokens, parents, counts], axis=1)
    _write_nodes(words, nodes, starts - starts[0], below, int(firsts[length] + starts[0]))
    return words


@numba.njit(cache=True)
def _write_nodes(words, nodes, starts, below, first):
    """Fill ``words`` with nodes.

    nodes   int64 [n, 3]    token, parent, count
    starts  int64 [n + 1]   where each node's children begin in ``below``
    below   int64 [m]       the children's tokens; child i is node ``first`` + i
    """
    at = 0
    for row in range(len(nodes)):
        parent, children = nodes[row, 1], starts[row + 1] - starts[row]
        words[at], words[at + 3] = nodes[row, 0], nodes[row, 2]
        words[at + 1], words[at + 2] = parent & 0xFFFFFFFF, parent >> 32
        words[at + 4], words[at + 5] = children & 0xFFFFFFFF, children >> 32
        at += NODE
        for child in range(starts[row], starts[row + 1]):
            node = first + child
            words[at] = below[child]
            words[at + 1], words[at + 2] = node & 0xFFFFFFFF, node >> 32
            at += CHILD
