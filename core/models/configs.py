"""The configs of checkpoint folders: read, parsed, and checked before a network is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import torch
from huggingface_hub.errors import StrictDataclassError

from core.declared import MAX_COUNT, MAX_SAID
from core.errors import UserError, first_line
from core.json_input import read_json

MAX_TOKENS = 1 << 24  # of a vocabulary
MAX_SIZE = 1 << 31  # of any number in a config
COUNTS = (
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "num_target_layers",
    "n_layer", "n_layers", "num_layers", "n_head", "n_heads",
)  # fmt: skip
SIZES = ("hidden_size", "intermediate_size", "head_dim", "max_position_embeddings")
MOST = {  # what a config's field may say
    **dict.fromkeys(COUNTS, MAX_COUNT),
    **dict.fromkeys(SIZES, MAX_SIZE),
    "vocab_size": MAX_TOKENS,
}
T = TypeVar("T")


class LayoutError(UserError):
    """A folder without the file names of its kind of checkpoint, or with another variant of it."""


def read_config(folder: Path, kind: str, name: str = "config.json") -> dict[str, Any]:
    """The folder's config, as ``plain`` gives it. Raises UserError when there is no readable
    one."""
    try:
        raw = read_json(folder / name)
    except UserError as error:
        raise LayoutError(f"{folder} holds no {kind} checkpoint: {error}") from None
    if not isinstance(raw, dict):
        raise UserError(f"{folder} holds no {kind} checkpoint: its config is not an object")
    check_numbers(raw, f"{folder} holds no {kind} checkpoint")
    return plain(raw)


def check_numbers(raw: Mapping[str, Any], where: str) -> None:
    """Check that no count or size in a config, or in a config within it, is beyond any model's.

    Raises UserError that begins with ``where``: to make such a model would take minutes and all of
    the memory before its files could say that they do not fit.
    """
    for name, value in raw.items():
        if isinstance(value, Mapping):
            check_numbers(value, where)
        elif name in MOST and isinstance(value, (int, float)) and value > MOST[name]:
            raise UserError(f"{where}: {name} is above {MOST[name]}")


def plain(value: Any) -> Any:
    """A JSON value as configs mean it: a field that is null is not there, and a number without a
    fraction is whole, however it is spelt."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parsed_at(folder: Path, kind: str, parse: Callable[[dict[str, Any]], T]) -> T:
    """The folder's config, parsed. Raises UserError when it cannot be read or parsed, or has a
    value that no network can be made of."""
    return parsed(read_config(folder, kind), folder, kind, parse)


def parsed(raw: dict[str, Any], where: Path, kind: str, parse: Callable[[dict[str, Any]], T]) -> T:
    """A config, parsed. Raises UserError as ``parsed_at``, with ``where`` for the folder."""
    return checked(where, kind, lambda: parse(raw))


def checked(where: Path, kind: str, make: Callable[[], T]) -> T:
    """The config that ``make`` makes. Raises UserError as ``parsed_at``."""
    with as_user_error(where, kind):
        config = make()
        check_config(config)
        return config


def check_config(config: Any) -> None:
    """Raises ValueError for a field of another type than its dataclass declares, an impossible
    number, a mask token outside the vocabulary, a drafter without a depth or with more than any
    has, and one of another width than the embedding that it reads."""
    if not is_dataclass(config):
        return
    hints = get_type_hints(type(config))
    for each in fields(config):
        value, hint = getattr(config, each.name), hints[each.name]
        if is_dataclass(value):
            check_config(value)
        elif not _suits(value, hint):
            said = repr(value)
            said = said if len(said) < MAX_SAID else f"{said[:MAX_SAID]}…"
            raise ValueError(f"{each.name} cannot be {said}")
    mask = getattr(config, "mask_token_id", None)
    if mask is not None and not 0 <= mask < getattr(config, "vocab_size", MAX_TOKENS):
        raise ValueError(f"its mask token {mask} is outside the vocabulary")
    depths = getattr(config, "max_depth", None)
    if depths is not None and not 1 <= depths <= MAX_COUNT:
        raise ValueError(f"it drafts {depths} tokens: 1 to {MAX_COUNT} are possible")
    own, theirs = (getattr(config, name, 0) for name in ("hidden_size", "target_hidden_size"))
    if theirs and theirs != own and getattr(config, "own_embedding", False) is False:
        raise ValueError(
            f"its hidden size is {own}, and it reads the embedding of a target of hidden size "
            f"{theirs}"
        )


def _suits(value: Any, hint: Any) -> bool:
    """Whether a config's field may have this value; one that is not a number, switch or text may
    have any."""
    if get_origin(hint) is UnionType:
        return any(_suits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if kinds[-1] is Ellipsis:  # any number of one kind
            kinds = kinds[:1] * len(value)
        return len(kinds) == len(value) and all(map(_suits, value, kinds))
    if hint is int:
        return type(value) is int and -1 <= value < MAX_SIZE
    if hint is float:
        return type(value) in (int, float) and 0 <= value < math.inf
    return type(value) is hint if hint in (bool, str, type(None)) else True


@contextmanager
def on_meta(folder: Path, kind: str) -> Iterator[None]:
    """Make a model from its config on the meta device: it takes no memory. Raises UserError."""
    with as_user_error(folder, kind), torch.device("meta"):
        yield


WRONG_VALUE = (
    AttributeError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


@contextmanager
def as_user_error(folder: Path, kind: str) -> Iterator[None]:
    """Turn the errors that a config's wrong values raise into a UserError that names the folder;
    those of a missing field and of what is not supported into a LayoutError."""
    try:
        yield
    except UserError as error:  # a variant that is not read
        raise LayoutError(f"{folder}: {error}") from None
    except KeyError as missing:
        why = f"the config has no field {missing}"
        raise LayoutError(f"{folder} holds no {kind} checkpoint: {why}") from None
    except (*WRONG_VALUE, StrictDataclassError) as error:
        raise UserError(f"{folder} holds no {kind} checkpoint: {first_line(error)}") from None
