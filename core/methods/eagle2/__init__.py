"""EAGLE-1's layer (arXiv 2401.15077) under EAGLE-2's dynamic tree (arXiv 2406.16858).

Light. ``model`` is the network, its checkpoint form and how it is loaded; at work it is EAGLE-3's
drafter with another layer.
"""

from __future__ import annotations

from core.methods.eagle3 import BUILDER
from core.methods.method import BY_PATH, Checkpoint, DepthOptions, DrafterInfo, Explanation, Method
from core.methods.serving import sglang_chain

DRAFTER = DrafterInfo(
    "eagle2",
    "q given the whole path, from one layer that follows the target's last feature",
    "core.methods.eagle2.model:load",
    DepthOptions,
    states=BY_PATH,
    checkpoint=Checkpoint(
        "core.methods.eagle2.model:FORM",
        layouts="SafeAILab's layout",
        told=r"\A(?s:.*)^=\w+ForCausalLM$(?s:.*)^num_hidden_layers=1$",
    ),
    explain=Explanation(lead="The drafter's {rank} token after {parent}, given the whole path."),
    vllm="eagle",
    flags={"SGLang": sglang_chain},
)
METHOD = Method(
    "EAGLE-2", "eagle2", BUILDER.name, 59, "a dynamic tree of a layer that predicts features",
)  # fmt: skip
