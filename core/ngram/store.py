"""The n-gram store: how often every gram of 1, 2 and 3 tokens occurs, as flat sorted arrays.

A store is a memory-mapped ``.safetensors`` file, so opening one takes the same time at any size.
n1, n2 and n3 are the numbers of distinct grams of each length:

    unigrams         uint32 [n1]      one node per gram: the gram's last token in the high bits, its
    bigrams          uint32 [n2]      count in the low ones. Siblings are adjacent, sorted by token;
    trigrams         uint32 [n3]      groups of siblings are in the order of their parents
    bigram_starts    uint32 [n1 + 1]  where each unigram's bigrams begin (and the last one's end)
    trigram_starts   uint32 [n2 + 1]  where each bigram's trigrams begin
    large_nodes      int64  [m]       nodes whose count does not fit, ascending; unigrams are
    large_counts     int64  [m]       numbered first, then bigrams, then trigrams

The token takes as many bits as the vocabulary needs. A count of all ones marks a large node. So
every count is exact, and a node takes 4 to 8 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from core.compiled import compiled
from core.errors import UserError
from core.rounds.draft import Array
from core.tensor_files import TYPES, read_arrays

FORMAT = "draftscope-ngram"
VERSION = 1
ORDER = 3
CODE_BITS = 21  # three of them make the key of a gram that building sorts by
MAX_VOCABULARY = (1 << CODE_BITS) - 1
LARGE = 64 << 20  # bytes of a file that is mapped; a smaller one may be cut while it is read

TENSORS = {  # in the order of the file: the widest first, so that all are aligned
    "large_nodes": "I64",
    "large_counts": "I64",
    "unigrams": "U32",
    "bigrams": "U32",
    "trigrams": "U32",
    "bigram_starts": "U32",
    "trigram_starts": "U32",
}


class Arrays(NamedTuple):
    """The arrays of the file, and ``shape`` int64 [2]: the vocabulary and a count's bits."""

    large_nodes: Array
    large_counts: Array
    unigrams: Array
    bigrams: Array
    trigrams: Array
    bigram_starts: Array
    trigram_starts: Array
    shape: Array


def token_bits(vocabulary: int) -> int:
    """The number of a node's 32 bits that hold the token."""
    return max(1, (vocabulary - 1).bit_length())


def count_limit(vocabulary: int) -> int:
    """The count that marks a large node; smaller counts fit into the node itself."""
    return (1 << (32 - token_bits(vocabulary))) - 1


def pack_nodes(tokens: Array, counts: Array, vocabulary: int) -> Array:
    """Nodes uint32 [n] of tokens and counts, both int64 [n]."""
    words = tokens << (32 - token_bits(vocabulary))
    return (words | np.minimum(counts, count_limit(vocabulary))).astype(np.uint32)


def make_metadata(vocabulary: int, tokens: int, **more: object) -> dict[str, str]:
    """A store's metadata. ``tokens``: how many were counted."""
    known = {
        "format": FORMAT,
        "version": VERSION,
        "order": ORDER,
        "vocabulary": vocabulary,
        "token_bits": token_bits(vocabulary),
        "tokens": tokens,
    }
    return {name: str(value) for name, value in (known | more).items()}


