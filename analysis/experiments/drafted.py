"""Count what methods accept on a text of the target, and how far q is from p there.

Rounds with the default rule follow from the target's own text (``core.decoding.along``): only
drafting is computed, and each drafter walks along a text once for all of its methods and budgets.
Methods whose rounds do not follow from a text are run (``observed``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from analysis.collected.collect import text_with_tail
from analysis.experiments.family import Accepted
from analysis.measures.probe import observe, probe_along
from core.decoding.along import Reading, Setup, Simulated, rounds
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.drafting.session import Drafter
from core.models.language import Language
from core.models.target import Target
from core.rounds.round import Probe, Sampling

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


def accepted(walks: Walks, reading: Reading, end: int) -> Iterator[tuple[str, Accepted]]:
    """Yield each setup's name and what it accepts on a text that ends before ``end``."""
    for drafter, setups in walks:
        found = {setup.name: Accepted() for setup in setups}
        for each in rounds(drafter, reading, (reading.answer, end - 1), setups):
            found[each.setup.name].add(each.verdict.accepted + 1, _probe(each))
        yield from found.items()


def _probe(each: Simulated) -> Probe | None:
    rows = list(each.verdict.path[: each.at.session.max_depth])
    path, wanted = each.draft.tokens[rows].tolist(), each.verdict.target_tokens[rows]
    return probe_along(each.at.session, path, each.at.logits(len(rows)), wanted)


def observed(engine: Engine, request: RunRequest) -> Accepted:
    """Count what a real run accepts."""
    found = Accepted()
    for record in engine.start(request, observe).rounds:
        if record.committed:
            found.add(record.accepted + 1, record.probe)
    return found
