"""Draft sessions over tables, and q as a function of the path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core.drafting.session import NO_STATE, Children, DraftSession
from core.rounds.draft import MARGINAL, Candidates

BEHIND = "behind candidate"


@dataclass
class Tables:
    """The lists at each depth, given which candidate stands before it: all [L, M, S].
    ``follow``: which candidate of its depth a token is; −1: none, a leaf."""

    ids: np.ndarray
    log_q: np.ndarray
    marginal: np.ndarray
    follow: np.ndarray


class TablesSession(DraftSession):
    """A session over tables that answers what is asked and no more, or with ``eager`` all."""

    def __init__(self, tables, eager=False):
        self.t, self.eager, self.calls, self.asked = tables, eager, [], set()
        depths = len(tables.ids)
        self.by_depth = Candidates(np.full((depths, 3), 99), np.full((depths, 3), -1, np.float32))

    @property
    def max_depth(self):
        return len(self.t.ids)

    def expand(self, states):
        count = self.t.ids.shape[1]
        if self.eager:
            states = np.arange(1 + (self.max_depth - 1) * count, dtype=np.int32)
        assert self.asked.isdisjoint(states.tolist()), "a state is expanded once"
        self.asked |= set(states.tolist())
        self.calls.append(len(states))
        depth, row = (states + count - 1) // count, np.where(states > 0, (states - 1) % count, 0)
        follow = self.t.follow[depth, row]
        inner = (follow >= 0) & (depth[:, None] + 1 < self.max_depth)
        after = np.where(states > 0, row + 1.0, np.nan)
        return Children(
            states,
            self.t.ids[depth, row],
            self.t.log_q[depth, row],
            np.where(inner, 1 + depth[:, None] * count + follow, NO_STATE).astype(np.int32),
            {
                MARGINAL: self.t.marginal[depth, row],
                BEHIND: np.broadcast_to(after[:, None], follow.shape),
            },
        )


ROOT = 7
TIES = (0.0, -0.5, -0.5, -1.0, -1.0, -2.0, -np.inf)  # few values: most scores have equals


def path_function(seed, vocabulary, ties):
    """log q [V] after a path, a function of all its tokens. With ``ties`` it takes few values and
    is not a distribution, which no search may need."""

    def after(path):
        rng = np.random.default_rng([seed, *path])
        if ties:
            return torch.tensor(rng.choice(TIES, vocabulary), dtype=torch.float32)
        return torch.tensor(rng.normal(size=vocabulary) * 2).log_softmax(-1).float()

    return after
