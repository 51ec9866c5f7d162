"""Finding a draft graph for a model: Spiffy's offline search (Algorithm 2, Appendices C and E).

1. ``count_sets``: for every step of a plain run and every look-ahead k, the set of (i, j), ranked
   by the distribution of the first step, that the next k steps unmask.
2. ``candidates``: the most frequent sets of each look-ahead.
3. ``GraphSearch``: the D of them with the highest score, each reachable, by an exact search.

The paper calls this calibration. Light: numpy only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.diffusion.draft_graph import MAX_TOKEN_RANK, DraftGraph, Formula, make_graph
from core.diffusion.nfe import by_block
from core.diffusion.pace import Pace
from core.errors import UserError
from core.rounds.blocks import Ranking, Step
from core.rounds.round import Round

LOOKAHEAD = 10
SETS_PER_STEP = 3  # candidates per look-ahead, as in the paper
MAX_CANDIDATES = 128
MAX_VISITS = 1_000_000  # nodes of the search tree; 30 candidates take a few thousand
BUDGETS = (3, 5, 8, 10)

# The score of a chosen node: its own count; that and its chosen parents' counts; or that and its
# chosen parents' scores, down to level 1 (Appendix E).
SCORES = ("degree-0", "degree-1", "total")

SetCounts = Counter[tuple[int, Formula]]  # (look-ahead, set) → how often it was seen


# ── part 1: sets ─────────────────────────────────────────────────────────────────────────────────


def count_sets(rounds: Iterable[Round], lookahead: int = LOOKAHEAD) -> SetCounts:
    """The sets of one plain run. Those that finish their block are left out: no draft needs to."""
    counts: SetCounts = Counter()
    for calls in by_block(rounds):
        steps = [step for call in calls if call.block for step in call.block.steps]
        for at, step in enumerate(steps):
            start = step.ranking.after(step.count)
            for k in range(1, min(lookahead, len(steps) - at - 2) + 1):
                if found := unmasked_ranks(start, steps[at + 1 : at + 1 + k]):
                    counts[k, found] += 1
    return counts


def unmasked_ranks(start: Ranking, steps: Sequence[Step]) -> Formula | None:
    """The pairs (i, j) that ``steps`` unmask, by the ranking ``start`` of the masked positions.

    None when a token is not among those that were ranked.
    """
    rows = {int(position): row for row, position in enumerate(start.positions)}
    found = []
    for step in steps:
        for position, token in zip(step.positions.tolist(), step.tokens.tolist(), strict=True):
            ids = start.ids[rows[position]].tolist()
            if token not in ids:
                return None
            found.append((rows[position] + 1, ids.index(token) + 1))
    return tuple(sorted(found))


def sets_to_json(counts: SetCounts) -> list[list[object]]:
    """Counts as JSON, so that an interrupted search can continue."""
    return [[k, [list(pair) for pair in f], n] for (k, f), n in sorted(counts.items())]


def sets_from_json(value: object) -> SetCounts:
    """The counts that ``sets_to_json`` wrote. Raises UserError for anything else."""
    counts: SetCounts = Counter()
    try:
        for k, formula, n in value:  # type: ignore[misc]
            pairs = tuple((int(i), int(j)) for i, j in formula)
            if min(k, n) < 1 or not all(i >= 1 and 1 <= j <= MAX_TOKEN_RANK for i, j in pairs):
                raise ValueError
            counts[int(k), pairs] += int(n)
    except (TypeError, ValueError):
        raise UserError("these are not the counts of a draft graph search") from None
    return counts


# ── part 2: candidates ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Candidate:
    """A set that may become a node of the graph: how often it was seen, and its level."""

    formula: Formula
    count: int
    level: int


def candidates(
    counts: Mapping[tuple[int, Formula], int], pace: Pace, sets_per_step: int = SETS_PER_STEP
) -> tuple[Candidate, ...]:
    """The ``sets_per_step`` most frequent sets of every look-ahead, smaller sets first.

    At a fixed number of tokens per step only sets of full steps count: where a block's remainder
    makes steps uneven, a set does not tell its step. With a threshold one set can be seen at
    several look-aheads: its counts are added, and its level is the look-ahead with the highest
    count. Ties go to the lowest ranks.
    """
    chosen: dict[Formula, dict[int, int]] = {}
    for k in sorted({k for k, _ in counts}):
        full = {f: n for (at, f), n in counts.items() if at == k}
        if pace.threshold is None:
            full = {f: n for f, n in full.items() if len(f) == k * pace.tokens}
        ranked = sorted((-n, len(f), f) for f, n in full.items())
        for n, _, formula in ranked[:sets_per_step]:
            chosen.setdefault(formula, {})[k] = -n
    found = [
        Candidate(formula, sum(seen.values()), max(seen, key=lambda k: (seen[k], -k)))
        for formula, seen in chosen.items()
    ]
    return tuple(sorted(found, key=lambda c: (len(c.formula), c.formula)))


# ── part 3: the search ───────────────────────────────────────────────────────────────────────────


class GraphSearch:
    """Finds the graph of the highest total score among candidate nodes.

    Rows of candidates are in ``candidates``' order, so that parents come before their children.
    Raises UserError for an unknown score and for too many candidates.

    parents  rows of each candidate's possible parents: subsets with exactly one step fewer
    """

    def __init__(self, nodes: Sequence[Candidate], pace: Pace, score: str = "degree-1"):
        if score not in SCORES:
            raise UserError(f"the score must be one of {', '.join(SCORES)}, not {score!r}")
        if len(nodes) > MAX_CANDIDATES:
            raise UserError(
                f"{len(nodes)} candidate sets are more than the {MAX_CANDIDATES} that can be "
                "searched: keep fewer, or look less far ahead"
            )
        self.nodes, self.score = nodes, score
        sets, fixed = [frozenset(node.formula) for node in nodes], pace.threshold is None

        def is_parent(a: int, b: int) -> bool:
            return sets[a] < sets[b] and (not fixed or nodes[a].level == nodes[b].level - 1)

        rows = range(len(nodes))
        self.parents = tuple(tuple(a for a in rows if is_parent(a, b)) for b in rows)
        self._budget = self._visits = 0
        self._best: tuple[int, ...] = ()
        self._highest = -1

    def total(self, rows: Iterable[int]) -> int:
        """The score of the graph of these rows (Eq. 24, 26–28)."""
        scores: dict[int, int] = {}
        for row in sorted(rows):
            scores[row] = self._score(row, scores)
        return sum(scores.values())

    def best(self, budget: int) -> tuple[int, ...]:
        """Rows of the ``budget`` nodes (fewer when fewer can be reached) of the highest total.

        Exact: branch and bound over choosing a row or not, parents first. Raises UserError for a
        budget below 1 and for a search that takes too long.
        """
        if budget < 1:
            raise UserError(f"a draft graph needs at least 1 node, not {budget}")
        reachable: dict[int, int] = {}
        for row in range(len(self.nodes)):
            if self._allowed(row, reachable):
                reachable[row] = 0
        self._budget, self._visits = min(budget, len(reachable)), 0
        self._best, self._highest = (), -1
        self._visit(0, {}, 0)
        return self._best

    def _visit(self, row: int, scores: dict[int, int], total: int) -> None:
        """Decide ``row`` and all after it; ``scores`` holds the chosen rows'."""
        self._visits += 1
        if self._visits > MAX_VISITS:
            raise UserError(
                f"the search for {self._budget} of {len(self.nodes)} nodes takes too long: "
                "look less far ahead"
            )
        if len(scores) == self._budget:
            if total > self._highest:
                self._best, self._highest = tuple(scores), total
            return
        bound = self._bound(row, scores)
        if bound is None or total + bound <= self._highest:
            return
        if self._allowed(row, scores):
            own = self._score(row, scores)
            self._visit(row + 1, scores | {row: own}, total + own)
        self._visit(row + 1, scores, total)

    def _allowed(self, row: int, chosen: Mapping[int, int]) -> bool:
        """Whether a row can be chosen: it is of level 1, or a parent is chosen."""
        return self.nodes[row].level == 1 or any(p in chosen for p in self.parents[row])

    def _score(self, row: int, scores: Mapping[int, int]) -> int:
        """Return the score that ``row`` adds to a graph of the rows in ``scores``."""
        own = self.nodes[row].count
        if self.score == "degree-0":
            return own
        parents = [p for p in self.parents[row] if p in scores]
        if self.score == "degree-1":
            return own + sum(self.nodes[p].count for p in parents)
        return own + sum(scores[p] for p in parents)

    def _bound(self, row: int, scores: Mapping[int, int]) -> int | None:
        """Bound what the best completion adds: every row from here on scores as if all of its
        reachable parents were chosen. None when the budget cannot be filled."""
        hoped, added = dict(scores), []
        for at in range(row, len(self.nodes)):
            if self._allowed(at, hoped):
                hoped[at] = self._score(at, hoped)
                added.append(hoped[at])
        free = self._budget - len(scores)
        return sum(sorted(added, reverse=True)[:free]) if len(added) >= free else None


def find_graphs(
    counts: SetCounts,
    pace: Pace,
    budgets: Iterable[int] = BUDGETS,
    score: str = "degree-1",
    sets_per_step: int = SETS_PER_STEP,
) -> Iterator[DraftGraph]:
    """The best graph for every budget, with its counts as provenance. Raises UserError."""
    nodes = candidates(counts, pace, sets_per_step)
    if not nodes:
        raise UserError("the texts hold no step that a draft could have foreseen")
    search = GraphSearch(nodes, pace, score)
    for budget in budgets:
        rows = search.best(budget)
        provenance = {
            "score": score,
            "kept": sets_per_step,
            "value": search.total(rows),
            "candidates": len(nodes),
            "counts": [nodes[row].count for row in rows],
        }
        formulas = [nodes[row].formula for row in rows]
        yield make_graph(formulas, pace, name=f"{pace.name}-d{budget}", provenance=provenance)
