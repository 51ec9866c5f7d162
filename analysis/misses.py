"""Why the target's token was not drafted where a round ended, and what would have drafted it.

The answer is simulated from what the drafter proposed in that round. It is exact where the lists of
the proposal depend on the depth alone and the draft is that of best-first search: then a larger
budget only adds nodes. Light: never torch, and numba only where a draft is searched anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.numbers import percent
from core.drafting.session import FactorisedSession
from core.rounds.draft import Array, Candidates, Draft, DraftRows, Proposal
from core.rounds.round import OUTSIDE, PRUNED, Round
from core.verification.simulate import verdict

MOST = 4096  # nodes of the largest draft that is tried
SMALLEST = 1e-4  # of a probability that is not written as a power of ten


@dataclass(frozen=True)
class Miss:
    """The target's token at the end of a walk, and what it would have taken to draft it.

    token      its id
    reason     ``Round.stop_reason``
    p, q       its probability after the parent under the target and the drafter; None: not known
    rank       its place in q after the parent, from 1; None: not known
    path_q     Π q from the root to it; ``cut_off`` is the lowest of a drafted node
    budget     drafted nodes from which on it is drafted; None: no budget, or not known
    accepted   what the round accepts then; None: not known, as the text ends
    exact      whether ``budget`` and ``accepted`` are what a real round of that budget does; else
               they are the least possible
    """

    token: int
    reason: str
    p: float | None
    q: float | None
    rank: int | None
    path_q: float | None
    cut_off: float | None
    budget: int | None
    accepted: int | None
    exact: bool


def miss(record: Round, after: Sequence[int] = ()) -> Miss | None:
    """What the walk of a round ended at; None for a draft graph or where the text ends.

    ``after`` are the tokens of the text behind the bonus token, as far as they are known.
    """
    draft, wanted = record.draft, record.verdict.bonus
    if not isinstance(draft, Draft) or wanted < 0:
        return None
    end = record.verdict.path[-1]
    listed = record.candidates_after(end)
    at = np.flatnonzero(listed.ids == wanted) if listed is not None else np.zeros(0, np.int64)
    log_q = float(listed.log_q[at[0]]) if listed is not None and len(at) else None
    above = float(draft.log_q[list(record.verdict.path[1:])].astype(np.float64).sum())
    budget, accepted, exact = None, None, False
    sums = _sums(draft)
    if record.stop_reason == PRUNED and log_q is not None and _ranks_by_q(draft, sums):
        budget, accepted, exact = _needed(record, above + log_q, after)
    return Miss(
        wanted, record.stop_reason, _p(record, end), _exp(log_q),
        int(at[0]) + 1 if len(at) else _rank(record, end),
        _exp(None if log_q is None else above + log_q),
        _exp(float(sums[1:].min())) if draft.nodes else None, budget, accepted, exact,
    )  # fmt: skip


def sentence(found: Miss, piece: Callable[[int], str], accepted: int) -> str:
    """The miss in words; ``piece`` gives a token's text, ``accepted`` what the round did accept."""
    token = f"the target wanted {piece(found.token)} (p {percent(found.p)})"
    if found.rank is None:
        return f"{token}, {found.reason}"
    place = f"{token}, {_ordinal(found.rank)} in q"
    if found.q is not None:
        place += f" ({percent(found.q)})"
    if found.reason == OUTSIDE:
        return f"{place}: outside the candidates that the builder sees, so no budget drafts it"
    if found.budget is None or found.path_q is None:
        return f"{place}, {found.reason}"
    least = "" if found.exact else "at least "
    then = f"B = {found.budget} drafts it" if found.exact else f"it takes B ≥ {found.budget}"
    if found.accepted is not None:
        then += f", and the round accepts {least}{found.accepted} instead of {accepted}"
    lower = found.cut_off is not None and found.path_q < found.cut_off
    cut = f", below the cut-off {_small(found.cut_off)}" if lower and found.cut_off else ""
    return f"{place}: pruned by the budget. Its path has q {_small(found.path_q)}{cut}; {then}"


