"""Time a verify forward with and without CUDA graphs, beside the time its weights take to read.

    python -m tests.cuda.speed                 # a random model of Qwen3-4B's size, in bfloat16
    python -m tests.cuda.speed --layers 2      # a small one, also on a CPU (nothing is captured)

Medians over alternating runs in one process. The floor is the weights' bytes by the copy bandwidth
measured in the same run; a text's cache and the activations are left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from core.cache import ATTENTION
from core.target import Target
from core.types import Draft


def model_of(layers: int, device: torch.device) -> Qwen3ForCausalLM:
    """Qwen3-4B's shape with random weights: time does not hang on what they are."""
    config = Qwen3Config(
        vocab_size=151936, hidden_size=2560, intermediate_size=9728, num_hidden_layers=layers,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True,
        max_position_embeddings=40960, attn_implementation=ATTENTION,
    )  # fmt: skip
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    with torch.device("meta"):
        made = Qwen3ForCausalLM(config)
    made = made.to_empty(device=device).to(dtype)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    made.tie_weights()  # the memory is new
    rotary = made.model.rotary_emb
    made.model.rotary_emb = type(rotary)(config).to(device)
    return made.eval().requires_grad_(False)


def draft_of(nodes: int) -> Draft:
    """A root with chains of eight: every size has depth."""
    parents = np.array([-1, *(0 if i % 8 == 0 else i for i in range(nodes))], np.int32)
    depths = np.zeros(nodes + 1, np.int32)
    for row in range(1, nodes + 1):
        depths[row] = depths[parents[row]] + 1
    zeros = np.zeros(nodes + 1, np.float32)
    return Draft(
        np.arange(nodes + 1, dtype=np.int64) + 100, parents, depths, zeros.astype(np.int32),
        zeros, zeros,
    )  # fmt: skip


def seconds(device: torch.device, action: Callable[[], object]) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def bandwidth(device: torch.device) -> float:
    """Bytes per second of a large copy, read and write counted."""
    source = torch.empty(1 << 28, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    taken = [seconds(device, lambda: target.copy_(source)) for _ in range(12)]
    return 2 * source.nbytes / median(taken[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--budgets", type=int, nargs="+", default=[0, 16, 64, 256])
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model_of(args.layers, device)
    weights = sum(p.nbytes for p in {id(p): p for p in model.parameters()}.values())
    speed = bandwidth(device)
    print(f"{device} · {weights / 1e9:.2f} GB of weights · copies {speed / 1e9:.0f} GB/s")
    targets = {"plain": Target(model, (0,), fixed=False), "fixed": Target(model, (0,), fixed=True)}
    prompt = (np.arange(args.context) % 1000).tolist()
    for target in targets.values():
        target.prefill(prompt, max(args.budgets) * 2 + 2)
    print(f"{'nodes':>6} {'plain ms':>9} {'fixed ms':>9} {'floor ms':>9} {'reached':>8}")
    for nodes in args.budgets:
        draft, taken = draft_of(nodes), {name: list[float]() for name in targets}
        for target in targets.values():
            target.score(draft)  # the first of a size is captured
        for _ in range(args.repeats):
            for name, target in targets.items():
                taken[name].append(seconds(device, lambda t=target, d=draft: t.score(d)))
        plain, fixed, floor = median(taken["plain"]), median(taken["fixed"]), weights / speed
        print(f"{nodes:6} {plain * 1e3:9.2f} {fixed * 1e3:9.2f} {floor * 1e3:9.2f} "
              f"{floor / fixed:8.0%}")  # fmt: skip


if __name__ == "__main__":
    main()
