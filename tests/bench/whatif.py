"""How fast a what-if question is answered on a collected file, the first time it is asked.

    python -m tests.bench.whatif FILE

Seven budgets over the whole text (goal ≤ 1 s), and one slider step: another budget, M, sibling
count, beam or n-gram weight (goal ≤ 200 ms), each from a fresh simulation; and redrawing one tree.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

from analysis.collected.collection import Collection
from analysis.collected.whatif import Simulation

BUDGETS = (8, 16, 32, 64, 128, 256, 1024)
SLIDERS: tuple[tuple[str, int, dict], ...] = (
    ("ddtree", 64, {}), ("ddtree", 1024, {}), ("dflash+opt-tree", 64, {"gain": 0.05}),
    ("treeflash", 64, {"candidates": 8}), ("treeflash", 64, {"siblings": 5}),
    ("treeflash", 1024, {"candidates": 16}), ("dart", 59, {"beam": 10}),
    ("dart", 59, {"ngram_weight": 0.2}), ("dart", 59, {"width": 50}),
)  # fmt: skip


def seconds(call, repeats: int = 5) -> float:
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    start = time.perf_counter()
    collection = Collection.load(path)
    print(f"opened in {(time.perf_counter() - start) * 1e3:.1f} ms")
    tokens = collection.end - collection.answer
    for method in collection.methods:
        Simulation(collection, method).curve([2])  # compile (or load) the loops once
        taken = seconds(lambda m=method: Simulation(collection, m).curve(BUDGETS))
        print(f"{method:18} {len(BUDGETS)} budgets over {tokens} tokens {taken * 1e3:7.0f} ms")
    for method, budget, options in SLIDERS:
        taken = seconds(lambda m=method, b=budget, o=options: Simulation(collection, m, o).run(b))
        print(f"{method:18} B = {budget:<5} {options!s:24} {taken * 1e3:7.0f} ms")
    middle = collection.positions[len(collection.positions) // 2]
    for method in collection.methods:
        simulation = Simulation(collection, method)
        taken = seconds(lambda s=simulation: s.round(middle, 64))
        print(f"{method:18} one tree of 64 nodes {taken * 1e3:7.1f} ms")


if __name__ == "__main__":
    main()
