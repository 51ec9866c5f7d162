"""How DART's layer is trained (DART §3.3): shifted prediction, λ_k = 0.6^(k−1).

The head is the target's, frozen: training one over the whole vocabulary would double what ships.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core.errors import UserError
from core.learning.corpus import Blocks, Corpus
from core.learning.student import (
    DrafterTraining,
    Student,
    TrainingRun,
    start_as_last_layer,
    target_shape,
)
from core.methods.dart import DartTrainingOptions
from core.methods.dart.model import (
    FORM,
    DartConfig,
    DartModel,
)
from core.models.language import Language


class DartStudent(Student[DartModel]):
    gamma = 1.9576  # exp(−1/γ) = 0.6
    form = FORM

    def __init__(self, model: DartModel, target: Any):
        super().__init__(model, target)
        self.layers = DartConfig.feature_layers(target.config.get_text_config().num_hidden_layers)

    def rows(self, blocks: Blocks) -> Tensor:
        features, tokens, anchors = self.given(blocks, self.layers)
        return self.model.rows_at(self.embed, tokens, features, anchors)


def new_config(language: Language, options: DartTrainingOptions) -> DartConfig:
    """A drafter as wide as its target, over its whole vocabulary."""
    shape = target_shape(language)
    return DartConfig(
        **shape,
        draft_vocab_size=shape["vocab_size"],
        draft_length=options.draft_length,
        target_hidden_size=shape["hidden_size"],
    )


def initial_model(config: DartConfig, target: Any) -> DartModel:
    """A layer that starts as the target's last one.

    The final norm is applied twice, so it starts as the gain that gives the target's when applied
    twice.
    """
    model = DartModel(config)
    layer = model.midlayer
    start_as_last_layer(model.fc, layer, target)
    with torch.no_grad():
        layer.mask_rep.copy_(torch.randn_like(layer.mask_rep) * 0.02)
        root = target.model.norm.weight.float().clamp_min(1e-4).sqrt()
        model.norm.weight.copy_(root * root.square().mean().sqrt())
    return model


class DartTraining(DrafterTraining):
    name, form = "dart", FORM

    def layers(self, run: TrainingRun, options: DartTrainingOptions) -> tuple[int, ...]:
        return DartConfig.feature_layers(
            run.language.model.config.get_text_config().num_hidden_layers
        )

    def student(
        self, run: TrainingRun, options: DartTrainingOptions, corpus: Corpus
    ) -> DartStudent:
        language = run.language
        if run.start:
            found = FORM.load_checkpoint(run.start, torch.float32, language.device)
            if found.head is not None:
                raise UserError(
                    f"{run.start}: a DART drafter with a head of its own is not trained here"
                )
            model = found.model
        else:
            model = initial_model(new_config(language, options), language.model)
        return DartStudent(model, language.model)


TRAINING = DartTraining()
