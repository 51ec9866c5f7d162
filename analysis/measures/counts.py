"""Other engines' counts of served drafts. Never torch.

An engine's response, log line or metrics page holds counts without trees. A draft is a chain here:
a round that accepted n tokens accepted places 1 … n of it. Engines report places as shares of all
drafts (marginal); a drafter is judged by the share where all places before were accepted
(conditional). Both are kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from core.stats import wilson

LABEL = "counts without trees"
FULLY = 0.99  # of the accepted tokens are in the places that a record lists: it lists all of them
_UNDRAFTED = ("LM Studio",)  # engines whose counts do not tell a draft from none


@dataclass(frozen=True)
class Served:
    """The counts of one response, log line or page. None: it does not tell.

    rounds     target passes that verified a draft
    drafted, accepted  tokens of all drafts
    tokens     new tokens of the text
    histogram  rounds that accepted 0, 1, 2 … tokens
    order      accepted and drafted tokens of every round, in order
    places     rounds that accepted place 1, 2, … of their draft
    rates      the same as shares of all rounds, where the rounds are not told
    mean       mean of accepted + 1, where the rounds are not told
    fits       the fewest and the most rounds that fit what the engine rounded; None: exact
    off        by how much each of ``places`` may be off, where they are of rounded shares
    """

    engine: str
    rounds: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    tokens: int | None = None
    histogram: tuple[int, ...] | None = None
    order: tuple[tuple[int, int], ...] | None = None
    places: tuple[int, ...] | None = None
    rates: tuple[float, ...] | None = None
    mean: float | None = None
    fits: tuple[int, int] | None = None
    off: tuple[int, ...] = ()

    def kept(self) -> tuple[int, ...] | None:
        """Rounds that accepted place 1, 2, …, by whichever way the engine tells it."""
        if self.places is not None or self.histogram is None:
            return self.places
        return reached(self.histogram, len(self.histogram) - 1)

    def tau(self) -> float | None:
        """1 + accepted ÷ rounds, or the mean that the engine tells."""
        if self.accepted is not None and self.rounds:
            return 1 + self.accepted / self.rounds
        return self.mean

    def shares(self) -> tuple[float, ...] | None:
        kept = self.kept()
        if kept is None or not self.rounds:
            return self.rates
        return tuple(each / self.rounds for each in kept)


def by_length(counts: Mapping[int, int]) -> tuple[int, ...]:
    """Rounds that accepted 0, 1, 2 … tokens, as far as there are any."""
    longest = max((n for n, count in counts.items() if count), default=-1)
    return tuple(counts.get(n, 0) for n in range(longest + 1))


def reached(histogram: Sequence[int], places: int) -> tuple[int, ...]:
    """Rounds that accepted place 1, 2, … of so many, by how many tokens each accepted."""
    longer = [*accumulate(reversed(histogram))][::-1]
    return tuple(longer[n] if n < len(longer) else 0 for n in range(1, places + 1))


@dataclass(frozen=True)
class Depth:
    """One place of the draft.

    accepted, tested  rounds that accepted it; that accepted all before, and drafted there. None:
        the engine tells shares only
    marginal     accepted ÷ all rounds: what the place adds to τ
    conditional  accepted ÷ tested; ``low``, ``high``: Wilson's 95 % interval, None without counts.
                 ``high`` is None, too, where ``tested`` is at most that many
    tau          of the chain that ends here: 1 + the marginals up to here
    off          by how much ``accepted`` and ``tested`` may be off: the engine rounded its shares
    """

    depth: int
    accepted: int | None
    tested: int | None
    marginal: float
    conditional: float
    low: float | None
    high: float | None
    tau: float
    off: tuple[int, int] = (0, 0)

    @property
    def is_zero(self) -> bool | None:
        """Whether no round accepted it; None: what the engine rounded does not tell."""
        if self.accepted is None:
            return None if not self.marginal else False
        return None if self.accepted <= self.off[0] > 0 else not self.accepted


@dataclass(frozen=True)
class Counts:
    """All that one file counts, together.

    kind      "response", "log line", "iteration", "page", "dump", "profile" or "recording";
              ``records``: how many of them
    full      whether every draft had all places: True, False, or None where it is not told
    exact     whether a round counts only at places that it drafted. Otherwise, and unless all
              drafts are full, conditional shares from place 2 on are lower bounds
    span      the smallest and the largest τ of single records
    notes     sentences about what was left out
    The rest is as in ``Served``, summed. Without rounds, shares and τ are means over the records.
    """

    engine: str
    kind: str
    records: int
    rounds: int | None
    fits: tuple[int, int] | None
    drafted: int | None
    accepted: int | None
    tokens: int | None
    tau: float | None
    histogram: tuple[int, ...] | None
    by_depth: tuple[Depth, ...]
    full: bool | None
    exact: bool
    span: tuple[float, float] | None
    order: tuple[tuple[tuple[int, int], ...] | None, ...]
    notes: tuple[str, ...] = ()

    @property
    def accepted_of_drafted(self) -> float | None:
        known = self.accepted is not None and self.drafted
        return self.accepted / self.drafted if known else None  # type: ignore[operator]

    @property
    def undrafted(self) -> bool:
        """Whether some rounds may have had no draft: that looks like one which was refused."""
        return self.engine in _UNDRAFTED

    @property
    def lengths_untold(self) -> bool:
        """Whether drafts may have been shorter than the places that are told."""
        return not self.full and not self.exact

    @property
    def first_untold(self) -> int:
        """The first place of which it is then not known how many drafts came to it."""
        return 2 - self.undrafted

    def at_most(self, depth: Depth) -> bool:
        """Whether ``tested`` is a bound there: acceptance is at least what is told."""
        return self.lengths_untold and depth.depth >= self.first_untold

    def bounded(self, depth: Depth) -> Depth:
        """The depth without the upper end of an interval that is not known."""
        return replace(depth, high=None) if self.at_most(depth) else depth

    def to_json(self) -> dict[str, Any]:
        more = {"source": LABEL, "accepted_of_drafted": self.accepted_of_drafted}
        return more | asdict(self)


def summed(records: Sequence[Served], kind: str, notes: Sequence[str] = ()) -> Counts:
    rounds, drafted, accepted, tokens = (
        _sum([getattr(each, name) for each in records])
        for name in ("rounds", "drafted", "accepted", "tokens")
    )
    histograms = [each.histogram for each in records if each.histogram is not None]
    order = [pair for each in records for pair in each.order or ()]
    taus = [tau for each in records if (tau := each.tau()) is not None]
    tau = 1 + accepted / rounds if accepted is not None and rounds else None
    if tau is None and len(taus) == len(records):
        tau = float(np.mean(taus))
    exact = bool(order) and len(order) == rounds
    depths = _depths(records, rounds, order if exact else None)
    lengths = {length for _, length in order}
    full = len(lengths) == 1 if exact else _full(records, rounds, drafted)
    if full is False and not exact:  # how many drafts came to place 2 is then not known
        unknown = (replace(each, tested=None, low=None, high=None) for each in depths[1:])
        depths = (*depths[:1], *unknown)
    found = Counts(
        engine=", ".join(dict.fromkeys(each.engine for each in records)),
        kind=kind,
        records=len(records),
        rounds=rounds,
        fits=_fits(records),
        drafted=drafted,
        accepted=accepted,
        tokens=tokens,
        tau=tau,
        histogram=_added(histograms) if len(histograms) == len(records) else None,
        by_depth=depths,
        full=full,
        exact=exact,
        span=(min(taus), max(taus)) if len(taus) > 1 else None,
        order=tuple(each.order for each in records),
        notes=tuple(notes),
    )
    return replace(found, by_depth=tuple(map(found.bounded, depths)))


def _full(records: Sequence[Served], rounds: int | None, drafted: int | None) -> bool | None:
    """Whether every draft had all places. No draft is longer than the places that are listed."""
    places = max((len(each.kept() or ()) for each in records), default=0)
    if not places or rounds is None or drafted is None:
        return None
    if drafted < places * rounds:
        return False
    listed = all(each.places is not None and len(each.places) == places for each in records)
    exact = not any(each.fits for each in records)
    return True if listed and exact and drafted == places * rounds else None


def _fits(records: Sequence[Served]) -> tuple[int, int] | None:
    if not any(each.fits for each in records):
        return None
    low, high = zip(*(each.fits or (each.rounds or 0,) * 2 for each in records), strict=True)
    return sum(low), sum(high)


def _depths(
    records: Sequence[Served],
    rounds: int | None,
    order: Sequence[tuple[int, int]] | None,
) -> tuple[Depth, ...]:
    kept = [found for each in records if (found := each.kept()) is not None]
    if rounds and len(kept) == len(records):
        lists = zip(records, kept, strict=True)
        partly = [len(found) for each, found in lists if sum(found) < FULLY * (each.accepted or 0)]
        off = _added([each.off for each in records])
        return by_place(_added(kept)[: min(partly, default=None)], rounds, order, off)
    shares = [found for each in records if (found := each.shares()) is not None]
    if not shares or len(shares) < len(records) or len(set(map(len, shares))) > 1:
        return ()
    return by_rate(tuple(float(np.mean(of)) for of in zip(*shares, strict=True)))


def by_place(
    kept: Sequence[int],
    rounds: int,
    order: Sequence[tuple[int, int]] | None = None,
    off: Sequence[int] = (),
) -> tuple[Depth, ...]:
    """Acceptance by place of chains.

    kept    rounds that accepted place 1, 2, …
    order   accepted and drafted tokens of every round, so that a round whose draft ended does not
            count at the place after; None: as if every draft were long enough
    off     by how much each of ``kept`` may be off; (): exact
    """
    found, tau = list[Depth](), 1.0
    longest = max((drafted for _, drafted in order or ()), default=0)
    kept = (*kept, *(0 for _ in range(longest - len(kept))))
    doubts = (0, *off, *(0 for _ in kept))  # of all rounds, then by place
    for depth, (before, accepted) in enumerate(pairwise((rounds, *kept)), 1):
        tested = before
        if order is not None:
            tested = sum(taken >= depth - 1 and drafted >= depth for taken, drafted in order)
        if not tested:
            break
        tau += accepted / rounds
        above, own = doubts[depth - 1], doubts[depth]
        fewest = max(tested - above, 1)
        low = float(wilson(max(accepted - own, 0), tested + above)[0])
        high = float(wilson(min(accepted + own, fewest), fewest)[1])
        shares = (accepted / rounds, accepted / tested)
        found.append(Depth(depth, accepted, tested, *shares, low, high, tau, (own, above)))
    return tuple(found)


def by_rate(rates: Sequence[float]) -> tuple[Depth, ...]:
    """The same of shares whose rounds are not told."""
    found, tau = list[Depth](), 1.0
    for depth, (before, rate) in enumerate(pairwise((1.0, *rates)), 1):
        if not before:
            break
        tau += rate
        found.append(Depth(depth, None, None, rate, rate / before, None, None, tau))
    return tuple(found)


def _added(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    longest = max(map(len, rows), default=0)
    return tuple(sum(row[n] for row in rows if n < len(row)) for n in range(longest))


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def strip(order: Sequence[Sequence[int]]) -> str:
    """A sign for each round: how many of its drafted tokens were accepted, in order."""
    signs = "▁▂▃▄▅▆▇█"
    shares = (accepted / drafted if drafted else 0.0 for accepted, drafted in order)
    return "".join(signs[min(7, int(share * 8))] for share in shares)
