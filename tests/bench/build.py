"""Building a tree of 1,024 nodes: the search, the draft around it, and its attention mask.

python -m tests.bench.build
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from core.builders import ancestor_mask, best_first, best_first_rows
from core.types import Candidates

DEPTHS, VOCABULARY, REPEATS = 15, 4096, 300
GOAL_MS = 0.5  # for 1,024 nodes


def proposal(seed: int, width: int) -> Candidates:
    """Marginals as peaked as a drafter's: the best of each depth has q ≈ 0.1 to 0.6."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.standard_normal((DEPTHS, VOCABULARY))
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


def main() -> None:
    print(f"L = {DEPTHS}, medians of {REPEATS} proposals, ms (goal at 1,024: {GOAL_MS} to build)")
    print(f"{'nodes':>6} {'search':>8} {'build':>8} {'mask':>8}")
    for budget in (16, 64, 256, 1024):
        proposals = [proposal(seed, budget) for seed in range(REPEATS)]
        search = milliseconds(lambda c, b=budget: best_first_rows(c.log_q, b), proposals)
        build = milliseconds(lambda c, b=budget: best_first(c, 1, b), proposals)
        drafts = [best_first(c, 1, budget) for c in proposals]
        mask = milliseconds(ancestor_mask, drafts)  # type: ignore[arg-type]
        print(f"{budget:>6} {search:>8.3f} {build:>8.3f} {mask:>8.3f}")


if __name__ == "__main__":
    main()
