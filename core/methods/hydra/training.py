"""How the Hydra heads are trained (Hydra, §3): each is given the text's own tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from core.drafting.session import tokens_after
from core.errors import UserError
from core.learning.corpus import Blocks, Corpus
from core.learning.student import TrainingRun
from core.methods.hydra.model import FORM, HydraConfig, HydraModel
from core.methods.medusa import HeadsOptions
from core.methods.medusa.heads_training import (
    HeadsStudent,
    HeadsTraining,
    start_heads,
)


class HydraStudent(HeadsStudent[HydraModel]):
    form = FORM

    def rows(self, blocks: Blocks) -> Tensor:
        hidden, tokens = self.hidden(blocks), blocks.document.tokens.long()
        path = self.embed(tokens_after(tokens, blocks.anchors, self.max_depth))
        return torch.stack([self.model(hidden, path[:, : i + 1]) for i in range(path.shape[1])], 1)


class HydraTraining(HeadsTraining):
    name, form = "hydra", FORM

    def student(self, run: TrainingRun, options: HeadsOptions, corpus: Corpus) -> HydraStudent:
        model = start_heads(run, FORM, lambda width: HydraModel(HydraConfig(options.heads, width)))
        if model.config.prefix is not None:
            raise UserError(f"{run.start}: Hydra++'s layer before the heads is not trained here")
        return HydraStudent(model, run.language.model)


TRAINING = HydraTraining()
