"""Intervals of measured numbers, written once. Light: numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.rounds.draft import Array

Z = 1.959963984540054  # the normal's 97.5 % point: every interval here is a 95 % one
_AT_ONCE = 1 << 20  # units drawn at a time: bounds the memory


def wilson(successes: Array | int, trials: Array | int) -> tuple[Array, Array]:
    """Wilson's score interval of a proportion, low and high, elementwise; NaN without trials."""
    k, n = np.asarray(successes, float), np.asarray(trials, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = k / n
        middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
        half = Z / (1 + Z * Z / n) * np.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    # no success or no failure: the bound is 0 or 1 itself, not 1e-17 beside it
    low, high = np.where(k == 0, 0.0, middle - half), np.where(k == n, 1.0, middle + half)
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)


def resample(sums: Sequence[float] | Array, counts: Sequence[float] | Array,
              draws: int = 2000, seed: int = 0) -> Array:  # fmt: skip
    """Bootstrap draws [draws] of Σ sums ÷ Σ counts when whole units are drawn anew.

    The same number of units and the same seed draw the same units: the draws of two methods,
    unit by unit on the same prompts, are then paired and may be subtracted. NaN where a draw
    counts nothing; empty without units.
    """
    totals, sizes = np.asarray(sums, float), np.asarray(counts, float)
    units, generator = len(totals), np.random.default_rng(seed)
    if units == 0:
        return np.empty(0)
    found = []
    step = max(1, _AT_ONCE // units)
    for low in range(0, draws, step):
        picks = generator.integers(0, units, (min(step, draws - low), units))
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(totals[picks].sum(1) / sizes[picks].sum(1))
    return np.concatenate(found)


def interval(draws: Array) -> tuple[float, float]:
    """The middle 95 % of bootstrap draws; NaN when there are none."""
    known = draws[~np.isnan(draws)]
    if not len(known):
        return np.nan, np.nan
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def difference(
    sums: Sequence[float] | Array, counts: Sequence[float] | Array,
    other_sums: Sequence[float] | Array, other_counts: Sequence[float] | Array,
    draws: int = 2000, seed: int = 0,
) -> tuple[float, float]:  # fmt: skip
    """95 % interval of one ratio Σ sums ÷ Σ counts less another, on the same units, drawn alike."""
    mine, theirs = (
        resample(a, b, draws, seed) for a, b in ((sums, counts), (other_sums, other_counts))
    )
    return interval(mine - theirs)


def bootstrap(runs: Sequence[Sequence[int]], draws: int = 2000) -> tuple[float, float]:
    """95 % interval of τ = Σ lengths ÷ Σ rounds when whole prompts are drawn anew."""
    return interval(resample([sum(run) for run in runs], [len(run) for run in runs], draws))
