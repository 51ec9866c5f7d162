"""Native multi-token prediction (MTP) heads: layers of the target's own kind that draft token after
token (DeepSeek-V3, arXiv 2412.19437, §2.2; Qwen3-Next and later; MiMo V2 Flash).

A row of a layer is a projection of the norm of the *next* token's embedding beside the norm of a
hidden state: the target's last one. A single layer is run again on its own hidden states behind the
root. Where there are several, each drafts one depth. Embedding and head are the target's.

Light. ``config`` has sizes and layouts, ``model`` the network and how it is loaded, ``drafter`` the
network at work, ``training`` how the target's own last layer becomes such a head.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.methods.method import (
    BY_PATH,
    Checkpoint,
    DrafterInfo,
    Explanation,
    Method,
    Range,
    TrainingInfo,
    option,
    temperature_of_q,
)
from core.methods.serving import llama_cpp, sglang_chain, tensorrt_llm

# The fields by which a config counts its layers of this kind.
COUNTS = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers", "mtp_num_layers")
# A target whose files alone count them. It names no drafter's architecture: other lines follow.
IN_FILES = r"^=MiMoV2FlashForCausalLM\n"


@dataclass(frozen=True)
class MtpOptions:
    depth: int = option(8, "how many tokens deep it drafts, at most", Range(1, 64))
    temperature: float = temperature_of_q()


@dataclass(frozen=True)
class MtpTrainingOptions:
    steps: int = option(5, "depths that are learnt", Range(1))
    change: int = option(
        48, "rank of the learnt change of each of the layer's matrices; 0: no change", Range(0)
    )


DRAFTER = DrafterInfo(
    "mtp",
    "q given the whole path, from a layer of the target's own kind that reads its own hidden state",
    "core.methods.mtp.drafter:load",
    MtpOptions,
    states=BY_PATH,
    checkpoint=Checkpoint(
        "core.methods.mtp.model:FORM",
        "core.methods.mtp.model:export",
        layouts="the layouts of Qwen (of one layer), DeepSeek, GLM, MiMo and speculators",
        told=rf"^=.*MTP|{IN_FILES}|(^|\.)({'|'.join(COUNTS)})=[1-9]|^format=draftscope-last-layer$",
        inside=True,
        gguf="core.methods.mtp.gguf:LAYOUT",
    ),
    training=TrainingInfo("core.methods.mtp.training:TRAINING", MtpTrainingOptions),
    explain=Explanation(lead="The layer's {rank} token after {parent}, given the whole path."),
    vllm="mtp",
    flags={
        "SGLang": sglang_chain,
        "llama.cpp": llama_cpp("draft-mtp"),
        "TensorRT-LLM": tensorrt_llm("MTP"),
    },
)
METHOD = Method(
    "MTP", "mtp", "best-first", 32, "a tree of the target's own multi-token prediction layer",
)  # fmt: skip
