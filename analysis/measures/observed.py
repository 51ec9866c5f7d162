"""The drafts of rounds as one long table of rows, and the positions observed. Never torch.

A round observes depth d when the position's parent was accepted (see ``analysis.measures.tables``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from core.rounds.draft import NOT_ASKED, NOT_KNOWN, Array, Draft
from core.rounds.round import Probe, Round


@dataclass(frozen=True, eq=False)
class ObservedRows:
    """The rows of the drafts of R rounds, one after the other: N rows, W of them on accepted paths.

    records   [R]
    start     int [R]   each round's root among the rows
    owner     int [N]   the round of each row
    parent    int [N]   row of the parent; the root's is itself
    depth     int [N]   0 for a root
    drafted   bool [N]  neither a root nor a row that is never accepted
    accepted  bool [N]
    path      int [W]   rows of all accepted paths, roots included; ``walker``: the round of each
    """

    records: Sequence[Round]
    start: Array
    owner: Array
    parent: Array
    depth: Array
    drafted: Array
    accepted: Array
    path: Array
    walker: Array

    @staticmethod
    def of(rounds: Sequence[Round]) -> ObservedRows:
        drafts = [_draft(record) for record in rounds]
        sizes = np.array([len(draft) for draft in drafts], np.int64)
        start = np.cumsum(sizes) - sizes
        owner = np.repeat(np.arange(len(drafts)), sizes)
        parent = joined([d.parents for d in drafts], np.int64) + start[owner]
        parent[start] = start
        depth = joined([d.depths for d in drafts], np.int64)
        paths = [np.array(r.verdict.path, np.int64) for r in rounds]
        walker = np.repeat(np.arange(len(paths)), np.array([len(p) for p in paths], np.int64))
        path = joined(paths, np.int64) + start[walker]
        drafted, accepted = np.ones(len(owner), bool), np.zeros(len(owner), bool)
        drafted[start], accepted[path] = False, True
        for at, draft in zip(start.tolist(), drafts, strict=True):
            drafted[[at + row for row in draft.side]] = False
        return ObservedRows(rounds, start, owner, parent, depth, drafted, accepted, path, walker)

    @cached_property
    def roots(self) -> Array:
        """Each round's root among the rows of all paths, [R]."""
        lengths = np.bincount(self.walker, minlength=len(self.records))
        return np.cumsum(lengths) - lengths

    @cached_property
    def has_children(self) -> Array:
        """Whether anything was drafted after each row, [N]."""
        found = np.zeros(len(self.owner), bool)
        found[self.parent[self.drafted]] = True
        return found

    @cached_property
    def tokens(self) -> Array:
        """Token ids, [N]."""
        return joined([record.draft.tokens for record in self.records], np.int64)

    @cached_property
    def ranks_along_paths(self) -> Array:
        """The drafter's ranks of all rows of the accepted paths, [W]."""
        return joined([record.draft.ranks for record in self.records], np.int64)[self.path]


def _draft(record: Round) -> Draft:
    assert isinstance(record.draft, Draft), "denoising rounds are left out"
    return record.draft


