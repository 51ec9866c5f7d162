"""The page's files: modules of script and stylesheets in ``app/web`` and its folders.

The studio serves them as they are. The offline file and a notebook's frame cannot load modules
from disk, so there they are joined into one script. Nothing is fetched from anywhere else.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from analysis.charts.palette import variables

WEB = Path(__file__).resolve().parent / "web"
# plotly.py ships the script that draws its figures
PLOTLY = Path(str(files("plotly"))) / "package_data" / "plotly.min.js"
STYLES = tuple(
    f"{name}.css"
    for name in (
        "theme", "frame", "cards", "text", "stage", "tree", "tree/spine", "legend", "inspector",
        "explanation", "gallery", "table", "measures", "sizes", "form", "fill", "compare/compare",
        "compare/card", "plots", "save", "rounds/rounds", "drop", "phone", "lab", "present",
    )
)  # fmt: skip

_IMPORT = re.compile(r'^import \{[^}]*\} from "(\.\.?/[a-z/-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)


def modules(*entries: str) -> list[str]:
    """Modules and all that they import, each after those it imports itself, by path below WEB."""
    found: list[str] = []
    waiting = [(entry, False) for entry in reversed(entries)]
    seen: set[str] = set()
    while waiting:
        name, imported = waiting.pop()
        if imported:
            found.append(name)
        elif name not in seen:
            seen.add(name)
            waiting.append((name, True))
            folder = posixpath.dirname(name)
            written = _IMPORT.findall(_read(name))
            needs = [posixpath.normpath(posixpath.join(folder, each)) for each in written]
            waiting += [(each, False) for each in reversed(needs)]
    return found


def joined(entry: str, last: str = "") -> str:
    """A module with all that it imports, as the text of one script element; ``last``: a statement
    after it.

    The modules share one scope, so no two may declare the same name; a browser would say so.
    """
    code = "\n".join(_EXPORT.sub("", _IMPORT.sub("", _read(name))) for name in modules(entry))
    assert "</script" not in code.lower() and "<!--" not in code
    assert not re.search(r"^(import|export)\b", code, re.MULTILINE), "a form that is not joined"
    return f'(() => {{\n"use strict";\n{code}\n{last}}})();'


def css(more: Sequence[str] = ()) -> str:
    """The view's whole stylesheet, and those of further views."""
    return "\n".join([*(_read(name) for name in (*STYLES, *more)), palette()])


def palette() -> str:
    """Define the colours that the stylesheets name."""
    return f":root{{{variables('light')}}}\n.dark{{{variables('dark')}}}"


def _read(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")
