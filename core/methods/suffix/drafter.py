"""Suffix decoding at work: one automaton of the text so far, one of earlier texts.

Both count the text's own end as an occurrence that nothing follows yet, so that a pattern seen once
before is not taken for sure. The published code's store of earlier answers also holds the running
one; here that is in the text's own automaton alone.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from core.drafting.session import NO_STATE, Drafter, Listed, ListedSession, spread
from core.methods.earlier import read_earlier
from core.methods.suffix import EARLIER, ESTIMATE, MATCHED, SEEN, SuffixOptions
from core.methods.suffix.automaton import Follower, SuffixAutomaton
from core.rounds.draft import Candidates

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from core.models.language import Language

NO_NODE = -1  # the pattern itself, as a parent


def load(language: Language, folder: Path | None, options: SuffixOptions) -> SuffixDrafter:
    """The drafter with the earlier texts of its options. Raises UserError as ``read_earlier``."""
    store = SuffixAutomaton(options.max_tree_depth)
    for text in read_earlier(options.earlier, language):
        store.begin()
        store.extend(text)
    return SuffixDrafter(language.vocabulary, options, store)


@dataclass(frozen=True)
class Pattern:
    """The text's last tokens where they occurred before.

    length   m, its tokens
    state    its state in the automaton ``counts``
    count    how often it occurs, the text's own end with it
    earlier  whether ``counts`` is of earlier texts
    """

    length: int
    state: int
    count: int
    counts: SuffixAutomaton
    earlier: bool


@dataclass(frozen=True)
class GuessedNode:
    """A node of a draft: its parent's number or ``NO_NODE``, and its estimated probability."""

    parent: int
    seen: Follower
    estimate: float


class SuffixDrafter(Drafter):
    """The text and its automaton; ``store`` has earlier texts, and never changes."""

    def __init__(self, vocabulary: int, options: SuffixOptions, store: SuffixAutomaton):
        self.options, self.vocabulary, self._store = options, vocabulary, store
        self.reset(0)

    @property
    def max_depth(self) -> int:
        return self.options.max_tree_depth - 1

    def reset(self, capacity: int) -> None:
        self._text, self._rooted = list[int](), False
        self._own = SuffixAutomaton(self.options.max_tree_depth)

    def extend(self, tokens: Sequence[int], features: object) -> None:
        tokens = list(tokens)
        if self._rooted and tokens:
            self._rooted = False
            if tokens[0] == self._text[-1]:
                del tokens[0]
            else:
                self._without_root()
        self._text += tokens
        self._own.extend(tokens)

    def begin(self, root: int, width: int) -> SuffixSession:
        """The root joins the automaton: where it occurs with the tokens before it counts, too."""
        if self._rooted and root != self._text[-1]:
            self._without_root()
        if not self._rooted:
            self._text.append(root)
            self._own.append(root)
            self._rooted = True
        return self._session()

    def _without_root(self) -> None:
        """Count anew: nobody but a caller that tries roots does this."""
        text = self._text[:-1]
        self.reset(0)
        self._text = text
        self._own.extend(text)

    def _session(self) -> SuffixSession:
        best, nodes, sum_of_best = None, list[GuessedNode](), 0.0
        for counts in (self._own, self._store):
            for pattern in self._patterns(counts):
                found = self._nodes(pattern)
                expected = sum(node.estimate for node in found)
                longer = best is not None and counts is best.counts
                if expected > sum_of_best or (longer and expected == sum_of_best):
                    best, nodes, sum_of_best = pattern, found, expected
        depth = self._limit(best) if best is not None else 1
        return SuffixSession(best, nodes, max(1, depth), self.vocabulary, self._text)

    def _patterns(self, counts: SuffixAutomaton) -> Iterator[Pattern]:
        """The patterns that something followed, the shortest first."""
        earlier = counts is self._store
        states = counts.suffixes(self._text[-self.options.max_tree_depth :])
        for m, state in enumerate(states, 1):
            if (count := counts.count(state) + earlier) > 1:
                yield Pattern(m, state, count, counts, earlier)

    def _limit(self, pattern: Pattern) -> int:
        """The most nodes of its draft, and so the deepest depth."""
        o, m = self.options, pattern.length
        return min(int(m * o.max_spec_factor + 1e-6), o.max_tree_depth - m)

    def _nodes(self, pattern: Pattern) -> list[GuessedNode]:
        """The most probable nodes, greedily; of equal ones that found first."""
        limit, nodes = self._limit(pattern), list[GuessedNode]()
        heap = list[tuple[float, int, GuessedNode]]()
        parent, state, estimate, count = NO_NODE, pattern.state, 1.0, pattern.count
        pushed = 0
        while len(nodes) < limit:
            for seen in self._followers(pattern, state, count, estimate):
                node = GuessedNode(parent, seen, estimate * seen.count / count)
                heapq.heappush(heap, (-node.estimate, pushed, node))
                pushed += 1
            if not heap:
                break
            _, _, node = heapq.heappop(heap)
            nodes.append(node)
            parent, state = len(nodes) - 1, node.seen.state
            estimate, count = node.estimate, node.seen.count
        return nodes

    def _followers(
        self, pattern: Pattern, state: int, count: int, estimate: float
    ) -> list[Follower]:
        """Those probable enough: all in a tree, the most frequent one on a path."""
        least = self.options.min_token_prob
        found = pattern.counts.followers(state, least * count / estimate * (1 - 1e-9))
        return found if self.options.tree else found[:1]


