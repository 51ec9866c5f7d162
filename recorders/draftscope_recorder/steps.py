"""Run in vLLM's environment: what a step takes at one draft length, by batch, for ``advise``.

    python -m draftscope_recorder.steps MODEL --length 0 --batch 1 8 --out steps.csv
    python -m draftscope_recorder.steps MODEL --length 3 --batch 1 8 --out steps.csv \
        --speculative-config '{"method": "eagle3", "model": "DRAFTER"}'

Length 0 is plain decoding. Each call adds its lines to the file: the batch, the tokens that are
verified of each sequence, and the milliseconds of a step. A step's time is the median of those in
which the whole batch runs; steps that read prompts are left out, and so is a first pass.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# vLLM is only where this runs; a checker takes the module beside this one for it.

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

COLUMNS = ("batch", "tokens", "ms")
PROMPTS = (
    "Why is the sky blue?", "Write a poem about the sea.", "Explain how a bicycle stays upright.",
    "Give me a recipe for bread.", "Write a Python function that sorts a list.",
)  # fmt: skip
NUMBERS = count()


def main() -> None:
    parser = argparse.ArgumentParser(description="milliseconds of a step of vLLM, for `advise`")
    parser.add_argument("model", help="what `vllm serve` is given")
    parser.add_argument("--speculative-config", type=json.loads, default={}, metavar="JSON")
    parser.add_argument("--length", type=int, required=True, help="draft tokens; 0: plain decoding")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32], help="requests at once")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each request")
    parser.add_argument("--engine", type=json.loads, default={}, metavar="JSON",
                        help='more of vLLM\'s options, as {"dtype": "bfloat16"}')  # fmt: skip
    parser.add_argument("--prompts", type=Path, help="a prompt a line, in place of five of ours")
    parser.add_argument("--out", type=Path, required=True, help="steps.csv; lines are added")
    args = parser.parse_args()
    engine = begun(args.model, args.speculative_config, args.length, max(args.batch), args.engine)
    texts = args.prompts.read_text("utf-8").splitlines() if args.prompts else PROMPTS
    encode = engine.get_tokenizer().encode
    prompts = [encode(text) for text in texts if text.strip()]
    new = not args.out.exists()
    with args.out.open("a", newline="") as file:
        lines = csv.writer(file)
        lines.writerows([COLUMNS] if new else [])
        for batch, ms in measured(engine.llm_engine, prompts, args.batch, args.tokens):
            lines.writerow((batch, args.length + 1, f"{ms:.3f}"))
            print(f"batch {batch}, {args.length} drafts: {ms:.1f} ms a step", flush=True)


def begun(
    model: str, speculative: dict[str, Any], length: int, most: int, more: dict[str, Any]
) -> Any:
    """vLLM with the model; it records nothing, so that the time is its own."""
    os.environ.pop("DRAFTSCOPE_RECORD", None)
    from vllm import LLM

    told = {**speculative, "num_speculative_tokens": length} if length else None
    return LLM(model=model, speculative_config=told, max_num_seqs=most, **more)


def measured(
    core: Any, prompts: Sequence[list[int]], batches: Sequence[int], tokens: int
) -> Iterator[tuple[int, float]]:
    """Each batch and the milliseconds of its steps, after one pass that is not timed."""
    for batch in batches:
        chosen = [prompts[n % len(prompts)] for n in range(batch)]
        for _ in range(2):
            steps = paced(core, chosen, tokens)
        whole = [1e3 * seconds for running, seconds, _ in steps if running == batch]
        if not whole:
            raise SystemExit(f"batch {batch} never runs as a whole: ask for more --tokens")
        yield batch, statistics.median(whole)


def paced(
    core: Any,
    prompts: Sequence[list[int]],
    tokens: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[tuple[int, float, int]]:
    """Requests, seconds and new tokens of every step after the prompts'."""
    ask(core, prompts, tokens)
    steps, there = [], dict[str, int]()
    while running := core.get_num_unfinished_requests():
        before, began = sum(there.values()), clock()
        outputs = core.step()
        seconds = clock() - began
        reads = len(there) < len(prompts)
        there |= {o.request_id: len(o.outputs[0].token_ids) for o in outputs}
        if not reads:
            steps.append((running, seconds, sum(there.values()) - before))
    return steps


def ask(core: Any, prompts: Sequence[list[int]], tokens: int) -> list[str]:
    """Request as many tokens after each prompt, greedily; the requests' names."""
    from vllm import SamplingParams

    names = [str(next(NUMBERS)) for _ in prompts]
    for name, ids in zip(names, prompts, strict=True):
        sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        core.add_request(name, {"prompt_token_ids": ids}, sampling)
    return names


if __name__ == "__main__":
    main()
