"""JSON from outside: traces, checkpoints' configs, uploads, collected texts. Light: never torch.

Whatever somebody else may have written is parsed here: within limits on size, nesting and number of
values, in a time that grows with the size alone, and with one sentence for what is refused.
"""

from __future__ import annotations

import json
import math
import re
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from core.errors import UserError, WrongKind, reading
from core.lines import MAX_BYTES, open_regular

T = TypeVar("T")

MAX_DEPTH = 64  # lists and objects inside one another; a trace has 6 levels
MAX_VALUES = 1 << 22
BOM = b"\xef\xbb\xbf"

_ANY = msgspec.json.Decoder()
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")  # in a JSON text, escaped or not


def read_json(path: Path) -> Any:
    """The value in a file. Raises UserError as ``parse_json`` does, or when it cannot be read."""
    with reading(path), open_regular(path) as file:
        data = file.read(MAX_BYTES + 1)
    try:
        return parse_json(data, str(path))
    except WrongKind as error:
        raise WrongKind(error, path) from None


def parse_json(data: bytes | str, name: str) -> Any:
    """The value of a JSON text.

    NaN and numbers beyond float64 are refused. Lone surrogates, which no file or terminal can show,
    become U+FFFD.

    Raises UserError, one sentence that begins with ``name``.
    """
    text = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    try:
        value = decode(text.removeprefix(BOM), _ANY, name)
        if _depth(value) > MAX_DEPTH:
            raise RecursionError
    except RecursionError:
        raise UserError(f"{name} is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:  # of msgspec, which refuses lone surrogates
        return _exact(text, name)
    return value


def decode(text: bytes, decoder: msgspec.json.Decoder[T], name: str) -> T:
    """A JSON text as the decoder's type, within the limits on size and values.

    Raises UserError where it is beyond them, what msgspec raises for what is not JSON or not of
    that type, and RecursionError.
    """
    if len(text) > MAX_BYTES:
        raise UserError(f"{name} is larger than {MAX_BYTES >> 20} MB")
    if len(text) > MAX_VALUES and sum(map(text.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise UserError(f"{name} holds more than {MAX_VALUES:,} values")
    return decoder.decode(text)


def _exact(data: bytes, name: str) -> Any:
    """The same by the standard library, which says what is wrong, and reads lone surrogates."""
    try:
        text = data.decode("utf-8-sig", "surrogatepass")
        value = json.loads(text, parse_float=_finite, parse_constant=_finite)
        if _depth(value) > MAX_DEPTH:
            raise RecursionError
    except RecursionError:
        raise UserError(f"{name} is nested deeper than {MAX_DEPTH} levels") from None
    except OverflowError:
        raise UserError(f"{name} holds NaN or a number beyond all range") from None
    except ValueError:
        raise WrongKind(f"{name} is not JSON") from None
    return _clean(value) if _SURROGATE.search(text) else value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise OverflowError
    return value


def _depth(value: Any) -> int:
    """How many lists and objects are inside one another."""
    depth, level = -1, [[value]]
    while level:
        depth += 1
        inside = chain.from_iterable(v.values() if isinstance(v, dict) else v for v in level)
        level = [v for v in inside if isinstance(v, (dict, list))]
    return depth


def _clean(value: Any) -> Any:
    """The value with U+FFFD for lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    return value
