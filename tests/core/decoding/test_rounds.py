"""Rounds as plain data: drafts, verdicts, and why a branch ended."""

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest

from analysis.measures.misses import miss
from app.view.node import node_view
from app.view.tree import text_tree
from core.rounds.causes import Cause
from core.rounds.draft import CHILDLESS, MAX_BUDGET, NOT_ASKED, Candidates, Draft, Proposal
from core.rounds.round import (
    ACCEPTED,
    REJECTED,
    SIDE,
    UNREACHED,
    Probe,
    Round,
    Sampling,
    TargetProbs,
    Verdict,
    new_tokens,
)
from tests.helpers.toys import draft_of, random_parents, verdict_of

#        root ── 1(a) ── 3(c)
#            └── 2(b) ── 4(d)
DRAFT = draft_of([-1, 0, 0, 1, 2], [9, 1, 2, 3, 4])
DEPTHS = [[1, 2], [3, 4], [5, 6]]  # tokens by depth
LISTS = [[1, 2], [3, 7], [4, 8]]  # tokens after the root, after 1 and after 2


def lists(rows):
    ids = np.array(rows)
    return Candidates(ids, -ids.astype(np.float32))


def by_depth(rows=DEPTHS, read=None):
    return Proposal.factorised(lists(rows), DRAFT.depths, read)


def by_row(after=(0, 1, 2, CHILDLESS, CHILDLESS), rows=DEPTHS, read=None):
    return Proposal(lists(LISTS), np.array(after, np.int32), 3, rows and lists(rows), read)


def a_round(path, bonus, proposal=None, **changes):
    draft = replace(DRAFT, proposal=proposal, **changes)
    return Round(0, 7, draft, verdict_of(draft, path, bonus), (), budget=draft.nodes)


def test_a_draft_knows_its_nodes_children_and_paths():
    assert DRAFT.nodes == 4 and Draft.root_only(3).nodes == 0
    assert DRAFT.children == ((1, 2), (3,), (4,), (), ())
    assert [DRAFT.child(*of) for of in ((0, 2), (0, 3), (1, 4), (3, 1))] == [2, None, None, None]
    assert DRAFT.path(0) == (0,) and DRAFT.path(4) == (0, 2, 4)


def test_a_chain_sums_its_log_q():
    draft = Draft.chain([9, 1, 2], log_q=[-1.0, -2.0])
    assert draft.parents.tolist() == [-1, 0, 1] and draft.ranks.tolist() == [0, 1, 1]
    assert draft.log_q.tolist() == [0, -1, -2] and draft.scores.tolist() == [0, -1, -3]


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
    assert (verdict.accepted, verdict.bonus, replace(verdict, bonus_token=5).bonus) == (2, 8, 5)


def test_status_tells_rejected_from_unobserved():
    record = a_round([0, 2], 8, by_depth())
    assert record.status == (ACCEPTED, REJECTED, ACCEPTED, UNREACHED, REJECTED)
    assert [record.why(row) for row in (1, 2, 3)] == [Cause.OUTRANKED, ACCEPTED, UNREACHED]


def test_side_rows_are_neither_accepted_nor_rejected():
    record = a_round([0, 1], 8, side=frozenset({2, 4}))
    assert record.status == (ACCEPTED, ACCEPTED, SIDE, REJECTED, SIDE) and record.why(2) == SIDE
    aside = replace(DRAFT, side=frozenset({2, 4}))
    assert aside.child(0, 2) is None and aside.nodes == 2
    # a chain after the root and a row after node 1
    more = DRAFT.with_side(np.array([5, 6, 7]), [0, 5, 1])
    assert more.depths.tolist() == [0, 1, 1, 2, 2, 1, 2, 2] and more.side == {5, 6, 7}
    assert more.nodes == DRAFT.nodes and more.children[5] == (6,)


