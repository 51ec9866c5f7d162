"""The probe: p and q of one round, read off the logits before they are freed.

It runs after the decision, outside every timed stage, on the device, and returns plain arrays.
p is always softmax(logits) at temperature 1 over the full vocabulary, q the drafter's: the
calibration of a drafter does not depend on the temperature somebody samples at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from core.decoding.decode import Observation, Scene
from core.drafting.session import DraftSession
from core.rounds.draft import Array
from core.rounds.round import Probe, TargetProbs
from core.traces.distributions import COVERAGE, TOP

SLAB = 64  # rows of [N, V] worked on at a time: bounds the memory at large budgets


@torch.inference_mode()
def observe(scene: Scene) -> Observation:
    """The target's probabilities at every row, TVD and coverage at the observed depths."""
    return Observation(_target_probs(scene), _probe(scene), _target_tokens(scene))


def _target_probs(scene: Scene) -> TargetProbs:
    draft, device = scene.draft, scene.logits.device
    parents = torch.from_numpy(draft.parents).to(device, torch.long)
    tokens = torch.from_numpy(draft.tokens).to(device)
    count = len(draft)
    top_ids, top_log_p, entropy = [], [], []
    log_p = torch.full((count,), torch.nan, device=device)
    rank = torch.zeros(count, dtype=torch.int32, device=device)
    for low in range(0, count, SLAB):
        slab = scene.logits[low : low + SLAB].float().log_softmax(-1)
        best = slab.topk(min(TOP, slab.shape[-1]))
        top_ids.append(best.indices)
        top_log_p.append(best.values)
        # exp(−inf)·(−inf) would be NaN; such tokens carry no entropy
        entropy.append(-(slab.exp() * slab.clamp_min(-1e9)).sum(-1))
        below = ((parents >= low) & (parents < low + SLAB)).nonzero().flatten()
        for rows in below.split(SLAB):  # a few rows may have all the children
            above = slab[parents[rows] - low]
            own = above.gather(1, tokens[rows, None])
            log_p[rows] = own.squeeze(1)
            rank[rows] = (above > own).sum(1, dtype=torch.int32) + 1
    return TargetProbs(
        log_p=_array(log_p),
        rank=_array(rank),
        top_ids=_array(torch.cat(top_ids)),
        top_log_p=_array(torch.cat(top_log_p)),
        entropy=_array(torch.cat(entropy)),
    )


def _probe(scene: Scene) -> Probe | None:
    session, draft = scene.session, scene.draft
    if session is None:
        return None
    rows = list(scene.verdict.path[: session.max_depth])
    wanted = scene.verdict.target_tokens[rows]
    return probe_along(session, draft.tokens[rows].tolist(), scene.logits[rows], wanted)


def probe_along(
    session: DraftSession, path: Sequence[int], logits: Tensor, wanted: Array
) -> Probe | None:
    """Depth d compares q_d, given the accepted path above it, with p after that path.

    path    [d] tokens from the root on; ``logits`` [d, V] of the target after each of them
    wanted  [d] the target's own token after each; −1: not known
    """
    log_q = session.log_q(path)
    if log_q is None:
        return None
    count = int((log_q > -torch.inf).any(-1).int().cumprod(0).sum())  # depths with a proposal
    if not count:
        return None
    log_q, p = log_q[:count], logits[:count].float().softmax(-1)
    log_q = log_q.to(p.device)
    q = log_q.exp()
    own = torch.from_numpy(wanted[:count]).to(p.device)[:, None]
    return Probe(
        tvd=_array(tvd(q, p)),
        coverage=coverage(log_q, p),
        entropy_q=_array(-(q * log_q.clamp_min(-1e9)).sum(-1)),
        rank_q=_array(_ranks(log_q, own)),
        vocabulary=session.draft_vocabulary,
    )


def _ranks(log_q: Tensor, own: Tensor) -> Tensor:
    """Ranks of tokens [d, 1] under log q [d, V], int32 [d]; 0 where q gives one nothing, −1 where
    the token is −1."""
    given = log_q.gather(1, own.clamp_min(0))
    ranks = (log_q > given).sum(1, dtype=torch.int32) + 1
    return ranks.masked_fill(given.squeeze(1) == -torch.inf, 0).masked_fill(own.squeeze(1) < 0, -1)


def tvd(q: Tensor, p: Tensor) -> Tensor:
    """Total variation distance ½ Σ_v |q(v) − p(v)| of each row [d, V] → [d]; 1 where the drafter
    proposes nothing."""
    return torch.where(q.any(-1), (q - p).abs().sum(-1) / 2, 1.0)


def coverage(scores: Tensor, p: Tensor) -> np.ndarray:
    """C_K = Σ_{l≤K} p(x̂^(l)) for K = 1 … 16, float32 [d, 16]; x̂ the best of ``scores`` [d, V]."""
    best = scores.topk(min(COVERAGE, scores.shape[-1]))
    listed = p.gather(1, best.indices) * (best.values > -torch.inf)  # q = 0: not proposed
    covered = _array(listed.cumsum(1))
    found = np.empty((len(covered), COVERAGE), np.float32)
    found[:] = covered[:, -1:]  # a vocabulary of fewer than 16 is covered by them all
    found[:, : covered.shape[1]] = covered
    return found


def _target_tokens(scene: Scene) -> np.ndarray:
    """The target's token after every row; where the walk came, its answers stand."""
    tokens = scene.verdict.target_tokens.copy()
    rows = np.flatnonzero(tokens < 0)
    for low in range(0, len(rows), SLAB):
        some = rows[low : low + SLAB]
        after = (scene.draft.depths[some] + scene.position + 1).tolist()
        index = torch.from_numpy(some).to(scene.logits.device)
        tokens[some] = _array(scene.rule.sampler.choose(scene.logits[index], after))
    return tokens


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy()
