"""The wiring probe: a drafter on the target's own text, as configured and under named mistakes.

At places of a text that the target wrote, q of every depth is compared with p after the true tokens
before. A mistake that does better than the configuration, by more than chance, is what is wrong.
What is drafted is the chain of the drafter's best tokens, so no builder plays a part.

Every trial runs at some of the places first. Those that may still be named run at all places.

Shapes: P places, L drafted depths, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.drafters.measuring import Bench, Kept, Measured, Report, silent, texts_of
from analysis.drafters.mistakes import MISTAKES, NO_FEATURES
from analysis.drafters.trials import Subject, Trial
from analysis.numbers import percent
from core.drafting.session import Drafter
from core.errors import UserError
from core.models.language import Language
from core.rounds.draft import Array
from core.stats import resample

UNIT = 8  # tokens of text that are resampled together
LEAST = 8  # such stretches, or the text is too short for a verdict
SURE = 4.0  # standard errors: some forty trials may each look better by chance
WORTH = 1.05  # times the overlap of q and p (1 − TVD) and the accepted tokens, to deserve a name
LIVES = 0.1  # accepted tokens a place, or nothing says that it would work so
HARDLY = 0.1  # share of places at depth 1, below which q does not follow p
GENTLE, CLIFF = 0.6, 0.4  # of what is right one depth before
LITTLE = 0.9  # of what is accepted, that is left without features
SEEN = 0.02  # overlap of q and p from which on a change of q shows
UNCHANGED = 1e-3  # mean change of TVD
FIRST, FEWEST = 4, 24  # the first pass has every fourth place, but not fewer
RULED_OUT = 3.0  # standard errors below what deserves a name, or below the best one
# about how much of the time has passed when the texts are there, and the first pass is done
TEXTS_DONE, FIRST_DONE = 0.35, 0.85


@dataclass(frozen=True)
class Plan:
    """How much is measured: tokens of each text, and how many tokens lie between two places."""

    new_tokens: int = 96
    stride: int = 3

    def check(self) -> None:
        """Raises UserError with one sentence when a value is out of range."""
        for name, least, most in (("new_tokens", 8, 4096), ("stride", 1, 64)):
            if not least <= (value := getattr(self, name)) <= most:
                word = name.replace("_", " ")
                raise UserError(f"the {word} must be {least} to {most}, not {value}")


@dataclass(frozen=True, eq=False)
class Signature:
    """What a trial measured. ``mistake``: the name of its mistake; "" for the configuration."""

    mistake: str
    trial: Trial
    found: Measured

    @property
    def at(self) -> Array:
        return self.found.at

    @property
    def right(self) -> Array:
        return self.found.right

    @property
    def tvd(self) -> Array:
        return self.found.tvd

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
        """By depth, [L]: of the places whose chain was right before, how many are right there; NaN
        where none was."""
        alive = self.right.cumprod(1).sum(0)
        before = np.concatenate([[len(self.right)], alive[:-1]])
        return np.divide(alive, before, out=np.full(len(alive), np.nan), where=before > 0)


@dataclass(frozen=True, eq=False)
class Wiring:
    """The configuration's signature and those of all mistakes that apply.

    units   int [P]: the stretch of text that each place lies in. A mistake's signature has those of
            the first pass only where these rule it out
    mean_p  [V]: the mean of p over the texts' places; ``used`` [V]: how often each token is in them
    """

    configured: Signature
    mistakes: tuple[Signature, ...]
    units: Array
    mean_p: Array
    used: Array

    def ratio(self, other: Signature) -> float:
        """How many times as much it accepts as the configuration at the same places."""
        own = self.configured.accepted[self._places(other)].mean()
        return float(other.accepted.mean() / own) if own else float("inf")

    def gain(self, other: Signature) -> Array:
        """How much nearer in TVD it is at each of its places, over the depths that it speaks of."""
        return np.nanmean(self.configured.tvd[self._places(other)] - other.tvd, axis=1)

    def better(self, other: Signature) -> bool:
        """Whether it fits the target better: nearer in TVD beyond chance, and more accepted."""
        gain = self.gain(other)
        mean, error = self._mean(gain, other.at)
        worth = gain.mean() >= self._deserving(other)
        return bool(worth and self._lives(other) and mean > SURE * error)

    def near(self) -> tuple[Signature, ...]:
        """The mistakes that more places could make the one that is named. All have the same."""
        alive = [each for each in self.mistakes if self._lives(each)]
        best = max(alive, key=lambda each: self.gain(each).mean(), default=None)
        return tuple(each for each in self.mistakes if not self._ruled_out(each, best))

    def _ruled_out(self, other: Signature, best: Signature | None) -> bool:
        """Whether its gain is too small beyond chance: for a name, or beside the best one's."""
        gain = self.gain(other)
        mean, error = self._mean(gain, other.at)
        if mean + RULED_OUT * error < self._deserving(other):
            return True
        if best is None:
            return False
        behind, error = self._mean(self.gain(best) - gain, other.at)
        return behind > RULED_OUT * error

    def unchanged(self, other: Signature) -> bool:
        """Whether the trial made no difference to q. Where q is nowhere near p, TVD cannot tell."""
        own = self.configured.tvd[self._places(other)]
        change = np.nanmean(np.abs(own - other.tvd))
        return bool(change < UNCHANGED and 1 - own.mean() >= SEEN)

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

    def _mean(self, values: Array, at: Array) -> tuple[float, float]:
        """The mean of values at places and its standard error, by drawing stretches anew."""
        units = np.unique(self.units[at], return_inverse=True)[1]
        sums, counts = np.bincount(units, values), np.bincount(units)
        draws, few = resample(sums, counts), (len(sums) / max(1, len(sums) - 1)) ** 0.5
        return float(draws.mean()), float(max(draws.std() * few, 1e-9))

    @property
    def nearest(self) -> Signature | None:
        """The mistake that fits best, if one fits better than the configuration."""
        found = [each for each in self.mistakes if self.better(each)]
        return max(found, key=lambda each: self.gain(each).mean(), default=None)

    @property
    def moot(self) -> tuple[Signature, ...]:
        """The mistakes that change nothing although they should."""
        return tuple(each for each in self.mistakes if each.trial.moot and self.unchanged(each))

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, a sentence each; empty when the configuration fits best."""
        own, found = self.configured, [f"{m.trial.name}: {m.trial.moot}" for m in self.moot]
        if (best := self.nearest) is not None:
            often, trial = self.ratio(best), best.trial
            more = (
                f"accepts {often:.1f}× as much"
                if np.isfinite(often)
                else "accepts, and the configuration nothing"
            )
            found.insert(
                0,
                f"{trial.name} {more} (τ {own.tau:.2f} → {best.tau:.2f}, mean TVD "
                f"{own.tvd.mean():.2f} → {np.nanmean(best.tvd):.2f}): {trial.cause}",
            )
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers say beside the named mistakes, a sentence each. None is a fault."""
        found = (self._hardly_follows(), self._cliff(), self._features())
        return tuple(note for note in found if note)

    def _hardly_follows(self) -> str:
        own = self.configured
        right = float(own.right[:, 0].mean())
        if right >= HARDLY:
            return ""
        return (
            f"q hardly follows p: the best token at depth 1 is right at {percent(right)} of "
            f"places, TVD {own.tvd[:, 0].mean():.2f}. The weights are untrained, of another "
            "target, or damaged, or the wiring has a mistake without a name"
        )

    def _cliff(self) -> str:
        """The first depth at which far fewer best tokens are right than one depth before, where
        the fall was gentle until then."""
        right = self.configured.right
        shares = right.mean(0)
        for depth in range(2, len(shares)):
            first, before, here = shares[depth - 2 : depth + 1].tolist()
            lost = right[:, depth - 1].astype(float) - right[:, depth]
            mean, error = self._mean(lost, self.configured.at)
            if before >= GENTLE * first and here < CLIFF * before and mean > SURE * error:
                return (
                    f"a cliff at depth {depth + 1}: after the true tokens the best one is right at "
                    f"{percent(before)} of places at depth {depth} and at {percent(here)} there. "
                    "Deeper rows were not trained, or are fed or placed in another way"
                )
        return ""

    def _features(self) -> str:
        none = next((m for m in self.mistakes if m.trial.name == NO_FEATURES), None)
        if (
            none is None
            or self.unchanged(none)
            or not LITTLE <= (kept := self.ratio(none)) < np.inf
        ):
            return ""
        return (
            f"the features help little: with all of them zero it accepts {kept:.2f}× as much. It "
            "was hardly trained on them, or what arrives is not what it was trained on"
        )


