"""The layout: nothing overlaps, the accepted path is straight, and work grows with the nodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.view.layout import COUSIN, SIBLING, Layout, outline_rows, tidy_rows
from core.rounds.draft import Draft
from tests.helpers.fakes import make_round


def draft_of(parents: list[int]) -> Draft:
    count = len(parents)
    depths = [0] * count
    for row in range(1, count):
        depths[row] = depths[parents[row]] + 1
    return replace(
        Draft.chain(range(count)),
        parents=np.array(parents, np.int32),
        depths=np.array(depths, np.int32),
    )


def tidy(draft: Draft, path: Sequence[int] = (), ghost: bool = False) -> Layout:
    return Layout(*tidy_rows(draft.parents.tolist(), path, ghost))


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    count = draw(st.integers(1, 60))
    return [-1, *(draw(st.integers(0, row - 1)) for row in range(1, count))]


def check_apart(layout, draft: Draft, ghost_depth: int | None = None) -> None:
    for depth in range(int(draft.depths.max()) + 2):
        column = layout.y[draft.depths == depth].tolist()
        if depth == ghost_depth:
            column.append(layout.ghost)
        column.sort()
        gaps = [b - a for a, b in pairwise(column)]
        assert all(gap > SIBLING - 1e-9 for gap in gaps)


@given(trees())
def test_no_two_nodes_of_a_depth_touch(parents):
    draft = draft_of(parents)
    layout = tidy(draft)
    check_apart(layout, draft)
    assert layout.y.min() == 0


@given(trees())
def test_parents_stand_midway_and_siblings_keep_their_order(parents):
    draft = draft_of(parents)
    y = tidy(draft).y
    for row, children in enumerate(draft.children):
        places = [y[c] for c in children]
        assert places == sorted(places)
        if children:
            assert y[row] == pytest.approx((places[0] + places[-1]) / 2)


@given(trees(), st.data())
def test_the_path_is_a_straight_line_that_the_ghost_continues(parents, data):
    draft = draft_of(parents)
    path = draft.path(data.draw(st.integers(0, len(draft) - 1)))
    layout = tidy(draft, path, ghost=True)
    check_apart(layout, draft, ghost_depth=int(draft.depths[path[-1]]) + 1)
    assert np.allclose(layout.y[list(path)], layout.ghost)


def test_families_stand_further_apart_than_siblings():
    layout = tidy(draft_of([-1, 0, 0, 1, 1, 2, 2]))
    gaps = np.diff(layout.y[3:])
    assert gaps.tolist() == pytest.approx([SIBLING, COUSIN, SIBLING])


def test_a_small_subtree_slides_under_a_deep_neighbour():
    # Row 1 fans out at depth 3 only; row 2 is a leaf: it need not wait for the whole fan.
    layout = tidy(draft_of([-1, 0, 0, 1, 3, 3, 3, 3, 3]))
    assert layout.y[2] - layout.y[1] == pytest.approx(SIBLING)


def test_a_chain_deeper_than_recursion_is_a_straight_line():
    layout = tidy(draft_of([-1, *range(5000)]))
    assert np.allclose(layout.y, 0)


def test_the_work_grows_with_the_nodes():
    few, many = (_events(make_round(3, budget=size)) for size in (256, 1024))
    assert many < 5 * few


def _events(record) -> int:
    """Count the lines that are run."""
    count = 0

    def trace(*_):
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        tidy(record.draft, record.verdict.path, ghost=True)
    finally:
        sys.settrace(before)
    return count


@given(trees(), st.booleans())
def test_an_outline_is_a_line_for_each_row_and_begins_with_the_path(parents, ghost):
    path = [0]
    while children := [row for row, parent in enumerate(parents) if parent == path[-1]]:
        path.append(children[-1])
    path = path[: 1 + len(path) // 2]
    y, stop = outline_rows(parents, path, ghost)
    order = sorted(range(len(parents)), key=y.tolist().__getitem__)
    assert sorted([*y.tolist(), *([stop] if ghost else [])]) == list(range(len(parents) + ghost))
    assert order[: len(path)] == path and (stop == len(path) if ghost else stop is None)
    for at, row in enumerate(order[1:], 1):  # its parent's line, or one that hangs from it
        above = order[at - 1]
        while above != parents[row]:
            above = parents[above]
