"""The decoding loop. One generator serves every autoregressive method, live and logged alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import torch
from torch import Tensor

from core.decoding.request import Settings
from core.drafting.session import (
    Builder,
    Children,
    Drafter,
    DraftSession,
    WrappedSession,
    as_builder,
)
from core.errors import UserError
from core.models.cuda_graphs import bucket
from core.models.target import Target
from core.progress import Progress, silent
from core.rounds.draft import Array, Draft
from core.rounds.round import Probe, Round, Sampling, TargetProbs, Times, Verdict
from core.verification.rules import TargetTokens, VerificationRule
from core.verification.walk import until_stop


@dataclass(frozen=True)
class Decoder:
    """A loaded method: a drafter, a builder and a verification rule. Without a drafter it is plain
    decoding. ``builder`` may be given as a function."""

    name: str
    drafter: Drafter | None = None
    builder: Builder | None = None
    rule: Callable[[Sampling], VerificationRule] = TargetTokens

    def __post_init__(self) -> None:
        if self.builder is not None:
            object.__setattr__(self, "builder", as_builder(self.builder))


@dataclass(frozen=True, eq=False)
class Scene:
    """A decided round as an observer sees it, while its logits are alive."""

    draft: Draft
    verdict: Verdict
    logits: Tensor  # [N, V]
    session: DraftSession | None
    rule: VerificationRule
    position: int  # absolute, of the root


@dataclass(frozen=True, eq=False)
class Observation:
    """The numbers that an observer read off a round; none of them is on a device."""

    target_probs: TargetProbs
    probe: Probe | None
    target_tokens: Array  # after every row, also where the walk never came


Observer = Callable[[Scene], Observation]


def decode(
    target: Target,
    method: Decoder,
    prompt: Sequence[int],
    settings: Settings,
    observe: Observer | None = None,
    report: Progress = silent,
) -> Iterator[Round]:
    """Decode ``prompt`` (token ids), yielding every round as it is finished.

    The new text is the first round's root token, then every round's ``committed`` (see
    ``new_tokens``). It ends at a stop token, wherever in an accepted path that stands, or after
    exactly ``max_new_tokens``. Closing the generator stops the run. ``observe`` never changes what
    is decoded; it runs after the decision and outside every timed stage. ``report`` hears how much
    of a long prompt is read; what it raises ends the run.

    Raises UserError for settings out of range or a prompt that does not fit the context.
    """
    settings.check()
    _check_fit(target, prompt, settings)
    drafter, rule = method.drafter, method.rule(settings.sampling)
    builder = method.builder.for_run(settings.sampling) if method.builder else None
    root = _prefill(target, drafter, rule, prompt, settings, report)
    left = settings.max_new_tokens - 1
    if left == 0 or root in target.stop_ids:
        yield _text_of_one_token(root, len(prompt))
        return
    text, run = [*prompt, root], target.texts
    for index in count():
        if target.texts != run:
            raise RuntimeError("another run has begun on this target: one text at a time")
        position, clock = target.length, Stopwatch(target.device, settings.timed)
        session, draft = _draft(drafter, builder, text, settings.budget, clock)
        scores = target.score(draft)
        clock.lap("verify")
        verdict = rule.verify(draft, scores.logits, position, session)
        _commit(target, drafter, draft, verdict, scores.features)
        committed = _cut(draft, verdict, left, target.stop_ids)
        clock.lap("commit")
        record = Round(
            index, position, draft, verdict, committed, times=clock.times, budget=settings.budget
        )
        if builder is not None:
            builder.took(draft.nodes, record.times.total)
        if observe is not None:
            seen = observe(Scene(draft, verdict, scores.logits, session, rule, position))
            record = with_observation(record, seen)
        del scores, session  # or the logits would live on beside those of the next forward
        yield record
        left -= len(committed)
        if left == 0 or committed[-1] in target.stop_ids:
            return
        text += committed


def _prefill(
    target: Target,
    drafter: Drafter | None,
    rule: VerificationRule,
    prompt: Sequence[int],
    settings: Settings,
    report: Progress,
) -> int:
    """Read the prompt into the target and the drafter. Returns the first new token, the first
    draft's root."""
    side = drafter.side_rows if drafter is not None else 0
    reserve = settings.max_new_tokens + bucket(settings.budget + 1 + side)
    prefilled = target.prefill(list(prompt), reserve, report)
    if drafter is not None:
        drafter.reset(len(prompt) + reserve)
        drafter.extend(prompt, prefilled.features)
    return int(rule.sampler.choose(prefilled.logits, [len(prompt)])[0])


