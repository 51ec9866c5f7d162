"""Time a verify forward with and without CUDA graphs, beside the roofline.

    python -m tests.cuda.speed                 # a random model of Qwen3-4B's size, in bfloat16
    python -m tests.cuda.speed --layers 2      # a small one, also on a CPU (nothing is captured)

Medians over alternating runs in one process; copy bandwidth and matrix rate are measured between.
"""

from __future__ import annotations

import argparse
from statistics import median

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from analysis.cost import bushy
from analysis.roofline import Forward, Gauge, seconds_of
from core.cache import ATTENTION
from core.target import Target


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
    made.tie_weights()  # the memory is new
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    rotary = made.model.rotary_emb
    made.model.rotary_emb = type(rotary)(config).to(device)
    return made.eval().requires_grad_(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--budgets", type=int, nargs="+", default=[0, 16, 64, 256])
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model_of(args.layers, device)
    targets = {name: Target(model, (0,), fixed=name == "fixed") for name in ("plain", "fixed")}
    prompt = [token % 1000 for token in range(args.context)]
    for target in targets.values():
        target.prefill(prompt, 2 * max(args.budgets) + 2)  # room for the padding
    drafts = {nodes: bushy(nodes + 1, targets["plain"].vocabulary) for nodes in args.budgets}
    gauge, forward = Gauge(device, model.dtype), Forward.of(model)
    taken = {(nodes, name): list[float]() for nodes in drafts for name in targets}
    for turn in range(args.repeats + 1):  # the first captures
        gauge.sample()
        for nodes, draft in drafts.items():
            for name, target in targets.items():
                seconds = seconds_of(device, lambda t=target, d=draft: t.score(d))
                taken[nodes, name] += [seconds] if turn else []
    machine = gauge.machine
    print(
        f"{device} · {args.layers} layers · {args.context} tokens of context · copies "
        f"{machine.bandwidth / 1e9:.0f} GB/s, matrices {machine.rate / 1e9:.0f} GFLOP/s"
    )
    print(f"{'nodes':>6} {'plain ms':>9} {'fixed ms':>9} {'floor ms':>9} {'reached':>8}")
    for nodes, draft in drafts.items():
        plain, fixed = (median(taken[nodes, name]) for name in targets)
        floor = machine.floor([forward.verify(draft, args.context)])
        print(
            f"{nodes:6} {plain * 1e3:9.2f} {fixed * 1e3:9.2f} {floor * 1e3:9.2f} "
            f"{floor / fixed:8.0%}"
        )


if __name__ == "__main__":
    main()
