"""A drawing as PDF, or as SVG whose letters are outlines: a figure that looks the same anywhere.

graphviz's ``dot`` program writes both through cairo. It lays out nothing here: the drawing is its
background, in the language of xdot (https://graphviz.org/docs/outputs/canon/#xdot). In a PDF cairo
embeds the letters that are used of each font; in SVG it draws them as paths. The font is this
machine's fixed-width font; letters that it lacks come from others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import graphviz

from analysis.charts.palette import PALETTES
from app.view.drawing import (
    BOXES,
    EDGES,
    FONTS,
    POINT,
    Box,
    Drawing,
    Edge,
    Paint,
    Paper,
    Point,
    Words,
)
from app.view.svg import printable
from core.errors import UserError

Form = Literal["pdf", "svg"]
FONT = "monospace"
HANDLE = 0.5523  # of a quarter circle, as a share of its radius
FINE = 16.0  # how large outlines are drawn
RAISED = 0.2  # how far above its baseline graphviz draws a text, as a share of its size
LONG = 3.0  # pixels; a dash is "dashed" to dot from here on, a shorter one "dotted"


def figure(drawing: Drawing, paper: Paper, form: Form) -> bytes:
    """The drawing as a file. Raises UserError where ``dot`` is not installed or has no cairo."""
    if form == "pdf":
        return _by_cairo(drawing, paper, form)
    # cairo fits outlines to the pixels of their size: drawn large, they are true at any size.
    large = replace(paper, width=FINE * drawing.width)
    width = paper.width or drawing.width * POINT
    size = f'width="{width:.2f}pt" height="{width * drawing.height / drawing.width:.2f}pt"'
    data = _by_cairo(drawing, large, form)
    return re.sub(rb'width="[0-9.]+pt" height="[0-9.]+pt"', size.encode(), data, count=1)


def _by_cairo(drawing: Drawing, paper: Paper, form: Form) -> bytes:
    data = _source(drawing, paper).encode()
    try:
        return graphviz.pipe("neato", form, data, renderer="cairo", neato_no_op=2, quiet=True)
    except graphviz.ExecutableNotFound:
        raise UserError(
            "graphviz's dot program is not installed: only SVG of Draftscope's own layout, whose "
            "letters are text, is drawn without it; --to dot writes a graph to lay out elsewhere"
        ) from None
    except graphviz.CalledProcessError:
        raise UserError("graphviz's dot program could not draw this") from None


def _source(drawing: Drawing, paper: Paper) -> str:
    """A graph of one node that nobody sees, as large as the drawing, which is its background."""
    width, height = drawing.width * POINT, drawing.height * POINT
    wide = paper.width or width
    # Each operation is a string of its own: the strings of DOT may have 16,384 characters. Its last
    # space keeps a backslash that ends a text from the quote.
    operations = (each.replace('"', '\\"') for each in _operations(drawing, paper))
    strings = " + ".join(f'"{each} "' for each in operations)
    return (
        f'graph figure {{ graph [bgcolor=transparent, margin=0, pad=0, size="{wide / 72:.5f},'
        f'{wide * height / width / 72:.5f}!", _background={strings}]\n'
        f'figure [label="", style=invis, shape=box, fixedsize=true, width={width / 72:.5f}, '
        f'height={height / 72:.5f}, pos="{width / 2:.3f},{height / 2:.3f}"] }}\n'
    )


class _Pen:
    """Operations of xdot, whose y runs upward, for shapes whose y runs downward."""

    def __init__(self, height: float, colours: Mapping[str, str]):
        self._height, self._colours = height, colours

    def at(self, point: Point) -> str:
        return f"{point[0] * POINT:.3f} {(self._height - point[1]) * POINT:.3f}"

    def look(self, paint: Paint) -> Iterator[str]:
        stroke, fill = paint.stroke or paint.fill, paint.fill
        yield _named("c", self._colours[stroke])
        if fill:
            yield _named("C", self._colours[fill])
        yield _named("S", f"setlinewidth({(paint.width if paint.stroke else 0.1) * POINT:.3f})")
        dash = paint.dash
        yield _named("S", "solid" if not dash else "dashed" if dash[0] >= LONG else "dotted")

    def path(self, points: list[Point], filled: bool) -> str:
        return f"{'b' if filled else 'B'} {len(points)} {' '.join(map(self.at, points))}"

    def box(self, box: Box, x: float, y: float) -> Iterator[str]:
        paint = BOXES[box.paint]
        yield from self.look(paint)
        yield self.path(_outline(box, x + box.x, y + box.y), bool(paint.fill))

    def words(self, words: Words, x: float, y: float) -> Iterator[str]:
        size, colour = FONTS[words.font]
        # DOT cannot hold a backslash before a quote: a sign without width stands between them.
        text = printable(words.text).replace('\\"', '\\\u2060"')
        yield _named("c", self._colours[colour])
        yield f"F {size * POINT:.3f} {_counted(FONT)}"
        place = self.at((x + words.x, y + words.y + RAISED * size))
        yield f"T {place} {1 if words.right else -1} 0 {_counted(text)}"


def _operations(drawing: Drawing, paper: Paper) -> Iterator[str]:
    colours = dict(PALETTES[paper.theme])
    if paper.ground == "white":
        colours["ground"] = "#ffffff"
    pen = _Pen(drawing.height, colours)
    if paper.ground != "transparent":
        yield from pen.look(Paint("ground", ""))
        yield pen.path(_outline(Box("", 0, 0, drawing.width, drawing.height), 0, 0), True)
    for shape in drawing.shapes:
        if isinstance(shape, Edge):
            yield from pen.look(EDGES[shape.paint])
            yield from (pen.path(list(curve), False) for curve in shape.curves)
            continue
        for part in shape.parts:
            if isinstance(part, Box):
                yield from pen.box(part, shape.x, shape.y)
            else:
                yield from pen.words(part, shape.x, shape.y)


def _outline(box: Box, x: float, y: float) -> list[Point]:
    """A rectangle with round corners as one closed curve."""
    w, h, r = box.width, box.height, min(box.radius, box.width / 2, box.height / 2)
    k = r * (1 - HANDLE)
    corners = [
        ((x + w - r, y), (x + w - k, y), (x + w, y + k), (x + w, y + r)),
        ((x + w, y + h - r), (x + w, y + h - k), (x + w - k, y + h), (x + w - r, y + h)),
        ((x + r, y + h), (x + k, y + h), (x, y + h - k), (x, y + h - r)),
        ((x, y + r), (x, y + k), (x + k, y), (x + r, y)),
    ]
    points: list[Point] = [corners[-1][-1]]
    for start, *rest in corners:
        points += [points[-1], start, start, *rest]
    return points


def _named(operation: str, text: str) -> str:
    return f"{operation} {_counted(text)}"


def _counted(text: str) -> str:
    """A text with the number of its bytes."""
    return f"{len(text.encode())} -{text}"
