"""Run in SGLang's own environment: decode prompts with a drafter, and say what SGLang counted.

    python serve_sglang.py '{"model": …, "speculative": {…}, "phases": [{…}, …], …}' out.json

Tasks, phases, tags and answers are those of ``serve``. SGLang's scheduler is a process of its own,
which imports this file, so that the kernels are there, too.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import sglang_kernels
from serve import LONGEST

sglang_kernels.install()


def main() -> None:
    import sglang  # pyright: ignore[reportMissingImports]

    task = json.loads(sys.argv[1])
    speculative = {f"speculative_{name}": value for name, value in task["speculative"].items()}
    engine = sglang.Engine(
        model_path=task["model"],
        dtype=task["dtype"],
        device="cpu",
        context_length=LONGEST,
        max_running_requests=max(phase["batch"] for phase in task["phases"]),
        max_total_tokens=8 * LONGEST,
        disable_cuda_graph=True,
        disable_radix_cache=True,
        **speculative,
    )
    said = [served(engine, number, phase) for number, phase in enumerate(task["phases"])]
    with open(sys.argv[2], "w") as file:
        json.dump(said, file)
    engine.shutdown()


def served(engine: Any, number: int, phase: dict[str, Any]) -> dict[str, Any]:
    """The new tokens of each prompt of a phase, and the sums that SGLang tells of them."""
    sampling = [
        {
            "temperature": phase["temperature"],
            "max_new_tokens": phase["tokens"],
            "custom_params": {"draftscope": f"{number}/{n}"},
        }
        for n in range(len(phase["prompts"]))
    ]
    answers: list[Any] = []
    for low in range(0, len(sampling), phase["batch"]):
        some = slice(low, low + phase["batch"])
        answers += engine.generate(input_ids=phase["prompts"][some], sampling_params=sampling[some])
    told = [answer["meta_info"] for answer in answers]
    return {
        "texts": [answer["output_ids"] for answer in answers],
        "counts": {
            "drafts": sum(each["spec_verify_ct"] for each in told),
            "draft_tokens": sum(each["spec_num_proposed_drafts"] for each in told),
            "accepted_tokens": sum(each["spec_num_correct_drafts"] for each in told),
        },
    }


if __name__ == "__main__":
    main()
