"""The seam between drafters and builders.

At the start of a round the drafter opens a ``DraftSession``. The builder pulls from it: it asks
what may follow some *states*, and the session answers with the best tokens after each and the
state that each token leads to. What a state is depends on the drafter: a depth (DFlash), a depth
and the token before (TreeFlash), or a node of the tree (EAGLE-3, Hydra, a draft language model).

States are numbers chosen by the session. State 0 is the state after the root.

Light: torch is imported only where a tensor is made.

Shapes: R states, S tokens listed after a state, L drafted depths, V vocabulary, C tokens that the
drafter's head scores (V, or fewer), T context tokens, F·h width of the target's features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from core.errors import UserError
from core.rounds.draft import Array, Candidates, Draft
from core.rounds.round import Sampling, Verdict

if TYPE_CHECKING:
    from torch import Tensor

    from core.drafting.work import DraftWork

ROOT_STATE = 0
NO_STATE = -1  # nothing is drafted after this token
SCORED_AT_ONCE = 256  # nodes: bounds the memory of log q over the whole vocabulary
BUCKET = 64  # rows after a text that a drafter's padded shapes may use
MIN_LISTED = 16  # tokens a list holds at least: what coverage and the inspector show


@dataclass(frozen=True, eq=False)
class Children:
    """The S best tokens after each of some states, best first.

    states  int32   [R]
    ids     int64   [R, S]
    log_q   float32 [R, S]  −inf marks a place without a token; such places come last
    next    int32   [R, S]  the state each token leads to; ``NO_STATE``: it can have no children
    notes   name → float32 [R, S]: what else the drafter knows of each (see ``Draft.notes``)
    """

    states: Array
    ids: Array
    log_q: Array
    next: Array
    notes: Mapping[str, Array] = field(default_factory=dict)


class DraftSession(ABC):
    """One round's drafting. S is the same in every answer of a session.

    A subclass has ``max_depth`` and ``expand``; the rest has defaults.

    max_depth    L, the deepest depth this drafter drafts
    by_depth     the best tokens at each depth for any prefix, [L, K]; None if q always needs the
                 path
    factorised   whether q depends on the depth alone: ``expand`` then answers what ``by_depth``
                 lists
    at_once      how many states are worth a batch, since each costs; None: as many as a search
                 wants. A search that has many asks for its best first
    state_count  1 + (L − 1)·M where the states are a depth and the token before, and can all be
                 listed: state 0 follows the root, state 1 + (d − 1)·M + m the m-th best token (from
                 0) of depth d = 1 … L − 1 in ``by_depth``. None: they cannot be listed
    draft_vocabulary  how many tokens its head scores, where the target has more; None: all
    """

    max_depth: int
    by_depth: Candidates | None = None
    factorised: bool = False
    at_once: int | None = None
    state_count: int | None = None
    draft_vocabulary: int | None = None

    @abstractmethod
    def expand(self, states: Array) -> Children:
        """List the tokens that may follow these states, in one batch.

        states  int32 [R], distinct, none expanded before

        The answer may bring more states than were asked for, when they cost nothing extra.
        """

    def log_q(self, path: Sequence[int]) -> Tensor | None:
        """log q over the full vocabulary along a path, [d, V], on the drafter's device.

        Row i is conditioned on the tokens path[0 … i]; path[0] is the root. None: not available.
        Only probes and speculative sampling call this.
        """
        return None

    def stops(self, path: Sequence[int]) -> bool:
        """Whether the drafter drafts nothing after a path, by what it knows before the next token.
        A builder that draws from ``log_q`` asks; ``expand`` lists no token there."""
        return False


class WrappedSession(DraftSession):
    """A session that answers as another one does; a subclass changes some of it."""

    def __init__(self, session: DraftSession):
        self._session = session
        for name in DraftSession.__annotations__:
            setattr(self, name, getattr(session, name))

    def expand(self, states: Array) -> Children:
        return self._session.expand(states)

    def log_q(self, path: Sequence[int]) -> Tensor | None:
        return self._session.log_q(path)

    def stops(self, path: Sequence[int]) -> bool:
        return self._session.stops(path)


class RecordedSession(DraftSession):
    """A session read from a collected file, for a drafter whose states are BY_PREVIOUS.

    complete  whether the file holds every state that the drafter has with these options
    listed    how many tokens the drafter lists after a state; the file may hold fewer
    """

    complete: bool
    listed: int


class Drafter(ABC):
    """Drafts from the target's features of the context and the bonus token.

    A subclass has ``max_depth``, ``reset``, ``extend`` and ``begin``; the rest has defaults.

    max_depth  L, the deepest depth it drafts
    layers     the target layers whose hidden states it reads; () for none
    covered    the tokens that it can draft; None: all that the target has
    side_rows  rows that the target scores for it beside the draft, at most. They do not count
               toward the budget
    """

    max_depth: int
    layers: tuple[int, ...] = ()
    covered: Covered | None = None
    side_rows: int = 0

    @abstractmethod
    def reset(self, capacity: int) -> None:
        """Forget the text and make room for ``capacity`` context tokens."""

    @abstractmethod
    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Take in newly committed context: tokens [T] and their features [T, F·h]."""

    @abstractmethod
    def begin(self, root: int, width: int) -> DraftSession:
        """Open a round's session after ``root``. At least ``width`` tokens are listed after each
        state if the drafter has that many."""

    def beside(self, draft: Draft) -> Draft:
        """The draft with the drafter's side rows (``Draft.with_side``); called after the
        builder."""
        return draft

    def observe(self, draft: Draft, verdict: Verdict) -> None:  # noqa: B027 (a hook)
        """Called after every verification, before ``extend``, for a drafter that learns from more
        than the accepted tokens (Lookahead's window)."""

    @property
    def learns(self) -> bool:
        """Whether its drafts depend on what its run's earlier verifications said."""
        return type(self).observe is not Drafter.observe

    @property
    def work(self) -> DraftWork | None:
        """The work of its network in a round; None where that cannot be counted."""
        return None

    def begin_each(
        self, tokens: Tensor, features: Tensor, anchors: Tensor, width: int
    ) -> Iterator[DraftSession]:
        """A session for each root at ``anchors`` int64 [A], ascending, of the text ``tokens`` [T]
        with ``features`` [T, F·h].

        By default the drafter walks along the text as a run does, so that its own text is another
        one afterwards, and a session is read before the next one is asked for. A drafter that
        opens many sessions in one pass overrides this.
        """
        for _, session in sessions_along(self, tokens.tolist(), features, anchors.tolist(), width):
            yield session

    def log_q_at(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor | None:
        """log q [A, L, V] along the same text from each anchor, its own tokens drafted: past its
        end the last one is repeated. None where the drafter does not tell q.

        By default each anchor's session is asked; a drafter that reads many at once overrides this.
        """
        import torch

        paths, found = tokens_after(tokens, anchors, self.max_depth).tolist(), []
        sessions = self.begin_each(tokens, features, anchors, 1)
        for path, session in zip(paths, sessions, strict=True):
            if (log_q := session.log_q(path)) is None:
                return None
            found.append(log_q)
        return torch.stack(found)


def sessions_along(
    drafter: Drafter, text: Sequence[int], features: Tensor, roots: Iterable[int], width: int
) -> Iterator[tuple[int, DraftSession]]:
    """The drafter along a text [T] with ``features`` [T, F·h] as a run takes it: each root, from a
    generator after the session before it was used, with its session."""
    known = 0
    drafter.reset(len(text) + BUCKET)
    for root in roots:
        drafter.extend(text[known:root], features[known:root])
        known = root
        yield root, drafter.begin(text[root], width)


def layers_read(drafters: Iterable[Drafter]) -> tuple[int, ...]:
    """The target's layers that any of the drafters reads, ascending."""
    return tuple(sorted({layer for drafter in drafters for layer in drafter.layers}))


def tokens_after(tokens: Tensor, anchors: Tensor, depths: int) -> Tensor:
    """The text's tokens from each anchor on, int64 [A, depths]; its last one past its end."""
    import torch

    at = anchors[:, None] + torch.arange(depths, device=anchors.device)
    return tokens[at.clamp(max=len(tokens) - 1)]


class Builder(ABC):
    """Turns a session into a draft of at most ``budget`` nodes; a pure function of its arguments,
    and of what a run has told it (``for_run``, ``took``). ``text`` ends with the root.

    reads  how many tokens after a state it looks at for any budget; None: as many as the budget
    """

    reads: int | None = None

    @abstractmethod
    def __call__(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft: ...

    def for_run(self, sampling: Sampling) -> Builder:
        """The builder of one run: a builder that draws tokens at random needs the run's sampling,
        one that learns from times starts anew."""
        return self

    def took(self, nodes: int, seconds: float) -> None:  # noqa: B027 (a hook)
        """Called after every round: its drafted nodes, and the seconds of all its stages."""

    @property
    def learns(self) -> bool:
        """Whether its drafts depend on what its run's earlier rounds took."""
        return type(self).took is not Builder.took

    def width(self, budget: int) -> int:
        """How many tokens a session must list after a state for this budget."""
        return self.reads or budget


class FunctionBuilder(Builder):
    """A function ``(session, text, budget) -> Draft`` as a builder. The function may have an
    attribute ``reads``."""

    def __init__(self, build: Callable[[DraftSession, Sequence[int], int], Draft]):
        self._build, self.reads = build, getattr(build, "reads", None)
        self.__doc__ = build.__doc__

    def __call__(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft:
        return self._build(session, text, budget).reading(self.reads)


def as_builder(build: Builder | Callable[[DraftSession, Sequence[int], int], Draft]) -> Builder:
    """A person's own builder, which may be a function.

    Raises UserError for an object with the hooks of a ``Builder`` that does not inherit it.
    """
    if isinstance(build, Builder):
        return build
    if hooks := [name for name in ("for_run", "took") if hasattr(build, name)]:
        raise UserError(
            f"its builder {type(build).__name__} has {hooks[0]}: let it be a Builder of "
            "core.drafting.session"
        )
    return FunctionBuilder(build)


class FactorisedSession(DraftSession):
    """A session whose states are depths: one list per depth, all known from the start.

    along  gives log q over the full vocabulary for d depths, [d, V]; None: it is not kept
    notes  as in ``Children``
    """

    by_depth: Candidates
    factorised = True

    def __init__(
        self,
        by_depth: Candidates,
        along: Callable[[int], Tensor] | None = None,
        notes: Mapping[str, Array] | None = None,
    ):
        self.by_depth, self._along, self._notes = by_depth, along, notes or {}
        self.max_depth = len(by_depth.ids)

    @staticmethod
    def of(log_q: Tensor, width: int, draft_vocabulary: int | None = None) -> FactorisedSession:
        """A session of log q [L, V] on the drafter's device: its ``width`` best at each depth, of
        those that its head scores."""
        from core.drafting.best import top

        best = top(log_q, min(width, draft_vocabulary or width))
        lists = Candidates(best.indices.cpu().numpy(), best.values.cpu().numpy())
        session = FactorisedSession(lists, lambda depths: log_q[:depths])
        session.draft_vocabulary = draft_vocabulary
        return session

    @staticmethod
    def sure(
        tokens: Sequence[int],
        max_depth: int,
        vocabulary: int,
        notes: Mapping[str, Array] | None = None,
    ) -> FactorisedSession:
        """One token a depth with q = 1, and nothing after the last of ``tokens``, at most
        ``max_depth``. ``notes``: of each token [d]."""
        count = len(tokens)
        ids, log_q = (
            np.zeros((max_depth, 1), np.int64),
            np.full((max_depth, 1), -np.inf, np.float32),
        )
        ids[:count, 0], log_q[:count] = tokens, 0
        spaced = {name: np.full(ids.shape, np.nan) for name in notes or {}}
        for name, values in (notes or {}).items():
            spaced[name][:count, 0] = values
        lists = Candidates(ids, log_q)
        return FactorisedSession(lists, lambda d: spread(lists, vocabulary)[:d], spaced)

    def expand(self, states: Array) -> Children:
        ids, log_q = self.by_depth.ids, self.by_depth.log_q
        depths = np.arange(len(ids), dtype=np.int32)
        leads = np.where(depths + 1 < len(ids), depths + 1, NO_STATE).astype(np.int32)
        next_ = np.broadcast_to(leads[:, None], ids.shape)
        return Children(depths, ids, log_q, next_, self._notes)

    def log_q(self, path: Sequence[int]) -> Tensor | None:
        return None if self._along is None else self._along(len(path))


Listed = tuple[int, float, int, tuple[float, ...]]  # a token, its log q, next state and notes


class ListedSession(DraftSession):
    """A session whose states are few, and all known from the start.

    lists  of each state, numbered from 0, the tokens after it, best first; as ``Candidates`` they
           may be read, too
    """

    def __init__(self, lists: Sequence[Sequence[Listed]], notes: Sequence[str]):
        """``notes``: the names of what is noted of each token."""
        shape = (len(lists), max(1, *map(len, lists)))
        ids, self._next = np.zeros(shape, np.int64), np.full(shape, NO_STATE, np.int32)
        log_q = np.full(shape, -np.inf, np.float32)
        self._notes = {name: np.full(shape, np.nan) for name in notes}
        for state, tokens in enumerate(lists):
            for rank, (token, odds, after, known) in enumerate(tokens):
                at = (state, rank)
                ids[at], log_q[at], self._next[at] = token, odds, after
                for name, value in zip(notes, known, strict=True):
                    self._notes[name][at] = value
        self.lists = Candidates(ids, log_q)

    def expand(self, states: Array) -> Children:
        every = np.arange(len(self._next), dtype=np.int32)
        return Children(every, self.lists.ids, self.lists.log_q, self._next, self._notes)


def spread(lists: Candidates, vocabulary: int) -> Tensor:
    """log q over the full vocabulary [R, V] of lists [R, S] that hold all of q: −inf elsewhere."""
    import torch

    ids, log_q = torch.from_numpy(lists.ids), torch.from_numpy(lists.log_q)
    whole = log_q.new_full((len(ids), vocabulary), -torch.inf)
    return whole.scatter_reduce(1, ids, log_q, "amax")  # places without a token repeat some id


@dataclass(frozen=True, eq=False)
class Covered:
    """The tokens that a head over a part of the vocabulary scores.

    ids   int64 [C], on the drafter's device
    size  V, the whole vocabulary
    """

    ids: Tensor
    size: int

    def whole(self, log_q: Tensor) -> Tensor:
        """log q [N, C] → [N, V]: what the head does not score has q = 0."""
        return log_q.new_full((len(log_q), self.size), -math.inf).index_copy_(1, self.ids, log_q)


class PathSession(DraftSession):
    """Base of sessions whose states are nodes: q of a token depends on the whole path before it.

    A subclass scores a batch of nodes (``score``). This class numbers the states and sorts the
    lists. It keeps log q of the first nodes only: a path through later ones is scored again.
    """

    def __init__(self, root: int, max_depth: int, width: int, covered: Covered | None = None):
        """``width``: how many tokens are listed after each node, at most. ``covered``: the tokens
        that ``score`` tells log q of; None: all."""
        self.root, self.max_depth, self._width = root, max_depth, width
        self._covered = covered
        self._ids: list[Array] = []  # for every scored node: the tokens listed after it [S]
        self._best: list[Array] = []  # their log q [S]
        self._log_q: dict[int, Tensor] = {}  # of some: log q of all covered tokens after it [C]
        self._paths: list[list[int]] = []  # the tokens from the root to every scored node
        self._number: dict[tuple[int, int], int] = {}  # (its parent's number, token) → its number

    @property
    def draft_vocabulary(self) -> int | None:
        return None if self._covered is None else len(self._covered.ids)

    @abstractmethod
    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        """log q [R, C] after R nodes. Nodes are numbered in the order of scoring, from 0.

        tokens   [R] the token of each node; the first call scores the root
        parents  [R] the number of the node before it; −1 for the root
        """

    def expand(self, states: Array) -> Children:
        """Score the nodes of these states in one batch."""
        numbers = np.array(self._scored([self._node(state) for state in states.tolist()]))
        ids = np.stack([self._ids[number] for number in numbers])
        odds = np.stack([self._best[number] for number in numbers])
        size = ids.shape[1]
        leads = (1 + numbers[:, None] * size + np.arange(size)).astype(np.int32)
        depths = np.array([len(self._paths[number]) - 1 for number in numbers])
        leads[depths + 1 >= self.max_depth] = NO_STATE
        return Children(states, ids, odds, leads)

    def log_q(self, path: Sequence[int]) -> Tensor:
        """log q [d, V] along any path. Nodes that were not scored yet are scored now."""
        import torch

        number, rows, scored = -1, [], len(self._ids)
        for token in path:
            (number,) = self._scored([(number, token)], whole=True)
            rows.append(self._log_q[number])
        for late in range(max(scored, SCORED_AT_ONCE), len(self._ids)):
            del self._log_q[late]
        log_q = torch.stack(rows)
        return log_q if self._covered is None else self._covered.whole(log_q)

    def _scored(self, nodes: list[tuple[int, int]], whole: bool = False) -> list[int]:
        """The numbers of nodes (their parent's number, their token); new ones are scored, and with
        ``whole`` those whose log q was not kept."""
        fresh = [
            node
            for node in nodes
            if node not in self._number or (whole and self._number[node] not in self._log_q)
        ]
        for low in range(0, len(fresh), SCORED_AT_ONCE):
            self._score(fresh[low : low + SCORED_AT_ONCE], whole)
        return [self._number[node] for node in nodes]

    def _score(self, nodes: list[tuple[int, int]], whole: bool) -> None:
        """Score nodes, as the next ones, and keep their lists."""
        from core.drafting.best import top

        log_q, first = self.score([t for _, t in nodes], [p for p, _ in nodes]), len(self._ids)
        best = top(log_q, self._width)
        ids = best.indices if self._covered is None else self._covered.ids[best.indices]
        self._number |= {node: first + i for i, node in enumerate(nodes)}
        self._ids += list(ids.cpu().numpy())
        self._best += list(best.values.float().cpu().numpy())
        if whole or first < SCORED_AT_ONCE:
            self._log_q |= dict(enumerate(log_q, first))
        self._paths += [self.path(token, parent) for parent, token in nodes]

    def path(self, token: int, parent: int) -> list[int]:
        """The tokens from the root to a node after one that is scored; −1: to the root."""
        return [*(self._paths[parent] if parent >= 0 else ()), token]

    def _node(self, state: int) -> tuple[int, int]:
        """The number of the scored node before a state, and the state's token."""
        if state == ROOT_STATE:
            return -1, self.root
        parent, rank = divmod(state - 1, len(self._ids[0]))
        return parent, int(self._ids[parent][rank])
