"""What a drafter would reach on finished texts, without decoding them again.

The target's text is known, so a round that starts at some token accepts exactly the prefix of the
drafted tree that agrees with it. The drafter runs once at every position, batched; every budget is
then a search and a walk. For the target's own greedy (or position-keyed sampled) text this gives
the acceptance lengths of a real run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from core import builders
from core.drafters.dflash import DFlashModel
from core.train.fit import Blocks, TargetParts, hidden_rows
from core.train.shards import Document
from core.types import Candidates, Draft

CHAIN = 0  # as a budget: DFlash's argmax chain
_AT_ONCE = 16  # anchors whose [L, V] logits are held together: the head is read once for all


@dataclass(frozen=True)
class Positions:
    """The drafter at some anchors of a text: candidates' ids and log q [A, L, K], loss [A]."""

    anchors: torch.Tensor
    ids: np.ndarray
    log_q: np.ndarray
    loss: torch.Tensor


@torch.inference_mode()
def draft_at(
    model: DFlashModel, parts: TargetParts, document: Document, anchors: torch.Tensor, width: int
) -> Positions:
    """Run the drafter at every anchor (index of a bonus token) of a text; full vocabulary."""
    blocks = Blocks(document, anchors)
    rows = hidden_rows(model, blocks, parts.embedding)
    ids, log_q, losses = [], [], []
    top, p, exists = blocks.targets(model.config.depths, document.top_ids.shape[-1])
    for low in range(0, len(rows), _AT_ONCE):
        some = slice(low, low + _AT_ONCE)
        log = F.log_softmax((rows[some] @ parts.head.to(rows.dtype).T).float(), -1).cpu()
        best = log.topk(min(width, log.shape[-1]))
        ids.append(best.indices.numpy())
        log_q.append(best.values.numpy())
        kl = (p[some] * (p[some].clamp_min(1e-9).log() - log.gather(-1, top[some]))).sum(-1)
        here = exists[some]
        losses.append((kl * here).sum(-1) / here.sum(-1).clamp_min(1))
    return Positions(anchors, np.concatenate(ids), np.concatenate(log_q), torch.cat(losses))


def accepted(draft: Draft, text: Sequence[int]) -> int:
    """Drafted nodes that agree with the text behind the root."""
    row, count = 0, 0
    for token in text:
        step = draft.child(row, token)
        if step is None:
            break
        row, count = step, count + 1
    return count


def lengths_at(positions: Positions, document: Document, budget: int) -> list[int]:
    """accepted + 1 of a round started at each anchor; budget ``CHAIN`` is the argmax chain."""
    text = document.tokens.tolist()
    out = []
    for anchor, ids, log_q in zip(
        positions.anchors.tolist(), positions.ids, positions.log_q, strict=True
    ):
        candidates = Candidates(ids, log_q)
        build = builders.best_first if budget else builders.chain
        draft = build(candidates, text[anchor], budget or len(ids))
        out.append(accepted(draft, text[anchor + 1 : anchor + 1 + len(ids)]) + 1)
    return out


def rounds(lengths: Sequence[int], new_tokens: int) -> list[int]:
    """Acceptance lengths of the rounds one run takes, from the length at each of its positions.

    ``lengths[i]`` belongs to a round whose root is new token i; the run ends at ``new_tokens``.
    """
    taken, at = [], 0
    while at < new_tokens - 1 and at < len(lengths):
        taken.append(lengths[at])
        at += lengths[at]
    return taken


@dataclass(frozen=True)
class Score:
    """Simulated runs over some texts: acceptance lengths per budget and text, a loss per text."""

    rounds: dict[int, tuple[tuple[int, ...], ...]]
    losses: tuple[float, ...]

    @property
    def tau(self) -> dict[int, float]:
        """Tokens per round, Σ lengths ÷ Σ rounds, per budget."""
        return {
            budget: sum(map(sum, runs)) / max(1, sum(map(len, runs)))
            for budget, runs in self.rounds.items()
        }

    @property
    def loss(self) -> float:
        """Mean over texts of KL(p ‖ q) on the target's top tokens, nats a depth."""
        return sum(self.losses) / max(1, len(self.losses))

    def __add__(self, other: Score) -> Score:
        """Both sets of texts together."""
        both = {budget: runs + other.rounds[budget] for budget, runs in self.rounds.items()}
        return Score(both, self.losses + other.losses)


def score(
    model: DFlashModel,
    parts: TargetParts,
    documents: Sequence[Document],
    budgets: Sequence[int] = (CHAIN, 64),
    new_tokens: int = 128,
) -> Score:
    """Simulated runs of every budget over texts the target wrote."""
    taken: dict[int, list[tuple[int, ...]]] = {b: [] for b in budgets}
    losses = []
    for document in documents:
        end = min(len(document) - 1, document.answer + new_tokens - 1)
        anchors = torch.arange(document.answer, end)
        if not len(anchors):
            continue
        positions = draft_at(model, parts, document, anchors, max(*budgets, 1))
        losses.append(float(positions.loss.mean()))
        for budget in budgets:
            lengths = lengths_at(positions, document, budget)
            taken[budget].append(tuple(rounds(lengths, new_tokens)))
    return Score({b: tuple(runs) for b, runs in taken.items()}, tuple(losses))
