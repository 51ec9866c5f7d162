"""A target's ends as its own forward has them: what enters its first layer, and the logits of its
normed rows.

Some models scale or cap what their head says, in the model's forward and not in the head. What the
head says of a row is then not the target's logits: p of kept hidden states, and of training's text,
need all of it. A drafter on the target's head is left as it was trained: its own config says what
is done to its logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.errors import UserError

# Fields of configs that scale logits, and the kinds of models of which it is known how.
TIMES = {
    "logit_scale": ("cohere",),
    "lm_head_multiplier": ("falcon_h1",),
    "logits_scaling": ("hyperclovax",),
    "output_multiplier": ("muse_",),
}
OVER = {"logits_scaling": ("granite", "minicpm")}
CAPS = ("final_logit_softcapping", "logits_soft_cap")


@dataclass(frozen=True)
class Readout:
    """The way from a head's outputs to logits: times, over, and then cap · tanh(x / cap). 0: no
    cap."""

    times: float = 1.0
    over: float = 1.0
    cap: float = 0.0

    @staticmethod
    def of(config: Any) -> Readout:
        """Read it off a target's config. Raises UserError where a scale is not known to be one."""
        text = config.get_text_config()
        told = [(n, getattr(text, n, None)) for n in {**TIMES, **OVER}]
        scales = {name: value for name, value in told if value not in (None, 1, 1.0)}
        kind = str(getattr(text, "model_type", ""))
        found = {"times": 1.0, "over": 1.0}
        for name, value in scales.items():
            known = [way for way, table in (("times", TIMES), ("over", OVER))
                     if kind.startswith(table.get(name, ()))]  # fmt: skip
            if not known:
                raise UserError(
                    f"a target of the kind {kind!r} with {name} = {value} is not supported here: "
                    "it is not known what it does to the logits"
                )
            found[known[0]] = float(value)
        caps = [getattr(text, name, None) for name in CAPS]
        return Readout(**found, cap=next((float(cap) for cap in caps if cap), 0.0))

    def __call__(self, logits: Tensor) -> Tensor:
        """The target's logits [..., V] of its head's."""
        if self.times != 1:
            logits = logits * self.times
        if self.over != 1:
            logits = logits / self.over
        return torch.tanh(logits / self.cap) * self.cap if self.cap else logits


def entering(config: Any, embedded: Tensor) -> Tensor:
    """The vectors [..., h] that enter a target's first layer, of its embedding's rows."""
    times = getattr(config.get_text_config(), "embedding_multiplier", None)
    return embedded if times in (None, 1, 1.0) else embedded * times
