"""DSpark (arXiv 2607.05147): DFlash's block, a low-rank bias from the token before, and a head that
says how likely each place is to be accepted.

Light. ``model`` is the network and its checkpoint form, ``drafter`` the network at work.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.methods.dflash import CONFIDENCE
from core.methods.method import (
    BY_PATH,
    BY_PREVIOUS,
    Checkpoint,
    DrafterInfo,
    Explanation,
    Method,
    Note,
    Range,
    option,
    temperature_of_q,
)
from core.methods.serving import llama_cpp
from core.rounds.draft import MARGINAL


@dataclass(frozen=True)
class DSparkOptions:
    confidence: float = option(
        0.0, "nothing is drafted where the confidence head says less", Range(0, 1, step=0.05),
        label="least confidence",
    )  # fmt: skip
    temperature: float = temperature_of_q()


EXPLAIN = Explanation(
    "versus",
    "The drafter's {rank} token after {parent}, its parent.",
    versus=MARGINAL,
    notes=(
        Note(MARGINAL, "q at this depth", "probability", "without the token before"),
        Note(
            CONFIDENCE, "confidence", "probability",
            "what the drafter gives this place to be accepted; it drafts from {confidence} on",
        ),
    ),
)  # fmt: skip
DRAFTER = DrafterInfo(
    "dspark",
    "q for every depth from one pass, moved by the token before",
    "core.methods.dspark.drafter:load",
    DSparkOptions,
    states=BY_PATH,
    depends=BY_PREVIOUS,
    checkpoint=Checkpoint(
        "core.methods.dspark.model:FORM",
        layouts="the layouts of DeepSpec, SpecForge and speculators",
        told=r"(?i)^=.*dspark|(^|\.)markov_rank=",
        gguf="core.methods.dspark.gguf:LAYOUT",
    ),
    explain=EXPLAIN,
    vllm="dspark",
    flags={"llama.cpp": llama_cpp("draft-dspark")},
)
METHOD = Method(
    "DSpark", "dspark", "chain", 64, "a chain that knows the token before",
)  # fmt: skip
