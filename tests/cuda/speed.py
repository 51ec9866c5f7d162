"""Time verify forwards and whole DDTree rounds with and without CUDA graphs, beside the roofline.

    python -m tests.cuda.speed                 # a random model of Qwen3-4B's size, in bfloat16
    python -m tests.cuda.speed --small         # a tiny one, also on a CPU (nothing is captured)

The drafter is a random DFlash of its published drafter's size, whose trees are hardly accepted: a
round's time does not hang on that. Without nodes a round is plain decoding. Medians over
alternating runs in one process; copy bandwidth and matrix rate are measured between.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from analysis.cost import bushy
from analysis.roofline import Drafting, Forward, Gauge, Work, round_passes, seconds_of
from core.builders import best_first
from core.cache import ATTENTION
from core.decode import Method, Settings, decode
from core.drafters.dflash import DFlashConfig, DFlashDrafter, DFlashModel, default_layer_ids
from core.target import Target
from core.types import Round

ROUNDS = 8  # timed in a row
QWEN3_4B = {
    "vocab_size": 151936, "hidden_size": 2560, "intermediate_size": 9728,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip
SMALL = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


def model_of(size: dict[str, int], layers: int, device: torch.device) -> Qwen3ForCausalLM:
    """Random weights: time does not hang on what they are."""
    config = Qwen3Config(
        **size, num_hidden_layers=layers, tie_word_embeddings=True,
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


def drafter_of(size: dict[str, int], model: Qwen3ForCausalLM, fixed: bool) -> DFlashDrafter:
    """Five random layers behind a block of 16, as published for Qwen3-4B."""
    layers = model.config.num_hidden_layers
    config = DFlashConfig(
        **size, num_hidden_layers=5, block_size=16, num_target_layers=layers,
        target_layer_ids=default_layer_ids(layers, 5) if layers >= 8 else (0,) * 5,
        mask_token_id=size["vocab_size"] - 1,
    )  # fmt: skip
    made = DFlashModel(config).to(model.device, model.dtype).eval().requires_grad_(False)
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    return DFlashDrafter(made, embedding, head, fixed=fixed)


@dataclass(frozen=True)
class Side:
    """The model and its drafter, read plainly or in fixed shapes."""

    target: Target
    drafter: DFlashDrafter

    def rounds(self, budget: int, prompt: list[int], count: int) -> Iterator[tuple[float, Round]]:
        """So many rounds and their seconds; the first, which takes the prompt in, is left out."""
        tree = Method("ddtree", self.drafter, best_first)
        settings = Settings(max(1, budget), 16 * (count + 1), timed=False)
        found = decode(self.target, tree if budget else Method("ar"), prompt, settings)
        next(found)
        for _ in range(count):
            began = time.perf_counter()
            record = next(found)  # its last step reads the target's tokens, which waits for all
            yield time.perf_counter() - began, record


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--budgets", type=int, nargs="+", default=[0, 16, 64, 256])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="tiny sizes: does it all run?")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = SMALL if args.small else QWEN3_4B
    model, sides = model_of(size, args.layers, device), dict[str, Side]()
    for name in ("plain", "fixed"):
        drafter = drafter_of(size, model, fixed=name == "fixed")
        sides[name] = Side(Target(model, drafter.layers, fixed=name == "fixed"), drafter)
    prompt = [token % 500 for token in range(args.context)]
    gauge, forward = Gauge(device, model.dtype), Forward.of(model)
    drafting = Drafting.of(sides["plain"].drafter)
    verify = {(nodes, name): list[float]() for nodes in args.budgets for name in sides}
    whole = {key: list[float]() for key in verify}
    floors: dict[tuple[str, int], tuple[Work, ...]] = {}
    for turn in range(args.repeats + 1):  # the first captures
        gauge.sample()
        for nodes, name in verify:
            side = sides[name]
            for seconds, record in side.rounds(nodes, prompt, ROUNDS):
                whole[nodes, name] += [seconds] if turn else []
                passes = round_passes(forward, drafting if nodes else None, record, 1)
                floors["round", nodes] = passes
            draft = bushy(nodes + 1, side.target.vocabulary)
            seconds = seconds_of(device, partial(side.target.score, draft))
            verify[nodes, name] += [seconds] if turn else []
            floors["verify", nodes] = (forward.verify(draft, args.context),)
    machine = gauge.machine
    print(
        f"{device} · {args.layers} layers · {args.context} tokens of context · copies "
        f"{machine.bandwidth / 1e9:.0f} GB/s, matrices {machine.rate / 1e9:.0f} GFLOP/s"
    )
    for what, taken in (("verify", verify), ("round", whole)):
        print(f"{what:>7}: {'nodes':>5} {'plain ms':>9} {'fixed ms':>9} {'floor ms':>9} reached")
        for nodes in args.budgets:
            plain, fixed = (median(taken[nodes, name]) * 1e3 for name in sides)
            floor = machine.floor(floors[what, nodes]) * 1e3
            print(f"{nodes:14} {plain:9.2f} {fixed:9.2f} {floor:9.2f} {floor / fixed:7.0%}")


if __name__ == "__main__":
    main()