def test_a_larger_budget_has_longer_lists_only_where_the_budget_is_their_length():
    wide, narrow = [[1, 2, 30, 31], [3, 4, 32, 33], [5, 6, 34, 35]], DEPTHS
    ranks = Probe(
        np.zeros(2, np.float32),
        np.zeros((2, 16), np.float32),
        np.zeros(2, np.float32),
        np.array([1, 9], np.int32),
    )
    for proposal, why in (
        (by_depth(wide), Cause.SHORT_LIST),
        (by_depth(narrow), Cause.OUTSIDE),  # shorter than the draft: it is all that was listed
        (by_depth(wide, read=4), Cause.OUTSIDE),
        (by_row(rows=wide), Cause.OUTSIDE),
    ):
        record = replace(a_round([0, 1], 40, proposal), probe=ranks)
        assert record.wanted_rank == 9 and record.stop_reason is why
        assert replace(record, budget=9).stop_reason is Cause.OUTSIDE  # the draft would be the same
    far = replace(ranks, rank_q=np.array([1, MAX_BUDGET + 1], np.int32))  # no budget lists so many
    assert replace(a_round([0, 1], 40, by_depth(wide)), probe=far).stop_reason is Cause.OUTSIDE
    record = a_round([0, 1], 40, by_depth(wide))
    assert record.wanted_rank is None and record.stop_reason is Cause.OUTSIDE
    nothing = replace(ranks, rank_q=np.zeros(2, np.int32))
    assert replace(record, probe=nothing).stop_reason is Cause.OUTSIDE


def test_a_walk_behind_the_end_of_the_text_lost_nothing():
    """A stop token or a limit cut what was accepted: no token there was wanted by the text."""
    whole = replace(a_round([0, 2], 3, by_depth()), committed=(2, 3))
    assert not whole.ends_inside and whole.stop_reason is Cause.PRUNED and miss(whole)
    cut = replace(whole, committed=(2,))
    assert cut.ends_inside and cut.stop_reason is Cause.TEXT_ENDED and miss(cut) is None
    assert cut.why(4) is Cause.TEXT_ENDED and cut.why(1) is Cause.OUTRANKED
    unwritten = replace(whole, committed=())
    assert not unwritten.ends_inside  # nothing was written, so nothing is known of an end


@pytest.mark.parametrize(
    ("path", "bonus", "proposal", "why"),
    [
        # by depth
        ([0, 1], 3, by_depth(), Cause.NOT_TAKEN),  # its child carries it
        ([0, 1], 3, None, Cause.NOT_TAKEN),
        ([0, 1], 4, by_depth(), Cause.PRUNED),
        ([0, 1], 40, by_depth(), Cause.OUTSIDE),
        ([0, 1], 1, by_depth(), Cause.OUTSIDE),
        ([0, 1], 5, by_depth(), Cause.OUTSIDE),
        ([0, 1, 3], 8, by_depth([[1, 2], [3, 4]]), Cause.BEYOND),
        ([0], 8, None, Cause.UNKNOWN),
        # what the builder never looks at was not pruned by the budget
        ([0, 1], 4, by_depth(read=1), Cause.NOT_READ),
        ([0, 1], 4, by_depth(read=2), Cause.PRUNED),
        ([0, 1], 7, by_row(read=1), Cause.NOT_READ),
        ([0, 1], 7, by_row(read=2), Cause.PRUNED),
        # by row
        ([0, 1], 7, by_row(), Cause.PRUNED),  # listed after 1, though no candidate of the depth
        ([0, 1], 8, by_row(), Cause.OUTSIDE),  # listed after 2 only
        ([0, 1], 4, by_row(), Cause.OUTSIDE),  # a candidate of the depth, but not after 1
        ([0, 2, 4], 5, by_row(), Cause.OUTSIDE),  # a leaf outside the M candidates has no children
        ([0], 9, by_row(), Cause.OUTSIDE),
        (
            [0, 1],
            7,
            by_row(rows=None),
            Cause.PRUNED,
        ),  # a drafter that always conditions on the path
        ([0, 2, 4], 5, by_row((0, 1, 2, CHILDLESS, NOT_ASKED), None), Cause.PRUNED),
    ],
)
def test_the_stop_is_explained_by_what_the_drafter_listed_there(path, bonus, proposal, why):
    record = a_round(path, bonus, proposal)
    assert record.stop_reason == why
    assert all(record.why(row) == why for row in record.draft.children[path[-1]])


