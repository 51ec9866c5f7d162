"""The fields of a trace's line, each checked as it is taken.

Lists are checked by the set of their values' types, not one by one: a trace holds millions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from core.rounds.draft import Array

END = 1 << 31  # token ids, rows, ranks and positions are below
DIGITS = 9  # a token id has at most so many
LONG = 64  # numbers; numpy is quicker than Python from about here on
_LIST, _INT = frozenset({list}), frozenset({int})
_NUMBER = frozenset({int, float, type(None)})


class BadField(Exception):
    """What is wrong with a line, as the end of a sentence."""


class Fields:
    """A JSON object; ``key`` is its own place, for messages. Null counts as an empty object.

    In a shape, None is any length. Every method raises BadField for a value of another kind.
    """

    __slots__ = ("_values",)

    def __init__(self, value: Any, key: str = "the line"):
        if value is not None and not isinstance(value, dict):
            raise BadField(f"{_shown(key)} is no object")
        self._values: dict[str, Any] = value or {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __bool__(self) -> bool:
        return bool(self._values)

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def object(self, key: str) -> Fields:
        return Fields(self._values.get(key), key)

    def entries(self, key: str) -> list[Any]:
        """A list of anything."""
        value = self._values.get(key)
        if type(value) is not list:
            raise BadField(f"{_shown(key)} is missing or no list")
        return value

    def integer(self, key: str, least: int = 0) -> int:
        value = self._values.get(key)
        if type(value) is not int or not least <= value < END:
            raise BadField(f"{_shown(key)} is missing or no whole number from {least}")
        return value

    def optional(self, key: str, least: int = 0) -> int | None:
        return self.integer(key, least) if key in self else None

    def whole(self, key: str, least: int = -1) -> tuple[int, ...]:
        """Whole numbers from ``least`` to 2³¹ − 1."""
        return tuple(_whole(self.entries(key), key, least))

    def integers(
        self, key: str, *shape: int | None, least: int = -1, kind: type = np.int64
    ) -> Array:
        """The same as an array of this shape."""
        values, found = self._flat(key, shape)
        array = _array(values, key, least, kind)
        return array if len(shape) == 1 else array.reshape(found)

    def floats(self, key: str, *shape: int | None) -> Array:
        """float32; null reads as NaN."""
        values, found = self._flat(key, shape)
        try:
            if not _NUMBER.issuperset(map(type, values)):
                raise OverflowError
            array = np.array(values, np.float32)
        except ArithmeticError:  # also numpy's own: errstate stands around a round
            raise BadField(f"{_shown(key)} holds something that is no float32 number") from None
        return array if len(shape) == 1 else array.reshape(found)

    def seconds(self, key: str) -> float:
        value = self._values.get(key, 0.0)
        if type(value) not in (int, float) or not 0 <= value < 1e300:
            raise BadField(f"{_shown(key)} is no number of seconds")
        return float(value)

    def text(self, key: str) -> str:
        value = self._values.get(key)
        if type(value) is not str:
            raise BadField(f"{_shown(key)} is missing or no text")
        return value

    def texts(self, key: str) -> dict[int, str]:
        """Token id → text."""
        found = self.object(key)._values
        if not found:
            return {}
        try:
            digits, _ = "".join(found), "".join(found.values())
            if not digits.isascii() or not digits.isdigit() or max(map(len, found)) > DIGITS:
                raise ValueError
            return dict(zip(map(int, found), found.values(), strict=True))
        except (TypeError, ValueError):  # a value that is no text, an empty key
            raise BadField(f"{key} do not map token ids to text") from None

    def _flat(self, key: str, shape: tuple[int | None, ...]) -> tuple[list[Any], tuple[int, ...]]:
        """The values of a list, or of a list of lists of one length, and its shape."""
        values = self._values.get(key)
        if type(values) is not list or shape[0] not in (None, len(values)):
            raise BadField(f"{_shown(key)} is missing or no list of {shape[0] or 'any'} entries")
        if len(shape) == 1:
            return values, (len(values),)
        if not _LIST.issuperset(map(type, values)) or len(set(map(len, values))) > 1:
            raise BadField(f"{_shown(key)} is no table")
        width = len(values[0]) if values else 0
        if shape[1] not in (None, width):
            raise BadField(f"{_shown(key)} has rows of {width} entries, expected {shape[1]}")
        return list(chain.from_iterable(values)), (len(values), width)


def _array(values: list[Any], key: str, least: int, kind: type) -> Array:
    if len(values) < LONG or not _INT.issuperset(map(type, values)):
        return np.array(_whole(values, key, least), kind)
    try:
        array = np.array(values, kind)
        if array.min() < least or array.max() >= END:
            raise OverflowError
    except OverflowError:
        return np.array(_whole(values, key, least), kind)
    return array


def _whole(values: list[Any], key: str, least: int) -> list[int]:
    if not _INT.issuperset(map(type, values)):
        raise BadField(f"{_shown(key)} holds something that is no whole number")
    if values and (min(values) < least or max(values) >= END):
        raise BadField(f"{_shown(key)} holds a number below {least} or beyond all range")
    return values


def _shown(key: str) -> str:
    """A hostile trace may name its notes as it likes."""
    return key if len(key) <= 40 and key.isprintable() else "a field"
