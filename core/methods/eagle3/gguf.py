"""EAGLE-3 in llama.cpp's GGUF files (``conversion/llama.py``, ``src/models/eagle3.cpp``)."""

from __future__ import annotations

from typing import Any

from core.methods.eagle3.model import FORM, IDS
from core.models.gguf_layout import GgufHeader, GgufLayout, draft_vocabulary

SWITCHES = ("norm_before_residual", "norm_before_fc")


def config(header: GgufHeader) -> dict[str, Any]:
    """EAGLE-3's own fields. Both count the states that enter a layer."""
    own = header.fields
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": draft_vocabulary(header),
        IDS: own["target_layers"],
        **{name: own[name] for name in ("target_hidden_size", *SWITCHES) if name in own},
    }


LAYOUT = GgufLayout(
    "eagle3",
    FORM,
    config,
    fields=SWITCHES,
    names={"attn_norm_2": "hidden_norm", "enc.output_norm": "input_norm"},
    neighbours=True,
)
