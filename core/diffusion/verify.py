"""Verifying the drafts of one model call on a block (Algorithm 1). Light: numpy only.

S counts the block states of one call (row 0 is the current block, the others are drafts), P the
positions of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from core.rounds.blocks import MASKED, Block, BlockDraft, Ranking, Step
from core.rounds.draft import Array
from core.rounds.round import Round, Times, Verdict


def draft_states(draft: BlockDraft, state: Array) -> Array:
    """The block states of a draft's rows, int64 [S, P]; row 0 is ``state`` itself."""
    states = np.tile(state, (len(draft), 1))
    for row, edits in enumerate(draft.edits):
        for edit in edits:
            states[row, edit.position] = edit.token
    return states


@dataclass(frozen=True, eq=False)
class Verification:
    """The result of one call: accepted rows (0 first), the step that each decides, and the block
    state after these steps."""

    path: tuple[int, ...]
    steps: tuple[Step, ...]
    state: Array

    @property
    def remaining(self) -> Ranking:
        """The last known distribution at the positions that are still masked."""
        last = self.steps[-1]
        return last.ranking.after(last.count)


def verify(states: Array, decide: Callable[[int, Array], Step]) -> Verification:
    """Take the target's step; while its result is a drafted state, take that state's step too.

    ``decide(row, state)`` is the step that the distribution of this row decides.
    """
    drafted = {state.tobytes(): row for row, state in enumerate(states)}
    state, row = states[0].copy(), 0
    path, steps = [0], list[Step]()
    while True:
        step = decide(row, state)
        state[step.positions] = step.tokens
        steps.append(step)
        following = drafted.get(state.tobytes())
        if following is None or MASKED not in state:
            return Verification(tuple(path), tuple(steps), state)
        path.append(following)
        row = following


@dataclass(frozen=True)
class Cursor:
    """Where a model call stands in its text.

    position  absolute position of the current block's first token
    call      model calls before this one
    block     number of the current block, from 0
    step      denoising steps before this call
    """

    position: int
    call: int = 0
    block: int = 0
    step: int = 0

    def after_call(self, steps: int) -> Cursor:
        return replace(self, call=self.call + 1, step=self.step + steps)

    def next_block(self, size: int) -> Cursor:
        return replace(self, position=self.position + size, block=self.block + 1)


def make_round(
    cursor: Cursor, draft: BlockDraft, state: Array, result: Verification, times: Times
) -> Round:
    """The Round of one model call on the block ``state``."""
    target_tokens = np.full(len(draft), -1, np.int64)
    for row, step in zip(result.path, result.steps, strict=True):
        target_tokens[row] = step.tokens[0]
    return Round(
        index=cursor.call,
        position=cursor.position,
        draft=draft,
        verdict=Verdict(result.path, target_tokens),
        committed=tuple(int(token) for step in result.steps for token in step.tokens),
        times=times,
        block=Block(cursor.block, cursor.step, state, result.steps),
    )
