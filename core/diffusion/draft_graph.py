"""Spiffy's draft graphs: formulas over the current ranking, and the drafts they make (§4.3).

A *formula* is a set of pairs (i, j): "give the position of rank i its token of rank j". Ranks count
from 1, among the masked positions, by the last distribution that is known. A *graph* is a set of
formulas and nothing else. Levels and parents follow from the number of positions that a denoising
step unmasks: A is a parent of B when B's set is A's set and exactly one more step. Light: numpy
only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from core.diffusion.pace import MAX_TOKENS_PER_STEP, ONE_BY_ONE, Pace
from core.errors import UserError
from core.rounds.blocks import MASKED, BlockDraft, Edit, Ranking
from core.rounds.draft import Array
from core.traces.schema import MAX_STATES

MAX_FORMULAS = MAX_STATES - 1
MAX_POSITION_RANK = MAX_TOKENS_PER_STEP
MAX_TOKEN_RANK = 64

Formula = tuple[tuple[int, int], ...]  # sorted pairs (i, j)
Pairs = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class DraftGraph:
    """Formulas, smaller ones first, and the pace they were made for.

    provenance  where the graph comes from, as its file says
    """

    formulas: tuple[Formula, ...]
    pace: Pace = ONE_BY_ONE
    name: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.formulas)

    @cached_property
    def width(self) -> int:
        """Tokens that must be ranked at every position: the largest j."""
        return max((j for formula in self.formulas for _, j in formula), default=1)

    def check(self) -> None:
        """Raises UserError unless this is a draft graph (Eq. 6–9) at its own pace."""
        self.pace.check()
        if not 1 <= len(self) <= MAX_FORMULAS:
            raise UserError(f"a draft graph has 1 to {MAX_FORMULAS} formulas, not {len(self)}")
        if len(set(map(frozenset, self.formulas))) != len(self):
            raise UserError("a draft graph names a formula twice")
        for formula in self.formulas:
            _check_formula(formula)
        drafted = self.outline().nodes
        if drafted != len(self):
            raise UserError(
                f"{len(self) - drafted} of {len(self)} formulas cannot be reached: each must have "
                "one step's tokens, or a parent in the graph with one step's fewer"
            )

    def outline(self) -> BlockDraft:
        """The graph by itself: the draft of a block in which each token's id is its rank."""
        largest = max(max(len(f), max(i for i, _ in f)) for f in self.formulas)
        step = self.pace.tokens if self.pace.threshold is None else 1
        block = step * (largest // step + 1)
        ids = np.tile(np.arange(1, self.width + 1, dtype=np.int64), (block, 1))
        ranking = Ranking(np.arange(block, dtype=np.int32), ids, np.ones(ids.shape, np.float32))
        return draft_block(self, np.full(block, MASKED, np.int64), ranking, self.pace, 0)


def _check_formula(formula: Formula) -> None:
    positions = [i for i, _ in formula]
    if not formula or len(set(positions)) != len(positions):
        raise UserError(f"the formula {label(formula)} does not set distinct positions")
    if not all(1 <= i <= MAX_POSITION_RANK and 1 <= j <= MAX_TOKEN_RANK for i, j in formula):
        raise UserError(
            f"ranks in a formula go from 1 to {MAX_POSITION_RANK} (position) and "
            f"{MAX_TOKEN_RANK} (token)"
        )


def make_graph(
    formulas: Sequence[Sequence[tuple[int, int]]], pace: Pace = ONE_BY_ONE, **more: Any
) -> DraftGraph:
    """A graph of these formulas in canonical order, by size and then by ranks. Raises UserError."""
    ordered = sorted((tuple(sorted(f)) for f in formulas), key=lambda f: (len(f), f))
    graph = DraftGraph(tuple(ordered), pace, **more)
    graph.check()
    return graph


def draft_block(
    graph: DraftGraph | None, state: Array, remaining: Ranking | None, pace: Pace, root: int
) -> BlockDraft:
    """The draft of a model call on the block ``state`` [P]: the formulas read off ``remaining``.

    ``remaining`` ranks exactly the masked positions, by the last known distribution. Without it, or
    without a graph, nothing is drafted. ``root`` is the token id that row 0 carries.

    Formulas are left out that need ranks which are not there, that no step ends at, that finish
    the block, or that have no parent here.
    """
    rows = _Rows()
    if graph is not None and remaining is not None:
        masked, width = remaining.ids.shape
        levels = None if pace.threshold is not None else pace.levels(masked, len(state))
        for formula in graph.formulas:
            known = formula[-1][0] <= masked and max(j for _, j in formula) <= width
            if known and len(formula) < masked and (levels is None or len(formula) in levels):
                rows.add(frozenset(formula), levels)
    return rows.as_draft(remaining, root)


class _Rows:
    """The rows of a draft while it is made: each row's pairs, level and parents."""

    def __init__(self) -> None:
        self.pairs: list[Pairs] = [frozenset()]
        self.levels = [0]
        self.parents: list[tuple[int, ...]] = [()]

    def add(self, pairs: Pairs, levels: Mapping[int, int] | None) -> None:
        """Append a row if it has a parent.

        Without ``levels`` a step may unmask any number of positions: every subset is a parent, and
        a row's level is the longest way from the root.
        """
        parents = [row for row, other in enumerate(self.pairs) if other < pairs]
        if levels is None:
            level = 1 + max(self.levels[row] for row in parents)
        else:
            level = levels[len(pairs)]
            parents = [row for row in parents if self.levels[row] == level - 1]
        if parents:
            self.pairs.append(pairs)
            self.levels.append(level)
            self.parents.append(tuple(parents))

    def as_draft(self, ranking: Ranking | None, root: int) -> BlockDraft:
        count = len(self.pairs)
        parents = np.full(count, -1, np.int32)
        tokens, ranks = np.full(count, root, np.int64), np.zeros(count, np.int32)
        log_q, scores = np.zeros(count, np.float32), np.zeros(count, np.float32)
        edits: list[tuple[Edit, ...]] = [()]
        for row in range(1, count):
            assert ranking is not None, "only a ranking makes rows"
            parent = next(p for p in self.parents[row] if self.levels[p] == self.levels[row] - 1)
            new = self.pairs[row] - self.pairs[parent]
            parents[row] = parent
            edits.append(tuple(_edit(ranking, i, j) for i, j in sorted(self.pairs[row])))
            i, ranks[row] = min(new)
            tokens[row] = ranking.ids[i - 1, ranks[row] - 1]
            log_q[row] = _log_p(ranking, new)
            scores[row] = _log_p(ranking, self.pairs[row])
        return BlockDraft(
            tokens=tokens,
            parents=parents,
            depths=np.array(self.levels, np.int32),
            ranks=ranks,
            log_q=log_q,
            scores=scores,
            links=tuple(self.parents),
            edits=tuple(edits),
        )


def _edit(ranking: Ranking, i: int, j: int) -> Edit:
    return Edit(int(ranking.positions[i - 1]), int(ranking.ids[i - 1, j - 1]), i, j)


def _log_p(ranking: Ranking, pairs: Pairs) -> float:
    p = [float(ranking.p[i - 1, j - 1]) for i, j in pairs]
    return sum(math.log(each) if each > 0 else -math.inf for each in p)


_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def label(formula: Sequence[tuple[int, int]]) -> str:
    """``c₁₁ c₂₁``, as in the paper; ranks above 9 are set apart: ``c₁₂,₁``."""
    parts = (f"c{i}{',' if max(i, j) > 9 else ''}{j}" for i, j in formula)
    return " ".join(parts).translate(_SUBSCRIPTS) or "∅"