def _needed(record: Round, score: float, after: Sequence[int]) -> tuple[int, int | None, bool]:
    """(budget, accepted, exact) that would have drafted the token."""
    from core.drafting.builders import best_first  # compiled by numba: only where it is needed

    proposal = record.proposal
    assert proposal is not None
    path = record.draft.tokens[list(record.verdict.path[1:])].tolist()
    text = [*path, record.verdict.bonus, *after]
    if proposal.factorised_lists and _is_best_first(record, proposal):
        session, root = FactorisedSession(proposal.lists), [int(record.draft.tokens[0])]
        budget = record.draft.nodes
        while budget < MOST:
            budget = min(MOST, 2 * budget)
            draft = best_first(session, root, budget)
            row = _row_of(draft, [*path, record.verdict.bonus])
            if row is not None:
                return row, *_outcome(draft, row, text, len(proposal.lists.ids[0]))
    better = sum(_better(lists, above, score) for lists, above in _lists(record, proposal))
    return max(record.draft.nodes, better) + 1, len(path) + 1, False


def _outcome(draft: Draft, budget: int, text: Sequence[int], width: int) -> tuple[int | None, bool]:
    """(accepted, exact) of the draft's first ``budget`` rows along a text."""
    decided = verdict(draft, text)
    accepted = sum(row <= budget for row in decided.path[1:])
    ends = accepted < len(text)  # else the text may go on as the draft does
    whole = bool((draft.ranks[1 : budget + 1] < width).all())  # a longer list changes nothing
    return accepted, whole and ends


def _is_best_first(record: Round, proposal: Proposal) -> bool:
    """Whether best-first search drafts these very nodes."""
    from core.drafting.builders import best_first

    draft = record.draft
    again = best_first(FactorisedSession(proposal.lists), [int(draft.tokens[0])], draft.nodes)
    same = len(again) == len(draft) and np.array_equal(again.parents, draft.parents)
    return same and np.array_equal(again.tokens, draft.tokens)


def _row_of(draft: Draft, path: Sequence[int]) -> int | None:
    row: int | None = 0
    for token in path:
        row = None if row is None else draft.child(row, token)
    return row


def _rank(record: Round, end: int) -> int | None:
    """Of the whole of q, where the round measured it."""
    depth = int(record.draft.depths[end])
    known = record.probe is not None and depth < len(record.probe.rank_q)
    return int(record.probe.rank_q[depth]) or None if known and record.probe else None


def _ranks_by_q(draft: Draft, sums: Array) -> bool:
    """Whether the builder ranks by Σ log q, so that a budget follows from it."""
    return bool(np.allclose(draft.scores[1:], sums[1:], rtol=1e-3, atol=1e-3))


def _lists(record: Round, proposal: Proposal) -> list[tuple[Candidates, float]]:
    """Each list that the round asked for after a drafted row, with Σ log q down to that row."""
    sums = _sums(record.draft)
    asked = ((proposal.candidates(row), float(sums[row])) for row in range(len(sums)))
    return [(lists, above) for lists, above in asked if lists is not None]


def _better(lists: Candidates, above: float, score: float) -> int:
    return int((lists.log_q.astype(np.float64) + above > score).sum())


def _sums(draft: DraftRows) -> Array:
    """Σ log q from the root to each row, float64 [N]."""
    sums: Array = np.zeros(len(draft))
    for row in range(1, len(draft)):
        sums[row] = sums[draft.parents[row]] + float(draft.log_q[row])
    return sums


def _p(record: Round, row: int) -> float | None:
    if record.target_probs is None:
        return None
    at = np.flatnonzero(record.target_probs.top_ids[row] == record.verdict.bonus)
    return _exp(float(record.target_probs.top_log_p[row][at[0]])) if len(at) else None


def _exp(log: float | None) -> float | None:
    return None if log is None or math.isnan(log) else math.exp(min(log, 0.0))


def _small(chance: float) -> str:
    return percent(chance) if chance >= SMALLEST * 10 else f"{chance:.1e}".replace("e-0", "e-")


def _ordinal(count: int) -> str:
    teen = 10 < count % 100 < 14
    return f"{count}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(count % 10, 'th')}"
