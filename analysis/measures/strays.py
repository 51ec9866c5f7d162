"""Tokens of a text that are not the best of the recorded p: more than p allows? Never torch.

Whatever was drafted, a lossless rule writes the target's own tokens. A greedy one is the best of p,
or ties with it. One sampled at a temperature T ≤ 1 is the best with probability

    p₁^(1/T) ÷ Σ_v p_v^(1/T)

or more, for top-k and top-p take from the others. Of p a round keeps the best tokens after every
row (``TargetProbs.top_ids``). None of the others is above the last of these, pⱼ, so that they add
at most (1 − Σ p) · pⱼ^(1/T − 1) to the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.labels import temperature
from analysis.numbers import near
from core.rounds.draft import Array
from core.rounds.round import Round
from core.traces.schema import Header

UNLIKELY = 5.0  # standard errors
SLIGHT = 0.05  # of what is allowed, by which p may be off where precision is low


@dataclass(frozen=True)
class Strays:
    """Tokens of one round, accepted ones and the bonus token, or sums over rounds.

    told     tokens of which p and the settings tell whether they stray
    strays   of these, those that are not the best of p, nor near it where the text is greedy
    allowed  how many may be expected, at most
    """

    told: int = 0
    strays: int = 0
    allowed: float = 0.0

    @property
    def unlikely(self) -> bool:
        """Whether they are more than chance and precision explain. Their variance is largest where
        all tokens stray alike."""
        error = math.sqrt(self.allowed * (1 - self.allowed / self.told)) if self.told else 0.0
        return self.strays - self.allowed > max(UNLIKELY * error, SLIGHT * self.allowed)


@dataclass(frozen=True)
class Judge:
    """A run's rule for its tokens.

    temperature  at most 1
    tie          nats by which a greedy token may lie below the best of p
    """

    temperature: float
    tie: float

    @staticmethod
    def of(header: Header) -> Judge | None:
        """None where the settings do not tell, or tell that p was changed before it was used."""
        heat = temperature(header)
        if heat is None or heat > 1 or header.settings.get("processors"):
            return None
        return Judge(heat, near([header.dtype or "bfloat16"]))

    def strays(self, record: Round) -> Strays:
        probs, path = record.target_probs, list(record.verdict.path)
        if probs is None or not probs.top_ids.shape[1]:
            return Strays()
        told = np.isfinite(probs.top_log_p[path, 0])
        tokens = np.array([*record.draft.tokens[path[1:]], record.verdict.bonus])[told]
        ids, log_p = probs.top_ids[path][told], probs.top_log_p[path][told].astype(float)
        if self.temperature == 0:
            return self._greedy(tokens, ids, log_p)
        others = int((ids[:, 0] != tokens).sum())
        return Strays(len(tokens), others, float((1 - self._share(log_p)).sum()))

    def _greedy(self, tokens: Array, ids: Array, log_p: Array) -> Strays:
        listed = ids == tokens[:, None]
        inside = listed.any(1)
        own = np.where(inside, log_p[range(len(ids)), listed.argmax(1)], log_p.min(1))
        strays = log_p[:, 0] - own > self.tie
        told = inside | strays  # behind a list that ends near the best a token may be near, too
        return Strays(int(told.sum()), int(strays.sum()))

    def _share(self, log_p: Array) -> Array:
        """The least probability of each row's best token."""
        power = 1 / self.temperature
        rest = (1 - np.exp(log_p).sum(1)).clip(0) * np.exp(log_p.min(1) * (power - 1))
        return np.exp(log_p[:, 0] * power) / (np.exp(log_p * power).sum(1) + rest)
