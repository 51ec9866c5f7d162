"""The wiring probe: a drafter on the target's own text, as configured and under named mistakes.

At places of a text that the target wrote, q of every depth is compared with p after the true tokens
before. A mistake that does better than the configuration, by more than chance, is what is wrong.
What is drafted is the chain of the drafter's best tokens, so no builder plays a part.

Every trial runs at a few places first. Those that may still be named go on to four times as many,
until all places are used.

Shapes: P places, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.drafters.expected import Expected
from analysis.drafters.measuring import AnsweredPrompt, Bench, Kept, Measured
from analysis.drafters.mistakes import MISTAKES
from analysis.drafters.signatures import GOOD, NAMED, Signature, Wiring
from analysis.drafters.trials import Subject, Trial
from analysis.numbers import number
from core.drafting.session import Drafter
from core.errors import UserError
from core.models.language import Language
from core.progress import At, Steps, part, silent
from core.ranges import Range
from core.rounds.draft import Array
from core.rounds.node import known

UNIT = 8  # tokens of text that are resampled together
LEAST_STRETCHES = 8  # such stretches, or the text is too short for a verdict
EARLY, TIMES = 8, 4  # places of the first pass, and how many times as many the next one has
MOST_LATE = 24  # trials of late mistakes that go beyond the first pass
TEXTS_DONE = 0.35  # about how much of the time has passed when the texts are there
CONFIGURED = Trial("", "as configured")


@dataclass(frozen=True)
class ProbePlan:
    """The size of a wiring probe: tokens of each text, and how many lie between two places."""

    new_tokens: int = 96
    stride: int = 3

    def check(self, texts: int = LEAST_STRETCHES, depth: int = 1) -> None:
        """Raises UserError with one sentence when a value is out of range, and for so few texts
        that a verdict cannot follow, however long their answers are. ``depth``: of the drafter; no
        place is so near an answer's end."""
        Range(8, 4096).check("the new tokens", self.new_tokens)
        Range(1, 64).check("the stride", self.stride)
        _enough(texts * -(-max(0, self.new_tokens - depth) // UNIT), "have at most")


@dataclass(frozen=True, eq=False)
class Healthy:
    """A drafter that is known to be good and what it is called; None: it is the one examined."""

    source: str
    drafter: Drafter | None = None


@dataclass(frozen=True, eq=False)
class Alive:
    """A first result at a few places of the first text, as soon as it is written.

    mean_p  [V], the mean of p over this text; ``used`` [V]: how often each token is in it
    """

    found: Measured
    mean_p: Array
    used: Array

    @property
    def sentence(self) -> str:
        right, count = int(self.found.right[:, 0].sum()), len(self.found.at)
        times = "time" if right == 1 else "times"
        word = "alive" if right else "it looks dead"
        return (
            f"{word}: at {count} places of the first text its best token at depth 1 is right "
            f"{right} {times} (TVD {number(float(self.found.tvd[:, 0].mean()), 2)})"
        )


@dataclass(frozen=True, eq=False)
class WiringProbe:
    """The wiring probe of one drafter.

    expected  what a healthy drafter of its kind reaches, or such a drafter; None: not known
    who       the drafter's name in ``kept``
    kept      what other probes of the target have read, and what this one measures: one that was
              stopped goes on
    alive     hears what a few places show
    """

    language: Language
    drafter: Drafter
    prompts: Sequence[str]
    plan: ProbePlan = ProbePlan()
    expected: Expected | Healthy | None = None
    who: str = ""
    kept: Kept | None = None
    alive: Callable[[Alive], None] = lambda alive: None

    def run(self, report: Steps = silent) -> Wiring:
        """Run the drafter under every mistake that applies, on the target's answers to the prompts.

        Raises UserError for a plan out of range, prompts whose answers are too short, or a drafter
        that does not tell q.
        """
        self.plan.check(len(self.prompts), self.drafter.max_depth)
        bench, units = self._bench(_span(report, 0.0, TEXTS_DONE))
        longest = max(len(text.frame) + len(text.answer) for text in bench.texts)
        subject = Subject(self.drafter, self.language, longest, bench.kept.layers)
        share = _halves(report)
        early = [t for row in MISTAKES if not row.late for t in row.trials(subject)]
        found = _narrowed(bench, units, [CONFIGURED, *early], share)
        wiring = Wiring(found[0], tuple(found[1:]), units, bench.mean_p, self._used(bench.texts))
        wiring = replace(wiring, expected=self._expectation(bench, found[0], next(share)))
        if wiring.verdict in (NAMED, GOOD):
            return wiring
        late = [t for row in MISTAKES if row.late for t in row.trials(subject)]
        more = _narrowed(bench, units, [CONFIGURED, *late], share, MOST_LATE)[1:]
        return replace(wiring, mistakes=(*wiring.mistakes, *more))

    def _bench(self, report: Steps) -> tuple[Bench, Array]:
        """The texts and their places, and the stretch that each place lies in."""
        kept, depth = self.kept or Kept(), self.drafter.max_depth
        texts, count = list[AnsweredPrompt](), len(self.prompts)
        for n, prompt in enumerate(self.prompts):
            tick = part(report, n, count, f"the target's text {n + 1} of {count}")
            text = kept.text(self.language, prompt, self.plan.new_tokens, tick)
            if len(text.answer) > depth + 1:
                texts.append(text)
                if len(texts) == 1:
                    self._look(text, kept, lambda _, tick=tick: tick(1.0))
        if not texts:
            raise UserError(f"every answer is shorter than {depth + 2} tokens")
        places = [self._places(text) for text in texts]
        bench = Bench(self.language, self.drafter, texts, places, kept, self.who)
        return bench, _stretches(places)

    def _places(self, text: AnsweredPrompt) -> Array:
        return np.arange(1, len(text.answer) - self.drafter.max_depth, self.plan.stride)

    def _used(self, texts: Sequence[AnsweredPrompt]) -> Array:
        """How often each token is in the answers, [V]."""
        tokens = [token for text in texts for token in text.answer]
        return np.bincount(tokens, minlength=self.language.vocabulary)

    def _look(self, text: AnsweredPrompt, kept: Kept, tick: At) -> None:
        """Tell what a few places of a text show."""
        places = self._places(text)
        bench = Bench(self.language, self.drafter, [text], [places], kept, self.who)
        few = _spread(len(places), EARLY)
        (found,) = bench.run([CONFIGURED], few, lambda done, what: tick(done))
        self.alive(Alive(found, bench.mean_p, self._used([text])))

    def _expectation(self, bench: Bench, own: Measured, report: Steps) -> Expected | None:
        """``own``: what the configuration reached at all places."""
        if not isinstance(self.expected, Healthy):
            return self.expected
        source, drafter, depths = self.expected.source, self.expected.drafter, own.right.shape[1]
        if drafter is None:
            return replace(Expected.of(source, own, depths), itself=True)
        other = replace(bench, drafter=drafter, who=f"{self.who} beside {source}")
        everywhere = np.ones(sum(map(len, bench.places)), bool)
        (found,) = other.run([Trial("", source)], everywhere, report)
        return Expected.of(source, found, depths)


def _span(report: Steps, low: float, high: float) -> Steps:
    return lambda done, what: report(low + (high - low) * done, what)


def _halves(report: Steps) -> Iterator[Steps]:
    """Reports of parts of what is left after the texts, each of half of it: how many parts there
    will be is not known."""
    low = TEXTS_DONE
    while True:
        high = (1 + low) / 2
        yield _span(report, low, high)
        low = high


def _spread(count: int, some: int) -> Array:
    """Which of so many places are about ``some`` evenly spread ones, bool; all if that is most."""
    chosen = np.zeros(count, bool)
    chosen[np.linspace(0, count - 1, min(some, count)).round().astype(int)] = True
    return chosen if 2 * some <= count else np.ones(count, bool)


def _narrowed(
    bench: Bench,
    units: Array,
    trials: Sequence[Trial],
    shares: Iterator[Steps],
    most: int | None = None,
) -> list[Signature]:
    """The signatures of trials, the configuration first. Those that more places cannot help stay
    at the places that showed it; at most ``most`` go on, those that fit best (None: all)."""
    found, done, some = dict[str, Signature](), np.zeros(len(units), bool), EARLY
    near = list(trials)
    while not done.all():
        fresh = _spread(len(units), some) & ~done
        for trial, more in zip(near, bench.run(near, fresh, next(shares)), strict=True):
            before = [found[trial.name]] if trial.name in found else []
            whole = Measured.joined([*before, more])
            found[trial.name] = Signature(**vars(whole), trial=trial)
        own, *others = (found[trial.name] for trial in near)
        none = np.zeros(0)
        early = Wiring(own, tuple(others), units, none, none)
        left = sorted(early.near(), key=lambda each: -early.gain(each).mean())[:most]
        near = [near[0], *(each.trial for each in left)]
        done, some = done | fresh, some * TIMES
    return [found[trial.name] for trial in trials]


def _stretches(places: Sequence[Array]) -> Array:
    """The number of the stretch of ``UNIT`` tokens that each place of each text lies in.

    Raises UserError for too few of them.
    """
    marks = [(text, place // UNIT) for text, some in enumerate(places) for place in some.tolist()]
    found = np.unique(np.array(marks), axis=0, return_inverse=True)[1].ravel()
    _enough(int(found.max()) + 1, "have")
    return found


def _enough(stretches: int, have: str) -> None:
    """Raises UserError for too few stretches."""
    if stretches < LEAST_STRETCHES:
        raise UserError(
            f"the answers {have} {stretches} stretches of {UNIT} tokens, and a verdict needs "
            f"{LEAST_STRETCHES}: give more or longer texts"
        )


def to_json(wiring: Wiring) -> dict[str, Any]:
    """The signatures and the verdict as plain lists and numbers, for a CI."""
    nearest, healthy = wiring.nearest, wiring.expected

    def signature(each: Signature) -> dict[str, Any]:
        return {
            "mistake": each.trial.mistake,
            "places": len(each.at),
            "name": each.trial.name,
            "tau": each.tau,
            "acceptance": _known(each.acceptance),
            "ratio": known(wiring.ratio(each)),
            "gain": known(float(wiring.gain(each).mean())),
            "right": each.right.mean(0).tolist(),
            "tvd": _known(each.tvd.mean(0)),
            "better": each is not wiring.configured and wiring.better(each),
            "unchanged": each is not wiring.configured and wiring.unchanged(each),
        }

    return {
        "places": len(wiring.units),
        "verdict": wiring.verdict,
        "said": list(wiring.said),
        "nearest": None if nearest is None else nearest.trial.name,
        "rivals": [each.trial.name for each in wiring.rivals],
        "faults": list(wiring.faults),
        "notes": list(wiring.notes),
        "expected": None
        if healthy is None
        else {
            "source": healthy.source,
            "tau": known(healthy.tau),
            "right": _known(healthy.right.mean(0)),
        },
        "configured": signature(wiring.configured),
        "mistakes": [signature(each) for each in wiring.mistakes],
    }


def _known(values: Array) -> list[float | None]:
    return [known(value) for value in values]
