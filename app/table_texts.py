"""A printed table as text to paste into a document: Markdown and LaTeX.

Cells may hold text of a model, which is hostile: every sign with a meaning in the form is escaped.
The page's *Rounds* writes the same forms (``app/web/rounds/formats.js``); the tests of both read
``tests/pasted.json``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from app.terminal import FittingTable

TableForm = Literal["markdown", "latex"]

# A link that would become one by itself is broken up, too.
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~#&$!@]|:(?=//))|(www)(?=\.)", re.IGNORECASE)
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
    | {digit: f"$_{number}$" for number, digit in enumerate("₀₁₂₃₄₅₆₇₈₉")}
)  # fmt: skip


def _markdown_text(text: str) -> str:
    return _MARKDOWN.sub(lambda at: f"\\{at[1]}" if at[1] else f"{at[2]}\\", text)


def _columns(table: FittingTable) -> list[int]:
    """All but the bars, which have no head and draw a number that stands beside them."""
    return [at for at, head in enumerate(table.heads) if at == 0 or head.strip()]


def _markdown(table: FittingTable) -> str:
    columns = _columns(table)
    rule = ["---" if table.heads[at] in table.left else "---:" for at in columns]
    head, *rows = (
        [_markdown_text(line[at]) for at in columns] for line in (table.heads, *table.rows)
    )
    # without an empty line before it, a table is part of the sentence above
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rows))


def _latex(table: FittingTable) -> str:
    columns = _columns(table)
    sides = "".join("l" if table.heads[at] in table.left else "r" for at in columns)
    head, *rows = (
        f"{' & '.join(line[at].translate(_LATEX) for at in columns)} \\\\\n"
        for line in (table.heads, *table.rows)
    )
    body = f"\\hline\n{head}\\hline\n{''.join(rows)}\\hline\n"
    return f"\\begin{{tabular}}{{{sides}}}\n{body}\\end{{tabular}}\n"


FORMS: Mapping[TableForm, Callable[[FittingTable], str]] = {
    "markdown": _markdown,
    "latex": _latex,
}
