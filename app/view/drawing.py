"""A round's tree as shapes: what a picture of it shows, whatever writes it (``app.view.svg``,
``app.export.figure``).

Lengths are pixels of a screen. Y runs downward. A shape names its paint, and paints name colours of
the palette.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from analysis.numbers import percent, plural
from app.view.explanation import Explainer, Marks
from app.view.fold import Chip, fold, whole
from app.view.rounds import CELLS, PLAIN, drawable, node_text, target_probability
from app.view.tree import SIGNS, STOP, headline
from app.view.values import finite
from core.rounds.node import Nodes
from core.rounds.round import ACCEPTED, REJECTED, SIDE, UNREACHED, Round
from core.visible import fitting, visible

GHOST = "ghost"

# The browser draws the same boxes: app/web/tree/boxes.js.
BOX_W, BOX_H, STEP_X, STEP_Y, MARGIN = 128, 40, 168, 46, 20
BAR = 50  # width of a bar for probability 1
POINT = 0.75  # points of 1/72 inch in a pixel

Point = tuple[float, float]
Curve = tuple[Point, Point, Point, Point]  # a cubic Bézier curve
Ground = Literal["page", "white", "transparent"]


@dataclass(frozen=True)
class Paint:
    """Names of colours, "" for none. ``dash``: lengths of a dash and a gap."""

    fill: str
    stroke: str
    width: float = 1.0
    dash: tuple[float, float] | None = None


BOXES = {
    ACCEPTED: Paint("accepted-box", "accepted", 2.4),
    REJECTED: Paint("card", "rejected", 1.3),
    UNREACHED: Paint("card", "soft", 1.0, (1.5, 2.5)),
    SIDE: Paint("card", "soft", 1.0, (1, 4)),
    GHOST: Paint("", "ghost", 1.6, (6, 4)),
    "q": Paint("", "ink", 0.8),
    "p": Paint("ink", ""),
}
EDGES = {
    ACCEPTED: Paint("", "accepted", 3.0),
    REJECTED: Paint("", "rejected", 1.0),
    UNREACHED: Paint("", "soft", 1.0, (1.5, 3)),
    SIDE: Paint("", "soft", 1.0, (1, 4)),
    GHOST: Paint("", "ghost", 1.6, (6, 4)),
}
FONTS = {"": (13.0, "ink"), "n": (10.0, "soft"), "c": (11.0, "soft")}  # size and colour


@dataclass(frozen=True)
class Box:
    """A rectangle with a paint of ``BOXES``."""

    paint: str
    x: float
    y: float
    width: float
    height: float
    radius: float = 0.0


@dataclass(frozen=True)
class Words:
    """A line of text in a font of ``FONTS``; y is its baseline. ``right``: x is its end."""

    text: str
    x: float
    y: float
    font: str = ""
    right: bool = False
    help: str = ""


@dataclass(frozen=True)
class Edge:
    """Curves with one paint of ``EDGES``."""

    paint: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Group:
    """Shapes whose places count from (x, y), with a title."""

    x: float
    y: float
    parts: tuple[Box | Words, ...]
    title: str = ""


@dataclass(frozen=True)
class Drawing:
    """A picture: its size, its title, and its shapes, the last on top."""

    width: float
    height: float
    title: str
    shapes: tuple[Edge | Group, ...]


@dataclass(frozen=True)
class Paper:
    """The sheet of a drawing. ``width``: of the whole, in points of 1/72 inch; None: a pixel of
    the drawing is a pixel."""

    dark: bool = False
    ground: Ground = "page"
    width: float | None = None

    def letters(self, drawing: Drawing) -> float:
        """The size of a node's text on this paper, in points."""
        scale = POINT if self.width is None else self.width / drawing.width
        return FONTS[""][0] * scale

    @staticmethod
    def legible(drawing: Drawing, size: float) -> float:
        """The width in points at which a node's text is ``size`` points high."""
        return size / FONTS[""][0] * drawing.width

    @property
    def theme(self) -> Literal["light", "dark"]:
        return "dark" if self.dark else "light"


# ── the tree ─────────────────────────────────────────────────────────────────────────────────────


def tree_drawing(
    record: Round,
    explainer: Explainer = PLAIN,
    opened: Sequence[int] | None = None,
    legend: bool = False,
) -> Drawing:
    """The round's tree.

    ``opened``: it is folded but for the children of these rows (``app.view.fold``); None: whole.
    ``legend``: below it, what the signs that it holds mean.
    """
    record = drawable(record)
    end = record.verdict.path[-1]
    drawn = whole(record) if opened is None else fold(record, opened)
    depths, marks, nodes = record.draft.depths, explainer.marks(record), record.nodes()
    heights = zip(drawn.rows, drawn.y.tolist(), strict=True)
    places = {row: _at(float(depths[row]), y) for row, y in heights}
    shapes: list[Edge | Group] = list(_edges(record, places))
    shapes += [_box(record, places[row], row, nodes, marks) for row in drawn.rows]
    for chip in drawn.chips:
        shapes += _chip(record, places[chip.parent], chip)
    if drawn.ghost is not None:
        shapes += _ghost(record, places[end], _at(float(depths[end]) + 1, drawn.ghost))
    beyond = [chip.parent for chip in drawn.chips] + ([] if drawn.ghost is None else [end])
    deepest = max(
        *(int(depths[row]) for row in drawn.rows), *(int(depths[r]) + 1 for r in beyond), 0
    )
    width = round(deepest * STEP_X + BOX_W + 2 * MARGIN)
    height = round(drawn.height * STEP_Y + BOX_H + 2 * MARGIN)
    drawing = Drawing(width, height, headline(record), tuple(shapes))
    return with_legend(drawing) if legend else drawing


