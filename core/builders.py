"""Builders: a proposal, the text so far and a budget in, a draft out. Pure functions.

Every search runs over one kind of table: what may stand at a depth, given which candidate stands
before it. A factorised proposal has one row per depth, so that DDTree and TreeFlash are the same
search. The loops are numba: with Python's heapq 1,024 nodes cost 4 ms, here a fraction of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numba
import numpy as np

from core.errors import UserError
from core.types import Array, Candidates, Draft, Offers, Transitions

MAX_BUDGET = 1024
MARGINAL = "log q (marginal)"
BEHIND = "behind candidate"


def width_for(builder: object, budget: int) -> int:
    """Candidates per depth a builder is given at least: its own ``width`` where it has one, else
    its budget's number."""
    return getattr(builder, "width", budget)


def reads(builder: object) -> int | None:
    """How many of a depth's candidates a builder looks at whatever its budget; None: as many as its
    budget lets it."""
    return 1 if builder is chain else getattr(builder, "width", None)


@dataclass(frozen=True, eq=False)
class Table:
    """What may stand at each depth: token ids, log q and where each leads, all [L, R, S].

    follow       the row of the next depth's table that the token's children come from; −1: a leaf
    transitions  where the rows hang on the token before: they are evaluated when they are reached
    """

    ids: Array
    log_q: Array
    follow: Array
    transitions: Transitions | None = None

    @staticmethod
    def of(candidates: Candidates) -> Table:
        """The drafter's transitions where it has them, else one row per depth."""
        if (t := candidates.transitions) is not None:
            return Table(t.ids, t.log_q, t.follow, t)
        return Table.marginals(candidates)

    @staticmethod
    def marginals(candidates: Candidates) -> Table:
        """One row per depth, whatever stands before."""
        log_q = np.ascontiguousarray(candidates.log_q[:, None], np.float32)
        return Table(candidates.ids[:, None], log_q, np.zeros(log_q.shape, np.int32))

    def settled(self, search: Callable[[], Rows]) -> Rows:
        """What the search finds when every row it reached is evaluated.

        Until then it is repeated: rows not evaluated yet hold a guess, so that each pass reaches
        nearly all the rows that the last one will.
        """
        while True:
            rows = search()
            if self.transitions is None or not self.transitions.need(*self._reached(rows)):
                return rows

    def _reached(self, rows: Rows) -> tuple[Array, Array]:
        """The rows that these nodes come from and that their children would: depths, rows."""
        follow = self.follow[rows.depths - 1, rows.states, rows.ranks]
        inner = (follow >= 0) & (rows.depths < len(self.ids))
        depths = np.concatenate([rows.depths - 1, rows.depths[inner]])
        return depths, np.concatenate([rows.states, follow[inner]])


@dataclass(frozen=True, eq=False)
class Rows:
    """Drafted rows without the root: parents count the root as row 0; ranks start at 0.

    states  the row of its depth's table each comes from
    """

    parents: Array
    depths: Array
    ranks: Array
    scores: Array
    states: Array
    notes: Mapping[str, Array] = field(default_factory=dict)


def nothing() -> Rows:
    """No nodes."""
    whole, none = np.zeros(0, np.int32), np.zeros(0)
    return Rows(whole, whole, whole, none, whole)


def chain(candidates: Candidates, text: Sequence[int], budget: int) -> Draft:
    """DFlash's own draft: the best token after the best token, at most ``budget`` of them."""
    table = Table.of(candidates)
    return draft(table, text[-1], table.settled(lambda: _chain(table, budget)))


def _chain(table: Table, budget: int) -> Rows:
    if not table.log_q.size:
        return nothing()
    states, state = [], 0
    for log_q, follow in zip(table.log_q[:budget], table.follow[:budget], strict=True):
        if state < 0 or log_q[state, 0] == -np.inf:
            break
        states.append(state)
        state = int(follow[state, 0])
    steps = np.arange(len(states), dtype=np.int32)
    log_q = table.log_q[steps, states, 0]
    zeros = np.zeros(len(states), np.int32)
    return Rows(steps, steps + 1, zeros, np.cumsum(log_q), np.array(states, np.int32))


def best_first(candidates: Candidates, text: Sequence[int], budget: int) -> Draft:
    """DDTree (Algorithm 1), and over transitions TreeFlash (Figure 8): the ``budget`` most
    probable prefixes under Π q.

    Tokens of q = 0 are never drafted, so a draft may be smaller than its budget. Optimal and
    prefix-closed for the surrogate Σ_{u∈T} q(u). Ties go to the prefix found first:
    a sibling is found before a child, so equal scores prefer the shallower prefix.
    """
    table = Table.of(candidates)
    return draft(table, text[-1], best_first_rows(table, budget))


def best_first_rows(table: Table, budget: int) -> Rows:
    """The search alone."""
    if not table.log_q.size:
        return nothing()
    return table.settled(lambda: Rows(*_best_first(table.log_q, table.follow, budget)))


