"""Conclusions from the trials of a drafter: which mistake fits best, and whether it is good.

Shapes: P places, L drafted depths, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.drafters.expected import CHANCE, Expected, Shortfall, errors, mean_of
from analysis.drafters.measuring import HEATS, Measured
from analysis.drafters.mistakes import NO_FEATURES, OWN_STATE
from analysis.drafters.trials import Trial
from analysis.numbers import number, percent, tau
from core.rounds.draft import Array
from core.stats import wilson

WORTH = 1.05  # times the overlap of q and p (1 − TVD) and the accepted tokens, to deserve a name
LIVES = 0.1  # accepted tokens a place, or nothing says that it would work so
HARDLY = 0.1  # share of places at depth 1, below which q does not follow p
GENTLE, CLIFF = 0.6, 0.4  # of what is right one depth before
MISFIT = 0.1  # nats that another temperature of q saves a place, to deserve a remark
LITTLE = 0.9  # share of the acceptance that is left without features
UNCHANGED = 1e-3  # mean change of TVD, of the best token's number and of its log q
RIVALS = 3  # as good mistakes that a sentence names
MOST = 0.5  # of the accepted tokens that are missing, or what fits better is no cause by itself
LOST = 1e-3  # chance that a pass rules out a mistake that deserves a name, or the best one

# verdicts
NAMED = "mistake named"
BETTER = "better, not yet good"
BAD = "bad, no mistake explains it"
GOOD = "as expected"
NOTHING = "no mistake fits"  # and what is expected is not known


@dataclass(frozen=True, eq=False)
class Signature(Measured):
    """A trial's outcome."""

    trial: Trial

    @property
    def accepted(self) -> Array:
        """Tokens of the best chain that would be accepted at each place, [P]."""
        return self.right.cumprod(1).sum(1)

    @property
    def tau(self) -> float:
        """Mean of accepted + 1 over the places."""
        return 1 + float(self.accepted.mean())

    @property
    def acceptance(self) -> Array:
        """The share that is right at each depth [L] of the places whose chain was right before; NaN
        where none was."""
        alive = self.right.cumprod(1).sum(0)
        before = np.concatenate([[len(self.right)], alive[:-1]])
        return np.divide(alive, before, out=np.full(len(alive), np.nan), where=before > 0)

    @property
    def follows(self) -> float:
        """The share of places whose best token at depth 1 is right."""
        return float(self.right[:, 0].mean())

    @property
    def hardly_follows(self) -> bool:
        """Whether that is below ``HARDLY``, and no healthy share by these places' interval."""
        high = wilson(self.right[:, 0].sum(), len(self.right))[1]
        return self.follows < HARDLY and bool(high < 2 * HARDLY)


