"""The decoding loop. One generator serves every autoregressive method, live and logged alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from core.accept import until_stop, walk
from core.builders import MAX_BUDGET, reads, width_for
from core.errors import UserError
from core.fixed import bucket
from core.sampling import TargetRule, check_temperature
from core.target import Target
from core.types import (
    GREEDY,
    Array,
    Beliefs,
    Candidates,
    Draft,
    Probe,
    Round,
    Sampling,
    Times,
    Verdict,
)


@dataclass(frozen=True, eq=False)
class Proposal:
    """What the drafter says, for one round: its best tokens per depth, and all of q for probes.

    along  log q over the full vocabulary at depths 1 … d [d, V], on the device, given the path
           [root, x_1, …, x_{d−1}]. It dies with the round. None: this drafter is not probed.
    """

    candidates: Candidates
    along: Callable[[Sequence[int]], Tensor] | None = None

    @staticmethod
    def factorised(log_q: Tensor, width: int) -> Proposal:
        """From log q [L, V] that hangs on nothing but the depth: its ``width`` best per depth."""
        best = log_q.topk(min(width, log_q.shape[-1]))
        ids, odds = best.indices.cpu().numpy(), best.values.cpu().numpy()
        return Proposal(Candidates(ids, odds), lambda path: log_q[: len(path)])


class Drafter(Protocol):
    """Proposes from the context's target features and the bonus token."""

    @property
    def depths(self) -> int:
        """L, how many positions it drafts."""
        ...

    @property
    def layers(self) -> tuple[int, ...]:
        """The target layers whose hidden states are its features."""
        ...

    def reset(self, rows: int) -> None:
        """Forget the text; room for ``rows`` context tokens will be needed."""
        ...

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Take in newly committed context: tokens [T] and their features [T, F·h]."""
        ...

    def propose(self, root: int, width: int) -> Proposal:
        """q for the L positions behind ``root``, the ``width`` best tokens of each sorted."""
        ...


# (candidates, the text so far with the root as its last token, budget) → draft: a pure function.
Builder = Callable[[Candidates, Sequence[int], int], Draft]


@dataclass(frozen=True)
class Method:
    """A drafter and a builder; ``drafter`` None is plain decoding."""

    name: str
    drafter: Drafter | None = None
    builder: Builder | None = None


@dataclass(frozen=True)
class Settings:
    """One run's settings. ``timed`` synchronises the device after every stage."""

    budget: int = 64
    max_new_tokens: int = 128
    sampling: Sampling = GREEDY
    timed: bool = True

    def check(self) -> None:
        """Raises UserError with one sentence when a value is out of range."""
        s = self.sampling
        if not 1 <= self.budget <= MAX_BUDGET:
            raise UserError(f"the budget must be 1 to {MAX_BUDGET}, not {self.budget}")
        if self.max_new_tokens < 1:
            raise UserError(f"max new tokens must be at least 1, not {self.max_new_tokens}")
        check_temperature(s.temperature)
        if s.top_k < 0:
            raise UserError(f"top-k must be 0 (off) or more, not {s.top_k}")
        if not 0 < s.top_p <= 1:
            raise UserError(f"top-p must be above 0 and at most 1, not {s.top_p}")


@dataclass(frozen=True, eq=False)
class Seen:
    """What an observer may look at: one decided round, while its logits are alive."""

    draft: Draft
    verdict: Verdict
    logits: Tensor  # [N, V]
    proposal: Proposal | None
    rule: TargetRule
    position: int  # absolute, of the root


@dataclass(frozen=True, eq=False)
class Observation:
    """What an observer read off a round: numbers only, nothing on a device."""

    beliefs: Beliefs
    probe: Probe | None
    choices: Array  # the target's token at *every* row, also where the walk never asked


Observer = Callable[[Seen], Observation]


