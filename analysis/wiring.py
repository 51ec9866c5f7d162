"""The wiring probe: a drafter on the target's own text, as configured and under named mistakes.

At places of a text that the target wrote, q of every depth is compared with p after the true tokens
before. A mistake that does better than the configuration, by more than chance, is what is wrong.
What is drafted is the chain of the drafter's best tokens, so no builder plays a part.

Shapes: P places, L drafted depths, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis.mistakes import MISTAKES, final_norm
from analysis.probe import tvd
from analysis.trials import Passage, Subject, Trial
from core.decoding.decode import Decoder, decode
from core.decoding.request import Settings
from core.drafting.session import BatchDrafter, Drafter, DraftSession
from core.errors import UserError
from core.methods.names import PLAIN
from core.models.language import Language
from core.models.target import Target
from core.rounds.draft import Array, Draft
from core.rounds.round import GREEDY, new_tokens
from core.stats import resample

AT_ONCE = 16  # places that share a pass of a drafter
UNIT = 8  # tokens of text that are resampled together
LEAST = 8  # such stretches, or the text is too short for a verdict
SURE = 4.0  # standard errors: some forty trials may each look better by chance
WORTH = 1.05  # times the overlap of q and p (1 − TVD) and the accepted tokens, to deserve a name
LIVES = 0.1  # accepted tokens a place, or nothing says that it would work so
UNCHANGED = 1e-3  # mean change of TVD
Report = Callable[[float, str], None]


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
    """What a trial measured.

    mistake  the name of its mistake; "" for the configuration
    right    bool [P, L]: the drafter's best token at that depth is the target's; as configured that
             is the text's, in another frame it need not be
    tvd      float32 [P, L]: ½ Σ_v |q − p|; NaN at a depth that the trial leaves without a row
    """

    mistake: str
    trial: Trial
    right: Array
    tvd: Array

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

    units   int [P]: the stretch of text that each place lies in
    mean_p  [V]: the mean of p over the texts' places; ``used`` [V]: how often each token is in them
    """

    configured: Signature
    mistakes: tuple[Signature, ...]
    units: Array
    mean_p: Array
    used: Array

    def ratio(self, other: Signature) -> float:
        """How many times as much it accepts as the configuration."""
        own = self.configured.accepted.mean()
        return float(other.accepted.mean() / own) if own else float("inf")

    def gain(self, other: Signature) -> Array:
        """How much nearer in TVD it is at each place, [P], over the depths that it speaks of."""
        return np.nanmean(self.configured.tvd - other.tvd, axis=1)

    def better(self, other: Signature) -> bool:
        """Whether it fits the target better: nearer in TVD beyond chance, and more accepted."""
        gain, spoken = self.gain(other), np.isfinite(other.tvd).all(0)
        overlap = 1 - self.configured.tvd[:, spoken].mean()
        worth = overlap + gain.mean() >= WORTH * overlap
        lives = other.accepted.mean() >= LIVES and self.ratio(other) >= WORTH
        return bool(worth and lives and self._sure(gain))

    def unchanged(self, other: Signature) -> bool:
        """Whether the trial made no difference to q."""
        return bool(np.nanmean(np.abs(self.configured.tvd - other.tvd)) < UNCHANGED)

    def _sure(self, gain: Array) -> bool:
        """Whether a mean over the places is above zero beyond chance."""
        sums, counts = np.bincount(self.units, gain), np.bincount(self.units)
        draws, few = resample(sums, counts), (len(sums) / (len(sums) - 1)) ** 0.5
        return bool(draws.mean() > SURE * max(draws.std() * few, 1e-9))

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


CONFIGURED = Trial("as configured", "")


def probe(
    language: Language,
    drafter: Drafter,
    prompts: Sequence[str],
    plan: Plan = Plan(),
    report: Report = lambda done, what: None,
) -> Wiring:
    """Run the drafter under every mistake that applies, on the target's answers to the prompts.

    Raises UserError for a plan out of range, prompts whose answers are too short, or a drafter that
    does not tell q.
    """
    plan.check()
    texts = list(_texts(language, prompts, plan, drafter.max_depth, report))
    if not texts:
        raise UserError(f"every answer is shorter than {drafter.max_depth + 2} tokens")
    places = [np.arange(1, len(text) - drafter.max_depth, plan.stride) for *_, text in texts]
    units = _stretches(places)
    longest = max(len(prompt) + len(answer) for _, prompt, answer in texts)
    subject = Subject(drafter, language, longest)
    trials = [("", CONFIGURED)]
    trials += [(mistake.name, trial) for mistake in MISTAKES for trial in mistake.trials(subject)]
    parts: list[list[tuple[Array, Array]]] = [[] for _ in trials]
    mean_p = np.zeros(language.vocabulary)
    for at, (prompt, frame, answer) in enumerate(texts):
        plain = passage_of(language, frame, answer)
        mean_p += plain.p.mean(0).cpu().numpy() / len(texts)
        for number, (_, trial) in enumerate(trials):
            report((at + number / len(trials)) / len(texts), trial.name)
            passage = plain
            if trial.frame is not None:
                passage = passage_of(language, trial.frame(prompt), answer)
            parts[number].append(measure(drafter, passage, trial, places[at]))
    found = []
    for (mistake, trial), some in zip(trials, parts, strict=True):
        right, far = (np.concatenate(each) for each in zip(*some, strict=True))
        found.append(Signature(mistake, trial, right, far))
    used = np.bincount([t for *_, answer in texts for t in answer], minlength=language.vocabulary)
    return Wiring(found[0], tuple(found[1:]), units, mean_p, used)


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


