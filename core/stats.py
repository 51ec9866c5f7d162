"""Intervals and tests of measured numbers. Light: numpy only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist

import numpy as np

from core.rounds.draft import Array

Z = 1.959963984540054  # the normal's 97.5 % point: every interval here is a 95 % one
FEW_UNITS = 5  # below which drawing units anew says little: there is then no interval
FEW_SEEN = 5  # observations below which nothing is concluded
FEW_COMPARED = 30  # observations on either side, below which the two are not compared
MANY = 10_000  # units, above which the bootstrap tells nothing that the normal interval does not
DRAWS = 2000  # of a bootstrap
_AT_ONCE = 1 << 20  # units drawn at a time: bounds the memory


def too_few(units: str) -> str:
    """The sentence that these, which are fewer than ``FEW_UNITS``, give no interval."""
    return f"Fewer than {FEW_UNITS} {units} give no interval."


TOO_FEW = too_few("texts")


def wilson(successes: Array | int, trials: Array | int, z: float = Z) -> tuple[Array, Array]:
    """Wilson's score interval of a proportion, low and high, elementwise; NaN without trials."""
    k, n = np.asarray(successes, float), np.asarray(trials, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = k / n
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # no success or no failure: the bound is 0 or 1 itself, not 1e-17 beside it
    low, high = np.where(k == 0, 0.0, middle - half), np.where(k == n, 1.0, middle + half)
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)


def z_of_several(tests: int) -> float:
    """The normal's point for that many intervals which hold together in 95 % of all cases, at
    least (Bonferroni); ``Z`` for one."""
    return NormalDist().inv_cdf(1 - 0.025 / max(1, tests))


Numbers = Sequence[float] | Array


def resample(sums: Numbers, counts: Numbers, draws: int = DRAWS, seed: int = 0) -> Array:
    """Bootstrap draws [draws] of Σ sums ÷ Σ counts, resampling whole units.

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


def resample_columns(sums: Array, counts: Array, times: Array | None = None) -> Array:
    """Bootstrap draws [DRAWS, K] of Σ sums ÷ Σ counts, for columns [U, K] over the same units.

    A draw takes the same units for all columns, so that columns may be compared within it. Units
    that are alike in every column are drawn together, which makes many rounds cheap. ``times``
    [U]: how often each unit stands there; None: once.
    """
    whole = np.concatenate([sums, counts], 1)
    alike, place = np.unique(whole, axis=0, return_inverse=True)
    often = np.bincount(place.reshape(-1), np.ones(len(whole)) if times is None else times)
    units = round(often.sum())
    picks = np.random.default_rng(0).multinomial(units, often / often.sum(), DRAWS)
    columns = sums.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        return (picks @ alike[:, :columns]) / (picks @ alike[:, columns:])


def middle_interval(draws: Array) -> tuple[float, float]:
    """The middle 95 % of bootstrap draws; NaN when there are none."""
    known = draws[~np.isnan(draws)]
    if not len(known):
        return np.nan, np.nan
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def ratio_interval(sums: Numbers, counts: Numbers) -> tuple[float, float]:
    """95 % interval of Σ sums ÷ Σ counts: bootstrap, of more than ``MANY`` units ± 1.96 standard
    errors (delta method); NaN for fewer than ``FEW_UNITS`` units."""
    if len(sums) < FEW_UNITS:
        return np.nan, np.nan
    if len(sums) > MANY:
        return _around(*_influences(sums, counts))
    totals, sizes = in_order(sums, counts)
    return middle_interval(resample(totals, sizes))


def in_order(*columns: Numbers) -> list[Array]:
    """The units of these columns in an order of their own values: what is drawn then does not
    depend on which order files, prompts or other methods gave them."""
    found = [np.asarray(column, float) for column in columns]
    order = np.lexsort(found[::-1])
    return [column[order] for column in found]


def difference_interval(
    sums: Numbers, counts: Numbers, other_sums: Numbers, other_counts: Numbers
) -> tuple[float, float]:
    """95 % interval of one ratio Σ sums ÷ Σ counts less another, on the same units, drawn alike,
    as ``ratio_interval`` has it."""
    if len(sums) < FEW_UNITS:
        return np.nan, np.nan
    if len(sums) > MANY:
        (one, by_one), (other, by_other) = (
            _influences(sums, counts), _influences(other_sums, other_counts)
        )  # fmt: skip
        return _around(one - other, by_one - by_other)
    a, b, c, d = (np.asarray(x, float) for x in (sums, counts, other_sums, other_counts))
    # In the order of their sums: exchanging the two then gives nearly the same interval, negated.
    a, b, c, d = in_order(a + c, b + d, a, b, c, d)[2:]
    return middle_interval(resample(a, b) - resample(c, d))


def _influences(sums: Numbers, counts: Numbers) -> tuple[float, Array]:
    """A ratio Σ sums ÷ Σ counts, and how much each unit moves it, to first order."""
    above, below = np.asarray(sums, float), np.asarray(counts, float)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = above.sum() / below.sum()
        return float(share), (above - share * below) / below.sum()


def _around(value: float, influences: Array) -> tuple[float, float]:
    half = Z * float(np.sqrt(np.square(influences).sum()))
    return value - half, value + half


def bootstrap(runs: Sequence[Sequence[int]]) -> tuple[float, float]:
    """95 % interval of τ = Σ lengths ÷ Σ rounds, resampling whole prompts; NaN for fewer than
    ``FEW_UNITS``."""
    return ratio_interval([sum(run) for run in runs], [len(run) for run in runs])


def tau_interval(texts: Sequence[Sequence[int]]) -> tuple[float | None, float, float]:
    """τ = Σ lengths ÷ Σ rounds over texts, each the acceptance lengths of its rounds, and its 95 %
    interval: texts are drawn anew, of a single one its rounds. None and NaN: not known."""
    rounds = sum(map(len, texts))
    units = [[length] for length in texts[0]] if len(texts) == 1 else texts
    return sum(map(sum, texts)) / rounds if rounds else None, *bootstrap(units)


def rounds_by_length(texts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The number of rounds of length 1, 2, … over texts, each the lengths of its rounds."""
    counts = Counter(chain.from_iterable(texts))
    return tuple(counts[length] for length in range(1, max(counts, default=0) + 1))


