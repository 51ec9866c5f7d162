"""How the wiring probe measures a trial: the target's texts, and a drafter's q at places of them.

Shapes: R texts, P places, L drafted depths, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis.drafters.mistakes import final_norm
from analysis.drafters.trials import Passage, Trial
from analysis.measures.probe import tvd
from core.decoding.decode import Decoder, decode
from core.decoding.request import Settings
from core.drafting.session import Drafter, DraftSession
from core.errors import UserError
from core.methods.names import PLAIN
from core.models.language import Language
from core.models.target import Target
from core.rounds.draft import Array, Draft
from core.rounds.round import GREEDY, Round, new_tokens

AT_ONCE = 16  # places that share a pass of a drafter
Report = Callable[[float, str], None]  # (done of 1, what is being done); what it raises ends it
Tick = Callable[[float], None]  # the same of one trial: its share that is done
Kept = dict[Hashable, Any]  # texts, and what trials measured at them


def silent(done: float, what: str) -> None:
    """The report nobody listens to."""


def unheard(done: float) -> None:
    """The same of one trial."""


@dataclass(frozen=True)
class Text:
    """A prompt, its token ids as the target has them, and the target's own greedy answer."""

    prompt: str
    frame: Sequence[int]
    answer: Sequence[int]


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured at P places.

    at     int [P]: their numbers among all places, ascending
    right  bool [P, L]: the drafter's best token at that depth is the target's; as configured that
           is the text's, in another frame it need not be
    tvd    float32 [P, L]: ½ Σ_v |q − p|; NaN at a depth that the trial leaves without a row
    """

    at: Array
    right: Array
    tvd: Array

    @staticmethod
    def joined(parts: Sequence[Measured]) -> Measured:
        """The same of all their places. Raises ValueError for no parts."""
        at, right, far = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("at", "right", "tvd")
        )
        order = np.argsort(at)
        return Measured(at[order], right[order], far[order])


def texts_of(
    language: Language,
    prompts: Sequence[str],
    count: int,
    depth: int,
    report: Report,
    kept: Kept | None = None,
) -> list[Text]:
    """The target's greedy answers of ``count`` tokens to the prompts, where they are long enough
    for a draft of ``depth`` tokens."""
    kept = {} if kept is None else kept
    for number, prompt in enumerate(prompts):
        what = f"the target's text {number + 1} of {len(prompts)}"

        def tick(done: float, number: int = number, what: str = what) -> None:
            report((number + done) / len(prompts), what)

        tick(0.0)
        if ("text", number) not in kept:
            kept["text", number] = _answered(language, prompt, count, tick)
    texts = [kept["text", number] for number in range(len(prompts))]
    return [text for text in texts if len(text.answer) > depth + 1]


def _answered(language: Language, prompt: str, count: int, tick: Tick) -> Text:
    """The target's answer to a prompt; ``tick`` hears after every token how much is done."""
    target, settings = Target(language.model), Settings(1, count, GREEDY, timed=False)
    ids, rounds = language.encode_chat(prompt), list[Round]()
    for record in decode(target, Decoder(PLAIN), ids, settings):
        rounds.append(record)
        tick(min(1.0, len(rounds) / count))
    return Text(prompt, ids, new_tokens(rounds))


