"""Medusa's static tree (arXiv 2401.10774, §2.3.3): the nodes with the highest products of measured
accuracies along their paths.

Shapes: L depths, K ranks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core import ASSETS
from core.drafting.builders import best_first, grow
from core.drafting.session import Builder, DraftSession, FactorisedSession
from core.errors import UserError
from core.json_input import read_json
from core.methods.medusa import ACCURACIES, StaticTreeOptions
from core.methods.method import TargetFacts
from core.models import embedded
from core.rounds.draft import Array, Candidates, Draft

RANKS = 10  # tokens of a depth that a node may have
# The published tree: the ranks along the path to each node, best node first (mc_sim_7b_63).
PUBLISHED = (
    "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 "
    "40 21 004 005 0000 011 006 030 50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 "
    "90 060 0001 16 070"
)


@dataclass(frozen=True)
class StaticTree(Builder):
    """The first ``budget`` of some (parent row, rank) pairs, parents before children."""

    nodes: tuple[tuple[int, int], ...]
    reads: int = RANKS

    def __call__(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft:
        """Grow the tree; a node that the drafter does not list is left out with all below it."""
        return grow(session, text, self.nodes[:budget], partial=True).reading(self.reads)


def published() -> StaticTree:
    """The 63 nodes that Medusa ships for 7B models."""
    paths = PUBLISHED.split()
    rows = {path: row for row, path in enumerate(["", *paths])}
    return StaticTree(tuple((rows[path[:-1]], int(path[-1])) for path in paths))


def measured(accuracies: Array, nodes: int = 1024) -> StaticTree:
    """The best ``nodes`` for accuracies [L, K]: how often each rank is right at each depth.

    It is best-first search with accuracies in the place of q.
    """
    order = np.argsort(-accuracies, axis=1, kind="stable")
    with np.errstate(divide="ignore"):
        log_q = np.log(np.take_along_axis(accuracies, order, 1)).astype(np.float32)
    draft = best_first(FactorisedSession(Candidates(order, log_q)), [0], nodes)
    pairs = zip(draft.parents[1:].tolist(), draft.tokens[1:].tolist(), strict=True)
    return StaticTree(tuple(pairs), accuracies.shape[1])


def load(facts: TargetFacts, options: StaticTreeOptions) -> StaticTree:
    """The tree for a target: of the named accuracies, else of those that ship for it, else the
    published one. Raises UserError for a file that holds none."""
    own = ASSETS / "models" / embedded.NAME / "medusa" / ACCURACIES
    path = Path(options.accuracies).expanduser() if options.accuracies else own
    ships = facts.name == embedded.NAME and own.is_file()
    if options.published or not (options.accuracies or ships):
        return published()
    return measured(read_accuracies(path))


def read_accuracies(path: Path) -> Array:
    """Accuracies [L, K] of a JSON file, a list of ranks for each depth. Raises UserError."""
    try:
        found = np.array(read_json(path), np.float64)
    except (OverflowError, TypeError, ValueError):
        found = np.zeros((0, 0))
    good = found.ndim == 2 and found.size and ((found >= 0) & (found <= 1)).all()
    if not good or found.shape[0] > 64 or found.shape[1] > 1024:
        raise UserError(f"{path} is not a list of accuracies from 0 to 1, as many for each depth")
    return found


def write_accuracies(path: Path, accuracies: Array) -> None:
    path.write_text(json.dumps([[round(float(a), 4) for a in row] for row in accuracies]) + "\n")
