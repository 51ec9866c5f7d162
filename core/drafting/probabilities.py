"""p and q of rows, read off logits on their device: lists, ranks, entropy, TVD and coverage.

Shapes: R rows, V vocabulary, K tokens listed. What comes out is small: [R] and [R, K]. The probe
and the recorders for other engines read the same numbers by it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..traces.distributions import COVERAGE
from .best import top

# Rows of [R, V] in float32 at once: what a CPU's cache holds, or enough for a GPU to be busy.
SLAB_CPU, SLAB = 8, 32
LEAST = -1e9  # stands for −inf, whose product with a probability of 0 would be NaN


class Slab:
    """Rows of logits [R, V] in float32, each pass over which is made once.

    x        [R, V], at least ``LEAST``
    p        [R, V]
    ids      [R, K] of the best tokens, and their log p ``best``
    total    [R], the logarithm of Σ exp x
    entropy  [R], nats
    """

    def __init__(self, logits: Tensor, listed: int):
        self.x = logits.float().clamp_min(LEAST)  # a copy: float32 logits are the engine's own
        self.p = self.x.softmax(-1)
        most = top(self.x, max(1, listed))
        likeliest = self.p.gather(1, most.indices[:, :1])[:, 0]
        self.total = most.values[:, 0] - likeliest.log()
        self.ids, self.best = most.indices[:, :listed], self.log_p(most.values[:, :listed])
        self.entropy = self.total - torch.linalg.vecdot(self.p, self.x)

    def log_p(self, logits: Tensor) -> Tensor:
        """Turn some of its logits [R, n] into log p."""
        return (logits - self.total[:, None]).masked_fill(logits <= LEAST, -torch.inf)

    def of(self, tokens: Tensor) -> Tensor:
        """log p of a token of each row, [R]."""
        return self.log_p(self.x.gather(1, tokens[:, None]))[:, 0]

    def rank(self, tokens: Tensor) -> Tensor:
        """The place of a token of each row among all by p, [R], from 1."""
        return order(self.x, tokens[:, None])


def slabs(rows: int, device: torch.device) -> list[slice]:
    """The rows in parts that are worked on at once."""
    size = SLAB_CPU if device.type == "cpu" else SLAB
    return [slice(low, low + size) for low in range(0, rows, size)]


@torch.inference_mode()
def target(logits: Tensor, parents: Tensor, tokens: Tensor, listed: int) -> dict[str, Tensor]:
    """p at temperature 1 after every row, and of every row's token given its parent's.

    logits   [R, V] of the target, before any processor
    parents  [R], the row above; −1 for a root
    tokens   [R], the token of each row; a root's is not read
    """
    parts: list[tuple[Tensor, ...]] = []
    parts_of = slabs(len(logits), logits.device)
    for rows in parts_of:
        slab = Slab(logits[rows], listed)
        parts.append((slab.ids.int(), slab.best, slab.entropy, slab.total))
    ids, log_p, entropy, totals = map(torch.cat, zip(*parts, strict=True))
    own, ranks, parent = [], [], parents.clamp_min(0)
    for rows in parts_of:
        above, token = parent[rows], tokens[rows, None].clamp_min(0).long()
        x = logits.index_select(0, above).float()
        held = x.gather(1, token)
        own.append(held[:, 0] - totals[above])
        ranks.append(place(ids[above], token, rank(x, held)))
    root = parents < 0
    return {
        "top": ids,
        "top_log_p": log_p,
        "entropy": entropy,
        "log_p": torch.cat(own).masked_fill(root, torch.nan),
        "rank_p": torch.cat(ranks).masked_fill(root, 0),
    }


def rank(scores: Tensor, held: Tensor) -> Tensor:
    """1 + how many of each row [R, V] are larger than its ``held`` [R, 1]; int32 [R]."""
    # Comparing, and counting the booleans, takes twice as long.
    return (scores - held).gt_(0).sum(1).int() + 1


def order(scores: Tensor, tokens: Tensor) -> Tensor:
    """The place of a token [R, 1] of each row [R, V], of equals the lowest id first, as ``top``
    has them; int32 [R]. It takes three times as long as ``rank``."""
    held, before = scores.gather(1, tokens), torch.arange(scores.shape[1], device=scores.device)
    ahead = (scores > held) | ((scores == held) & (before < tokens))
    return ahead.sum(1).int() + 1


def place(ids: Tensor, tokens: Tensor, ranks: Tensor) -> Tensor:
    """Ranks in which equals stand as a list of the best has them; int32 [R]. Equals that are not
    listed share one: logits of 16 bits tie often.

    ids     [R, K], best first, as ``top`` gives them
    tokens  [R, 1], and their ``rank`` ``ranks`` [R]
    """
    same = ids == tokens
    listed = same.int().argmax(1).int() + 1
    return torch.where(same.any(1), listed, ranks.clamp_min(ids.shape[1] + 1))


def tvd(q: Tensor, p: Tensor) -> Tensor:
    """Total variation distance ½ Σ_v |q(v) − p(v)| of each row, [R]; 1 where q proposes nothing.

    q  [R, V'], p [R, V]; a drafter with a shorter vocabulary gives the rest nothing
    """
    width = q.shape[-1]
    apart = torch.linalg.vector_norm(q - p[:, :width], 1, dim=-1)
    if width < p.shape[-1]:
        apart = apart + p[:, width:].sum(-1)
    return torch.where(q.any(-1), apart / 2, 1.0)


def coverage(scores: Tensor, ids: Tensor, p: Tensor) -> Tensor:
    """C_K = Σ_{l ≤ K} p(x̂^(l)) for K = 1 … 16, [R, 16].

    scores, ids  [R, K] of the drafter's best tokens x̂, as ``top`` gives them; −inf: not proposed.
                 Fewer than 16 are a whole vocabulary.
    p            [R, V]
    """
    found = (p.gather(1, ids) * (scores > -torch.inf))[:, :COVERAGE].cumsum(1)
    short = COVERAGE - found.shape[1]
    return torch.cat([found, found[:, -1:].expand(-1, short)], 1)