LEVEL = 0.001  # a smaller p-value refutes probabilities
POWER = 0.95  # with which a deviation is to be found


@dataclass(frozen=True)
class GoodnessOfFit:
    """Whether counts follow stated probabilities, over one or several contexts.

    statistic   Pearson's Σ (count − n·p)² ÷ n·p, over all bins of all contexts
    p_value     share of simulated counts whose statistic is at least as large
    draws       counts in all; ``bins`` and ``contexts``: how many of them
    detectable  the smallest total variation distance, the same in every context, that is refuted
                with probability ``POWER``; over the bins, and for the hardest deviation of its size
    """

    statistic: float
    p_value: float
    draws: int
    bins: int
    contexts: int
    detectable: float

    @property
    def refuted(self) -> bool:
        return self.p_value < LEVEL


def goodness_of_fit(
    counts: Sequence[Array], p: Sequence[Array], simulations: int = 20000
) -> GoodnessOfFit:
    """Test the counts [K] of each context against its p [K]; everything is simulated, so that small
    expected counts do no harm.

    Outcomes of an expected count below 5 share one bin.
    """
    binned = [_binned(c, q) for c, q in zip(counts, p, strict=True)]
    rng, draws = np.random.default_rng(0), [int(c.sum()) for c, _ in binned]
    expected = [q for _, q in binned]

    def statistics(truth: Sequence[Array], size: int) -> Array:
        """The statistics of ``size`` simulated experiments when ``truth`` holds."""
        found = np.zeros(size)
        for n, q, true in zip(draws, expected, truth, strict=True):
            found += _pearson(rng.multinomial(n, true, size), n * q)
        return found

    chance = statistics(expected, simulations)
    statistic = float(sum(_pearson(c, c.sum() * q) for c, q in binned))
    limit = np.quantile(chance, 1 - LEVEL)

    def refuted(distance: float) -> bool:
        truth = [_shifted(q, distance) for q in expected]
        return bool((statistics(truth, simulations // 10) > limit).mean() >= POWER)

    return GoodnessOfFit(
        statistic=statistic,
        p_value=float((1 + (chance >= statistic).sum()) / (1 + simulations)),
        draws=sum(draws),
        bins=sum(map(len, expected)),
        contexts=len(binned),
        detectable=_smallest(refuted),
    )


def _binned(counts: Array, p: Array) -> tuple[Array, Array]:
    """Counts and probabilities, rare outcomes together in the last bin."""
    rare = counts.sum() * p < 5
    pooled = [np.append(values[~rare], values[rare].sum()) for values in (counts, p)]
    return pooled[0].astype(np.int64), pooled[1] / pooled[1].sum()


def _pearson(counts: Array, expected: Array) -> Array:
    """The statistic of counts [..., K]; a count where p is 0 makes it infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.square(counts - expected) / expected
    return np.where(np.isnan(terms), 0.0, terms).sum(-1)


def _shifted(p: Array, distance: float) -> Array:
    """Another distribution that far from p in total variation, of all such the one whose statistic
    grows least: about half of the mass becomes likelier, all of it in proportion."""
    order = np.argsort(-p)
    share = np.cumsum(p[order])
    part = order[: 1 + int(np.argmin(np.abs(share - 0.5)))]
    larger = np.zeros(len(p), bool)
    larger[part] = True
    if p[larger].sum() < 0.5:
        larger = ~larger
    mass = p[larger].sum()
    distance = min(distance, mass)
    grown = p / max(1 - mass, 1e-300) * (1 - mass + distance)
    found = np.where(larger, p / mass * (mass - distance), grown)
    return found / found.sum()


def _smallest(holds: Callable[[float], bool]) -> float:
    """The smallest number in (0, 1] from which on the condition holds, to a 500th; 1 for none."""
    low, high = 0.0, 1.0
    while high - low > 0.002:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
