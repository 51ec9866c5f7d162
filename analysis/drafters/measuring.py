"""How the wiring probe measures a trial: the target's texts, and a drafter's q at places of them.

Shapes: P places, L drafted depths, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from analysis.drafters.trials import Trial
from core.decoding.along import Reading, log_q_along, read_along
from core.decoding.decode import Decoder, decode
from core.decoding.dumps import read_dump, reading_of
from core.decoding.request import Settings
from core.drafting.probabilities import tvd
from core.drafting.session import Drafter
from core.methods.names import PLAIN
from core.models.language import Language, final_norm
from core.models.target import Target
from core.progress import At, Steps, part, silent
from core.rounds.draft import Array
from core.rounds.round import GREEDY, Round, new_tokens

HEATS = (1.0, 0.5, 2.0)  # times q's temperature, at which its fit to p is measured
PASSAGES = 8  # texts whose passes of the target are kept


@dataclass(frozen=True)
class AnsweredPrompt:
    """A prompt, its token ids as the target has them, and the target's own greedy answer."""

    prompt: str
    frame: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Measured:
    """Accuracy and distance from the target, measured at P places.

    at     int [P]: their numbers among all places, ascending
    right  bool [P, L]: the drafter's best token at that depth is the target's; as configured that
           is the text's, in another frame it need not be
    tvd    float32 [P, L]: ½ Σ_v |q − p|; NaN at a depth that the trial leaves without a row
    best   float64 [P, L]: the drafter's best token; ``sure``: its log q, in nats; NaN as ``tvd``
    cross  float64 [P, L, H]: nats that it costs to code p by q at each of ``HEATS`` times its
           temperature, over the tokens that q holds; NaN as ``tvd``, and of all trials but the
           configuration
    """

    at: Array
    right: Array
    tvd: Array
    best: Array
    sure: Array
    cross: Array

    @staticmethod
    def joined(parts: Sequence[Measured]) -> Measured:
        """The same of all their places. Raises ValueError for no parts."""
        at, *found = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("at", "right", "tvd", "best", "sure", "cross")
        )
        order = np.argsort(at)
        return Measured(at[order], *(each[order] for each in found))


@dataclass(frozen=True)
class Kept:
    """The results that probes of one target share, and that a stopped probe goes on from.

    texts     the target's answers, by prompt and length
    passages  its passes over the last few of them: large, ``clear`` them when they have served
    mean_p    [V], the mean of p over a text's places
    measured  ``measure`` of trials, by drafter, trial, text and places
    kept      reads a text's hidden states that were kept (``dumped``); None: the target reads it
    layers    whose states it has; None: all
    """

    texts: dict[tuple[str, int], AnsweredPrompt] = field(default_factory=dict)
    passages: dict[AnsweredPrompt, Reading] = field(default_factory=dict)
    mean_p: dict[AnsweredPrompt, Array] = field(default_factory=dict)
    measured: dict[Hashable, Measured] = field(default_factory=dict)
    kept: Callable[[AnsweredPrompt], Reading] | None = None
    layers: frozenset[int] | None = None

    def text(self, language: Language, prompt: str, count: int, tick: At) -> AnsweredPrompt:
        """The target's greedy answer of ``count`` tokens. ``tick`` hears after every token."""
        tick(0.0)
        if (prompt, count) not in self.texts:
            self.texts[prompt, count] = _answered(language, prompt, count, tick)
        return self.texts[prompt, count]

    def passage(self, language: Language, text: AnsweredPrompt, tick: At = silent) -> Reading:
        """A text with the target's states as configured."""
        if text not in self.passages:
            while len(self.passages) >= PASSAGES:
                del self.passages[next(iter(self.passages))]
            tick(0.0)
            if self.kept is not None:
                made = self.kept(text)
            else:
                made = passage_of(language, text.frame, text.answer, tick)
            self.passages[text] = made
            self.mean_p[text] = made.p.mean(0).cpu().numpy()
        return self.passages[text]


def dumped(
    language: Language,
    paths: Sequence[Path],
    drafted: Sequence[int],
    count: int,
    named: Sequence[int] | None = None,
    answer: int | None = None,
) -> tuple[list[str], Kept]:
    """Files of hidden states as texts of a probe: a name for each, in place of its prompt, and what
    probes share. ``count``: tokens of an answer at most; the others as for ``reading_of``.

    Raises UserError as ``read_dump`` and ``reading_of`` do.
    """
    texts, files, layers = dict[tuple[str, int], AnsweredPrompt](), dict[str, Path](), set[int]()

    def read(path: Path) -> Reading:
        whole = reading_of(read_dump(path), language, drafted, named, answer)
        return whole.until(min(len(whole.tokens), whole.answer + count))

    for number, path in enumerate(paths, 1):
        found, name = read(path), f"{number}: {path.name}"
        tokens, layers = found.tokens.tolist(), set(found.states)
        own = AnsweredPrompt(name, tuple(tokens[: found.answer]), tuple(tokens[found.answer :]))
        texts[name, count], files[name] = own, path
    kept = Kept(texts, kept=lambda text: read(files[text.prompt]), layers=frozenset(layers))
    return list(files), kept


def _answered(language: Language, prompt: str, count: int, tick: At) -> AnsweredPrompt:
    target, settings = Target(language.model), Settings(1, count, GREEDY, timed=False)
    ids, rounds = language.encode_chat(prompt), list[Round]()
    for record in decode(target, Decoder(PLAIN), ids, settings):
        rounds.append(record)
        tick(min(1.0, len(rounds) / count))
    return AnsweredPrompt(prompt, tuple(ids), tuple(new_tokens(rounds)))


