"""A picture as PDF, or a drawing as SVG whose letters are outlines: it looks the same anywhere.

librsvg and cairo write both (``cairo_file``). In a PDF the letters that are used of each font are
embedded, and words stay text; in SVG they are paths. Fonts are this machine's; letters that one
lacks come from others.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal
from xml.parsers import expat

from app.export.cairo_file import ABSENT
from app.view.shapes import POINT, Drawing, Paper
from app.view.svg import svg
from core.errors import UserError

Form = Literal["pdf", "svg"]
FINE = 16.0  # how large outlines are drawn
SECONDS = 30.0  # for one figure; a usual one takes a tenth of a second
SCRIPT = Path(__file__).with_name("cairo_file.py")
# All that a picture of the page is made of: nothing that names a file, repeats or runs.
ELEMENTS = {
    "svg", "g", "defs", "clipPath", "pattern", "linearGradient", "stop", "rect", "path", "circle",
    "ellipse", "line", "polyline", "polygon", "text", "tspan", "title", "desc", "style",
}  # fmt: skip


def figure(drawing: Drawing, paper: Paper, form: Form) -> bytes:
    """The drawing as a file. Raises UserError where librsvg is not installed."""
    if form == "pdf":
        return _by_cairo(svg(drawing, paper).encode(), form)
    # cairo rounds outlines to a fraction of a point: drawn large, they are true at any size.
    large = replace(paper, width=FINE * drawing.width)
    width = paper.width or drawing.width * POINT
    size = f'width="{width:.2f}pt" height="{width * drawing.height / drawing.width:.2f}pt"'
    data = _by_cairo(svg(drawing, large).encode(), form)
    # cairo 1.18 writes no unit there, earlier ones "pt"
    return re.sub(rb'width="[0-9.]+(pt)?" height="[0-9.]+(pt)?"', size.encode(), data, count=1)


def pdf(picture: bytes) -> bytes:
    """A picture that a page saved as SVG, as PDF: a pixel is 3/4 point.

    Raises UserError where it is not such a picture, or librsvg is not installed.
    """
    _check(picture)
    return _by_cairo(picture, "pdf")


def _check(picture: bytes) -> None:
    """Whoever sent it wrote it, so it may name nothing outside itself."""

    def refuse(*_: object) -> None:
        raise UserError("this is not a picture that the page saves")

    def look(name: str, attributes: Mapping[str, str]) -> None:
        linked = (name.endswith("href") and value[:1] != "#" for name, value in attributes.items())
        if name not in ELEMENTS or any(linked):
            refuse()

    parser = expat.ParserCreate("utf-8")
    # a declaration could name an encoding in which librsvg reads something else
    parser.XmlDeclHandler = parser.StartDoctypeDeclHandler = refuse
    parser.ProcessingInstructionHandler = refuse
    parser.StartElementHandler = look
    try:
        parser.Parse(picture, True)
    except expat.ExpatError:
        refuse()


def _by_cairo(picture: bytes, form: Form) -> bytes:
    # -P: modules beside the script do not hide those of Python
    command = [sys.executable, "-P", str(SCRIPT), form]
    try:
        made = subprocess.run(command, input=picture, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise UserError(f"drawing the figure was stopped after {SECONDS:g} seconds") from None
    except OSError as error:
        raise UserError(f"the figure cannot be drawn: {error.strerror or error}") from None
    if made.returncode == ABSENT:
        raise UserError(
            "the library librsvg is not installed (Debian: apt install librsvg2-2; macOS: brew "
            "install librsvg): PDF and outlines are drawn by it, and SVG without it"
        )
    if made.returncode:
        raise UserError("librsvg could not draw this figure")
    return made.stdout
