"""TreeFlash (arXiv 2606.03819): DFlash and a head that sees the token before: q′.

Light. ``model`` is the network and its checkpoint form, ``drafter`` the network at work,
``training`` how it is trained, ``recorded`` how a collected file answers for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from core.methods.method import (
    BY_PREVIOUS,
    Checkpoint,
    DrafterInfo,
    Explanation,
    Mark,
    Method,
    Note,
    Range,
    TrainingInfo,
    option,
    temperature_of_q,
)
from core.rounds.draft import MARGINAL

BEHIND = "behind candidate"  # a note: which of its depth's best tokens the parent is, from 1
STRONG = math.log(2)  # from here on q′ and q differ strongly


@dataclass(frozen=True)
class TreeFlashOptions:
    """Inference parameters M and S, and q's temperature."""

    candidates: int = option(
        16, "tokens per depth after which q′ is known (M)", Range(1, 1024),
        label="candidates per depth (M)", collect=32,
    )  # fmt: skip
    siblings: int = option(
        16, "children a node may have (S)", Range(1, 1024), label="siblings per candidate (S)",
        collect=32,
    )  # fmt: skip
    temperature: float = temperature_of_q("q and q′")


EXPLAIN = Explanation(
    "versus",
    "The drafter's {rank} token after {parent}, its parent.",
    versus=MARGINAL,
    notes=(
        Note(MARGINAL, "q at this depth", "probability", "plain q at this depth, for any prefix"),
        Note(
            BEHIND, "parent is candidate", "count",
            "of M = {candidates} at its depth; q′ is known after those only",
        ),
    ),
    marks=(
        Mark("▲", MARGINAL, "q after this parent is at least twice q at its depth", low=STRONG,
             against_q=True),
        Mark("▼", MARGINAL, "q after this parent is at most half of q at its depth",
             high=-STRONG, against_q=True),
    ),
    childless="It can have no children: its token is not among the M = {candidates} candidates of "
    "depth {depth}.",
)  # fmt: skip


@dataclass(frozen=True)
class TreeFlashTrainingOptions:
    backbone: Path | None = option(
        None, "DFlash checkpoint under the head (default: the run's own, else the shipped one)"
    )
    joint: bool = option(
        False, "head and backbone learn together; the run's DFlash becomes that backbone"
    )


DRAFTER = DrafterInfo(
    "treeflash",
    "q for every depth from one pass, then q′ after every candidate",
    "core.methods.treeflash.drafter:load",
    TreeFlashOptions,
    states=BY_PREVIOUS,
    checkpoint=Checkpoint(
        "core.methods.treeflash.model:FORM",
        "core.methods.treeflash.model:export",
        told=r"^treeflash_config\.",
    ),
    training=TrainingInfo("core.methods.treeflash.training:TRAINING", TreeFlashTrainingOptions),
    recorded="core.methods.treeflash.recorded:session",
    explain=EXPLAIN,
)
METHOD = Method(
    "TreeFlash", "treeflash", "best-first", 64, "a tree that knows the token before",
)  # fmt: skip
