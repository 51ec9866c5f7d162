"""Which draft graph to use: Spiffy's offline calibration (Algorithm 2, Appendices C and E).

Part 1, ``count_sets``: for every step of plain denoising and every look-ahead k, the set of (i, j)
— ranked by the distribution of the *start* step — that the next k steps unmasked. Part 2,
``candidates``: the most frequent sets per look-ahead. Part 3, ``best_graph``: the D of them, each
reachable, with the highest score, by an exact search. Light: numpy only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.diffusion.graph import MAX_TOKEN_RANK, DraftGraph, Formula, Pace, make_graph
from core.diffusion.steps import by_block
from core.errors import UserError
from core.rounds.blocks import Ranking, Step
from core.rounds.round import Round

LOOKAHEAD = 10
KEPT_SETS = 3  # per look-ahead, as in the paper
MAX_CANDIDATES = 128
MAX_VISITS = 1_000_000  # nodes of the search tree; 30 candidates take a few thousand
BUDGETS = (3, 5, 8, 10)

# What a chosen node is worth: its own count; and its chosen parents' counts; or their totals, down
# to level 1 (Appendix E).
SCORES = ("degree-0", "degree-1", "total")

Sets = Counter[tuple[int, Formula]]  # (look-ahead, set) → how often


def places(start: Ranking, steps: Sequence[Step]) -> Formula | None:
    """The (i, j) of what ``steps`` unmasked, in the ranking ``start`` of the positions then masked.

    None when a token is not among those that were ranked.
    """
    rank_of = {int(at): row for row, at in enumerate(start.positions)}
    found = []
    for step in steps:
        for at, token in zip(step.positions.tolist(), step.tokens.tolist(), strict=True):
            ids = start.ids[rank_of[at]].tolist()
            if token not in ids:
                return None
            found.append((rank_of[at] + 1, ids.index(token) + 1))
    return tuple(sorted(found))


def count_sets(rounds: Iterable[Round], lookahead: int = LOOKAHEAD) -> Sets:
    """Part 1 for one text. A set that finishes its block is not counted: no draft needs to."""
    counts: Sets = Counter()
    for calls in by_block(rounds):
        steps = [step for call in calls if call.block for step in call.block.steps]
        for at, step in enumerate(steps):
            start = step.ranking.after(step.count)
            for k in range(1, min(lookahead, len(steps) - at - 2) + 1):
                if found := places(start, steps[at + 1 : at + 1 + k]):
                    counts[k, found] += 1
    return counts


@dataclass(frozen=True)
class Candidate:
    """One set that may become a node: how often it was seen, and whether a parent must be there."""

    formula: Formula
    count: int
    level: int


def candidates(
    counts: Mapping[tuple[int, Formula], int], pace: Pace, kept_sets: int = KEPT_SETS
) -> tuple[Candidate, ...]:
    """Part 2: the ``kept_sets`` most frequent of every look-ahead; ties go to the first in ranks.

    At a fixed number of tokens a step only sets of full steps count: where a block's remainder
    makes steps uneven, no graph could say at which step it is.

    With a threshold one set can be met at several look-aheads: its counts add up, and its level is
    the look-ahead at which it was met most often. Smaller sets come first.
    """
    kept: dict[Formula, dict[int, int]] = {}
    for k in sorted({k for k, _ in counts}):
        full = {f: n for (at, f), n in counts.items() if at == k}
        if pace.threshold is None:
            full = {f: n for f, n in full.items() if len(f) == k * pace.tokens}
        own = sorted((-n, len(f), f) for f, n in full.items())
        for n, _, formula in own[:kept_sets]:
            kept.setdefault(formula, {})[k] = -n
    found = [
        Candidate(formula, sum(seen.values()), max(seen, key=lambda k: (seen[k], -k)))
        for formula, seen in kept.items()
    ]
    return tuple(sorted(found, key=lambda c: (len(c.formula), c.formula)))


def parents_of(nodes: Sequence[Candidate], pace: Pace) -> tuple[tuple[int, ...], ...]:
    """Rows of each candidate's possible parents: exactly one step fewer, all of them its own."""
    sets = [frozenset(node.formula) for node in nodes]

    def leads(a: int, b: int) -> bool:
        fixed = pace.threshold is None
        return sets[a] < sets[b] and (not fixed or nodes[a].level == nodes[b].level - 1)

    return tuple(tuple(a for a in range(len(nodes)) if leads(a, b)) for b in range(len(nodes)))


def score(
    chosen: Iterable[int],
    nodes: Sequence[Candidate],
    parents: Sequence[Sequence[int]],
    rule: str,
) -> int:
    """Σ over the chosen rows (Eq. 24, 26–28). Rows of parents stand before their children's."""
    worth: dict[int, int] = {}
    for row in sorted(chosen):
        worth[row] = _worth(row, worth, nodes, parents[row], rule)
    return sum(worth.values())


def _worth(
    row: int,
    worth: Mapping[int, int],
    nodes: Sequence[Candidate],
    parents: Sequence[int],
    rule: str,
) -> int:
    """What ``row`` adds when the rows in ``worth`` are taken, those being worth so much."""
    if rule == "degree-0":
        return nodes[row].count
    above = [p for p in parents if p in worth]
    carried = sum(nodes[p].count if rule == "degree-1" else worth[p] for p in above)
    return nodes[row].count + carried


