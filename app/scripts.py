"""The view's files: the JavaScript modules in the order they are joined, and the stylesheet.

One list serves the studio, the offline file and the notebook. Nothing is fetched from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

WEB = Path(__file__).resolve().parent / "web"
VIEW = (
    "dom.js", "tree.js", "strip.js", "charts.js", "drafted.js", "inspector.js", "align.js",
    "feed.js", "save.js", "link.js", "gallery.js", "table.js", "plots.js", "measures.js",
    "pane.js", "alone.js", "together.js", "studio.js",
)  # fmt: skip
STYLES = ("studio.css", "save.css")


def script(names: Sequence[str]) -> str:
    """Modules as one text; each only declares names, the last one uses them."""
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in names)


def css(more: Sequence[str] = ()) -> str:
    """The view's whole stylesheet, and those of further views."""
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in (*STYLES, *more))
