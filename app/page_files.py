"""The page's files: modules of script and stylesheets in ``app/web`` and its folders.

A page gets one script and one stylesheet: the studio from its server, an offline file and a
notebook's frame within their text. Nothing is fetched from anywhere else.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from analysis.charts.palette import causes, variables

WEB = Path(__file__).resolve().parent / "web"
# The mark beside the name, in an element of class ds-brand.
LOGO = """<svg viewBox="0 0 34 34" aria-hidden="true">
<path class="t" d="M6 17C14 17 14 7 22 7M6 17H28M6 17C14 17 14 27 22 27"/>
<circle class="n" cx="6" cy="17" r="4"/><circle class="o" cx="23" cy="7" r="3.4"/>
<circle class="n" cx="27" cy="17" r="4"/><circle class="g" cx="23" cy="27" r="3.4"/></svg>"""
# plotly.py ships the script that draws its figures
PLOTLY = Path(str(files("plotly"))) / "package_data" / "plotly.min.js"
STYLES = tuple(
    f"{name}.css"
    for name in (
        "theme", "gradio", "frame", "cards", "text", "stage", "tree", "tree/spine", "legend",
        "inspector", "explanation", "gallery", "table", "measures", "sizes", "form", "fill",
        "compare/compare", "compare/card", "plots", "save", "rounds/rounds", "drop", "phone", "lab",
        "touch", "present",
    )
)  # fmt: skip
# Of app/web/learn: the studio's tab and a site show the same course.
LEARN = ("view.css", "marks.css", "companions.css", "tables.css", "sizes.css", "narrow.css")

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\.\.?/[a-z/-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) (\w+))", re.MULTILINE)


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
            needs = [_path(name, each) for _, each in _IMPORT.findall(_read(name))]
            waiting += [(each, False) for each in reversed(needs)]
    return found


def joined(*entries: str, last: str = "") -> str:
    """Modules with all that they import, as the text of one script. ``modules`` holds what each
    exports, by its path below WEB; ``last``: a statement after them."""
    parts = ["const modules = {};", *map(_scoped, modules(*entries)), last]
    code = "\n".join(parts)
    assert "</script" not in code.lower() and "<!--" not in code
    return code


def enclosed(entry: str, last: str = "") -> str:
    """A module with all that it imports, as the text of a script element that declares nothing."""
    return f'(() => {{\n"use strict";\n{joined(entry, last=last)}\n}})();'


def _scoped(name: str) -> str:
    """A module as a function, called at once, whose names are its own."""
    text = _read(name)
    exported = ", ".join(_EXPORT.findall(text))
    code = _EXPORT.sub("", _IMPORT.sub(lambda found: _taken(name, *found.groups()), text))
    assert not re.search(r"^(import|export)\b", code, re.MULTILINE), "a form that is not joined"
    return f'modules["{name}"] = (() => {{\n{code}\nreturn {{ {exported} }};\n}})();'


def _taken(name: str, names: str, path: str) -> str:
    return f'const {names} = modules["{_path(name, path)}"];\n'


def _path(importer: str, path: str) -> str:
    """The path below WEB of what a module imports."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), path))


def css(more: Sequence[str] = ()) -> str:
    """The view's whole stylesheet, and those of further views."""
    return "\n".join([*(_read(name) for name in (*STYLES, *more)), palette()])


def palette() -> str:
    """Define the colours that the stylesheets name."""
    return f":root{{{variables('light')}}}\n.dark{{{variables('dark')}}}\n{causes()}"


def _read(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")
