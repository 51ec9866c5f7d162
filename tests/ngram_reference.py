"""N-gram counting and lookup, written independently of the store."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from core.ngram import NgramStore, lookup_each
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
    """P(token | context) of each token, by the store's own lookup; 0 for grams never seen."""
    wanted = np.ascontiguousarray(tokens, np.int64)
    counts, contexts, lengths = (np.empty(len(wanted), np.int64) for _ in range(3))
    before, last = [-1, -1, *map(int, context)][-2:]
    lookup_each(store.arrays, before, last, wanted, counts, contexts, lengths)
    return (counts / np.maximum(contexts, 1)).tolist()
