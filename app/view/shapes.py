"""The shapes of a picture and its paper, whatever writes it (``app.view.svg``,
``app.export.figure``).

Lengths are pixels of a screen. Y runs downward. A shape names its paint, and paints name colours of
the palette.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.rounds.round import ACCEPTED, REJECTED, SIDE, UNREACHED

GHOST = "ghost"
POINT, INCH = 0.75, 72.0  # points in a pixel, and in an inch

Point = tuple[float, float]
Curve = tuple[Point, Point, Point, Point]  # a cubic Bézier curve
Ground = Literal["page", "white", "transparent"]
DrawnAs = Literal["boxes", "lines"]


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
    "rate": Paint("ink", ""),
}
EDGES = {
    ACCEPTED: Paint("", "accepted", 3.0),
    REJECTED: Paint("", "rejected", 1.0),
    UNREACHED: Paint("", "soft", 1.0, (1.5, 3)),
    SIDE: Paint("", "soft", 1.0, (1, 4)),
    GHOST: Paint("", "ghost", 1.6, (6, 4)),
}
FONTS = {"": (13.0, "ink"), "n": (10.0, "soft"), "c": (11.0, "soft")}  # size and colour
SMALLEST = 6.0  # points of text that is read on paper
DENSE = SMALLEST / min(size for size, _ in FONTS.values())  # points of a pixel then
COLUMN = 238.0  # points of a column of many papers, 3.3 inches


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
    """The sheet of a drawing.

    width  of the whole, in points of 1/72 inch; None: a pixel of the drawing is a pixel
    nodes  how nodes are drawn; None: as lines where the text of boxes would be too small to read
    """

    dark: bool = False
    ground: Ground = "page"
    width: float | None = None
    nodes: DrawnAs | None = None

    def is_read(self, drawing: Drawing) -> bool:
        """Whether the smallest text is large enough on this paper."""
        return self.width is None or self.width / drawing.width >= DENSE

    @property
    def pixels(self) -> float:
        """The width of a drawing whose smallest text is large enough; without a width, of a
        column."""
        return (COLUMN if self.width is None else self.width) / DENSE

    @property
    def theme(self) -> Literal["light", "dark"]:
        return "dark" if self.dark else "light"


SCREEN = Paper()