def decode(
    target: Target,
    method: Method,
    prompt: Sequence[int],
    settings: Settings,
    observe: Observer | None = None,
) -> Iterator[Round]:
    """Decode ``prompt`` (token ids), yielding every round as it is finished.

    The new text is the first round's root token, then every round's ``committed`` (see
    ``new_tokens``). It ends at a stop token, wherever in an accepted path that stands, or after
    exactly ``max_new_tokens``. Closing the generator stops the run. ``observe`` never changes what
    is decoded; it runs after the decision and outside every timed stage.

    Raises UserError for settings out of range or a prompt that does not fit the context.
    """
    settings.check()
    _check_fit(target, prompt, settings)
    drafter, builder, rule = method.drafter, method.builder, TargetRule(settings.sampling)
    reserve = settings.max_new_tokens + bucket(settings.budget + 1)
    prefilled = target.prefill(list(prompt), reserve)
    root = int(rule.choose(prefilled.logits, [len(prompt)])[0])
    left = settings.max_new_tokens - 1
    if left == 0 or root in target.stop_ids:
        yield _text_of_one_token(root, len(prompt))
        return
    if drafter is not None:
        drafter.reset(len(prompt) + reserve)
        drafter.extend(prompt, prefilled.features)
    del prefilled  # the prompt's features are the drafter's now, to keep or to let go
    text, run = [*prompt, root], target.texts
    for index in count():
        if target.texts != run:
            raise RuntimeError("another run has begun on this target: one text at a time")
        position, clock = target.length, Stopwatch(target.device, settings.timed)
        proposal, draft = None, Draft.root_only(root)
        if drafter is not None and builder is not None:
            proposal = drafter.propose(root, width_for(builder, settings.budget))
            clock.lap("draft")
            draft = builder(proposal.candidates, text, settings.budget)
            clock.lap("build")
        scores = target.score(draft)
        clock.lap("verify")
        verdict = walk(draft, _asker(rule, draft, scores.logits, position))
        path = target.commit(verdict)
        if drafter is not None:
            drafter.extend(draft.tokens[list(verdict.path)].tolist(), scores.features[path])
        committed = _cut(draft, verdict, left, target.stop_ids)
        clock.lap("commit")
        candidates = _recorded(proposal.candidates, builder) if proposal else None
        record = Round(index, position, draft, verdict, committed, candidates, times=clock.times)
        if observe is not None:
            seen = Seen(draft, verdict, scores.logits, proposal, rule, position)
            record = _observed(record, observe(seen))
            del seen
        del scores, path  # or the logits would live on beside those of the next forward
        yield record
        left -= len(committed)
        if left == 0 or committed[-1] in target.stop_ids:
            return
        text += committed
        root = verdict.bonus


def new_tokens(rounds: Sequence[Round]) -> list[int]:
    """The new text's token ids: what prefill gave, then what every round committed."""
    if not rounds:
        return []
    return [int(rounds[0].draft.tokens[0]), *(t for r in rounds for t in r.committed)]


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


def _asker(rule: TargetRule, draft: Draft, logits: Tensor, position: int) -> Callable[[int], int]:
    """The target's token after a row, only where the walk asks; a GPU's greedy in one transfer."""
    if rule.sampling.greedy and logits.device.type != "cpu":
        return rule.choose(logits, []).tolist().__getitem__

    def ask(row: int) -> int:
        after = position + int(draft.depths[row]) + 1
        return int(rule.choose(logits[row : row + 1], [after])[0])

    return ask


def _cut(draft: Draft, verdict: Verdict, left: int, stop: frozenset[int]) -> tuple[int, ...]:
    """Accepted tokens and the bonus, as far as a stop token or the limit lets them stand."""
    tokens = [*draft.tokens[list(verdict.path[1:])].tolist(), verdict.bonus]
    return tuple(until_stop(tokens[:left], stop))


def _recorded(candidates: Candidates, builder: Builder | None) -> Candidates:
    """What a round keeps of a proposal; what was offered behind a node the draft says itself."""
    return replace(candidates, transitions=None, read=reads(builder))


def _text_of_one_token(root: int, position: int) -> Round:
    """The record of a text that ended with prefill's own token: nothing was drafted or verified."""
    return Round(0, position, Draft.root_only(root), Verdict((0,), np.array([-1])), committed=())


def _observed(record: Round, seen: Observation) -> Round:
    verdict = replace(record.verdict, choices=seen.choices)
    return replace(record, verdict=verdict, beliefs=seen.beliefs, probe=seen.probe)
