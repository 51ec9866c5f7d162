"""How the Medusa heads are trained (Medusa-1, §2.2.1), and what their static tree is made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any

import torch
from torch import Tensor

from core.learning.corpus import Blocks, Corpus
from core.learning.shards import Document
from core.learning.student import TrainingRun
from core.methods.medusa import ACCURACIES, HeadsOptions
from core.methods.medusa.heads_training import (
    HeadsStudent,
    HeadsTraining,
    start_heads,
)
from core.methods.medusa.model import FORM, MedusaConfig, MedusaModel
from core.methods.medusa.tree import RANKS, write_accuracies
from core.rounds.draft import Array

JUDGES = 16  # held-out texts that accuracies are measured on


class MedusaStudent(HeadsStudent[MedusaModel]):
    """A checkpoint holds the accuracies on held-out texts too."""

    form = FORM

    def __init__(self, model: MedusaModel, target: Any, held_out: Sequence[Document] = ()):
        super().__init__(model, target)
        self.held_out = held_out

    def rows(self, blocks: Blocks) -> Tensor:
        return self.model(self.hidden(blocks))

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
        super().save(folder)
        if self.held_out:
            write_accuracies(folder / ACCURACIES, self.accuracies())


class MedusaTraining(HeadsTraining):
    name, form = "medusa", FORM
    builders = ("static", "best-first")

    def student(self, run: TrainingRun, options: HeadsOptions, corpus: Corpus) -> MedusaStudent:
        made = start_heads(run, FORM, lambda width: MedusaModel(MedusaConfig(options.heads, width)))
        return MedusaStudent(made, run.language.model, corpus.test[:JUDGES])

    def ship(self, trained: Path, folder: Path) -> None:
        super().ship(trained, folder)
        if (trained / ACCURACIES).is_file():
            copyfile(trained / ACCURACIES, folder / ACCURACIES)


TRAINING = MedusaTraining()
