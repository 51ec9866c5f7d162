"""The pace of denoising: how many positions a step unmasks. Light: never torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.ranges import Range
from core.rounds.draft import Array

MAX_TOKENS_PER_STEP = 1 << 10


@dataclass(frozen=True)
class Pace:
    """How many positions one denoising step unmasks.

    tokens     that many, where no threshold is set
    threshold  every position with confidence ≥ threshold, or else one; ``tokens`` is not used
    """

    tokens: int = 1
    threshold: float | None = None

    def check(self) -> None:
        """Raises UserError for a value out of range."""
        if self.threshold is None:
            Range(1, MAX_TOKENS_PER_STEP).check("tokens per step", self.tokens)
        else:
            Range(0, 1, above=True).check("the threshold", self.threshold)

    @property
    def name(self) -> str:
        """``k2`` for two tokens a step, ``t0.9`` for a threshold."""
        return f"k{self.tokens}" if self.threshold is None else f"t{self.threshold:g}"

    def to_json(self) -> dict[str, Any]:
        if self.threshold is not None:
            return {"threshold": self.threshold}
        return {"tokens": self.tokens}

    def step_sizes(self, block: int) -> tuple[int, ...]:
        """Positions that each step unmasks in a block of this length, for a fixed number per step.

        The steps differ by at most one, larger ones first: 8 positions, 3 a step: (3, 3, 2).
        """
        steps = math.ceil(block / self.tokens)
        return tuple(block // steps + (step < block % steps) for step in range(steps))

    def remaining_sizes(self, masked: int, block: int) -> tuple[int, ...]:
        """The last of ``step_sizes``: the steps to come when ``masked`` positions are left."""
        sizes = self.step_sizes(block)
        left = np.cumsum(sizes[::-1])[::-1]  # masked positions before each step
        return sizes[int((left > masked).sum()) :]

    def next_size(self, confidences: Array, block: int) -> int:
        """Positions the next step unmasks; ``confidences`` of all masked ones."""
        if self.threshold is not None:
            return max(1, int((confidences >= self.threshold).sum()))
        return self.remaining_sizes(len(confidences), block)[0]

    def ahead(self, wanted: float) -> float:
        """The confidence with which a position is unmasked before the first masked one: that of a
        threshold is enough."""
        return wanted if self.threshold is None else min(wanted, self.threshold)

    def levels(self, masked: int, block: int) -> dict[int, int]:
        """Number of tokens that a draft sets → its level, for a fixed number per step."""
        sizes = np.cumsum(self.remaining_sizes(masked, block)).tolist()
        return {size: level for level, size in enumerate(sizes, 1)}


ONE_BY_ONE = Pace()
