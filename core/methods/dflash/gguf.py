"""DFlash in llama.cpp's GGUF files (``conversion/qwen.py``, ``src/models/dflash.cpp``).

DSpark and DFlash 2 have the same architecture there; their layouts add to this one.
A file keeps no switch for layers that are causal because they slide: unless it says that all are
causal, every row sees its whole block, as llama.cpp draws it.
"""

from __future__ import annotations

from typing import Any

from core.methods.dflash.model import FORM
from core.models.gguf_layout import GgufHeader, GgufLayout, draft_vocabulary
from core.models.layer_kinds import FULL, SLIDING

WINDOW, PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"
CAUSAL = "attention.causal"


def config(header: GgufHeader) -> dict[str, Any]:
    """DFlash's own fields. The file counts the states that enter a target's layer, and safetensors
    those that leave it."""
    own = header.fields
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": own["block_size"],
        "is_causal": own.get(CAUSAL, False),
        "draft_vocab_size": draft_vocabulary(header),
        "dflash_config": {
            "target_layer_ids": [layer - 1 for layer in own["target_layers"]],
            "mask_token_id": header.mask,
        },
        **_sliding(own),
    }


def _sliding(own: Any) -> dict[str, Any]:
    if not own.get(WINDOW):
        return {}
    kinds = [(FULL, SLIDING)[bool(slides)] for slides in own[PATTERN]]
    return {"use_sliding_window": True, "sliding_window": own[WINDOW], "layer_types": kinds}


FIELDS = ("block_size", WINDOW, PATTERN, CAUSAL)
NAMES = {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "enc.output_norm": "hidden_norm",
}
LAYOUT = GgufLayout("dflash", FORM, config, FIELDS, NAMES)
