"""The verifier's walk."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.rounds.draft import Draft
from core.verification.walk import walk
from tests.helpers.toys import draft_of, random_parents

#  root(9) ─┬─ 1(1) ─── 4(4)
#           ├─ 2(2) ─┬─ 3(3) ── 6(6)
#           │        └─ 5(5)
TREE = draft_of([-1, 0, 0, 2, 1, 2, 3], [9, 1, 2, 3, 4, 5, 6])
CHAIN = draft_of([-1, 0, 1, 2], [4, 5, 6, 7])
REPEATED = draft_of([-1, 0, 1], [4, 4, 4])


@pytest.mark.parametrize(
    ("draft", "answers", "bonus"),
    [
        (TREE, {0: 33}, 33),  # nothing is accepted
        (TREE, {0: 2, 2: 44}, 44),  # the token was not drafted there
        (TREE, {0: 1, 1: 3}, 3),  # it was drafted below another parent
        (TREE, {0: 2, 2: 3, 3: 6, 6: 50}, 50),  # the path skips rows
        (TREE, {0: 2, 2: 5, 5: 7}, 7),
        (CHAIN, {0: 40}, 40),
        (CHAIN, {0: 5, 1: 40}, 40),
        (CHAIN, {0: 5, 1: 6, 2: 40}, 40),
        (CHAIN, {0: 5, 1: 6, 2: 7, 3: 8}, 8),  # all of it is accepted
        (REPEATED, {0: 4, 1: 4, 2: 4}, 4),
        (Draft.root_only(9), {0: 5}, 5),
    ],
)
def test_the_path_its_bonus_and_the_rows_that_were_reached(draft, answers, bonus):
    """The target is asked on the path only, and once per row; other rows keep −1."""
    asked = []

    def choose(row):
        asked.append(row)
        return answers[row]

    verdict = walk(draft, choose)
    assert asked == list(verdict.path) == list(answers)
    assert verdict.accepted == len(answers) - 1 and verdict.bonus == bonus
    assert verdict.target_tokens.tolist() == [answers.get(row, -1) for row in range(len(draft))]


@given(st.integers(0, 10**6), st.integers(1, 40))
def test_the_walk_follows_the_target_as_far_as_the_tree_reaches(seed, rows):
    rng = np.random.default_rng(seed)
    parents = random_parents(rng, rows)
    draft = draft_of(parents, rng.integers(0, 4, rows).tolist())
    answers = rng.integers(0, 4, rows)
    verdict = walk(draft, lambda row: int(answers[row]))
    for above, below in pairwise(verdict.path):
        assert parents[below] == above and draft.tokens[below] == answers[above]
    last = verdict.path[-1]
    assert answers[last] not in [draft.tokens[r] for r in range(rows) if parents[r] == last]
    assert verdict.bonus == answers[last]
