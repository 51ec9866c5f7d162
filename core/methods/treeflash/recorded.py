"""TreeFlash's sessions from a collected file, without the model. Light: numpy only."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from core.drafting.session import NO_STATE, Children, RecordedSession
from core.methods.method import Options
from core.methods.treeflash import BEHIND
from core.rounds.draft import MARGINAL, Array, Candidates


class RecordedStates(RecordedSession):
    """Answers as ``TreeFlashSession`` does; see ``core.drafting.session.RecordedSession``.

    by_depth  [L, K]
    tables    ids and log_q [L, M, S] after each of a depth's M best tokens (after the root M
              times the same); marginal [L, M, S], plain log q of these tokens, may be absent
    options   may keep fewer candidates and siblings than the tables hold
    """

    def __init__(self, by_depth: Candidates, tables: Mapping[str, Array], options: Options):
        self.by_depth = by_depth
        candidates, self.listed = int(options["candidates"]), int(options["siblings"])
        count = min(candidates, tables["ids"].shape[1], by_depth.ids.shape[1])
        self.complete = candidates <= count
        self._chosen = by_depth.ids[:, :count]
        self._tables = {name: _states(t[:, :count, : self.listed]) for name, t in tables.items()}

    @property
    def max_depth(self) -> int:
        return len(self._chosen)

    @property
    def state_count(self) -> int:
        return 1 + (self.max_depth - 1) * self._chosen.shape[1]

    def expand(self, states: Array) -> Children:
        """Every state: the file has them all."""
        ids, count = self._tables["ids"], self._chosen.shape[1]
        states = np.arange(len(ids), dtype=np.int32)
        depths, rank_before = (states + count - 1) // count, (states - 1) % count + 1.0
        rank_before[0] = np.nan
        marginal = self._tables.get("marginal", np.full(ids.shape, np.nan, np.float32))
        places = np.broadcast_to(rank_before[:, None], ids.shape).astype(np.float32)
        notes = {MARGINAL: marginal, BEHIND: places}
        return Children(states, ids, self._tables["log_q"], self._next(depths), notes)

    def _next(self, depths: Array) -> Array:
        """The state after every listed token: one of its depth's candidates, or none."""
        ids, count = self._tables["ids"], self._chosen.shape[1]
        found = np.full(ids.shape, NO_STATE, np.int32)
        place = np.full(1 + max(int(ids.max()), int(self._chosen.max())), NO_STATE, np.int32)
        for depth, row in enumerate(self._chosen[:-1]):
            place[row[::-1]] = 1 + depth * count + np.arange(count)[::-1]  # doubles: the first
            found[depths == depth] = place[ids[depths == depth]]
            place[row] = NO_STATE
        return found


session = RecordedStates


def _states(table: Array) -> Array:
    """[L, M, S] as one row per state: the root's once."""
    return np.concatenate([table[0, :1], table[1:].reshape(-1, table.shape[-1])])
