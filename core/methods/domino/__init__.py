"""Domino (arXiv 2605.29707): DFlash's block, and a recurrent network over the path that corrects
its logits.

Light. ``model`` is the network, its checkpoint form and how it is loaded.
"""

from __future__ import annotations

from core.methods.dflash import CORRECTED
from core.methods.method import BY_PATH, Checkpoint, DrafterInfo, Method, QOptions

DRAFTER = DrafterInfo(
    "domino",
    "q for every depth from one pass, corrected by a recurrent network over the path",
    "core.methods.domino.model:load",
    QOptions,
    states=BY_PATH,
    checkpoint=Checkpoint(
        "core.methods.domino.model:FORM", layouts="SpecForge's layout", told=r"(?i)^=.*domino"
    ),
    explain=CORRECTED,
)
METHOD = Method(
    "Domino", "domino", "chain", 64, "a chain that a recurrent network corrects",
)  # fmt: skip
