"""The steps of one round, one by one: functions of a recorded round, for the course's figures.

The product's own loops (``core.drafting``, ``core.verification``, ``core.models.cache``) are
compiled or run on tensors, and do not say what they do. Here the same steps are taken one by one;
tests check that they end in the very draft, mask and cache rows that those make.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from core.rounds.draft import Array, Candidates, Draft, DraftRows
from core.rounds.round import Round, Verdict
from core.verification.walk import walk

NOBODY = -1  # a verdict that was not given yet


# ── best-first, node by node (DDTree, Algorithm 1) ───────────────────────────────────────────────


@dataclass(frozen=True)
class SeenPrefix:
    """A prefix the search has seen: a place in the tree, drafted only if it is popped.

    parent  the entry that must be popped before, −1: the root
    rank    from 0, as the candidates are ordered
    base    Σ log q of its parent's path; ``score`` is its own
    """

    parent: int
    depth: int
    rank: int
    base: float
    score: float


@dataclass(frozen=True)
class Pop:
    """One turn of the search: the best entry leaves the queue and enters the tree.

    pushed  its next sibling and its first child, as far as there are any
    queue   the entries that wait afterwards, best first
    """

    entry: int
    pushed: tuple[int, ...]
    queue: tuple[int, ...]


@dataclass(frozen=True)
class Search:
    """Best-first over one list per depth. Entries are numbered as they are found."""

    entries: tuple[SeenPrefix, ...]
    pops: tuple[Pop, ...]


def search(candidates: Candidates, budget: int) -> Search:
    """Every pop of ``core.drafting.builders.best_first``, for a factorised drafter."""
    log_q = candidates.log_q.astype(np.float64)
    entries = [SeenPrefix(-1, 1, 0, 0.0, float(log_q[0, 0]))] if log_q[0, 0] > -np.inf else []
    heap = [(-entry.score, number) for number, entry in enumerate(entries)]
    pops: list[Pop] = []
    while heap and len(pops) < budget:
        _, number = heapq.heappop(heap)
        found = _after(entries[number], number, log_q)
        pushed = tuple(range(len(entries), len(entries) + len(found)))
        entries += found
        for new, entry in zip(pushed, found, strict=True):
            heapq.heappush(heap, (-entry.score, new))
        pops.append(Pop(number, pushed, tuple(waiting for _, waiting in sorted(heap))))
    return Search(tuple(entries), tuple(pops))


def _after(entry: SeenPrefix, number: int, log_q: Array) -> list[SeenPrefix]:
    """The next sibling and the first child of a popped entry."""
    found, (depths, width) = [], log_q.shape
    row = log_q[entry.depth - 1]
    if entry.rank + 1 < width and row[entry.rank + 1] > -np.inf:
        score = entry.base + float(row[entry.rank + 1])
        found.append(SeenPrefix(entry.parent, entry.depth, entry.rank + 1, entry.base, score))
    if entry.depth < depths and log_q[entry.depth, 0] > -np.inf:
        score = entry.score + float(log_q[entry.depth, 0])
        found.append(SeenPrefix(number, entry.depth + 1, 0, entry.score, score))
    return found


def queue_tree(found: Search, candidates: Candidates, root: int) -> Draft:
    """All entries as one tree: row n + 1 is entry n. A parent is found before its children."""
    depths = np.array([entry.depth for entry in found.entries], np.int32)
    ranks = np.array([entry.rank for entry in found.entries], np.int32)
    scores = np.array([entry.score for entry in found.entries], np.float32)
    parents = np.array([entry.parent + 1 for entry in found.entries], np.int32)
    at = (depths - 1, ranks)
    return Draft(
        tokens=np.concatenate([[root], candidates.ids[at]]).astype(np.int64),
        parents=np.concatenate([[-1], parents]).astype(np.int32),
        depths=np.concatenate([[0], depths]).astype(np.int32),
        ranks=np.concatenate([[0], ranks + 1]).astype(np.int32),
        log_q=np.concatenate([[0.0], candidates.log_q[at]]).astype(np.float32),
        scores=np.concatenate([[0.0], scores]).astype(np.float32),
    )


def no_verdict(draft: DraftRows) -> Verdict:
    """Before the target has spoken: nothing but the root is known."""
    return Verdict((0,), np.full(len(draft), NOBODY, np.int64))


# ── the same round with a smaller budget, and with other answers ─────────────────────────────────


def answered(record: Round, draft: Draft, tokens: Sequence[int]) -> Round:
    """The round with this draft and the target's own token after each of its rows."""
    verdict = walk(draft, lambda row: int(tokens[row]))
    committed = (*draft.tokens[list(verdict.path[1:])].tolist(), verdict.bonus)
    return replace(record, draft=draft, verdict=verdict, committed=committed, probe=None)


