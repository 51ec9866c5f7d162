"""The words of the house: drafts, verdicts and rounds as plain data."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from core.rounds.draft import Candidates, Draft, Offers
from core.rounds.round import (
    ACCEPTED,
    BEYOND,
    NO_DRAFT,
    OUTRANKED,
    OUTSIDE,
    PRUNED,
    REJECTED,
    Round,
    Sampling,
    UNREACHED,
    Verdict,
)
from tests.toys import draft_of, random_parents

#        root ── 1(a) ── 3(c)
#            └── 2(b) ── 4(d)
PARENTS, TOKENS = [-1, 0, 0, 1, 2], [9, 1, 2, 3, 4]


def a_round(path, bonus, candidates=None, committed=()):
    draft = draft_of(PARENTS, TOKENS)
    choices = np.full(5, -1, np.int64)
    choices[path[-1]] = bonus
    return Round(0, 7, draft, Verdict(tuple(path), choices), tuple(committed), candidates)


def candidates(*rows):
    ids = np.array(rows)
    return Candidates(ids, np.zeros(ids.shape, np.float32))


def test_the_root_is_no_drafted_node():
    assert draft_of(PARENTS, TOKENS).nodes == 4
    assert Draft.root_only(3).nodes == 0


def test_children_are_listed_in_row_order():
    assert draft_of(PARENTS, TOKENS).children == ((1, 2), (3,), (4,), (), ())


def test_child_finds_a_token_only_below_its_own_parent():
    draft = draft_of(PARENTS, TOKENS)
    assert draft.child(0, 2) == 2
    assert draft.child(0, 3) is None
    assert draft.child(1, 4) is None
    assert draft.child(3, 1) is None


def test_path_runs_from_the_root_to_the_row():
    draft = draft_of(PARENTS, TOKENS)
    assert draft.path(0) == (0,)
    assert draft.path(4) == (0, 2, 4)


def test_paths_of_random_trees_follow_the_parents():
    rng = np.random.default_rng(1)
    for _ in range(50):
        parents = random_parents(rng, 30)
        draft = draft_of(parents, range(30))
        for row in range(30):
            path = draft.path(row)
            assert path[0] == 0 and path[-1] == row and len(path) == draft.depths[row] + 1
            assert all(parents[b] == a for a, b in itertools.pairwise(path))


def test_a_verdict_counts_nodes_and_knows_its_bonus():
    verdict = Verdict((0, 2, 4), np.array([2, -1, 4, -1, 8]))
    assert verdict.accepted == 2
    assert verdict.bonus == 8


def test_status_tells_rejected_from_unobserved():
    record = a_round([0, 2], bonus=8)
    assert record.status == (ACCEPTED, REJECTED, ACCEPTED, UNREACHED, REJECTED)


def test_a_sibling_of_the_accepted_token_was_outranked():
    record = a_round([0, 2], bonus=8, candidates=candidates([1, 2], [3, 4], [5, 6]))
    assert record.why(1) == OUTRANKED
    assert record.why(2) == ACCEPTED
    assert record.why(3) == UNREACHED


@pytest.mark.parametrize(
    ("bonus", "why"), [(3, PRUNED), (4, PRUNED), (40, OUTSIDE), (1, OUTSIDE), (5, OUTSIDE)]
)
def test_the_stop_is_explained_by_the_candidates_of_that_depth(bonus, why):
    record = a_round([0, 1], bonus=bonus, candidates=candidates([1, 2], [3, 4], [5, 6]))
    assert record.stop_reason == why
    assert record.why(3) == why


@pytest.mark.parametrize(("read", "why"), [(1, OUTSIDE), (2, PRUNED), (None, PRUNED)])
def test_what_the_builder_never_looked_at_was_not_pruned_by_the_budget(read, why):
    looked = replace(candidates([1, 2], [3, 4], [5, 6]), read=read)
    assert a_round([0, 1], bonus=4, candidates=looked).stop_reason == why
    assert with_offers(a_round([0, 1], 7, looked)).stop_reason == why


def test_nothing_is_drafted_beyond_the_last_depth():
    assert a_round([0, 1, 3], 8, candidates([1, 2], [3, 4])).stop_reason == BEYOND
    assert a_round([0], 8).stop_reason == BEYOND


def test_a_round_without_drafted_nodes_says_so():
    record = Round(0, 7, Draft.root_only(3), Verdict((0,), np.array([5])), (5,))
    assert record.stop_reason == NO_DRAFT
    assert record.offered(0) is None


def test_what_was_offered_hangs_on_the_depth_alone_without_offers():
    record = a_round([0], 8, candidates([1, 2], [3, 4]))
    for row, expected in enumerate(([1, 2], [3, 4], [3, 4], None, None)):
        found = record.offered(row)
        assert found is None if expected is None else found.ids.tolist() == expected


def with_offers(record):
    """Lists after the root, after 1 and after 2; 3 is at the last depth, 4 a leaf."""
    ids = np.array([[1, 2], [3, 7], [4, 8]])
    offers = Offers(ids, -ids.astype(np.float32), np.array([0, 1, 2, -1, -1], np.int32))
    return replace(record, draft=replace(record.draft, offers=offers))


def test_what_was_offered_after_each_row_is_its_own_list():
    record = with_offers(a_round([0, 1], 7, candidates([1, 2], [3, 4], [5, 6])))
    assert [x.ids.tolist() if (x := record.offered(r)) else None for r in range(5)] == [
        [1, 2], [3, 7], [4, 8], None, None,
    ]  # fmt: skip
    np.testing.assert_array_equal(record.offered(2).log_q, np.array([-4, -8], np.float32))


@pytest.mark.parametrize(
    ("path", "bonus", "why"),
    [
        ([0, 1], 7, PRUNED),  # offered behind 1, though no candidate of the depth
        ([0, 1], 8, OUTSIDE),  # offered behind 2 only
        ([0, 1], 4, OUTSIDE),  # a candidate of the depth, but not behind 1
        ([0, 2, 4], 5, OUTSIDE),  # a leaf outside the M candidates has no children
        ([0], 9, OUTSIDE),
    ],
)
def test_offers_explain_the_stop_where_there_are_some(path, bonus, why):
    record = with_offers(a_round(path, bonus, candidates([1, 2], [3, 4], [5, 6])))
    assert record.stop_reason == why


def test_a_token_without_text_shows_its_id():
    record = a_round([0], 8).with_texts({9: "nine"})
    assert record.text(9) == "nine"
    assert record.text(8) == "⟨8⟩"


def test_drafts_and_rounds_are_frozen():
    with pytest.raises(AttributeError):
        a_round([0], 8).index = 3
    with pytest.raises(AttributeError):
        draft_of(PARENTS, TOKENS).tokens = None


def test_greedy_means_temperature_zero():
    assert Sampling().greedy
    assert not Sampling(temperature=0.01).greedy
