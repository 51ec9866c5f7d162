"""What a page's question may hold: every field has one declared type, in all views.

A browser wrote the question, so nothing in it is believed. A field may always be missing or null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.studio.faults import Malformed

Question = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A type of values: of one value, or of a list's.

    name   in words, after "is not"
    types  exactly these; True is not a number here
    items  what a list holds; "question" for questions
    """

    name: str
    types: tuple[type, ...]
    items: Kind | str | None = None

    def check(self, value: object, field: str) -> None:
        """Raises Malformed."""
        if value is None:
            return
        if type(value) not in self.types:
            raise Malformed(f"the question's {field} is not {self.name}")
        if isinstance(value, list) and self.items is not None:
            for item in value:
                if isinstance(self.items, Kind):
                    self.items.check(item, field)
                elif item is not None:
                    check(item)


TEXT = Kind("a text", (str,))
WHOLE = Kind("a whole number", (int,))
FLAG = Kind("true or false", (bool,))
OBJECT = Kind("an object", (dict,))
TEXTS = Kind("a list of texts", (list,), TEXT)
NUMBERS = Kind("a list of whole numbers", (list,), WHOLE)
OBJECTS = Kind("a list of objects", (list,), OBJECT)
QUESTIONS = Kind("a list of questions", (list,), "question")
FIELDS: Mapping[str, Kind] = {
    **dict.fromkeys(("ticket", "name", "form", "path", "letters", "cause", "unit"), TEXT),
    **dict.fromkeys(("method", "file", "cost"), TEXT),
    **dict.fromkeys(("since", "round", "row", "token", "budget", "place"), WHOLE),
    **dict.fromkeys(("dark", "whole"), FLAG),
    **dict.fromkeys(("tickets", "more"), TEXTS),
    **dict.fromkeys(("places", "kept"), QUESTIONS),
    "open": NUMBERS,
    "records": OBJECTS,
    "options": OBJECT,
    "filling": OBJECT,
    **dict.fromkeys(("depth", "token_class"), Kind("a whole number or a text", (int, str))),
}


def check(question: object) -> Question:
    """The question, all of whose fields have their types; those without one are let pass.

    Raises Malformed.
    """
    if not isinstance(question, dict):
        raise Malformed("the question is not an object")
    for field, kind in FIELDS.items():
        kind.check(question.get(field), field)
    return question


def get(question: object, name: str) -> Any:
    """A field of a question, or of something inside one; None where there is none."""
    return question.get(name) if isinstance(question, dict) else None
