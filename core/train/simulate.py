"""What a drafter would reach on finished texts, without decoding them again.

The target's text is known, so a round that starts at some token accepts exactly the prefix of the
drafted tree that agrees with it. The drafter runs once at every token some round starts at; every
builder and budget is then a search and a walk. For the target's own greedy (or position-keyed
sampled) text this gives the acceptance lengths of a real run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from core.decoding.decode import Builder
from core.drafting.builders import width_for
from core.rounds.draft import Candidates
from core.train.shards import Document
from core.train.students import Blocks, Student
from core.verification.simulate import accepted, lengths

_AT_ONCE = 16  # anchors that share a pass


@dataclass(frozen=True)
class Contender:
    """A builder with its budget, by the name a report gives it."""

    name: str
    builder: Builder
    budget: int


class Proposals:
    """A drafter's proposals along one text, made when a round first asks for them and then kept."""

    def __init__(self, student: Student, document: Document, width: int):
        self.student, self.document, self.width = student, document, width
        self._rows: dict[int, torch.Tensor] = {}
        self._made: dict[int, Candidates] = {}

    @torch.inference_mode()
    def at(self, anchor: int) -> Candidates:
        """The proposal of a round whose root is token ``anchor`` of the text."""
        if anchor not in self._made:
            some = self._neighbours(anchor, self.student.at_once)
            rows = torch.stack([self._plain(a) for a in some])
            roots = self.document.tokens[some].tolist()
            made = self.student.proposals(rows, roots, self.width)
            self._made |= dict(zip(some, made, strict=True))
        return self._made[anchor]

    def _neighbours(self, anchor: int, count: int) -> list[int]:
        return list(range(anchor, min(anchor + count, len(self.document))))

    def _plain(self, anchor: int) -> torch.Tensor:
        """Plain rows [L, h]; neighbours' are made in the same pass."""
        if anchor not in self._rows:
            some = self._neighbours(anchor, _AT_ONCE)
            rows = self.student.plain_rows(Blocks(self.document, torch.tensor(some)))
            self._rows |= dict(zip(some, rows, strict=True))
        return self._rows[anchor]


def rounds(proposals: Proposals, contender: Contender, new_tokens: int) -> tuple[int, ...]:
    """Acceptance lengths (accepted + 1) of the rounds one run takes over the text's answer.

    The run ends at ``new_tokens``, of which the first is what prefill gave.
    """
    document = proposals.document
    text, depths = document.tokens.tolist(), proposals.student.depths

    def length_at(at: int) -> int:
        anchor = document.answer + at
        draft = contender.builder(proposals.at(anchor), text[: anchor + 1], contender.budget)
        return accepted(draft, text[anchor + 1 : anchor + 1 + depths]) + 1

    return lengths(length_at, min(new_tokens - 1, len(document) - 1 - document.answer))


@dataclass(frozen=True)
class Score:
    """Simulated runs over some texts: each contender's acceptance lengths, text by text."""

    runs: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    @property
    def tau(self) -> dict[str, float]:
        """Tokens per round, Σ lengths ÷ Σ rounds."""
        return {
            name: sum(map(sum, runs)) / max(1, sum(map(len, runs)))
            for name, runs in self.runs.items()
        }

    def __add__(self, other: Score) -> Score:
        """Both sets of texts together."""
        return Score({name: runs + other.runs[name] for name, runs in self.runs.items()})


def score(
    student: Student,
    documents: Sequence[Document],
    contenders: Sequence[Contender],
    new_tokens: int = 128,
    report: Callable[[], object] = lambda: None,
) -> Score:
    """Simulated runs of every contender over texts the target wrote; ``report`` after each text."""
    taken: dict[str, list[tuple[int, ...]]] = {c.name: [] for c in contenders}
    width = max(width_for(c.builder, c.budget) for c in contenders)
    for document in documents:
        proposals = Proposals(student, document, width)
        for contender in contenders:
            taken[contender.name].append(rounds(proposals, contender, new_tokens))
        report()
    return Score({name: tuple(runs) for name, runs in taken.items()})


@torch.inference_mode()
def loss(student: Student, documents: Sequence[Document]) -> float:
    """Mean over texts and depths of KL(p ‖ q) on the target's stored tokens, nats."""
    means = []
    for document in documents:
        kls = [kl for part in _parts(document) for kl in _losses(student, Blocks(document, part))]
        means.append(sum(kls) / len(kls))
    return sum(means) / max(1, len(means))


def _parts(document: Document) -> Iterator[torch.Tensor]:
    """The answer's anchors, a few at a time."""
    yield from torch.arange(document.answer, len(document) - 1).split(_AT_ONCE)


def _losses(student: Student, blocks: Blocks) -> list[float]:
    """One mean over depths per anchor."""
    rows = student.rows(blocks)
    top, p, exists = blocks.targets(student.depths, blocks.document.top_ids.shape[-1])
    log_q = (rows @ student.parts.head.to(rows.dtype).T).float().log_softmax(-1).cpu()
    kl = (p * (p.clamp_min(1e-9).log() - log_q.gather(-1, top))).sum(-1)
    return ((kl * exists).sum(-1) / exists.sum(-1).clamp_min(1)).tolist()
