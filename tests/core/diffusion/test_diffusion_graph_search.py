"""Finding draft graphs: counting sets, candidates, and the exact search against brute force."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.diffusion.draft_graph_search import (
    MAX_CANDIDATES,
    SCORES,
    Candidate,
    GraphSearch,
    candidates,
    count_sets,
    find_graphs,
    sets_from_json,
    sets_to_json,
    unmasked_ranks,
)
from core.diffusion.nfe import count_nfe, denoised_tokens
from core.diffusion.request import DenoiseSettings, Pace
from core.errors import UserError
from core.rounds.blocks import Ranking, Step
from tests.helpers.diffusion_toys import ToyTarget, run

ONE = Pace(1)


def random_candidates(seed, count, threshold=False):
    """Candidate sets over few positions, so that many are subsets of others."""
    rng = random.Random(seed)
    nodes = {}
    while len(nodes) < count:
        size = rng.randint(1, 4)
        formula = tuple(sorted((i, rng.randint(1, 2)) for i in rng.sample(range(1, 6), size)))
        level = rng.randint(1, size) if threshold else size
        nodes[formula] = Candidate(formula, rng.randint(1, 30), level)
    return tuple(sorted(nodes.values(), key=lambda c: (len(c.formula), c.formula)))


def reachable(rows, search):
    return all(search.nodes[r].level == 1 or set(search.parents[r]) & set(rows) for r in rows)


def brute_force(search, budget):
    """The largest reachable size up to ``budget``, and the best total of that size."""
    for size in range(budget, 0, -1):
        chosen = itertools.combinations(range(len(search.nodes)), size)
        totals = [own_total(rows, search) for rows in chosen if reachable(rows, search)]
        if totals:
            return size, max(totals)
    return 0, 0


def own_total(rows, search):
    """Equations 24, 26 and 27–28, read literally."""
    nodes, parents = search.nodes, search.parents

    def total(q):
        return nodes[q].count + sum(total(p) for p in parents[q] if p in rows)

    if search.score == "degree-0":
        return sum(nodes[q].count for q in rows)
    if search.score == "degree-1":
        return sum(
            nodes[q].count + sum(nodes[p].count for p in parents[q] if p in rows) for q in rows
        )
    return sum(total(q) for q in rows)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 10),
    st.integers(1, 5),
    st.sampled_from(SCORES),
    st.booleans(),
)
def test_the_search_finds_what_brute_force_finds(seed, count, budget, score, threshold):
    pace = Pace(threshold=0.9) if threshold else ONE
    search = GraphSearch(random_candidates(seed, count, threshold), pace, score)
    size, best = brute_force(search, budget)
    rows = search.best(budget)
    assert len(rows) == size and reachable(rows, search)
    assert search.total(rows) == own_total(rows, search) == best


@pytest.mark.parametrize("score", SCORES)
def test_thirty_candidates_are_searched_within_the_limit(score):
    assert len(GraphSearch(random_candidates(1, 30), ONE, score).best(10)) == 10


def test_too_many_candidates_an_unknown_score_and_an_empty_graph_are_errors():
    with pytest.raises(UserError, match="look less far ahead"):
        GraphSearch(random_candidates(2, MAX_CANDIDATES + 1), ONE)
    with pytest.raises(UserError, match="must be one of"):
        GraphSearch(random_candidates(2, 5), ONE, "best")
    with pytest.raises(UserError, match="at least 1 node"):
        GraphSearch(random_candidates(2, 5), ONE).best(0)


def test_ranks_are_those_of_the_starting_distribution():
    start = Ranking(
        np.array([4, 0, 2], np.int32), np.array([[9, 8], [7, 6], [5, 4]]), np.ones((3, 2), "f4")
    )
    later = Ranking(np.array([2, 0], np.int32), np.array([[4, 5], [7, 6]]), np.ones((2, 2), "f4"))
    assert unmasked_ranks(start, [Step(later, 1)]) == ((3, 2),)
    assert unmasked_ranks(start, [Step(later, 2)]) == ((2, 1), (3, 2))
    unranked = Ranking(np.array([2], np.int32), np.array([[3, 5]]), np.ones((1, 2), "f4"))
    assert unmasked_ranks(start, [Step(unranked, 1)]) is None


@pytest.mark.parametrize("pace", [Pace(1), Pace(2), Pace(threshold=0.3)])
def test_counts_equal_an_independent_count(pace):
    rounds = run(ToyTarget(3, coupling=0.2), DenoiseSettings(16, 8, pace))
    expected = Counter()
    for block in (0, 1):
        steps = [r.block.steps[0] for r in rounds if r.block.index == block]
        for at in range(len(steps)):
            order = steps[at].ranking.positions[steps[at].count :].tolist()
            found = set()
            for k in range(1, len(steps) - at - 1):
                for place, token in zip(steps[at + k].positions, steps[at + k].tokens, strict=True):
                    row = order.index(place)
                    ids = steps[at].ranking.ids[steps[at].count + row].tolist()
                    found.add((row + 1, ids.index(token) + 1 if token in ids else None))
                if len(found) < len(order) and not any(j is None for _, j in found):
                    expected[k, tuple(sorted(found))] += 1
    assert count_sets(rounds, lookahead=16) == expected


def test_a_ranking_that_never_changes_makes_a_chain():
    counts = count_sets(run(ToyTarget(coupling=0.0), DenoiseSettings(32, 16)))
    nodes = candidates(counts, ONE)
    assert [n.formula for n in nodes] == [
        tuple((i, 1) for i in range(1, k + 1)) for k in range(1, 11)
    ]
    (graph,) = find_graphs(counts, ONE, [5])
    assert [len(f) for f in graph.formulas] == [1, 2, 3, 4, 5]
    assert graph.provenance["counts"] == [28, 26, 24, 22, 20]  # two blocks of 16 steps


@pytest.mark.parametrize("pace", [Pace(1), Pace(2), Pace(3), Pace(threshold=0.3)])
def test_found_graphs_save_calls_on_other_texts(pace):
    settings = DenoiseSettings(32, 16, pace)
    counts = Counter()
    for seed in range(6):
        counts += count_sets(run(ToyTarget(seed, 0.1), settings))
    plain = denoised_tokens(run(ToyTarget(77, 0.1), settings))
    for score in SCORES:
        for graph in find_graphs(counts, pace, [3, 8], score):
            graph.check()
            rounds = run(ToyTarget(77, 0.1), settings, graph)
            assert denoised_tokens(rounds) == plain
            assert count_nfe(rounds, frozenset()).speedup > 1


def test_with_a_threshold_one_set_seen_at_two_lookaheads_is_one_node():
    pair = ((1, 1), (2, 1))
    counts = Counter({(1, pair): 5, (2, pair): 3, (1, ((1, 1),)): 4})
    nodes = candidates(counts, Pace(threshold=0.9))
    assert [(n.formula, n.count, n.level) for n in nodes] == [(((1, 1),), 4, 1), (pair, 8, 1)]


def test_more_candidates_never_score_less_and_save_calls_where_steps_scatter():
    counts = Counter()
    for seed in range(8):
        counts += count_sets(run(ToyTarget(seed, 0.3), DenoiseSettings(32, 16)))
    assert len(candidates(counts, ONE, 8)) > len(candidates(counts, ONE, 3))
    few, more = (next(find_graphs(counts, ONE, [10], "degree-0", sets)) for sets in (1, 8))
    assert more.provenance["value"] >= few.provenance["value"]
    settings = DenoiseSettings(64, 16)
    calls = [len(run(ToyTarget(77, 0.3), settings, graph)) for graph in (few, more)]
    assert calls[1] < calls[0]


def test_no_sets_at_all_is_an_error():
    with pytest.raises(UserError, match="foreseen"):
        list(find_graphs(Counter(), ONE))


def test_counts_survive_json_and_nothing_else_is_read():
    counts = count_sets(run(ToyTarget(coupling=0.1), DenoiseSettings(16, 8)))
    assert sets_from_json(sets_to_json(counts)) == counts
    for wrong in (None, 3, [[1]], [[0, [[1, 1]], 2]], [[1, [[1, 0]], 2]], [[1, "ab", 2]]):
        with pytest.raises(UserError):
            sets_from_json(wrong)
