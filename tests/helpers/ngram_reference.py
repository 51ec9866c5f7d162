"""N-gram counting and lookup, written independently of the store."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from core.ngram import NgramStore
from core.ngram.store import Arrays, count_limit, make_metadata, pack_nodes, token_bits


def count_grams(documents: Sequence[Sequence[int]], min_count: int = 1) -> dict:
    """The counts a store must have, by Python's Counter."""
    grams = Counter(
        tuple(document[start : start + length])
        for document in documents
        for length in (1, 2, 3)
        for start in range(len(document) - length + 1)
    )
    return {g: n for g, n in grams.items() if len(g) < 3 or n >= min_count}


def store_of(counts: Mapping[tuple[int, ...], int], vocabulary: int) -> NgramStore:
    """A store in memory with these counts, laid out with Python's own lists."""
    levels = [sorted(g for g in counts if len(g) == length) for length in (1, 2, 3)]
    nodes = [gram for level in levels for gram in level]
    exact = np.array([counts[gram] for gram in nodes], np.int64)
    last = np.array([gram[-1] for gram in nodes], np.int64)
    large = np.flatnonzero(exact >= count_limit(vocabulary))
    bounds = np.cumsum([len(level) for level in levels])[:-1]
    starts = [
        np.array([*(bisect_left(below, gram) for gram in level), len(below)], np.uint32)
        for level, below in pairwise(levels)
    ]
    shape = np.array([vocabulary, 32 - token_bits(vocabulary)], np.int64)
    packed = np.split(pack_nodes(last, exact, vocabulary), bounds)
    arrays = Arrays(large, exact[large], *packed, *starts, shape)
    for array in arrays:
        array.flags.writeable = False
    return NgramStore(arrays, make_metadata(vocabulary, int(exact[: len(levels[0])].sum())))


def probabilities(store: NgramStore, context: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """P(token | context) of each token; 0 for grams never seen."""
    return store.probabilities(context, np.asarray(tokens)).tolist()


def trie_bytes(counts, order=None, shuffle=None, root=None) -> bytes:
    """A ``.trie`` file by struct: ``order`` lists the grams, the root () first."""
    order = order or [(), *sorted(counts, key=lambda g: (len(g), g))]
    number = {gram: at for at, gram in enumerate(order)}
    below = {gram: [] for gram in order}
    for gram in sorted(counts):
        below[gram[:-1]].append(gram)
    made = struct.pack("<QQ", 3, len(order))
    for gram in order:
        children = below[gram]
        if shuffle:
            shuffle.shuffle(children)
        if gram:
            made += struct.pack("<iQi", gram[-1], number[gram[:-1]], counts[gram])
        else:
            total = sum(n for g, n in counts.items() if len(g) == 1)
            made += struct.pack("<iQi", *(root or (0, 0, total)))
        made += struct.pack("<Q", len(children))
        for child in children:
            made += struct.pack("<iQ", child[-1], number[child])
    return made
