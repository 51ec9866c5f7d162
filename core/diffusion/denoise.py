"""Block-wise denoising of a masked-diffusion model, plain and with Spiffy's drafts.

S counts the block states of one call (row 0 is the current block, the others are drafts),
L the positions of a block, V the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from core.decoding.decode import Stopwatch, check_prompt
from core.diffusion.graph import ONE_BY_ONE, DraftGraph, Pace
from core.diffusion.ranking import TokenRule, rank
from core.diffusion.steps import At, Walk, call_record, draft_for, states_of, walk_states
from core.errors import UserError
from core.rounds.blocks import BlockDraft, MASKED, Ranking, Step
from core.rounds.draft import Array
from core.rounds.round import Round
from core.traces.schema import MAX_BLOCK
from core.decoding.request import check_temperature


class DiffusionTarget(Protocol):
    """The only owner of the model and of its context. One text at a time.

    forwards  model calls so far (NFE): one per ``score``, whatever the number of states
    """

    mask_id: int
    stop_ids: frozenset[int]
    vocabulary: int
    device: torch.device
    forwards: int

    @property
    def exact(self) -> bool:
        """Whether the scores of a draft equal what its state, run alone, would get."""
        ...

    def begin(self, prompt: Sequence[int], length: int, block: int) -> None:
        """Start a text: ``length`` new positions after the prompt, in blocks of ``block``."""
        ...

    def score(self, states: Array, wanted: Sequence[Array]) -> Sequence[Tensor]:
        """Float logits [len(wanted[s]), V] of every state, in ONE model call.

        ``states`` int64 [S, L] holds ``mask_id`` where a position is masked; ``wanted[s]`` are the
        block positions (0 … L − 1) of state s whose distribution is needed, in the order wanted.
        Only the states that are reached are read afterwards, row 0 first and each at most once, so
        the sequence may apply the output head when an entry is read.
        """
        ...

    def advance(self, block: Sequence[int]) -> None:
        """The finished current block becomes context; the next block is current."""
        ...


MAX_LENGTH = 1 << 14
KEPT_TOKENS = 4  # ranked tokens of every position that a record holds


@dataclass(frozen=True)
class Denoising:
    """One text's settings. ``timed`` synchronises the device after every stage.

    go_on  also denoise the blocks behind the one that holds the first end-of-text
    width  ranked tokens kept per position; a graph that asks for more gets more
    """

    length: int = 128
    block: int = 32
    pace: Pace = ONE_BY_ONE
    temperature: float = 0.0
    seed: int = 0
    go_on: bool = False
    timed: bool = True
    width: int = KEPT_TOKENS

    def check(self) -> None:
        """Raises UserError with one sentence when a value is out of range."""
        self.pace.check()
        if not 1 <= self.block <= MAX_BLOCK:
            raise UserError(f"the block must have 1 to {MAX_BLOCK} positions, not {self.block}")
        if not 1 <= self.length <= MAX_LENGTH:
            raise UserError(f"the length must be 1 to {MAX_LENGTH} tokens, not {self.length}")
        if self.length % self.block:
            raise UserError(
                f"the length must be a multiple of the block, and {self.length} is none of "
                f"{self.block}"
            )
        if self.pace.threshold is None and self.pace.tokens > self.block:
            raise UserError(
                f"{self.pace.tokens} tokens a step are more than the block's {self.block} positions"
            )
        check_temperature(self.temperature)


def denoise(
    target: DiffusionTarget,
    prompt: Sequence[int],
    settings: Denoising,
    graph: DraftGraph | None = None,
) -> Iterator[Round]:
    """Write ``settings.length`` tokens behind ``prompt``, yielding a Round per model call.

    Without a graph this is plain denoising, one step a call; with one it is Spiffy: drafts are read
    off the last known distribution, run in the same call, and every one that the target's own steps
    lead through saves a call (§4, Algorithm 1). The text is the same when ``target.exact``. The
    first call of a block knows no distribution of it yet and drafts nothing. It ends behind the
    block that holds the first end-of-text. Closing the generator stops the run.

    Raises UserError for settings out of range or a prompt the target cannot hold.
    """
    settings.check()
    check_prompt(prompt, target.vocabulary)
    text = _Text(target, settings, graph)
    target.begin(prompt, settings.length, settings.block)
    at = At(call=0, position=len(prompt), block=0, step=0)
    last = settings.length // settings.block - 1
    while at.block <= last:
        state, left = np.full(settings.block, MASKED, np.int64), None
        while MASKED in state:
            clock = Stopwatch(target.device, settings.timed)
            draft, walk = text.call(at.position, state, left, clock)
            over = text.over(walk.state, last=at.block == last)
            if MASKED not in walk.state and not over:
                target.advance(walk.state.tolist())
                clock.lap("verify")
            yield call_record(at, draft, state, walk, clock.times)
            if over:
                return
            at = replace(at, call=at.call + 1, step=at.step + len(walk.steps))
            state, left = walk.state, walk.steps[-1].ranking.after(walk.steps[-1].count)
        at = replace(at, position=at.position + settings.block, block=at.block + 1)


class _Text:
    """What all calls of one text have in common."""

    def __init__(self, target: DiffusionTarget, settings: Denoising, graph: DraftGraph | None):
        self.target, self.settings, self.graph = target, settings, graph
        self.rule = TokenRule(target.mask_id, settings.temperature, settings.seed)
        self.width = max(settings.width, graph.width if graph else 1)

    def over(self, state: Array, last: bool) -> bool:
        """Whether the text ends with this block state."""
        if MASKED in state:
            return False
        stops = not self.target.stop_ids.isdisjoint(state.tolist())
        return last or (stops and not self.settings.go_on)

    def call(
        self, start: int, state: Array, left: Ranking | None, clock: Stopwatch
    ) -> tuple[BlockDraft, Walk]:
        """One model call on the block that begins at ``start``, and the steps it decides."""
        target, pace = self.target, self.settings.pace
        draft = draft_for(self.graph, state, left, pace, target.mask_id)
        states = states_of(draft, state)
        wanted = [np.flatnonzero(row == MASKED) for row in states]
        clock.lap("build")
        scores = target.score(np.where(states == MASKED, target.mask_id, states), wanted)

        def decide(row: int, _: Array) -> Step:
            logits = scores[row]
            clock.lap("verify")
            ranking = rank(logits, wanted[row], start, self.rule, self.width)
            count = pace.count(ranking.p[:, 0], len(state))
            kept = replace(ranking, p=ranking.p.astype(np.float32))
            clock.lap("commit")
            return Step(kept, count)

        walk = walk_states(states, decide)
        clock.lap("commit")
        return draft, walk
