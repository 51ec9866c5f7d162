"""Remedies for the walks of a run: the one decision that all findings speak from.

Each cause of a walk's end names what would have helped that walk. What the builder reads of a list
is one thing, what the drafter lists another. Where a cause was not recorded, nothing is concluded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from analysis.frames import By, Frame
from analysis.measures.tables import Tables
from core.rounds.causes import Cause


class Remedy(StrEnum):
    """A change of the drafter, the builder or its budget."""

    NODES = "nodes"  # a larger budget for the same builder
    WIDER = "wider"  # a builder that reads more of the drafter's lists
    LISTS = "lists"  # longer lists, or a drafter that ranks the token higher
    VOCABULARY = "vocabulary"
    DEEPER = "deeper"  # a drafter with more depths
    DRAFT = "draft"  # a draft in every round
    CLOSER = "closer"  # a q closer to p


class Claim(StrEnum):
    """The claim on a remedy. COULD: without it these walks end there, and whether the drafter had
    then drafted the token is not known. NOT: it would have helped none of these walks."""

    HELPS = "helps"
    COULD = "could"
    NOT = "not"
    UNKNOWN = "unknown"


Claims = Mapping[Remedy, Claim]
VERBS = {Claim.HELPS: "would", Claim.COULD: "could"}


@dataclass(frozen=True)
class Ending:
    """A cause of walks' ends in one clause, and what would have helped them."""

    what: str
    helps: str
    claims: Claims


# The token is in no list that was recorded: a larger vocabulary may rank it last.
_OPEN = (Remedy.LISTS, Remedy.VOCABULARY, Remedy.DEEPER)
# What ends a walk of which nobody knows what a tree of other nodes would have brought it.
_NOT_KNOWN = (Cause.UNKNOWN, Cause.REFUSED, Cause.NO_DRAFT)
_HELPED = {
    Cause.PRUNED: (Remedy.NODES, "ended by budget", "more nodes, or a better order of them,"),
    Cause.STOPPED: (
        Remedy.WIDER,
        "ended at a token that the builder left out by its own rule",
        "a builder that drafts more of the lists (a wider tree)",
    ),
    Cause.NOT_READ: (
        Remedy.WIDER,
        "ended at a token behind what the builder reads of a list",
        "a builder that reads more of the lists (a wider tree)",
    ),
    Cause.SHORT_LIST: (
        Remedy.NODES,
        "ended at a token beyond what this budget lists",
        "more nodes, with longer lists,",
    ),
    Cause.OUTSIDE: (
        Remedy.LISTS,
        "ended at a token outside the drafter's candidates",
        "longer lists that the builder reads, or a better drafter,",
    ),
    Cause.VOCABULARY: (
        Remedy.VOCABULARY,
        "ended at a token outside the draft vocabulary",
        "a larger draft vocabulary",
    ),
    Cause.BEYOND: (Remedy.DEEPER, "ended at the last depth", "more depths"),
    Cause.REFUSED: (
        Remedy.CLOSER,
        "ended where speculative sampling refused a drafted token",
        "a q closer to p",
    ),
}


@dataclass(frozen=True)
class Walks:
    """The walks of one label's rounds.

    rounds  their lines of the table of rounds; plain decoding has none
    """

    label: str
    rounds: Frame

    @property
    def counts(self) -> Counter[Cause]:
        """Walks by cause, without causes that ended none."""
        found = self.rounds["stop"].value_counts()
        return Counter({Cause(name): int(n) for name, n in found.items() if n})

    @property
    def drafted(self) -> Frame:
        """The lines of the rounds that drafted something."""
        return self.rounds[self.rounds["nodes"] > 0]

    @property
    def _lost(self) -> Frame:
        """Rounds whose walk ended inside the text: more could have been accepted."""
        return self.drafted[self.drafted["stop"] != Cause.TEXT_ENDED]

    @property
    def whole(self) -> int:
        """Walks that used all of the drafter's depths, as far as those are recorded."""
        return int((self._lost["accepted"] >= self._lost["last_depth"]).sum())

    @property
    def to_the_end(self) -> int:
        """Walks that used all depths of their tree, where the drafter's are not recorded."""
        some = self._lost[self._lost["last_depth"].isna()]
        return int((some["accepted"] >= some["depths"]).sum())

    def ending(self, cause: Cause) -> Ending:
        """Return the words and claims on the walks that ended by a cause."""
        if cause is Cause.UNKNOWN:
            said = dict.fromkeys((Remedy.NODES, Remedy.WIDER, Remedy.LISTS), Claim.UNKNOWN)
            left = {remedy: claim for remedy, claim in said.items() if not self.helped(remedy)}
            helps = "whether more nodes, a wider tree or longer lists would help these is not known"
            return Ending("ended for a reason that was not recorded", helps, left)
        if cause is Cause.TEXT_ENDED:
            return Ending("went beyond the end of the text", "nothing was lost there", {})
        if cause is Cause.NOT_TAKEN:
            helps = "why these were not taken was not recorded"
            return Ending("ended before a drafted token that the engine wrote", helps, {})
        if cause is Cause.NO_DRAFT:
            helps = "whether a draft there would help is not known"
            return Ending("had no draft", helps, {Remedy.DRAFT: Claim.UNKNOWN})
        remedy, what, helps = _HELPED[cause]
        claim = self.claim(remedy)
        return Ending(what, f"{helps} {VERBS[claim]} help", {remedy: claim})

    def helped(self, remedy: Remedy) -> int:
        """How many walks ended for want of a remedy."""
        return sum(self.counts[cause] for cause, (helps, *_) in _HELPED.items() if helps is remedy)

    @property
    def not_known(self) -> int:
        """Walks of which it is not known whether other nodes would have helped them."""
        return sum(self.counts[cause] for cause in _NOT_KNOWN)

    def claim(self, remedy: Remedy) -> Claim:
        """Say whether a remedy would have helped, as far as that is known."""
        if self.helped(remedy):
            return Claim.COULD if remedy in _OPEN else Claim.HELPS
        unknown = self.to_the_end if remedy is Remedy.DEEPER else self.not_known
        return Claim.UNKNOWN if unknown else Claim.NOT


def walks(tables: Tables, by: By = "method") -> list[Walks]:
    rounds = tables.rounds
    drafting = rounds.groupby("run", observed=True)["nodes"].transform("sum") > 0
    return [Walks(str(label), part) for label, part in rounds[drafting].groupby(by, observed=True)]
