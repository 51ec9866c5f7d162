"""SPS, speculative sampling with a draft language model (arXiv 2211.17192, 2302.01318).

Any causal LM drafts. One with another tokenizer than the target's drafts the tokens that both have
(arXiv 2502.05202). By default it draws with the noise that the target draws with, and the target's
own token is accepted: the text stays that of plain decoding. The classic rule, min(1, p/q), is an
option of the builder.

Light. ``model`` is how a draft model's folder is read, ``translation`` what its vocabulary shares
with the target's, ``drafter`` the model at work, ``training`` how the target's first layers learn
to draft.
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
)
from core.methods.serving import llama_cpp, sglang_chain, tensorrt_llm


@dataclass(frozen=True)
class SpsOptions:
    depth: int = option(5, "how many tokens deep it drafts", Range(1, 64), "drafted tokens (γ)")


@dataclass(frozen=True)
class SpsTrainingOptions:
    first: int = option(3, "the target's first layers that draft", Range(1))
    change: int = option(128, "rank of the learnt change of each of their matrices", Range(1))


DRAFTER = DrafterInfo(
    "sps",
    "q from a second language model, token by token",
    "core.methods.sps.drafter:load",
    SpsOptions,
    states=BY_PATH,
    checkpoint=Checkpoint(
        "core.methods.sps.model:FORM",
        export="core.methods.sps.model:export",
        layouts="transformers' layouts of causal language models",
        told=r"^format=draftscope-first-layers$",
    ),
    training=TrainingInfo("core.methods.sps.training:TRAINING", SpsTrainingOptions),
    explain=Explanation(lead="The draft model's {rank} token after {parent} and the path before."),
    vllm="draft_model",
    flags={
        "SGLang": sglang_chain,
        "llama.cpp": llama_cpp("draft-simple"),
        "TensorRT-LLM": tensorrt_llm("Draft_Target"),
    },
)
METHOD = Method(
    "SPS", "sps", "sampled-chain", 64, "a chain that a second language model draws",
)  # fmt: skip
