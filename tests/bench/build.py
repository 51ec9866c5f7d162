"""Building a tree of 1,024 nodes: the draft and its attention mask; and DART's search with the
paper's settings (25 tokens × 20 sequences × 8 depths), in one thread.

python -m tests.bench.build
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np

from core.drafting.builders import best_first
from core.drafting.session import FactorisedSession
from core.methods.dart import ContinuityOptions
from core.methods.dart.search import ContinuitySearch
from core.models.tree_mask import ancestor_mask
from core.ngram import build_store
from core.rounds.draft import Candidates

T = TypeVar("T")

DEPTHS, VOCABULARY, REPEATS = 15, 4096, 300
GOAL_MS = 0.5  # for 1,024 nodes
DART_DEPTHS, DART_BUDGET, DART_TOKENS = 8, 59, 1_000_000
DART_GOAL_MS = 1.0


def proposal(seed: int, width: int, depths: int = DEPTHS) -> Candidates:
    """Marginals as peaked as a drafter's: the best of each depth has q ≈ 0.1 to 0.6."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.standard_normal((depths, VOCABULARY))
    log_q = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    ids = np.argsort(-log_q, axis=1)[:, :width]
    return Candidates(ids, np.take_along_axis(log_q, ids, 1).astype(np.float32))


def milliseconds(action: Callable[[T], object], inputs: list[T]) -> float:
    """Median over all inputs, after a first call that compiles."""
    action(inputs[0])
    seconds = []
    for one in inputs:
        start = time.perf_counter()
        action(one)
        seconds.append(time.perf_counter() - start)
    return median(seconds) * 1e3


session = FactorisedSession  # of candidates; making one is part of building


def continuity() -> None:
    """DART's search over a store of frequent and rare grams, with and without them."""
    rng, paper = np.random.default_rng(0), ContinuityOptions()
    text = (VOCABULARY * rng.power(0.3, DART_TOKENS)).astype(np.int64)
    with tempfile.TemporaryDirectory() as folder:
        store = build_store([text], Path(folder) / "store.safetensors", VOCABULARY)
        proposals = [proposal(seed, paper.width, DART_DEPTHS) for seed in range(REPEATS)]
        print(f"DART's search, {paper.width} × {paper.beam} × {DART_DEPTHS}, ", end="")
        print(f"{store.nodes:,} grams (goal {DART_GOAL_MS} ms)")
        for title, weight in (("with n-grams", paper.ngram_weight), ("without", 0.0)):
            options = ContinuityOptions(ngram_weight=weight)
            search = ContinuitySearch(store, np.array([0], np.int64), options)
            texts = text[: 2 * REPEATS].reshape(-1, 2).tolist()
            rounds = list(zip(proposals, texts, strict=True))
            took = milliseconds(lambda r, s=search: s(session(r[0]), r[1], DART_BUDGET), rounds)
            print(f"{title:>14} {took:.3f} ms")


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    print(f"L = {DEPTHS}, medians of {REPEATS} proposals, ms (goal at 1,024: {GOAL_MS} to build)")
    print(f"{'nodes':>6} {'build':>8} {'mask':>8}")
    for budget in (16, 64, 256, 1024):
        proposals = [proposal(seed, budget) for seed in range(REPEATS)]
        build = milliseconds(lambda c, b=budget: best_first(session(c), [1], b), proposals)
        drafts = [best_first(session(c), [1], budget) for c in proposals]
        mask = milliseconds(ancestor_mask, drafts)
        print(f"{budget:>6} {build:>8.3f} {mask:>8.3f}")
    continuity()


if __name__ == "__main__":
    main()
