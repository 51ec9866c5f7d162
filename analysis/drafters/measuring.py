"""How the wiring probe measures a trial: the target's texts, and a drafter's q at places of them.

Shapes: R texts, P places, L drafted depths, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from analysis.drafters.mistakes import final_norm
from analysis.drafters.trials import Passage, Trial
from analysis.measures.probe import tvd
from core.decoding.decode import Decoder, decode
from core.decoding.request import Settings
from core.drafting.session import BatchDrafter, Drafter, DraftSession
from core.errors import UserError
from core.methods.names import PLAIN
from core.models.language import Language
from core.models.target import Target
from core.rounds.draft import Array, Draft
from core.rounds.round import GREEDY, Round, new_tokens

AT_ONCE = 16  # places that share a pass of a drafter
Report = Callable[[float, str], None]  # (done of 1, what is being done); what it raises ends it


def silent(done: float, what: str) -> None:
    """The report nobody listens to."""


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
    language: Language, prompts: Sequence[str], count: int, depth: int, report: Report
) -> list[Text]:
    """The target's greedy answers of ``count`` tokens to the prompts, where they are long enough
    for a draft of ``depth`` tokens."""
    target, settings = Target(language.model), Settings(1, count, GREEDY, timed=False)
    found = []
    for number, prompt in enumerate(prompts):
        what = f"the target's text {number + 1} of {len(prompts)}"
        ids, rounds = language.encode_chat(prompt), list[Round]()
        report(number / len(prompts), what)
        for record in decode(target, Decoder(PLAIN), ids, settings):
            rounds.append(record)
            report((number + min(1.0, len(rounds) / count)) / len(prompts), what)
        answer = new_tokens(rounds)
        if len(answer) > depth + 1:
            found.append(Text(prompt, ids, answer))
    return found


@dataclass(frozen=True, eq=False)
class Bench:
    """A drafter and the texts that all trials run on.

    places  of each text: the answer's tokens at which a draft begins
    """

    language: Language
    drafter: Drafter
    texts: Sequence[Text]
    places: Sequence[Array]

    def run(
        self,
        trials: Sequence[Trial],
        chosen: Array,
        report: Report = silent,
        hear: Callable[[Passage], None] = lambda passage: None,
    ) -> list[Measured]:
        """Every trial at the ``chosen`` of all places, bool. ``hear`` gets each text with its
        states as configured."""
        parts = [list[Measured]() for _ in trials]
        numbers, first, steps = np.flatnonzero(chosen), 0, len(self.texts) * len(trials)
        for index, (text, places) in enumerate(zip(self.texts, self.places, strict=True)):
            own = numbers[(numbers >= first) & (numbers < first + len(places))]
            plain = passage_of(self.language, text.frame, text.answer)
            hear(plain)
            for n, trial in enumerate(trials):

                def tick(done: float, step: int = index * len(trials) + n, trial=trial) -> None:
                    report((step + done) / steps, trial.name)

                passage = plain if trial.frame is None else self._framed(text, trial)
                right, far = measure(self.drafter, passage, trial, places[own - first], tick)
                parts[n].append(Measured(own, right, far))
            first += len(places)
        return [Measured.joined(some) for some in parts]

    def _framed(self, text: Text, trial: Trial) -> Passage:
        assert trial.frame is not None
        return passage_of(self.language, trial.frame(text.prompt), text.answer)


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
def measure(
    drafter: Drafter,
    passage: Passage,
    trial: Trial,
    places: Array,
    tick: Callable[[float], None] = lambda done: None,
) -> tuple[Array, Array]:
    """Whether the best token is right, bool [P, L], and TVD [P, L], with roots at the answer's
    tokens ``places``. ``tick`` hears before every place how much is done."""
    features = trial.features or (lambda passage: passage.after(tuple(drafter.layers)))
    given, depths = features(passage), drafter.max_depth
    right = np.zeros((len(places), depths), bool)
    far = np.full((len(places), depths), np.nan, np.float32)
    late, skipped = max(0, trial.reach), max(0, -trial.reach)
    with trial.change():
        reach = min(depths, drafter.max_depth)  # the trial may draft fewer, or more
        sessions = _sessions(drafter, passage, given, places + passage.answer - late)
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
    drafter: Drafter, passage: Passage, features: Tensor, roots: Array
) -> Iterator[DraftSession]:
    """A session at each root, ascending."""
    if isinstance(drafter, BatchDrafter):
        anchors = torch.from_numpy(roots).to(passage.tokens.device)
        for some in anchors.split(AT_ONCE) if len(roots) else ():
            yield from drafter.begin_each(passage.tokens, features, some, 1)
        return
    tokens, known = passage.tokens.tolist(), 0
    drafter.reset(len(tokens) + 1)
    for root in roots.tolist():
        drafter.extend(tokens[known:root], features[known:root])
        known = root
        yield drafter.begin(tokens[root], 1)
