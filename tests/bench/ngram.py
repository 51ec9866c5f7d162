"""The n-gram store: building, opening, and looking 25 candidates up after one context.

python -m tests.bench.ngram [TOKENS]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numba
import numpy as np

from core.ngram import NgramStore, build_store, lookup, lookup_each
from core.rounds.draft import Array

VOCABULARY, CANDIDATES = 49_152, 25
BATCHES, PER_BATCH = 400, 100
GOAL_US = 10.0  # the median of a lookup


def synthetic(count: int, seed: int = 0) -> Array:
    """Tokens int32 [count] with Zipf's frequencies, in which each token partly decides the next."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, VOCABULARY + 1)
    drawn = rng.choice(VOCABULARY, count, p=weights / weights.sum())
    ids = rng.permutation(VOCABULARY)
    follows = np.roll(drawn, 1) * 7919 + rng.integers(0, 8, count) ** 2
    likely = np.minimum(drawn, follows % VOCABULARY)
    return ids[np.where(rng.random(count) < 0.5, likely, drawn)].astype(np.int32)


@numba.njit(cache=True)
def many(arrays, contexts, candidates, counts):
    total = 0
    for row in range(len(contexts)):
        _, seen = lookup(arrays, contexts[row, 0], contexts[row, 1], candidates[row], counts[0])
        total += seen
    return total


@numba.njit(cache=True)
def many_each(arrays, contexts, candidates, counts):
    for row in range(len(contexts)):
        before, last = contexts[row]
        lookup_each(arrays, before, last, candidates[row], counts[0], counts[1], counts[2])


def microseconds(action: Callable, store: NgramStore, tokens: Array) -> float:
    """The median over batches of different contexts. The candidates are like a drafter's: the true
    token and others by their frequency."""
    rng = np.random.default_rng(1)
    counts = np.empty((3, CANDIDATES), np.int64)
    times = []
    for _ in range(BATCHES + 1):
        at = rng.integers(2, len(tokens), PER_BATCH)
        contexts = np.stack([tokens[at - 2], tokens[at - 1]], 1).astype(np.int64)
        candidates = tokens[rng.integers(0, len(tokens), (PER_BATCH, CANDIDATES))].astype(np.int64)
        candidates[:, 0] = tokens[at]
        start = time.perf_counter()
        action(store.arrays, contexts, candidates, counts)
        times.append((time.perf_counter() - start) / PER_BATCH)
    return median(times[1:]) * 1e6  # the first one compiles


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=4_000_000, help="tokens to count")
    count = parser.parse_args().count
    tokens = synthetic(count)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "store.safetensors"
        took = min(seconds(lambda: build_store([tokens], path, VOCABULARY)) for _ in range(3))
        print(f"building: {count / took / 1e6:.2f} million tokens/s")
        store, size = NgramStore.open(path), path.stat().st_size
        print(f"{store.nodes:,} nodes {store.sizes}, {size / store.nodes:.2f} bytes/node")
        opening = median(seconds(lambda: NgramStore.open(path)) for _ in range(50))
        print(f"opening: {opening * 1e3:.2f} ms")
        for title, action in (("lookup", many), ("lookup_each", many_each)):
            took = microseconds(action, store, tokens)
            print(f"{title}, {CANDIDATES} candidates: {took:.2f} µs (goal {GOAL_US:g})")


if __name__ == "__main__":
    main()
