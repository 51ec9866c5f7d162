"""What the training commands share: types of arguments, flags made of options, a progress bar."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Container
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from tqdm import tqdm

from core.methods.method import Option, Range, options_of


def number(kind: type, allowed: Range) -> Callable[[str], Any]:
    """argparse type: a finite number of this type in a range."""
    what = "a whole number, " if kind is int else ""

    def parse(text: str) -> Any:
        try:
            if allowed.holds(value := kind(text)) and math.isfinite(value):
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}{allowed}")

    return parse


def whole(least: int) -> Callable[[str], int]:
    """argparse type: a whole number from ``least`` on."""
    return number(int, Range(least))


positive = number(float, Range(0, above=True))


def add_flags(parser: Any, options: type, skip: Container[str] = ()) -> None:
    """A flag for every field of an options dataclass that has a help text.

    A flag that is not given is absent from the parsed arguments (see ``set_options``).
    """
    hints = get_type_hints(options)
    for each in options_of(options):
        if each.help and each.name not in skip:
            flag = f"--{each.name.replace('_', '-')}"
            parser.add_argument(
                flag, default=argparse.SUPPRESS, **_described(each, hints[each.name])
            )


def _described(option: Option, hint: Any) -> dict[str, Any]:
    """Help, type and count of a flag's values, as argparse takes them."""
    default: Any = option.default
    kind = next((a for a in get_args(hint) if a not in (NoneType, Ellipsis)), hint)
    if kind is bool:
        return {"help": option.help, "action": "store_true"}
    several = {"nargs": "+" if default else "*"} if get_origin(hint) is tuple else {}
    values = default if several else (default,)
    shown = " ".join(f"{v:g}" for v in values if isinstance(v, int | float))
    return several | {
        "help": f"{option.help} (default {shown})" if shown else option.help,
        "type": kind if kind is Path else number(kind, option.range or Range(-math.inf)),
        "metavar": "PATH" if kind is Path else "N",
    }


def set_options(args: argparse.Namespace, options: type) -> dict[str, Any]:
    """The fields of an options dataclass whose flags were set; lists become tuples."""
    flags = [each.name for each in options_of(options) if each.help]
    named = {name: getattr(args, name) for name in flags if name in args}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in named.items()}


def progress_bar(total: int, text: str, unit: str) -> tqdm:
    """A bar on a terminal, nothing elsewhere."""
    return tqdm(total=total, desc=text, unit=unit, file=sys.stderr, disable=not sys.stderr.isatty())
