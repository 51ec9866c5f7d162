"""UNO: the target drafts for itself. Low-rank weights that are on at some places alone turn it into
a diffusion model there, which guesses a block of tokens in one pass; without them it verifies.

The adapter is one that UNO's authors publish, in PEFT's layout, or the denoiser that ships: a gated
adapter as in arXiv 2507.11851. The root's row is the target's own, so depth 1 of q is p. A round
takes two passes of the target: one that drafts, one that verifies.

Light. ``model`` is the adapter and its layouts, ``drafter`` the target at work with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.methods.method import (
    Checkpoint,
    DrafterInfo,
    Explanation,
    Method,
    Options,
    Range,
    option,
    temperature_of_q,
)


@dataclass(frozen=True)
class UnoOptions:
    depth: int = option(8, "how many tokens deep a pass drafts", Range(1, 64))
    noise: int = option(
        0,
        "adapters without a mask token read random tokens below this number (151669 for "
        "s-sahoo/uno-qwen3-8B); 0: of the whole vocabulary",
        Range(0),
    )
    temperature: float = temperature_of_q()


def _sglang(size: int, options: Options) -> str:
    return (
        "--speculative-algorithm UNO --uno-lora-path PATH --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {size}"
    )


DRAFTER = DrafterInfo(
    "uno",
    "q for every depth from the target itself, with low-rank weights at the places it guesses",
    "core.methods.uno.drafter:load",
    UnoOptions,
    checkpoint=Checkpoint(
        "core.methods.uno.model:FORM",
        layouts="PEFT's layout of a LoRA, and as a denoiser of this program",
        told=r"^peft_type=LORA$|^format=draftscope-gated-denoiser$",
        shipped="denoiser",
    ),
    explain=Explanation(lead="The adapted target's {rank} token at depth {depth}, for any prefix."),
    flags={"SGLang": _sglang},
)
METHOD = Method(
    "UNO", "uno", "best-first", 32, "the most probable prefixes of the target's own guesses",
)  # fmt: skip
