"""Calibration: counting, candidates, and the exact search against brute force."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.diffusion.calibrate import (
    MAX_CANDIDATES,
    SCORES,
    Candidate,
    best_graph,
    calibrated,
    candidates,
    count_sets,
    parents_of,
    places,
    score,
    sets_from_json,
    sets_to_json,
)
from core.diffusion.denoise import Denoising
from core.diffusion.graph import Pace
from core.diffusion.steps import saved, written
from core.errors import UserError
from core.rounds.blocks import Ranking, Step
from tests.diffusion_toys import ToyTarget, run

ONE = Pace(1)


def made(seed, count, threshold=False):
    """Random candidate sets over few positions, so that many are subsets of others."""
    rng = random.Random(seed)
    nodes = {}
    while len(nodes) < count:
        size = rng.randint(1, 4)
        formula = tuple(sorted((i, rng.randint(1, 2)) for i in rng.sample(range(1, 6), size)))
        level = rng.randint(1, size) if threshold else size
        nodes[formula] = Candidate(formula, rng.randint(1, 30), level)
    return tuple(sorted(nodes.values(), key=lambda c: (len(c.formula), c.formula)))


def brute_force(nodes, pace, budget, rule):
    """The best value over all subsets that can be reached, by trying every subset of every size."""
    parents = parents_of(nodes, pace)
    best = {}
    for size in range(1, budget + 1):
        for chosen in itertools.combinations(range(len(nodes)), size):
            fine = all(nodes[r].level == 1 or set(parents[r]) & set(chosen) for r in chosen)
            if fine:
                best[size] = max(best.get(size, -1), own_score(chosen, nodes, parents, rule))
    return best[max(best)] if best else None, max(best, default=0)


def own_score(chosen, nodes, parents, rule):
    """Equations 24, 26 and 27–28, read literally."""

    def total(q):
        return nodes[q].count + sum(total(p) for p in parents[q] if p in chosen)

    if rule == "degree-0":
        return sum(nodes[q].count for q in chosen)
    if rule == "degree-1":
        return sum(
            nodes[q].count + sum(nodes[p].count for p in parents[q] if p in chosen) for q in chosen
        )
    return sum(total(q) for q in chosen)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 10), st.integers(1, 5), st.sampled_from(SCORES),
    st.booleans(),
)  # fmt: skip
def test_the_search_finds_what_brute_force_finds(seed, count, budget, rule, threshold):
    nodes, pace = made(seed, count, threshold), Pace(threshold=0.9) if threshold else ONE
    most, size = brute_force(nodes, pace, budget, rule)
    rows = best_graph(nodes, pace, budget, rule)
    assert len(rows) == size
    if most is not None:
        assert score(rows, nodes, parents_of(nodes, pace), rule) == most
        assert own_score(rows, nodes, parents_of(nodes, pace), rule) == most
        parents = parents_of(nodes, pace)
        assert all(nodes[r].level == 1 or set(parents[r]) & set(rows) for r in rows)


@pytest.mark.parametrize("rule", SCORES)
def test_thirty_candidates_are_searched_within_the_limit(rule):
    nodes = made(1, 30)
    assert len(best_graph(nodes, ONE, 10, rule)) == 10


def test_too_many_candidates_or_a_strange_score_are_one_sentence():
    with pytest.raises(UserError, match="look less far ahead"):
        best_graph(made(2, MAX_CANDIDATES + 1), ONE, 3)
    with pytest.raises(UserError, match="must be one of"):
        best_graph(made(2, 5), ONE, 3, "best")
    with pytest.raises(UserError, match="at least 1 node"):
        best_graph(made(2, 5), ONE, 0)


def test_places_are_ranks_in_the_ranking_of_the_start():
    start = Ranking(
        np.array([4, 0, 2], np.int32), np.array([[9, 8], [7, 6], [5, 4]]), np.ones((3, 2), "f4")
    )
    later = Ranking(np.array([2, 0], np.int32), np.array([[4, 5], [7, 6]]), np.ones((2, 2), "f4"))
    assert places(start, [Step(later, 1)]) == ((3, 2),)
    assert places(start, [Step(later, 2)]) == ((2, 1), (3, 2))
    strange = Ranking(np.array([2], np.int32), np.array([[3, 5]]), np.ones((1, 2), "f4"))
    assert places(start, [Step(strange, 1)]) is None


@pytest.mark.parametrize("pace", [Pace(1), Pace(2), Pace(threshold=0.3)])
def test_counts_are_what_a_second_reading_of_the_run_counts(pace):
    rounds = run(ToyTarget(3, coupling=0.2), Denoising(16, 8, pace))
    own = Counter()
    for block in (0, 1):
        steps = [r.block.steps[0] for r in rounds if r.block.index == block]
        for at in range(len(steps)):
            order = steps[at].ranking.positions[steps[at].count :].tolist()
            taken = set()
            for k in range(1, len(steps) - at - 1):
                for place, token in zip(steps[at + k].positions, steps[at + k].tokens, strict=True):
                    row = order.index(place)
                    ids = steps[at].ranking.ids[steps[at].count + row].tolist()
                    taken.add((row + 1, ids.index(token) + 1 if token in ids else None))
                if len(taken) < len(order) and not any(j is None for _, j in taken):
                    own[k, tuple(sorted(taken))] += 1
    assert count_sets(rounds, lookahead=16) == own


def test_a_ranking_that_never_moves_makes_the_chain():
    counts = count_sets(run(ToyTarget(coupling=0.0), Denoising(32, 16)))
    nodes = candidates(counts, ONE)
    assert [n.formula for n in nodes] == [
        tuple((i, 1) for i in range(1, k + 1)) for k in range(1, 11)
    ]
    (graph,) = calibrated(counts, ONE, [5])
    assert [len(f) for f in graph.formulas] == [1, 2, 3, 4, 5]
    assert graph.provenance["counts"] == [28, 26, 24, 22, 20]  # two blocks of 16 steps


@pytest.mark.parametrize("pace", [Pace(1), Pace(2), Pace(3), Pace(threshold=0.3)])
def test_calibrated_graphs_save_calls_on_other_texts(pace):
    counts = Counter()
    for seed in range(6):
        counts += count_sets(run(ToyTarget(seed, 0.1), Denoising(32, 16, pace)))
    for rule in SCORES:
        for graph in calibrated(counts, pace, [3, 8], rule):
            graph.check()
            rounds = run(ToyTarget(77, 0.1), Denoising(32, 16, pace), graph)
            assert written(rounds) == written(run(ToyTarget(77, 0.1), Denoising(32, 16, pace)))
            assert saved(rounds, frozenset()).speedup > 1


def test_with_a_threshold_one_set_met_at_two_lookaheads_is_one_node():
    pair = ((1, 1), (2, 1))
    counts = Counter({(1, pair): 5, (2, pair): 3, (1, ((1, 1),)): 4})
    nodes = candidates(counts, Pace(threshold=0.9))
    assert [(n.formula, n.count, n.level) for n in nodes] == [(((1, 1),), 4, 1), (pair, 8, 1)]


def test_more_kept_sets_are_never_worth_less_and_save_calls_where_steps_scatter():
    counts = Counter()
    for seed in range(8):
        counts += count_sets(run(ToyTarget(seed, 0.3), Denoising(32, 16)))
    assert len(candidates(counts, ONE, 8)) > len(candidates(counts, ONE, 3))
    few, more = (next(calibrated(counts, ONE, [10], "degree-0", kept)) for kept in (1, 8))
    assert more.provenance["value"] >= few.provenance["value"]
    calls = [len(run(ToyTarget(77, 0.3), Denoising(64, 16), graph)) for graph in (few, more)]
    assert calls[1] < calls[0]


def test_nothing_to_foresee_is_one_sentence():
    with pytest.raises(UserError, match="foreseen"):
        list(calibrated(Counter(), ONE))


def test_counts_survive_json_and_nothing_else_is_read():
    counts = count_sets(run(ToyTarget(coupling=0.1), Denoising(16, 8)))
    assert sets_from_json(sets_to_json(counts)) == counts
    for wrong in (None, 3, [[1]], [[0, [[1, 1]], 2]], [[1, [[1, 0]], 2]], [[1, "ab", 2]]):
        with pytest.raises(UserError):
            sets_from_json(wrong)
