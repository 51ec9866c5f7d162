"""Types of command-line options: numbers, each with what it may be."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def whole(least: int) -> Callable[[str], int]:
    """argparse type: a whole number from ``least`` on."""
    return _number(int, lambda n: n >= least, f"a whole number from {least} on")


def _number(
    kind: type[Number], allowed: Callable[[Number], bool], about: str
) -> Callable[[str], Number]:
    def parse(text: str) -> Number:
        try:
            if allowed(value := kind(text)):
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} is not {about}")

    return parse


positive = _number(float, lambda x: 0 < x < math.inf, "a positive number")
temperature = _number(float, lambda x: 0 <= x < math.inf, "a temperature: a number from 0 on")
