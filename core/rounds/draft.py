"""A draft: the nodes that one target forward scores.

Shapes: N rows of a draft, row 0 being the root (the bonus token, depth 0); L drafted depths; S
tokens listed after one state of the drafter; R lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

Array = np.ndarray

ROOT = 0
MAX_BUDGET = 1024  # the largest draft budget B
CHILDLESS, NOT_ASKED = -1, -2  # rows after which no list stands (see ``Proposal.after``)
NOT_KNOWN = -1  # a rank that nobody told
MARGINAL = "log q (marginal)"  # a note: log q at the token's depth, for any prefix


@dataclass(frozen=True, eq=False, kw_only=True)
class DraftRows:
    """The rows that every draft has. Parents come before their children.

    tokens   int64   [N]  token ids; the root's is the bonus token
    parents  int32   [N]  row of the parent (of the first parent in a block draft); −1: the root
    depths   int32   [N]  0 for the root
    ranks    int32   [N]  1 = the drafter's best token at that place; 0 for the root; −1: not known
    log_q    float32 [N]  log q of the token at its place; 0 for the root
    scores   float32 [N]  what the builder ranked by (best-first: Σ log q along the path)
    """

    tokens: Array
    parents: Array
    depths: Array
    ranks: Array
    log_q: Array
    scores: Array

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def nodes(self) -> int:
        """Drafted nodes. The root does not count toward the draft budget B."""
        return len(self.tokens) - 1

    @cached_property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """Rows of each row's parents: one in a tree, any number in a graph, none for the root."""
        return tuple((p,) if p >= 0 else () for p in self.parents.tolist())

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Rows of each row's children, in row order."""
        below: list[list[int]] = [[] for _ in range(len(self))]
        for row, parents in enumerate(self.sources):
            for parent in parents:
                below[parent].append(row)
        return tuple(map(tuple, below))

    def path(self, row: int) -> tuple[int, ...]:
        """Rows from the root to ``row``, both included."""
        rows, above = [row], self._above
        while (row := above[row]) >= 0:
            rows.append(row)
        return tuple(reversed(rows))

    @cached_property
    def _above(self) -> list[int]:
        """``parents`` as plain numbers: a path of thousands of rows is followed in no time."""
        return self.parents.tolist()


