"""A page's questions: a type for each, and the routes that answer them.

A browser wrote the question, so nothing in it is believed. The fields of a type are all that its
route reads; others are let pass. A field that is null counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from app.studio.faults import Malformed
from core.declared import END, convert
from core.errors import UserError

Whole = Annotated[int, Meta(ge=-END, lt=END)]
Inches = Annotated[float, Meta(ge=0.25, le=100)]  # a picture's width on paper


class Question(msgspec.Struct, frozen=True):
    """A question without fields."""


class OfRun(Question, frozen=True):
    ticket: str | None = None


class OfRound(OfRun, frozen=True):
    round: Whole | None = None


class OfNode(OfRound, frozen=True):
    row: Whole | None = None


class OfRuns(Question, frozen=True):
    """``letters``: one for each run; "": A, B and so on."""

    tickets: tuple[str | None, ...] = ()
    letters: str = ""


class Upload(Question, frozen=True):
    """Where a file lies that a view sent, or several do."""

    path: str | None = None
    paths: tuple[str, ...] = ()


Q = TypeVar("Q", bound=Question)


@dataclass(frozen=True)
class Route(Generic[Q]):
    """One question of a page: its type, and the function that answers."""

    asks: type[Q]
    answer: Callable[[Q], Any]

    def __call__(self, question: object) -> Any:
        """The answer. Raises Malformed for a field of another type, and what ``answer`` raises."""
        return self.answer(as_question(question, self.asks))


def as_question(question: object, kind: type[Q]) -> Q:
    """The question as its type. Raises Malformed."""
    if isinstance(question, dict):
        question = {name: value for name, value in question.items() if value is not None}
    try:
        return convert(question, kind, "the question")
    except UserError as error:
        raise Malformed(str(error)) from None