def _texts(
    language: Language, prompts: Sequence[str], plan: Plan, depth: int, report: Report
) -> Iterator[tuple[str, list[int], list[int]]]:
    """Each prompt, its token ids and the target's own greedy answer, if that is long enough."""
    target, settings = Target(language.model), Settings(1, plan.new_tokens, GREEDY, timed=False)
    for number, prompt in enumerate(prompts, 1):
        report(0.0, f"the target's text {number} of {len(prompts)}")
        ids = language.encode_chat(prompt)
        answer = new_tokens(list(decode(target, Decoder(PLAIN), ids, settings)))
        if len(answer) > depth + 1:
            yield prompt, ids, answer


@torch.inference_mode()
def passage_of(language: Language, frame: Sequence[int], answer: Sequence[int]) -> Passage:
    """The target on a prompt's ids and an answer after them."""
    layers = tuple(range(-1, language.model.config.get_text_config().num_hidden_layers))
    target = Target(language.model, layers, padded=False)
    with _recorded(final_norm(language)) as entered:
        before = target.prefill(list(frame), len(answer) + 1)
        scores = target.score(Draft.chain(answer))
    states = torch.cat([before.features, scores.features]).unflatten(-1, (len(layers), -1))
    tokens = torch.tensor([*frame, *answer], device=language.device)
    raw = torch.cat(entered) if entered else None
    return Passage(tokens, len(frame), states, raw, scores.logits.float().softmax(-1))


@contextmanager
def _recorded(module: torch.nn.Module | None) -> Iterator[list[Tensor]]:
    """What enters a module, [N, h] of every call."""
    found = list[Tensor]()
    if module is None:
        yield found
        return
    hook = module.register_forward_pre_hook(lambda _, given: found.append(given[0][0]))
    try:
        yield found
    finally:
        hook.remove()


@torch.inference_mode()
def measure(drafter: Drafter, passage: Passage, trial: Trial, places: Array) -> tuple[Array, Array]:
    """Whether the best token is right, bool [P, L], and TVD [P, L], with roots at the answer's
    tokens ``places``."""
    features = trial.features or (lambda passage: passage.after(tuple(drafter.layers)))
    given, depths = features(passage), drafter.max_depth
    right = np.zeros((len(places), depths), bool)
    far = np.full((len(places), depths), np.nan, np.float32)
    late, skipped = max(0, trial.reach), max(0, -trial.reach)
    with trial.change():
        sessions = _sessions(drafter, passage, given, places + passage.answer - late)
        for n, (place, session) in enumerate(zip(places.tolist(), sessions, strict=True)):
            root = place + passage.answer
            path = passage.tokens[root - late : root - late + depths].tolist()
            log_q = session.log_q(path)
            if log_q is None:
                raise UserError("this drafter does not tell q: its wiring cannot be probed")
            log_q = log_q[skipped:]
            count = len(log_q)
            p = passage.p[place : place + count].to(log_q.device)
            right[n, :count] = (log_q.argmax(-1) == p.argmax(-1)).cpu().numpy()
            # some mistakes let numbers overflow: nothing is proposed then
            far[n, :count] = tvd(log_q.exp(), p).nan_to_num(1.0).cpu().numpy()
    return right, far


def _sessions(
    drafter: Drafter, passage: Passage, features: Tensor, roots: Array
) -> Iterator[DraftSession]:
    """A session at each root, ascending."""
    if isinstance(drafter, BatchDrafter):
        for some in torch.from_numpy(roots).to(passage.tokens.device).split(AT_ONCE):
            yield from drafter.begin_each(passage.tokens, features, some, 1)
        return
    tokens, known = passage.tokens.tolist(), 0
    drafter.reset(len(tokens) + 1)
    for root in roots.tolist():
        drafter.extend(tokens[known:root], features[known:root])
        known = root
        yield drafter.begin(tokens[root], 1)


def to_json(wiring: Wiring) -> dict[str, Any]:
    """The signatures and the verdict as plain lists and numbers, for a CI."""
    nearest = wiring.nearest

    def signature(each: Signature) -> dict[str, Any]:
        return {
            "mistake": each.mistake,
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
        "configured": signature(wiring.configured),
        "mistakes": [signature(each) for each in wiring.mistakes],
    }


def _known(values: Array) -> list[float | None]:
    return [_finite(float(value)) for value in values]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