@dataclass(frozen=True)
class OptTree:
    """OPT-Tree (Wang et al., TACL 2025): level by level, the best ``budget`` nodes each, then the
    best of all levels.

    A prefix among the best B has only ancestors among the best B, so this finds what best-first
    finds, and stops sooner when a level adds too little.

    gain  a level whose nodes raise the expected accepted length of the draft by less ends it
    """

    gain: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.gain < math.inf:  # nan is no gain either
            raise UserError(f"the option gain must be 0 or a number above it, not {self.gain}")

    def __call__(self, candidates: Candidates, text: Sequence[int], budget: int) -> Draft:
        table = Table.of(candidates)
        rows = table.settled(lambda: _level_by_level(table, budget, self.gain))
        return draft(table, text[-1], rows)


def _level_by_level(table: Table, budget: int, gain: float) -> Rows:
    """Nodes are numbered as they are kept: level by level, best first; a parent's row is final
    only when the best of all levels are chosen."""
    if not table.log_q.size:
        return nothing()
    depths, _, width = table.log_q.shape
    number, state, score = np.zeros(1, int), np.zeros(1, int), np.zeros(1)
    found: list[Array] = []  # per level [6, n]: parent's number, depth, rank, score, state, follow
    made, reached = 1, 0.0
    for depth in range(depths):
        if table.transitions is not None:  # a level's gain counts nodes that later ones displace
            table.transitions.need(np.full(len(state), depth), state)
        above = score[:, None] + table.log_q[depth, state].astype(np.float64)
        best = np.argsort(-above.ravel(), kind="stable")[:budget]
        best = best[np.isfinite(above.ravel()[best])]
        place, rank = best // width, best % width
        level = np.stack([
            number[place], np.full(len(best), depth + 1), rank, above.ravel()[best],
            state[place], table.follow[depth, state[place], rank],
        ])  # fmt: skip
        found.append(level)
        whole = np.sort(np.exp(np.concatenate([f[3] for f in found])))[::-1][:budget].sum()
        numbers = np.arange(made, made + len(best))
        inner = level[5] >= 0
        number, state, score = numbers[inner], level[5][inner].astype(int), level[3][inner]
        made += len(best)
        if 0 < gain > whole - reached or not len(number):  # rounding alone must not end it
            break
        reached = whole
    nodes = np.concatenate(found, 1)
    keep = np.sort(np.argsort(-nodes[3], kind="stable")[:budget])
    row_of = np.zeros(made, int)
    row_of[keep + 1] = np.arange(1, len(keep) + 1)
    parent, depth, rank, score, state, _ = nodes[:, keep]
    return Rows(
        row_of[parent.astype(int)].astype(np.int32),
        depth.astype(np.int32),
        rank.astype(np.int32),
        score,
        state.astype(np.int32),
    )


def grown(candidates: Candidates, text: Sequence[int], nodes: Sequence[tuple[int, int]]) -> Draft:
    """A draft from (parent row, rank) pairs, ranks from 0 and parents before children: what a
    builder of one's own ends with.

    Tokens, depths, log q and scores (Σ log q along the path) follow from the candidates. Raises
    ValueError for a pair that the candidates do not have.
    """
    table = Table.of(candidates)
    rows = table.settled(lambda: _grown(table, nodes))
    if len(rows.parents) < len(nodes):
        parent, rank = nodes[len(rows.parents)]
        raise ValueError(f"nothing of rank {rank} is offered behind node {parent}")
    return draft(table, text[-1], rows)


def _grown(table: Table, nodes: Sequence[tuple[int, int]]) -> Rows:
    """The nodes as far as the table has them: a row not evaluated yet may hide one."""
    depths, states, scores = ([0], [0], [0.0])
    for parent, rank in nodes:
        depth, state = depths[parent], states[parent]
        if state < 0 or depth == len(table.ids) or not 0 <= rank < table.ids.shape[-1]:
            break
        depths.append(depth + 1)
        states.append(int(table.follow[depth, state, rank]))
        scores.append(scores[parent] + float(table.log_q[depth, state, rank]))
    kept = nodes[: len(depths) - 1]
    return Rows(
        np.array([parent for parent, _ in kept], np.int32),
        np.array(depths[1:], np.int32),
        np.array([rank for _, rank in kept], np.int32),
        np.array(scores[1:]),
        np.array([states[parent] for parent, _ in kept], np.int32),
    )


def draft(table: Table, root: int, rows: Rows) -> Draft:
    """The rows of a table as a draft behind ``root``."""
    at = (rows.depths - 1, rows.states, rows.ranks)
    notes = dict(rows.notes)
    if table.transitions is not None:
        notes |= {MARGINAL: table.transitions.marginal[at], BEHIND: _behind(rows)}
    return Draft(
        tokens=np.concatenate([[root], table.ids[at]]).astype(np.int64),
        parents=np.concatenate([[-1], rows.parents]).astype(np.int32),
        depths=np.concatenate([[0], rows.depths]).astype(np.int32),
        ranks=np.concatenate([[0], rows.ranks + 1]).astype(np.int32),
        log_q=np.concatenate([[0.0], table.log_q[at]]).astype(np.float32),
        scores=np.concatenate([[0.0], rows.scores]).astype(np.float32),
        notes={k: np.concatenate([[np.nan], v]).astype(np.float32) for k, v in notes.items()},
        offers=None if table.transitions is None else _offers(table, rows),
    )


