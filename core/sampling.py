"""The target's rule for its own token, with noise that depends on nothing but seed and position.

At temperature > 0 the token at absolute position i is argmax(logits/T + g_i), g_i Gumbel noise
keyed by (seed, i): an exact sample of softmax(logits/T). Since g_i does not depend on how position
i was reached, every method and every budget writes the text that plain decoding writes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from core.errors import UserError
from core.types import Sampling


def check_temperature(temperature: float) -> None:
    """Raises UserError for a temperature that no logits are to be divided by."""
    if temperature != 0 and not 1e-3 <= temperature <= 1e3:
        raise UserError(
            f"the temperature must be 0 (greedy) or from 0.001 to 1000, not {temperature}"
        )


class Noise:
    """A seed's Gumbel noise by absolute position; that of the positions asked for last is kept."""

    _KEPT_POSITIONS = 128

    def __init__(self, seed: int):
        self._seed, self._kept = seed, dict[int, Tensor]()

    def at(self, position: int, size: int) -> Tensor:
        """[size] float32."""
        if position not in self._kept:
            while len(self._kept) >= self._KEPT_POSITIONS:
                del self._kept[next(iter(self._kept))]
            self._kept[position] = gumbel_noise(self._seed, position, size)
        return self._kept[position]


class TargetRule:
    """Chooses the target's token from its logits."""

    def __init__(self, sampling: Sampling):
        self.sampling, self._noise = sampling, Noise(sampling.seed)

    def choose(self, logits: Tensor, positions: list[int]) -> Tensor:
        """Tokens [R] from logits [R, V]; ``positions`` are those the tokens will stand at."""
        if self.sampling.greedy:
            return best(logits)
        scores = self.filtered(logits)
        for row, position in enumerate(positions):
            scores[row] += self._noise.at(position, scores.shape[-1]).to(scores.device)
        return best(scores)

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


def gumbel_noise(seed: int, position: int, size: int) -> Tensor:
    """Gumbel noise [size] float32 for one absolute position; the same on every machine."""
    key = np.array([seed % 2**64, position], np.uint64)  # a list would pass through float64
    stream = np.random.Generator(np.random.Philox(key=key))
    # 53-bit uniforms, off zero and off one: in float32 the tail of the noise would be quantised.
    uniform = np.minimum(stream.random(size) + 2.0**-54, 1 - 2.0**-53)
    return torch.from_numpy((-np.log(-np.log(uniform))).astype(np.float32))
