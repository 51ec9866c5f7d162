"""The scores of a grid's variants as a table of words, for the terminal and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from analysis.numbers import interval, rate, tau
from app.report.shown import TextTable
from app.terminal import one_line

if TYPE_CHECKING:
    from analysis.experiments.sweep import VariantScore

HEADS = ("", "τ", "95 %", "texts", "runs", "failed", "tokens/s", "tokens as plain")


def score_sheet(found: Sequence[VariantScore]) -> TextTable:
    """A row per variant; the last column only where some run could be compared with plain."""
    heads = HEADS if any(score.judged for score in found) else HEADS[:-1]
    names = _numbered([one_line(score.name, 60) for score in found])
    rows = [_cells(name, score) for name, score in zip(names, found, strict=True)]
    return TextTable(heads, [row[: len(heads)] for row in rows], ("",))


def _numbered(names: Sequence[str]) -> list[str]:
    """The names; of those that are alike as they are cut, each with its number."""
    often, numbers = Counter(names), {name: count(1) for name in names}
    return [f"{name} ({next(numbers[name])})" if often[name] > 1 else name for name in names]


def _cells(name: str, score: VariantScore) -> tuple[str, ...]:
    return (
        name,
        tau(score.tau),
        interval(score.low, score.high),
        str(score.texts),
        str(score.runs),
        str(score.failed or "–"),
        rate(score.tokens_per_second),
        f"{score.same} of {score.judged}" if score.judged else "–",
    )
