"""Where a draft's nodes are drawn: one tidy layered tree, used by the SVG and the browser.

Depth runs left to right, siblings from top to bottom in the order they were drafted. Subtrees move
together as far as their outlines allow (Reingold and Tilford). A parent is midway between its first
and last child, except on the accepted path: that is a straight line, so that the text reads
straight through the tree and keeps its place round after round. Only the shallower of two outlines
is walked when they meet, so the whole takes O(N). A draft graph, whose nodes may have several
parents, is placed level by level instead (``layered``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from core.rounds.draft import Array, DraftRows

SIBLING = 1.0  # between neighbours with one parent
COUSIN = 1.3  # between neighbours of different families: families read as groups


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions in units of one node: y ≥ 0 downward, the topmost node at 0; x is the depth.

    ghost  y of the target's token where the walk stopped, one step right of the path's end
    """

    y: Array
    ghost: float | None


def tidy_rows(
    parents: list[int], path: Sequence[int] = (), ghost: bool = False
) -> tuple[Array, float | None]:
    """(y of every row, of the ghost) for rows that come after their parents; −1: the root.

    ``path`` (from the root) runs straight; ``ghost`` continues it by one.
    """
    count = len(parents)
    below: list[list[int]] = [[] for _ in range(count + 1)]
    for row in range(1, count):
        below[parents[row]].append(row)
    spine = dict(pairwise(path))  # row → the child at its own level
    if ghost:
        end = path[-1] if path else 0
        parents, spine[end] = [*parents, end], count
        below[end].insert((len(below[end]) + 1) // 2, count)
    y = np.array(_rows(parents, below, spine), np.float64)
    y -= y.min()
    return y[:count], float(y[count]) if ghost else None


def outline_rows(
    parents: list[int], path: Sequence[int] = (), ghost: bool = False
) -> tuple[Array, float | None]:
    """The same with each row on a line of its own, below its parent and all that hangs from the
    siblings before it. ``path`` comes first, so its lines follow one another."""
    count = len(parents)
    parents, walked = list(parents), set(path)
    for row, child in pairwise(path):
        parents[child] = row  # in a draft graph a row has several
    below: list[list[int]] = [[] for _ in range(count + 1)]
    for row in sorted(range(1, count), key=lambda row: (row in walked, -row)):
        below[parents[row]].append(row)
    if ghost:
        below[path[-1] if path else 0].append(count)
    y = np.zeros(count + 1)
    stack = [0]  # a chain may be deeper than Python's recursion allows
    for line in range(count + ghost):
        row = stack.pop()
        y[row] = line
        stack += below[row]
    return y[:count], float(y[count]) if ghost else None


def layered(draft: DraftRows, path: Sequence[int] = (), ghost: bool = False) -> Layout:
    """Place every row of a draft graph: x = level, y near the median of its parents.

    ``path`` runs straight, also through levels it has no node on; ``ghost`` continues it by one.
    """
    levels, count = draft.depths.tolist(), len(draft)
    straight = {levels[row]: row for row in path}
    last = max(straight, default=0)
    if ghost:
        straight[last + 1] = count
    y = [0.0] * (count + 1)
    for level in range(1, max(max(levels), last + ghost) + 1):
        rows = [row for row in range(1, count) if levels[row] == level and row not in path]
        wanted = {r: float(np.median([y[p] for p in draft.sources[r]])) for r in rows}
        fixed = straight.get(level, -1 if level < last else None)  # −1: the path only passes
        for row, at in _column(sorted(rows, key=lambda r: (wanted[r], r)), wanted, fixed).items():
            y[row] = at
    placed = np.array(y, np.float64)
    placed -= placed[: count + ghost].min()
    return Layout(placed[:count], float(placed[count]) if ghost else None)


def _column(rows: list[int], wanted: dict[int, float], fixed: int | None) -> dict[int, float]:
    """One level from top to bottom, one apart, each as near as it can be to where it is wanted.
    ``fixed`` is at 0: rows wanted above it are above it, those wanted at 0 share both sides.
    """
    if fixed is None:
        places: dict[int, float] = {}
        for row in rows:
            places[row] = max(wanted[row], max(places.values(), default=-np.inf) + SIBLING)
        off = float(np.mean([wanted[r] - places[r] for r in rows])) if rows else 0.0
        return {row: at + off for row, at in places.items()}
    level = [row for row in rows if wanted[row] == 0]
    above = [row for row in rows if wanted[row] < 0] + level[: len(level) // 2]
    below = level[len(level) // 2 :] + [row for row in rows if wanted[row] > 0]
    places = {fixed: 0.0} if fixed >= 0 else {}
    edge = 0.0
    for row in below:
        edge = places[row] = max(wanted[row], edge + SIBLING)
    edge = 0.0
    for row in reversed(above):
        edge = places[row] = min(wanted[row], edge - SIBLING)
    return places


class _Outline:
    """One side of a subtree: y per level, deepest first, so that the root's level is the last.

    ``shift`` is added to every entry: moving a subtree costs nothing.
    """

    __slots__ = ("levels", "shift")

    def __init__(self, levels: list[float], shift: float = 0.0):
        self.levels, self.shift = levels, shift

    def cover(self, other: _Outline) -> _Outline:
        """This outline where it has levels, the other's below: the longer list is reused."""
        mine, theirs = len(self.levels), len(other.levels)
        if mine >= theirs:
            return self
        move = self.shift - other.shift
        other.levels[theirs - mine :] = [y + move for y in self.levels]
        return other


def _rows(parents: list[int], below: list[list[int]], spine: dict[int, int]) -> list[float]:
    """y per row. Parents come before children, so the reversed order visits children first."""
    count = len(parents)
    offset = [0.0] * count  # of a row against its parent
    outlines: list[tuple[_Outline, _Outline] | None] = [None] * count
    for row in range(count - 1, -1, -1):
        outlines[row] = _family(below[row], spine.get(row), outlines, offset)
    y = [0.0] * count
    for row in range(1, count):
        y[row] = y[parents[row]] + offset[row]
    return y


def _family(
    children: list[int],
    level: int | None,
    outlines: list[tuple[_Outline, _Outline] | None],
    offset: list[float],
) -> tuple[_Outline, _Outline]:
    """Slide the children's subtrees together, place the parent, return the family's outline."""
    if not children:
        return _Outline([0.0]), _Outline([0.0])
    top, bottom = _outline_of(outlines, children[0])
    for child in children[1:]:
        upper, lower = _outline_of(outlines, child)
        move = _clearance(bottom, upper)
        offset[child] = move
        upper.shift += move
        lower.shift += move
        top = top.cover(upper)
        bottom = lower.cover(bottom)
    middle = (offset[children[0]] + offset[children[-1]]) / 2 if level is None else offset[level]
    for child in children:
        offset[child] -= middle
    for outline in (top, bottom):
        outline.shift -= middle
        outline.levels.append(-outline.shift)
    return top, bottom


def _outline_of(
    outlines: list[tuple[_Outline, _Outline] | None], row: int
) -> tuple[_Outline, _Outline]:
    pair = outlines[row]
    assert pair is not None, "children come after their parents"
    outlines[row] = None  # its lists live on in the family's outline
    return pair


def _clearance(above: _Outline, below: _Outline) -> float:
    """How far the lower subtree must move so that nothing touches on any shared level."""
    shift = above.shift - below.shift
    gaps = zip(reversed(above.levels), reversed(below.levels), strict=False)
    first = next(gaps)
    needed = first[0] - first[1] + shift + SIBLING
    for high, low in gaps:
        needed = max(needed, high - low + shift + COUSIN)
    return needed