def _draft(
    drafter: Drafter | None,
    builder: Builder | None,
    text: Sequence[int],
    budget: int,
    clock: Stopwatch,
) -> tuple[DraftSession | None, Draft]:
    """The session after ``text`` and the draft that the builder makes of it; without a drafter the
    root alone."""
    if drafter is None or builder is None:
        return None, Draft.root_only(text[-1])
    session = drafter.begin(text[-1], builder.width(budget))
    clock.lap("draft")
    draft = drafter.beside(builder(TimedSession(session, clock), text, budget))
    clock.lap("build")
    return session, draft


def _commit(
    target: Target, drafter: Drafter | None, draft: Draft, verdict: Verdict, features: Tensor
) -> None:
    """Keep the accepted path in the caches of target and drafter; ``features`` [N, F·h]."""
    path = target.commit(verdict)
    if drafter is None:
        return
    drafter.observe(draft, verdict)
    drafter.extend(draft.tokens[list(verdict.path)].tolist(), features[path])


class Stopwatch:
    """Stage times of one round; laps of one stage add up.

    On a GPU a lap waits for the device only when ``timed``.
    """

    def __init__(self, device: torch.device, timed: bool):
        self._device, self._wait = device, timed and device.type == "cuda"
        self._laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        if self._wait:
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self._laps[stage] = self._laps.get(stage, 0.0) + now - self._last
        self._last = now

    @property
    def times(self) -> Times:
        return Times(**self._laps)


class TimedSession(WrappedSession):
    """A session whose answers count as drafting while a builder runs."""

    def __init__(self, session: DraftSession, clock: Stopwatch):
        super().__init__(session)
        self._clock = clock

    def expand(self, states: Array) -> Children:
        self._clock.lap("build")
        children = super().expand(states)
        self._clock.lap("draft")
        return children

    def log_q(self, path: Sequence[int]) -> Tensor | None:
        self._clock.lap("build")
        log_q = super().log_q(path)
        self._clock.lap("draft")
        return log_q


def check_prompt(prompt: Sequence[int], vocabulary: int) -> None:
    """Raises UserError for token ids that no model of this vocabulary reads."""
    if not prompt:
        raise UserError("the prompt has no tokens")
    if not all(0 <= token < vocabulary for token in prompt):
        raise UserError("the prompt holds token ids outside the model's vocabulary")


def _check_fit(target: Target, prompt: Sequence[int], settings: Settings) -> None:
    check_prompt(prompt, target.vocabulary)
    wanted, limit = len(prompt) + settings.max_new_tokens, target.context_limit
    if wanted > limit:
        raise UserError(
            f"the prompt's {len(prompt)} tokens and {settings.max_new_tokens} new ones "
            f"do not fit the model's context of {limit} tokens"
        )


def _cut(draft: Draft, verdict: Verdict, left: int, stop: frozenset[int]) -> tuple[int, ...]:
    """Accepted tokens and the bonus, as far as a stop token or the limit lets them stand."""
    tokens = [*draft.tokens[list(verdict.path[1:])].tolist(), verdict.bonus]
    return tuple(until_stop(tokens[:left], stop))


def _text_of_one_token(root: int, position: int) -> Round:
    """The record of a text that ended with prefill's own token: nothing was drafted or verified."""
    return Round(0, position, Draft.root_only(root), Verdict((0,), np.array([-1])), committed=())


def with_observation(record: Round, seen: Observation) -> Round:
    verdict = replace(record.verdict, target_tokens=seen.target_tokens)
    return replace(record, verdict=verdict, target_probs=seen.target_probs, probe=seen.probe)