@dataclass(frozen=True, eq=False)
class Bench:
    """A drafter and the texts that all trials run on.

    places  of each text: the answer's tokens at which a draft begins
    who     the drafter's name in ``kept``
    """

    language: Language
    drafter: Drafter
    texts: Sequence[AnsweredPrompt]
    places: Sequence[Array]
    kept: Kept = field(default_factory=Kept)
    who: str = ""

    def run(self, trials: Sequence[Trial], chosen: Array, report: Steps = silent) -> list[Measured]:
        """Every trial at the ``chosen`` of all places, bool."""
        parts, first = list[list[Measured]](), 0
        for index, places in enumerate(self.places):
            own = np.flatnonzero(chosen[first : first + len(places)])
            tick = part(report, index, len(self.texts))
            found = self._on_text(self.texts[index], trials, places[own], tick)
            parts.append([replace(some, at=own + first) for some in found])
            first += len(places)
        return [Measured.joined(some) for some in zip(*parts, strict=True)]

    def _on_text(
        self, text: AnsweredPrompt, trials: Sequence[Trial], places: Array, report: Steps
    ) -> Iterator[Measured]:
        """Every trial at some places of one text, which are numbered from 0."""
        for n, trial in enumerate(trials):
            tick = part(report, n, len(trials), trial.name)
            key = (self.who, trial.name, text, places.tobytes())
            if key not in self.kept.measured:
                self.kept.measured[key] = self._measured(text, trial, places, tick)
            yield self.kept.measured[key]

    def _measured(self, text: AnsweredPrompt, trial: Trial, places: Array, tick: At) -> Measured:
        if not len(places):
            none = np.zeros((0, self.drafter.max_depth), np.float32)
            cross = np.zeros((*none.shape, len(HEATS)))
            return Measured(np.zeros(0, int), none.astype(bool), none, none, none, cross)
        passage = self._passage(text, trial, tick)
        return measure(self.drafter, passage, trial, places, tick)

    def _passage(self, text: AnsweredPrompt, trial: Trial, tick: At) -> Reading:
        if trial.frame is None:
            return self.kept.passage(self.language, text, tick)
        return passage_of(self.language, trial.frame(text.prompt), text.answer, tick)

    @property
    def mean_p(self) -> Array:
        """The mean of p over the places of all texts, [V], once they are read."""
        return np.mean([self.kept.mean_p[text] for text in self.texts], axis=0)


def passage_of(
    language: Language, frame: Sequence[int], answer: Sequence[int], tick: At = silent
) -> Reading:
    """The target on a prompt's ids and an answer after them, with the states of all layers.
    ``tick`` hears before each forward."""
    layers = tuple(range(-1, language.model.config.get_text_config().num_hidden_layers))
    target = Target(language.model, layers, padded=False)
    text, norm = [*frame, *answer], final_norm(language)
    return read_along(target, text, len(frame), norm, lambda *_: tick(0.0))


@torch.inference_mode()
def measure(
    drafter: Drafter,
    passage: Reading,
    trial: Trial,
    places: Array,
    tick: At = silent,
) -> Measured:
    """A trial with roots at the answer's tokens ``places``, numbered from 0; of depths past the
    text's end it says nothing. ``tick`` hears before every forward how much is done."""
    given, depths = trial.features and trial.features(passage), drafter.max_depth
    right = np.zeros((len(places), depths), bool)
    far, ids, sure = np.full((3, len(places), depths), np.nan)
    cross = np.full((len(places), depths, len(HEATS)), np.nan)
    late, skipped = max(0, trial.reach), max(0, -trial.reach)
    with trial.change():
        reach = min(depths, drafter.max_depth)  # the trial may draft fewer, or more
        done, roots = 0, torch.from_numpy(places + passage.answer - late).to(passage.p.device)
        for log_q in log_q_along(drafter, passage, roots, given, tick):
            log_q = log_q[:, skipped:reach]
            some, count = slice(done, done + len(log_q)), log_q.shape[1]
            at = np.minimum(places[some, None] + np.arange(count), len(passage.p) - 1)
            rows = torch.from_numpy(at).to(log_q.device)
            (top, best), q = log_q.max(-1), log_q.exp().flatten(0, 1)
            right[some, :count] = (best == passage.best[rows]).cpu().numpy()
            # some mistakes let numbers overflow: nothing is proposed then
            p = passage.p[rows.flatten()]
            found = tvd(q, p).nan_to_num(1.0)
            if not trial.mistake:
                cost = cross_entropies(log_q.flatten(0, 1), p)
                cross[some, :count] = cost.view(*rows.shape, len(HEATS)).cpu().numpy()
            far[some, :count] = found.view(rows.shape).cpu().numpy()
            ids[some, :count] = best.cpu().numpy()
            sure[some, :count] = top.nan_to_num(0.0, neginf=0.0).cpu().numpy()
            done = some.stop
    return Measured(np.arange(len(places)), right, far.astype(np.float32), ids, sure, cross)


def cross_entropies(log_q: Tensor, p: Tensor) -> Tensor:
    """−Σ p log q at each of ``HEATS`` over the tokens that q holds, with p of these alone; [R, V] →
    [R, H]."""
    held = log_q > -torch.inf
    share = (p * held).sum(-1).clamp_min(1e-9)
    costs = (
        -(p * (log_q / heat).log_softmax(-1).masked_fill(~held, 0.0)).sum(-1) / share
        for heat in HEATS
    )
    return torch.stack([cost.nan_to_num(0.0) for cost in costs], -1)
