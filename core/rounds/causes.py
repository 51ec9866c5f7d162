"""Why a branch or a walk ended: one code for files and tables, and its words for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """A stable code for each cause; ``Round.why`` says which one holds. Display words are apart.

    An unknown cause is a cause: what was not recorded is never told as something else.
    """

    ACCEPTED = "accepted"
    OUTRANKED = "outranked"
    PRUNED = "pruned"
    STOPPED = "stopped"
    NOT_READ = "not_read"
    SHORT_LIST = "short_list"
    OUTSIDE = "outside"
    VOCABULARY = "vocabulary"
    BEYOND = "beyond"
    NO_DRAFT = "no_draft"
    REFUSED = "refused"
    NOT_TAKEN = "not_taken"
    UNKNOWN = "unknown"
    TEXT_ENDED = "text_ended"
    NOT_IN_GRAPH = "not_in_graph"
    BLOCK_DONE = "block_done"
    UNREACHED = "unreached"
    SIDE = "side"

    @property
    def words(self) -> str:
        """The sentence on the target's token where a walk ended so, or on a node."""
        return _WORDS[self].words

    @property
    def short(self) -> str:
        """The same as a legend or a column's title has it."""
        return _WORDS[self].short

    @property
    def node(self) -> str:
        """The words of a legend for a drafted node whose branch ended so."""
        return _WORDS[self].node


@dataclass(frozen=True)
class _Words:
    words: str
    short: str
    node: str


def _missed(words: str, node: str, short: str = "") -> _Words:
    """The cause for a token that was not drafted."""
    return _Words(f"not drafted: {words}", short or words, f"rejected ({node})")


def _same(words: str) -> _Words:
    return _Words(words, words, words)


_WORDS = {
    Cause.ACCEPTED: _same("accepted"),
    Cause.OUTRANKED: _Words("outranked", "outranked", "outranked by a sibling"),
    Cause.PRUNED: _missed("pruned by budget", "budget"),
    Cause.STOPPED: _missed("left out by the builder's own rule", "own rule", "builder's own rule"),
    Cause.NOT_READ: _missed("behind what the builder reads of a list", "not read",
                            "behind what the builder reads"),
    Cause.SHORT_LIST: _missed("beyond what this budget lists", "beyond this budget's lists",
                              "budget's lists"),
    Cause.OUTSIDE: _missed("outside the candidates", "candidates"),
    Cause.VOCABULARY: _missed("outside the draft vocabulary", "draft vocabulary"),
    Cause.BEYOND: _missed("beyond the last depth", "last depth"),
    Cause.NO_DRAFT: _missed("this round drafted nothing", "no draft", "nothing drafted"),
    Cause.REFUSED: _Words("drawn in place of the refused token", "refused by sampling",
                          "rejected (refused)"),
    Cause.NOT_TAKEN: _Words("drafted, and not taken", "drafted, not taken",
                            "rejected (drafted, not taken)"),
    Cause.UNKNOWN: _missed("the reason was not recorded", "reason not recorded",
                           "reason not recorded"),
    Cause.TEXT_ENDED: _Words("behind the end of the text", "text ended",
                             "rejected (behind the end of the text)"),
    Cause.NOT_IN_GRAPH: _missed("not in the draft graph", "draft graph"),
    Cause.BLOCK_DONE: _same("nothing left to draft: the block is finished"),
    Cause.UNREACHED: _same("unreached"),
    Cause.SIDE: _same("side"),
}  # fmt: skip

# What may end a round's walk; the others are said of nodes alone.
ENDS = tuple(
    cause
    for cause in Cause
    if cause not in (Cause.ACCEPTED, Cause.OUTRANKED, Cause.UNREACHED, Cause.SIDE)
)
