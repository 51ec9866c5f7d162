"""Data from outside against declared types: msgspec checks, and its errors become our sentences.

A type is what msgspec reads: a class of annotated fields (a ``msgspec.Struct`` or a dataclass), a
list, a mapping, or a value with limits (``Annotated[int, Meta(ge=1)]``). Light: never torch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from core.errors import UserError

END = 1 << 31  # sizes, token ids, rows, ranks and positions are below
Whole = Annotated[int, Meta(ge=-1, lt=END)]  # −1: none, or not known
Count = Annotated[int, Meta(ge=0, lt=END)]
Size = Annotated[int, Meta(ge=1, lt=END)]
Share = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # finite
Seconds = Annotated[float, Meta(ge=0, lt=1e300)]

MAX_COUNT = 512  # layers and heads: making more modules than any model has would take minutes
MAX_SAID = 40  # characters of a wrong value or a field's name
Step = str | int | None  # a field's name, a place in a list; None: some value of a mapping

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_WORDS = {"None": "null", "True": "true", "False": "false"}
_EXPECTED = re.compile(r"Expected `(?P<kinds>[^`]*)`(?P<limit>[^,]*)")
_FIELD = re.compile(r"Object (?P<what>missing|contains)[a-z ]* field `(?P<name>.*)`", re.DOTALL)
_STEP = re.compile(r"\.([^.\[`]+)|\[(\d+|\.\.\.)\]")
_LIMITS = (
    (" >= ", " of at least "),
    (" <= ", " of at most "),
    (" > ", " above "),
    (" < ", " below "),
    (" of length of at", " of length at"),
)


_FAULTS = (msgspec.ValidationError, RecursionError, UnicodeEncodeError)


class BadField(Exception):
    """Data from outside are not what they should be; the message is the end of a sentence."""


def read(value: Any, kind: Any) -> Any:
    """A plain value as the declared type ``kind``. Raises BadField."""
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except _FAULTS as error:
        raise BadField(fault(error, value, kind)) from None


def convert(value: Any, kind: Any, place: str, *, lax: bool = False) -> Any:
    """A plain value (of JSON, TOML or a form) as the declared type ``kind``; ``lax``: a text may
    stand for a number or a switch.

    Raises UserError, one sentence that begins with ``place``: the field, what is allowed there and
    what was found.
    """
    try:
        return msgspec.convert(value, kind, strict=not lax, str_keys=True)
    except _FAULTS as error:
        raise said(place, fault(error, value, kind)) from None


def said(place: str, why: str) -> UserError:
    """Return the error for a place, one sentence; ``why`` is the end that ``fault`` gives."""
    return UserError(f"{place} {why[3:]}" if why.startswith("it ") else f"{place}: {why}")


def fault(error: Exception, value: Any, kind: Any) -> str:
    """Say what msgspec found wrong with a value of the type ``kind``, as the end of a sentence."""
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, UnicodeEncodeError):  # a lone surrogate
        return "it has a text with half a character"
    words, _, path = str(error).partition(" - at ")
    steps = _steps(path)
    while None in steps and (named := _with_key(str(error), value, kind, steps)):
        steps = named
    field = _in_words(steps)
    if found := _FIELD.search(words):
        name, of = name_shown(found["name"]), f" of {field}" if field else ""
        there = found["what"] == "missing"
        return f"{name}{of} is missing" if there else f"there is no field {name}{of}"
    if path.startswith("`key`"):
        return f"a name in {field or 'it'} must be {_allowed(words)}"
    return f"{field or 'it'} must be {_allowed(words)}{_found(value, steps)}"


def shown(value: object) -> str:
    """A value out of a file, as a sentence may hold it."""
    if isinstance(value, (dict, list, tuple)):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    text = _WORDS.get(repr(value), repr(value))
    return text if len(text) <= MAX_SAID else f"{text[:MAX_SAID]}…"


def name_shown(name: str) -> str:
    """A field's name out of a file: as it is written where that is a plain word."""
    return name if name.isidentifier() and len(name) <= MAX_SAID else shown(name)


def _steps(path: str) -> list[Step]:
    """The steps of a place as msgspec writes it: ``$.nodes.token[1]``."""
    pairs = _STEP.findall(path)
    return [name or (None if index == "..." else int(index)) for name, index in pairs]


def _with_key(message: str, value: Any, kind: Any, steps: Sequence[Step]) -> list[Step]:
    """The place with the name of its first unnamed value, found by halving; [] where none is."""
    at = steps.index(None)
    mapping = _at(value, steps[:at])
    keys = list(mapping) if isinstance(mapping, dict) else []
    while len(keys) > 1:
        half = keys[: len(keys) // 2]
        some = _with(value, steps[:at], {key: mapping[key] for key in half})
        keys = half if _says(message, some, kind) else keys[len(half) :]
    return [*steps[:at], str(keys[0]), *steps[at + 1 :]] if keys else []


def _says(message: str, value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, str_keys=True)
    except _FAULTS as error:
        return str(error) == message
    return False


def _with(value: Any, steps: Sequence[Step], mapping: Mapping[Any, Any]) -> Any:
    """The value with another mapping at a place."""
    if not steps:
        return mapping
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[steps[0]] = _with(value[steps[0]], steps[1:], mapping)  # type: ignore[index]
    return copy


def _at(value: Any, steps: Sequence[Step]) -> Any:
    """Return the value at the place that ``steps`` lead to; None where there is none."""
    for step in steps:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value


def _in_words(steps: Sequence[Step]) -> str:
    """A field in words: "nodes.token, entry 2"."""
    said = ""
    for step in steps:
        if isinstance(step, str):
            said += f".{name_shown(step)}"
        else:
            said += ", a value" if step is None else f", entry {step + 1}"
    return said.lstrip(".,").strip()


def _allowed(words: str) -> str:
    if (found := _EXPECTED.match(words)) is None:
        return "one of the known names" if "enum" in words else "a number in range"
    kinds = [kind for kind in found["kinds"].split(" | ") if kind != "null"] or ["null"]
    limit = found["limit"].removesuffix(".0")
    for theirs, ours in _LIMITS:
        limit = limit.replace(theirs, ours)
    return " or ".join(_KINDS.get(kind, "another kind of value") for kind in kinds) + limit


def _found(value: Any, steps: Sequence[Step]) -> str:
    return "" if None in steps else f", not {shown(_at(value, steps))}"
