"""What a trace is: its header, its rounds, the summary in its footer, and how large it may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from core.rounds.round import Round, Times

FORMAT = "draftscope-trace"
ENDINGS = (".jsonl", ".jsonl.gz")
VERSION = 1
MAX_ROWS = 1 << 16
MAX_BLOCK = 1 << 12  # positions of a denoised block
MAX_STATES = 129  # a current block and its drafts

T = TypeVar("T")
METRICS = {
    "p": "the target's softmax(logits) at temperature 1, full vocabulary",
    "q": "the drafter's probability of the token, given what the drafter conditions on",
    "score": "what the builder ranked nodes by; only sometimes the probability of the path",
    "accepted": "drafted nodes on the accepted path",
    "tau": "mean over rounds of accepted + 1; denoising: steps per model call, the NFE speedup",
    "tvd": "1/2 sum_v |q_d(v) - p(v | true prefix)| at observed depths only",
    "coverage": "C_K(d): p of the drafter's K best tokens, K = 1..16, at observed depths only",
    "times": "seconds; observing and logging are in no stage",
}


@dataclass(frozen=True)
class Header:
    """What a run was. ``settings`` are the method's full settings, ``libraries`` name → version."""

    method: str
    settings: Mapping[str, Any]
    model: Mapping[str, Any]
    prompt_text: str
    prompt_ids: tuple[int, ...]
    seed: int = 0
    drafter: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_hash: str = ""
    dtype: str = ""
    device: str = ""
    created: str = ""
    creator: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=lambda: METRICS)

    def stated(self, setting: str, kind: type[T]) -> T | None:
        """A setting that has this type, else None: a file of another make may hold anything."""
        value = self.settings.get(setting)
        return value if type(value) is kind else None


@dataclass(frozen=True)
class Trace:
    """A run: its header, its rounds, and the footer unless it was interrupted."""

    header: Header
    rounds: tuple[Round, ...]
    footer: Mapping[str, Any] | None = None

    @property
    def complete(self) -> bool:
        return self.footer is not None


def summary(rounds: Iterable[Round]) -> dict[str, Any]:
    """Tokens, rounds, τ, acceptance lengths and stage seconds of some rounds."""
    ran = [r for r in rounds if r.committed]
    lengths = [r.accepted + 1 for r in ran]
    stages = {f.name: sum(getattr(r.times, f.name) for r in ran) for f in fields(Times)}
    first = 0 if any(r.block for r in ran) else 1  # the token that prefill gave
    return {
        "tokens": first + sum(len(r.committed) for r in ran),
        "rounds": len(ran),
        "tau": sum(lengths) / len(lengths) if lengths else 1.0,
        "acceptance_lengths": lengths,
        "seconds": stages,
    }