def file_header(sizes: Mapping[str, int], metadata: Mapping[str, str]) -> bytes:
    """The safetensors header of a store whose tensors have these sizes in bytes."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, kind in TENSORS.items():
        begin, end = end, end + sizes[name]
        length = sizes[name] // np.dtype(TYPES[kind]).itemsize
        header[name] = {"dtype": kind, "shape": [length], "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # aligns the arrays after it
    return len(text).to_bytes(8, "little") + text


@dataclass(frozen=True, eq=False)
class NgramStore:
    """Gram counts, in memory or mapped from a file; read-only either way."""

    arrays: Arrays
    metadata: Mapping[str, str]

    @property
    def vocabulary(self) -> int:
        """Tokens are 0 … vocabulary − 1."""
        return int(self.arrays.shape[0])

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Distinct unigrams, bigrams and trigrams."""
        return len(self.arrays.unigrams), len(self.arrays.bigrams), len(self.arrays.trigrams)

    @property
    def nodes(self) -> int:
        return sum(self.sizes)

    @property
    def tokens(self) -> int:
        """The number of tokens counted: the sum of all unigram counts."""
        return int(self.metadata["tokens"])

    def probabilities(self, context: Sequence[int], tokens: Array) -> Array:
        """P(token | context) float64 [K] for tokens [K]; 0 for a token that was never seen.

        The context of each token is the longest of the last two or one that it was seen after.
        """
        wanted = np.ascontiguousarray(tokens, np.int64)
        counts, contexts, lengths = (np.empty(len(wanted), np.int64) for _ in range(3))
        before, last = [-1, -1, *map(int, context)][-2:]
        lookup_each(self.arrays, before, last, wanted, counts, contexts, lengths)
        return counts / np.maximum(contexts, 1)

    @staticmethod
    def empty(vocabulary: int = 1) -> NgramStore:
        """A store without grams: every lookup finds nothing."""
        check_vocabulary(vocabulary)
        tensors = [np.zeros(int("starts" in name), TYPES[kind]) for name, kind in TENSORS.items()]
        return NgramStore(_frozen(tensors, vocabulary), make_metadata(vocabulary, 0))

    @staticmethod
    def open(path: Path | str) -> NgramStore:
        """Read a store's file, or map a large one. Raises UserError when it is not a store, is
        damaged or unreadable."""
        path = Path(path)
        large = path.is_file() and path.stat().st_size > LARGE
        metadata, arrays = read_arrays(path, "an n-gram store", mapped=large)
        _check_format(path, metadata)
        if not _sound(metadata, arrays):
            raise UserError(f"{path} contradicts itself: it is damaged")
        tensors = [arrays[name] for name in TENSORS]
        return NgramStore(_frozen(tensors, int(metadata["vocabulary"])), metadata)


def check_vocabulary(vocabulary: int) -> None:
    """Raises UserError for a vocabulary no store can have."""
    if not 1 <= vocabulary <= MAX_VOCABULARY:
        raise UserError(f"a vocabulary has 1 to {MAX_VOCABULARY:,} tokens, not {vocabulary:,}")


def _frozen(tensors: Sequence[Array], vocabulary: int) -> Arrays:
    """Plain read-only arrays, so that numba compiles once for memory and for mapped files."""
    shape = np.array([vocabulary, 32 - token_bits(vocabulary)], np.int64)
    arrays = Arrays(*(np.asarray(tensor).view() for tensor in [*tensors, shape]))
    for array in arrays:
        array.flags.writeable = False
    return arrays