@dataclass(frozen=True, eq=False)
class Observed:
    """The observed positions of all rounds, P of them.

    rows      what they are positions of
    seen      int [R]   observed depths of each round
    there     bool [W]  whether the place after this row of a path was observed
    owner     int [P]   the round of each position; ``depth``: 1 … L
    above     int [P]   the position's parent among all rows
    accepted  bool [P]  whether the target's token there was drafted
    """

    rows: ObservedRows
    seen: Array
    there: Array
    owner: Array
    depth: Array
    above: Array
    accepted: Array

    @staticmethod
    def of(rows: ObservedRows, depths: Array) -> Observed:
        """``depths``: L of each round, int [R]."""
        lengths = np.bincount(rows.walker, minlength=len(rows.records))  # accepted + 1
        seen = np.minimum(lengths, depths)
        depth = np.arange(len(rows.path)) - rows.roots[rows.walker] + 1  # after each row of a path
        there = depth <= seen[rows.walker]
        owner, depth = rows.walker[there], depth[there]
        return Observed(rows, seen, there, owner, depth, rows.path[there], depth < lengths[owner])

    @property
    def target_ranks(self) -> tuple[Array, Array]:
        """The rank of the target's token at each position, and whether it was none of the tokens
        listed there. An accepted node has its own; where the walk ended it is looked up."""
        records = self.rows.records
        wanted = np.array([r.wanted_rank or np.nan for r in records], float)[self.owner]
        outside = np.array([_outside(r) for r in records], bool)[self.owner]
        return np.where(self.accepted, self._drafted_ranks, wanted), ~self.accepted & outside

    @property
    def best(self) -> Array:
        """Whether the drafter's best token was the target's at each position, 1 or 0; NaN where the
        record does not tell."""
        ended = np.array([_best(record) for record in self.rows.records], float)[self.owner]
        ranks = self._drafted_ranks
        own = np.where(np.isnan(ranks), np.nan, ranks == 1)
        return np.where(self.accepted, own, ended)

    @cached_property
    def _drafted_ranks(self) -> Array:
        """The rank of each accepted position's node; NaN where it is not known."""
        ranks = self._after(self.rows.ranks_along_paths).astype(float)
        return np.where(ranks == NOT_KNOWN, np.nan, ranks)

    @property
    def ranks_above(self) -> tuple[Array, Array]:
        """The rank of each position's parent, and whether all nodes above are of rank 1. Not known
        where the rank of any node above is not."""
        ranks, roots = self.rows.ranks_along_paths.copy(), self.rows.roots
        ranks[roots] = 1
        left = self._so_far(ranks != 1)  # siblings on the path so far; the root is not one
        ranks[self._so_far(ranks == NOT_KNOWN) > 0] = NOT_KNOWN
        return ranks[self.there], left[self.there] == 0

    def _so_far(self, here: Array) -> Array:
        """How many rows of its path up to each row are such, [W]."""
        count = np.cumsum(here)
        return count - count[self.rows.roots][self.rows.walker]

    @property
    def target_tokens(self) -> Array:
        """The target's token at each position: the accepted node's, or the bonus token."""
        bonus = ints(r.verdict.bonus for r in self.rows.records)[self.owner]
        return np.where(self.accepted, self._after(self.rows.tokens[self.rows.path]), bonus)

    def probed(self, read: Callable[[Probe], Array], width: int = 0) -> Array:
        """A probe's numbers at the positions, [P] or [P, width]; NaN where there are none."""
        count = len(self.owner)
        found, first = np.full((count, width) if width else count, np.nan), 0
        for record, seen in zip(self.rows.records, self.seen.tolist(), strict=True):
            if record.probe is not None:
                values = read(record.probe)[:seen]
                place = slice(first, first + len(values))
                found[(place, *(slice(n) for n in values.shape[1:]))] = values
            first += seen
        return found

    def _after(self, numbers: Array) -> Array:
        """[W] → [P]: that of the next row of the path, which is an accepted position's node."""
        return np.append(numbers[1:], -1)[self.there]


def _outside(record: Round) -> bool:
    """Whether the token wanted where the walk ended was none of those listed there."""
    listed = record.candidates_after(record.verdict.path[-1])
    return listed is not None and record.verdict.bonus not in listed.ids


def _best(record: Round) -> float:
    """Whether the drafter's best token is the one that was wanted where the walk ended, 1 or 0.

    A token that has another rank, is in no list, or was not drafted although the best was, is not
    the best. NaN where nothing of that is recorded.
    """
    draft, end, rank = _draft(record), record.verdict.path[-1], record.wanted_rank
    if rank is not None:
        return float(rank == 1)
    if draft.nodes == 0 or (record.proposal and record.proposal.after[end] != NOT_ASKED):
        return 0.0
    siblings = [row for row in draft.children[end] if row not in draft.side]
    return 0.0 if any(draft.ranks[row] == 1 for row in siblings) else np.nan


def joined(parts: Sequence[Array], dtype: Any) -> Array:
    return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)


def ints(values: Iterable[int]) -> Array:
    return np.fromiter(values, np.int64)
