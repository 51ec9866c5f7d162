"""What the course is made of: four recorded runs of one prompt.

Every number and every token in the chapters is read from ``assets/learn`` and ``assets/measured``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from app.learn.steps import Search, no_verdict, queue_tree, search
from app.learn.words import Json, Wording
from app.view.explanation import Explainer
from app.view.rounds import round_view
from core import ASSETS
from core.rounds.draft import Candidates, Draft
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.traces.schema import Trace

FOLDER = ASSETS / "learn"
MAIN = "ddtree"  # the method that most chapters look at
WHOLE_PATH = "eagle3"
RACED = (MAIN, "treeflash", "dart")
METHODS = (*RACED, WHOLE_PATH)


@dataclass(frozen=True, eq=False)
class Material:
    """The runs a course is made of: one prompt, one seed, one budget, four methods."""

    traces: Mapping[str, Trace]

    @staticmethod
    def shipped(folder: Path = FOLDER) -> Material:
        """Raises UserError when a trace is missing or broken."""
        return Material({name: read_trace(folder / f"{name}.jsonl.gz") for name in METHODS})

    def first(self, method: str) -> Round:
        """A method's first round: all begin at the same place, with the same root."""
        return self.traces[method].rounds[0]

    @property
    def record(self) -> Round:
        """The round that most chapters look at."""
        return self.first(MAIN)

    @property
    def words(self) -> Wording:
        return Wording.of(self.record)

    @property
    def budget(self) -> int:
        return self.record.draft.nodes

    def lists(self, method: str = MAIN) -> Candidates:
        """The drafter's list for each depth in a method's first round."""
        by_depth = self.first(method).by_depth
        assert by_depth is not None, "a shipped trace holds what was proposed"
        return by_depth

    @cached_property
    def found(self) -> Search:
        """How best-first came to that round's tree."""
        return search(self.lists(), self.budget)

    @cached_property
    def queued(self) -> Draft:
        """Everything best-first ever had in its queue, as one tree."""
        return queue_tree(self.found, self.lists(), int(self.record.draft.tokens[0]))

    def trees(self) -> Json:
        """Every tree that a figure shows, by name; "…?" is one before the target's answer."""
        made: Json = {}
        for method in METHODS:
            record, explainer = self.first(method), Explainer.of(self.traces[method].header)
            made[method] = round_view(record, explainer)
            made[method + "?"] = before(record, explainer)
        made["next"] = round_view(self.traces[MAIN].rounds[1])
        made["queue"] = before(replace(self.record, draft=self.queued))
        return made


def before(record: Round, explainer: Explainer | None = None) -> Json:
    """A round as it is when only the drafter has answered."""
    silent = replace(record, verdict=no_verdict(record.draft), target_probs=None, probe=None)
    drawn = round_view(silent, explainer or Explainer())
    return {**drawn, "status": "a" + "u" * record.draft.nodes, "untold": True}
