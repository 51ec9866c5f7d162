"""The range of a number, of an option and of every other setting, and its one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from core.errors import UserError


@dataclass(frozen=True)
class Range:
    """The range of a number, and the step a slider takes.

    ``above``: the lower bound itself is excluded; ``below``: the upper one is.
    """

    low: float
    high: float = math.inf
    step: float = 1
    above: bool = False
    below: bool = False
    log: bool = False  # a slider moves in powers of ten

    def holds(self, value: float) -> bool:
        low = value > self.low if self.above else value >= self.low
        high = value < self.high if self.below else value <= self.high
        return low and high and abs(value) < math.inf

    def check(self, name: str, value: float) -> None:
        """Raises UserError, one sentence, for a value that is not in it."""
        if not self.holds(value):
            raise UserError(f"{name} must be {self}, not {value}")

    def __str__(self) -> str:
        if not (self.above or self.below or self.high == math.inf):
            return f"{self.low:g} to {self.high:g}"
        low = f"{'above' if self.above else 'at least'} {self.low:g}"
        if self.high == math.inf:
            return low
        return f"{low} and {'below' if self.below else 'at most'} {self.high:g}"
