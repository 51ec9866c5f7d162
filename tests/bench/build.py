"""Building a tree of 1,024 nodes: the search, the draft around it, and its attention mask; and
DART's search with the paper's settings (25 tokens × 20 sequences × 8 depths), in one thread.

python -m tests.bench.build
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from core.drafting.builders import ancestor_mask, best_first, best_first_rows, Table
from core.methods.dart.search import ContinuitySearch, Weights
from core.ngram import build_store
from core.rounds.draft import Candidates

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


def milliseconds(action: Callable[[Candidates], object], proposals: list[Candidates]) -> float:
    """Median over all proposals, each a fresh one, after a first call that compiles."""
    action(proposals[0])
    taken = []
    for one in proposals:
        start = time.perf_counter()
        action(one)
        taken.append(time.perf_counter() - start)
    return median(taken) * 1e3


def continuity() -> None:
    """DART's search over a store of frequent and rare grams, with and without them."""
    rng = np.random.default_rng(0)
    text = (VOCABULARY * rng.power(0.3, DART_TOKENS)).astype(np.int64)
    with tempfile.TemporaryDirectory() as folder:
        store = build_store([text], Path(folder) / "store.safetensors", VOCABULARY)
        proposals = [proposal(seed, Weights.width, DART_DEPTHS) for seed in range(REPEATS)]
        print(f"DART's search, {Weights.width} × {Weights.beam} × {DART_DEPTHS}, ", end="")
        print(f"{store.nodes:,} grams (goal {DART_GOAL_MS} ms)")
        for title, weight in (("with n-grams", Weights.ngram_weight), ("without", 0.0)):
            search = ContinuitySearch(store, np.array([0], np.int64), Weights(ngram_weight=weight))
            behind = iter(text[: 2 * REPEATS + 2].reshape(-1, 2).tolist())
            took = milliseconds(lambda c, s=search, t=behind: s(c, next(t), DART_BUDGET), proposals)
            print(f"{title:>14} {took:.3f} ms")


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    print(f"L = {DEPTHS}, medians of {REPEATS} proposals, ms (goal at 1,024: {GOAL_MS} to build)")
    print(f"{'nodes':>6} {'search':>8} {'build':>8} {'mask':>8}")
    for budget in (16, 64, 256, 1024):
        proposals = [proposal(seed, budget) for seed in range(REPEATS)]
        search = milliseconds(lambda c, b=budget: best_first_rows(Table.of(c), b), proposals)
        build = milliseconds(lambda c, b=budget: best_first(c, [1], b), proposals)
        drafts = [best_first(c, [1], budget) for c in proposals]
        mask = milliseconds(ancestor_mask, drafts)  # type: ignore[arg-type]
        print(f"{budget:>6} {search:>8.3f} {build:>8.3f} {mask:>8.3f}")
    continuity()


if __name__ == "__main__":
    main()
