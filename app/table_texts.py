"""A printed table as text to paste into a document: Markdown and LaTeX.

Cells may hold text of a model, which is hostile: every sign with a meaning in the form is escaped.
The page's *Rounds* writes the same forms (``app/web/rounds/formats.js``); the tests of both read
``tests/golden/pasted.json``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

TableForm = Literal["markdown", "latex"]

# A link that would become one by itself is broken up, too.
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~#&$!@]|:(?=//))|(www)(?=\.)", re.IGNORECASE)
_LINES = re.compile(r"[\r\n]+")
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "{}$&#_%"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "–": "--",
        "…": r"\ldots{}",
        "␣": r"\textvisiblespace{}",
    }
    | {  # signs that pdfLaTeX does not know
        sign: f"${name}$"
        for sign, name in {
            "−": "-", "⏎": r"\hookleftarrow", "⇥": r"\to", "∅": r"\emptyset", "τ": r"\tau",
            "≤": r"\leq", "≥": r"\geq", "×": r"\times", "±": r"\pm", "Σ": r"\Sigma",
            "÷": r"\div", "→": r"\rightarrow", "≈": r"\approx", "α": r"\alpha",
        }.items()
    }
)  # fmt: skip
_BELOW = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_DIGITS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


def _markdown_text(text: str) -> str:
    flat = _LINES.sub(" ", text)
    return _MARKDOWN.sub(lambda at: f"\\{at[1]}" if at[1] else f"{at[2]}\\", flat)


def _latex_text(text: str) -> str:
    flat = _LINES.sub(" ", text).translate(_LATEX)
    return _BELOW.sub(lambda at: f"$_{{{at[0].translate(_DIGITS)}}}$", flat)


def _latex_line(cells: Iterable[str]) -> str:
    line = " & ".join(map(_latex_text, cells))
    # behind the \\ of the line before, these would be its arguments
    return f"{'{}' if line[:1] in ('[', '*') else ''}{line} \\\\\n"


def _columns(heads: Sequence[str]) -> list[int]:
    """All but the bars, which have no head and draw a number that stands beside them."""
    return [at for at, head in enumerate(heads) if at == 0 or head.strip()]


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]) -> str:
    columns = _columns(heads)
    rule = ["---" if heads[at] in left else "---:" for at in columns]
    head, *lines = ([_markdown_text(line[at]) for at in columns] for line in (heads, *rows))
    # without an empty line before it, a table is part of the sentence above
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def _latex(heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]) -> str:
    columns = _columns(heads)
    sides = "".join("l" if heads[at] in left else "r" for at in columns)
    head, *lines = (_latex_line(line[at] for at in columns) for line in (heads, *rows))
    body = f"\\hline\n{head}\\hline\n{''.join(lines)}\\hline\n"
    return f"\\begin{{tabular}}{{{sides}}}\n{body}\\end{{tabular}}\n"


# heads, rows, and the heads of columns that hold words → the text
FORMS: Mapping[
    TableForm, Callable[[Sequence[str], Sequence[Sequence[str]], Sequence[str]], str]
] = {
    "markdown": _markdown,
    "latex": _latex,
}