class SuffixSession(ListedSession):
    """States are the pattern and the draft's nodes. q of a token is its share among all tokens
    that followed there; it is a distribution wherever one did. Only the draft's nodes are listed.

    ``text`` may grow after: q stays that of the text as it was.
    """

    def __init__(
        self, pattern: Pattern | None, nodes: Sequence[GuessedNode], max_depth: int,
        vocabulary: int, text: list[int],
    ):  # fmt: skip
        self.max_depth, self._pattern, self._vocabulary = max_depth, pattern, vocabulary
        self._text, self._known = text, len(text)
        after: dict[int, list[int]] = {NO_NODE: []}
        for number, node in enumerate(nodes):
            after.setdefault(node.parent, []).append(number)
        self._states = {parent: state for state, parent in enumerate(after)}
        lists = [[]] if pattern is None else [
            self._listed(pattern.state if parent == NO_NODE else nodes[parent].seen.state,
                         [(number, nodes[number]) for number in children])
            for parent, children in after.items()
        ]  # fmt: skip
        super().__init__(lists, (SEEN, ESTIMATE, MATCHED, EARLIER))

    def _listed(self, state: int, children: Sequence[tuple[int, GuessedNode]]) -> list[Listed]:
        """The children of a node or of the pattern, the most frequent first."""
        assert self._pattern is not None
        followed = sum(each.count for each in self._pattern.counts.followers(state))
        length, earlier = self._pattern.length, self._pattern.earlier
        return [
            (
                node.seen.token,
                np.log(node.seen.count / followed),
                self._states.get(number, NO_STATE),
                (node.seen.count, np.log(node.estimate), length, earlier),
            )
            for number, node in sorted(children, key=lambda each: -each[1].seen.count)
        ]

    def log_q(self, path: Sequence[int]) -> Tensor:
        """log q [d, V] of all that followed; all −inf where nothing did, and beyond the tokens
        that are counted together (``max_tree_depth``)."""
        lists = [self._followed(path[1:end]) for end in range(1, len(path) + 1)]
        shape = (len(lists), max(1, *map(len, lists)) if lists else 1)
        ids, log_q = np.zeros(shape, np.int64), np.full(shape, -np.inf, np.float32)
        for row, seen in enumerate(lists):
            counts = np.array([*seen.values()], np.float64)
            ids[row, : len(seen)] = [*seen]
            log_q[row, : len(seen)] = np.log(counts / counts.sum())
        return spread(Candidates(ids, log_q), self._vocabulary)

    def _followed(self, path: Sequence[int]) -> Counter[int]:
        """Token → how often it followed the pattern and this path.

        The automaton has grown by the accepted tokens when the probe asks. They are not counted:
        they would be evidence for themselves.
        """
        if self._pattern is None:
            return Counter()
        counts = self._pattern.counts
        string = [*self._text[self._known - self._pattern.length : self._known], *path]
        size = len(string)
        # by its tokens: growth may move a string to another state
        states = counts.suffixes(string) if size < counts.depth else []
        if len(states) < size:
            return Counter()
        seen = Counter({each.token: each.count for each in counts.followers(states[-1])})
        if not self._pattern.earlier:
            for at in range(max(self._known, size), len(self._text)):
                if self._text[at - size : at] == string:
                    seen[self._text[at]] -= 1
        return +seen