@dataclass(frozen=True, eq=False)
class Wiring:
    """The configuration's signature and those of all mistakes that apply.

    units     int [P]: the stretch of text that each place lies in. A mistake's signature has only
              those places that were needed to rule it out
    mean_p    [V]: the mean of p over the texts' places; ``used`` [V]: how often each token is in
              them
    expected  what a healthy drafter of this kind reaches; None: not known
    """

    configured: Signature
    mistakes: tuple[Signature, ...]
    units: Array
    mean_p: Array
    used: Array
    expected: Expected | None = None

    # ── one mistake ──────────────────────────────────────────────────────────────────────────────

    def ratio(self, other: Signature) -> float:
        """How many times as much it accepts as the configuration at the same places."""
        own = self.configured.accepted[self._places(other)].mean()
        return float(other.accepted.mean() / own) if own else float("inf")

    def gain(self, other: Signature) -> Array:
        """How much nearer in TVD it is at each of its places, over the depths that it speaks of."""
        return np.nanmean(self.configured.tvd[self._places(other)] - other.tvd, axis=1)

    def better(self, other: Signature) -> bool:
        """Whether it fits the target better, and would be a cause."""
        return bool(other.trial.cause) and self._nearer(other)

    def _nearer(self, other: Signature) -> bool:
        """Whether it is nearer in TVD beyond chance, and more is accepted."""
        gain = self.gain(other)
        worth = gain.mean() >= self._deserving(other)
        return bool(worth and self._lives(other) and self._beyond(self._chance, gain, other.at))

    def near(self) -> tuple[Signature, ...]:
        """The mistakes that more places could make the one that is named, and those whose
        indifference says something. All have the same places."""
        alive = [each for each in self.mistakes if each.trial.cause and self._lives(each)]
        best = max(alive, key=lambda each: self.gain(each).mean(), default=None)
        return tuple(m for m in self.mistakes if m.trial.moot or not self._ruled_out(m, best))

    def _ruled_out(self, other: Signature, best: Signature | None) -> bool:
        """Whether its gain is too small beyond chance: for a name, or beside the best one's."""
        gain = self.gain(other)
        if self._beyond(LOST, self._deserving(other) - gain, other.at):
            return True
        return best is not None and self._beyond(LOST, self.gain(best) - gain, other.at)

    def unchanged(self, other: Signature) -> bool:
        """Whether the trial made no difference to q. TVD alone cannot tell: a q that is nowhere
        near p, or flat, is as far from it after any change."""
        rows, own = self._places(other), self.configured
        pairs = ((own.tvd, other.tvd), (own.best, other.best), (own.sure, other.sure))
        return all(bool(np.nanmean(np.abs(a[rows] - b)) < UNCHANGED) for a, b in pairs)

    def _places(self, other: Signature) -> Array:
        """The configuration's rows at the places of another."""
        return np.searchsorted(self.configured.at, other.at)

    def _lives(self, other: Signature) -> bool:
        """Whether enough is accepted for a name."""
        return bool(other.accepted.mean() >= LIVES and self.ratio(other) >= WORTH)

    def _deserving(self, other: Signature) -> float:
        """The mean gain from which on it is worth a name."""
        spoken = np.isfinite(other.tvd).all(0)
        return float((WORTH - 1) * (1 - self.configured.tvd[self._places(other)][:, spoken].mean()))

    @property
    def _chance(self) -> float:
        """The chance that one trial looks better and is not; that of all of them is CHANCE."""
        return CHANCE / max(1, len(self.mistakes))

    def _beyond(self, chance: float, values: Array, at: Array) -> bool:
        """Whether the mean of values at places is above 0, but for this chance."""
        mean, error = mean_of(values, self.units[at])
        return mean > errors(chance, self.units[at]) * error

    # ── the verdict ──────────────────────────────────────────────────────────────────────────────

    @cached_property
    def nearest(self) -> Signature | None:
        """The mistake that fits best, if one fits better than the configuration; None where an
        input is not read: better is then by chance what mends nothing."""
        if any(not each.trial.cause for each in self.moot):
            return None
        whole = [each for each in self.mistakes if len(each.at) == len(self.units)]
        found = [each for each in whole if self.better(each)]  # others were ruled out beside one
        return max(found, key=lambda each: self.gain(each).mean(), default=None)

    @cached_property
    def made_good(self) -> float:
        """The part of what is missing that the nearest mistake makes good; NaN where what is
        expected is not known, or the drafter is not far below it."""
        best, own = self.nearest, self.configured
        if best is None or self.expected is None or not self.expected.short(own, self.units):
            return float("nan")
        return self.expected.made_good(own, best)

    @cached_property
    def cause(self) -> Signature | None:
        """The nearest mistake, if it explains most of what is wrong; None where it helps a little:
        a bad drafter may gain by a change that has nothing to do with what is wrong."""
        best, good = self.nearest, self.made_good
        if best is None:
            return None
        dead = best.hardly_follows and self.configured.hardly_follows
        return None if (good < MOST if np.isfinite(good) else dead) else best

    @cached_property
    def rivals(self) -> tuple[Signature, ...]:
        """The mistakes that fit better than the configuration, too, and worse than the nearest by
        no more than chance may do; the best first."""
        best = self.cause
        if best is None:
            return ()
        gain, found = self.gain(best), list[Signature]()
        for each in self.mistakes:
            if each is best or len(each.at) < len(best.at) or not self.better(each):
                continue
            if not self._beyond(CHANCE, gain - self.gain(each), best.at):
                found.append(each)
        return tuple(sorted(found, key=lambda each: -self.gain(each).mean()))

    @property
    def moot(self) -> tuple[Signature, ...]:
        """The mistakes that change nothing although they should."""
        return tuple(each for each in self.mistakes if each.trial.moot and self.unchanged(each))

    @cached_property
    def short(self) -> Shortfall | None:
        """How far below what is expected the drafter is, with its cause mended."""
        own = self.cause or self.configured
        return self.expected.short(own, self.units[own.at]) if self.expected else None

    @cached_property
    def verdict(self) -> str:
        """One of NAMED, BETTER, BAD, GOOD and NOTHING."""
        best = self.cause
        poor = self.short is not None or (best or self.configured).hardly_follows
        if best is not None:
            return BETTER if poor else NAMED
        if self.moot:
            return NAMED
        return BAD if poor else GOOD if self.expected else NOTHING

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults that are certain, a sentence each."""
        found = [f"{m.trial.name}: {m.trial.moot}" for m in self.moot]
        if self.cause is not None and self.verdict == NAMED:
            found.insert(0, f"{self._fits(self.cause)}: {self._or_rivals(self.cause)}")
        return tuple(found)

    def _or_rivals(self, best: Signature) -> str:
        """The cause, and what else it may be as far as these places tell."""
        told = [f"{each.trial.name} (τ {tau(each.tau)})" for each in self.rivals]
        if not told:
            return best.trial.cause
        more = f" or {len(told) - RIVALS} more" if len(told) > RIVALS else ""
        return (
            f"{best.trial.cause}. It may as well be {', '.join(told[:RIVALS])}{more}, whose fit is "
            "worse by no more than chance may do"
        )

    def _fits(self, best: Signature) -> str:
        often, own = self.ratio(best), self.configured
        more = (
            f"accepts {number(often, 1)}× as much"
            if np.isfinite(often)
            else "accepts, and the configuration nothing"
        )
        return (
            f"{best.trial.name} {more} (τ {tau(own.tau)} → {tau(best.tau)}, mean TVD "
            f"{number(own.tvd.mean())} → {number(float(np.nanmean(best.tvd)))})"
        )

    @property
    def said(self) -> tuple[str, ...]:
        """The verdict in sentences."""
        best, n, healthy = self.cause, len(self.units), self.expected
        plain = "No named mistake fits better than the configuration beyond what chance explains "
        plain += f"({n} places, {len(self.mistakes)} trials)"
        if self.verdict == NAMED:
            return (*self.faults, *((self._mended(best),) if best else ()))
        if self.verdict == BETTER and best is not None:
            return (
                f"Better, not yet good: {self._fits(best)}; {self._why(best)}. So it is not the "
                f"mistake, or not the only one. If it is one: {self._or_rivals(best)}",
                *self.faults,
            )
        if self.verdict == BAD:
            helps = self._helps(self.nearest) if self.nearest else plain
            return (f"Bad, and no mistake explains it: {self._why(self.configured)}. {helps}",)
        if healthy is None:
            return (f"{plain}. What a healthy drafter of this kind reaches here is not known",)
        if healthy.itself:
            return (f"{plain}. It is {healthy.source}: τ {tau(self.configured.tau)}",)
        told = ""
        if np.isfinite(healthy.tau):
            told = f": τ {tau(self.configured.tau)} against {tau(healthy.tau)}"
        chance = f"it is below {healthy.source} by no more than chance may do"
        if self.configured.tau >= healthy.tau:
            chance = f"it is not below {healthy.source}"
        return (f"{plain}, and {chance}{told}. More places would tell more",)

    def _helps(self, best: Signature) -> str:
        """Say how far the nearest mistake helps, where it is not the cause."""
        if np.isfinite(self.made_good):
            still = f"It makes good {percent(self.made_good)} of what is missing"
        else:
            still = f"With it {self._follows(best)}"
        return (
            f"Of {len(self.mistakes)} trials one fits best: {self._fits(best)}. {still}, so it is "
            "not the mistake, or not the only one"
        )

    def _mended(self, best: Signature) -> str:
        if self.expected is None or self.expected.itself:
            return (
                f"With it τ is {tau(best.tau)}; what a healthy drafter of this kind reaches here "
                "is not known, so something else may be wrong too"
            )
        return f"With it the drafter is not below {self.expected.source} by more than chance may do"

    def _why(self, own: Signature) -> str:
        """Why it is not good."""
        if self.short is not None and self.expected is not None:
            return self.short.sentence(self.expected.source)
        return self._follows(own)

    def _follows(self, own: Signature) -> str:
        return f"its best token at depth 1 is right at {percent(own.follows)} of the places"

    # ── beside the verdict ───────────────────────────────────────────────────────────────────────

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the numbers beside the named mistakes, a sentence each. None is a fault."""
        found = (
            self._hardly_follows(), self._cliff(), self._features(), self._own_state(), self._heat()
        )  # fmt: skip
        return tuple(note for note in found if note)

    def _hardly_follows(self) -> str:
        own = self.configured
        if not own.hardly_follows or self.cause is not None or self.moot:
            return ""  # a mistake with a name explains it, or the verdict says that it does not
        return (
            f"q hardly follows p: the best token at depth 1 is right at {percent(own.follows)} of "
            f"places, TVD {number(own.tvd[:, 0].mean())}. The drafter is untrained, of another "
            "target, or damaged, or the wiring has a mistake without a name"
        )

    def _cliff(self) -> str:
        """The first depth at which far fewer best tokens are right than one depth before, where
        the fall was gentle until then."""
        right = self.configured.right
        if self.cause is not None or self.moot:
            return ""  # a mistake with a name explains it
        shares = right.mean(0)
        for depth in range(2, len(shares)):
            first, before, here = shares[depth - 2 : depth + 1].tolist()
            lost = CLIFF * right[:, depth - 1] - right[:, depth]
            if before < GENTLE * first or here >= CLIFF * before:
                continue
            if self._beyond(CHANCE / len(shares), lost, self.configured.at):
                return (
                    f"a cliff at depth {depth + 1}: after the true tokens the best one is right at "
                    f"{percent(before)} of places at depth {depth} and at {percent(here)} there. "
                    "Deeper rows were not trained, or are fed or placed in another way"
                )
        return ""

    def _named(self, name: str) -> Signature | None:
        return next((each for each in self.mistakes if each.trial.name == name), None)

    def _features(self) -> str:
        none = self._named(NO_FEATURES)
        if (
            none is None
            or self.configured.hardly_follows  # it accepts as little of anything
            or self.unchanged(none)
            or not LITTLE <= (kept := self.ratio(none)) < np.inf
        ):
            return ""
        return (
            f"the features help little: with all of them zero it accepts {number(kept)}× as much. "
            "It was hardly trained on them, or what arrives is not what it was trained on"
        )

    def _own_state(self) -> str:
        """A remark on an MTP head that is not known to be good or miswired."""
        own = self._named(OWN_STATE)
        if self.verdict in (NAMED, GOOD) or own is None or not self._nearer(own):
            return ""
        return (
            f"beside the {OWN_STATE}, which decoding does not know yet, it accepts "
            f"{number(self.ratio(own), 1)}× as much. Healthy heads do so too, since p is made of "
            "that state. So this does not tell whether this head was trained beside it, with its "
            "inputs shifted by one"
        )

    def _heat(self) -> str:
        """A remark on a q that is much too sharp or too flat, where nothing else explains it."""
        own = self.configured
        if self.cause is not None or self.moot or own.hardly_follows:
            return ""  # a q that is elsewhere is always too sharp
        costs = np.nanmean(own.cross, axis=1)  # [P, H]
        before, *others = costs.T
        times, then = min(zip(HEATS[1:], others, strict=True), key=lambda each: each[1].mean())
        saved = before - then
        if saved.mean() < MISFIT or not self._beyond(self._chance, saved, own.at):
            return ""
        looks, at = ("sharp", "twice") if times > 1 else ("flat", "half")
        return (
            f"q is too {looks}: at {at} its temperature it costs {number(float(then.mean()))} nats "
            f"a token to code p, instead of {number(float(before.mean()))}, over {len(own.at)} "
            "places. A chain drafts the same tokens either way, but a tree's choice of nodes and "
            "sampled drafts suffer from it"
        )
