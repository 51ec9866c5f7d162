"""How a tree's nodes are drawn: as boxes from left to right, or as lines one below another.

Boxes need 168 pixels for each depth. Lines need the width of a column at any depth: a node is
further to the right than its parent, and q and p of all nodes stand in two columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.numbers import percent
from app.view.rounds import CELLS
from app.view.shapes import GHOST, Box, Curve, Group, Point, Words
from core.visible import cells, fitting

MARGIN = 6
# The browser draws the same boxes: app/web/tree/boxes.js.
BOX_W, BOX_H, STEP_X, STEP_Y = 128, 40, 168, 46
BAR = 50  # width of a bar for probability 1
LINE_H, STEP, LETTER = 16, 19, 7.9  # a line's box, the next line, and a letter of a token
NUMBER, GAP, MARK = 36, 4, 18  # widths in a line
INDENT, SHORT = 0.06, 0.07  # of the whole width: a depth's step at most, a bar at least
LEAST, FEWEST = 8.0, 4  # a depth's step at least, unless fewer letters than these would fit

Chances = Mapping[str, float | None]


@dataclass(frozen=True)
class Told:
    """A node as it is drawn.

    paint    of its box
    title    shown where somebody points
    chances  "q" and "p" as far as they are shown; None: not known
    mark     a sign of the method's, and ``help`` what it means
    """

    paint: str
    sign: str
    label: str
    title: str
    chances: Chances
    mark: str = ""
    help: str = ""


@dataclass(frozen=True)
class Boxes:
    """The numbers are below the token; depth runs to the right."""

    def place(self, depth: float, y: float) -> Point:
        """The top left corner of a box."""
        return MARGIN + depth * STEP_X, MARGIN + y * STEP_Y

    def size(self, deepest: int, height: float) -> Point:
        """The whole picture's width and height."""
        return deepest * STEP_X + BOX_W + 2 * MARGIN, height * STEP_Y + BOX_H + 2 * MARGIN

    def curves(self, start: Point, stop: Point) -> tuple[Curve, ...]:
        x0, y0 = start[0] + BOX_W, start[1] + BOX_H / 2
        x1, y1 = stop[0], stop[1] + BOX_H / 2
        bend = (x1 - x0) / 2
        return (((x0, y0), (x0 + bend, y0), (x1 - bend, y1), (x1, y1)),)

    def node(self, place: Point, told: Told) -> Group:
        left, radius, room = (14, BOX_H / 2, CELLS - 1) if told.paint == GHOST else (8, 7, CELLS)
        parts: list[Box | Words] = [
            Box(told.paint, 0, 0, BOX_W, BOX_H, radius),
            Words(f"{told.sign} {fitting(told.label, room)}", left, 16),
        ]
        for at, (name, chance) in enumerate(told.chances.items()):
            x = left + at * (BAR + 6)
            parts.append(Words(f"{name} {percent(chance)}", x, 29, "n"))
            parts.append(Box(name, x, 33, _length(BAR, chance), 3.5))
        if told.mark:
            parts.append(Words(told.mark, BOX_W - 3, 29, "n", right=True, help=told.help))
        return Group(*place, tuple(parts), told.title)

    def chip(self, place: Point, words: str, shares: Chances, title: str) -> Group:
        sums = "  ".join(f"Σ{name} {percent(share)}" for name, share in shares.items())
        return Group(*place, (Words(words, 4, 18, "c"), Words(sums, 4, 30, "n")), title)

    def heads(self) -> tuple[Group, ...]:
        """The names above the columns of numbers."""
        return ()


@dataclass(frozen=True)
class Lines:
    """The numbers are in columns beside the tokens; depth runs to the right in small steps.

    width   of the whole picture
    names   "q" and "p" as far as they have a column
    indent  of a depth
    bar     the length of a bar for probability 1
    """

    width: float
    names: Sequence[str]
    indent: float
    bar: float

    @staticmethod
    def of(labels: Iterable[tuple[int, str]], names: Sequence[str], width: float) -> Lines:
        """Lines of this width for labels at depths. Tokens are cut where the tree is too deep, and
        bars take what the tree leaves."""
        wide = [(depth, _wide(min(cells(label), 2 * CELLS))) for depth, label in labels]
        bar, many = SHORT * width, len(names)
        room = width - 2 * MARGIN - GAP - many * (NUMBER + 2 * GAP + bar) - MARK
        fits = min(((room - own) / depth for depth, own in wide if depth), default=0.0)
        deepest = max(1, *(depth for depth, _ in wide))
        least = min(LEAST, (room - _wide(FEWEST)) / deepest)
        indent = min(INDENT * width, max(fits, least))
        tree = min(room, max(depth * indent + own for depth, own in wide))
        return Lines(width, names, indent, bar + (room - tree) / many)

    def place(self, depth: float, y: float) -> Point:
        return round(MARGIN + depth * self.indent), MARGIN + y * STEP

    def size(self, deepest: int, height: float) -> Point:
        return self.width, height * STEP + LINE_H + 2 * MARGIN

    def curves(self, start: Point, stop: Point) -> tuple[Curve, ...]:
        """Down from the parent, then to the right."""
        x, turn, y = start[0] + min(8.0, self.indent / 2), stop[1], stop[1] + LINE_H / 2
        top = x, start[1] + LINE_H
        return (top, top, (x, turn), (x, turn)), ((x, turn), (x, y), (x, y), (stop[0], y))

    def node(self, place: Point, told: Told) -> Group:
        room = int((self._x(self.names[0]) - NUMBER - GAP - place[0] - _wide(0)) / LETTER)
        label = fitting(told.label, max(1, room))
        radius = LINE_H / 2 if told.paint == GHOST else 4
        parts: list[Box | Words] = [
            Box(told.paint, 0, 0, _wide(cells(label)), LINE_H, radius),
            Words(f"{told.sign} {label}", 5, 11.5),
        ]
        for name, chance in told.chances.items():
            x = self._x(name) - place[0]
            parts.append(Words(percent(chance), x, 11.5, "n", right=True))
            parts.append(Box(name, x + GAP, 5.5, _length(self.bar, chance), 5))
        if told.mark:
            end = self.width - MARGIN - place[0]
            parts.append(Words(told.mark, end, 11.5, "n", right=True, help=told.help))
        return Group(*place, tuple(parts), told.title)

    def chip(self, place: Point, words: str, shares: Chances, title: str) -> Group:
        sums = [
            Words(f"Σ{percent(share)}", self._x(name) - place[0], 11.5, "n", right=True)
            for name, share in shares.items()
            if name in self.names
        ]
        return Group(*place, (Words(words, 4, 11.5, "c"), *sums), title)

    def heads(self) -> tuple[Group, ...]:
        """In the root's line, which has no numbers."""
        heads = (Words(name, self._x(name), 11.5, "n", right=True) for name in self.names)
        return (Group(0, MARGIN, tuple(heads)),)

    def _x(self, name: str) -> float:
        """The end of a column's numbers; its bars begin beside it."""
        after = len(self.names) - self.names.index(name)
        return self.width - MARGIN - MARK + NUMBER + GAP - after * (NUMBER + 2 * GAP + self.bar)


def _wide(letters: int) -> float:
    """A line's box: sign, blank and token."""
    return LETTER * (letters + 2) + 8


def _length(bar: float, chance: float | None) -> float:
    return 0.0 if chance is None else max(1.0, bar * chance)
