"""A trace's lines, as declared types, and the arrays that their lists become.

A list's entries are checked by msgspec while it parses: a trace holds millions. Lengths and
references, which types cannot say, are checked by the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from ..declared import END, BadField, Count, Seconds, Size, Whole, read
from ..errors import UserError
from ..json_input import decode, parse_json
from ..rounds.draft import NOT_ASKED, Array

Numbers = list[float | None]
Shape = tuple[int | None, ...]  # None: any length
TokenName = Annotated[int, Meta(ge=0, lt=END)]  # a key of a mapping


class PromptLine(Struct):
    """The checks that a header's type lacks: ``Header`` also serves recorders without msgspec."""

    prompt_ids: list[Count]


class NodesLine(Struct):
    """A round's nodes, an entry each; docs/trace.md says what they are."""

    parents: list[Whole]
    depth: list[Count]
    token: list[Count]
    rank: list[Whole]
    log_q: Numbers
    score: Numbers
    choice: list[Whole]
    log_p: Numbers | None = None
    rank_p: list[Whole] | None = None
    entropy: Numbers | None = None
    links: list[list[Count]] | None = None
    edits: list[list[list[Count]]] | None = None


class ListsLine(Struct):
    token: list[list[Count]]
    log_q: list[Numbers]
    read: Size | None = None
    beam: Size | None = None
    least: float | None = None


class OffersLine(ListsLine, kw_only=True):
    after: list[Annotated[int, Meta(ge=NOT_ASKED, lt=1 << 31)]]


class TopLine(Struct):
    token: list[list[Count]]
    log_p: list[Numbers]


class ProbeLine(Struct):
    tvd: Numbers
    coverage: list[Numbers]
    entropy_q: Numbers
    rank_q: list[Whole]
    vocabulary: Size | None = None


class StepLine(Struct):
    count: Size
    position: list[Count]
    token: list[list[Count]]
    p: list[Numbers]


class BlockLine(Struct):
    index: Count
    step: Count
    state: list[Whole]
    steps: list[StepLine]


class TimesLine(Struct):
    """Seconds of each stage, in the order of ``core.rounds.round.Times``."""

    draft: Seconds = 0.0
    build: Seconds = 0.0
    verify: Seconds = 0.0
    commit: Seconds = 0.0


class RoundLine(Struct):
    kind: Literal["round"]
    index: Count
    position: Count
    nodes: NodesLine
    path: list[Count]
    committed: list[Count]
    drawn_bonus: Count | None = None
    times: TimesLine | None = None
    texts: dict[TokenName, str] | None = None
    target_top: TopLine | None = None
    probe: ProbeLine | None = None
    block: BlockLine | None = None
    side: list[Size] | None = None
    notes: dict[str, Numbers] | None = None
    candidates: ListsLine | None = None
    max_depth: Count | None = None
    offers: OffersLine | None = None


class CountsLine(Struct):
    """The fields of a round that a footer sums up; the rest of its line is not looked at."""

    kind: Literal["round"]
    index: int
    path: list[Any] = []
    committed: list[Any] = []
    times: TimesLine | None = None
    block: dict[str, Any] | None = None


_DECODERS = {kind: msgspec.json.Decoder(kind) for kind in (RoundLine, CountsLine)}


def read_line(data: bytes, kind: type[Any], place: str) -> Any:
    """A line as the declared type, or as plain JSON where its kind is not "round".

    Raises UserError for what is not a JSON object, and BadField for a field of another type.
    """
    with suppress(ValueError, RecursionError):  # msgspec's errors: what is wrong is said below
        return decode(data, _DECODERS[kind], place)
    value = parse_json(data, place)
    if not isinstance(value, dict):
        raise UserError(f"{place} is not a JSON object")
    return as_round(value, kind) if value.get("kind") == "round" else value


def as_round(value: dict[str, Any], kind: type[Any] = RoundLine) -> Any:
    """The same of a JSON object; an empty object in it says what a missing field says."""
    return read({name: each for name, each in value.items() if each != {}}, kind)


# ── arrays ───────────────────────────────────────────────────────────────────────────────────────


def whole(
    values: Sequence[int] | None, count: int | None, name: str, kind: type = np.int64
) -> Array:
    """Whole numbers as an array [count]; any number of them for None. Raises BadField."""
    return np.array(_sized(values, count, name), kind)


def numbers(values: Numbers | None, count: int | None, name: str) -> Array:
    """float32 [count]; null reads as NaN. Raises BadField."""
    return _floats(_sized(values, count, name), name)


def whole_table(values: list[list[int]], shape: Shape, name: str) -> Array:
    """Whole numbers as an array of this shape. Raises BadField."""
    flat, found = _flat(values, shape, name)
    return np.array(flat, np.int64).reshape(found)


def table(values: list[Numbers], shape: Shape, name: str) -> Array:
    """float32 of this shape; null reads as NaN. Raises BadField."""
    flat, found = _flat(values, shape, name)
    return _floats(flat, name).reshape(found)


def _floats(values: Sequence[float | None], name: str) -> Array:
    try:
        return np.array(values, np.float32)
    except ArithmeticError:  # numpy's own: errstate stands around a round
        raise BadField(f"{name} holds a number beyond float32") from None


def _sized(values: Sequence[Any] | None, count: int | None, name: str) -> Sequence[Any]:
    if values is None:
        raise BadField(f"{name} is missing")
    if count is not None and len(values) != count:
        raise BadField(f"{name} has {len(values)} entries, expected {count}")
    return values


def _flat(values: list[Any], shape: Shape, name: str) -> tuple[list[Any], tuple[int, int]]:
    """The entries of a list of lists of one length, and its shape."""
    rows, columns = shape
    _sized(values, rows, name)
    width = len(values[0]) if values else 0
    if set(map(len, values)) > {width}:
        raise BadField(f"{name} has rows of different lengths")
    if values and columns not in (None, width):
        raise BadField(f"{name} has rows of {width} entries, expected {columns}")
    return list(chain.from_iterable(values)), (len(values), width)
