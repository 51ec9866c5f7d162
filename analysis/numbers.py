"""How numbers are written, in one place for the terminal, reports, figures and exports. The page's
twin is app/web/dom.js; both are tested by tests/golden/formats.json.

Values are rounded once, half up on the shortest decimal that is the value: 13 of 40 are 0.33 and
33%, where Python's own formatting says 0.33 and 32%. What is not known (None or NaN) is written as
"–", and a minus as "−". Light: no libraries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal

UNKNOWN = "–"
NEAR = 0.1  # nats: another order of rounding may swap tokens that are as near
NEAR_IN = {"bfloat16": 0.5}  # four steps of a logit from 16 to 32, as ``audit`` allows them
EXACT = 1e15  # from here on a decimal point says nothing that a float can hold


def number(value: float | None, digits: int = 2) -> str:
    """1.23"""
    return _fixed(value, digits)


def signed(value: float | None, digits: int = 2) -> str:
    """+1.23"""
    return _fixed(value, digits, sign="+")


def _fixed(
    value: float | None, digits: int, unit: str = "", *, power: int = 0, sign: str = ""
) -> str:
    """``value`` in a unit 10^power times smaller: the decimal point moves before it is rounded."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if abs(value) >= EXACT:
        text = f"{value * 10**power:{sign}.{digits}f}"
    else:
        shifted = Decimal(repr(float(value))).scaleb(power)
        text = f"{shifted.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):{sign}f}"
    return text.replace("-", "−") + unit


def percent(value: float | None) -> str:
    """A probability or share, short: 87%, 4.2%, <0.1%; 0% is none at all."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if 0 < value < 0.001:
        return "<0.1%"
    return share(value, 1 if 0 < value < 0.0995 else 0)


def tiny(value: float | None) -> str:
    """A product of probabilities, however small: 0.4%, 0.012%, 3.1e-7"""
    if value is None or not 0 < value < 0.001:
        return percent(value)
    return f"{value * 100:.2g}%" if value >= 1e-5 else f"{value:.1e}".replace("e-0", "e-")


def share(value: float | None, digits: int = 1) -> str:
    """A share with the same digits in every row of a table: 4.2%"""
    return _fixed(value, digits, "%", power=2)


def percent_of_log(log_p: float) -> str:
    """``percent`` of a log-probability; what rounding lifted above 0 counts as 0."""
    return percent(math.exp(min(0.0, log_p)))


def short(value: float | None) -> str:
    """A number of any size in a table: 3, 2.50, 12.3, 0.012, 4e-4"""
    if value is None or math.isnan(value):
        return UNKNOWN
    digits = _digits([value])
    if digits is None:
        return _tiny(value)
    text = _fixed(value, digits)
    return text.rstrip("0").rstrip(".") if digits == 3 else text


def estimate(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A value with its interval, where known, in equal decimals: 2.60 [2.12, 3.00]"""
    if value is None or low is None or high is None or math.isnan(value + low + high):
        return short(value)
    digits = _digits([value, low, high])
    a, b, c = (_tiny(v) if digits is None else _fixed(v, digits) for v in (value, low, high))
    return f"{a} [{b}, {c}]"


def _digits(values: Sequence[float]) -> int | None:
    """Decimals by the largest of some values; None: so small that a power of ten says it."""
    size = max(map(abs, values))
    if all(float(value).is_integer() for value in values):
        return 0
    return next(
        (n for n, least in ((0, 100), (1, 10), (2, 0.1), (3, 0.0005)) if size >= least), None
    )


def _tiny(value: float) -> str:
    """3e-7"""
    power = f"{abs(value):.0e}".replace("e-0", "e-")
    return f"−{power}" if value < 0 else power


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
    return _fixed(value, digits, " s")


def milliseconds(value: float | None, digits: int = 0) -> str:
    """Seconds as 123 ms"""
    return _fixed(value, digits, " ms", power=3)


def duration(value: float | None) -> str:
    """Seconds as a time of any length: 5.1 ms, 120 ms, 12 s. In a column take ``milliseconds``."""
    if value is not None and value >= 9.9995:
        return seconds(value, 0)
    return milliseconds(value, 1 if value is not None and value < 0.00995 else 0)


def rate(value: float | None) -> str:
    """Tokens per second: 12.3"""
    return number(value, 1)


def ratio(value: float | None) -> str:
    """1.23×; of a division by nothing it is not known"""
    return UNKNOWN if value is None or math.isinf(value) else _fixed(value, 2, "×")


def size(count: int) -> str:
    """Bytes as disks and the hub count them: 1.5 GB"""
    for unit, of in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= of:
            return _fixed(count / of, 1, f" {unit}")
    return f"{count} bytes"


def plural(count: int, noun: str) -> str:
    """1 round, 2 rounds"""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _unknown(value: float | None) -> bool:
    return value is None or math.isnan(value)


def ordinal(count: int) -> str:
    """1st, 2nd, 3rd, 4th."""
    teen = 10 < count % 100 < 14
    return f"{count}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(count % 10, 'th')}"


def near(dtypes: Iterable[str]) -> float:
    """The nats within which tokens tie where targets compute in these precisions."""
    return max((NEAR_IN.get(dtype, NEAR) for dtype in dtypes), default=NEAR)