def _check_format(path: Path, metadata: Mapping[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is a safetensors file but not an n-gram store")
    if metadata.get("version") != str(VERSION) or metadata.get("order") != str(ORDER):
        raise UserError(
            f"{path} is an n-gram store of version {metadata.get('version')}, order "
            f"{metadata.get('order')}; this program reads version {VERSION}, order {ORDER}"
        )


def _sound(metadata: Mapping[str, str], arrays: Mapping[str, Array]) -> bool:
    """Whether metadata and arrays match, in constant time. ``lookup`` is safe for any contents.

    Arrays must be aligned for the compiled search.
    """
    try:
        vocabulary, bits, tokens = (
            int(metadata[k]) for k in ("vocabulary", "token_bits", "tokens")
        )
        for name, kind in TENSORS.items():
            array = arrays[name]
            if array.dtype != TYPES[kind] or array.ndim != 1 or not array.flags.aligned:
                return False
    except (KeyError, ValueError):
        return False
    for starts, above, below in (
        (arrays["bigram_starts"], arrays["unigrams"], arrays["bigrams"]),
        (arrays["trigram_starts"], arrays["bigrams"], arrays["trigrams"]),
    ):
        if len(starts) != len(above) + 1 or starts[0] != 0 or starts[-1] != len(below):
            return False
    counted = 1 <= vocabulary <= MAX_VOCABULARY and bits == token_bits(vocabulary) and tokens >= 0
    return counted and len(arrays["large_nodes"]) == len(arrays["large_counts"])


# ── looking up, from numba ───────────────────────────────────────────────────────────────────────


@compiled
def _lower_bound(values, low, high, wanted):
    """The first index in [low, high) whose value is ≥ wanted, or high."""
    while low < high:
        middle = (low + high) >> 1
        if np.int64(values[middle]) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _find(nodes, low, high, token, bits):
    """The index of the token among the siblings [low, high), or −1."""
    at = _lower_bound(nodes, low, high, token << bits)
    if at < high and np.int64(nodes[at]) >> bits == token:
        return at
    return np.int64(-1)


@compiled
def _exact(arrays, word, node):
    """The exact count of the node with this word and number."""
    full = (np.int64(1) << arrays.shape[1]) - 1
    count = np.int64(word) & full
    if count == full:
        at = _lower_bound(arrays.large_nodes, np.int64(0), len(arrays.large_nodes), node)
        if at < len(arrays.large_nodes) and arrays.large_nodes[at] == node:
            return arrays.large_counts[at]
    return count


@compiled
def _unigram(arrays, token):
    """Index of a token's unigram, or −1."""
    if token < 0 or token >= arrays.shape[0]:
        return np.int64(-1)
    return _find(arrays.unigrams, np.int64(0), len(arrays.unigrams), token, arrays.shape[1])


@compiled
def _bigram(arrays, before, last):
    """Index of a bigram, or −1."""
    above = _unigram(arrays, before)
    if above < 0 or last < 0 or last >= arrays.shape[0]:
        return np.int64(-1)
    # A damaged file may hold any starts: limit them to the array.
    low, high = np.int64(arrays.bigram_starts[above]), np.int64(arrays.bigram_starts[above + 1])
    return _find(arrays.bigrams, low, min(high, len(arrays.bigrams)), last, arrays.shape[1])


@compiled
def _fill(arrays, length, gram, tokens, counts):
    """Fill ``counts`` for every token after a gram of length 1 or 2, given by its index."""
    nodes, starts, first = arrays.bigrams, arrays.bigram_starts, len(arrays.unigrams)
    if length == 2:
        first += len(nodes)
        nodes, starts = arrays.trigrams, arrays.trigram_starts
    low, high = np.int64(starts[gram]), min(np.int64(starts[gram + 1]), len(nodes))
    for k in range(len(tokens)):
        counts[k] = 0
        if 0 <= tokens[k] < arrays.shape[0]:
            at = _find(nodes, low, high, tokens[k], arrays.shape[1])
            if at >= 0:
                counts[k] = _exact(arrays, nodes[at], first + at)


@compiled
def lookup(arrays, before, last, tokens, counts):
    """Fill ``counts`` int64 [K] with count(context + token) for ``tokens`` int64 [K].

    The context is (before, last) if the store has it, else (last,); before = −1 if there is only
    one token. Returns the context's length and count: 2 or 1, or 0 with a count of 0, and then all
    ``counts`` are 0.
    """
    bigram = _bigram(arrays, before, last)
    if bigram >= 0:
        # Pruned tries have contexts with a count of 0: use the shorter context then.
        seen = _exact(arrays, arrays.bigrams[bigram], len(arrays.unigrams) + bigram)
        if seen > 0:
            _fill(arrays, np.int64(2), bigram, tokens, counts)
            return 2, seen
    unigram = _unigram(arrays, last)
    if unigram >= 0:
        seen = _exact(arrays, arrays.unigrams[unigram], unigram)
        if seen > 0:
            _fill(arrays, np.int64(1), unigram, tokens, counts)
            return 1, seen
    counts[:] = 0
    return 0, np.int64(0)


@compiled
def lookup_each(arrays, before, last, tokens, counts, contexts, lengths):
    """``lookup`` with the longest context that each token itself was seen after.

    DART's released search looks up in this way. ``contexts`` and ``lengths``, int64 [K], are filled
    with the count and the length of each token's context. All three are 0 for a token never seen.
    """
    length, seen = lookup(arrays, before, last, tokens, counts)
    for k in range(len(tokens)):
        found = counts[k] > 0
        contexts[k], lengths[k] = (seen, length) if found else (0, 0)
    if length < 2:
        return
    shorter = np.empty(len(tokens), np.int64)
    _, seen = lookup(arrays, np.int64(-1), last, tokens, shorter)
    for k in range(len(tokens)):
        if counts[k] == 0 and shorter[k] > 0:
            counts[k], contexts[k], lengths[k] = shorter[k], seen, 1
