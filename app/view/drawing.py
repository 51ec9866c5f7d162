"""A round's tree as shapes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from analysis.numbers import plural
from app.view.denoise import CountedGraph
from app.view.explanation import Explainer
from app.view.fold import Fold, fold, whole
from app.view.layout import outline_rows
from app.view.looks import MARGIN, Boxes, Lines, Told
from app.view.rounds import PLAIN, drawable, node_text, target_probability
from app.view.shapes import GHOST, SCREEN, Box, Curve, Drawing, Edge, Group, Paper, Point, Words
from app.view.tree import SIGNS, STOP, headline
from app.view.values import finite
from core.rounds.blocks import BlockDraft
from core.rounds.draft import DraftRows
from core.rounds.round import ACCEPTED, REJECTED, SIDE, UNREACHED, Round
from core.visible import visible

COLUMN = 20  # lines of a folded tree, unless more was opened


def tree_drawing(
    record: Round,
    explainer: Explainer = PLAIN,
    opened: Sequence[int] | None = None,
    legend: bool = False,
    paper: Paper = SCREEN,
) -> Drawing:
    """The round's tree.

    ``opened``: it is folded but for the children of these rows (``app.view.fold``); None: whole.
    ``legend``: below it, what the signs that it holds mean.
    """
    record = drawable(record)
    if paper.nodes != "lines":
        drawn = whole(record) if opened is None else fold(record, opened)
        drawing = _drawing(record, explainer, drawn, Boxes(), legend)
        if paper.nodes == "boxes" or paper.is_read(drawing):
            return drawing
    if opened is None:
        drawn = whole(record, outline_rows)
    else:
        drawn = fold(record, opened, COLUMN, outline_rows)
    names = "q" if record.target_probs is None else "qp"
    look = Lines.of(_labels(record, drawn), names, paper.pixels)
    return _drawing(record, explainer, drawn, look, legend)


def _drawing(
    record: Round, explainer: Explainer, drawn: Fold, look: Boxes | Lines, legend: bool
) -> Drawing:
    end, depths = record.verdict.path[-1], record.draft.depths.tolist()
    heights = zip(drawn.rows, drawn.y.tolist(), strict=True)
    places = {row: look.place(depths[row], y) for row, y in heights}
    edges = _edges(record.draft, record.status, record.verdict.path, places, look)
    shapes: list[Edge | Group] = list(edges)
    shapes += [look.node(places[row], told) for row, told in _told(record, drawn, explainer)]
    for chip in drawn.chips:
        place = look.place(depths[chip.parent] + 1, chip.y)
        shares = dict(zip("qp", chip.mass(record), strict=True))
        shapes += [
            Edge(record.status[chip.children[0]], look.curves(places[chip.parent], place)),
            look.chip(place, chip.words(record), shares, plural(chip.nodes, "node")),
        ]
    if drawn.ghost is not None:
        place = look.place(depths[end] + 1, drawn.ghost)
        shapes += [Edge(GHOST, look.curves(places[end], place)), look.node(place, _stop(record))]
    deepest = max(depth for depth, _ in _labels(record, drawn))
    width, height = look.size(deepest, drawn.height)
    made = Drawing(width, height, headline(record), (*shapes, *look.heads()))
    meanings = GRAPH_MEANINGS if isinstance(record.draft, BlockDraft) else MEANINGS
    return with_legend(made, meanings, bool(drawn.chips)) if legend else made


def _labels(record: Round, drawn: Fold) -> Iterator[tuple[int, str]]:
    """The depth of all that is drawn, and its words."""
    depths, end = record.draft.depths.tolist(), record.verdict.path[-1]
    yield from ((depths[row], node_text(record, row)) for row in drawn.rows)
    yield from ((depths[chip.parent] + 1, chip.words(record)) for chip in drawn.chips)
    if drawn.ghost is not None:
        yield depths[end] + 1, _stop(record).label


def _edges(
    draft: DraftRows,
    status: Sequence[str],
    path: Sequence[int],
    places: Mapping[int, Point],
    look: Boxes | Lines,
) -> Iterator[Edge]:
    """The edges by status, accepted ones last, so that they lie on top."""
    curves: dict[str, list[Curve]] = {each: [] for each in reversed(SIGNS)}
    walked = set(path)
    for row, place in places.items():
        for parent in draft.sources[row]:
            off_path = row in walked and parent not in walked
            curves[UNREACHED if off_path else status[row]] += look.curves(places[parent], place)
    return (Edge(status, tuple(found)) for status, found in curves.items() if found)


def _told(record: Round, drawn: Fold, explainer: Explainer) -> Iterator[tuple[int, Told]]:
    marks, nodes = explainer.marks(record), record.nodes()
    for row in drawn.rows:
        status, label, chances = record.status[row], node_text(record, row), {}
        if row:
            chances["q"] = finite(nodes.q[row])
            if record.target_probs is not None:
                chances["p"] = finite(nodes.p[row])
        sign = SIGNS[status] if row else "●"
        yield row, Told(status, sign, label, label, chances, *marks.at(row))


def _stop(record: Round) -> Told:
    """The target's token where the walk stopped."""
    label = visible(record.text(record.verdict.bonus))
    p = target_probability(record, record.verdict.path[-1], record.verdict.bonus)
    chances = {} if p is None else {"p": p}
    return Told(GHOST, STOP, label, f"{label}: {record.stop_reason.words}", chances)