def _behind(rows: Rows) -> Array:
    """Which candidate of its depth (1 = the best) the parent is; the root is none: NaN."""
    return np.where(rows.depths > 1, rows.states + 1.0, np.nan)


def _offers(table: Table, rows: Rows) -> Offers:
    """The rows of the table that children of these nodes (and of the root) come from."""
    depths, count, _ = table.ids.shape
    at = (rows.depths - 1, rows.states, rows.ranks)
    follow = np.concatenate([[0], np.where(rows.depths < depths, table.follow[at], -1)])
    level = np.concatenate([[0], rows.depths])
    used, after = np.unique(np.where(follow >= 0, level * count + follow, -1), return_inverse=True)
    skipped = int(used[0] < 0)
    lists = (used[skipped:] // count, used[skipped:] % count)
    return Offers(table.ids[lists], table.log_q[lists], (after - skipped).astype(np.int32))


@numba.njit(cache=True)
def _sift_up(heap, key, slot):
    entry = heap[slot]
    while slot > 0:
        above = (slot - 1) >> 1
        other = heap[above]
        if key[other] > key[entry] or (key[other] == key[entry] and other < entry):
            break
        heap[slot] = other
        slot = above
    heap[slot] = entry


@numba.njit(cache=True)
def _sift_down(heap, key, size):
    slot, entry = 0, heap[0]
    while True:
        below = 2 * slot + 1
        if below >= size:
            break
        other = heap[below]
        if below + 1 < size:
            right = heap[below + 1]
            if key[right] > key[other] or (key[right] == key[other] and right < other):
                below, other = below + 1, right
        if key[entry] > key[other] or (key[entry] == key[other] and entry < other):
            break
        heap[slot] = other
        slot = below
    heap[slot] = entry


@numba.njit(cache=True)
def _best_first(log_q, follow, budget):
    """Pop the best prefix; push its next sibling and its first child. Entries are never reused,
    so an entry's number is the order of discovery and breaks ties."""
    depths, _, width = log_q.shape
    room = 2 * budget + 1
    key = np.empty(room, np.float64)
    base = np.empty(room, np.float64)  # the parent's score: a sibling's never needs a subtraction
    above = np.empty(room, np.int32)  # row of the parent
    level = np.empty(room, np.int32)  # 0-based depth
    state = np.empty(room, np.int32)  # row of that depth's table
    rank = np.empty(room, np.int32)
    heap = np.empty(room, np.int32)
    parents = np.empty(budget, np.int32)
    out_depths = np.empty(budget, np.int32)
    ranks = np.empty(budget, np.int32)
    scores = np.empty(budget, np.float64)
    states = np.empty(budget, np.int32)
    key[0], above[0], level[0], state[0], rank[0], heap[0] = log_q[0, 0, 0], 0, 0, 0, 0, 0
    base[0] = 0.0
    entries, size, row = 1, int(key[0] > -np.inf), 0
    while row < budget and size > 0:
        entry = heap[0]
        size -= 1
        heap[0] = heap[size]
        if size > 0:
            _sift_down(heap, key, size)
        depth, where, place, score = level[entry], state[entry], rank[entry], key[entry]
        parents[row], out_depths[row] = above[entry], depth + 1
        ranks[row], scores[row], states[row] = place, score, where
        row += 1
        if place + 1 < width and log_q[depth, where, place + 1] > -np.inf:
            base[entries] = base[entry]
            key[entries] = base[entry] + log_q[depth, where, place + 1]
            above[entries], level[entries], state[entries] = above[entry], depth, where
            rank[entries] = place + 1
            heap[size] = entries
            _sift_up(heap, key, size)
            entries += 1
            size += 1
        next_state = follow[depth, where, place]
        if depth + 1 < depths and next_state >= 0 and log_q[depth + 1, next_state, 0] > -np.inf:
            base[entries] = score
            key[entries] = score + log_q[depth + 1, next_state, 0]
            above[entries], level[entries], state[entries] = row, depth + 1, next_state
            rank[entries] = 0
            heap[size] = entries
            _sift_up(heap, key, size)
            entries += 1
            size += 1
    return parents[:row], out_depths[:row], ranks[:row], scores[:row], states[:row]


@numba.njit(cache=True)
def _ancestors(parents):
    count = len(parents)
    allowed = np.zeros((count, count), np.bool_)
    allowed[0, 0] = True
    for row in range(1, count):
        above = parents[row]
        for column in range(above + 1):
            allowed[row, column] = allowed[above, column]
        allowed[row, row] = True
    return allowed


def warm_up() -> None:
    """Compile the search loops (or load them from numba's cache), so that no round pays for it."""
    log_q = np.zeros((2, 2), np.float32)
    ancestor_mask(best_first(Candidates(np.zeros((2, 2), np.int64), log_q), [0], 3))


def ancestor_mask(draft: Draft) -> Array:
    """bool [N, N]: row i may see row j when j is i or one of its ancestors."""
    return _ancestors(draft.parents)
