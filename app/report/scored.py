"""The scores of a grid's variants as a table of words, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.numbers import interval, rate, tau
from app.report.counted import Sheet
from app.terminal import one_line

if TYPE_CHECKING:
    from analysis.experiments.sweep import VariantScore

HEADS = ("", "τ", "95 %", "texts", "runs", "failed", "tokens/s", "tokens as plain")


def score_sheet(found: Sequence[VariantScore]) -> Sheet:
    """A row per variant; the last column only where some run could be compared with plain."""
    heads = HEADS if any(score.judged for score in found) else HEADS[:-1]
    return Sheet("", heads, [_cells(score)[: len(heads)] for score in found])


def _cells(score: VariantScore) -> tuple[str, ...]:
    return (
        one_line(score.name, 60),
        tau(score.tau),
        interval(score.low, score.high),
        str(score.texts),
        str(score.runs),
        str(score.failed or "–"),
        rate(score.tokens_per_second),
        f"{score.same} of {score.judged}" if score.judged else "–",
    )
