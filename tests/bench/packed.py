"""Packed against plain linear layers, at the embedded target's shapes, in one run.

python -m tests.bench.packed
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

from core.packed import PackedLinear, can_pack

LAYERS, HIDDEN, KV, MLP, VOCABULARY = 30, 576, 192, 1536, 49152
SHAPES = [
    *((HIDDEN, HIDDEN), (HIDDEN, KV), (HIDDEN, KV), (HIDDEN, HIDDEN)),  # q, k, v, o
    *((HIDDEN, MLP), (HIDDEN, MLP), (MLP, HIDDEN)),  # gate, up, down
]
ROWS, REPEATS = (1, 9, 17, 65), 9


def main() -> None:
    if not can_pack(torch.float32, torch.device("cpu")):
        print("this machine has no oneDNN: nothing is packed here")
        return
    plain = [nn.Linear(i, o, bias=False) for _ in range(LAYERS) for i, o in SHAPES]
    plain.append(nn.Linear(HIDDEN, VOCABULARY, bias=False))
    packed = [PackedLinear(layer) for layer in plain]
    print(
        f"{torch.get_num_threads()} threads; ms for all layers and the head, medians of {REPEATS}"
    )
    print(f"{'rows':>5} {'plain':>8} {'packed':>8} {'ratio':>6}")
    for rows in ROWS:
        inputs = {width: torch.randn(rows, width) for width in (HIDDEN, MLP)}
        seconds: dict[str, list[float]] = {"plain": [], "packed": []}
        for _ in range(REPEATS):  # alternating, so that a noisy moment hits both
            for name, layers in (("plain", plain), ("packed", packed)):
                began = time.perf_counter()
                for layer in layers:
                    layer(inputs[layer.in_features])
                seconds[name].append(time.perf_counter() - began)
        a, b = (statistics.median(seconds[name]) * 1e3 for name in ("plain", "packed"))
        print(f"{rows:>5} {a:>8.1f} {b:>8.1f} {a / b:>6.2f}")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
