"""The cost of one verification of D drafts, as a multiple of one plain denoising call.

python -m tests.bench.verification [--model FOLDER] [--block 16] [--context 256] [--threads 2]
                                   [--traces FILE …]

``rows`` are the positions computed. ``break-even`` is the NFE speedup from which on D drafts pay:
below it a verification takes longer than the calls it saves. Beside it the NFE speedup that the
calibrated graph of D drafts has on recorded plain runs (those that ship, or ``--traces``), by exact
simulation, and from both the D that is really fastest on this machine. Without a shipped denoiser
the embedded model itself stands in, which costs the same.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from core.diffusion.graph_files import load_graph
from core.diffusion.models import load_diffusion
from core.diffusion.nfe import simulate
from core.diffusion.pace import Pace
from core.diffusion.target import BidirectionalTarget, BlockCausalTarget, BlockLayout
from core.methods.loading import shipped
from core.models import embedded
from core.models.language import load_language
from core.traces.reader import read_trace
from tests import ROOT

DRAFTS = (0, 3, 5, 8, 10)
TRACES = (ROOT / "assets" / "traces").glob("*-denoise.jsonl.gz")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", default=embedded.NAME)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--traces", type=Path, nargs="+", default=sorted(TRACES), metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    target = make_target(options.model, options.device)
    rng = np.random.default_rng(0)
    prompt = rng.integers(100, 1000, options.context).tolist()
    target.begin(prompt, 4 * options.block, options.block)
    calls = {count: states_of(count, options.block, target.mask_id, rng) for count in DRAFTS}
    seconds = {count: list[float]() for count in DRAFTS}
    heads, rows = [], {}
    score(target, calls[0], 1)  # the prompt joins the first call: not measured
    for _ in range(options.repeats):  # alternating, so that a noisy moment hits all
        for count, states in calls.items():
            before = target.rows
            seconds[count].append(score(target, states, 1))
            rows[count] = target.rows - before
        heads.append(score(target, calls[3], 2) - seconds[3][-1])
    report(options, seconds, rows, max(0.0, statistics.median(heads)), speedups(options))


def make_target(name: str, device: str) -> BlockCausalTarget | BidirectionalTarget:
    if name != embedded.NAME or shipped("denoiser", name):
        return load_diffusion(name, device).target
    print("no denoiser ships yet: the embedded model's own weights, which cost the same")
    plain = load_language(name, device, fast=False)
    return BlockCausalTarget(plain.model, 0, BlockLayout(True, "causal"))


def speedups(options) -> dict[int, float]:
    """NFE speedup by D over all recorded runs together."""
    runs = [read_trace(path) for path in options.traces]
    pace = Pace()
    found = {0: 1.0}
    for count in DRAFTS[1:]:
        graph = load_graph(str(count), embedded.NAME, pace)
        calls = sum(len(list(simulate(run.rounds, graph, pace))) for run in runs)
        found[count] = sum(len(run.rounds) for run in runs) / calls
    return found


def states_of(drafts: int, block: int, mask_id: int, rng: np.random.Generator) -> np.ndarray:
    """A block half written, and drafts with one to three tokens more."""
    state = np.full(block, mask_id, np.int64)
    state[: block // 2] = rng.integers(100, 1000, block // 2)
    states = np.tile(state, (drafts + 1, 1))
    for draft in range(1, drafts + 1):
        more = block // 2 + rng.permutation(block - block // 2)[: 1 + draft % 3]
        states[draft, more] = rng.integers(100, 1000, len(more))
    return states


def score(target, states: np.ndarray, read: int) -> float:
    """Seconds of one call with the logits of the first ``read`` states taken."""
    wanted = [np.flatnonzero(state == target.mask_id) for state in states]
    began = time.perf_counter()
    scores = target.score(states, wanted)
    for state in range(min(read, len(states))):
        scores[state].argmax(-1).tolist()
    return time.perf_counter() - began


def report(
    options,
    seconds: Mapping[int, Sequence[float]],
    rows: dict[int, int],
    head: float,
    saved: dict[int, float],
) -> None:
    middle = {count: statistics.median(times) for count, times in seconds.items()}
    plain = middle[0]
    print(
        f"{options.model}, block {options.block}, context {options.context}, "
        f"{torch.get_num_threads()} threads; medians of {options.repeats}; "
        f"reading one more accepted state: {head * 1e3:.1f} ms"
    )
    columns = (("D", 3), ("rows", 5), ("ms", 8), ("× plain", 8), ("break-even", 11),
               ("NFE speedup", 12), ("steps/s", 8))  # fmt: skip
    print(" ".join(f"{name:>{width}}" for name, width in columns))
    pace = {}
    for count, value in middle.items():
        # s accepted steps: value + (s − 1) · head = s · plain
        even, steps = (value - head) / (plain - head), saved[count]
        pace[count] = steps / (value + (steps - 1) * head)
        print(
            f"{count:>3} {rows[count]:>5} {value * 1e3:>8.1f} {value / plain:>8.2f} {even:>11.2f} "
            f"{steps:>12.2f} {pace[count]:>8.2f}"
        )
    best = max(pace, key=lambda count: pace[count])
    name = f"D = {best}" if best else "plain denoising"
    print(f"fastest here: {name}, {pace[best]:.2f} steps/s; plain {pace[0]:.2f}")


if __name__ == "__main__":
    main()
