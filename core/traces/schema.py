"""The parts of a trace: header, rounds, the summary in its footer, and how large it may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from ..rounds.round import Round, Times

FORMAT = "draftscope-trace"
ENDINGS = (".jsonl", ".jsonl.gz")
VERSION = 1
MAX_ROWS = 1 << 16
MAX_BLOCK = 1 << 12  # positions of a denoised block
MAX_STATES = 129  # a current block and its drafts
STAGES = tuple(f.name for f in fields(Times))

INTERRUPTED = "this trace was interrupted: it has no footer"
NO_ROUNDS = "this run has no rounds: it ended before the first one"

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
    """The settings of a run. ``settings`` are all of the method's, ``libraries`` name → version."""

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
    creator: Mapping[str, Any] = field(default_factory=dict)
    libraries: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=lambda: METRICS)

    def stated(self, setting: str, kind: type[T]) -> T | None:
        """A setting that has this type, else None: a file of another make may hold anything."""
        value = self.settings.get(setting)
        return value if type(value) is kind else None


@dataclass(frozen=True)
class Trace:
    """A run: its header, its rounds, and the footer unless it was interrupted.

    lies  names of the numbers that the file's footer says and its rounds do not; ``footer`` has
          those of the rounds
    """

    header: Header
    rounds: tuple[Round, ...]
    footer: Mapping[str, Any] | None = None
    lies: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.footer is not None

    @property
    def sound(self) -> tuple[Round, ...]:
        """The rounds that figures count: those without faults."""
        return tuple(record for record in self.rounds if not record.faults)

    @property
    def faults(self) -> list[str]:
        """The faults of this trace, a sentence each."""
        return [*round_faults(self.rounds), *footer_faults(self.lies)]

    @property
    def remarks(self) -> str:
        """The warnings to show beside this trace, joined by "; "; empty for a sound, whole one."""
        cut = "" if self.complete else INTERRUPTED
        return "; ".join(filter(None, (cut, self.emptiness, self.mark)))

    @property
    def emptiness(self) -> str:
        """A sentence where there are no rounds, with the text that the footer tells; else empty."""
        if self.rounds:
            return ""
        text = (self.footer or {}).get("text")
        wrote = f"; its text is “{text}”" if isinstance(text, str) and text else ""
        return NO_ROUNDS + wrote

    @property
    def mark(self) -> str:
        """The faults in one sentence; empty for a sound trace."""
        found, marked = self.faults, sum(1 for r in self.rounds if r.faults)
        if not found:
            return ""
        rounds = f"{marked} of {len(self.rounds)} rounds have faults and count in no figure"
        return f"{rounds if marked else 'this trace is not sound'}; {found[0]}" + (
            f", and {len(found) - 1} more (`trace check` lists them)" if found[1:] else ""
        )


def round_faults(rounds: Iterable[Round]) -> Iterator[str]:
    """The faults of rounds, a sentence each."""
    return (f"round {r.number} holds {fault}" for r in rounds for fault in r.faults)


def footer_faults(lies: Sequence[str]) -> Iterator[str]:
    """The sentence on the numbers that a footer says and its rounds do not, where there are any."""
    if lies:
        yield f"the rounds contradict the footer's {', '.join(lies)}"


@dataclass(eq=False)
class Totals:
    """The sums of a footer, added round by round; rounds that committed nothing are left out."""

    tokens: int = 0
    lengths: list[int] = field(default_factory=list)
    seconds: tuple[float, ...] = ()
    denoised: bool = False

    def add(self, committed: int, length: int, seconds: Iterable[float], denoised: bool) -> None:
        """A round: tokens it committed, accepted + 1, seconds of each stage."""
        if committed:
            here = tuple(seconds)
            before = self.seconds or (0.0,) * len(here)
            self.seconds = tuple(a + b for a, b in zip(before, here, strict=True))
            self.tokens += committed
            self.lengths.append(length)
            self.denoised |= denoised

    def add_round(self, record: Round) -> None:
        seconds, denoised = vars(record.times).values(), record.block is not None
        self.add(len(record.committed), len(record.verdict.path), seconds, denoised)

    def summary(self) -> dict[str, Any]:
        """Tokens, rounds, τ, acceptance lengths and stage seconds."""
        lengths = self.lengths
        return {
            "tokens": self.tokens + (not self.denoised),  # the first one is prefill's
            "rounds": len(lengths),
            "tau": sum(lengths) / len(lengths) if lengths else None,
            "acceptance_lengths": lengths,
            "seconds": dict.fromkeys(STAGES, 0.0) | dict(zip(STAGES, self.seconds, strict=False)),
        }


def summary(rounds: Iterable[Round]) -> dict[str, Any]:
    """Tokens, rounds, τ, acceptance lengths and stage seconds of some rounds."""
    totals = Totals()
    for r in rounds:
        totals.add_round(r)
    return totals.summary()
