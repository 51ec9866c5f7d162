"""Builders against brute force, against Algorithm 1 written plainly, and at their edges."""

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.builders import ancestor_mask, best_first, best_first_rows, chain
from core.types import Candidates
from tests.toys import draft_of, random_parents


def table(seed, depths, width, tokens=50):
    """Random log q, sorted best first, with distinct ids per depth."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(depths, tokens)) * 2
    log_q = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    ids = np.argsort(-log_q, axis=1)[:, :width]
    return Candidates(ids, np.take_along_axis(log_q, ids, 1).astype(np.float32))


def rank_paths(draft):
    """Every drafted row as its tuple of ranks, 0 = best."""
    return [
        tuple(int(draft.ranks[r]) - 1 for r in draft.path(row)[1:]) for row in range(1, len(draft))
    ]


def every_prefix(log_q):
    """All prefixes with their scores: the brute force."""
    depths, width = log_q.shape
    exact = log_q.astype(np.float64)
    return {
        ranks: float(sum(exact[d, r] for d, r in enumerate(ranks)))
        for length in range(1, depths + 1)
        for ranks in itertools.product(range(width), repeat=length)
    }


def algorithm_1(log_q, budget):
    """DDTree's Algorithm 1 with Python's heapq on rank tuples: [(ranks, score)] in pop order."""
    depths, width = log_q.shape
    q = log_q.astype(np.float64).tolist()
    order = itertools.count()
    heap = []

    def push(ranks):
        score = sum(q[depth][rank] for depth, rank in enumerate(ranks))
        heapq.heappush(heap, (-score, next(order), ranks))

    push((0,))
    popped = []
    while heap and len(popped) < budget:
        negative, _, ranks = heapq.heappop(heap)
        popped.append((ranks, -negative))
        if ranks[-1] + 1 < width:
            push((*ranks[:-1], ranks[-1] + 1))
        if len(ranks) < depths:
            push((*ranks, 0))
    return popped


def check_shape(draft, candidates, root, budget):
    """What every draft must satisfy, whatever the builder."""
    assert draft.nodes <= budget
    assert draft.tokens[0] == root and draft.parents[0] == -1 and draft.depths[0] == 0
    assert draft.ranks[0] == 0 and draft.log_q[0] == 0 and draft.scores[0] == 0
    for row in range(1, len(draft)):
        parent, depth, rank = draft.parents[row], draft.depths[row], draft.ranks[row]
        assert 0 <= parent < row
        assert depth == draft.depths[parent] + 1
        assert draft.tokens[row] == candidates.ids[depth - 1, rank - 1]
        assert draft.log_q[row] == candidates.log_q[depth - 1, rank - 1]
    paths = rank_paths(draft)
    assert len(set(paths)) == len(paths), "a prefix stands twice"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("depths", "width"), [(1, 4), (4, 1), (2, 5), (3, 3), (4, 4)])
def test_best_first_is_the_optimal_set_for_every_budget(seed, depths, width):
    candidates = table(seed, depths, width)
    scores = every_prefix(candidates.log_q)
    by_score = sorted(scores, key=scores.get, reverse=True)
    for budget in range(1, len(scores) + 3):
        draft = best_first(candidates, 7, budget)
        check_shape(draft, candidates, 7, budget)
        assert set(rank_paths(draft)) == set(by_score[:budget])
        expected = [scores[ranks] for ranks in rank_paths(draft)]
        np.testing.assert_allclose(draft.scores[1:], expected, rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("budget", [1, 2, 7, 64, 1024])
def test_best_first_pops_in_the_order_of_algorithm_1(seed, budget):
    candidates = table(seed, 15, min(budget, 50))
    draft = best_first(candidates, 0, budget)
    expected = algorithm_1(candidates.log_q, budget)
    assert rank_paths(draft) == [ranks for ranks, _ in expected]
    np.testing.assert_allclose(draft.scores[1:], [score for _, score in expected], rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_drafts_are_prefix_closed_and_best_first(seed):
    draft = best_first(table(seed, 7, 40), 0, 500)
    assert draft.nodes == 500
    for row in range(1, 501):
        assert draft.scores[row] <= draft.scores[draft.parents[row]]
    assert (np.diff(draft.scores) <= 0).all()


def test_siblings_share_the_same_child_order():
    """Nested: below a worse sibling hangs nothing that does not hang below a better one."""
    draft = best_first(table(5, 6, 30), 0, 300)
    paths = set(rank_paths(draft))
    for ranks in paths:
        assert all((*ranks[:-1], better) in paths for better in range(ranks[-1]))
        for place in range(len(ranks)):
            for better in range(ranks[place]):
                assert (*ranks[:place], better, *ranks[place + 1 :]) in paths


def test_a_larger_budget_only_appends():
    candidates = table(3, 6, 20)
    large = best_first(candidates, 0, 256)
    for budget in (1, 2, 3, 50, 255):
        small = best_first(candidates, 0, budget)
        np.testing.assert_array_equal(small.tokens, large.tokens[: budget + 1])
        np.testing.assert_array_equal(small.parents, large.parents[: budget + 1])


@pytest.mark.parametrize(
    ("depths", "width", "all_of_them"), [(1, 1, 1), (3, 2, 14), (5, 1, 5), (1, 9, 9)]
)
def test_a_budget_above_all_prefixes_drafts_each_once(depths, width, all_of_them):
    candidates = table(0, depths, width)
    draft = best_first(candidates, 0, 1024)
    check_shape(draft, candidates, 0, 1024)
    assert draft.nodes == all_of_them


def test_one_candidate_per_depth_makes_the_chain():
    candidates = table(0, 6, 1)
    for budget in (1, 4, 6, 99):
        tree, line = best_first(candidates, 5, budget), chain(candidates, 5, budget)
        for name in ("tokens", "parents", "depths", "ranks", "log_q"):
            np.testing.assert_array_equal(getattr(tree, name), getattr(line, name))
        np.testing.assert_allclose(tree.scores, line.scores, rtol=1e-6)


def test_the_chain_is_the_argmax_of_every_depth():
    candidates = table(2, 7, 20)
    draft = chain(candidates, 5, 64)
    check_shape(draft, candidates, 5, 64)
    assert draft.tokens.tolist() == [5, *candidates.ids[:, 0]]
    assert draft.parents.tolist() == list(range(-1, 7))
    np.testing.assert_allclose(draft.scores[1:], candidates.log_q[:, 0].cumsum(), rtol=1e-6)
    assert chain(candidates, 5, 3).nodes == 3


def test_equal_scores_prefer_the_shallower_prefix():
    """With q = 1 everywhere on the way a child ties with its parent and must still follow it."""
    log_q = np.array([[0.0, -1.0], [0.0, -1.0], [0.0, -1.0]], np.float32)
    draft = best_first(Candidates(np.tile([3, 4], (3, 1)), log_q), 0, 6)
    assert rank_paths(draft) == [(0,), (0, 0), (0, 0, 0), (1,), (0, 1), (0, 0, 1)]


def test_ties_go_to_the_prefix_found_first():
    flat = Candidates(np.tile(np.arange(4), (3, 1)), np.full((3, 4), -1.0, np.float32))
    draft = best_first(flat, 0, 12)
    assert rank_paths(draft)[:5] == [(0,), (1,), (2,), (3,), (0, 0)]
    assert rank_paths(draft) == [ranks for ranks, _ in algorithm_1(flat.log_q, 12)]


@pytest.mark.parametrize("budget", [3, 8, 40, 1024])
def test_impossible_tokens_come_last_and_stay_impossible(budget):
    log_q = np.array(
        [[-0.5, -0.9, -np.inf], [0.0, -np.inf, -np.inf], [-0.1, -2.4, -np.inf]], np.float32
    )
    candidates = Candidates(np.tile([5, 6, 7], (3, 1)), log_q)
    draft = best_first(candidates, 0, budget)
    check_shape(draft, candidates, 0, budget)
    assert not np.isnan(draft.scores).any()
    assert (np.diff(np.isinf(draft.scores).astype(int)) >= 0).all()
    possible = [r for r, s in every_prefix(log_q).items() if np.isfinite(s)]
    assert set(rank_paths(draft)[: len(possible)]) <= set(possible)
    for row in range(1, len(draft)):
        path = draft.path(row)[1:]
        assert np.isinf(draft.scores[row]) == np.isinf(draft.log_q[list(path)]).any()


def test_everything_impossible_still_makes_a_tree():
    candidates = Candidates(np.tile([5, 6], (3, 1)), np.full((3, 2), -np.inf, np.float32))
    draft = best_first(candidates, 0, 9)
    check_shape(draft, candidates, 0, 9)
    assert not np.isnan(draft.scores).any()


def test_building_leaves_the_candidates_alone():
    candidates = table(0, 5, 12)
    ids, log_q = candidates.ids.copy(), candidates.log_q.copy()
    best_first(candidates, 0, 100)
    chain(candidates, 0, 100)
    np.testing.assert_array_equal(candidates.ids, ids)
    np.testing.assert_array_equal(candidates.log_q, log_q)


def test_rows_do_not_depend_on_the_tables_layout():
    log_q = table(4, 6, 20).log_q
    straight = best_first_rows(log_q, 90)
    for other in (
        np.asfortranarray(log_q),
        log_q.astype(np.float64),
        np.repeat(log_q, 2, 1)[:, ::2],
    ):
        np.testing.assert_array_equal(best_first_rows(other, 90).parents, straight.parents)


@st.composite
def tables(draw):
    """Small tables on a coarse grid, so that ties are everywhere; zero and −inf included."""
    depths, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    value = st.sampled_from([0.0, -0.25, -0.5, -1.0, -2.0, -np.inf])
    rows = [
        sorted(draw(st.lists(value, min_size=width, max_size=width)), reverse=True)
        for _ in range(depths)
    ]
    return np.array(rows, np.float32)


@settings(max_examples=300)
@given(tables(), st.integers(1, 90))
def test_any_table_gives_an_optimal_prefix_closed_set(log_q, budget):
    candidates = Candidates(np.tile(np.arange(log_q.shape[1]), (len(log_q), 1)), log_q)
    draft = best_first(candidates, 0, budget)
    check_shape(draft, candidates, 0, budget)
    scores = every_prefix(log_q)
    best = sorted(scores.values(), reverse=True)[:budget]
    assert sorted((scores[r] for r in rank_paths(draft)), reverse=True) == best
    np.testing.assert_array_equal(draft.scores[1:], np.array(best, np.float32))


# ── the ancestor mask ────────────────────────────────────────────────────────────────────────────


def walked_mask(parents):
    """Who may see whom, by walking the parents of every row."""
    allowed = np.zeros((len(parents), len(parents)), bool)
    for row in range(len(parents)):
        above = row
        while above >= 0:
            allowed[row, above] = True
            above = parents[above]
    return allowed


def test_the_mask_equals_a_parent_walk_on_200_random_trees():
    rng = np.random.default_rng(0)
    for _ in range(200):
        parents = random_parents(rng, int(rng.integers(1, 80)))
        mask = ancestor_mask(draft_of(parents, range(len(parents))))
        assert mask.dtype == bool
        np.testing.assert_array_equal(mask, walked_mask(parents))


@settings(max_examples=200)
@given(st.lists(st.integers(0, 10**6), max_size=40))
def test_any_tree_has_its_mask(numbers):
    parents = [-1, *(number % row for row, number in enumerate(numbers, 1))]
    mask = ancestor_mask(draft_of(parents, range(len(parents))))
    np.testing.assert_array_equal(mask, walked_mask(parents))


def test_a_chains_mask_is_causal():
    draft = chain(table(0, 7, 3), 0, 64)
    np.testing.assert_array_equal(ancestor_mask(draft), np.tri(8, dtype=bool))
