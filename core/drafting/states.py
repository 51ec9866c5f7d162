"""The table of the states a session has answered for. Every search runs on it.

A search treats states that are not in the table as leaves. ``complete`` repeats it until the
states after all the nodes it chose are known. Since log q ≤ 0, unknown states can only add nodes
that score at most their parent's score, so the last search finds what a search over all states
finds.

Shapes: R known states, S tokens listed after each, n drafted rows without the root.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from core.drafting.session import NO_STATE, ROOT_STATE, Children, DraftSession
from core.rounds.draft import CHILDLESS, NOT_ASKED, Array, Candidates, Draft, Proposal


@dataclass(frozen=True, eq=False)
class Rows:
    """Drafted rows without the root: parents count the root as row 0, ranks start at 0.

    states  the state each row is a child of
    notes   what the builder knows of each row
    """

    parents: Array
    depths: Array
    ranks: Array
    scores: Array
    states: Array
    notes: Mapping[str, Array] = field(default_factory=dict)

    @staticmethod
    def none() -> Rows:
        whole, real = np.zeros(0, np.int32), np.zeros(0)
        return Rows(whole, whole, whole, real, whole)


class StateTable:
    """The known states of one session, as flat arrays.

    ids [R, S], log_q [R, S], next [R, S]: as in ``Children``
    row_of  int32 [states]: a state's row in these arrays, −1 while it is unknown
    """

    def __init__(self, session: DraftSession):
        self.session = session
        self.row_of = np.full(1, -1, np.int32)
        self.ids, self.log_q = np.zeros((0, 0), np.int64), np.zeros((0, 0), np.float32)
        self.next, self.notes = np.zeros((0, 0), np.int32), dict[str, Array]()
        self._add(session.expand(np.array([ROOT_STATE], np.int32)))

    @property
    def empty(self) -> bool:
        """Whether the drafter lists nothing after the root."""
        return not self.log_q.size

    def expand(self, states: Array) -> bool:
        """Ask the session for those of these states that are unknown; whether there were any."""
        states = states[states >= 0]
        unknown = np.unique(states[self.row_of[states] < 0])
        if not len(unknown):
            return False
        self._add(self.session.expand(unknown.astype(np.int32)))
        return True

    def complete(self, search: Callable[[], Rows]) -> Rows:
        """Repeat the search until the state after every node it chose is known; return its rows.

        A session that says how many states are worth a batch (``at_once``) is asked for the first
        of them, a quarter at least: what the search drops later is then not asked for.
        """
        most = self.session.at_once
        while True:
            rows = search()
            states = self.next_states(rows)
            unknown = states[(states >= 0) & (self.row_of[np.maximum(states, 0)] < 0)]
            if most is not None:
                unknown = unknown[: max(most, len(unknown) // 4)]
            if not self.expand(unknown):
                return rows

    def next_states(self, rows: Rows) -> Array:
        """The state after each row, int32 [n]."""
        return self.next[self.row_of[rows.states], rows.ranks]

    def draft(
        self,
        root: int,
        rows: Rows,
        read: int | None = None,
        beam: int | None = None,
        least: float | None = None,
    ) -> Draft:
        """The rows as a draft after ``root``. What limits the builder: see ``Proposal``."""
        proposal = replace(self._proposal(rows), read=read, beam=beam, least=least)
        at = (self.row_of[rows.states], rows.ranks)
        notes = {name: values[at] for name, values in self.notes.items()} | dict(rows.notes)
        return Draft(
            tokens=np.concatenate([[root], self.ids[at]]).astype(np.int64),
            parents=np.concatenate([[-1], rows.parents]).astype(np.int32),
            depths=np.concatenate([[0], rows.depths]).astype(np.int32),
            ranks=np.concatenate([[0], rows.ranks + 1]).astype(np.int32),
            log_q=np.concatenate([[0.0], self.log_q[at]]).astype(np.float32),
            scores=np.concatenate([[0.0], rows.scores]).astype(np.float32),
            notes={k: np.concatenate([[np.nan], v]).astype(np.float32) for k, v in notes.items()},
            proposal=proposal,
        )

    def _proposal(self, rows: Rows) -> Proposal:
        """The lists after the root and these rows."""
        session = self.session
        depths = np.concatenate([[0], rows.depths])
        if session.factorised and session.by_depth is not None:
            return Proposal.factorised(session.by_depth, depths)
        states = np.concatenate([[ROOT_STATE], self.next_states(rows)])
        known = np.where(states >= 0, self.row_of[states], -1)
        used = np.unique(known[known >= 0])
        after = np.searchsorted(used, known).astype(np.int32)
        after[known < 0] = np.where(states[known < 0] >= 0, NOT_ASKED, CHILDLESS)
        lists = Candidates(self.ids[used], self.log_q[used])
        return Proposal(lists, after, session.max_depth, session.by_depth)

    def _add(self, found: Children) -> None:
        """Take an answer in; the first one without a copy where its arrays lie in order."""
        if not len(found.states):
            return
        first = len(self.ids)
        self.ids = _joined(self.ids, found.ids)
        self.log_q = _joined(self.log_q, found.log_q)
        self.next = _joined(self.next, found.next)
        for name, values in found.notes.items():
            self.notes[name] = _joined(self.notes.get(name, values[:0]), values)
        states = 1 + max(int(found.states.max()), int(found.next.max(initial=NO_STATE)))
        if states > len(self.row_of):
            unknown = np.full(states - len(self.row_of), -1, np.int32)
            self.row_of = np.concatenate([self.row_of, unknown])
        self.row_of[found.states] = np.arange(first, len(self.ids), dtype=np.int32)


def _joined(rows: Array, more: Array) -> Array:
    """Join rows in the first ones' type: a search is compiled for types of arrays."""
    if len(rows):
        return np.concatenate([rows, more], dtype=rows.dtype)
    return np.require(more, rows.dtype, ["C", "W"])
