"""DFlash (arXiv 2602.06036): one pass of a block-diffusion drafter; its argmax chain is verified.

Light. ``model`` is the network and its checkpoint form, ``drafter`` the network at work,
``training`` how it is trained. ``before`` is for drafters on the same block whose q depends on the
tokens before.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.methods.method import (
    Checkpoint,
    DrafterInfo,
    Explanation,
    Method,
    Note,
    QOptions,
    Range,
    TrainingInfo,
    option,
)
from core.methods.serving import llama_cpp, tensorrt_llm
from core.rounds.draft import MARGINAL

CONFIDENCE = "confidence"  # a note: log of what a drafter gives a place to be accepted

# of drafters that correct the block's q by the path
CORRECTED = Explanation(
    "versus",
    "The drafter's {rank} token after {parent}, given the path in the block.",
    versus=MARGINAL,
    notes=(Note(MARGINAL, "q at this depth", "probability", "before the correction"),),
)


@dataclass(frozen=True)
class DFlashTrainingOptions:
    draft_layers: int = option(3, "layers of the drafter", Range(1))
    block_size: int = option(8, "positions of a block; DFlash drafts one token less", Range(2))
    target_layers: tuple[int, ...] = option(
        (), "feature layers (default: spread evenly, and the one its first layer starts from)"
    )
    random_start: bool = option(False, "start from random weights, not from the target's layers")


DRAFTER = DrafterInfo(
    "dflash",
    "q for every depth from one pass",
    "core.methods.dflash.drafter:load",
    QOptions,
    checkpoint=Checkpoint(
        "core.methods.dflash.model:FORM",
        "core.methods.dflash.model:export",
        layouts="the layouts of z-lab, JetSpec and speculators",
        told=r"^=DFlash|^=dflash$|^dflash_config\.",
        gguf="core.methods.dflash.gguf:LAYOUT",
    ),
    training=TrainingInfo("core.methods.dflash.training:TRAINING", DFlashTrainingOptions),
    vllm="dflash",
    flags={"llama.cpp": llama_cpp("draft-dflash"), "TensorRT-LLM": tensorrt_llm("DFlash")},
)
METHOD = Method("DFlash", "dflash", "chain", 64, "the drafter's argmax chain")
