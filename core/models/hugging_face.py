"""Everything that needs transformers: models, tokenizers, and our cache and attention in its form.

Imported only where a model of its own is loaded: importing it costs two seconds of a core and
120 MB. Everything is read with ``trust_remote_code`` off.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import eager_mask
from transformers.quantizers.auto import AutoHfQuantizer, get_hf_quantizer
from transformers.utils import logging

from core.declared import MAX_SAID
from core.errors import UserError
from core.models.cache import Memory, StaticKV, StaticLayer, grouped_attention
from core.models.configs import check_numbers
from core.models.hub import Source
from core.models.tokenizer_limits import check_tokenizer
from core.progress import Progress, silent

ATTENTION = "draftscope_grouped"
_SCALE = re.compile(r"\.(weight_scale(_inv|_2)?|weight_packed|qweight|qzeros|scales|absmax|SCB)$")
_SPLIT = {"device_map": "auto"}  # accelerate plans the split


class HuggingFaceLayer(StaticLayer, CacheLayerMixin):
    """A layer that answers what Hugging Face's masks and models ask of one."""

    is_sliding = False

    def __init__(self, memory: Memory, number: int):
        CacheLayerMixin.__init__(self)
        StaticLayer.__init__(self, memory, number)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._memory.length + query_length, 0

    def get_seq_length(self) -> int:
        return self._memory.length

    def get_max_length(self) -> int:
        return self._memory.capacity

    def reset(self) -> None:
        self._memory.length = 0


class HuggingFaceKV(StaticKV, Cache):
    """``StaticKV`` as a cache of Hugging Face's models.

    attending  for each layer, whether it has keys and values (None: all have). Memory is allocated
               for these alone
    """

    def __init__(
        self,
        layers: int,
        capacity: int,
        apart: bool = False,
        attending: Sequence[bool] | None = None,
    ):
        places = list(accumulate([False, *(attending or [True] * layers)]))
        StaticKV.__init__(self, places[-1], capacity, apart)
        Cache.__init__(self, layers=[HuggingFaceLayer(self._memory, n) for n in places[:layers]])


AttentionInterface.register(ATTENTION, grouped_attention)
# Without this, a forward that brings no 4-D mask would silently not be causal.
AttentionMaskInterface.register(ATTENTION, eager_mask)


def load_config(source: Source) -> PreTrainedConfig:
    """The config of a model. Nothing is made of its numbers before they are looked at.

    Raises UserError for numbers that no model has, ValueError for some that do not fit each other,
    OSError for what cannot be read.
    """
    try:
        raw, _ = PreTrainedConfig.get_config_dict(source.reference, revision=source.revision)
        check_numbers(raw, f"the config of {source.reference!r} cannot be a model's")
        return _load(AutoConfig, source)
    except RecursionError:
        raise ValueError("its config is nested too deep") from None
    except StrictDataclassError as error:
        *_, why = str(error).splitlines()  # the first line names the check alone
        raise ValueError(why.strip().removeprefix("ValueError: ")) from None


def load_tokenizer(source: Source) -> PreTrainedTokenizerBase:
    """Raises UserError for one that may make a text very long."""
    found = _load(AutoTokenizer, source)
    check_tokenizer(found, source.reference)
    return found


def load_model(
    source: Source,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    split: bool,
    report: Progress = silent,
) -> PreTrainedModel:
    """A causal LM. ``split``: over all devices.

    Raises UserError where a tensor is missing or has another shape, and for a file outside of the
    folder.
    """
    logging.disable_progress_bar()  # of reading a file; who loads a model has a report of it
    source.weights(report=report)
    report(None, "loading weights")
    check_method(source.reference, config)
    try:
        model, loading = _load(
            AutoModelForCausalLM,
            source,
            output_loading_info=True,
            config=config,
            dtype=dtype,
            attn_implementation=ATTENTION,
            use_safetensors=True,
            **(_SPLIT if split else {}),
        )
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise UserError(
            f"the model {source.reference!r} has tensors of other shapes than its config says"
        ) from None
    check_scales(source.reference, config, loading["unexpected_keys"])
    if missing := sorted(loading["missing_keys"]):
        raise UserError(f"the model {source.reference!r} lacks the tensor {missing[0]}")
    return model


def check_method(name: str, config: PreTrainedConfig) -> None:
    """Check that the method by which weights are quantised is read: transformers leaves out the
    scales of one that it does not know, and says so in its log alone.

    Raises UserError for such a method, ImportError for one whose package is missing.
    """
    if (told := getattr(config, "quantization_config", None)) is None:
        return
    raw = told if isinstance(told, dict) else told.to_dict()
    if not AutoHfQuantizer.supports_quant_method(raw):
        method = str(raw.get("quant_method"))[:MAX_SAID]
        raise UserError(f"the model {name!r} is stored in {method!r}, which is not read here")
    get_hf_quantizer(copy.deepcopy(config), None, None, True, {})


def check_scales(name: str, config: PreTrainedConfig, stored: Collection[str]) -> None:
    """Raises UserError for tensors of these names that hold scales of a method which the config
    does not tell: they would be left out."""
    if getattr(config, "quantization_config", None) is not None:
        return
    if scale := next(filter(_SCALE.search, sorted(stored)), None):
        raise UserError(
            f"the model {name!r} holds {scale[:120]!r}: its weights are quantised, and its "
            "config does not say how"
        )


def without_weights(config: PreTrainedConfig) -> PreTrainedModel:
    """The causal LM of a config on the meta device, where it takes no memory. All of its experts
    run, so that no number decides the shapes."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(
            config,
            attn_implementation=ATTENTION,
            experts_implementation="batched_mm",
            trust_remote_code=False,
        )


def _load(loader: Any, source: Source, **options: Any) -> Any:
    return loader.from_pretrained(
        source.reference, revision=source.revision, trust_remote_code=False, **options
    )