def best_graph(
    nodes: Sequence[Candidate], pace: Pace, budget: int, rule: str = "degree-1"
) -> tuple[int, ...]:
    """Part 3: rows of the ``budget`` nodes (fewer when fewer can be reached) of the highest score.

    Exact: branch and bound over "taken or not", in the order of the rows, so parents are decided
    before children. A node can be taken when it is of level 1 or a parent is taken. Raises
    UserError when there are too many candidates or the search would take too long.
    """
    if rule not in SCORES:
        raise UserError(f"the score must be one of {', '.join(SCORES)}, not {rule!r}")
    if budget < 1:
        raise UserError(f"a draft graph needs at least 1 node, not {budget}")
    if len(nodes) > MAX_CANDIDATES:
        raise UserError(
            f"{len(nodes)} candidate sets are more than the {MAX_CANDIDATES} that can be searched: "
            "keep fewer, or look less far ahead"
        )
    parents = parents_of(nodes, pace)
    search = _Search(nodes, parents, min(budget, len(_reachable(nodes, parents))), rule)
    search.visit(0, (), 0, {})
    return search.best


def _reachable(nodes: Sequence[Candidate], parents: Sequence[Sequence[int]]) -> set[int]:
    """Rows that some way from level 1 leads to."""
    found: set[int] = set()
    for row, node in enumerate(nodes):
        if node.level == 1 or not found.isdisjoint(parents[row]):
            found.add(row)
    return found


@dataclass(eq=False)
class _Search:
    """Depth first; a branch is left when even its best completion cannot win."""

    nodes: Sequence[Candidate]
    parents: Sequence[Sequence[int]]
    budget: int
    rule: str
    best: tuple[int, ...] = ()
    most: int = -1
    visits: int = field(default=0, init=False)

    def visit(self, row: int, taken: tuple[int, ...], value: int, worth: dict[int, int]) -> None:
        """Decide ``row`` and all behind it; ``worth`` holds what each taken row adds."""
        self.visits += 1
        if self.visits > MAX_VISITS:
            raise UserError(
                f"the search for {self.budget} of {len(self.nodes)} nodes takes too long: "
                "look less far ahead"
            )
        if len(taken) == self.budget:
            if value > self.most:
                self.best, self.most = taken, value
            return
        hope = self._bound(row, taken, worth)
        if hope < 0 or value + hope <= self.most:
            return
        if self._open(row, worth):
            own = self._worth(row, worth)
            self.visit(row + 1, (*taken, row), value + own, worth | {row: own})
        self.visit(row + 1, taken, value, worth)

    def _open(self, row: int, worth: Mapping[int, int]) -> bool:
        return self.nodes[row].level == 1 or any(p in worth for p in self.parents[row])

    def _worth(self, row: int, worth: Mapping[int, int]) -> int:
        return _worth(row, worth, self.nodes, self.parents[row], self.rule)

    def _bound(self, row: int, taken: Sequence[int], worth: Mapping[int, int]) -> int:
        """No completion adds more (−1: there is none): every row left counts as if all its open
        parents were taken."""
        hoped, left = dict(worth), []
        for at in range(row, len(self.nodes)):
            if self._open(at, hoped):
                hoped[at] = self._worth(at, hoped)
                left.append(hoped[at])
        free = self.budget - len(taken)
        return sum(sorted(left, reverse=True)[:free]) if len(left) >= free else -1


def calibrated(
    counts: Sets,
    pace: Pace,
    budgets: Iterable[int] = BUDGETS,
    rule: str = "degree-1",
    kept_sets: int = KEPT_SETS,
) -> Iterator[DraftGraph]:
    """The best graph for every budget, with its counts as provenance."""
    nodes = candidates(counts, pace, kept_sets)
    if not nodes:
        raise UserError("the texts hold no step that a draft could have foreseen")
    for budget in budgets:
        rows = best_graph(nodes, pace, budget, rule)
        numbers = {
            "score": rule,
            "kept": kept_sets,
            "value": score(rows, nodes, parents_of(nodes, pace), rule),
            "candidates": len(nodes),
            "counts": [nodes[row].count for row in rows],
        }
        formulas = [nodes[row].formula for row in rows]
        yield make_graph(formulas, pace, name=f"{pace.name}-d{budget}", provenance=numbers)


# ── collected counts as JSON, so that a run can go on where it stopped ───────────────────────────


def sets_to_json(counts: Sets) -> list[list[object]]:
    return [[k, [list(c) for c in formula], n] for (k, formula), n in sorted(counts.items())]


def sets_from_json(value: object) -> Sets:
    """Raises UserError for what ``sets_to_json`` did not write."""
    counts: Sets = Counter()
    try:
        for k, formula, n in value:  # type: ignore[misc]
            pairs = tuple((int(i), int(j)) for i, j in formula)
            if min(k, n) < 1 or not all(i >= 1 and 1 <= j <= MAX_TOKEN_RANK for i, j in pairs):
                raise ValueError
            counts[int(k), pairs] += int(n)
    except (TypeError, ValueError):
        raise UserError("these are no counts of a calibration") from None
    return counts
