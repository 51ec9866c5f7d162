"""Packed against plain linear layers, at the embedded target's shapes, in one run.

python -m tests.bench.fast_layers
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

from core.models.fast_layers import ROWS as DEFAULT_ROWS
from core.models.fast_layers import PackedLinear, can_pack

LAYERS, HIDDEN, KV, MLP, VOCABULARY = 30, 576, 192, 1536, 49152
SHAPES = [
    *((HIDDEN, HIDDEN), (HIDDEN, KV), (HIDDEN, KV), (HIDDEN, HIDDEN)),  # q, k, v, o
    *((HIDDEN, MLP), (HIDDEN, MLP), (MLP, HIDDEN)),  # gate, up, down
]
ROWS, REPEATS, LAYOUTS = (1, 5, 9, 17, 33, 65, 129), 9, (1, 8, 16, 64)


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    if not can_pack(torch.float32, torch.device("cpu")):
        print("this machine has no oneDNN: nothing is packed here")
        return
    plain = [nn.Linear(i, o, bias=False) for _ in range(LAYERS) for i, o in SHAPES]
    plain.append(nn.Linear(HIDDEN, VOCABULARY, bias=False))
    layouts = {"plain": plain} | {f"for {n}": [PackedLinear(x, n) for x in plain] for n in LAYOUTS}
    print(
        f"{torch.get_num_threads()} threads; ms for all layers and the head, medians of {REPEATS}; "
        f"packed for some number of rows ({DEFAULT_ROWS} in decoding)"
    )
    print(f"{'rows':>5}", *(f"{name:>8}" for name in layouts))
    for rows in ROWS:
        inputs = {width: torch.randn(rows, width) for width in (HIDDEN, MLP)}
        seconds: dict[str, list[float]] = {name: [] for name in layouts}
        for _ in range(REPEATS):  # alternating, so that noise affects all alike
            for name, layers in layouts.items():
                began = time.perf_counter()
                for layer in layers:
                    layer(inputs[layer.in_features])
                seconds[name].append(time.perf_counter() - began)
        print(f"{rows:>5}", *(f"{statistics.median(s) * 1e3:>8.1f}" for s in seconds.values()))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
