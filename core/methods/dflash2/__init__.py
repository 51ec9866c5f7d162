"""DFlash 2 (inco.ai/blog/dflash2): DFlash's block with convolutions in it, and a selector that sees
the token before.

Light. ``model`` is the network and its checkpoint form, ``drafter`` the network at work.
"""

from __future__ import annotations

from core.methods.method import (
    BY_PATH,
    BY_PREVIOUS,
    Checkpoint,
    DrafterInfo,
    Explanation,
    Method,
    Note,
    QOptions,
)
from core.rounds.draft import MARGINAL

EXPLAIN = Explanation(
    "versus",
    "The selector's {rank} token after {parent}, its parent.",
    versus=MARGINAL,
    notes=(Note(MARGINAL, "q at this depth", "probability", "before the selector"),),
)
DRAFTER = DrafterInfo(
    "dflash2",
    "one pass, and a selector among each depth's best tokens that sees the token before",
    "core.methods.dflash2.drafter:load",
    QOptions,
    states=BY_PATH,
    depends=BY_PREVIOUS,
    checkpoint=Checkpoint(
        "core.methods.dflash2.model:FORM",
        layouts="the layouts of z-lab and speculators",
        told=r"(?i)^=.*dflash2|(^|\.)selector_rank=",
        gguf="core.methods.dflash2.gguf:LAYOUT",
    ),
    explain=EXPLAIN,
)
METHOD = Method(
    "DFlash 2", "dflash2", "chain", 64, "a chain that a selector walks among the best tokens",
)  # fmt: skip
