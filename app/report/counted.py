"""Another engine's counts of its drafts as tables of words, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from analysis.numbers import UNKNOWN, interval, number, share
from app.report.shown import TextTable
from app.terminal import bar

if TYPE_CHECKING:
    from analysis.measures.counts import Counts

PLACES = ("place", "tested", "accepted", "acceptance", "95 %", "of all drafts", "τ to here")


def sheets(counts: Counts) -> Iterator[TextTable]:
    """The sums, the histogram of accepted tokens, and acceptance by place, as far as told."""
    sums = (counts.drafted, counts.accepted, counts.tokens)
    heads = (f"{counts.kind}s", "rounds", "drafted", "accepted", "tokens", "τ")
    values = [str(counts.records), f"≈ {counts.rounds}" if counts.fits else _told(counts.rounds)]
    values += map(_told, sums)
    values += [number(counts.tau), number(counts.accepted_of_drafted)]
    yield TextTable((*heads, "accepted ÷ drafted"), [values])
    if counts.histogram:
        rows = list(_histogram(counts.histogram))
        heads = ("accepted", "rounds", "share", " ")
        yield TextTable(heads, rows, (" ",), "Accepted tokens per round")
    if counts.by_depth:
        yield TextTable(PLACES, list(_places(counts)), title="By place of the draft, as a chain")


def strips(counts: Counts) -> Iterator[tuple[str, str]]:
    """The share of each round's draft that was accepted, in order, of the first record that tells
    it: a title and one character a round."""
    from analysis.measures.counts import strip

    orders = [order for order in counts.order if order]
    for order in orders[:1]:
        of = f", of the first of {len(orders)}" if len(orders) > 1 else ""
        yield f"Share of each round's draft that was accepted, in order{of}", strip(order)


def _places(counts: Counts) -> Iterator[tuple[str, ...]]:
    for d in counts.by_depth:
        accepted, tested = d.off
        bound = counts.at_most(d)
        least = f"≥ {number(d.low)}" if d.low is not None and bound else interval(d.low, d.high)
        yield (
            str(d.depth),
            f"≤ {d.tested + tested}" if bound and d.tested else _told(d.tested, tested),
            _told(d.accepted, accepted),
            f"≥ {number(d.conditional)}" if bound else number(d.conditional),
            least,
            number(d.marginal, 3),
            number(d.tau),
        )


def _told(count: int | None, off: int = 0) -> str:
    return UNKNOWN if count is None else f"{count} ± {off}" if off else str(count)


def _histogram(counts: Sequence[int]) -> Iterator[tuple[str, ...]]:
    total, most = sum(counts), max(counts)
    for n, count in enumerate(counts):
        yield str(n), str(count), share(count / total), bar(count, most)