@dataclass(frozen=True, eq=False, kw_only=True)
class Draft(DraftRows):
    """A draft tree of tokens.

    notes  name → float32 [N]: what the drafter and the builder know of each node beside q. A name
           that begins with "log " is a log-probability and is shown as a probability.
    side   rows that the target scores and that are never accepted (Lookahead's window). A side
           row's descendants are side rows.
    proposal  what the drafter proposed after these rows, if it is recorded
    last      L, the drafter's last depth, where no ``proposal`` tells it; 0: not known
    """

    notes: Mapping[str, Array] = field(default_factory=dict)
    side: frozenset[int] = frozenset()
    proposal: Proposal | None = None
    last: int = 0

    @property
    def nodes(self) -> int:
        """Drafted nodes that may be accepted: neither the root nor side rows."""
        return len(self.tokens) - 1 - len(self.side)

    def with_side(self, tokens: Array, parents: Sequence[int]) -> Draft:
        """The draft with side rows after its own; a parent is a row of the whole."""
        own, count = len(self), len(tokens)
        depths = self.depths.tolist()
        for parent in parents:
            depths.append(depths[parent] + 1)
        nothing = np.full(count, np.nan, np.float32)
        proposal = self.proposal
        if proposal is not None:
            after = np.concatenate([proposal.after, np.full(count, CHILDLESS, np.int32)])
            proposal = replace(proposal, after=after)
        return replace(
            self,
            tokens=np.concatenate([self.tokens, tokens]),
            parents=np.concatenate([self.parents, parents]).astype(np.int32),
            depths=np.array(depths, np.int32),
            ranks=np.concatenate([self.ranks, np.ones(count, np.int32)]),
            log_q=np.concatenate([self.log_q, nothing]),
            scores=np.concatenate([self.scores, nothing]),
            notes={name: np.concatenate([x, nothing]) for name, x in self.notes.items()},
            side=self.side | frozenset(range(own, own + count)),
            proposal=proposal,
        )

    def some(self, rows: Sequence[int]) -> Draft:
        """The draft of some of its rows, ascending: the root, and each row's parent, among them."""
        at, place = np.asarray(rows), {row: i for i, row in enumerate(rows)}
        proposal = self.proposal
        return replace(
            self,
            parents=np.array([place.get(p, -1) for p in self.parents[at].tolist()], np.int32),
            **{n: getattr(self, n)[at] for n in ("tokens", "depths", "ranks", "log_q", "scores")},
            notes={name: values[at] for name, values in self.notes.items()},
            side=frozenset(place[row] for row in self.side if row in place),
            proposal=proposal and replace(proposal, after=proposal.after[at]),
        )

    def reading(self, read: int | None) -> Draft:
        """The draft of a builder that looks at so many tokens of a list whatever its budget."""
        if read is None or self.proposal is None or self.proposal.read is not None:
            return self
        return replace(self, proposal=replace(self.proposal, read=read))

    def child(self, row: int, token: int) -> int | None:
        """The child of ``row`` that carries ``token`` and may be accepted, if it was drafted."""
        found = np.flatnonzero((self.parents == row) & (self.tokens == token)).tolist()
        return next((child for child in found if child not in self.side), None)

    @staticmethod
    def root_only(token: int) -> Draft:
        """A draft without drafted nodes: verifying it is one step of plain decoding."""
        return Draft.chain([token])

    @staticmethod
    def chain(tokens: Sequence[int], log_q: Sequence[float] | Array | None = None) -> Draft:
        """A chain. ``tokens`` [N] begin with the root; ``log_q`` [N − 1] are those of the rest."""
        count = len(tokens)
        rows = np.arange(count, dtype=np.int32)
        odds = np.zeros(count, np.float32)
        if log_q is not None:
            odds[1:] = log_q
        return Draft(
            tokens=np.asarray(tokens, np.int64),
            parents=rows - 1,
            depths=rows,
            ranks=np.minimum(rows, 1),
            log_q=odds,
            scores=np.cumsum(odds, dtype=np.float32),
        )


@dataclass(frozen=True, eq=False)
class Candidates:
    """A drafter's best tokens at some places, best first: ids [..., S] and log q [..., S]."""

    ids: Array
    log_q: Array


@dataclass(frozen=True, eq=False)
class Proposal:
    """The lists of tokens that the drafter proposed in one round, as far as the round asked.

    lists      [R, S], one list for each drafter state that follows a row of the draft
    after      int32 [N], the list that follows each row; ``CHILDLESS`` or ``NOT_ASKED``: none
    max_depth  L, the drafter's last depth
    by_depth   [L, K], log q at each depth for any prefix; None for a drafter that
               always conditions on the path. For a factorised drafter these are the lists.
    read       how many tokens of a list the builder looks at whatever its budget; None: as many as
               the budget lets it
    beam       how many nodes of a depth, the best ones, get children whatever its budget; None: all
    least      the score below which it drafts no node whatever its budget; None: none
    """

    lists: Candidates
    after: Array
    max_depth: int
    by_depth: Candidates | None = None
    read: int | None = None
    beam: int | None = None
    least: float | None = None

    @staticmethod
    def factorised(by_depth: Candidates, depths: Array, read: int | None = None) -> Proposal:
        """Lists that depend on the depth alone; ``depths`` [N] of the draft."""
        last = len(by_depth.ids)
        after = np.where(depths < last, depths, CHILDLESS).astype(np.int32)
        return Proposal(by_depth, after, last, by_depth, read)

    @property
    def factorised_lists(self) -> bool:
        """Whether the lists depend on the depth alone."""
        return self.lists is self.by_depth

    def candidates(self, row: int) -> Candidates | None:
        """The list after a row, without places that hold no token; None where there is none. A
        list without any log q is known by its tokens, if these differ."""
        at = int(self.after[row])
        if at < 0:
            return None
        ids, log_q = self.lists.ids[at], self.lists.log_q[at]
        held = np.isfinite(log_q)
        if held.all():
            return Candidates(ids, log_q)
        if not held.any() and np.isnan(log_q).all() and len(set(ids.tolist())) == len(ids) > 1:
            return Candidates(ids, log_q)
        return Candidates(ids[held], log_q[held])
