"""ngram-mod (llama.cpp's ``--spec-type ngram-mod``, pull request 19164): a table from the hash of n
tokens to the token after them. It drafts as long as the table has the last n tokens.

The table holds the newest token for each place of it, and places are shared: two runs of tokens
whose hashes agree take each other's. q of a drafted token is 1. As in llama.cpp, drafts of which
too little is accepted empty the table of everything but the text itself.

Where it differs: the text's n-grams enter the table at once, not in pieces of 32 tokens, and the
table of other requests is what ``earlier`` names, since a run must not depend on the run before.
A table that is more than a quarter full is not emptied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.drafting.session import Drafter, FactorisedSession
from core.methods.earlier import read_earlier
from core.methods.method import BY_RUN, DrafterInfo, Explanation, Method, Options, Range, option
from core.rounds.draft import Draft
from core.rounds.round import Verdict

if TYPE_CHECKING:
    from core.models.language import Language

PLACES = 4 << 20  # of the table
FACTOR = 6364136223846793005  # of Knuth's linear congruential generator
WORD = (1 << 64) - 1


@dataclass(frozen=True)
class NgramModOptions:
    """Options; the defaults are llama.cpp's."""

    n_match: int = option(
        24, "tokens that are looked up together (n)", Range(1, 1024), "n-gram size"
    )
    n_min: int = option(48, "a draft of fewer tokens is dropped", Range(0, 1024), "shortest draft")
    n_max: int = option(64, "a draft has at most so many tokens", Range(1, 1024), "longest draft")
    low: float = option(
        0.25, "a draft is bad if a smaller share of it is accepted", Range(0, 1, step=0.05),
        "low acceptance",
    )  # fmt: skip
    streak: int = option(
        5, "after so many bad drafts in a row the table forgets earlier texts; 0: never",
        Range(0, 1024), "bad drafts in a row",
    )  # fmt: skip
    earlier: str = option("", "path of earlier texts: a trace, a text file, JSON lines or a folder")


def place_of(tokens: Iterable[int]) -> int:
    """The place of a run of tokens in the table."""
    found = 0
    for token in tokens:
        found = (found * FACTOR + token) & WORD
    return found % PLACES


class Table:
    """The token after every n tokens, by their place: the newest one that came there."""

    def __init__(self, size: int):
        self._size, self._after = size, dict[int, int]()

    def add(self, text: Sequence[int], first: int) -> None:
        """Take in a text's tokens from ``first`` on: each stands after the n before it."""
        for at in range(max(first, self._size), len(text)):
            self._after[place_of(text[at - self._size : at])] = text[at]

    def follow(self, text: Sequence[int], most: int) -> list[int]:
        """The tokens after a text, one after the other, as far as they are there."""
        known = list(text[-self._size :])
        if len(known) < self._size:
            return []
        for at in range(most):
            if (token := self._after.get(place_of(known[at:]))) is None:
                break
            known.append(token)
        return known[self._size :]

    def copy(self) -> Table:
        made = Table(self._size)
        made._after = dict(self._after)
        return made


def load(language: Language, folder: Path | None, options: NgramModOptions) -> NgramMod:
    """The drafter with the earlier texts of its options. Raises UserError as ``read_earlier``."""
    earlier = Table(options.n_match)
    for text in read_earlier(options.earlier, language):
        earlier.add(text, 0)
    return NgramMod(language.vocabulary, options, earlier)


class NgramMod(Drafter):
    """The text and the table; a run begins with a copy of ``earlier``."""

    def __init__(self, vocabulary: int, options: NgramModOptions, earlier: Table):
        self.options, self.vocabulary, self._earlier = options, vocabulary, earlier
        self.reset(0)

    @property
    def max_depth(self) -> int:
        return self.options.n_max

    def reset(self, capacity: int) -> None:
        self.text, self.table, self._bad = list[int](), self._earlier.copy(), 0

    def extend(self, tokens: Sequence[int], features: object) -> None:
        first = len(self.text)
        self.text += tokens
        self.table.add(self.text, first)

    def begin(self, root: int, width: int) -> FactorisedSession:
        last = [*self.text[1 - self.options.n_match :], root]
        tokens = self.table.follow(last, self.options.n_max)
        if len(tokens) < self.options.n_min:
            tokens = []
        return FactorisedSession.sure(tokens, self.max_depth, self.vocabulary)

    def observe(self, draft: Draft, verdict: Verdict) -> None:
        """Forget the earlier texts after a streak of bad drafts."""
        if not draft.nodes:
            return
        share = (len(verdict.path) - 1) / draft.nodes
        self._bad = self._bad + 1 if share < self.options.low else 0
        if 0 < self.options.streak <= self._bad:
            self.table, self._bad = Table(self.options.n_match), 0
            self.table.add(self.text, 0)


EXPLAIN = Explanation(
    lead="Token {depth} of what the table has after the {n_match} tokens before it.",
    closing="The table has no probabilities: q counts as 1.",
)


def llama_cpp(size: int, options: Options) -> str:
    """Its own options: a shortest draft above K would leave no draft."""
    return (
        f"--spec-type ngram-mod --spec-ngram-mod-n-match {options['n_match']} "
        f"--spec-ngram-mod-n-min {min(int(options['n_min']), size)} --spec-ngram-mod-n-max {size}"
    )


DRAFTER = DrafterInfo(
    "ngram-mod",
    "the token that last followed the same n tokens, from a table of hashes",
    load,
    NgramModOptions,
    states=BY_RUN,
    explain=EXPLAIN,
    flags={"llama.cpp": llama_cpp},
)
METHOD = Method(
    "ngram-mod", "ngram-mod", "chain", 64, "llama.cpp's table of the token after n tokens",
)  # fmt: skip
