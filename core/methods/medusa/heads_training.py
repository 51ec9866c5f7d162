"""How heads on the target's last hidden state are trained: the target frozen, all heads at once.

They learn the target's distribution and share its head, frozen: heads of their own would be most of
what ships.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from core.errors import UserError
from core.learning.corpus import Blocks
from core.learning.student import DrafterTraining, M, Student, TrainingRun, target_shape
from core.methods.medusa import HeadsOptions
from core.models.checkpoint import Form
from core.models.language import last_layer


class HeadsStudent(Student[M]):
    """All depths weigh the same."""

    gamma = math.inf

    def __init__(self, model: M, target: Any):
        super().__init__(model, target)
        self.layers = (last_layer(target),)

    @property
    def max_depth(self) -> int:
        config: Any = self.model.config
        return config.heads

    def hidden(self, blocks: Blocks) -> Tensor:
        """The last hidden states [A, h] before the anchors."""
        return self.features(blocks, self.layers)[blocks.anchors.to(self.device) - 1]


class HeadsTraining(DrafterTraining):
    def layers(self, run: TrainingRun, options: HeadsOptions) -> tuple[int, ...]:
        return (last_layer(run.language.model),)


def start_heads(run: TrainingRun, form: Form[Any, M], new: Callable[[int], M]) -> M:
    """The heads that training begins with: those of ``run.start``, else ``new`` ones of width h.

    Raises UserError for heads that end in a linear head of their own.
    """
    if not run.start:
        return new(target_shape(run.language)["hidden_size"])
    model = form.load_model(run.start, torch.float32, run.language.device)
    config: Any = model.config
    if config.vocab_size:
        raise UserError(f"{run.start}: {form.kind} heads of their own are not trained here")
    return model