CONFIGURED = Trial("as configured", "")


def probe(
    language: Language,
    drafter: Drafter,
    prompts: Sequence[str],
    plan: Plan = Plan(),
    report: Report = silent,
    kept: Kept | None = None,
) -> Wiring:
    """Run the drafter under every mistake that applies, on the target's answers to the prompts.

    ``kept`` holds what a probe of the same drafter, prompts and plan has measured, and what this
    one measures: one that was stopped goes on.

    Raises UserError for a plan out of range, prompts whose answers are too short, or a drafter that
    does not tell q.
    """
    plan.check()
    kept = {} if kept is None else kept
    depth, writing = drafter.max_depth, _part(report, 0.0, TEXTS_DONE)
    texts = texts_of(language, prompts, plan.new_tokens, depth, writing, kept)
    if not texts:
        raise UserError(f"every answer is shorter than {depth + 2} tokens")
    places = [np.arange(1, len(text.answer) - depth, plan.stride) for text in texts]
    units = _stretches(places)
    longest = max(len(text.frame) + len(text.answer) for text in texts)
    subject = Subject(drafter, language, longest)
    trials = [("", CONFIGURED)]
    trials += [(mistake.name, trial) for mistake in MISTAKES for trial in mistake.trials(subject)]
    bench, first = Bench(language, drafter, texts, places, kept), _first_pass(len(units))
    passing = _part(report, TEXTS_DONE, FIRST_DONE)
    measured = bench.run([trial for _, trial in trials], first, passing)
    found = [Signature(*trial, some) for trial, some in zip(trials, measured, strict=True)]
    used = [token for text in texts for token in text.answer]
    counts = np.bincount(used, minlength=language.vocabulary)
    early = Wiring(found[0], tuple(found[1:]), units, bench.mean_p, counts)
    return early if first.all() else _finished(bench, early, ~first, report)


