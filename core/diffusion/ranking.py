"""From logits to a Ranking: which masked position is unmasked next, and with which token.

The one definition of low-confidence remasking, for plain denoising and Spiffy alike:

- A position's token is the argmax of its logits; at temperature T > 0 of logits/T + g, with g
  Gumbel noise keyed by (seed, absolute position). The noise is the same at every step, so drafting
  never changes the text. The mask token is never chosen. Ties: the lowest id.
- A position's confidence is softmax(logits) of that token, over the full vocabulary at
  temperature 1.
- Positions are unmasked by confidence: of the first masked one and those with a confidence of at
  least ``ahead``, the surest first; ties: the lowest position. All others come after, from left to
  right. ``ahead`` 0 is low-confidence remasking as published (LLaDA): the surest of all.

Why ``ahead``: whatever token stands at the first masked position, the text before it leads there. A
token set further right is a guess of how many come between. Where the model hesitates at the first
position, the surest of all is often such a guess, and wrong. Other position-aware orders weigh the
confidence by the distance (arXiv:2508.13021).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from core.drafting.best import top
from core.rounds.blocks import Ranking
from core.rounds.draft import Array
from core.verification.sampling import noise_of


class TokenRule:
    """Scores of tokens at a position: logits, plus Gumbel noise where the temperature is not 0."""

    def __init__(self, mask_id: int, temperature: float = 0.0, seed: int = 0):
        self.mask_id, self.temperature, self._noise = mask_id, temperature, noise_of(seed)

    def scores(self, logits: Tensor, positions: list[int]) -> Tensor:
        """The scores [R, V] of all tokens at absolute ``positions`` [R]."""
        if self.temperature == 0:
            scores = logits.clone()
        else:
            noise = torch.stack([self._noise(at, logits.shape[-1]) for at in positions])
            scores = logits / self.temperature + noise.to(logits)
        if self.mask_id < logits.shape[-1]:
            scores[:, self.mask_id] = -torch.inf
        return scores


def unmasking_order(p: Array, positions: Array, ahead: float) -> Array:
    """The order in which masked ``positions`` [R] with confidences ``p`` [R] are unmasked, [R]."""
    free = (p >= ahead) | (positions == positions.min())
    return np.lexsort((positions, np.where(free, -p, 0.0), ~free))


@torch.inference_mode()
def rank_positions(
    logits: Tensor,
    positions: Array,
    start: int,
    rule: TokenRule,
    width: int,
    ahead: float = 0.0,
) -> Ranking:
    """Rank the masked ``positions`` [R] of a block that begins at absolute position ``start``.

    logits  [R, V] in float32 or float64; half precisions are widened
    width   tokens listed at each position, fewer when the vocabulary has no more
    ahead   confidence that a position needs to be unmasked before the first masked one

    The probabilities have the precision of the logits.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    scores = rule.scores(logits, [start + int(at) for at in positions])
    has_mask = rule.mask_id < logits.shape[-1]
    ids = top(scores, min(width, logits.shape[-1] - has_mask)).indices
    p = logits.softmax(-1).gather(-1, ids).cpu().numpy()
    order = unmasking_order(p[:, 0], positions, ahead)
    return Ranking(positions[order].astype(np.int32), ids.cpu().numpy()[order], p[order])
