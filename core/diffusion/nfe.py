"""A denoising run's text and model calls (NFE), read off its rounds. Light: numpy only.

The steps of an exact target do not depend on what is drafted. So the calls that any graph would
have needed follow from the rankings of one recorded plain run (``simulate``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from core.diffusion.draft_graph import DraftGraph, draft_block
from core.diffusion.pace import Pace
from core.diffusion.verify import Cursor, draft_states, make_round, verify
from core.errors import UserError
from core.rounds.blocks import MASKED, Block
from core.rounds.round import Round, Times
from core.verification.walk import until_stop


def by_block(rounds: Iterable[Round]) -> Iterator[list[Round]]:
    """The calls of each block. Raises UserError for rounds that are not a denoising run's."""
    for number, calls in groupby(rounds, lambda r: -1 if r.block is None else r.block.index):
        if number < 0:
            raise UserError("these rounds are not of a denoising run")
        yield list(calls)


def denoised_tokens(rounds: Iterable[Round]) -> list[int]:
    """The new text so far, block by block; MASKED where the current block is still masked."""
    return [int(token) for calls in by_block(rounds) for token in _block(calls[-1]).after()]


def written_tokens(rounds: Iterable[Round], stop_ids: frozenset[int]) -> list[int]:
    """The new text so far: up to the first end-of-text, which is included, or masked position."""
    tokens = denoised_tokens(rounds)
    known = tokens.index(MASKED) if MASKED in tokens else len(tokens)
    return until_stop(tokens[:known], stop_ids)


def simulate(rounds: Sequence[Round], graph: DraftGraph | None, pace: Pace) -> Iterator[Round]:
    """The calls that ``graph`` would have needed for the text of ``rounds``, without times.

    For an exact target they equal the real run's rounds. Raises UserError when the graph needs
    token ranks that were not recorded.
    """
    call = step = 0
    for calls in by_block(rounds):
        first, steps = calls[0], [each for r in calls for each in _block(r).steps]
        if graph is not None and graph.width > steps[0].ranking.ids.shape[1]:
            raise UserError(f"the run recorded no tokens of rank {graph.width}: run it with more")
        cursor = Cursor(first.position, call, _block(first).index, step)
        state, remaining, coming = _block(first).state, None, iter(steps)
        done = cursor.step + len(steps)
        while cursor.step < done:
            draft = draft_block(graph, state, remaining, pace, int(first.draft.tokens[0]))
            result = verify(draft_states(draft, state), lambda *_, coming=coming: next(coming))
            yield make_round(cursor, draft, state, result, Times())
            cursor = cursor.after_call(len(result.steps))
            state, remaining = result.state, result.remaining
        call, step = cursor.call, cursor.step


def _block(record: Round) -> Block:
    assert record.block is not None, "by_block checks it"
    return record.block


@dataclass(frozen=True)
class LevelCounts:
    """Calls whose draft reached one level, and calls in which that level was accepted."""

    drafted: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(frozen=True)
class NfeCounts:
    """Model calls (NFE) of some text, and the calls that plain denoising makes for it.

    blocks  (calls, plain calls) of each block
    levels  acceptance by level of the draft graph, from 1
    """

    blocks: tuple[tuple[int, int], ...]
    levels: tuple[LevelCounts, ...]

    @property
    def calls(self) -> int:
        return sum(calls for calls, _ in self.blocks)

    @property
    def plain(self) -> int:
        return sum(plain for _, plain in self.blocks)

    @property
    def speedup(self) -> float:
        return self.plain / self.calls if self.calls else 1.0

    @staticmethod
    def total(runs: Sequence[NfeCounts]) -> NfeCounts:
        """Several runs as one: counts are added block by block and level by level."""
        blocks = zip_longest(*(r.blocks for r in runs), fillvalue=(0, 0))
        levels = zip_longest(*(r.levels for r in runs), fillvalue=LevelCounts())
        return NfeCounts(
            tuple((sum(c for c, _ in each), sum(p for _, p in each)) for each in blocks),
            tuple(
                LevelCounts(sum(x.drafted for x in each), sum(x.accepted for x in each))
                for each in levels
            ),
        )


def count_nfe(rounds: Iterable[Round], stop_ids: frozenset[int]) -> NfeCounts:
    """One run's counts, up to the block that holds the first end-of-text (§5)."""
    blocks, counted = list[tuple[int, int]](), list[Round]()
    for calls in by_block(rounds):
        counted += calls
        blocks.append((len(calls), sum(len(_block(r).steps) for r in calls)))
        if not stop_ids.isdisjoint(_block(calls[-1]).after().tolist()):
            break
    depths = [int(r.draft.depths.max()) for r in counted]
    levels = tuple(
        LevelCounts(
            sum(depth >= level for depth in depths), sum(r.accepted >= level for r in counted)
        )
        for level in range(1, max(depths, default=0) + 1)
    )
    return NfeCounts(tuple(blocks), levels)
