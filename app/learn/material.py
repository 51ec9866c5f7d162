"""The recordings of the course: six runs of one prompt, and two of another.

Every number and every token in the chapters is read from ``assets/learn`` and ``assets/measured``.
``app.maintainers.recording`` makes the runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from app.learn.drawn import FILE as DRAWN
from app.learn.drawn import DrawnWalks, Draws, wavering
from app.learn.predict import asked
from app.learn.steps import (
    Search,
    first_nodes,
    nesting_faults,
    no_verdict,
    queue_tree,
    same_token,
    search,
    tree_of,
)
from app.learn.words import ChapterStep, Json, Wording
from app.view.explanation import Explainer
from app.view.rounds import round_view
from core import ASSETS
from core.methods.dart import CONTEXT
from core.rounds.draft import Candidates, Draft
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.visible import flowing

FOLDER = ASSETS / "learn"
MAIN = "ddtree"  # the method that most chapters look at
WHOLE_PATH = "eagle3"
OWN_LAYER = "mtp"
OWN_GUESSES = "uno"
RACED = (MAIN, "treeflash", "dart")
METHODS = (*RACED, WHOLE_PATH, OWN_LAYER, OWN_GUESSES)
PAIR = (MAIN, "treeflash")  # whose trees chapter 7 compares, at another text too

PROMPT = "Write one sentence about the night sky."
OTHER_PROMPT = "Write one sentence about a mountain."
TRACES, TIMED = ASSETS / "traces", ("code-ar", "code-ddtree-16")  # the race of chapter 1
BUDGET, TOKENS = 10, 24
GROWN, MOST_NODES = "grown", 40  # the first round once more, with a larger budget
LAST_WORDS = 6  # tokens of a text so far
OTHER = "other-"  # begins the names of the other prompt's runs and trees
ASKED = "asked-"  # begins the names of the trees that a learner is asked about
PATHS = "paths-"  # begins the names of chapter 8's trees
RECORDED = {name: (PROMPT, name) for name in METHODS} | {
    OTHER + name: (OTHER_PROMPT, name) for name in PAIR
}  # file name → prompt, method


@dataclass(frozen=True, eq=False)
class Material:
    """The runs a course is made of, by the names of ``RECORDED``: one seed, one budget; and
    ``GROWN``. ``draws``: of the round that ``walks`` looks at."""

    traces: Mapping[str, Trace]
    draws: Draws

    @staticmethod
    def shipped(folder: Path = FOLDER) -> Material:
        """Raises UserError when a file is missing or broken."""
        names = (*RECORDED, GROWN)
        traces = {name: read_trace(folder / f"{name}.jsonl.gz") for name in names}
        return Material(traces, Draws.read(folder / DRAWN))

    @cached_property
    def timed(self) -> tuple[Trace, Trace]:
        """Plain decoding and a tree on another prompt, of the examples: with times and one text.

        Raises UserError when a trace is missing or broken.
        """
        plain, drafted = (read_trace(TRACES / f"{name}.jsonl.gz") for name in TIMED)
        return plain, drafted

    @cached_property
    def walks(self) -> DrawnWalks:
        """A round where the target wavers, at other temperatures and seeds."""
        rounds = self.traces[MAIN].rounds
        return DrawnWalks(rounds[wavering(rounds)], self.draws)

    @cached_property
    def grown(self) -> Mapping[int, Round]:
        """The first round by its draft budget, from 1 on: parts of one recorded pass."""
        whole = self.traces[GROWN].rounds[0]
        return {nodes: first_nodes(whole, nodes) for nodes in range(1, whole.draft.nodes + 1)}

    @cached_property
    def surprises(self) -> tuple[Round, ...]:
        """Rounds after the first where the target takes a token that is not the drafter's best."""
        later = self.traces[MAIN].rounds[1:]
        return tuple(r for r in later if r.accepted and r.draft.ranks[r.verdict.path[1]] > 1)

    @cached_property
    def empty(self) -> Round:
        """The round that accepts nothing with the fewest nodes of depth 1."""
        none = [r for r in self.traces[MAIN].rounds if not r.accepted]
        return min(none, key=lambda record: len(record.draft.children[0]))

    def ask(self, section: str, record: Round) -> ChapterStep:
        """A question on one of the main run's rounds."""
        values = {"number": record.number, "so_far": {"token": self.so_far(record)}}
        return asked(section, record, f"{ASKED}{record.number}", **values)

    def so_far(self, record: Round) -> str:
        """The last words of the answer at a round of the main run, its root included."""
        first, before = self.record, self.traces[MAIN].rounds[: record.index]
        pieces = [first.text(int(first.draft.tokens[0]))]
        pieces += [each.text(token) for each in before for token in each.committed]
        shown = pieces[-LAST_WORDS:]
        return ("" if len(shown) == len(pieces) else "…") + flowing("".join(shown))

    def first(self, method: str) -> Round:
        """A run's first round: all of a prompt begin at the same place, with the same root."""
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

    def lists(self) -> Candidates:
        """The drafter's list for each depth in the round that most chapters look at."""
        by_depth = self.record.by_depth
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

    @cached_property
    def odd(self) -> int:
        """The first row that repeats its parent's token: marginals cannot know better."""
        draft = self.record.draft
        return next(
            r for r in range(1, len(draft)) if draft.tokens[r] == draft.tokens[draft.parents[r]]
        )

    @cached_property
    def elsewhere(self) -> Mapping[str, Round]:
        """Both rounds, by method, at the first place of the other text where the target takes what
        is not nested in TreeFlash's tree, and two nodes more than of DDTree's."""
        one, two = ({r.position: r for r in self.traces[OTHER + name].rounds} for name in PAIR)
        for position in sorted(one.keys() & two.keys()):
            if self._gains(one[position], two[position]):
                return {MAIN: one[position], "treeflash": two[position]}
        raise ValueError("the two runs of the other text differ nowhere as chapter 7 says")

    @staticmethod
    def _gains(nested: Round, other: Round) -> bool:
        faults = nesting_faults(tree_of(other))
        return other.accepted >= nested.accepted + 2 and bool(on_path(other, faults))

    @cached_property
    def paths(self) -> Mapping[str, Round]:
        """The rounds of chapter 8, by method, of the places that its runs come to where one token
        has several parents in the tree of ``WHOLE_PATH`` and goes on after one of them: the place
        where what follows differs most between the parents."""
        names = (MAIN, WHOLE_PATH, OWN_LAYER)
        at_place = {n: {r.position: r for r in self.traces[n].rounds} for n in names}
        shared = set.intersection(*map(set, at_place.values()))
        told = {at: _contrast(at_place[WHOLE_PATH][at]) for at in sorted(shared)}
        best = max(told, key=lambda position: told[position])
        if not told[best]:
            raise ValueError("no tree of the whole path is as chapter 8 says")
        return {name: rounds[best] for name, rounds in at_place.items()}

    @cached_property
    def rivals(self) -> Round:
        """DART's round with most counted rivals after the root, of those that end at a listed
        token."""
        return max(self.traces["dart"].rounds, key=_rivalry)

    def trees(self) -> Json:
        """Every tree that a figure shows, by name; "…?" is one before the target's answer."""
        shown = {name: (name, self.first(name)) for name in (*RACED, OWN_GUESSES)}
        shown |= {OTHER + name: (OTHER + name, each) for name, each in self.elsewhere.items()}
        shown |= {PATHS + name: (name, each) for name, each in self.paths.items()}
        shown["rivals"] = ("dart", self.rivals)
        made: Json = {}
        for name, (run, record) in shown.items():
            explainer = Explainer.of(self.traces[run].header)
            made[name] = round_view(record, explainer)
            made[name + "?"] = before(record, explainer)
        for nodes, record in self.grown.items():
            made[f"{GROWN}-{nodes}"] = round_view(record)
        made |= self.walks.trees
        for record in (*self.surprises, self.empty):
            name = f"{ASKED}{record.number}"
            made[name], made[name + "?"] = round_view(record), before(record)
        made["next"] = round_view(self.traces[MAIN].rounds[1])
        made["queue"] = before(replace(self.record, draft=self.queued))
        return made


