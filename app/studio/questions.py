"""A page's question: every field has one declared type, in all views.

A browser wrote the question, so nothing in it is believed.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from app.studio.faults import Malformed
from core.declared import END, convert
from core.errors import UserError

Whole = Annotated[int, Meta(ge=-END, lt=END)]


class Question(msgspec.Struct, frozen=True):
    """A page's question; None where a field is missing or null. Unknown fields are let pass."""

    ticket: str | None = None
    name: str | None = None
    form: str | None = None
    path: str | None = None
    letters: str | None = None
    cause: str | None = None
    unit: str | None = None
    method: str | None = None
    file: str | None = None
    cost: str | None = None
    since: Whole | None = None
    round: Whole | None = None
    until: Whole | None = None
    row: Whole | None = None
    token: Whole | None = None
    budget: Whole | None = None
    place: Whole | None = None
    touched: Whole | None = None
    whole: bool | None = None
    quietly: bool | None = None
    left: bool | None = None
    tickets: list[str | None] | None = None
    paths: list[str] | None = None
    more: list[str | None] | None = None
    places: list[Question | None] | None = None
    kept: list[Question | None] | None = None
    open: list[Whole] | None = None
    asked: list[dict[str, Any]] | None = None
    records: list[dict[str, Any]] | None = None
    options: dict[str, Any] | None = None
    filling: dict[str, Any] | None = None
    depth: Whole | str | None = None
    token_class: Whole | str | None = None

    def with_fields_of(self, other: Question) -> Question:
        """This question with whatever the other one states."""
        stated = {name: getattr(other, name) for name in other.__struct_fields__}
        stated = {name: value for name, value in stated.items() if value is not None}
        return msgspec.structs.replace(self, **stated)


def check(question: object) -> Question:
    """The question, all of whose fields have their types. Raises Malformed."""
    try:
        return convert(question, Question, "the question")
    except UserError as error:
        raise Malformed(str(error)) from None
