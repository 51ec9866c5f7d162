"""Which nodes of a tree are drawn at once: a draft of 64 nodes has some forty rejected siblings.

Drawn are the accepted path and, next to it, what the drafter or the target thought most probable.
The rest of a node's children become one chip that says how many they are and what q and p they
hold together. A tree that fits in a landscape window is drawn whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from app.view.layout import Layout, layered, tidy_rows
from core.rounds.blocks import BlockDraft
from core.rounds.draft import Array
from core.rounds.round import Round

Arrange = Callable[[list[int], Sequence[int], bool], tuple[Array, float | None]]
LINES = 9  # boxes, one below another, that a folded tree is at most high unless more was opened


@dataclass(frozen=True)
class Chip:
    """Children of one node that are not drawn.

    parent    row of the node
    children  their rows
    nodes     they and all their descendants
    y         its place, in units of one node
    """

    parent: int
    children: tuple[int, ...]
    nodes: int
    y: float

    def words(self, record: Round) -> str:
        """Return the words of the chip: "+16 rejected", or "+16" where not all ended alike."""
        ends = {record.status[row] for row in self.children}
        return f"+{len(self.children)}" + (f" {ends.pop()}" if len(ends) == 1 else "")

    def mass(self, record: Round) -> tuple[float | None, float | None]:
        """Σ q and Σ p of the children after their parent, 0 to 1; None: not known."""
        logs, rows = record.draft.log_q, list(self.children)
        probs = record.target_probs
        return _sum(logs[rows]), None if probs is None else _sum(probs.log_p[rows])


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows of a tree that are drawn, and their places.

    rows   ascending; a row's parent is among them
    y      float64 [rows], as in ``Layout``
    ghost  y of the target's token where the walk stopped
    """

    rows: tuple[int, ...]
    y: Array
    chips: tuple[Chip, ...]
    ghost: float | None

    @property
    def height(self) -> float:
        """The height from the topmost to the lowest box."""
        others = [chip.y for chip in self.chips] + ([] if self.ghost is None else [self.ghost])
        return max([float(self.y.max()), *others])


def fold(
    record: Round,
    opened: Collection[int] = (),
    lines: int = LINES,
    arrange: Arrange = tidy_rows,
) -> Fold:
    """The tree with as many of its most interesting nodes as ``lines`` boxes below one another
    allow, and besides all children of the ``opened`` rows. A draft graph is never folded."""
    if isinstance(record.draft, BlockDraft):
        return whole(record, arrange)
    found = _largest(record, _order(record), lines, arrange)
    return _placed(record, found.rows, opened, arrange) if opened else found


def _largest(record: Round, order: list[int], lines: int, arrange: Arrange) -> Fold:
    """As many rows of this order as ``lines`` boxes allow, the accepted path in any case: at most
    lg N layouts of the nodes drawn."""
    found, low, high = None, len(record.verdict.path), _bound(record, order, lines)
    tried = high  # it is seldom too many by much
    while low < high:
        fold = _placed(record, order[:tried], (), arrange)
        if fold.height <= lines:
            found, low = fold, tried
        else:
            high = tried - 1
        tried = (low + high + 1) // 2
    return found or _placed(record, order[:low], (), arrange)


def _bound(record: Round, order: list[int], lines: int) -> int:
    """How many rows of this order can be drawn at most: boxes of one depth are one apart."""
    draft = record.draft
    parents, depths, children = draft.parents.tolist(), draft.depths.tolist(), draft.children
    hidden, boxes = [len(some) for some in children], [0] * (max(depths) + 2)
    for count, row in enumerate(order):
        depth = depths[row]
        boxes[depth] += 1
        if row:
            hidden[parents[row]] -= 1
            boxes[depth] -= not hidden[parents[row]]  # the chip of its siblings goes
        boxes[depth + 1] += bool(children[row])  # one for all of them, until they are drawn
        if max(boxes[depth : depth + 2]) > lines + 1:
            return max(count, len(record.verdict.path))
    return len(order)


def whole(record: Round, arrange: Arrange = tidy_rows) -> Fold:
    """Every node at its place."""
    draft, path, stops = record.draft, record.verdict.path, record.verdict.bonus >= 0
    if arrange is tidy_rows and isinstance(draft, BlockDraft):
        layout = layered(draft, path, stops)
    else:
        layout = Layout(*arrange(draft.parents.tolist(), path, stops))
    return Fold(tuple(range(len(draft))), layout.y, (), layout.ghost)


def _order(record: Round) -> list[int]:
    """All rows by interest, each after its parent: the accepted path first, then by the product of
    max(q, p) from where a node leaves the path."""
    draft, path = record.draft, set(record.verdict.path)
    logs = np.nan_to_num(draft.log_q.astype(np.float64), nan=-np.inf)
    if record.target_probs is not None:
        logs = np.fmax(logs, record.target_probs.log_p)
    gains, parents = np.minimum(logs, 0.0).tolist(), draft.parents.tolist()
    interest = [0.0] * len(draft)
    for row in range(1, len(draft)):
        if row not in path:
            interest[row] = interest[parents[row]] + gains[row]
    return sorted(range(len(draft)), key=lambda row: (row not in path, -interest[row], row))


def _shown(record: Round, rows: Collection[int], opened: Collection[int]) -> set[int]:
    """These rows, all children of the opened ones, and whatever alone would be a chip."""
    children, shown = record.draft.children, set(rows)
    for row in sorted(set(opened)):
        if 0 <= row < len(children):
            shown |= {*record.draft.path(row), *children[row]}
    for row in sorted(shown):
        hidden = [child for child in children[row] if child not in shown]
        if len(hidden) == 1 and not children[hidden[0]]:
            shown.add(hidden[0])
    return shown


def _placed(
    record: Round, some: Collection[int], opened: Collection[int] = (), arrange: Arrange = tidy_rows
) -> Fold:
    """These rows and what goes with them. A chip is laid out as its parent's last child."""
    draft, rows = record.draft, sorted(_shown(record, some, opened))
    at = {row: i for i, row in enumerate(rows)}
    above = draft.parents.tolist()
    parents = [at[above[row]] if row else -1 for row in rows]
    hidden = {row: [c for c in draft.children[row] if c not in at] for row in rows}
    folded = [row for row in rows if hidden[row]]
    below = _descendants(record) if folded else []
    path = [at[row] for row in record.verdict.path]
    all_parents = [*parents, *(at[row] for row in folded)]
    y, stop = arrange(all_parents, path, record.verdict.bonus >= 0)
    chips = tuple(
        Chip(row, tuple(hidden[row]), sum(below[c] for c in hidden[row]), float(place))
        for row, place in zip(folded, y[len(rows) :], strict=True)
    )
    return Fold(tuple(rows), y[: len(rows)], chips, stop)


def _sum(logs: Array) -> float | None:
    total = float(np.exp(logs.astype(np.float64)).sum())
    return min(total, 1.0) if np.isfinite(total) else None


def _descendants(record: Round) -> list[int]:
    """How many nodes each row's subtree has, itself included."""
    counts, parents = [1] * len(record.draft), record.draft.parents.tolist()
    for row in range(len(counts) - 1, 0, -1):
        counts[parents[row]] += counts[row]
    return counts