def _contrast(record: Round) -> float:
    """How many times as probable the token drafted after one of several equal tokens is there as
    where it is least; 0 where there are no equal tokens, or none or several go on."""
    twins, children = same_token(record), record.draft.children
    after = [row for row in twins if children[row]]
    if len(twins) < 2 or len(after) != 1:
        return 0.0
    token = int(record.draft.tokens[children[after[0]][0]])
    logs = [log for row in twins if (log := record.log_q_after(row, token)) is not None]
    listed = len(logs) == len(twins) and all(map(math.isfinite, logs))
    return math.exp(max(logs) - min(logs)) if listed else 0.0


def _rivalry(record: Round) -> tuple[bool, int]:
    draft, verdict = tree_of(record), record.verdict
    told = record.log_q_after(verdict.path[-1], verdict.bonus) is not None
    return told, sum(draft.notes[CONTEXT][row] > 0 for row in draft.children[0])


def on_path(record: Round, faults: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs whose worse sibling was accepted with something after it."""
    path = set(record.verdict.path)
    taken = {int(record.draft.parents[row]) for row in path}
    return [pair for pair in faults if pair[1] in path & taken]


def before(record: Round, explainer: Explainer | None = None) -> Json:
    """A round as it is when only the drafter has answered."""
    silent = replace(record, verdict=no_verdict(record.draft), target_probs=None, probe=None)
    drawn = round_view(silent, explainer or Explainer())
    return {**drawn, "status": "a" + "u" * record.draft.nodes, "untold": True}
