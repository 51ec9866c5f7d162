"""DFlash 2 in llama.cpp's GGUF files: DFlash's with convolutions and a selector
(``src/models/dflash.cpp``)."""

from __future__ import annotations

from typing import Any

from core.methods.dflash import gguf as dflash
from core.methods.dflash2.model import FORM, OWN, DFlash2Config
from core.models.gguf_layout import GgufHeader, GgufLayout


def config(header: GgufHeader) -> dict[str, Any]:
    """DFlash 2's fields beside DFlash's, which have the same names in a file."""
    own = {name: header.fields[name] for name in OWN}
    return {**dflash.config(header), "architectures": [DFlash2Config.architecture], **own}


LAYOUT = GgufLayout(
    "dflash",
    FORM,
    config,
    (*dflash.FIELDS, *OWN),
    {
        **dflash.NAMES,
        "attn_conv_base": "attention_conv.base_kernel",
        "attn_conv_proj": "attention_conv.kernel_projection",
        "ffn_conv_base": "mlp_conv.base_kernel",
        "ffn_conv_proj": "mlp_conv.kernel_projection",
        "selector_hidden": "candidate_selector.hidden_projection",
        "selector_predecessor.weight": "candidate_selector.predecessor_codebook",
        "selector_successor.weight": "candidate_selector.successor_codebook",
    },
    "selector_hidden.weight",
)