# ── a run's draft graph ──────────────────────────────────────────────────────────────────────────


def outline_drawing(outline: CountedGraph, paper: Paper) -> Drawing:
    """A run's draft graph for a paper, a line for each formula, with a legend."""
    draft, told = outline.draft, list(_formulas(outline))
    depths, (y, _) = draft.depths.tolist(), outline_rows(draft.parents.tolist())
    labels = zip(depths, (each.label for each in told), strict=True)
    look = Lines.of(labels, ("rate",), paper.pixels)
    places = {row: look.place(depths[row], at) for row, at in enumerate(y.tolist())}
    nodes = [look.node(places[row], each) for row, each in enumerate(told)]
    shapes = (*_edges(draft, outline.status, (), places, look), *nodes, *look.heads())
    width, height = look.size(max(depths), float(y.max()))
    made = Drawing(width, height, "Draft graph of the run", shapes)
    return with_legend(made, OUTLINE_MEANINGS, folded=False)


def _formulas(outline: CountedGraph) -> Iterator[Told]:
    """The block, and each formula with its counts; in the column, its rate."""
    yield Told(ACCEPTED, "●", outline.names[0], outline.names[0], {})
    rows = zip(outline.names, outline.counts, outline.status, outline.rates, strict=True)
    for name, (accepted, drafted), status, rate in list(rows)[1:]:
        words = f"{name} {accepted}/{drafted}"
        yield Told(status, SIGNS[status], words, words, {"rate": rate})


# ── the legend ───────────────────────────────────────────────────────────────────────────────────

MEANINGS = {
    "root": ("●", "root: the text's last token"),
    ACCEPTED: (SIGNS[ACCEPTED], "accepted"),
    REJECTED: (SIGNS[REJECTED], "rejected"),
    UNREACHED: (SIGNS[UNREACHED], "unreached"),
    SIDE: (SIGNS[SIDE], "side, never accepted"),
    GHOST: (STOP, "bonus: the target's own token"),
    "q": ("", "q, drafter"),
    "p": ("", "p, target"),
    "sum": ("Σ", "sum over the siblings in +n"),
}
GRAPH_MEANINGS = MEANINGS | {
    "root": ("●", "the block before the call"),
    GHOST: (STOP, "where the model went on"),
    "q": ("", "q, by the ranking that was known"),
}
OUTLINE_MEANINGS = {
    "root": ("●", "the block before a call"),
    ACCEPTED: (SIGNS[ACCEPTED], "accepted once or more"),
    UNREACHED: (SIGNS[UNREACHED], "never accepted"),
    "rate": ("", "rate, calls that accepted/drafted it"),
}
KEY_W, KEY_H, LINE, LETTER = 26, 16, 20, 6.7  # a sign, a line of signs, and a letter of a meaning
NARROW = 320  # a narrower drawing has a wider legend


def with_legend(drawing: Drawing, meanings: Mapping[str, tuple[str, str]], folded: bool) -> Drawing:
    """The drawing with the meanings of its signs below it, in as many lines as its width needs.
    ``folded``: it has chips with sums."""
    groups = [shape for shape in drawing.shapes if isinstance(shape, Group)]
    parts = [part for group in groups for part in group.parts]
    held = {part.paint for part in parts if isinstance(part, Box)}
    bare = {"root", "sum"} if folded else {"root"}  # they stand without a box
    marks = {part.text: part.help for part in parts if isinstance(part, Words) and part.help}
    entries = [
        (paint if paint in held else "", *told)
        for paint, told in meanings.items()
        if paint in held | bare
    ]
    entries += [("", mark, help) for mark, help in sorted(marks.items())]
    width = max(drawing.width, NARROW)
    letters = int((width - 2 * MARGIN - KEY_W - 6) / LETTER)
    shapes, x, y = list(drawing.shapes), float(MARGIN), drawing.height + 4
    for paint, sign, meaning in entries:
        lines = textwrap.wrap(meaning, letters)
        wide = KEY_W + 6 + LETTER * max(map(len, lines))
        if x > MARGIN and x + wide > width - MARGIN:
            x, y = float(MARGIN), y + LINE
        shapes.append(Group(x, y, tuple(_entry(paint, sign, lines))))
        x, y = x + wide + 14, y + LINE * (len(lines) - 1)
    return replace(drawing, width=width, height=y + LINE + MARGIN, shapes=tuple(shapes))


def _entry(paint: str, sign: str, lines: Sequence[str]) -> Iterator[Box | Words]:
    """A sign in its box, a bar, or a mark, and its meaning."""
    if paint and sign:
        yield Box(paint, 0, 0, KEY_W, KEY_H, KEY_H / 2 if paint == GHOST else 4)
    elif paint:
        yield Box(paint, 0, 6, KEY_W, 3.5)
    if sign:
        yield Words(sign, 9, 12, "c")
    for at, line in enumerate(lines):
        yield Words(line, KEY_W + 6, 12 + at * LINE, "c")
