"""Block-wise denoising of a masked-diffusion model, plain and with Spiffy's drafts.

S counts the block states of one call (row 0 is the current block, the others are drafts), P the
positions of a block, V the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from core.decoding.decode import Stopwatch, check_prompt
from core.diffusion.draft_graph import DraftGraph, draft_block
from core.diffusion.ranking import TokenRule, rank_positions
from core.diffusion.request import DenoiseSettings
from core.diffusion.verify import Cursor, Verification, draft_states, make_round, verify
from core.rounds.blocks import MASKED, BlockDraft, Ranking, Step
from core.rounds.draft import Array
from core.rounds.round import Round


class DiffusionTarget(Protocol):
    """The only owner of a model and its context. One text at a time.

    forwards  model calls so far (NFE): one per ``score``, however many states it scores
    """

    mask_id: int
    stop_ids: frozenset[int]
    vocabulary: int
    device: torch.device
    forwards: int

    @property
    def exact(self) -> bool:
        """Whether a draft's scores equal those that its state would get alone."""
        ...

    def begin(self, prompt: Sequence[int], length: int, block: int) -> None:
        """Start a text: ``length`` new positions after the prompt, in blocks of ``block``."""
        ...

    def score(self, states: Array, positions: Sequence[Array]) -> Sequence[Tensor]:
        """Float logits [len(positions[s]), V] of every state, in ONE model call.

        states     int64 [S, P], ``mask_id`` where a position is masked
        positions  for each state, the block positions (0 to P − 1) whose distribution is needed

        Callers read the entries in order, row 0 first, only those of accepted states and each at
        most once. So the output head may be applied when an entry is read.
        """
        ...

    def advance(self, block: Sequence[int]) -> None:
        """The finished current block becomes context; the next block is current."""
        ...


def denoise(
    target: DiffusionTarget,
    prompt: Sequence[int],
    settings: DenoiseSettings,
    graph: DraftGraph | None = None,
) -> Iterator[Round]:
    """Write ``settings.length`` tokens after ``prompt``, yielding a Round per model call.

    Without a graph this is plain denoising, one step a call. With one it is Spiffy (§4, Algorithm
    1): drafts are read off the last known distribution and run in the same call, and each one that
    the target's own steps lead through saves a call. The text is the same when ``target.exact``.
    A block's first call drafts nothing, because no distribution of the block is known yet. The
    text ends after the block that holds the first end-of-text. Closing the generator stops the
    run.

    Raises UserError for settings out of range or a prompt that the target cannot hold.
    """
    settings.check()
    check_prompt(prompt, target.vocabulary)
    run = _Run(target, settings, graph)
    target.begin(prompt, settings.length, settings.block)
    cursor = Cursor(len(prompt))
    last = settings.length // settings.block - 1
    while cursor.block <= last:
        state, remaining = np.full(settings.block, MASKED, np.int64), None
        while MASKED in state:
            clock = Stopwatch(target.device, settings.timed)
            draft, result = run.call(cursor.position, state, remaining, clock)
            finished = MASKED not in result.state
            ends = finished and (cursor.block == last or run.stops(result.state))
            if finished and not ends:
                target.advance(result.state.tolist())
                clock.lap("verify")
            yield make_round(cursor, draft, state, result, clock.times)
            if ends:
                return
            cursor = cursor.after_call(len(result.steps))
            state, remaining = result.state, result.remaining
        cursor = cursor.next_block(settings.block)


class _Run:
    """The target, settings, token rule and draft graph that all calls of one text share."""

    def __init__(
        self, target: DiffusionTarget, settings: DenoiseSettings, graph: DraftGraph | None
    ):
        self.target, self.settings, self.graph = target, settings, graph
        self.rule = TokenRule(target.mask_id, settings.temperature, settings.seed)
        self.ahead = settings.pace.ahead(settings.ahead)
        self.width = max(settings.width, graph.width if graph else 1)

    def stops(self, state: Array) -> bool:
        """Whether the text ends after this finished block."""
        ended = not self.target.stop_ids.isdisjoint(state.tolist())
        return ended and not self.settings.go_on

    def call(
        self, start: int, state: Array, remaining: Ranking | None, clock: Stopwatch
    ) -> tuple[BlockDraft, Verification]:
        """One model call on the block whose first token has absolute position ``start``."""
        target, pace = self.target, self.settings.pace
        draft = draft_block(self.graph, state, remaining, pace, target.mask_id)
        states = draft_states(draft, state)
        masked = [np.flatnonzero(row == MASKED) for row in states]
        clock.lap("build")
        scores = target.score(np.where(states == MASKED, target.mask_id, states), masked)

        def decide(row: int, _: Array) -> Step:
            logits = scores[row]
            clock.lap("verify")
            ranking = rank_positions(logits, masked[row], start, self.rule, self.width, self.ahead)
            size = pace.next_size(ranking.p[:, 0], len(state))
            recorded = replace(ranking, p=ranking.p.astype(np.float32))
            clock.lap("commit")
            return Step(recorded, size)

        result = verify(states, decide)
        clock.lap("commit")
        return draft, result
