"""Domino (arXiv 2605.29707): DFlash's block, and a recurrent network over the path that corrects
its logits.

Light. ``model`` is the network and its checkpoint form, ``drafter`` loads it.
"""

from __future__ import annotations

from core.methods.dflash import DFlashOptions
from core.methods.method import BY_PATH, Checkpoint, DrafterInfo, Explanation, Method, Note
from core.rounds.draft import MARGINAL

EXPLAIN = Explanation(
    "versus",
    "The drafter's {rank} token after {parent}, given the path in the block.",
    versus=MARGINAL,
    notes=(Note(MARGINAL, "q at this depth", "probability", "before the correction"),),
)
DRAFTER = DrafterInfo(
    "domino",
    "q for every depth from one pass, corrected by a recurrent network over the path",
    "core.methods.domino.drafter:load",
    DFlashOptions,
    states=BY_PATH,
    checkpoint=Checkpoint("core.methods.domino.model:FORM", layouts="SpecForge's layout"),
    explain=EXPLAIN,
)
METHOD = Method(
    "Domino", "domino", "chain", 64, "a chain that a recurrent network corrects",
    paper="arXiv 2605.29707",
)  # fmt: skip
