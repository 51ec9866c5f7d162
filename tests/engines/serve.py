"""Run in vLLM's own environment: decode prompts with a drafter, and say what vLLM counted.

    python serve.py '{"model": …, "speculative": {…}, "phases": [{…}, …], …}' out.json

A phase has prompts (token ids), batch (how many at once), tokens, temperature, and seed. Its
requests are tagged ``PHASE/NUMBER``. The recorder is told by its variable. All of vLLM runs in this
process, so that what is mended here is mended in its worker.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

SET = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
LONGEST = 1024  # tokens of a text
COUNTS = "vllm:spec_decode_num_"


def main() -> None:
    task = json.loads(sys.argv[1])
    phases = task["phases"]
    llm = engine(task, max(phase["batch"] for phase in phases))
    said, before = [], counts(llm)
    for number, phase in enumerate(phases):
        texts = served(llm, number, phase)
        now = counts(llm)
        own = {name: now[name] - before[name] for name in now}
        said.append({"texts": texts, "counts": own})
        before = now
    with open(sys.argv[2], "w") as file:
        json.dump(said, file)


def engine(task: dict[str, Any], batch: int) -> Any:
    """vLLM with the model, dtype and drafter of a task; by its V2 runner where the task says so."""
    os.environ.update({k: os.environ.get(k, v) for k, v in SET.items()})
    if task.get("runner") == "V2":
        interpret()
    from vllm import LLM  # pyright: ignore[reportMissingImports]

    mend_sampling()
    mend_norms()
    return LLM(
        model=task["model"],
        dtype=task["dtype"],
        max_model_len=LONGEST,
        enforce_eager=True,
        max_num_seqs=batch,
        speculative_config=task["speculative"],
        disable_log_stats=False,
        enable_prefix_caching=False,
        distributed_executor_backend="uni",
    )


def by_steps(task: dict[str, Any]) -> tuple[Any, list[Any]]:
    """vLLM's engine, which the caller steps, for the largest of a task's batches; and its recorder,
    where it has one."""
    from draftscope_recorder import vllm as recorder

    heard: list[Any] = []
    attach = recorder.attach
    recorder.attach = lambda *args: heard.append(attach(*args))
    return engine(task, max(task["batches"])).llm_engine, heard


def interpret() -> None:
    """Take the V2 runner, whose kernels are Triton's. The index's Triton has no compiler for CPUs,
    so its interpreter runs them; vLLM asks for no more than the name of a backend.

    Triton 3.9.0's interpreter refuses masks that were computed as integers, so they are cast, and
    knows none of the device's own functions, of which sampling takes one.
    """
    os.environ.update(TRITON_INTERPRET="1", VLLM_USE_V2_MODEL_RUNNER="1")
    from triton import language  # pyright: ignore[reportMissingImports]
    from triton.backends import backends  # pyright: ignore[reportMissingImports]
    from triton.language.extra import libdevice  # pyright: ignore[reportMissingImports]
    from triton.runtime import interpreter  # pyright: ignore[reportMissingImports]

    backend: Any = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: False))
    backends["cpu"] = backend
    libdevice.log1p = lambda x: language.log(x + 1.0)
    builder = interpreter.InterpreterBuilder
    for name, at in (("create_masked_load", 1), ("create_masked_store", 2)):
        setattr(builder, name, with_mask(getattr(builder, name), at))


def with_mask(own: Callable[..., Any], at: int) -> Callable[..., Any]:
    """``own`` with its argument ``at`` as truth values."""

    def cast(self: Any, *args: Any, **more: Any) -> Any:
        args[at].data = args[at].data.astype(bool)
        return own(self, *args, **more)

    return cast


def mend_sampling() -> None:
    """Give drafted places their request's temperature, top k and top p.

    vLLM 0.32.0 for CPUs leaves them unwritten (``_expand_kernel_impl`` fills an integer copy), so
    above temperature 0 it accepts no draft.
    """
    import torch
    from vllm.v1.sample import rejection_sampler  # pyright: ignore[reportMissingImports]

    def expand(
        x: Any, ends: Any, count: int, replace_from: float = 0, replace_to: float = 0
    ) -> Any:
        """x [B] → [count], as often as drafts of each request, which stand before ``ends`` [B]."""
        times = torch.diff(ends, prepend=ends.new_zeros(1))
        return torch.where(x == replace_from, replace_to, x).repeat_interleave(times)

    rejection_sampler.expand_batch_to_tokens = expand


def mend_norms() -> None:
    """Norm the context's keys of each layer of DFlash by that layer's weights.

    Given weights of all layers at once, ``rms_norm`` of vLLM 0.32.0 for CPUs takes the first
    layer's for all, so that q is of another network. XPU's did the same (vLLM's pull request
    56431).
    """
    import torch
    from vllm import _custom_ops as ops  # pyright: ignore[reportMissingImports]
    from vllm.model_executor.models import (  # pyright: ignore[reportMissingImports]
        qwen3_dflash,
    )

    def normalize(model: Any, keys: Any) -> Any:
        """keys [layers, context, heads, width], normed."""
        normed = torch.empty_like(keys)
        for made, own, weight in zip(normed, keys, model._k_norm_weights, strict=True):
            ops.rms_norm(made, own, weight, model._rms_norm_eps)
        return normed

    qwen3_dflash.DFlashQwen3Model._normalize_context_k = normalize


def counts(llm: Any) -> dict[str, int]:
    """vLLM's counters of drafts, so far."""
    found = {m.name: m.value for m in llm.get_metrics() if hasattr(m, "value")}
    return {
        name.removeprefix(COUNTS): value for name, value in found.items() if name.startswith(COUNTS)
    }


def served(llm: Any, number: int, phase: dict[str, Any]) -> list[list[int]]:
    """The new tokens of each prompt of a phase."""
    from vllm import SamplingParams  # pyright: ignore[reportMissingImports]
    from vllm.inputs import TokensPrompt  # pyright: ignore[reportMissingImports]

    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in phase["prompts"]]
    sampling = [
        SamplingParams(
            temperature=phase["temperature"],
            max_tokens=phase["tokens"],
            seed=phase.get("seed", 0) + n,
            extra_args={"draftscope": f"{number}/{n}"},
        )
        for n in range(len(prompts))
    ]
    texts = []
    for low in range(0, len(prompts), phase["batch"]):
        some = slice(low, low + phase["batch"])
        outputs = llm.generate(prompts[some], sampling[some], use_tqdm=False)
        texts += [list(output.outputs[0].token_ids) for output in outputs]
    return texts


if __name__ == "__main__":
    main()
