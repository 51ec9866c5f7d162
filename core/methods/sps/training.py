"""How a draft model made of the target's first layers is trained: p at every place of the answers.

Only low-rank changes of those layers learn, so that what ships is small.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.errors import UserError
from core.learning.corpus import Blocks, Corpus
from core.learning.student import DrafterTraining, Labels, Student, TrainingRun
from core.methods.sps import SpsTrainingOptions
from core.methods.sps.model import (
    FORM,
    DraftAdapter,
    DraftConfig,
    first_layers,
    load_adapter,
    save_adapter,
)
from core.models.adapter import PARTS


class SpsStudent(Student[DraftAdapter]):
    """A language model learns the next token, at every place."""

    def __init__(self, model: DraftAdapter, target: Any):
        super().__init__(model, target)
        self.lm: Any = first_layers(target, self.model)

    @property
    def max_depth(self) -> int:
        return 1

    def labels(self, blocks: Blocks, top_k: int, rng: torch.Generator, gamma: float) -> Labels:
        """The labels at all places of the answer, whatever the anchors."""
        document = blocks.document
        whole = Blocks(document, torch.arange(document.answer, len(document) - 1))
        ids, p, exists = whole.target_probs(1, top_k)
        return Labels(whole, ids, p, exists.float())

    def rows(self, blocks: Blocks) -> Tensor:
        tokens = blocks.document.tokens[: int(blocks.anchors[-1]) + 1].long().to(self.device)
        found = self.lm.get_decoder()(tokens[None], use_cache=False).last_hidden_state[0]
        return found[blocks.anchors.to(self.device)][:, None]

    def save(self, folder: Path) -> None:
        save_adapter(self.model, folder)


def new_config(target: Any, options: SpsTrainingOptions) -> DraftConfig:
    layer = target.get_decoder().layers[0]
    shapes = {name: getattr(getattr(layer, at), name).weight.shape for name, at in PARTS.items()}
    parts = {name: (shape[0], shape[1]) for name, shape in shapes.items()}
    return DraftConfig(options.first, options.change, parts)


class SpsTraining(DrafterTraining):
    name = "sps"
    builders = ("chain", "best-first")

    def layers(self, run: TrainingRun, options: SpsTrainingOptions) -> tuple[int, ...]:
        return ()

    def student(self, run: TrainingRun, options: SpsTrainingOptions, corpus: Corpus) -> SpsStudent:
        target = run.language.model
        if run.start:
            config = FORM.load_config(run.start)
            if not config.rank:
                raise UserError(f"{run.start} holds nothing that was trained: leave --start out")
            adapter = load_adapter(run.start, config).float().requires_grad_(True)
            return SpsStudent(adapter, target)
        return SpsStudent(DraftAdapter(new_config(target, options)), target)

    def ship(self, trained: Path, folder: Path) -> None:
        save_adapter(load_adapter(trained, FORM.load_config(trained)), folder, small=True)


TRAINING = SpsTraining()
