"""Folding: what is drawn is a tree with the accepted path, and the chips count all the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.view import fold as module
from app.view.fold import LINES, fold, whole
from tests.helpers.fakes import make_round

rounds = st.builds(make_round, st.integers(0, 10_000), st.integers(1, 200))


@given(rounds)
def test_what_is_drawn_is_a_tree_and_the_chips_hold_the_rest(record):
    found = fold(record)
    shown = set(found.rows)
    assert {0, *record.verdict.path} <= shown
    assert all(int(record.draft.parents[row]) in shown for row in shown - {0})
    hidden = set(range(len(record.draft))) - shown
    assert sum(chip.nodes for chip in found.chips) == len(hidden)
    for chip in found.chips:
        assert chip.nodes > 1
        children = record.draft.children[chip.parent]
        assert set(chip.children) == {row for row in children if row in hidden}
        q, p = chip.mass(record)
        assert q == pytest.approx(np.exp(record.draft.log_q[list(chip.children)]).sum(), rel=1e-4)
        assert p is None or 0 <= p <= 1


@given(rounds)
def test_a_fold_is_low_unless_its_path_alone_is_not_and_boxes_never_touch(record):
    found = fold(record)
    assert found.height <= LINES or set(found.rows) <= {
        child for row in record.verdict.path for child in (row, *record.draft.children[row])
    }
    check_apart_at(record, found)


@given(rounds, st.sets(st.integers(0, 200), max_size=4))
def test_opened_rows_show_their_children_and_nothing_vanishes(record, opened):
    before, after = fold(record), fold(record, opened)
    assert set(before.rows) <= set(after.rows)
    for row in opened:
        if row < len(record.draft):
            assert set(record.draft.children[row]) <= set(after.rows)
    check_apart_at(record, after)


def test_a_small_tree_is_drawn_whole():
    record = make_round(3, 6)
    found = fold(record)
    assert not found.chips and found.rows == whole(record).rows
    assert found.y.tolist() == whole(record).y.tolist()


def check_apart_at(record, found):
    """No box and no chip of a depth touches another."""
    depths = record.draft.depths
    for depth in range(int(depths.max()) + 2):
        column = [y for row, y in zip(found.rows, found.y, strict=True) if depths[row] == depth]
        column += [chip.y for chip in found.chips if depths[chip.parent] + 1 == depth]
        if found.ghost is not None and depths[record.verdict.path[-1]] + 1 == depth:
            column.append(found.ghost)
        gaps = np.diff(np.sort(column))
        assert (gaps > 1 - 1e-6).all()


@pytest.mark.parametrize("budget", [4, 16, 64])
@pytest.mark.parametrize("lines", [2, 5, LINES])
def test_as_many_nodes_are_drawn_as_fit(budget, lines):
    """As if every number of nodes were tried, from all of them down."""
    for seed in range(4):
        record = make_round(seed, budget)
        order = module._order(record)
        least = len(record.verdict.path)
        tried = (module._placed(record, order[:count]) for count in range(len(order), least, -1))
        expected = next((each for each in tried if each.height <= lines), None)
        found = fold(record, lines=lines)
        assert found.rows == (expected or module._placed(record, order[:least])).rows


@pytest.mark.parametrize("seed", range(4))
def test_nodes_come_by_the_larger_of_q_and_p_from_where_they_leave_the_path(seed):
    record = make_round(seed, 64)
    draft, path, log_p = record.draft, record.verdict.path, record.target_probs.log_p

    def interest(row):
        off = [above for above in draft.path(row) if above not in path]
        return sum(min(0.0, float(np.fmax(draft.log_q[above], log_p[above]))) for above in off)

    others = set(range(len(draft))) - set(path)
    assert module._order(record) == [
        *sorted(path), *sorted(others, key=lambda row: (-interest(row), row)),
    ]  # fmt: skip
