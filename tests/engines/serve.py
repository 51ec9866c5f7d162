"""Run in vLLM's own environment: decode prompts with a drafter, and say what vLLM counted.

    python serve.py '{"model": …, "speculative": {…}, "prompts": [[ids], …], …}' out.json

Keys: batch (how many at once), tokens, temperature, seed. The recorder is told by its variable.
"""

from __future__ import annotations

import json
import os
import sys
import time

SET = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}


def main() -> None:
    os.environ.update({k: os.environ.get(k, v) for k, v in SET.items()})
    from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]
    from vllm.inputs import TokensPrompt  # pyright: ignore[reportMissingImports]

    task = json.loads(sys.argv[1])
    llm = LLM(
        model=task["model"],
        dtype=task.get("dtype", "bfloat16"),
        max_model_len=1024,
        enforce_eager=True,
        max_num_seqs=task["batch"],
        speculative_config=task["speculative"],
        disable_log_stats=False,
        async_scheduling=task.get("async", None),
        enable_prefix_caching=False,
    )
    sampling = [
        SamplingParams(
            temperature=task["temperature"], max_tokens=task["tokens"], seed=task.get("seed", 0) + n
        )
        for n in range(len(task["prompts"]))
    ]
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in task["prompts"]]
    began = time.perf_counter()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - began
    counts = {}
    for metric in llm.get_metrics():
        if metric.name.startswith("vllm:spec_decode"):
            value = getattr(metric, "values", None)
            counts[metric.name.removeprefix("vllm:spec_decode_num_")] = (
                metric.value if value is None else list(value)
            )
    texts = [list(o.outputs[0].token_ids) for o in outputs]
    ids = [o.request_id for o in outputs]
    with open(sys.argv[2], "w") as file:
        json.dump({"texts": texts, "ids": ids, "counts": counts, "seconds": seconds}, file)


if __name__ == "__main__":
    main()
