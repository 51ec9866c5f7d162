"""From logits to a Ranking: which masked position comes first, and which token it gets.

The one definition of low-confidence remasking, used by plain denoising, Spiffy and calibration:

- the token of a position is the argmax of its logits, at temperature T > 0 of logits/T + g with g
  Gumbel noise keyed by (seed, absolute position): the same at whatever step, so no draft changes
  the text. The mask token is never chosen. Ties: the lowest id.
- its confidence is softmax(logits) of that token, over the full vocabulary at temperature 1.
- positions are taken by confidence; ties: the lowest position.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from core.rounds.blocks import Ranking
from core.rounds.draft import Array
from core.verification.sampling import Noise


class TokenRule:
    """Ranks tokens at positions."""

    def __init__(self, mask_id: int, temperature: float = 0.0, seed: int = 0):
        self.mask_id, self.temperature, self._noise = mask_id, temperature, Noise(seed)

    def scores(self, logits: Tensor, places: list[int]) -> Tensor:
        """What tokens are ranked by, [R, V]; ``places`` are the rows' absolute positions."""
        if self.temperature == 0:
            scores = logits.clone()
        else:
            noise = torch.stack([self._noise.at(at, logits.shape[-1]) for at in places])
            scores = logits / self.temperature + noise.to(logits)
        if self.mask_id < logits.shape[-1]:
            scores[:, self.mask_id] = -torch.inf
        return scores


@torch.inference_mode()
def rank(logits: Tensor, positions: Array, start: int, rule: TokenRule, width: int) -> Ranking:
    """Rank the masked ``positions`` [R] of a block that begins at absolute position ``start``.

    logits [R, V] in float32 or float64 (half precisions are widened); ``width`` tokens of each are
    kept, fewer when the vocabulary has no more.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    scores = rule.scores(logits, [start + int(at) for at in positions])
    has_mask = rule.mask_id < logits.shape[-1]
    ids = _best(scores, min(width, logits.shape[-1] - has_mask))
    p = logits.softmax(-1).gather(-1, ids).cpu().numpy()
    order = np.lexsort((positions, -p[:, 0]))
    kept = ids.cpu().numpy()[order]
    return Ranking(positions[order].astype(np.int32), kept, p[order])


def _best(scores: Tensor, width: int) -> Tensor:
    """The ``width`` best ids of each row [R, width], ties by the lowest id.

    topk leaves the order of ties open: rows that have one among their best are sorted instead.
    """
    best = scores.topk(min(width + 1, scores.shape[-1]))
    ids = best.indices[:, :width]
    tied = (best.values[:, 1:] == best.values[:, :-1]).any(-1)
    if bool(tied.any()):
        ids[tied] = scores[tied].sort(stable=True, dim=-1, descending=True).indices[:, :width]
    return ids
