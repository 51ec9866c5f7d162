"""Denoising steps on records: verification, simulation, and what a run saved. Light: numpy only.

In exact mode the target's trajectory is the same whatever is drafted, so the calls any graph would
have needed follow from the rankings that one plain run recorded (``simulate``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from core.diffusion.graph import DraftGraph, Pace
from core.errors import UserError
from core.rounds.blocks import Block, BlockDraft, MASKED, Ranking, Step
from core.rounds.draft import Array
from core.rounds.round import Round, Times, Verdict

# (row of the draft, its block state) → the step which that row's distribution decides
Decide = Callable[[int, Array], Step]


def states_of(draft: BlockDraft, state: Array) -> Array:
    """The block states of a draft's rows, int64 [S, L]; row 0 is ``state`` itself."""
    states = np.tile(state, (len(draft), 1))
    for row, edits in enumerate(draft.edits):
        for edit in edits:
            states[row, edit.position] = edit.token
    return states


@dataclass(frozen=True, eq=False)
class Walk:
    """Where verification led: rows accepted (0 first), a step for each, the state at the end."""

    path: tuple[int, ...]
    steps: tuple[Step, ...]
    state: Array


def walk_states(states: Array, decide: Decide) -> Walk:
    """Spiffy's Algorithm 1: take the target's step; while a draft *is* the state it leads to, that
    draft's distribution is the target's next one: take its step too."""
    drafted = {state.tobytes(): row for row, state in enumerate(states)}
    state, row = states[0].copy(), 0
    path, steps = [0], list[Step]()
    while True:
        step = decide(row, state)
        state[step.positions] = step.tokens
        steps.append(step)
        following = drafted.get(state.tobytes())
        if following is None or MASKED not in state:
            return Walk(tuple(path), tuple(steps), state)
        path.append(following)
        row = following


def draft_for(
    graph: DraftGraph | None, state: Array, left: Ranking | None, pace: Pace, root: int
) -> BlockDraft:
    """The graph's draft; without a graph, or before a first distribution, the block alone."""
    if graph is None or left is None:
        return _NOTHING.draft(state, _UNKNOWN, pace, root)
    return graph.draft(state, left, pace, root)


_NOTHING = DraftGraph(())
_UNKNOWN = Ranking(np.empty(0, np.int32), np.empty((0, 1), np.int64), np.empty((0, 1), np.float32))


@dataclass(frozen=True)
class At:
    """Where in a text a model call stands: its number, its block's first position and number, and
    the denoising steps before it."""

    call: int
    position: int
    block: int
    step: int


def call_record(at: At, draft: BlockDraft, state: Array, walk: Walk, times: Times) -> Round:
    """The Round of one model call on the block ``state``."""
    target_tokens = np.full(len(draft), -1, np.int64)
    for row, step in zip(walk.path, walk.steps, strict=True):
        target_tokens[row] = step.tokens[0]
    return Round(
        index=at.call,
        position=at.position,
        draft=draft,
        verdict=Verdict(walk.path, target_tokens),
        committed=tuple(int(token) for step in walk.steps for token in step.tokens),
        times=times,
        block=Block(at.block, at.step, state, walk.steps),
    )


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────


def by_block(rounds: Iterable[Round]) -> Iterator[list[Round]]:
    """The calls of each block. Raises UserError for rounds that denoised nothing."""
    for block, calls in groupby(rounds, lambda r: -1 if r.block is None else r.block.index):
        if block < 0:
            raise UserError("these rounds are not of a denoising run")
        yield list(calls)


def written(rounds: Iterable[Round]) -> list[int]:
    """The text so far, token ids block by block; MASKED where the current block still is."""
    return [int(t) for calls in by_block(rounds) for t in _block(calls[-1]).after()]


def simulate(rounds: Sequence[Round], graph: DraftGraph | None, pace: Pace) -> Iterator[Round]:
    """The calls that ``graph`` would have needed for the text that ``rounds`` wrote, without times.

    Equal to the real run's rounds when the target is exact: its steps are the same, only which
    call decided them differs. Raises UserError when the graph asks for token ranks that were not
    recorded.
    """
    call = taken = 0
    for calls in by_block(rounds):
        first, steps = calls[0], [step for r in calls for step in _block(r).steps]
        if graph is not None and graph.width > steps[0].ranking.ids.shape[1]:
            raise UserError(f"the run recorded no tokens of rank {graph.width}: run it with more")
        state, left, done = _block(first).state, None, 0
        while done < len(steps):
            draft = draft_for(graph, state, left, pace, int(first.draft.tokens[0]))
            coming = iter(steps[done:])
            walk = walk_states(states_of(draft, state), lambda *_, coming=coming: next(coming))
            at = At(call, first.position, _block(first).index, taken)
            yield call_record(at, draft, state, walk, Times())
            last = walk.steps[-1]
            state, left = walk.state, last.ranking.after(last.count)
            done, call, taken = done + len(walk.steps), call + 1, taken + len(walk.steps)


def _block(record: Round) -> Block:
    assert record.block is not None, "by_block has seen to that"
    return record.block


# ── what was saved ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Level:
    """Calls whose draft reached this level, and those in which so many drafts were accepted."""

    drafted: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(frozen=True)
class Saved:
    """Model calls made and those plain denoising makes for the same text (NFE), counted up to the
    block that holds the first end-of-text; per block, and acceptance by level (from 1)."""

    blocks: tuple[tuple[int, int], ...]  # (calls, plain calls) of each block
    levels: tuple[Level, ...]

    @property
    def calls(self) -> int:
        return sum(calls for calls, _ in self.blocks)

    @property
    def plain(self) -> int:
        return sum(plain for _, plain in self.blocks)

    @property
    def speedup(self) -> float:
        return self.plain / self.calls if self.calls else 1.0


def saved(rounds: Iterable[Round], stop_ids: frozenset[int]) -> Saved:
    """What one run saved. Blocks behind the first end-of-text do not count (paper §5)."""
    blocks, counted = list[tuple[int, int]](), list[Round]()
    for calls in by_block(rounds):
        counted += calls
        blocks.append((len(calls), sum(len(_block(r).steps) for r in calls)))
        if not stop_ids.isdisjoint(_block(calls[-1]).after().tolist()):
            break
    deepest = max((int(r.draft.depths.max()) for r in counted), default=0)
    levels = tuple(
        Level(
            sum(int(r.draft.depths.max()) >= level for r in counted),
            sum(r.accepted >= level for r in counted),
        )
        for level in range(1, deepest + 1)
    )
    return Saved(tuple(blocks), levels)


def together(runs: Sequence[Saved]) -> Saved:
    """Several runs as one: calls are added block by block and level by level."""
    blocks = [
        tuple(sum(r.blocks[at][which] for r in runs if at < len(r.blocks)) for which in (0, 1))
        for at in range(max((len(r.blocks) for r in runs), default=0))
    ]
    levels = [
        Level(
            sum(r.levels[at].drafted for r in runs if at < len(r.levels)),
            sum(r.levels[at].accepted for r in runs if at < len(r.levels)),
        )
        for at in range(max((len(r.levels) for r in runs), default=0))
    ]
    return Saved(tuple((calls, plain) for calls, plain in blocks), tuple(levels))
