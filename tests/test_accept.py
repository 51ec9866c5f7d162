"""The verifier's walk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.verification.walk import walk
from core.rounds.draft import Draft
from tests.toys import draft_of, random_parents

#  root(9) ─┬─ 1(a=1) ─── 4(d=4)
#           ├─ 2(b=2) ─┬─ 3(c=3) ── 6(f=6)
#           │          └─ 5(e=5)
DRAFT = draft_of([-1, 0, 0, 2, 1, 2, 3], [9, 1, 2, 3, 4, 5, 6])


def walk_with(answers, draft=DRAFT):
    asked = []

    def choose(row):
        asked.append(row)
        return answers[row]

    return walk(draft, choose), asked


def test_nothing_accepted_still_gives_the_bonus():
    verdict, asked = walk_with({0: 33})
    assert verdict.path == (0,) and verdict.accepted == 0 and verdict.bonus == 33
    assert asked == [0]


def test_a_partial_path_stops_where_the_targets_token_was_not_drafted():
    verdict, asked = walk_with({0: 2, 2: 44})
    assert verdict.path == (0, 2) and verdict.bonus == 44
    assert asked == [0, 2]


def test_a_path_may_skip_rows():
    verdict, asked = walk_with({0: 2, 2: 3, 3: 6, 6: 50})
    assert verdict.path == (0, 2, 3, 6)
    assert verdict.accepted == 3 and verdict.bonus == 50
    assert asked == [0, 2, 3, 6]


def test_a_token_below_another_parent_is_not_accepted():
    verdict, _ = walk_with({0: 1, 1: 3})
    assert verdict.path == (0, 1) and verdict.bonus == 3


def test_rows_never_asked_keep_minus_one():
    verdict, _ = walk_with({0: 2, 2: 5, 5: 7})
    assert verdict.target_tokens.tolist() == [2, -1, 5, -1, -1, 7, -1]


def test_a_root_alone_is_one_plain_step():
    verdict, _ = walk_with({0: 5}, Draft.root_only(9))
    assert verdict.path == (0,) and verdict.bonus == 5


def test_a_whole_chain_is_accepted():
    chain = draft_of([-1, 0, 1, 2], [4, 5, 6, 7])
    verdict, _ = walk_with({0: 5, 1: 6, 2: 7, 3: 8}, chain)
    assert verdict.path == (0, 1, 2, 3) and verdict.bonus == 8


def test_tokens_may_repeat_along_a_path():
    chain = draft_of([-1, 0, 1], [4, 4, 4])
    assert walk_with({0: 4, 1: 4, 2: 4}, chain)[0].path == (0, 1, 2)


@given(st.integers(0, 10**6), st.integers(1, 40))
def test_the_walk_follows_the_target_as_far_as_the_tree_reaches(seed, rows):
    rng = np.random.default_rng(seed)
    parents = random_parents(rng, rows)
    draft = draft_of(parents, rng.integers(0, 4, rows))
    answers = rng.integers(0, 4, rows)
    verdict = walk(draft, lambda row: int(answers[row]))
    for above, below in zip(verdict.path, verdict.path[1:], strict=False):
        assert parents[below] == above and draft.tokens[below] == answers[above]
    last = verdict.path[-1]
    below = [draft.tokens[r] for r in range(rows) if parents[r] == last]
    assert answers[last] not in below
    assert verdict.bonus == answers[last]


@pytest.mark.parametrize("stop_at", range(4))
def test_every_acceptance_length_of_a_chain(stop_at):
    chain = draft_of([-1, 0, 1, 2], [4, 5, 6, 7])
    answers = {row: row + 5 for row in range(4)} | {stop_at: 40}
    verdict, _ = walk_with(answers, chain)
    assert verdict.accepted == stop_at and verdict.bonus == 40
