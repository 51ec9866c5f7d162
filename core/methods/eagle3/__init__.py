"""EAGLE-3 (arXiv 2503.01840): a layer, or a few, that draft token after token on features of their
own, and EAGLE-2's dynamic tree (arXiv 2406.16858).

Light. ``model`` is the network and its checkpoint forms, ``drafter`` the network at work,
``training`` how it is trained. The tree is ``core.drafting.builders.DynamicTree``.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.methods.method import (
    BY_PATH,
    BuilderInfo,
    Checkpoint,
    DepthOptions,
    DrafterInfo,
    Explanation,
    Method,
    Range,
    TargetFacts,
    TrainingInfo,
    option,
)
from core.methods.serving import llama_cpp, sglang_chain, tensorrt_llm


@dataclass(frozen=True)
class DynamicTreeOptions:
    top_k: int = option(
        10, "nodes of a level that get children, and children of each", Range(1, 1024)
    )


def dynamic_tree(facts: TargetFacts, options: DynamicTreeOptions):
    from core.drafting.builders import DynamicTree

    return DynamicTree(options.top_k)


@dataclass(frozen=True)
class EagleTrainingOptions:
    steps: int = option(7, "training-time test: depths that are learnt", Range(1))
    draft_vocabulary: int = option(16384, "tokens of its head: the text's most frequent", Range(1))


DRAFTER = DrafterInfo(
    "eagle3",
    "q given the whole path, from one layer that reads its own features",
    "core.methods.eagle3.drafter:load",
    DepthOptions,
    states=BY_PATH,
    checkpoint=Checkpoint(
        "core.methods.eagle3.model:FORM",
        "core.methods.eagle3.model:export",
        layouts="the layouts of SafeAILab, SpecForge and speculators",
        told=r"(?i)^=.*eagle-?3|\A(?s:.*)^=\w+ForCausalLM$(?s:.*)^draft_vocab_size=",
        gguf="core.methods.eagle3.gguf:LAYOUT",
    ),
    training=TrainingInfo("core.methods.eagle3.training:TRAINING", EagleTrainingOptions),
    explain=Explanation(lead="The drafter's {rank} token after {parent}, given the whole path."),
    vllm="eagle3",
    flags={
        "SGLang": sglang_chain,
        "llama.cpp": llama_cpp("draft-eagle3"),
        "TensorRT-LLM": tensorrt_llm("Eagle3"),
    },
)
BUILDER = BuilderInfo(
    "eagle2",
    "level by level, the best children of the best nodes; then the best of all",
    dynamic_tree,
    DynamicTreeOptions,
    ends="at each depth the {top_k} best nodes get {top_k} children, and the drafter's depths are "
    "used up",
)
METHOD = Method(
    "EAGLE-3", "eagle3", "eagle2", 59, "a dynamic tree of a layer that drafts token after token",
)  # fmt: skip
