"""Writing the text of one prompt, by trees or by blocks: timed, and logged to a trace if asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from app.interrupts import noted_interrupt
from app.trace_log import Clock, TimedProbe, TraceLog
from core.decoding.request import RunRequest
from core.diffusion.request import DenoiseRequest
from core.rounds.round import Round
from core.traces.schema import Header, summary

if TYPE_CHECKING:
    from core.decoding.decode import Observer
    from core.decoding.engine import Run

BEHIND = 16  # tokens decoded again before new ones: a blank at the start of a text may be left out

Asked = TypeVar("Asked", RunRequest, DenoiseRequest)


@dataclass(eq=False)
class SoFar:
    """The tokens and the text of a run so far, made when they are asked for. Only what is new is
    decoded: after each of very many rounds the whole text would take longer than a round."""

    run: Run
    rounds: Sequence[Round]
    _known: int = field(default=0, init=False)  # tokens whose text is ``_text``
    _text: str = field(default="", init=False)

    @property
    def tokens(self) -> list[int]:
        return self.run.tokens(self.rounds)

    @property
    def text(self) -> str:
        """It ends with U+FFFD where the bytes of a character are not all there yet."""
        tokens, start = self.tokens, max(0, self._known - BEHIND)
        before = self.run.text(tokens[start : self._known])
        text = self._text + self.run.text(tokens[start:])[len(before) :]
        if not text.endswith("\ufffd"):
            self._known, self._text = len(tokens), text
        return text


Watch = Callable[[SoFar], None]


@dataclass(frozen=True)
class Decoding(Generic[Asked]):
    """The settings that all prompts of a command share.

    start   of an engine: begins the run of a request
    footer  more for the trace's footer
    """

    start: Callable[[Asked, Observer | None], Run]
    request: Asked
    trace: Path | None = None
    probe: bool = False
    footer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DecodedPrompt(Generic[Asked]):
    """One decoded prompt. ``seconds`` and ``prefill`` leave observing and logging out."""

    request: Asked
    header: Header
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


def decode_prompt(
    job: Decoding[Asked], prompt: str, watch: Watch = lambda *_: None
) -> DecodedPrompt[Asked]:
    """Decode one prompt, logging it if the job says so; an interrupted log keeps what it has.

    Raises UserError when the prompt does not fit or the log cannot be written.
    """
    probe = TimedProbe() if job.trace is not None and job.probe else None
    request = replace(job.request, prompt=prompt)
    run = job.start(request, probe)
    clock, rounds = Clock(run.rounds, probe), list[Round]()
    so_far = SoFar(run, rounds)
    with noted_interrupt() as pressed, TraceLog(job.trace, run) as log:
        for record in clock:
            rounds.append(record)
            log.write(record)
            watch(so_far)
            if pressed:
                raise KeyboardInterrupt
        tokens = so_far.tokens
        text = run.text(tokens)
        footer = dict(job.footer)
        if isinstance(request, RunRequest):
            footer = {"prefill_seconds": clock.prefill, "token_ids": tokens, **footer}
        log.finish(text, clock.seconds, **footer)
    written = tuple(rounds), tuple(tokens), text
    return DecodedPrompt(request, run.header, *written, clock.seconds, clock.prefill)
