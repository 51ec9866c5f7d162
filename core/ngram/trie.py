"""DART's released ``.trie`` format of n-grams, converted to a store.

Little-endian: order u64, node count u64, then every node: token i32, parent u64, count i32, child
count u64, and each child's token i32 and node u64. Node 0 is the root. All sizes are multiples of
four bytes, so a file is read as a row of uint32 words.

Nodes and children come in any order, and the root's own fields have no meaning (a pruned file has a
negative count there).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from core.compiled import compiled
from core.errors import UserError
from core.ngram.build import DEFAULTS, BuildOptions, check_place, write_store
from core.ngram.store import CODE_BITS, MAX_VOCABULARY, ORDER, NgramStore, check_vocabulary
from core.progress import Progress, silent
from core.rounds.draft import Array

HEADER, NODE, CHILD = 4, 6, 3  # words
_BATCH = 1 << 18  # nodes processed between two reports

# The scan's codes for what is wrong with a node.
_ENDS, _PARENT, _COUNT, _TOKEN, _DEEP = 1, 2, 3, 4, 5
_FAULTS = {
    _ENDS: "the file ends within it",
    _PARENT: "its parent does not exist",
    _COUNT: "its count is negative",
    _TOKEN: "its token is outside the vocabulary",
    _DEEP: f"it is not within {ORDER} steps of the root",
}


def read_trie(
    path: Path,
    out: Path,
    vocabulary: int | None = None,
    options: BuildOptions = DEFAULTS,
    report: Progress = silent,
) -> NgramStore:
    """Convert a ``.trie`` file to a store at ``out``, with the same counts on every level.

    Without a ``vocabulary`` it is one more than the largest token. Raises UserError for a file
    that is not a trie of order 3, is damaged, or holds a token outside the vocabulary.
    """
    words = _map_words(path)
    check_vocabulary(1 if vocabulary is None else vocabulary)
    check_place(out)
    count = int(words[2]) | int(words[3]) << 32
    try:
        columns = _Columns(
            np.zeros(count, np.int32), np.zeros(count, np.uint32), np.zeros(count, np.int64)
        )
        _read_nodes(path, words, vocabulary or MAX_VOCABULARY, columns, report)
        report(None, "sorting")
        rows = _rows(path, columns)
        return write_store(rows, out, vocabulary or int(columns.codes.max()) or 1, options)
    except MemoryError:
        raise UserError(
            f"this machine's memory cannot hold the {count:,} nodes of {path}"
        ) from None


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
        raise UserError(f"{path} is not a .trie file: it ends before its first node")
    order, count = (int(words[at]) | int(words[at + 1]) << 32 for at in (0, 2))
    if order != ORDER:
        raise UserError(f"{path} is not a .trie file of order {ORDER}: its order reads {order}")
    if not 1 <= count <= min((len(words) - HEADER) // NODE, 1 << 32):
        raise UserError(f"{path} is not a .trie file, or is cut off: it cannot hold {count} nodes")
    if size % 4:
        raise UserError(f"{path} is damaged: its length is not a multiple of four bytes")
    return np.asarray(words)


class _Columns(NamedTuple):
    """The fields of a trie's nodes, one entry per node.

    The own count is the node's count minus its children's. Building adds these up again.
    """

    codes: Array  # int32: token + 1; 0 for the root
    parents: Array  # uint32
    own: Array  # int64


def _read_nodes(
    path: Path, words: Array, vocabulary: int, columns: _Columns, report: Progress
) -> None:
    """Fill the columns from the file. Raises UserError naming the first node that is wrong."""
    count = len(columns.codes)
    state = np.array([HEADER, 0, 0, 0], np.int64)
    for low in range(0, count, _BATCH):
        fault = _scan(words, (low, min(low + _BATCH, count)), vocabulary, state, columns)
        _raise_fault(path, fault, int(state[1]))
        report(float(state[0]) / len(words), "reading")
    if state[0] != len(words):
        raise UserError(f"{path} is damaged: it continues after its last node")
    if state[2] != 0 or state[3] != 0:
        raise UserError(f"{path} is damaged: its lists of children do not match its nodes")


def _rows(path: Path, columns: _Columns) -> Array:
    """Rows (key, own count), int64 [n − 1, 2], of all nodes but the root, with ascending keys."""
    keys = np.empty(len(columns.codes) - 1, np.int64)
    deep = int(_keys(columns, keys))
    _raise_fault(path, _DEEP if deep else 0, deep)
    order = np.argsort(keys)
    keys = keys[order]
    if (keys[1:] == keys[:-1]).any():
        raise UserError(f"{path} is damaged: two of its nodes are the same gram")
    return np.stack([keys, columns.own[1:][order]], axis=1)


def _raise_fault(path: Path, fault: int, node: int) -> None:
    if fault:
        raise UserError(f"{path} is damaged at node {node:,}: {_FAULTS[fault]}")


@compiled
def _u64(words, at):
    """The u64 at a word, as int64: negative when it is 2^63 or more."""
    return np.int64(words[at]) | np.int64(words[at + 1]) << 32


@compiled
def _hash(parent, token, node):
    """A 64-bit hash of one entry of a list of children."""
    # Unsigned numbers wrap around; numba does not guarantee this for signed ones.
    mixed = np.uint64(parent) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(token)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(node)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return np.int64(mixed ^ (mixed >> np.uint64(30)))


@compiled
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


@compiled
def _keys(columns, keys):
    """Fill the keys of all nodes but the root. Returns the first node too deep, or 0."""
    for row in range(len(keys)):
        node, key, steps = np.int64(row + 1), np.int64(0), 0
        while node != 0:
            if steps == ORDER:
                return row + 1
            key = key >> CODE_BITS | np.int64(columns.codes[node]) << (ORDER - 1) * CODE_BITS
            node = np.int64(columns.parents[node])
            steps += 1
        keys[row] = key
    return 0
