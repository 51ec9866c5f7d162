"""The best draft in hindsight: how much of the gap is the tree's and how much the drafter's.

The text after a round's root is known from the rounds that follow. With it the best tree of B nodes
is easily told: the text itself, as far as every token is in the lists that this budget reads.
Between what a round accepted and what it could have accepted stand three losses:

    the builder   the most probable prefixes under the marginal q would have accepted more
    the order     the tokens were listed, and B other prefixes seemed more probable
    the lists     the first token that is in none of these lists, and all after it
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.rounds.draft import Array, Candidates
from core.rounds.round import Round
from core.traces.schema import Trace


@dataclass(frozen=True)
class Hindsight:
    """One round; all numbers are nodes of the text's path.

    accepted  what the round accepted
    marginal  what best-first over the marginal lists with the same budget would have; None: the
              drafter has no lists by depth
    listed    as far as every token is in the drafter's lists
    possible  min(B, L), or less where the known text or the recorded lists end
    """

    accepted: int
    marginal: int | None
    listed: int
    possible: int


def hindsight(record: Round, text: Sequence[int], budget: int) -> Hindsight | None:
    """A round against the tokens after its root, of which there may be more than it could draft.

    ``budget``: what it was allowed. None for a round that recorded no lists.
    """
    proposal = record.proposal
    if proposal is None or record.draft.nodes == 0:
        return None
    most = min(budget, record.max_depth or budget, len(text))
    ranks, possible = list[int](), most
    for depth, token in enumerate(text[:most]):
        listed = _list_after(record, depth)
        if listed is None:  # after a node that was not asked: nobody knows
            possible = depth
            break
        found = np.flatnonzero(listed.ids == token)
        if not len(found):
            break
        ranks.append(int(found[0]))
    marginal, by_depth = None, proposal.by_depth
    if by_depth is not None:
        path = list(_ranks(by_depth, text[:most]))
        marginal = min(most_probable(by_depth.log_q, path, budget), possible)
    listed = max(len(ranks), record.accepted)  # a recorded list may be cut after what was drafted
    return Hindsight(record.accepted, marginal, listed, max(possible, listed))


def _list_after(record: Round, depth: int) -> Candidates | None:
    """The drafter's list after so many of the text's tokens; None: not recorded."""
    proposal = record.proposal
    assert proposal is not None
    if depth < len(record.verdict.path):
        return record.candidates_after(record.verdict.path[depth])
    if not proposal.factorised_lists or proposal.by_depth is None:
        return None
    return Candidates(proposal.by_depth.ids[depth], proposal.by_depth.log_q[depth])


def _ranks(lists: Candidates, text: Sequence[int]) -> Iterator[int]:
    """The place, from 0, of every token in the list of its depth, until one is in none."""
    for depth, token in enumerate(text[: len(lists.ids)]):
        found = np.flatnonzero((lists.ids[depth] == token) & np.isfinite(lists.log_q[depth]))
        if not len(found):
            return
        yield int(found[0])


def most_probable(log_q: Array, path: Sequence[int], budget: int) -> int:
    """How many nodes of a path are among the ``budget`` most probable prefixes.

    log_q  [L, K], best first; ``path``: ranks from 0 at depths 1, 2, …
    """
    rows = log_q.tolist()
    # −score, number (ties go to the prefix found first), its parent's score, depth, rank, on path
    heap = [(-rows[0][0], 0, 0.0, 0, 0, True)] if rows and rows[0] else []
    numbers, found = 1, 0
    for _ in range(budget):
        if not heap or found == len(path):
            break
        score, _, base, depth, rank, above = heapq.heappop(heap)
        on_path = above and rank == path[depth] if depth < len(path) else False
        found += on_path
        nexts = [(base, depth, rank + 1, above), (-score, depth + 1, 0, on_path)]
        for before, level, place, along in nexts:
            if level < len(rows) and place < len(rows[level]) and rows[level][place] > -np.inf:
                entry = (-(before + rows[level][place]), numbers, before, level, place, along)
                heapq.heappush(heap, entry)
                numbers += 1
    return found


def of_trace(trace: Trace) -> Iterator[tuple[int, Hindsight]]:
    """The number of every round that recorded lists, and what hindsight says of it.

    Nothing of a denoising run, or where the text is not known to be one.
    """
    texts = [
        [*record.draft.tokens[list(record.verdict.path[1:])].tolist(), record.verdict.bonus]
        for record in trace.rounds
        if record.block is None
    ]
    if len(texts) < len(trace.rounds) or len(trace.sound) < len(trace.rounds):
        return
    after = [token for text in texts for token in text]
    asked = trace.header.settings.get("budget")
    start = 0
    for record, text in zip(trace.rounds, texts, strict=True):
        budget = asked if type(asked) is int and asked > 0 else record.draft.nodes
        ahead = after[start : start + (record.max_depth or budget)]
        start += len(text)
        known = [token for token in ahead if token >= 0]
        found = hindsight(record, known, max(budget, record.draft.nodes))
        if found is not None:
            yield record.number, found
