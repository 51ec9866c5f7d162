"""A text that transformers generated while it was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from analysis.engines.generation import recorded
from core.traces.reader import read_trace
from core.traces.schema import Trace
from tests.helpers import toys


def generated(model: Any, path: Path, **settings: Any) -> tuple[Trace, list[int]]:
    """Give the trace and the whole text: the trace is complete, and its rounds write that text."""
    prompt = torch.tensor([list(toys.PROMPT)])
    with recorded(model, path), torch.random.fork_rng():
        torch.manual_seed(0)
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)
    trace, text = read_trace(path), out[0].tolist()
    written = [*trace.header.prompt_ids, int(trace.rounds[0].draft.tokens[0])]
    assert trace.complete and [*written, *(t for r in trace.rounds for t in r.committed)] == text
    return trace, text


def greedy(model: Any, tokens: int) -> list[int]:
    """Give the text that transformers writes without a drafter."""
    prompt, ones = torch.tensor([list(toys.PROMPT)]), torch.ones(1, len(toys.PROMPT), dtype=int)
    out = model.generate(prompt, attention_mask=ones, max_new_tokens=tokens, do_sample=False)
    return out[0].tolist()