def test_of_tied_nodes_those_are_in_the_beam_after_which_the_drafter_was_asked():
    """Half precision ties them, and an engine may go on from either."""
    after = (0, NOT_ASKED, NOT_ASKED, NOT_ASKED, 1)
    proposal = replace(by_row(after, None), beam=1)
    tied = {"scores": np.array([0, -1, -1, -2, -2], np.float32)}
    assert a_round([0, 2, 4], 7, proposal, **tied).stop_reason is Cause.PRUNED
    assert a_round([0, 1, 3], 7, proposal, **tied).stop_reason is Cause.STOPPED


@pytest.mark.parametrize(
    ("bonus", "proposal", "of_its_budget", "with_nodes_left"),
    [
        (4, by_depth(), Cause.PRUNED, Cause.STOPPED),
        (4, by_depth(read=1), Cause.NOT_READ, Cause.NOT_READ),
        (40, by_depth(), Cause.OUTSIDE, Cause.OUTSIDE),
        (3, by_depth(), Cause.NOT_TAKEN, Cause.NOT_TAKEN),
    ],
)
def test_the_budget_is_not_to_blame_where_the_builder_left_some_of_it(
    bonus, proposal, of_its_budget, with_nodes_left
):
    record = a_round([0, 1], bonus, proposal)
    nodes = record.draft.nodes
    found = [replace(record, budget=b).stop_reason for b in (None, nodes, nodes + 1)]
    not_told = Cause.UNKNOWN if of_its_budget is Cause.PRUNED else of_its_budget
    assert found == [not_told, of_its_budget, with_nodes_left]


def test_a_token_drawn_from_the_residual_refused_the_rows_after_the_last_one():
    record = a_round([0, 1], 3, by_depth())
    record = replace(record, verdict=replace(record.verdict, bonus_token=6))
    assert [record.why(row) for row in (2, 3)] == [Cause.OUTRANKED, Cause.REFUSED]
    assert "target's token, drawn in place of the refused token" in text_tree(record)
    said = node_view(record, 3)["why"]
    assert said == "rejected: refused by speculative sampling"
    again = replace(record.verdict, bonus_token=int(record.draft.tokens[3]))
    assert replace(record, verdict=again).why(3) is Cause.NOT_TAKEN


def test_a_list_without_any_log_q_is_known_by_its_tokens():
    nothing = replace(lists(LISTS), log_q=np.full((3, 2), np.nan, np.float32))
    proposal = Proposal(nothing, np.array([0, 1, 2, CHILDLESS, CHILDLESS], np.int32), 3, read=1)
    assert a_round([0, 1], 7, proposal).stop_reason is Cause.NOT_READ
    assert a_round([0, 1], 40, proposal).stop_reason is Cause.OUTSIDE
    padded = replace(proposal, lists=replace(nothing, ids=np.zeros((3, 2), np.int64)))
    assert len(padded.candidates(0).ids) == 0


def test_a_round_without_drafted_nodes_says_so():
    record = Round(0, 7, Draft.root_only(3), Verdict((0,), np.array([5])), (5,))
    assert record.stop_reason == Cause.NO_DRAFT and record.candidates_after(0) is None


@pytest.mark.parametrize(
    ("proposal", "expected"),
    [
        (None, [None] * 5),
        (by_depth([[1, 2], [3, 4]]), [[1, 2], [3, 4], [3, 4], None, None]),
        (by_row(), [[1, 2], [3, 7], [4, 8], None, None]),
        (by_row((0, NOT_ASKED, 2, 1, CHILDLESS)), [[1, 2], None, [4, 8], [3, 7], None]),
    ],
)
def test_the_list_after_a_row(proposal, expected):
    record = a_round([0], 8, proposal)
    found = [record.candidates_after(row) for row in range(5)]
    assert [each and each.ids.tolist() for each in found] == expected
    assert all((each.log_q == -each.ids).all() for each in found if each)


