"""How the Medusa heads are trained (Medusa-1, §2.2.1): the target frozen, all heads at once.

They learn the target's distribution. They share the target's head, frozen: four of their own would
be most of what ships.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Any

import torch
from torch import Tensor

from core.errors import UserError
from core.methods.medusa import ACCURACIES
from core.methods.medusa.model import MedusaConfig, MedusaModel, load_model, save_model
from core.methods.medusa.tree import RANKS, write_accuracies
from core.methods.method import Range, option
from core.rounds.draft import Array
from core.train.corpus import Blocks, Corpus
from core.train.shards import Document
from core.train.student import DrafterTraining, Student, TrainingRun, target_shape

JUDGES = 16  # held-out texts that accuracies are measured on


@dataclass(frozen=True)
class MedusaTrainingOptions:
    heads: int = option(4, "heads, one for each depth", Range(1, 16))


class MedusaStudent(Student[MedusaModel]):
    """All depths weigh the same. A checkpoint holds the accuracies on held-out texts too."""

    gamma = math.inf

    def __init__(self, model: MedusaModel, target: Any, held_out: Sequence[Document] = ()):
        super().__init__(model, target)
        self.layers = (target.config.get_text_config().num_hidden_layers - 1,)
        self.held_out = held_out

    @property
    def max_depth(self) -> int:
        return self.model.config.heads

    def rows(self, blocks: Blocks) -> Tensor:
        features = self.features(blocks, self.layers)
        return self.model(features[blocks.anchors.to(self.device) - 1])

    @torch.inference_mode()
    def accuracies(self) -> Array:
        """How often each rank is the text's next token at each depth, [L, K]."""
        right = torch.zeros(self.max_depth, RANKS)
        seen = torch.zeros(self.max_depth, 1)
        head = self.head(torch.arange(len(self.head_rows)))
        for document in self.held_out:
            blocks = Blocks(document, torch.arange(document.answer, len(document) - 1))
            ids, _, exists = blocks.target_probs(self.max_depth, 0)
            ranks = min(RANKS, len(self.head_rows))
            best = torch.stack([head(r).topk(ranks).indices for r in self.rows(blocks)]).cpu()
            right[:, :ranks] += ((best == ids) & exists[..., None]).sum(0)
            seen += exists.sum(0)[:, None]
        return (right / seen.clamp_min(1)).numpy()

    def save(self, folder: Path) -> None:
        save_model(self.model, folder)
        if self.held_out:
            write_accuracies(folder / ACCURACIES, self.accuracies())


class MedusaTraining(DrafterTraining):
    name, options = "medusa", MedusaTrainingOptions
    builders = ("static", "best-first")

    def layers(self, run: TrainingRun, options: MedusaTrainingOptions) -> tuple[int, ...]:
        return (run.language.model.config.get_text_config().num_hidden_layers - 1,)

    def student(
        self, run: TrainingRun, options: MedusaTrainingOptions, corpus: Corpus
    ) -> MedusaStudent:
        if run.start:
            model = load_model(run.start, torch.float32, run.language.device)
            if model.config.vocab_size:
                raise UserError(f"{run.start}: Medusa heads of their own are not trained here")
        else:
            width = target_shape(run.language)["hidden_size"]
            model = MedusaModel(MedusaConfig(options.heads, width))
        return MedusaStudent(model, run.language.model, corpus.test[:JUDGES])

    def ship(self, trained: Path, folder: Path) -> None:
        save_model(load_model(trained, torch.float32, "cpu"), folder, small=True)
        if (trained / ACCURACIES).is_file():
            copyfile(trained / ACCURACIES, folder / ACCURACIES)


TRAINING = MedusaTraining()
