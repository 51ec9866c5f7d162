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
from core.drafting.best import top
from core.drafting.probabilities import coverage, order, target, tvd
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
    found = target(scene.logits, parents, tokens, TOP)
    return TargetProbs(
        log_p=_array(found["log_p"]),
        rank=_array(found["rank_p"]),
        top_ids=_array(found["top"]),
        top_log_p=_array(found["top_log_p"]),
        entropy=_array(found["entropy"]),
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
    best = top(log_q, COVERAGE)
    return Probe(
        tvd=_array(tvd(q, p)),
        coverage=_array(coverage(*best, p)),
        entropy_q=_array(-(q * log_q.clamp_min(-1e9)).sum(-1)),
        rank_q=_array(_ranks(log_q, own)),
        vocabulary=session.draft_vocabulary,
    )


def _ranks(log_q: Tensor, own: Tensor) -> Tensor:
    """Ranks of tokens [d, 1] under log q [d, V]; int32 [d]. 0 where q gives one nothing, −1 where
    the token is −1."""
    given = log_q.gather(1, own.clamp_min(0))
    return (
        order(log_q, own.clamp_min(0))
        .masked_fill(given.squeeze(1) == -torch.inf, 0)
        .masked_fill(own.squeeze(1) < 0, -1)
    )


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