def _part(report: Report, low: float, high: float) -> Report:
    """The report of a part of the work."""
    return lambda done, what: report(low + (high - low) * done, what)


def _first_pass(places: int) -> Array:
    """Which of so many places the first pass has, bool, evenly spread."""
    chosen = np.zeros(places, bool)
    chosen[:: max(1, min(FIRST, places // FEWEST))] = True
    return chosen


def _finished(bench: Bench, early: Wiring, rest: Array, report: Report) -> Wiring:
    """The second pass, at the other places: the configuration, and what may still be named."""
    near = [early.configured, *early.near()]
    trials, passing = [each.trial for each in near], _part(report, FIRST_DONE, 1.0)
    whole = {
        each.trial: replace(each, found=Measured.joined([each.found, more]))
        for each, more in zip(near, bench.run(trials, rest, passing), strict=True)
    }
    mistakes = tuple(whole.get(each.trial, each) for each in early.mistakes)
    return replace(early, configured=whole[early.configured.trial], mistakes=mistakes)


def _stretches(places: Sequence[Array]) -> Array:
    """The number of the stretch of ``UNIT`` tokens that each place of each text lies in.

    Raises UserError for too few of them.
    """
    marks = [(text, place // UNIT) for text, some in enumerate(places) for place in some.tolist()]
    found = np.unique(np.array(marks), axis=0, return_inverse=True)[1].ravel()
    if (count := int(found.max()) + 1) < LEAST:
        raise UserError(
            f"the answers are {count} stretches of {UNIT} tokens and a verdict needs {LEAST}: "
            "give more or longer texts"
        )
    return found


def to_json(wiring: Wiring) -> dict[str, Any]:
    """The signatures and the verdict as plain lists and numbers, for a CI."""
    nearest = wiring.nearest

    def signature(each: Signature) -> dict[str, Any]:
        return {
            "mistake": each.mistake,
            "places": len(each.at),
            "name": each.trial.name,
            "tau": each.tau,
            "acceptance": _known(each.acceptance),
            "ratio": _finite(wiring.ratio(each)),
            "gain": _finite(float(wiring.gain(each).mean())),
            "right": each.right.mean(0).tolist(),
            "tvd": _known(each.tvd.mean(0)),
            "better": each is not wiring.configured and wiring.better(each),
            "unchanged": each is not wiring.configured and wiring.unchanged(each),
        }

    return {
        "places": len(wiring.units),
        "nearest": None if nearest is None else nearest.trial.name,
        "faults": list(wiring.faults),
        "notes": list(wiring.notes),
        "configured": signature(wiring.configured),
        "mistakes": [signature(each) for each in wiring.mistakes],
    }


def _known(values: Array) -> list[float | None]:
    return [_finite(float(value)) for value in values]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
