"""What methods accept on a text of the target, and how far q is from p there.

Rounds with the default rule follow from the target's own text (``core.train.simulate``): only
drafting is computed, and each drafter walks along a text once for all of its methods and budgets.
Methods whose rounds do not follow from a text are run (``observed``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from analysis.collected.collect import text_with_tail
from analysis.experiments.family import Accepted
from analysis.measures.probe import observe, probe_along
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.drafting.session import Drafter
from core.models.language import Language
from core.models.target import Target
from core.rounds.draft import Draft
from core.rounds.round import Probe, Sampling
from core.train.simulate import Setup, Simulated, rounds

Walks = Iterable[tuple[Drafter, Sequence[Setup]]]


@dataclass(frozen=True, eq=False)
class Text:
    """The target's own text: a prompt, an answer up to ``end``, and a tail that drafts reach.

    answer  index of the first new token
    """

    tokens: tuple[int, ...]
    answer: int
    end: int

    @staticmethod
    def written(
        language: Language, prompt: Sequence[int], new_tokens: int, sampling: Sampling, tail: int
    ) -> Text:
        """By plain decoding, ``tail`` tokens past its end."""
        found = text_with_tail(Target(language.model), prompt, new_tokens, sampling, tail)
        return Text(tuple(found["tokens"].tolist()), len(prompt), int(found["end"]))


@dataclass(frozen=True, eq=False)
class Scored:
    """A text with what one forward of the target says of it.

    features  [T, F·h] after ``layers``; ``logits`` [T − answer, V] after each new token
    """

    text: Text
    layers: tuple[int, ...]
    features: Tensor
    logits: Tensor

    @staticmethod
    @torch.inference_mode()
    def of(language: Language, text: Text, layers: tuple[int, ...]) -> Scored:
        target = Target(language.model, layers, padded=False)
        new = text.tokens[text.answer :]
        before = target.prefill(list(text.tokens[: text.answer]), len(new))
        scores = target.score(Draft.chain(new))
        features = torch.cat([before.features, scores.features])
        return Scored(text, layers, features, scores.logits)

    @cached_property
    def _by_layer(self) -> dict[int, Tensor]:
        parts = self.features.chunk(len(self.layers), -1) if self.layers else ()
        return dict(zip(self.layers, parts, strict=True))

    def after(self, layers: tuple[int, ...]) -> Tensor:
        """Features after these layers, concatenated; [T, 0] for none."""
        return torch.cat([self.features[:, :0], *(self._by_layer[i] for i in layers)], -1)

    def accepted(self, walks: Walks) -> Iterator[tuple[str, Accepted]]:
        """What each setup accepts, by its name."""
        span = (self.text.answer, self.text.end - 1)
        for drafter, setups in walks:
            found = {setup.name: Accepted() for setup in setups}
            features = self.after(tuple(drafter.layers))
            for each in rounds(drafter, self.text.tokens, features, span, setups):
                found[each.setup.name].add(each.verdict.accepted + 1, self._probe(each))
            yield from found.items()

    def _probe(self, each: Simulated) -> Probe | None:
        rows = list(each.verdict.path[: each.session.max_depth])
        path = each.draft.tokens[rows].tolist()
        first = each.root - self.text.answer
        logits = self.logits[first : first + len(rows)]
        return probe_along(each.session, path, logits, each.verdict.target_tokens[rows])


def observed(engine: Engine, request: RunRequest) -> Accepted:
    """What a real run accepts."""
    found = Accepted()
    for record in engine.start(request, observe).rounds:
        if record.committed:
            found.add(record.accepted + 1, record.probe)
    return found
