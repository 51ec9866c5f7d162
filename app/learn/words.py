"""How the course writes and draws: spans of text, numbers, figures; all of it plain JSON.

Text is a list of paragraphs, a paragraph a list of spans: a string, or {"term"|"token"|"num": …}.
The page sets every one of them as a text node.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.numbers import percent
from app.view.text import visible
from core.rounds.draft import DraftRows
from core.rounds.round import Round

Span = str | dict[str, str]
Json = dict[str, Any]

SEEN, CHOSEN, HOT, NEW, WAITING, DIM, LOST = (
    "seen",
    "chosen",
    "hot",
    "new",
    "waiting",
    "dim",
    "lost",
)


# ── spans ────────────────────────────────────────────────────────────────────────────────────────


def num(value: object) -> Span:
    """A number that the figure shows too."""
    return {"num": str(value)}


def token(record: Round, token_id: int) -> Span:
    """A token's text."""
    return {"token": visible(record.text(token_id))}


def node(record: Round, row: int) -> Span:
    """The text of a draft's row."""
    return token(record, int(record.draft.tokens[row]))


def path(record: Round, draft: DraftRows, row: int) -> Span:
    """All tokens from the root to a row, as one text."""
    return {"token": "".join(record.text(int(draft.tokens[r])) for r in draft.path(row))}


def nodes(record: Round, rows: tuple[int, ...]) -> list[Span]:
    """The texts of some rows."""
    return [s for r in rows for s in (", ", node(record, r))][1:]


_PIECES = re.compile(r"\*([^*]+)\*|\{(\w+)\}")


def para(text: str, **values: object) -> list[Span]:
    """A paragraph: *a word of the field* where it is first needed, and {names} of values:
    a span, a list of spans, or a number that the figure shows too.

    Only the course's own words are read so: a value, model text too, stays as it is.
    """
    spans: list[Span] = []
    at = 0
    for piece in _PIECES.finditer(text):
        spans += [text[at : piece.start()]] if piece.start() > at else []
        spans += [{"term": piece[1]}] if piece[1] else _spans(values[piece[2]])
        at = piece.end()
    return [*spans, *([text[at:]] if at < len(text) else [])]


def _spans(value: object) -> list[Span]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, dict) else [{"num": str(value)}]


def plain(spans: Iterable[Span]) -> str:
    """Spans as plain words."""
    return "".join(s if isinstance(s, str) else next(iter(s.values())) for s in spans)


def chance(log: float) -> str:
    """The probability of a log-probability, as the tree writes it."""
    return percent(math.exp(log))


def share(value: float) -> str:
    """A probability, as the tree writes it."""
    return percent(value)


# ── figures ──────────────────────────────────────────────────────────────────────────────────────


def tree(
    name: str,
    rows: Sequence[int] | None = None,
    *,
    marks: Mapping[int, str] | None = None,
    select: int | None = None,
    title: str = "",
) -> Json:
    """One of the course's trees: the rows shown (None: all of them), marked, one picked."""
    return {
        "name": name,
        "rows": None if rows is None else list(rows),
        "marks": {str(row): mark for row, mark in (marks or {}).items()},
        "select": select,
        "title": title,
    }


def bars(title: str, items: Iterable[tuple[str, float | None, str]], note: str = "") -> Json:
    """A list of tokens with probabilities: (label, odds, mark)."""
    entries = [{"label": label, "odds": odds, "mark": mark} for label, odds, mark in items]
    return {"title": title, "items": entries, "note": note}


def columns(*lists: Json, product: Sequence[str] = ()) -> Json:
    """Lists side by side; below them a product written out."""
    return {"kind": "columns", "lists": list(lists), "product": list(product)}


def step(*text: list[Span], trees: Sequence[Json], alt: str, side: Json | None = None) -> Json:
    """One step: its paragraphs, its figure, and what the figure shows in words."""
    return {"text": list(text), "trees": list(trees), "side": side, "alt": alt}


def quiz(question: str, *options: tuple[str, str], answer: int) -> Json:
    """One question: (option, what is said when it is chosen); ``answer`` counts from 0."""
    return {
        "question": question,
        "options": [{"label": label, "why": why} for label, why in options],
        "answer": answer,
    }


def chapter(name: str, title: str, question: str, steps: Sequence[Json], asked: Json) -> Json:
    """One chapter; ``name`` is short, for the list of chapters."""
    return {"name": name, "title": title, "question": question, "steps": list(steps), "quiz": asked}
