"""Why the target's token was not drafted where a round ended, and what would have drafted it.

The answer follows from what the drafter proposed in that round, for drafts that hold the most
probable paths: best-first search, whatever ends it. Where the lists depend on the depth alone the
larger draft is searched anew; else the least it would take is counted. No other builder's drafts
follow from q alone, so nothing is said of them. Light: never torch, and numba only where a draft is
searched anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.numbers import ordinal, percent, plural, tiny
from core.drafting.session import FactorisedSession
from core.rounds.causes import Cause
from core.rounds.draft import Array, Draft, Proposal
from core.rounds.round import Round

MOST = 4096  # nodes of the largest draft that is tried
CLOSE = 1e-4  # log q: scores are float32
_LEFT_OUT = {
    Cause.SHORT_LIST: "beyond what this budget lists",
    Cause.PRUNED: "pruned by the budget",
    Cause.STOPPED: "left out by the builder's own rule",
}


@dataclass(frozen=True)
class Miss:
    """The target's token at the end of a walk, and what it would have taken to draft it.

    token     its id
    reason    ``Round.stop_reason``
    p, q      its probability after the parent under the target and the drafter; None: not known
    rank      its place in q after the parent, from 1; None: it has none, or that is not known
    path_q    Π q from the root to it
    cut_off   Π q of the least probable drafted path
    read      tokens that the builder reads of a list whatever its budget; None: as the budget says
    nodes     drafted nodes from which on it is drafted; None: not known
    exact     whether it is drafted with so many; else more may be needed, since lists that a larger
              budget makes longer may hold better nodes
    """

    token: int
    reason: Cause
    p: float | None = None
    q: float | None = None
    rank: int | None = None
    path_q: float | None = None
    cut_off: float | None = None
    read: int | None = None
    nodes: int | None = None
    exact: bool = False


def miss(record: Round) -> Miss | None:
    """Find the token that ended a round's walk; None for a draft graph or where the text ends."""
    draft, wanted = record.draft, record.verdict.bonus
    if not isinstance(draft, Draft) or wanted < 0 or record.ends_inside:
        return None
    end, reason = record.verdict.path[-1], record.stop_reason
    p = _exp(record.log_p_after(end, wanted))
    proposal, listed, rank = record.proposal, record.candidates_after(end), record.wanted_rank
    if proposal is None or listed is None:
        return Miss(wanted, reason, p, rank=rank or None, read=proposal and proposal.read)
    ids, sums = listed.ids.tolist(), _sums(draft)
    log_q = float(listed.log_q[ids.index(wanted)]) if wanted in ids else None
    score = None if log_q is None else float(sums[end]) + log_q
    found: tuple[int | None, bool] = (None, False)
    if rank and reason in _LEFT_OUT and _holds_the_best(draft, proposal, sums):
        path = draft.tokens[list(record.verdict.path[1:])].tolist()
        if score is None:
            found = _unlisted(draft, proposal, sums, end, path, rank - len(listed.ids))
        else:
            found = _pruned(draft, proposal, sums, score, [*path, wanted])
    lowest = _exp(float(sums.min()))
    odds, path_q = _exp(log_q), _exp(score)
    return Miss(wanted, reason, p, odds, rank or None, path_q, lowest, proposal.read, *found)


def sentence(found: Miss, piece: Callable[[int], str], accepted: int) -> str:
    """The miss in words; ``piece`` gives a token's text, ``accepted`` what the round did accept."""
    ended = "the round ended with" if found.reason is Cause.REFUSED else "the target wanted"
    told = f"{ended} {piece(found.token)}"
    if found.p is not None:
        told += f" (p {percent(found.p)})"
    if found.rank is None:
        return f"{told}, {found.reason.words}"
    told += f", the drafter's {ordinal(found.rank)} choice"
    if found.q is not None:
        told += f" (q {percent(found.q)})"
    if found.reason in (Cause.OUTSIDE, Cause.NOT_READ) and found.read is not None:
        return f"{told}: the builder reads {found.read} of a list, so no budget drafts it"
    if found.nodes is None:
        return f"{told}, {found.reason.words}"
    told += f": {_LEFT_OUT[found.reason]}"
    if found.path_q is not None:
        told += f". Its path has q {tiny(found.path_q)}"
        if found.cut_off is not None and found.path_q < found.cut_off:
            told += f", below the cut-off {tiny(found.cut_off)}"
    # not "B =": some builders draft fewer nodes than the run's B
    told += "; best-first" if found.reason is Cause.STOPPED else "; it"
    told += f" needs {'' if found.exact else '≥ '}{plural(found.nodes, 'node')}"
    if not found.exact:
        return told
    return f"{told}, and the round then accepts {accepted + 1} instead of {accepted}"


