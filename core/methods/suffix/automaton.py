"""A suffix automaton of texts of tokens, with how often every short substring occurs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROOT = 0  # the state of the empty string


@dataclass(frozen=True)
class Follower:
    """A token that was seen after a string.

    count  how often the string with this token occurs
    state  the state of the string with this token
    """

    token: int
    count: int
    state: int


class SuffixAutomaton:
    """Every substring of some texts, and how often each of at most ``depth`` tokens occurs.

    It stands for a suffix tree: strings that end at the same places share a state. A text grows by
    a token at a time, in amortised constant time and at most two states (Blumer et al., 1985); the
    counts take one step for each state of the last ``depth`` tokens' suffixes, ``depth`` at most.
    A state's count holds for its strings of at most ``depth`` tokens.

    Per state: the state after every token that was seen, in the order of first occurrence; the
    length of its longest string; its suffix link (the state of the longest suffix that occurs at
    more places); the count.
    """

    def __init__(self, depth: int):
        self.depth = depth
        self._next, self._length, self._link = [dict[int, int]()], [0], [-1]
        self._counts = [0]
        self.begin()

    def begin(self) -> None:
        """Begin another text: no string goes over from one text to the next."""
        self._last = ROOT  # the state of the whole text
        self._ending, self._ending_length = ROOT, 0  # the state of its last ``depth`` tokens

    def append(self, token: int) -> None:
        """The text's next token."""
        known = self._next[self._last].get(token)
        if known is None:
            self._last = self._grown(token)
        else:  # an earlier text goes on so
            self._last = self._exact(self._last, token, known)
        self._count(token)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.append(token)

    def suffixes(self, text: Sequence[int]) -> list[int]:
        """The state of the text's last token, of its last two, and so on as far as they occur."""
        state, matched, found = ROOT, 0, list[int]()
        for token in text:
            while state != ROOT and token not in self._next[state]:
                state = self._link[state]
                matched = self._length[state]
            if (after := self._next[state].get(token)) is not None:
                state, matched = after, matched + 1
        while state != ROOT:
            shorter = self._link[state]
            found += [state] * (matched - self._length[shorter])
            state, matched = shorter, self._length[shorter]
        return found[::-1]

    def count(self, state: int) -> int:
        """How often the state's strings occur."""
        return self._counts[state]

    def after(self, state: int, token: int) -> int | None:
        """The state of a state's string with this token; None: it does not occur."""
        return self._next[state].get(token)

    def followers(self, state: int, least: float = 1) -> list[Follower]:
        """The tokens that were seen after a state's string at least so often, the most frequent
        first, of equals the one that was seen first."""
        seen = ((token, self._counts[after], after) for token, after in self._next[state].items())
        found = [Follower(*each) for each in seen if each[1] >= least]
        return sorted(found, key=lambda each: -each.count)

    def _new(self, length: int) -> int:
        self._next.append({})
        self._length.append(length)
        self._link.append(ROOT)
        self._counts.append(0)
        return len(self._length) - 1

    def _grown(self, token: int) -> int:
        """A new state for the whole text with this token, which follows it for the first time."""
        state, at = self._new(self._length[self._last] + 1), self._last
        while at >= 0 and token not in self._next[at]:
            self._next[at][token] = state
            at = self._link[at]
        if at >= 0:
            self._link[state] = self._exact(at, token, self._next[at][token])
        return state

    def _exact(self, before: int, token: int, state: int) -> int:
        """The state whose longest string is that of ``before`` with this token: ``state``, or one
        that is split off it for its strings up to that length."""
        length = self._length[before] + 1
        if self._length[state] == length:
            return state
        split = self._new(length)
        self._next[split] = dict(self._next[state])
        self._link[split], self._link[state] = self._link[state], split
        self._counts[split] = self._counts[state]
        while before >= 0 and self._next[before].get(token) == state:
            self._next[before][token] = split
            before = self._link[before]
        return split

    def _count(self, token: int) -> None:
        """Count the suffixes of the last ``depth`` tokens, the last of which is this one."""
        state = self._next[self._ending][token]
        self._ending_length = min(self._ending_length + 1, self.depth)
        if self._length[self._link[state]] >= self._ending_length:
            state = self._link[state]
        self._ending = state
        while state != ROOT:
            self._counts[state] += 1
            state = self._link[state]
