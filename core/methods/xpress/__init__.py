"""XPress: DFlash's block, and a small causal network over it that refines every place's logits by
the tokens before.

The publisher settles a block by a few parallel passes over its own guesses. Here q is asked for
along paths: along its own best tokens both draft the same.

Light. ``model`` is the network, its checkpoint form and how it is loaded.
"""

from __future__ import annotations

from core.methods.dflash import CORRECTED
from core.methods.method import BY_PATH, Checkpoint, DrafterInfo, Method, QOptions

DRAFTER = DrafterInfo(
    "xpress",
    "q for every depth from one pass, refined by the path in the block",
    "core.methods.xpress.model:load",
    QOptions,
    states=BY_PATH,
    checkpoint=Checkpoint(
        "core.methods.xpress.model:FORM", layouts="speculators' layout", told=r"(?i)^=.*xpress"
    ),
    explain=CORRECTED,
)
METHOD = Method(
    "XPress", "xpress", "chain", 64, "a chain that a causal refiner walks",
)  # fmt: skip
