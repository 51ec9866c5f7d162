"""Decoding one prompt with an engine: timed, and logged to a trace if asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.trace_log import Clock, TimedProbe, TraceLog
from core.decoding.request import RunRequest
from core.rounds.round import Round
from core.traces.schema import summary

if TYPE_CHECKING:
    from core.decoding.engine import Engine

Watch = Callable[[str, int], None]  # (the text so far, its tokens)


@dataclass(frozen=True)
class Decoding:
    """The settings that all prompts of a command share. ``footer``: more for the trace's footer."""

    engine: Engine
    request: RunRequest
    trace: Path | None = None
    probe: bool = False
    footer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Result:
    """One decoded prompt. ``seconds`` and ``prefill`` leave observing and logging out."""

    request: RunRequest
    budget: int
    rounds: tuple[Round, ...]
    tokens: tuple[int, ...]
    text: str
    seconds: float
    prefill: float

    @property
    def tokens_per_second(self) -> float:
        return len(self.tokens) / self.seconds if self.seconds > 0 else 0.0

    @property
    def stages(self) -> dict[str, float]:
        """Seconds by stage, in the order they happen."""
        return {"prefill": self.prefill, **summary(self.rounds)["seconds"]}

    def to_json(self) -> dict[str, Any]:
        numbers, request = summary(self.rounds), asdict(self.request)
        keys = ("prompt", "method", "max_new_tokens", "temperature", "top_k", "top_p", "seed")
        return {
            **{key: request[key] for key in keys},
            "options": dict(self.request.options),
            "budget": self.budget,
            "token_ids": list(self.tokens),
            "text": self.text,
            "tokens": len(self.tokens),
            "rounds": numbers["rounds"],
            "tau": numbers["tau"],
            "acceptance_lengths": numbers["acceptance_lengths"],
            "seconds": self.seconds,
            "stage_seconds": self.stages,
            "tokens_per_second": self.tokens_per_second,
        }


def decode(job: Decoding, prompt: str, watch: Watch = lambda *_: None) -> Result:
    """Decode one prompt, logging it if the job says so; an interrupted log keeps what it has.

    Raises UserError when the prompt does not fit or the log cannot be written.
    """
    from core.rounds.round import new_tokens

    request = replace(job.request, prompt=prompt)
    probe = TimedProbe() if job.trace is not None and job.probe else None
    run = job.engine.start(request, probe)
    clock, rounds, text = Clock(run.rounds, probe), list[Round](), ""
    with TraceLog(job.trace, run) as log:
        for record in clock:
            rounds.append(record)
            log.write(record)
            tokens = new_tokens(rounds)
            text = run.text(tokens)
            watch(text, len(tokens))
        ids = new_tokens(rounds)
        log.finish(text, clock.seconds, prefill_seconds=clock.prefill, token_ids=ids, **job.footer)
    budget = run.header.settings["budget"]
    return Result(request, budget, tuple(rounds), tuple(ids), text, clock.seconds, clock.prefill)
