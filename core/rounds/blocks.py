"""The data of a denoising round beside those that every round has (Spiffy).

Shapes: N rows of a draft, P positions of a block, R masked positions, J tokens ranked at each.
"""

from __future__ import annotations

from dataclasses import dataclass

from .draft import Array, DraftRows

MASKED = -1  # in a block state: no token stands there yet


@dataclass(frozen=True)
class Edit:
    """One token that a draft of a block state sets: c_ij of Spiffy §4.3.

    position       in the block, from 0
    token          its id
    position_rank  i ≥ 1, the position's place in the order of unmasking
    token_rank     j ≥ 1, the token's rank at that position
    """

    position: int
    token: int
    position_rank: int
    token_rank: int


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockDraft(DraftRows):
    """A draft graph: row 0 is the current block, every other row that block with more tokens set.

    ``tokens`` and ``ranks`` are those of a row's first edit beyond its first parent; ``log_q`` is
    Σ log p of what it sets, and ``depths`` is its level.

    links  rows of all the parents of each row; the root's is ()
    edits  what each row sets in the current block, best position rank first; the root's is ()
    """

    links: tuple[tuple[int, ...], ...]
    edits: tuple[tuple[Edit, ...], ...]

    @property
    def sources(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        return self.links


@dataclass(frozen=True, eq=False)
class Ranking:
    """The masked positions of one block state in the order of unmasking (Spiffy §4.3).

    positions  int32   [R]     in the block
    ids        int64   [R, J]  the J best tokens of each, best first
    p          float32 [R, J]  the target's softmax(logits) of them; column 0 is the confidence
    """

    positions: Array
    ids: Array
    p: Array

    def __len__(self) -> int:
        return len(self.positions)

    def after(self, count: int) -> Ranking:
        """Return the ranking without its first ``count`` positions, which are unmasked now."""
        return Ranking(self.positions[count:], self.ids[count:], self.p[count:])


@dataclass(frozen=True, eq=False)
class Step:
    """One denoising step: the first ``count`` positions of the ranking got their best token."""

    ranking: Ranking
    count: int

    @property
    def positions(self) -> Array:
        return self.ranking.positions[: self.count]

    @property
    def tokens(self) -> Array:
        return self.ranking.ids[: self.count, 0]

    @property
    def confidences(self) -> Array:
        return self.ranking.p[: self.count, 0]


@dataclass(frozen=True, eq=False)
class Block:
    """The change that one model call made to the block that is being denoised.

    index  which block of the text, from 0
    step   denoising steps of the text before this call: plain denoising's calls so far
    state  int64 [P], the block when the call began; MASKED where it is masked
    steps  the steps this call decided: step k by the distribution of row ``verdict.path[k]``
    """

    index: int
    step: int
    state: Array
    steps: tuple[Step, ...]

    @property
    def saved(self) -> int:
        """Model calls of plain denoising that this call saved."""
        return len(self.steps) - 1

    @property
    def finished(self) -> bool:
        """Whether no position is masked after this call."""
        return MASKED not in self.after()

    def after(self, steps: int | None = None) -> Array:
        """The block after the first ``steps`` steps of this call (None: all of them): int64 [P]."""
        state = self.state.copy()
        for step in self.steps[:steps]:
            state[step.positions] = step.tokens
        return state
