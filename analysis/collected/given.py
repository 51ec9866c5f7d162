"""A text that is given: what another engine served, or anybody wrote. Needs torch.

The target reads it instead of writing its own. Every token stands, and what the target would have
chosen there is noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from analysis.collected.collection import Given
from analysis.measures.probe import SLAB
from analysis.numbers import near
from core.decoding.along import Reading
from core.errors import UserError
from core.rounds.draft import Draft
from core.rounds.round import GREEDY, Verdict
from core.verification.rules import Proposes
from core.verification.sampling import TargetSampler, best
from core.verification.walk import walk

LEAST_LOG_P = -1e9  # log p of an impossible token


@dataclass(frozen=True)
class Answer:
    """A given text after its prompt.

    tokens  its token ids
    name    of the file it came from
    words   the file held words, which this target's tokenizer cut into tokens
    digest  of the prompt and the text, as the file has them
    """

    tokens: tuple[int, ...]
    name: str
    words: bool
    digest: str

    def check(self, vocabulary: int) -> None:
        """Raises UserError for a text that this target cannot read, or that no round starts in."""
        if outside := next((t for t in self.tokens if not 0 <= t < vocabulary), None):
            raise UserError(
                f"{self.name} holds the token {outside}, and the target has tokens below "
                f"{vocabulary}: it is a text of another target"
            )
        if len(self.tokens) < 2:
            raise UserError(f"{self.name} holds fewer than 2 tokens: no round would start in them")


class Follows(TargetSampler):
    """The rule and the sampler of a given text: each token is the text's, and after its end the
    target's best. It notes what the target says of every token.

    start  position of the text's first token
    """

    identity = False

    def __init__(self, answer: Answer, start: int):
        super().__init__(GREEDY)
        self.answer, self.start = answer, start
        self.sampler: TargetSampler = self
        self._log_p: dict[int, tuple[float, float]] = {}  # number → log p of it, and of the best
        self._dtype = torch.float32

    def choose(self, logits: Tensor, positions: list[int]) -> Tensor:
        """The text's tokens at these positions, whatever the logits [R, V] say."""
        tokens, self._dtype = best(logits).tolist(), logits.dtype
        for row, position in enumerate(positions):
            number = position - self.start
            if 0 <= number < len(self.answer.tokens):
                own = self.answer.tokens[number]
                log_p = logits[row].float().log_softmax(-1)[[own, tokens[row]]]
                known = log_p.nan_to_num(nan=LEAST_LOG_P, neginf=LEAST_LOG_P).tolist()
                self._log_p[number], tokens[row] = (known[0], known[1]), own
        return torch.tensor(tokens)

    def verify(
        self, draft: Draft, logits: Tensor, position: int, session: Proposes | None = None
    ) -> Verdict:
        def choose(row: int) -> int:
            after = position + int(draft.depths[row]) + 1
            return int(self.choose(logits[row : row + 1], [after])[0])

        return walk(draft, choose)

    def found(self, count: int) -> Given:
        """Sum up log p of the text's first ``count`` tokens and of the target's best ones there."""
        return _noted(self.answer, [self._log_p[number] for number in range(count)], self._dtype)


@torch.inference_mode()
def told(reading: Reading, answer: Answer, count: int) -> Given:
    """The same of a text that was read elsewhere; p must be known before its first new token."""
    log_p, last, dtype = list[tuple[float, float]](), reading.answer - 1 + count, torch.float32
    for first in range(reading.answer - 1, last, SLAB):
        logits = reading.logits(first, min(first + SLAB, last))
        rows, dtype = logits.float().log_softmax(-1), logits.dtype
        own = rows.gather(1, reading.tokens[first + 1 : first + 1 + len(rows), None])[:, 0]
        log_p += zip(own.tolist(), rows.amax(-1).tolist(), strict=True)
    return _noted(answer, log_p, dtype)


def _noted(answer: Answer, log_p: Sequence[tuple[float, float]], dtype: torch.dtype) -> Given:
    """Sum up a text's first tokens: ``log_p`` of each, and of the target's best token there."""
    bound = near([str(dtype).removeprefix("torch.")])
    off = [n for n, (own, most) in enumerate(log_p) if own < most]
    return Given(
        name=answer.name,
        words=answer.words,
        length=len(answer.tokens),
        digest=answer.digest,
        log_p=sum(own for own, _ in log_p) / len(log_p),
        off=tuple(off),
        near=sum(log_p[n][1] - log_p[n][0] <= bound for n in off),
    )