def test_a_place_without_a_token_is_no_candidate():
    held = Candidates(np.array([[1, 2, 2]]), np.array([[-1, -2, -np.inf]], np.float32))
    found = a_round([0], 8, Proposal.factorised(held, DRAFT.depths)).candidates_after(0)
    assert found.ids.tolist() == [1, 2] and found.log_q.tolist() == [-1, -2]


def test_causes_of_a_long_accepted_path_take_time_by_its_length_alone():
    rows = 20_000  # one accepted chain, and a sibling of each of its nodes
    parents = [-1, *(2 * (row // 2) for row in range(2 * rows))]
    draft = draft_of(parents, range(2 * rows + 1))
    record = Round(0, 0, draft, Verdict(tuple(range(0, 2 * rows, 2)), draft.tokens), ())
    began = time.process_time()
    causes = [record.why(row) for row in range(len(draft))]
    assert causes.count(Cause.OUTRANKED) == rows - 1 and time.process_time() - began < 5


def test_log_p_after_a_row_is_that_of_the_token():
    ids, log_p = np.array([[3, 4]] * 5), np.array([[-0.5, -1.5]] * 5, np.float32)
    none = np.zeros(5, np.float32)
    known = TargetProbs(none, np.zeros(5, np.int32), ids, log_p, none)
    record = replace(a_round([0], 8), target_probs=known)
    assert [record.log_p_after(1, token) for token in (3, 4, 5)] == [-0.5, -1.5, None]
    assert a_round([0], 8).log_p_after(1, 3) is None


def test_the_wanted_tokens_rank_is_that_of_the_depth_where_the_walk_ended():
    none = np.zeros(2, np.float32)
    probe = Probe(none, np.zeros((2, 16), np.float32), none, np.array([1, 30], np.int32))
    assert replace(a_round([0, 1], 8), probe=probe).wanted_rank == 30
    assert a_round([0, 1], 4, by_depth()).wanted_rank == 2 and a_round([0], 8).wanted_rank is None


def test_the_text_begins_with_prefills_token():
    rounds = [replace(a_round([0], 8), committed=(1, 8)), replace(a_round([0], 3), committed=(3,))]
    assert new_tokens(rounds) == [9, 1, 8, 3]


def test_a_token_without_text_shows_its_id():
    record = a_round([0], 8).with_texts({9: "nine"})
    assert (record.text(9), record.text(8)) == ("nine", "⟨8⟩")


def test_drafts_and_rounds_are_frozen():
    with pytest.raises(AttributeError):
        a_round([0], 8).index = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        DRAFT.tokens = None  # type: ignore[misc]


def test_greedy_means_temperature_zero():
    assert Sampling().greedy and not Sampling(temperature=0.01).greedy


def test_a_node_is_read_once_and_what_is_unknown_is_none():
    """Against the record's own arrays; a log that rounding lifted above 0 is a probability of 1."""
    record = a_round([0, 2], 8, by_depth())
    logs, count = np.log(np.linspace(0.9, 0.2, len(DRAFT))), len(DRAFT)
    logs[2] = 1e-7
    draft = replace(record.draft, log_q=logs.astype(np.float32))
    record = replace(record, draft=draft)
    for row in range(count):
        node, path = record.node(row), draft.path(row)[1:]
        assert (node.p, node.path_p) == (None, None if row else 1.0) and node.rank_p is None
        assert node.q == (pytest.approx(min(1.0, np.exp(logs[row]))) if row else None)
        product = np.prod([min(1.0, np.exp(logs[above])) for above in path])
        assert node.path_q == pytest.approx(product, rel=1e-6)
        assert (node.status, node.cause) == (record.status[row], record.why(row))
        assert node.rank == (draft.ranks[row] if row else None) and node.token == draft.tokens[row]
    assert record.node(2).q == 1.0 and np.isnan(record.nodes().p).all()
