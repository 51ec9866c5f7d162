"""Token text for human eyes: whitespace and control characters shown, absurd lengths cut.

What comes out is still *text*: it must be escaped by whoever writes markup. But it holds no line
break, no terminal escape, no bidirectional override and no invisible character.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache

LABEL, PIECE = 48, 400  # characters a token may take in a label, in running text

_NAMED = {"\n": "⏎", "\t": "⇥", "\x7f": "␡"}
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}  # no glyph of their own, or a blank one
JOINERS = "\u200c\u200d"  # parts of emoji and of several scripts' words


def visible(text: str, limit: int = LABEL) -> str:
    """One token as a label on one line; blanks at its ends show as ␣, nothing at all as ∅."""
    return _label(text[: limit + 1], limit) if text else "∅"


@lru_cache(1 << 14)  # a view of many rounds shows the same tokens again and again
def _label(head: str, limit: int) -> str:
    body = head.strip(" ")
    start = len(head) - len(head.lstrip(" "))
    shown = "␣" * start + _shown(body, _glyph) + "␣" * (len(head) - start - len(body))
    return _cut(shown, limit)


def flowing(text: str, limit: int | None = None) -> str:
    """Running text: blanks, line breaks and tabs stay what they are."""
    shown = _shown(text if limit is None else text[: limit + 1], _in_text)
    return shown if limit is None else _cut(shown, limit)


def cells(label: str) -> int:
    """How many monospace cells a label takes; wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in label)


@lru_cache(1 << 14)
def fitting(label: str, room: int) -> str:
    """A label cut to ``room`` monospace cells."""
    used = 0
    for at, char in enumerate(label):
        used += cells(char)
        if used > room:
            return label[: max(1, at - 1)] + "…"
    return label


def _shown(text: str, glyph: Callable[[str], str]) -> str:
    if text.isascii() and text.isprintable():
        return text
    shown = "".join(
        c if c == " " or (c in JOINERS and _joins(text, at)) else glyph(c)
        for at, c in enumerate(text)
    )
    alone = bool(text) and unicodedata.category(text[0]).startswith("M")
    return "◌" + shown if alone else shown  # a combining mark needs something to sit on


def _joins(text: str, at: int) -> bool:
    """Whether a joiner stands between two characters that can be seen, as in one emoji."""
    around = text[max(at - 1, 0) : at] + text[at + 1 : at + 2]
    return len(around) == 2 and not any(
        char.isascii() or unicodedata.category(char) in _UNSEEN for char in around
    )


def _in_text(char: str) -> str:
    return char if char in "\n\t" else _glyph(char)


def _glyph(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if ord(char) < 0x20:
        return chr(0x2400 + ord(char))
    if unicodedata.category(char) in _UNSEEN:
        return f"\\u{{{ord(char):x}}}"
    return char


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