@dataclass(frozen=True, eq=False)
class Bench:
    """A drafter and the texts that all trials run on.

    places  of each text: the answer's tokens at which a draft begins
    kept    what is measured already: a probe of the same drafter on the same texts that was stopped
            goes on from it
    """

    language: Language
    drafter: Drafter
    texts: Sequence[Text]
    places: Sequence[Array]
    kept: Kept = field(default_factory=dict)

    def run(
        self, trials: Sequence[Trial], chosen: Array, report: Report = silent
    ) -> list[Measured]:
        """Every trial at the ``chosen`` of all places, bool."""
        parts, numbers, first = list[list[Measured]](), np.flatnonzero(chosen), 0
        for index, places in enumerate(self.places):
            own = numbers[(numbers >= first) & (numbers < first + len(places))]

            def tick(done: float, what: str, index: int = index) -> None:
                report((index + done) / len(self.texts), what)

            parts.append(self._on_text(index, trials, own, first, tick))
            first += len(places)
        return [Measured.joined(some) for some in zip(*parts, strict=True)]

    def _on_text(
        self, index: int, trials: Sequence[Trial], own: Array, first: int, report: Report
    ) -> list[Measured]:
        """Every trial at some places of one text, by their numbers among all; its own begin at
        ``first``."""
        found, plain = list[Measured](), None
        for n, trial in enumerate(trials):

            def tick(done: float, n: int = n, trial: Trial = trial) -> None:
                report((n + done) / len(trials), trial.name)

            key = (trial.name, index, own.tobytes())
            if key not in self.kept:
                if trial.frame is None:
                    plain = passage = plain or self._plain(index, tick)
                else:
                    text, frame = self.texts[index], trial.frame(self.texts[index].prompt)
                    passage = passage_of(self.language, frame, text.answer, tick)
                places = self.places[index][own - first]
                self.kept[key] = Measured(own, *measure(self.drafter, passage, trial, places, tick))
            found.append(self.kept[key])
        return found

    def _plain(self, index: int, tick: Tick) -> Passage:
        """A text with its states as configured; the mean of p over its places is kept."""
        text = self.texts[index]
        passage = passage_of(self.language, text.frame, text.answer, tick)
        self.kept["p", index] = passage.p.mean(0).cpu().numpy()
        return passage

    @property
    def mean_p(self) -> Array:
        """The mean of p over the places of all texts, [V], once they are read."""
        return np.mean([self.kept["p", index] for index in range(len(self.texts))], axis=0)


@torch.inference_mode()
def passage_of(
    language: Language, frame: Sequence[int], answer: Sequence[int], tick: Tick = unheard
) -> Passage:
    """The target on a prompt's ids and an answer after them. ``tick`` hears before each forward."""
    layers = tuple(range(-1, language.model.config.get_text_config().num_hidden_layers))
    target = Target(language.model, layers, padded=False)
    with _recorded(final_norm(language)) as entered:
        tick(0.0)
        before = target.prefill(list(frame), len(answer) + 1, lambda _: tick(0.0))
        tick(0.0)
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
def measure(
    drafter: Drafter,
    passage: Passage,
    trial: Trial,
    places: Array,
    tick: Tick = unheard,
) -> tuple[Array, Array]:
    """Whether the best token is right, bool [P, L], and TVD [P, L], with roots at the answer's
    tokens ``places``. ``tick`` hears before every place and forward how much is done."""
    features = trial.features or (lambda passage: passage.after(tuple(drafter.layers)))
    given, depths = features(passage), drafter.max_depth
    right = np.zeros((len(places), depths), bool)
    far = np.full((len(places), depths), np.nan, np.float32)
    late, skipped = max(0, trial.reach), max(0, -trial.reach)
    with trial.change():
        reach = min(depths, drafter.max_depth)  # the trial may draft fewer, or more
        sessions = _sessions(drafter, passage, given, places + passage.answer - late, tick)
        for n, (place, session) in enumerate(zip(places.tolist(), sessions, strict=True)):
            tick(n / len(places))
            root = place + passage.answer
            path = passage.tokens[root - late : root - late + reach].tolist()
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
    drafter: Drafter, passage: Passage, features: Tensor, roots: Array, tick: Tick
) -> Iterator[DraftSession]:
    """A session at each root, ascending. ``tick`` hears before each of them is begun."""
    anchors = torch.from_numpy(roots).to(passage.tokens.device)
    tick(0.0)
    for n, session in enumerate(drafter.begin_each(passage.tokens, features, anchors, 1), 1):
        yield session
        tick(n / len(roots))
