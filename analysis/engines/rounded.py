"""Numbers of foreign logs, read strictly, and whole counts behind what an engine rounded. Light."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from analysis.measures.counts import Served
from core.declared import BadField

MAX_PLACES = 1 << 8
MAX_COUNT = 1 << 53  # above it a float64 skips whole numbers
TRIED = 1 << 9  # counts of rounds that are tried one by one
NARROW = 1.02
HALF = 0.0005 * 1.001  # of a share in 3 digits; what lies between two may be either
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?(?:[eE][-+]?\d{1,3})?")


def value_of(text: str, what: str, most: float = MAX_COUNT) -> float:
    """A number from 0 to ``most``. Raises BadField, also for NaN and infinity."""
    if not _NUMBER.fullmatch(text) or not 0 <= float(text) <= most:
        raise BadField(f"its {what} is not a number from 0" + (f" to {most:g}" * (most < 2)))
    return float(text)


def whole_of(text: str, what: str) -> int:
    value = value_of(text, what)
    if value != int(value):
        raise BadField(f"its {what} is not a whole number")
    return int(value)


def rates_of(text: str) -> tuple[float, ...]:
    """Shares of all drafts that accepted place 1, 2, …; they cannot rise."""
    rates = tuple(value_of(each.strip(), "share of a place", 1) for each in text.split(","))
    if len(rates) > MAX_PLACES or any(a < b for a, b in pairwise(rates)):
        raise BadField("its shares by place rise, or are too many")
    return rates


def fitted(
    accepted: int, drafted: int, mean: float | None, rates: Sequence[float], listed: bool
) -> tuple[int, int]:
    """The fewest and the most rounds that fit a line.

    mean    of accepted + 1, rounded to 2 digits
    rates   of all rounds that accepted place 1, 2, …, rounded to 3 digits
    listed  whether these are all places that a draft has

    Raises BadField where nothing fits: the line contradicts itself.
    """
    low, high = 1, drafted
    if listed and rates:
        low = -(-drafted // len(rates))
    spread = ((mean - 1, 0.005),) if mean is not None else ()
    if listed and rates:
        spread += ((sum(rates), 0.0005 * len(rates)),)
    for middle, half in spread:
        half *= 1.001  # what lies between two digits may be rounded to either
        if middle + half <= 0:
            raise BadField("its figures contradict each other")
        low = max(low, math.ceil(accepted / (middle + half)))
        if middle > half:
            high = min(high, math.floor(accepted / (middle - half)))
    some = [n for n in range(low, min(high, low + TRIED) + 1) if _fits(n, accepted, rates, listed)]
    if high > low + TRIED:  # so many that the shares by place hardly narrow them down
        return (some or [low])[0], high
    if not some:
        raise BadField("its figures contradict each other")
    return some[0], some[-1]


def _fits(rounds: int, accepted: int, rates: Sequence[float], listed: bool) -> bool:
    """Whether whole counts by place have these shares, and this sum."""
    least = [math.ceil((rate - HALF) * rounds) for rate in rates]
    most = [math.floor((rate + HALF) * rounds) for rate in rates]
    whole = all(a <= b for a, b in zip(least, most, strict=True))
    reached = not (listed and rates) or sum(most) >= accepted
    return whole and sum(max(0, a) for a in least) <= accepted and reached


def counted(
    engine: str,
    counts: tuple[int, int],
    mean: float | None,
    rates: tuple[float, ...],
    listed: bool = True,
) -> Served:
    """A line that counts accepted and drafted tokens and rounds the rest."""
    accepted, drafted = counts
    if accepted > drafted:
        raise BadField("more tokens are accepted than drafted")
    if mean is None and not rates:
        return Served(engine, drafted=drafted, accepted=accepted)
    few, most = fitted(accepted, drafted, mean, rates, listed)
    full = listed and few * len(rates) == drafted
    # the fewest if drafts are then full, or if little is known; else what is nearest to the mean
    rounds = few if full or most > NARROW * few else (few + most) // 2
    places, off = kept_by(rates, rounds, (few, most), accepted if listed else None)
    fits = (few, most) if few < most else None
    return Served(engine, rounds, drafted, accepted, places=places or None, fits=fits, off=off)


def kept_by(
    rates: Sequence[float], rounds: int, fits: tuple[int, int], accepted: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rounds that accepted each place, by shares rounded to 3 digits, and by how much each of these
    counts may be off, () where none is; ``accepted``: their sum, None: not known."""
    low = [max(0, math.ceil((rate - HALF) * fits[0])) for rate in rates]
    high = [math.floor((rate + HALF) * fits[1]) for rate in rates]
    if accepted is not None:
        least, most = accepted - sum(low), accepted - sum(high)
        bounds = [(max(a, most + b), min(b, least + a)) for a, b in zip(low, high, strict=True)]
        low, high = [a for a, _ in bounds], [b for _, b in bounds]
    nearest = (round(rate * rounds) for rate in rates)
    kept = tuple(min(max(n, a), b) for n, a, b in zip(nearest, low, high, strict=True))
    off = tuple(max(n - a, b - n) for n, a, b in zip(kept, low, high, strict=True))
    return kept, off if any(off) else ()