def _at(x: float, y: float) -> Point:
    """The top left corner of a box."""
    return MARGIN + x * STEP_X, MARGIN + y * STEP_Y


def _edges(record: Round, places: Mapping[int, Point]) -> Iterator[Edge]:
    """The edges by status, accepted ones last, so that they lie on top."""
    curves: dict[str, list[Curve]] = {status: [] for status in reversed(SIGNS)}
    walked = set(record.verdict.path)
    for row, place in places.items():
        for parent in record.draft.sources[row]:
            off_path = row in walked and parent not in walked
            status = UNREACHED if off_path else record.status[row]
            curves[status].append(_curve(places[parent], place))
    return (Edge(status, tuple(found)) for status, found in curves.items() if found)


def _curve(start: Point, stop: Point) -> Curve:
    x0, y0 = start[0] + BOX_W, start[1] + BOX_H / 2
    x1, y1 = stop[0], stop[1] + BOX_H / 2
    bend = (x1 - x0) / 2
    return (x0, y0), (x0 + bend, y0), (x1 - bend, y1), (x1, y1)


def _box(record: Round, place: Point, row: int, nodes: Nodes, marks: Marks) -> Group:
    status, label = record.status[row], node_text(record, row)
    sign = SIGNS[status] if row else "●"
    parts: list[Box | Words] = [
        Box(status, 0, 0, BOX_W, BOX_H, 7),
        Words(f"{sign} {fitting(label, CELLS)}", 8, 16),
    ]
    if row:
        parts += _bar(8, "q", finite(nodes.q[row]))
        if record.target_probs is not None:
            parts += _bar(8 + BAR + 6, "p", finite(nodes.p[row]))
    mark, help = marks.at(row)
    if mark:
        parts.append(Words(mark, BOX_W - 3, 29, "n", right=True, help=help))
    return Group(*place, tuple(parts), label)


def _bar(x: int, name: str, chance: float | None) -> list[Box | Words]:
    length = 0.0 if chance is None else max(1.0, BAR * chance)
    return [Words(f"{name} {percent(chance)}", x, 29, "n"), Box(name, x, 33, length, 3.5)]


def _chip(record: Round, parent: Point, chip: Chip) -> Iterator[Edge | Group]:
    """The children that are not drawn: how many, how they ended, and their share of q and p."""
    place = _at(float(record.draft.depths[chip.parent]) + 1, chip.y)
    q, p = chip.mass(record)
    yield Edge(record.status[chip.children[0]], (_curve(parent, place),))
    shares = Words(f"Σq {percent(q)}  Σp {percent(p)}", 4, 30, "n")
    parts = (Words(chip.words(record), 4, 18, "c"), shares)
    yield Group(*place, parts, plural(chip.nodes, "node"))


def _ghost(record: Round, parent: Point, place: Point) -> Iterator[Edge | Group]:
    end = record.verdict.path[-1]
    label = visible(record.text(record.verdict.bonus))
    p = target_probability(record, end, record.verdict.bonus)
    parts: list[Box | Words] = [
        Box(GHOST, 0, 0, BOX_W, BOX_H, BOX_H / 2),
        Words(f"{STOP} {fitting(label, CELLS - 1)}", 14, 16),
        *(_bar(14, "p", p) if p is not None else []),
    ]
    yield Edge(GHOST, (_curve(parent, place),))
    yield Group(*place, tuple(parts), f"{label}: {record.stop_reason.words}")


# ── the legend ───────────────────────────────────────────────────────────────────────────────────

MEANINGS = {
    ACCEPTED: (SIGNS[ACCEPTED], "accepted"),
    REJECTED: (SIGNS[REJECTED], "rejected"),
    UNREACHED: (SIGNS[UNREACHED], "unreached"),
    SIDE: (SIGNS[SIDE], "side, never accepted"),
    GHOST: (STOP, "target's token where the walk stopped"),
    "q": ("", "q, drafter"),
    "p": ("", "p, target"),
}
KEY_W, KEY_H, LINE, LETTER = 26, 16, 24, 7.0  # a sign, a line of signs, and a letter of a meaning


def with_legend(drawing: Drawing) -> Drawing:
    """The drawing with the meanings of its signs below it, in as many lines as its width needs."""
    groups = [shape for shape in drawing.shapes if isinstance(shape, Group)]
    parts = [part for group in groups for part in group.parts]
    held = {part.paint for part in parts if isinstance(part, Box)}
    marks = {part.text: part.help for part in parts if isinstance(part, Words) and part.help}
    entries = [(paint, *told) for paint, told in MEANINGS.items() if paint in held]
    entries += [("", mark, help) for mark, help in sorted(marks.items())]
    widths = [KEY_W + 24 + LETTER * len(words) for _, _, words in entries]
    width = max(drawing.width, *(MARGIN + each for each in widths))
    shapes, x, y = list(drawing.shapes), float(MARGIN), drawing.height
    for (paint, sign, words), wide in zip(entries, widths, strict=True):
        if x > MARGIN and x + wide > width:
            x, y = float(MARGIN), y + LINE
        shapes.append(Group(x, y, tuple(_entry(paint, sign, words))))
        x += wide
    return replace(drawing, width=width, height=y + LINE + MARGIN / 2, shapes=tuple(shapes))


def _entry(paint: str, sign: str, words: str) -> Iterator[Box | Words]:
    """A sign in its box, a bar, or a mark, and its meaning."""
    if paint and sign:
        yield Box(paint, 0, 0, KEY_W, KEY_H, KEY_H / 2 if paint == GHOST else 4)
    elif paint:
        yield Box(paint, 0, 6, KEY_W, 3.5)
    if sign:
        yield Words(sign, 9, 12, "c")
    yield Words(words, KEY_W + 8, 12, "c")
