"""How TreeFlash's head is trained (TreeFlash §3, Table 3): after the text's own tokens, on a
DFlash backbone that stays frozen or learns beside it.

Shapes: A anchors, L drafted depths, h hidden width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.drafting.session import tokens_after
from core.errors import UserError
from core.learning.corpus import Blocks, Corpus
from core.learning.student import (
    DrafterTraining,
    Labels,
    Student,
    TrainingRun,
)
from core.methods.dflash import model as dflash
from core.methods.dflash.training import backbone_rows
from core.methods.registry import shipped
from core.methods.treeflash import TreeFlashTrainingOptions
from core.methods.treeflash.model import FORM, TreeFlashModel, initial_model, save_model


class TreeFlashStudent(Student[TreeFlashModel]):
    """The head after true previous tokens.

    joint  where the backbone is saved that learns beside the head; a step then has every place
           twice, for q and for q′. None: the backbone stays frozen.
    """

    def __init__(self, model: TreeFlashModel, target: Any, joint: Path | None = None):
        super().__init__(model, target)
        self.joint = joint
        model.model.requires_grad_(joint is not None)

    def labels(self, blocks: Blocks, top_k: int, rng: torch.Generator, gamma: float) -> Labels:
        once = super().labels(blocks, top_k, rng, gamma)
        if self.joint is None:
            return once
        ids, p, weight = (torch.cat([x, x], 1) for x in (once.ids, once.p, once.weight))
        return Labels(blocks, ids, p, weight)

    def rows(self, blocks: Blocks) -> Tensor:
        joint = self.joint is not None
        with torch.set_grad_enabled(joint and torch.is_grad_enabled()):
            hidden = backbone_rows(self, self.model.model, blocks)
        before = tokens_after(blocks.document.tokens.long(), blocks.anchors, self.max_depth)
        rows = self.model.conditioned(hidden, self.embed(before).to(hidden.dtype))
        return torch.cat([self.model.model.norm(hidden), rows], 1) if joint else rows

    def save(self, folder: Path) -> None:
        save_model(self.model, folder)
        if self.joint is not None:
            dflash.FORM.save_model(self.model.model, self.joint)


class TreeFlashTraining(DrafterTraining):
    name = "treeflash"
    ships_with = ("dflash",)

    def layers(self, run: TrainingRun, options: TreeFlashTrainingOptions) -> tuple[int, ...]:
        folder = self._backbone(run, options) or run.start
        return dflash.FORM.load_config(folder).target_layer_ids if folder else ()

    def student(
        self, run: TrainingRun, options: TreeFlashTrainingOptions, corpus: Corpus
    ) -> TreeFlashStudent:
        """A head that changes nothing yet, or the start's, on the backbone that the options name,
        else the run's own, else the start's or the shipped one."""
        folder, device = self._backbone(run, options), run.language.device
        model = FORM.load_model(run.start, torch.float32, device) if run.start else None
        if folder is None and model is None:
            raise UserError(
                "TreeFlash needs a DFlash backbone: train one first, or give --backbone"
            )
        if folder is not None:
            backbone = dflash.FORM.load_model(folder, torch.float32, device)
            if model is None:
                model = initial_model(backbone)
            elif backbone.config != model.config:
                raise UserError(f"the head in {run.start} is not for the backbone in {folder}")
            model.model.load_state_dict(backbone.state_dict())
        joint = run.folder / "dflash" / "checkpoint" if options.joint else None
        assert model is not None
        return TreeFlashStudent(model, run.language.model, joint)

    def ship(self, trained: Path, folder: Path) -> None:
        model = FORM.load_model(trained, torch.float32, "cpu")
        save_model(model, folder, small=True, backbone="dflash")

    def _backbone(self, run: TrainingRun, options: TreeFlashTrainingOptions) -> Path | None:
        """The backbone to put under the head; None: the start's own, or there is none."""
        folder = options.backbone or run.checkpoint("dflash")
        return folder or (None if run.start else shipped("dflash", run.language.name))


TRAINING = TreeFlashTraining()
