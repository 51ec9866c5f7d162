"""Gemma 4's assistant: a few layers that draft from the target's own keys and values.

Its layers have queries alone. They read the keys and values of the target's last layers that keep
some, one of each kind of attention, and nothing of what was drafted: a node's row is the embedding
of its token beside the state that its parent's row left, which begins as the target's last hidden
state. All rows of a round stand at the root's position.

Light. ``model`` is the network and how it is loaded, ``keys`` what it reads of the target,
``drafter`` the network at work.
"""

from __future__ import annotations

from core.methods.method import (
    BY_PATH,
    Checkpoint,
    DepthOptions,
    DrafterInfo,
    Explanation,
    Method,
)

DRAFTER = DrafterInfo(
    "gemma4-assistant",
    "q given the whole path, from layers that read the target's own keys and values",
    "core.methods.gemma4_assistant.drafter:load",
    DepthOptions,
    states=BY_PATH,
    checkpoint=Checkpoint(
        "core.methods.gemma4_assistant.model:FORM",
        layouts="transformers' layout of gemma4_assistant",
        told=r"^=(Gemma4(Unified)?Assistant|gemma4_(unified_)?assistant)",
    ),
    explain=Explanation(lead="The assistant's {rank} token after {parent}, given the whole path."),
)
METHOD = Method(
    "Gemma 4's assistant", "gemma4-assistant", "best-first", 32,
    "a tree of the assistant that is published beside a Gemma 4 target",
)  # fmt: skip
