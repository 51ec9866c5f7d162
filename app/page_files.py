"""The page's files: the JavaScript modules in the order they are joined, and the stylesheets.

One list serves the studio, the offline file and the notebook; the studio's other tabs add theirs.
Nothing is fetched from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

WEB = Path(__file__).resolve().parent / "web"
VIEW = (
    "dom.js", "tree.js", "strip.js", "charts.js", "explanation.js", "inspector.js", "align.js",
    "feed.js", "save.js", "link.js", "gallery.js", "table.js", "plots.js", "measures.js",
    "pane.js", "alone.js", "together.js", "studio.js",
)  # fmt: skip
STUDIO = (
    *VIEW, "calibration.js", "whatif.js", "denoise.js", "learn-figures.js", "learn.js", "mounts.js",
)  # fmt: skip
STYLES = ("studio.css", "save.css")


def script(names: Sequence[str]) -> str:
    """Modules as one text of a script element, with names of their own; each only declares names,
    the last one uses them."""
    code = "\n".join((WEB / name).read_text(encoding="utf-8") for name in names)
    assert "</script" not in code.lower() and "<!--" not in code
    return f'(() => {{\n"use strict";\n{code}\n}})();'


def css(more: Sequence[str] = ()) -> str:
    """The view's whole stylesheet, and those of further views."""
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in (*STYLES, *more))