def _pruned(
    draft: Draft, proposal: Proposal, sums: Array, score: float, wanted: Sequence[int]
) -> tuple[int, bool]:
    """Find what drafts a token with Σ log q ``score``, the last of ``wanted`` after the root: nodes
    and whether they are exact, as in ``Miss``."""
    from core.drafting.builders import best_first  # compiled by numba: only where it is needed

    nodes = draft.nodes if proposal.factorised_lists else MOST
    while nodes < MOST:
        nodes = min(MOST, 8 * nodes)
        larger = best_first(FactorisedSession(proposal.lists), [int(draft.tokens[0])], nodes)
        row = _row_of(larger, wanted)
        if row is not None:  # the last of so many; a longer list may change them
            whole = larger.ranks[1 : row + 1] < proposal.lists.ids.shape[1]
            return row, bool(whole.all())
    return draft.nodes + _left_out(draft, proposal, sums, score) + 1, False


def _unlisted(
    draft: Draft, proposal: Proposal, sums: Array, end: int, path: list[int], behind: int
) -> tuple[int, bool]:
    """Find what drafts a token ``behind`` ranks after the list of the row ``end``: it comes after
    the list's last token, and after the siblings between."""
    listed = proposal.candidates(end)
    assert listed is not None
    last, score = int(listed.ids[-1]), float(sums[end] + listed.log_q[-1])
    nodes, _ = _pruned(draft, proposal, sums, score, [*path, last])
    return max(draft.nodes + 1, nodes + behind), False


def _row_of(draft: Draft, path: Sequence[int]) -> int | None:
    """The row at the end of a path of tokens. Not by ``children``, which a large draft lists for
    all of its rows."""
    row = 0
    for token in path:
        found = np.flatnonzero((draft.parents == row) & (draft.tokens == token))
        if not len(found):
            return None
        row = int(found[0])
    return row


def _holds_the_best(draft: Draft, proposal: Proposal, sums: Array) -> bool:
    """Whether the builder ranks by Σ log q, and nothing that was listed and left out is better. One
    that reads a fixed number, or goes on from some nodes alone, drafts others if it may have more.
    """
    if proposal.read is not None or proposal.beam is not None:
        return False
    by_q = np.allclose(draft.scores[1:], sums[1:], rtol=1e-3, atol=1e-3)
    return bool(by_q) and _left_out(draft, proposal, sums, float(sums.min()) + CLOSE) == 0


def _left_out(draft: Draft, proposal: Proposal, sums: Array, score: float) -> int:
    """Listed children that were not drafted and have a Σ log q above ``score``."""
    asked = np.flatnonzero(proposal.after >= 0)
    lists, at = proposal.lists, proposal.after[asked]
    reached = lists.log_q[at].astype(np.float64) + sums[asked, None]
    rows, places = np.nonzero((reached > score) & np.isfinite(reached))
    better = zip(asked[rows].tolist(), lists.ids[at[rows], places].tolist(), strict=True)
    drafted = zip(draft.parents.tolist(), draft.tokens.tolist(), strict=True)
    return len(set(better) - set(drafted))


def _sums(draft: Draft) -> Array:
    """Σ log q from the root to each row, float64 [N]."""
    sums, parents = draft.log_q.tolist(), draft.parents.tolist()
    sums[0] = 0.0
    for row in range(1, len(sums)):
        sums[row] += sums[parents[row]]
    return np.array(sums)


def _exp(log: float | None) -> float | None:
    return None if log is None or math.isnan(log) else math.exp(min(log, 0.0))
