"""Builders: a draft session, the text so far and a budget in, a draft out. Pure functions.

Every search runs on the table of known states (``core.drafting.states``), so one search serves
drafters that condition on nothing, on the token before or on the whole path. The loops are
compiled: with Python's heapq 1,024 nodes cost 4 ms, here a fraction of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from core.compiled import compiled
from core.drafting.session import (
    MIN_LISTED,
    NO_STATE,
    ROOT_STATE,
    Builder,
    DraftSession,
    FactorisedSession,
    FunctionBuilder,
)
from core.drafting.states import Rows, StateTable
from core.errors import UserError
from core.rounds.draft import CHILDLESS, NOT_ASKED, Array, Candidates, Draft, Proposal
from core.rounds.round import GREEDY, Sampling

if TYPE_CHECKING:
    from torch import Tensor

    from core.verification.sampling import TargetSampler


@dataclass(frozen=True)
class Chain(Builder):
    """The best token after the best token, at most ``budget`` of them (DFlash's own draft)."""

    reads: int = 1

    def __call__(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft:
        table = StateTable(session)
        states, state = [], ROOT_STATE
        while len(states) < budget and state != NO_STATE and not table.empty:
            table.expand(np.array([state], np.int32))
            if table.log_q[table.row_of[state], 0] == -np.inf:
                break
            states.append(state)
            state = int(table.next[table.row_of[state], 0])
        steps, first = np.arange(len(states), dtype=np.int32), np.zeros(len(states), np.int32)
        scores = np.cumsum(table.log_q[table.row_of[states], 0]) if states else np.zeros(0)
        rows = Rows(steps, steps + 1, first, scores, np.array(states, np.int32))
        return table.draft(text[-1], rows, self.reads)


@dataclass(frozen=True)
class SampledChain(Builder):
    """A chain of tokens drawn from q. The same temperature, top-k and top-p act on q as on p.

    Draws depend on nothing but the seed and the token's position in the text. They have noise of
    their own, as speculative sampling needs it (Leviathan et al., 2023), or, ``coupled``, the
    target's: its own token is then the drafted one with probability (1 − TV)/(1 + TV) at least.

    sampling  the run's; ``decode`` fills it in. Greedy, it is ``Chain``
    block     each round has noise of its own, as block verification needs it
    """

    sampling: Sampling = GREEDY
    coupled: bool = False
    block: bool = False
    reads: int = 1

    def for_run(self, sampling: Sampling) -> SampledChain:
        return replace(self, sampling=sampling)

    def __call__(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft:
        """Raises UserError for a drafter that cannot tell all of q."""
        # torch: only here
        from core.verification.sampling import (
            DRAFT_STREAM,
            TARGET_STREAM,
            TargetSampler,
            of_round,
        )

        if self.sampling.greedy:
            return Chain()(session, text, budget)
        own = of_round(DRAFT_STREAM, len(text) - 1) if self.block else DRAFT_STREAM
        sampler = TargetSampler(self.sampling, TARGET_STREAM if self.coupled else own)
        path, lists = [text[-1]], list[Candidates]()
        depth = min(budget, session.max_depth)
        while len(lists) < depth:
            whole = session.log_q(path)
            if whole is None:
                raise UserError("a sampled chain needs a drafter that tells all of q")
            found = _drawn(sampler, whole[-1:], len(text) + len(lists))
            if session.stops(path):  # the past alone decides it: the text stays the target's
                nothing = np.full_like(found.log_q, -np.inf)
                found = Candidates(np.zeros_like(found.ids), nothing)
            lists.append(found)
            if lists[-1].log_q[0] == -np.inf:  # nothing is drafted after this token
                break
            path.append(int(lists[-1].ids[0]))
        return _chain_of(path, lists, session.max_depth)


def _drawn(sampler: TargetSampler, log_q: Tensor, position: int) -> Candidates:
    """The tokens that win the draw from log q [1, V], the drawn one first; [S]."""
    best = sampler.scores(log_q, [position]).topk(min(MIN_LISTED, log_q.shape[-1]))
    odds = log_q.gather(1, best.indices).masked_fill(best.values == -math.inf, -math.inf)
    return Candidates(best.indices[0].cpu().numpy(), odds[0].float().cpu().numpy())


def _chain_of(path: list[int], lists: list[Candidates], last: int) -> Draft:
    """The chain of drawn tokens, with the lists they are the first of."""
    draft = Draft.chain(path, [float(each.log_q[0]) for each in lists[: len(path) - 1]])
    after = np.arange(len(path), dtype=np.int32)
    after[len(lists) :] = NOT_ASKED if len(lists) < last else CHILDLESS
    offered = Candidates(np.stack([c.ids for c in lists]), np.stack([c.log_q for c in lists]))
    return replace(draft, proposal=Proposal(offered, after, last, read=1))


@FunctionBuilder
def best_first(session: DraftSession, text: Sequence[int], budget: int) -> Draft:
    """The ``budget`` most probable prefixes under Π q (DDTree, Algorithm 1; TreeFlash, Figure 8).

    Tokens of q = 0 are never drafted, so a draft may be smaller than its budget. The draft is
    prefix-closed and optimal for the surrogate Σ_{u∈T} q(u). Ties go to the prefix found first: a
    sibling is found before a child, so equal scores prefer the shallower prefix.
    """
    table = StateTable(session)
    if table.empty:
        return table.draft(text[-1], Rows.none())
    rows = table.complete(lambda: _searched(table, budget))
    return table.draft(text[-1], rows)


def _searched(table: StateTable, budget: int, fixed: float = 0.0, node: float = 0.0) -> Rows:
    return Rows(*_best_first(table.log_q, table.next, table.row_of, budget, fixed, node))


@dataclass(frozen=True)
class AsFarAsItPays(Builder):
    """Best-first with a budget chosen every round, at most the one given (CaDDTree).

    A round of n nodes is expected to commit 1 + Σ q(u) tokens and takes ``fixed`` + ``node``·n
    milliseconds. Every node is less probable than the one before, so tokens per time rise to one
    maximum: the search ends before the first node that would lower them.

    note  name of the note that says what each node is worth: the tokens per time that it adds, over
          those of the nodes before it
    """

    fixed: float
    node: float
    note: str

    def __call__(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft:
        table = StateTable(session)
        costs = float(self.fixed), float(self.node)
        rows = Rows.none()
        if not table.empty:
            rows = table.complete(lambda: _searched(table, budget, *costs))
        gains = np.exp(rows.scores)
        tokens, spent = 1 + gains.cumsum() - gains, self.fixed + self.node * np.arange(len(gains))
        worth = {self.note: gains * spent / (self.node * tokens)}
        least = math.log(self.node * (1 + gains.sum()) / (self.fixed + self.node * len(gains)))
        return table.draft(text[-1], replace(rows, notes=worth), least=least)


class PaysAsMeasured(Builder):
    """``AsFarAsItPays`` at the cost of the run's own rounds.

    A line of milliseconds over nodes is fitted by least squares to the last rounds, and to two that
    are supposed: with no node and with ``FAR`` nodes, at the cost it began with. So a run of drafts
    of one size still has a slope.
    """

    FAR, KEPT, LEAST = 64, 32, 1e-3  # nodes, rounds, milliseconds

    def __init__(self, start: AsFarAsItPays):
        self.start = start
        self._supposed = [(0, start.fixed), (self.FAR, start.fixed + self.FAR * start.node)]
        self._rounds: list[tuple[int, float]] = []

    def for_run(self, sampling: Sampling) -> PaysAsMeasured:
        return PaysAsMeasured(self.start)

    def took(self, nodes: int, seconds: float) -> None:
        self._rounds = [*self._rounds[1 - self.KEPT :], (nodes, 1e3 * seconds)]

    @property
    def cost(self) -> AsFarAsItPays:
        """The cost of a round as fitted to the rounds so far; before the first, ``start``."""
        if not self._rounds:
            return self.start
        nodes, spent = np.array([*self._supposed, *self._rounds], np.float64).T
        away = nodes - nodes.mean()
        node = max(float(away @ spent / (away @ away)), self.LEAST)
        fixed = max(float(spent.mean() - node * nodes.mean()), self.LEAST)
        return replace(self.start, fixed=fixed, node=node)

    def __call__(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft:
        return self.cost(session, text, budget)


@dataclass(frozen=True)
class OptTree(Builder):
    """OPT-Tree (Wang et al., TACL 2025): level by level, the best ``budget`` nodes each, then the
    best of all levels.

    A prefix among the best B has only ancestors among the best B, so this finds what best-first
    finds. It stops sooner when a level adds too little.

    gain  a level that raises the expected accepted length of the draft by less is the last one
    """

    gain: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.gain < math.inf:  # also refuses NaN
            raise UserError(f"the option gain must be 0 or a number above it, not {self.gain}")

    def __call__(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft:
        table = StateTable(session)
        rows = Rows.none() if table.empty else _level_by_level(table, budget, self.gain)
        table.expand(table.next_states(rows))
        return table.draft(text[-1], rows)


@dataclass(frozen=True)
class DynamicTree(Builder):
    """EAGLE-2's tree: level by level, the ``top_k`` best children of the ``top_k`` best nodes; then
    the best ``budget`` of all of them.

    A level's other nodes get no children, so this is not the draft of the most probable prefixes.
    What follows the draft's leaves is never asked for: that would be one more forward.
    """

    top_k: int = 10

    @property
    def reads(self) -> int:
        """Tokens it looks at after a node, whatever the budget."""
        return self.top_k

    def __call__(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft:
        table = StateTable(session)
        rows = Rows.none() if table.empty else _level_by_level(table, budget, beam=self.top_k)
        return table.draft(text[-1], rows, self.reads, self.top_k)


@dataclass(frozen=True, eq=False)
class _Level:
    """Nodes of one depth, best first. Parents are numbered in the order nodes were found."""

    parents: Array
    ranks: Array
    scores: Array
    states: Array  # each is a child of


def _level_by_level(
    table: StateTable, budget: int, gain: float = 0.0, beam: int | None = None
) -> Rows:
    """The best nodes of each level, then of all levels. A parent's row is known only at the end.

    ``beam``: only so many nodes of a level get children, and only so many each.
    """
    numbers, states, scores = np.zeros(1, int), np.array([ROOT_STATE]), np.zeros(1)
    levels: list[_Level] = []
    made, reached = 1, 0.0
    while len(numbers):
        table.expand(states)
        place = table.row_of[states]
        level = _best_children(table, place, scores, budget, beam, numbers, states)
        levels.append(level)
        best = np.sort(np.exp(np.concatenate([each.scores for each in levels])))[::-1]
        expected = best[:budget].sum()
        leads = table.next[table.row_of[level.states], level.ranks]
        inner = np.flatnonzero(leads >= 0)[:beam]
        numbers = np.arange(made, made + len(leads))[inner]
        states, scores = leads[inner], level.scores[inner]
        made += len(leads)
        if 0 < gain > expected - reached:  # with gain 0 rounding alone must not end it
            break
        reached = expected
    return _best_of_levels(levels, budget, made)


def _best_children(
    table: StateTable,
    place: Array,
    scores: Array,
    budget: int,
    beam: int | None,
    numbers: Array,
    states: Array,
) -> _Level:
    """The children that may still be among the best ``budget``, and those that get children."""
    above = scores[:, None] + table.log_q[place, :beam].astype(np.float64)
    best = np.argsort(-above.ravel(), kind="stable")[: max(budget, beam or 0)]
    best = best[np.isfinite(above.ravel()[best])]
    parent, rank = best // above.shape[1], best % above.shape[1]
    return _Level(numbers[parent], rank, above.ravel()[best], states[parent])


def _best_of_levels(levels: list[_Level], budget: int, made: int) -> Rows:
    parents, ranks, scores, states = (
        np.concatenate([getattr(level, name) for level in levels])
        for name in ("parents", "ranks", "scores", "states")
    )
    depths = np.repeat(np.arange(1, len(levels) + 1), [len(level.parents) for level in levels])
    keep = np.sort(np.argsort(-scores, kind="stable")[:budget])
    row_of = np.zeros(made, np.int32)
    row_of[keep + 1] = np.arange(1, len(keep) + 1)
    return Rows(
        row_of[parents[keep]],
        depths[keep].astype(np.int32),
        ranks[keep].astype(np.int32),
        scores[keep],
        states[keep].astype(np.int32),
    )


def grow(
    session: DraftSession,
    text: Sequence[int],
    nodes: Sequence[tuple[int, int]],
    partial: bool = False,
) -> Draft:
    """A draft from (parent row, rank) pairs, ranks from 0 and parents before children: what a
    builder of one's own ends with.

    Tokens, depths, log q and scores (Σ log q along the path) are filled in. A pair that the session
    does not offer raises ValueError; with ``partial`` it is left out, and all that follows it.
    """
    table = StateTable(session)
    missing: list[tuple[int, int]] = []
    rows = table.complete(lambda: _grow(table, nodes, missing))
    if missing and not partial:
        parent, rank = missing[0]
        raise ValueError(f"nothing of rank {rank} is offered after node {parent}")
    return table.draft(text[-1], rows)


def _grow(
    table: StateTable, nodes: Sequence[tuple[int, int]], missing: list[tuple[int, int]]
) -> Rows:
    """The nodes as far as their states are known; ``missing`` are those never offered."""
    rows = [0]  # of each node, −1 where it is left out
    parents, depths, ranks, leads, scores, states = [0], [0], [0], [ROOT_STATE], [0.0], [NO_STATE]
    missing.clear()
    for parent, rank in nodes:
        above = rows[parent]
        state = leads[above] if above >= 0 else NO_STATE
        place = int(table.row_of[state]) if state >= 0 else -1
        unknown = state >= 0 and place < 0
        inside = place >= 0 and 0 <= rank < table.ids.shape[-1]
        if not inside or table.log_q[place, rank] == -np.inf:
            if not unknown:
                missing.append((parent, rank))
            rows.append(-1)
            continue
        rows.append(len(parents))
        parents.append(above)
        depths.append(depths[above] + 1)
        ranks.append(rank)
        leads.append(int(table.next[place, rank]))
        scores.append(scores[above] + float(table.log_q[place, rank]))
        states.append(state)
    return Rows(
        np.array(parents[1:], np.int32),
        np.array(depths[1:], np.int32),
        np.array(ranks[1:], np.int32),
        np.array(scores[1:]),
        np.array(states[1:], np.int32),
    )


@compiled
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


@compiled
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


@compiled
def _best_first(log_q, leads, row_of, budget, fixed, node):
    """Pop the best prefix; push its next sibling and its first child. Entries are never reused,
    so an entry's number is the order of discovery and breaks ties. Unknown states are leaves.
    Where a node costs something (``AsFarAsItPays``), the first that does not pay ends it."""
    width = log_q.shape[1]
    room = 2 * budget + 1
    key = np.empty(room, np.float64)
    base = np.empty(room, np.float64)  # the parent's score: a sibling's never needs a subtraction
    above = np.empty(room, np.int32)  # row of the parent
    level = np.empty(room, np.int32)  # depth
    state = np.empty(room, np.int32)  # the state it is a child of
    rank = np.empty(room, np.int32)
    heap = np.empty(room, np.int32)
    parents = np.empty(budget, np.int32)
    depths = np.empty(budget, np.int32)
    ranks = np.empty(budget, np.int32)
    scores = np.empty(budget, np.float64)
    states = np.empty(budget, np.int32)
    key[0], above[0], level[0], state[0], rank[0], heap[0] = log_q[row_of[0], 0], 0, 1, 0, 0, 0
    base[0] = 0.0
    entries, size, row = 1, int(key[0] > -np.inf), 0
    tokens = 1.0
    while row < budget and size > 0:
        entry = heap[0]
        if node > 0.0:
            gain = np.exp(key[entry])
            if gain * (fixed + node * row) < node * tokens:
                break
            tokens += gain
        size -= 1
        heap[0] = heap[size]
        if size > 0:
            _sift_down(heap, key, size)
        where, place, score = state[entry], rank[entry], key[entry]
        known = row_of[where]
        parents[row], depths[row] = above[entry], level[entry]
        ranks[row], scores[row], states[row] = place, score, where
        row += 1
        if place + 1 < width and log_q[known, place + 1] > -np.inf:
            base[entries] = base[entry]
            key[entries] = base[entry] + log_q[known, place + 1]
            above[entries], level[entries], state[entries] = above[entry], level[entry], where
            rank[entries] = place + 1
            heap[size] = entries
            _sift_up(heap, key, size)
            entries += 1
            size += 1
        then = leads[known, place]
        if then >= 0 and row_of[then] >= 0 and log_q[row_of[then], 0] > -np.inf:
            base[entries] = score
            key[entries] = score + log_q[row_of[then], 0]
            above[entries], level[entries], state[entries] = row, level[entry] + 1, then
            rank[entries] = 0
            heap[size] = entries
            _sift_up(heap, key, size)
            entries += 1
            size += 1
    return parents[:row], depths[:row], ranks[:row], scores[:row], states[:row]


def warm_up() -> Draft:
    """Compile the search, or load it from numba's cache, so that no round pays for it."""
    lists = Candidates(np.zeros((2, 2), np.int64), np.zeros((2, 2), np.float32))
    return best_first(FactorisedSession(lists), [0], 3)
