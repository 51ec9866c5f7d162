"""Drawing tokens from logits, with noise that depends on nothing but seed and position.

At temperature > 0 the token at absolute position i is argmax(logits/T + g_i), g_i Gumbel noise
keyed by (seed, i): an exact sample of softmax(logits/T). Since g_i does not depend on how position
i was reached, every method and every budget writes the text that plain decoding writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor

from core.rounds.round import Sampling

# Independent streams of one seed's noise.
TARGET_STREAM, DRAFT_STREAM, ACCEPT_STREAM, RESIDUAL_STREAM = range(4)


def of_round(stream: int, root: int) -> int:
    """A stream like this one for the round whose root stands at this position, and no other."""
    return stream + 4 * (root + 1)


def noise_of(seed: int, stream: int = TARGET_STREAM) -> Callable[[int, int], Tensor]:
    """A seed's Gumbel noise, by absolute position and size. That of the latest is cached."""
    return lru_cache(maxsize=128)(partial(gumbel_noise, seed, stream=stream))


class TargetSampler:
    """Chooses tokens from logits: the argmax, or a sample with position-keyed noise.

    ``stream`` tells noises of one seed apart: draws of different streams are independent.
    """

    def __init__(self, sampling: Sampling, stream: int = TARGET_STREAM):
        self.sampling, self._noise = sampling, noise_of(sampling.seed, stream)

    def choose(self, logits: Tensor, positions: list[int]) -> Tensor:
        """Tokens [R] from logits [R, V]; ``positions`` are those the tokens will stand at."""
        return best(logits if self.sampling.greedy else self.scores(logits, positions))

    def scores(self, logits: Tensor, positions: list[int]) -> Tensor:
        """float32 [R, V]: the filtered logits and noise, whose largest is the sampled token."""
        scores = self.filtered(logits)
        for row, position in enumerate(positions):
            scores[row] += self._noise(position, scores.shape[-1]).to(scores.device)
        return scores

    def filtered(self, logits: Tensor) -> Tensor:
        """float32 logits / T with tokens outside top-k and top-p at −inf (a new tensor)."""
        s = self.sampling
        scores = logits.float() / s.temperature
        if 0 < s.top_k < scores.shape[-1]:
            least = scores.topk(s.top_k).values[..., -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if s.top_p < 1.0:
            ordered, index = torch.sort(scores.softmax(-1), dim=-1, descending=True, stable=True)
            # A token stays while the mass *before* it is below top_p: the best one always does.
            out = ordered.cumsum(-1) - ordered >= s.top_p
            scores = scores.masked_fill(out.scatter(-1, index, out), -torch.inf)
        return scores


def best(rows: Tensor) -> Tensor:
    """The first of the largest of each row: [R, V] → [R].

    torch's argmax walks a CPU's rows an element at a time: numpy's takes a tenth of its time.
    """
    if rows.device.type == "cpu" and rows.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(rows.detach().numpy().argmax(-1))
    return rows.argmax(-1)


def uniforms(seed: int, position: int, size: int, stream: int = TARGET_STREAM) -> np.ndarray:
    """Uniform numbers [size] float64 in [0, 1) for one position, the same on every machine."""
    key = np.array([seed % 2**64, position], np.uint64)  # a list would pass through float64
    return np.random.Generator(np.random.Philox(key=key, counter=stream << 192)).random(size)


def gumbel_noise(seed: int, position: int, size: int, stream: int = TARGET_STREAM) -> Tensor:
    """Gumbel noise [size] float32 for one absolute position, alike on every machine."""
    # 53-bit uniforms, off zero and off one: in float32 the tail of the noise would be quantised.
    uniform = np.minimum(uniforms(seed, position, size, stream) + 2.0**-54, 1 - 2.0**-53)
    return torch.from_numpy((-np.log(-np.log(uniform))).astype(np.float32))
