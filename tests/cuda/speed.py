"""Time verify forwards and whole DDTree rounds with and without CUDA graphs, beside the roofline.

    python -m tests.cuda.speed                 # a random model of Qwen3-4B's size, in bfloat16
    python -m tests.cuda.speed --small         # a tiny one, also on a CPU (nothing is captured)

The drafter is a random DFlash of the published drafter's size. Few of its nodes are accepted, which
does not change a round's time. Without nodes a round is plain decoding. Medians over
alternating runs in one process; copy bandwidth and matrix rate are measured in between.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from analysis.experiments.cost import bushy
from analysis.experiments.roofline import (
    Drafting,
    Forward,
    Gauge,
    Machine,
    Work,
    round_work,
    seconds_of,
)
from core.decoding.decode import Decoder, decode
from core.decoding.request import Settings
from core.drafting.builders import best_first
from core.methods.dflash.drafter import DFlashDrafter
from core.methods.dflash.model import DFlashConfig, DFlashModel, default_layer_ids
from core.models.fast_layers import use_fast_layers
from core.models.hugging_face import ATTENTION
from core.models.target import Target
from core.rounds.round import Round

ROUNDS = 8  # timed in a row
QWEN3_4B = {
    "vocab_size": 151936, "hidden_size": 2560, "intermediate_size": 9728,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip
SMALL = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


def model_of(size: dict[str, Any], layers: int, device: torch.device) -> Qwen3ForCausalLM:
    """Random weights: time does not depend on them."""
    more: dict[str, Any] = {"attn_implementation": ATTENTION, "tie_word_embeddings": True}
    config = Qwen3Config(**size, num_hidden_layers=layers, max_position_embeddings=40960, **more)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    with torch.device("meta"):
        made: Any = Qwen3ForCausalLM(config)
    made = made.to_empty(device=device).to(dtype)
    made.tie_weights()  # the memory is new
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    rotary = made.model.rotary_emb
    made.model.rotary_emb = type(rotary)(config).to(device)
    use_fast_layers(made, dtype, device)
    return made.eval().requires_grad_(False)


def drafter_of(size: dict[str, Any], model: Qwen3ForCausalLM, padded: bool) -> DFlashDrafter:
    """Five random layers after a block of 16, as published for Qwen3-4B."""
    layers = model.config.num_hidden_layers
    config = DFlashConfig(
        **size, num_hidden_layers=5, block_size=16, num_target_layers=layers,
        target_layer_ids=default_layer_ids(layers, 5) if layers >= 8 else (0,) * 5,
        mask_token_id=size["vocab_size"] - 1,
    )  # fmt: skip
    made = DFlashModel(config).to(model.device, model.dtype).eval().requires_grad_(False)
    return DFlashDrafter(made, model.get_input_embeddings(), model.lm_head, padded=padded)


@dataclass(frozen=True)
class Side:
    """The model and its drafter, read plainly or in padded shapes."""

    target: Target
    drafter: DFlashDrafter

    @property
    def captured(self) -> bool:
        """Whether CUDA graphs were replayed; a forward that cannot be captured runs plainly."""
        return self.target.no_graph_reason is None and self.drafter._padded

    def rounds(self, budget: int, prompt: list[int], count: int) -> Iterator[tuple[float, Round]]:
        """``count`` rounds and their seconds, without the first, which reads the prompt."""
        tree = Decoder("ddtree", self.drafter, best_first)
        settings = Settings(max(1, budget), 16 * (count + 1), timed=False)
        found = decode(self.target, tree if budget else Decoder("ar"), prompt, settings)
        next(found)
        for _ in range(count):
            began = time.perf_counter()
            record = next(found)  # its last step reads the target's tokens, which waits for all
            yield time.perf_counter() - began, record


class Timing:
    """Seconds of verify forwards and whole rounds by number of nodes and side, and their floors."""

    def __init__(self, sides: dict[str, Side], budgets: list[int], prompt: list[int]):
        self._sides, self.budgets, self._prompt = sides, budgets, prompt
        plain = sides["plain"]
        self._forward, self._drafting = Forward.of(plain.target.model), Drafting.of(plain.drafter)
        self.seconds: dict[tuple[str, int, str], list[float]] = {}
        self.floors: dict[tuple[str, int], tuple[Work, ...]] = {}

    def turn(self, device: torch.device, counts: bool) -> None:
        """Each once, alternating. A turn that does not count captures and warms up."""
        for nodes, name in product(self.budgets, self._sides):
            side = self._sides[name]
            taken = list(side.rounds(nodes, self._prompt, ROUNDS))
            drafting = self._drafting if nodes else None
            whole = round_work(self._forward, drafting, taken[-1][1], 1)
            self.floors["round", nodes] = whole.passes
            draft = bushy(nodes + 1, side.target.vocabulary)
            work = self._forward.verify(draft, side.target.length)
            self.floors["verify", nodes] = (work,)
            seconds = seconds_of(device, partial(side.target.score, draft))
            if counts:
                self.seconds.setdefault(("verify", nodes, name), []).append(seconds)
                self.seconds.setdefault(("round", nodes, name), []).extend(s for s, _ in taken)

    def table(self, what: str, machine: Machine) -> Iterator[str]:
        yield f"{what:>7}: {'nodes':>5} {'plain ms':>9} {'padded ms':>9} {'floor ms':>9} reached"
        for nodes in self.budgets:
            plain, padded = (median(self.seconds[what, nodes, n]) * 1e3 for n in self._sides)
            floor = machine.floor(self.floors[what, nodes]) * 1e3
            yield f"{nodes:14} {plain:9.2f} {padded:9.2f} {floor:9.2f} {floor / padded:7.0%}"


def main() -> int:
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
    for name in ("plain", "padded"):
        drafter = drafter_of(size, model, padded=name == "padded")
        sides[name] = Side(Target(model, drafter.layers, padded=name == "padded"), drafter)
    gauge = Gauge(device, model.dtype)
    timing = Timing(sides, args.budgets, [token % 500 for token in range(args.context)])
    for turn in range(args.repeats + 1):
        gauge.sample()
        timing.turn(device, counts=turn > 0)
    machine = gauge.machine
    print(
        f"{device} · {args.layers} layers · {args.context} tokens of context · copies "
        f"{machine.bandwidth / 1e9:.0f} GB/s, matrices {machine.rate / 1e9:.0f} GFLOP/s"
    )
    for what in ("verify", "round"):
        print(*timing.table(what, machine), sep="\n")
    if device.type == "cuda" and not sides["padded"].captured:
        print("the padded side was not captured: its times are plain ones")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
