"""Values as JSON holds them: numbers with four significant digits, null where there is none.

A trace may hold anything, and JSON knows neither NaN nor infinity.
"""

from __future__ import annotations

import math

from core.rounds.draft import Array
from core.rounds.round import ACCEPTED, REJECTED, SIDE, UNREACHED

LETTERS = {ACCEPTED: "a", REJECTED: "r", UNREACHED: "u", SIDE: "s"}  # of a row's status


def finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def probability(log: float) -> float | None:
    """The probability of a log-probability."""
    return None if math.isnan(log) else float(f"{math.exp(min(log, 0.0)):.4g}")


def finites(values: Array) -> list[float | None]:
    return list(map(finite, values.tolist()))


def probabilities(logs: Array) -> list[float | None]:
    return list(map(probability, logs.tolist()))
