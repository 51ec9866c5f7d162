"""The recorder in a real vLLM on a CPU (``make test-engines``): counts and p of what it recorded.

A case is one process of vLLM with the embedded target. Drafters are read from the folder named by
DRAFTSCOPE_DRAFTERS, as ``model export`` wrote them; without it only n-grams are
served.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core.models import embedded, llama
from core.rounds.draft import Draft
from core.traces.reader import read_trace
from core.traces.schema import Trace

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("DRAFTSCOPE_VLLM", "")
DRAFTERS = os.environ.get("DRAFTSCOPE_DRAFTERS", "")
TOKENS = 48
# Nats. vLLM computes in bfloat16, which keeps 8 bits: a logit of 20 is known to about 0.1. The
# reference is float32.
MEAN, MOST = 0.1, 1.0

NGRAM = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 1}


@dataclass(frozen=True)
class Served:
    """The answers of vLLM, and the traces that were recorded."""

    texts: list[list[int]]
    counts: dict[str, Any]
    totals: dict[str, int]
    traces: list[Trace]


def speculative(method: str) -> dict[str, Any]:
    if method == "ngram":
        return NGRAM | {"num_speculative_tokens": 4}
    folder = Path(DRAFTERS) / method
    if not DRAFTERS or not folder.is_dir():
        pytest.skip(f"DRAFTSCOPE_DRAFTERS has no folder {method}")
    return {"method": method, "model": str(folder), "num_speculative_tokens": 3}


def serve(folder: Path, method: str, batch: int, temperature: float) -> Served:
    if not PYTHON:
        pytest.skip("DRAFTSCOPE_VLLM names no Python with vLLM")
    prompts = [list(range(100 + 40 * n, 130 + 40 * n)) for n in range(max(2, batch))]
    task = {
        "model": str(embedded.prepare()),
        "speculative": speculative(method),
        "prompts": prompts,
        "batch": batch,
        "tokens": TOKENS,
        "temperature": temperature,
    }
    out = folder / "out.json"
    command = [PYTHON, str(ROOT / "tests/engines/serve.py"), json.dumps(task), str(out)]
    more = {"DRAFTSCOPE_RECORD": str(folder / "traces"), "PYTHONPATH": str(ROOT / "recorders")}
    done = subprocess.run(
        command, env=os.environ | more, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    said = json.loads(out.read_text())
    (totals,) = (folder / "traces").glob("*.json")
    traces = [read_trace(path) for path in sorted((folder / "traces").glob("*.jsonl.gz"))]
    return Served(said["texts"], said["counts"], json.loads(totals.read_text()), traces)


@cache
def target() -> llama.Llama:
    return llama.load(embedded.prepare()).float()


@torch.inference_mode()
def differences(trace: Trace) -> np.ndarray:
    """|log p recorded − log p of our own forward in float32| at every drafted place."""
    found = [np.empty(0)]
    for record in trace.rounds:
        assert isinstance(record.draft, Draft) and record.target_probs is not None
        rows = record.draft.tokens
        if len(rows) == 1:
            continue
        before = text_of(trace)[: record.position]
        logits = target()(torch.tensor([[*before, *map(int, rows)]])).logits[0]
        log_p = logits[len(before) : -1].float().log_softmax(-1)
        own = log_p[torch.arange(len(rows) - 1), torch.tensor(rows[1:]).long()]
        found.append(np.abs(own.numpy() - record.target_probs.log_p[1:]))
    return np.concatenate(found)


def text_of(trace: Trace) -> list[int]:
    """Prompt and text: the first root, then what every round committed."""
    first = int(trace.rounds[0].draft.tokens[0])
    return [*trace.header.prompt_ids, first, *(t for r in trace.rounds for t in r.committed)]


@pytest.mark.parametrize("method", ["ngram", "eagle3"])
@pytest.mark.parametrize(("batch", "temperature"), [(1, 0.0), (8, 0.0), (1, 1.0), (8, 1.0)])
def test_recorded_is_what_was_served(tmp_path, method, batch, temperature):
    served = serve(tmp_path, method, batch, temperature)
    for name in ("drafts", "draft_tokens", "accepted_tokens"):
        assert served.totals[name] == served.counts.get(name, 0), name
    assert served.totals["lost_steps"] == served.totals["broken_requests"] == 0
    recorded = sorted(text_of(t)[len(t.header.prompt_ids) :] for t in served.traces)
    assert recorded == sorted(served.texts)
    far = np.concatenate([differences(trace) for trace in served.traces])
    print(f"{method} batch {batch} T={temperature}: {len(far)} places", end=", ")
    print(f"|Δ log p| mean {far.mean():.4f}, most {far.max():.4f}; {served.totals}")
    assert len(far) and far.mean() < MEAN and far.max() < MOST
