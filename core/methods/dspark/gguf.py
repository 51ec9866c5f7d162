"""DSpark in llama.cpp's GGUF files: DFlash's with a Markov head, which is vanilla, and a confidence
head that knows the token before (``src/models/dflash.cpp``)."""

from __future__ import annotations

from typing import Any

from core.methods.dflash import gguf as dflash
from core.methods.dspark.model import FORM, VANILLA, DSparkConfig
from core.models.gguf_layout import GgufHeader, GgufLayout

MARK, ANCHOR = "markov_w1.weight", "sample_from_anchor"


def config(header: GgufHeader) -> dict[str, Any]:
    """DSpark's fields beside DFlash's. A file that does not say where the first token is drafted
    drafts it at the anchor."""
    confident = "conf_proj.weight" in header.tensors
    return {
        **dflash.config(header),
        "architectures": [DSparkConfig.architecture],
        "markov_rank": header.shape(MARK)[1],
        "markov_head_type": VANILLA,
        "enable_confidence_head": confident,
        "confidence_head_with_markov": confident,
        ANCHOR: header.fields.get(ANCHOR, True),
    }


LAYOUT = GgufLayout(
    "dflash",
    FORM,
    config,
    (*dflash.FIELDS, ANCHOR),
    {
        **dflash.NAMES,
        "markov_w1": "markov_head.markov_w1",
        "markov_w2": "markov_head.markov_w2",
        "conf_proj": "confidence_head.proj",
        "conf_proj.bias": "confidence_head.proj.bias",
    },
    MARK,
)
