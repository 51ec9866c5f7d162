"""Lookahead decoding (arXiv 2402.02057): the target itself guesses ahead, in a window.

Every round the target also scores a window of N − 1 rows of W tokens, beside the draft. What it
says after the window's last row makes W new n-grams of N tokens. They go into a pool; the pool's
n-grams that begin with the text's last token are the draft. Two mistakes of the published code are
not made: a whole n-gram may be accepted, with the token after it, and n-grams are of distinct
places.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from core.drafting.session import NO_STATE, Drafter, Listed, ListedSession, spread
from core.methods.method import BY_RUN, DrafterInfo, Explanation, Method, Note, Range, option
from core.rounds.draft import ROOT, Array, Candidates, Draft
from core.rounds.round import Verdict

if TYPE_CHECKING:
    from torch import Tensor

    from core.models.language import Language

Gram = tuple[int, ...]
SHARED, NEWEST = "pool: n-grams", "pool: newest"  # notes of a node


@dataclass(frozen=True)
class LookaheadOptions:
    """Options; the defaults are as the published code's own README has them."""

    gram: int = option(5, "tokens of an n-gram (N)", Range(2, 32), "n-gram size (N)")
    window: int = option(7, "places that are guessed at once (W)", Range(1, 128), "window (W)")
    guesses: int = option(
        7, "n-grams kept for each first token (G)", Range(1, 128), "n-grams per token (G)"
    )


class GramPool:
    """n-grams by their first token: at most ``size`` each, the least recently seen goes first."""

    def __init__(self, size: int):
        self._size, self._grams = size, dict[int, list[Gram]]()

    def add(self, first: int, rest: Gram) -> None:
        held = self._grams.setdefault(first, [])
        if rest in held:
            held.remove(rest)
        held.append(rest)
        del held[: -self._size]

    def after(self, token: int) -> list[Gram]:
        """List the grams that follow a token, the one seen last first."""
        return self._grams.get(token, [])[::-1]


class Lookahead(Drafter):
    """The window and the pool of one text.

    Column i of row r stands i + r places after the root. Row 0 begins with the root. Row 0 sees
    itself causally; a token of another row sees row 0 up to its column, and its own column above.
    """

    def __init__(self, language: Language, folder: None, options: LookaheadOptions):
        self.options, self.vocabulary = options, language.vocabulary
        self.reset(0)

    @property
    def max_depth(self) -> int:
        return self.options.gram - 1

    @property
    def side_rows(self) -> int:
        return self.max_depth * self.options.window - 1

    def reset(self, capacity: int) -> None:
        self.pool, self.text = GramPool(self.options.guesses), list[int]()
        self.window: Array | None = None  # [N − 1, W]
        self.rounds = 0  # that the window has seen

    def extend(self, tokens: Sequence[int], features: object) -> None:
        self.text += tokens

    def begin(self, root: int, width: int) -> PoolSession:
        if self.window is None:  # at first it holds random tokens of the prompt
            shape = (self.max_depth, self.options.window)
            self.window = np.random.default_rng(0).choice(self.text or [root], shape)
        self.window[0, 0] = root
        return PoolSession(self.pool.after(root), self.max_depth, self.vocabulary)

    def beside(self, draft: Draft) -> Draft:
        assert self.window is not None
        width, first = self.options.window, len(draft)
        places = [ROOT, *range(first, first + self.side_rows)]  # the draft's rows they are
        parents = [*places[: width - 1], *places[:-width]]  # row 0 is a chain, all else a column
        return draft.with_side(self.window.ravel()[1:], parents)

    def observe(self, draft: Draft, verdict: Verdict) -> None:
        """Take in what the target says after the last row, and move on by one place."""
        assert self.window is not None
        rows = [ROOT, *sorted(draft.side)][-self.options.window :]
        tokens = verdict.target_tokens[rows]
        if self.rounds >= self.max_depth - 1:  # row 1 no longer holds tokens of the prompt
            for first, *rest in np.vstack([self.window, tokens]).T.tolist():
                self.pool.add(first, tuple(rest))
        self.window = np.vstack([self.window[1:], tokens])
        self.rounds += 1


class PoolSession(ListedSession):
    """States are the beginnings of n-grams; q is the share of the pool's n-grams."""

    def __init__(self, grams: Sequence[Gram], max_depth: int, vocabulary: int):
        self.max_depth, self._vocabulary = max_depth, vocabulary
        beginnings = dict.fromkeys(g[:n] for n in range(max_depth) for g in grams)
        self._states = {beginning: n for n, beginning in enumerate(beginnings or {(): None})}
        through = Counter(g[:n] for n in range(max_depth + 1) for g in grams)
        newest = dict[Gram, int]()
        for age, gram in enumerate(grams, 1):
            for n in range(1, max_depth + 1):
                newest.setdefault(gram[:n], age)
        after: dict[Gram, list[Gram]] = {beginning: [] for beginning in self._states}
        for child in sorted(newest, key=lambda g: (-through[g], newest[g])):
            after[child[:-1]].append(child)

        def listed(child: Gram) -> Listed:
            log_q = math.log(through[child] / through[child[:-1]])
            state = self._states.get(child, NO_STATE)
            return child[-1], log_q, state, (through[child], newest[child])

        lists = [list(map(listed, children)) for children in after.values()]
        super().__init__(lists, (SHARED, NEWEST))

    def log_q(self, path: Sequence[int]) -> Tensor:
        """log q [d, V]; all −inf after a path that the pool does not hold."""
        known = [self._states.get(tuple(path[1:n]), -1) for n in range(1, len(path) + 1)]
        odds = np.where(np.array(known)[:, None] >= 0, self.lists.log_q[known], -np.inf)
        lists = Candidates(self.lists.ids[known], odds.astype(np.float32))
        return spread(lists, self._vocabulary)


EXPLAIN = Explanation(
    lead="Token {depth} of an n-gram that the pool holds for the text's last token.",
    notes=(
        Note(SHARED, "n-grams of the pool", "count", "that go through it, of {guesses} at most"),
        Note(NEWEST, "newest n-gram", "count", "1 is the one that the window wrote last"),
    ),
    closing="q is its share of the pool's n-grams after its parent, and no model's probability.",
)
DRAFTER = DrafterInfo(
    "lookahead",
    "n-grams that the target wrote in a window",
    Lookahead,
    LookaheadOptions,
    states=BY_RUN,
    explain=EXPLAIN,
)
METHOD = Method(
    "Lookahead", "lookahead", "best-first", 28, "n-grams that the target wrote in a window",
)  # fmt: skip
