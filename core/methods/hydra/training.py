"""How the Hydra heads are trained (Hydra, §3): the target frozen, all heads at once, each given the
text's own tokens. They learn the target's distribution and share its head, frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.errors import UserError
from core.methods.hydra.model import HydraConfig, HydraModel, load_model, save_model
from core.methods.method import Range, option
from core.train.corpus import Blocks, Corpus
from core.train.student import DrafterTraining, Student, TrainingRun, target_shape


@dataclass(frozen=True)
class HydraTrainingOptions:
    heads: int = option(4, "heads, one for each depth", Range(1, 16))


class HydraStudent(Student[HydraModel]):
    """All depths weigh the same."""

    gamma = math.inf

    def __init__(self, model: HydraModel, target: Any):
        super().__init__(model, target)
        self.layers = (target.config.get_text_config().num_hidden_layers - 1,)

    @property
    def max_depth(self) -> int:
        return self.model.config.heads

    def rows(self, blocks: Blocks) -> Tensor:
        anchors, tokens = blocks.anchors.to(self.device), blocks.document.tokens.long()
        hidden = self.features(blocks, self.layers)[anchors - 1]
        index = blocks.anchors[:, None] + torch.arange(self.max_depth)
        path = self.embed(tokens[index.clamp(max=len(tokens) - 1)])
        return torch.stack([self.model(hidden, path[:, : i + 1]) for i in range(path.shape[1])], 1)

    def save(self, folder: Path) -> None:
        save_model(self.model, folder)


class HydraTraining(DrafterTraining):
    name, options = "hydra", HydraTrainingOptions

    def layers(self, run: TrainingRun, options: HydraTrainingOptions) -> tuple[int, ...]:
        return (run.language.model.config.get_text_config().num_hidden_layers - 1,)

    def student(
        self, run: TrainingRun, options: HydraTrainingOptions, corpus: Corpus
    ) -> HydraStudent:
        if run.start:
            model = load_model(run.start, torch.float32, run.language.device)
            if model.config.vocab_size:
                raise UserError(f"{run.start}: Hydra heads of their own are not trained here")
        else:
            width = target_shape(run.language)["hidden_size"]
            model = HydraModel(HydraConfig(options.heads, width))
        return HydraStudent(model, run.language.model)

    def ship(self, trained: Path, folder: Path) -> None:
        save_model(load_model(trained, torch.float32, "cpu"), folder, small=True)


TRAINING = HydraTraining()
