"""How numbers are written, in one place for the terminal, the page, reports and exports.

Values are rounded once, half to even on the exact binary value, which is what Python's formatting
does. What is not known (None or NaN) is written as "–". Light: no libraries.
"""

from __future__ import annotations

import math

UNKNOWN = "–"


def number(value: float | None, digits: int = 2) -> str:
    """1.23"""
    return UNKNOWN if _unknown(value) else f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 2) -> str:
    """+1.23"""
    return UNKNOWN if _unknown(value) else f"{value:+.{digits}f}"


def percent(value: float | None) -> str:
    """A probability or share, short: 87%, 4.2%, <0.1%; 0% is none at all."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if 0 < value < 0.001:
        return "<0.1%"
    return share(value, 1 if 0 < value < 0.0995 else 0)


def share(value: float | None, digits: int = 1) -> str:
    """A share with the same digits in every row of a table: 4.2%"""
    return UNKNOWN if value is None or math.isnan(value) else f"{value * 100:.{digits}f}%"


def probability(log_p: float) -> str:
    """``percent`` of a log-probability; what rounding lifted above 0 counts as 0."""
    return percent(math.exp(min(0.0, log_p)))


def tau(value: float | None) -> str:
    """Block efficiency, tokens per round: 2.31"""
    return number(value, 2)


def interval(low: float | None, high: float | None, digits: int = 2, sign: bool = False) -> str:
    """[1.20, 1.45]"""
    if _unknown(low) or _unknown(high):
        return UNKNOWN
    write = signed if sign else number
    return f"[{write(low, digits)}, {write(high, digits)}]"


def seconds(value: float | None, digits: int = 2) -> str:
    """1.23 s"""
    return UNKNOWN if _unknown(value) else f"{value:.{digits}f} s"


def milliseconds(value: float | None, digits: int = 0) -> str:
    """Seconds as 123 ms"""
    return UNKNOWN if value is None or math.isnan(value) else f"{value * 1e3:.{digits}f} ms"


def rate(value: float | None) -> str:
    """Tokens per second: 12.3"""
    return number(value, 1)


def ratio(value: float | None) -> str:
    """1.23×"""
    return UNKNOWN if _unknown(value) else f"{value:.2f}×"


def size(count: int) -> str:
    """Bytes as disks and the hub count them: 1.5 GB"""
    for unit, of in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= of:
            return f"{count / of:.1f} {unit}"
    return f"{count} bytes"


def plural(count: int, noun: str) -> str:
    """1 round, 2 rounds"""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _unknown(value: float | None) -> bool:
    return value is None or math.isnan(value)
