"""The accuracy that a healthy drafter of a kind reaches, and how far below it another one is.

It is known where the drafter's own training report lies beside its weights, or where a drafter of
its kind ships for the target: that one is measured at the same places.

Shapes: P places, L drafted depths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from analysis.drafters.measuring import Measured
from analysis.drafters.trained import ALL, LESS, Curve, read_accuracy
from analysis.numbers import number, percent, tau
from core.rounds.draft import Array
from core.stats import resample

CHANCE = 0.01  # of a false difference among all comparisons of a kind
RARE = 0.05  # share of places, below which a depth is not compared
ACCURACY = "accuracy.json"


def mean_of(values: Array, units: Array) -> tuple[float, float]:
    """The mean of values [P] and its standard error, by drawing their stretches (``units`` [P])
    anew."""
    number = np.unique(units, return_inverse=True)[1]
    sums, counts = np.bincount(number, values), np.bincount(number)
    draws, few = resample(sums, counts), (len(sums) / max(1, len(sums) - 1)) ** 0.5
    return float(draws.mean()), float(max(draws.std() * few, 1e-9))


def errors(chance: float, units: Array) -> float:
    """How many standard errors, estimated from these stretches, a mean exceeds by this chance:
    Student's quantile by its expansion (Abramowitz and Stegun, 26.7.5)."""
    z, free = NormalDist().inv_cdf(1 - chance), max(1, len(np.unique(units)) - 1)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / free**n for n, term in enumerate(terms, 1))


@dataclass(frozen=True, eq=False)
class Expected:
    """The accuracy expected at places; one row where only the mean over a text is known.

    source  whose figures they are
    right   [P or 1, L]: the best token is right after the true tokens; NaN: not told
    alive   [P or 1, L]: it is right there and at all depths before; NaN: not told
    itself  whether they are the examined drafter's own, which prove nothing
    """

    source: str
    right: Array
    alive: Array
    itself: bool = False

    @staticmethod
    def of(source: str, found: Measured, depths: int) -> Expected:
        """Expect what another drafter reached at all places, down to the depth ``depths``."""
        right = found.right[:, :depths].astype(float)
        return Expected(source, right, right.cumprod(1))

    @property
    def tau(self) -> float:
        """Mean of accepted + 1; NaN where it is not told."""
        return 1 + float(self.alive.mean(0).sum())

    def made_good(self, own: Measured, other: Measured) -> float:
        """The part of the accepted tokens that ``own`` lacks which another way to run the drafter
        accepts; of right tokens where only these are told. NaN where none are lacking. Both are
        measured at all places."""
        depths = min(self.right.shape[1], own.right.shape[1])
        before, after = own.right[:, :depths], other.right[:, :depths]
        if np.isfinite(self.tau):
            hoped = self.alive[:, :depths].mean(0)
            before, after = before.cumprod(1), after.cumprod(1)
        else:
            hoped = self.right[:, :depths].mean(0)
        told = np.isfinite(hoped)
        lacking = float((hoped - before.mean(0))[told].sum())
        gained = float((after.mean(0) - before.mean(0))[told].sum())
        return gained / lacking if lacking > 0 else float("nan")

    def short(self, own: Measured, units: Array) -> Shortfall | None:
        """How far ``own`` stays below it; None where that is not shown.

        ``units`` [P]: the stretch of text of each of its places. Accepted tokens, or the share of
        right ones at a depth, are below when they are less than 0.75 of what is expected, and less
        beyond chance.
        """
        rows = own.at if len(self.right) > 1 else [0] * len(own.at)
        depths = min(self.right.shape[1], own.right.shape[1])
        right = own.right[:, :depths].astype(float)
        mine, theirs = right.cumprod(1).sum(1), self.alive[rows, :depths].sum(1)
        gaps = self.right[rows, :depths] - right
        chance = CHANCE / (1 + depths)
        shares = [_below(right[:, d], self.right[rows, d], units, chance) for d in range(depths)]
        if not (_below(mine, theirs, units, chance) or any(shares)):
            return None
        depth = shares.index(True) if any(shares) else int(np.nanargmax(gaps.mean(0)))
        return Shortfall(
            1 + float(mine.mean()),
            1 + float(theirs.mean()),
            depth + 1,
            float(right[:, depth].mean()),
            float(self.right[rows, depth].mean()),
        )


def _below(own: Array, theirs: Array, units: Array, chance: float) -> bool:
    """Whether it is far below, beyond chance; not where what is expected is not told."""
    if not theirs.mean() >= RARE or own.mean() >= LESS * theirs.mean():
        return False
    mean, error = mean_of(theirs - own, units)
    return mean > errors(chance, units) * error


@dataclass(frozen=True)
class Shortfall:
    """τ and the τ that is expected, NaN where it is not told; and the shares of right tokens at the
    depth where it is seen first."""

    tau: float
    expected_tau: float
    depth: int
    right: float
    expected: float

    def sentence(self, source: str) -> str:
        at = (
            f"at depth {self.depth} its best token is right at {percent(self.right)} of the "
            f"places, and {percent(self.expected)} are expected by {source}"
        )
        if not np.isfinite(self.expected_tau):
            return at
        ratio = (self.tau - 1) / (self.expected_tau - 1)
        return (
            f"it accepts {number(ratio)}× as many tokens as expected "
            f"(τ {tau(self.tau)}, not {tau(self.expected_tau)}); {at}"
        )


def reported(folder: Path) -> Expected | None:
    """Read what the training report beside a checkpoint expects; None where there is none. Raises
    UserError for one that cannot be read."""
    path = folder / ACCURACY
    return _of_curves(read_accuracy(path)) if path.is_file() else None


def _of_curves(curves: Sequence[Curve]) -> Expected:
    """Prefer text that was held out, where there is some."""
    held = [curve for curve in curves if not curve.text.startswith("train")] or list(curves)
    own = [curve for curve in held if curve.text == held[0].text]
    size = max(len(curve.values) for curve in own)
    rows = dict.fromkeys((True, False), np.full((1, size), np.nan))
    for curve in own:
        row = np.full((1, size), np.nan)
        row[0, : len(curve.values)] = curve.values
        rows[curve.kind == ALL] = row
    right, after = rows[True], rows[False]
    first = after[:, :1] if np.isnan(right[:, 0]).any() else right[:, :1]
    right = np.concatenate([first, right[:, 1:]], 1)  # at depth 1 both kinds are one
    return Expected(f"its training report ({held[0].text})", right, after.cumprod(1))
