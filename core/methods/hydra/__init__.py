"""Hydra and Hydra++ (arXiv 2402.05109): Medusa's heads made sequential. The head of a depth also
reads the tokens drafted before it. Hydra++ has a layer over the text before its heads.

Light. ``model`` is the network and its checkpoint form, ``drafter`` the network at work,
``training`` how the heads are trained.
"""

from __future__ import annotations

from core.methods.medusa import HeadsOptions
from core.methods.method import (
    BY_PATH,
    Checkpoint,
    DrafterInfo,
    Explanation,
    Method,
    QOptions,
    TrainingInfo,
)

DRAFTER = DrafterInfo(
    "hydra",
    "q given the whole path, from a head for each depth",
    "core.methods.hydra.drafter:load",
    QOptions,
    states=BY_PATH,
    checkpoint=Checkpoint(
        "core.methods.hydra.model:FORM",
        "core.methods.hydra.model:export",
        told=r"^hydra_num_heads=",
    ),
    training=TrainingInfo("core.methods.hydra.training:TRAINING", HeadsOptions),
    explain=Explanation(lead="The drafter's {rank} token after {parent}, given the whole path."),
)
METHOD = Method(
    "Hydra", "hydra", "best-first", 63, "a tree of heads that know the path so far",
)  # fmt: skip
