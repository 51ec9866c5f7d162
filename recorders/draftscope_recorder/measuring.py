"""p and q of a step's rows, on their device. Nothing here changes what the engine computes.

Rows of all requests stand one after another; a request's first row is its root. Shapes: R rows, V
vocabulary, K tokens listed. The tensors that come out are small: [R] and [R, K].
"""

from __future__ import annotations

import torch
from torch import Tensor

SLAB = 32  # rows of [R, V] in float32 at once
COVERAGE = 16  # K = 1 … 16


@torch.inference_mode()
def target(logits: Tensor, parents: Tensor, tokens: Tensor, listed: int) -> dict[str, Tensor]:
    """p at temperature 1 after every row, and of every row's token given its parent's.

    logits   [R, V] of the target, before any processor
    parents  [R], the row above; −1 for a root
    tokens   [R], the token of each row; a root's is not read
    """
    best = min(listed, logits.shape[1])
    parts: list[tuple[Tensor, ...]] = []
    for some in logits.split(SLAB):
        x = some.float()
        total = x.logsumexp(-1, keepdim=True)
        values, ids = x.topk(best)
        log_p = x - total  # never in place: float32 logits are the engine's own
        # exp(−inf)·(−inf) would be NaN; such tokens carry no entropy
        entropy = -(log_p.exp() * log_p.clamp_min(-1e9)).sum(-1)
        parts.append((ids.int(), values - total, entropy, total[:, 0]))
    top, top_log_p, entropy, totals = map(torch.cat, zip(*parts, strict=True))
    own, ranks = [], []
    for above, token in zip(parents.clamp_min(0).split(SLAB), tokens.split(SLAB), strict=True):
        row = logits[above]
        x = row.gather(1, token[:, None].clamp_min(0).long())
        own.append(x[:, 0].float() - totals[above])
        ranks.append((row > x).sum(1, dtype=torch.int32) + 1)
    root = parents < 0
    return {
        "top": top,
        "top_log_p": top_log_p,
        "entropy": entropy,
        "log_p": torch.cat(own).masked_fill(root, torch.nan),
        "rank_p": torch.cat(ranks).masked_fill(root, 0),
    }


@torch.inference_mode()
def drafter(
    q_logits: Tensor, p_logits: Tensor | None, tokens: Tensor, wanted: Tensor, listed: int
) -> dict[str, Tensor]:
    """q at every place that was drafted, beside p there.

    q_logits  [D, V'] of the drafter at D places; V' ≤ V
    p_logits  [D, V] of the target at the same places; None: no TVD and no coverage
    tokens    [D], what was drafted there
    wanted    [D], the target's own token there; −1: not known
    """
    most = min(max(listed, COVERAGE), q_logits.shape[1])
    parts: dict[str, list[Tensor]] = {}
    for low in range(0, len(q_logits), SLAB):
        rows = slice(low, low + SLAB)
        log_q = q_logits[rows].float().log_softmax(-1)
        q, best = log_q.exp(), log_q.topk(most)
        width = log_q.shape[1]
        held = log_q.gather(1, wanted[rows, None].clamp(0, width - 1).long())
        rank = (log_q > held).sum(1, dtype=torch.int32) + 1
        known = (wanted[rows] >= 0) & (wanted[rows] < width)
        here = {
            "q_top": best.indices[:, :listed].int(),
            "q_top_log": best.values[:, :listed],
            "log_q": log_q.gather(1, tokens[rows, None].long())[:, 0],
            "rank_q": torch.where(known, rank.masked_fill(held[:, 0] == -torch.inf, 0), -1),
            "entropy_q": -(q * log_q.clamp_min(-1e9)).sum(-1),
        }
        if p_logits is not None:
            here |= _beside(q, best.indices, best.values, p_logits[rows].float().softmax(-1))
        for name, x in here.items():
            parts.setdefault(name, []).append(x)
    return {name: torch.cat(x) for name, x in parts.items()}


def _beside(q: Tensor, ids: Tensor, log_q: Tensor, p: Tensor) -> dict[str, Tensor]:
    """TVD and coverage. A drafter with a shorter vocabulary gives the rest nothing."""
    own, beyond = p[:, : q.shape[1]], p[:, q.shape[1] :].sum(-1)
    covered = (own.gather(1, ids) * (log_q > -torch.inf))[:, :COVERAGE].cumsum(1)
    short = COVERAGE - covered.shape[1]
    covered = torch.cat([covered, covered[:, -1:].expand(-1, short)], 1)
    return {"tvd": ((q - own).abs().sum(-1) + beyond) / 2, "coverage": covered}
