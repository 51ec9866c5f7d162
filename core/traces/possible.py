"""Faults of a round whose fields have their shapes: impossible values, contradictions.

A round with such a fault opens, so that its log can be examined, and counts in no figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..declared import END
from ..rounds.draft import NOT_KNOWN, Array, Candidates, Draft, DraftRows
from ..rounds.round import Probe, Round
from .distributions import ROUNDING

NEAR = 0.1  # nats: half precision moves a log q by less
SMALL = 48  # numbers, up to which Python compares quicker than numpy


@dataclass(frozen=True)
class Kind:
    """A kind of number with its least and its largest value, rounding included; None: any least."""

    least: float | None
    most: float
    words: str

    def outside(self, values: Array) -> bool:
        """Whether any is; NaN is not known and is nowhere outside."""
        if not values.size:
            return False
        some = values.ravel().tolist() if values.size <= SMALL else None
        largest = max(some) if some else np.maximum.reduce(values, axis=None)
        least = 0 if self.least is None else min(some) if some else values.min()
        # Beside a NaN these tell nothing, and are NaN or found again below.
        if largest <= self.most and (self.least is None or least >= self.least):
            return False
        return bool(
            np.count_nonzero(values > self.most)
            or (self.least is not None and np.count_nonzero(values < self.least))
        )


_LOG = Kind(None, math.log1p(ROUNDING), "above 1")
_SHARE = Kind(-ROUNDING, 1 + ROUNDING, "below 0 or above 1")
_NATS = Kind(-ROUNDING, math.log(END) + ROUNDING, "that no vocabulary has")
_RANK = Kind(1, END, "below 1")
_RANK_OR_NONE = Kind(-1, END, "below 0")  # 0: q gives the token nothing; −1: not known


def faults_of(record: Round, before: Round | None) -> tuple[str, ...]:
    """List the faults of this round, as ends of sentences; ``before`` is the round before it."""
    found = [f"{what} {kind.words}" for what, kind, x in _numbers(record) if kind.outside(x)]
    if record.probe is not None:
        found += _depth_faults(record.probe, record.accepted + 1)
    if 0 < record.max_depth < record.draft.depths.max() and _too_deep(record):
        found.append("a node deeper than its drafter's last depth")
    found += [f"a {what} that its own list contradicts" for what in _contradicted(record.draft)]
    found += _text_faults(record, before)
    return tuple(found)


def _numbers(record: Round) -> list[tuple[str, Kind, Array]]:
    """All numbers of a round that have a least or a largest value."""
    draft, probs, probe = record.draft, record.target_probs, record.probe
    found, alone = [("a q", _LOG, draft.log_q)], len(draft) == 1
    if not alone:
        ranks = draft.ranks[1:]
        found.append(("a rank", _RANK, ranks[ranks != NOT_KNOWN]))
    if isinstance(draft, Draft):
        for name, values in draft.notes.items():
            if name.startswith("log "):
                found.append(("a noted q", _LOG, values))
        if (proposal := draft.proposal) is not None:
            found.append(("a candidate's q", _LOG, proposal.lists.log_q))
            if proposal.by_depth is not None and not proposal.factorised_lists:
                found.append(("a candidate's q at its depth", _LOG, proposal.by_depth.log_q))
    if probs is not None:
        found.append(("a p of the target's best", _LOG, probs.top_log_p))
        found.append(("an entropy of p", _NATS, probs.entropy))
        if not alone:
            found.append(("a p", _LOG, probs.log_p[1:]))
            found.append(("a rank under p", _RANK, probs.rank[1:]))
    if probe is not None:
        found += [
            ("a TVD", _SHARE, probe.tvd),
            ("an entropy of q", _NATS, probe.entropy_q),
            ("a rank under q", _RANK_OR_NONE, probe.rank_q),
        ]
    if record.block is not None:
        found += [("a p", _SHARE, step.ranking.p) for step in record.block.steps]
    return found


def _too_deep(record: Round) -> bool:
    """Whether a row that may be accepted is: a window of side rows may be longer."""
    deep = np.flatnonzero(record.draft.depths > record.max_depth).tolist()
    return isinstance(record.draft, Draft) and not record.draft.side.issuperset(deep)


def _contradicted(draft: DraftRows) -> Iterator[str]:
    """List what the list after a row's parent says otherwise of its token: the rank, the q.

    Where lists by depth stand beside those a rank may be of either, and is not asked.
    """
    if not isinstance(draft, Draft) or (proposal := draft.proposal) is None:
        return
    lists, after = proposal.lists, proposal.after[draft.parents[1:]]
    rows = np.flatnonzero(after >= 0)
    if not len(rows) or not lists.ids.size:
        return
    at, rows = after[rows], rows + 1
    tokens, ranks = draft.tokens[rows], draft.ranks[rows]
    places = np.maximum(np.minimum(ranks, lists.ids.shape[1]), 1) - 1
    elsewhere = np.flatnonzero((lists.ids[at, places] != tokens) | (ranks != places + 1))
    if len(elsewhere):
        places[elsewhere] = -1
        if proposal.by_depth is None or proposal.factorised_lists:
            for n in elsewhere.tolist():
                if int(rows[n]) not in draft.side:
                    places[n] = _place(lists, int(at[n]), int(tokens[n]))
            if ((places[elsewhere] >= 0) & (ranks[elsewhere] >= 1)).any():
                yield "rank"
    apart = np.abs(draft.log_q[rows] - lists.log_q[at, places])  # not finite: not known
    if ((apart > NEAR) & (apart < np.inf) & (places >= 0)).any():
        yield "q"


def _place(lists: Candidates, at: int, token: int) -> int:
    """The place with a q at which a list holds a token; −1: none."""
    found = np.flatnonzero(np.isfinite(lists.log_q[at]) & (lists.ids[at] == token))
    return int(found[0]) if len(found) else -1


def _depth_faults(probe: Probe, most: int) -> Iterator[str]:
    if len(probe.tvd) > most:
        yield f"measurements at {len(probe.tvd)} depths where {most} can be observed"
    if not all(map(_rises, probe.coverage.tolist())):  # or it is not known
        if _SHARE.outside(probe.coverage):
            yield f"a coverage {_SHARE.words}"
        if np.count_nonzero(probe.coverage[:, 1:] - probe.coverage[:, :-1] < -ROUNDING):
            yield "a coverage that falls as K grows"


def _rises(shares: list[float]) -> bool:
    return sorted(shares) == shares and (not shares or 0 <= shares[0] <= shares[-1] <= 1)


def _text_faults(record: Round, before: Round | None) -> Iterator[str]:
    """Whether the round commits what it accepted, and stands where the text before it ends."""
    said = _verified(record)
    if record.committed != said[: len(record.committed)]:
        yield "committed tokens that are not those of its path and bonus token"
    if before is None or (record.block is None) != (before.block is None):
        return
    if record.block is None and before.block is None:
        root = before.committed[-1] if before.committed else before.draft.tokens[0]
        if record.draft.tokens[0] != root:
            yield "a root that is not the last token before it"
        written = len(before.committed)
    else:
        assert record.block is not None and before.block is not None
        same = record.block.index == before.block.index
        written = 0 if same else len(before.block.state)
    if record.position != before.position + written:
        yield "a position that is not where the text before it ends"


def _verified(record: Round) -> tuple[int, ...]:
    """All tokens that the round could commit, in order."""
    if record.block is not None:
        return tuple(int(token) for step in record.block.steps for token in step.tokens)
    tokens, verdict = record.draft.tokens, record.verdict
    return (*(int(tokens[row]) for row in verdict.path[1:]), verdict.bonus)
