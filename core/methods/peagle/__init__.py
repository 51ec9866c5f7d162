"""P-EAGLE (arXiv 2602.01469): EAGLE-3's layers, which draft every depth in one pass.

Behind the root stand rows of a mask token and of one learned feature, so that q at a depth depends
on nothing drafted before it.

Light. ``model`` is the network and its checkpoint form, ``drafter`` the network at work.
"""

from __future__ import annotations

from core.methods.method import Checkpoint, DepthOptions, DrafterInfo, Method

DRAFTER = DrafterInfo(
    "peagle",
    "q for every depth from one pass of EAGLE-3's layers over masked places",
    "core.methods.peagle.drafter:load",
    DepthOptions,
    checkpoint=Checkpoint(
        "core.methods.peagle.model:FORM",
        layouts="the layouts of speculators and SpecForge",
        told=r"(?i)^=p-?eagle|\A(?s:.*)^=.*eagle-?3(?s:.*)^(mask_token_id|pard_token|ptd_token_id)=",
    ),
)
METHOD = Method(
    "P-EAGLE", "peagle", "chain", 64, "the argmax chain of EAGLE-3's layers in one pass",
)  # fmt: skip
