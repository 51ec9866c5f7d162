"""A drawing as a standalone SVG file. All model text is escaped character data."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape, quoteattr

from analysis.charts.palette import PALETTES
from app.view.shapes import (
    BOXES,
    EDGES,
    FONTS,
    SCREEN,
    Box,
    Curve,
    Drawing,
    Edge,
    Group,
    Paint,
    Paper,
    Point,
    Words,
)

MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


def svg(drawing: Drawing, paper: Paper = SCREEN) -> str:
    """The drawing on its paper. Fonts are named and not embedded: another machine may have another
    fixed-width font."""
    width, height = f"{drawing.width:.0f}", f"{drawing.height:.0f}"
    ground = f'<rect width="{width}" height="{height}" class="ground"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" {_size(drawing, paper)} '
        f'viewBox="0 0 {width} {height}" role="img" aria-label={quoteattr(drawing.title)}>'
        f"<style>{_style(paper)}</style>{'' if paper.ground == 'transparent' else ground}"
        + "".join(map(_shape, drawing.shapes))
        + "</svg>\n"
    )


def _size(drawing: Drawing, paper: Paper) -> str:
    if paper.width is None:
        return f'width="{drawing.width:.0f}" height="{drawing.height:.0f}"'
    height = paper.width * drawing.height / drawing.width
    return f'width="{paper.width:.2f}pt" height="{height:.2f}pt"'


def _style(paper: Paper) -> str:
    colours = PALETTES[paper.theme]
    ground = "#ffffff" if paper.ground == "white" else colours["ground"]
    fonts = "".join(
        f".{name}{{font-size:{size:g}px;fill:{colours[colour]}}}"
        for name, (size, colour) in FONTS.items()
        if name
    )
    size, colour = FONTS[""]
    return (
        f".ground{{fill:{ground}}}text{{font:{size:g}px {MONO};fill:{colours[colour]};"
        f"white-space:pre}}{fonts}"
        + "".join(f"rect.{name}{{{_css(paint, colours)}}}" for name, paint in BOXES.items())
        + "".join(f"path.{name}{{{_css(paint, colours)}}}" for name, paint in EDGES.items())
    )


def _css(paint: Paint, colours: Mapping[str, str]) -> str:
    stroke = f";stroke:{colours[paint.stroke]};stroke-width:{paint.width:g}" if paint.stroke else ""
    dash = ";stroke-dasharray:{:g} {:g}".format(*paint.dash) if paint.dash else ""
    return f"fill:{colours[paint.fill] if paint.fill else 'none'}{stroke}{dash}"


def _shape(shape: Edge | Group) -> str:
    if isinstance(shape, Edge):
        data = "".join(map(_curve, shape.curves))
        return f'<path class="{shape.paint}" d="{data}"/>'
    title = f"<title>{_text(shape.title)}</title>" if shape.title else ""
    parts = "".join(map(_part, shape.parts))
    return f'<g transform="translate({shape.x:.0f} {shape.y:.1f})">{title}{parts}</g>'


def _curve(curve: Curve) -> str:
    start, *rest = map(_point, curve)
    return f"M{start}C{' '.join(rest)}"


def _point(point: Point) -> str:
    return f"{point[0]:.0f} {point[1]:.1f}"


def _part(part: Box | Words) -> str:
    if isinstance(part, Box):
        place = f' x="{part.x:g}" y="{part.y:g}"' if part.x or part.y else ""
        radius = f' rx="{part.radius:g}"' if part.radius else ""
        size = f'width="{part.width:.4g}" height="{part.height:g}"'
        return f'<rect class="{part.paint}"{place} {size}{radius}/>'
    font = f' class="{part.font}"' if part.font else ""
    end = ' text-anchor="end"' if part.right else ""
    help = f"<title>{_text(part.help)}</title>" if part.help else ""
    return f'<text{font} x="{part.x:g}" y="{part.y:g}"{end}>{help}{_text(part.text)}</text>'


def _text(text: str) -> str:
    """Character data; what XML 1.0 cannot hold at all is already gone through ``visible``."""
    return escape(printable(text))


def printable(text: str) -> str:
    """The text, with a sign for each character that no font shows."""
    return "".join(c if c.isprintable() or c == " " else "\ufffd" for c in text)