def first_nodes(record: Round, budget: int) -> Round:
    """The round as a smaller draft budget makes it: best-first takes no node back, so its tree is
    the beginning of the larger one, and the target's answers there are the same."""
    rows, probs = range(budget + 1), record.target_probs
    draft, answers = tree_of(record).some(rows), record.verdict.target_tokens.tolist()
    return replace(answered(record, draft, answers), target_probs=probs and probs.some(rows))


# ── one forward pass ─────────────────────────────────────────────────────────────────────────────


def mask(draft: DraftRows) -> Array:
    """bool [N, N]: row i may see its ancestors and itself."""
    allowed = np.zeros((len(draft), len(draft)), bool)
    for row in range(len(draft)):
        allowed[row, list(draft.path(row))] = True
    return allowed


# ── the walk, and what stays in the cache ────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Visit:
    """One step of the verifier's walk: at ``row`` the target says ``choice``; ``child`` carries it,
    or nobody does and the walk ends."""

    row: int
    choice: int
    child: int | None


def visits(record: Round) -> tuple[Visit, ...]:
    """The walk of a round, the stop last."""
    path, choices = record.verdict.path, record.verdict.target_tokens
    steps = [Visit(row, int(choices[row]), child) for row, child in pairwise(path)]
    return (*steps, Visit(path[-1], int(choices[path[-1]]), None))


def moves(record: Round) -> tuple[tuple[int, int], ...]:
    """Cache rows kept: (scratch row it stands in, committed row it goes to), counted from the
    first scratch row."""
    return tuple((row, place) for place, row in enumerate(record.verdict.path))


def tree_of(record: Round) -> Draft:
    """The round's draft, which the course's runs all draft as trees."""
    assert isinstance(record.draft, Draft)
    return record.draft


# ── the shape of a tree ──────────────────────────────────────────────────────────────────────────


def below(draft: DraftRows, row: int) -> frozenset[tuple[int, ...]]:
    """Everything drafted after a row, as token paths that begin there."""
    found: set[tuple[int, ...]] = set()
    for child in draft.children[row]:
        token = int(draft.tokens[child])
        found.add((token,))
        found |= {(token, *rest) for rest in below(draft, child)}
    return frozenset(found)


def nesting_faults(draft: DraftRows) -> tuple[tuple[int, int], ...]:
    """Siblings (the better, the worse) where the worse has something after it that the better has
    not. A tree without such pairs is nested (TreeFlash, Appendix D)."""
    pairs = []
    for family in draft.children:
        ordered = sorted(family, key=lambda row: int(draft.ranks[row]))
        after = [below(draft, row) for row in ordered]
        pairs += [
            (ordered[i], ordered[j])
            for j in range(len(ordered))
            for i in range(j)
            if not after[j] <= after[i]
        ]
    return tuple(pairs)


# ── sampling ─────────────────────────────────────────────────────────────────────────────────────


def noise(seed: int, position: int, tokens: Sequence[int]) -> list[float]:
    """The Gumbel noise that ``core.verification.sampling`` adds to these tokens at a position."""
    key = np.array([seed % 2**64, position], np.uint64)
    uniform = np.random.Generator(np.random.Philox(key=key)).random(max(tokens) + 1) + 2.0**-54
    return [float(np.float32(-np.log(-np.log(uniform[token])))) for token in tokens]


# ── DART's score ─────────────────────────────────────────────────────────────────────────────────


def level_weight(level: int, power: float) -> float:
    """Return the weight of a level, from level 0 (DART, Appendix D)."""
    return (level + 1) ** -power


def same_token(record: Round) -> list[int]:
    """The rows of one depth that carry the same token: as many as there are anywhere, in order."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in range(1, len(record.draft)):
        found[int(record.draft.depths[row]), int(record.draft.tokens[row])].append(row)
    return max(found.values(), key=len)
