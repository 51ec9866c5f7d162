"""A target without its layers: embedding, final norm and head, where hidden states were kept.

Only the safetensors files that hold these tensors are fetched and read, so the ends of a model fit
where the model does not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from core.errors import UserError
from core.models import checkpoint
from core.models.hub import Source, loading_model
from core.models.language import Language, compute_dtype, pick_device, target_source, with_preset
from core.models.presets import Value
from core.progress import Progress, silent
from core.tensor_files import open_tensors

INSIDE = ("", "model.language_model.", "language_model.model.", "language_model.")  # wrappers


def load_ends(
    name: str, device: str = "auto", report: Progress = silent, template: Mapping[str, Value] = {}
) -> Language:
    """The ends of a target by a preset's name, a folder or a hub id: it embeds and gives logits,
    but reads no text. Raises UserError when loading fails."""
    where, source = pick_device(device), target_source(name, report)
    report(None, "loading the target's ends")
    with loading_model(name):
        from core.models.hugging_face import load_config, load_tokenizer

        config, tokenizer = load_config(source), load_tokenizer(source)
        model = _without_layers(config, compute_dtype(where))
        wanted = {key for key, each in model.state_dict().items() if each.is_meta}
        if config.get_text_config().tie_word_embeddings:
            wanted.discard("lm_head.weight")
        found = {key: tensor.to(where, model.dtype) for key, tensor in _tensors(source, wanted)}
    if missing := sorted(wanted - set(found)):
        raise UserError(f"the model {name!r} lacks the tensor {missing[0]}")
    model.load_state_dict(found, strict=False, assign=True)
    model.tie_weights()
    for module in model.modules():  # positions, which nobody asks for
        for key, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[key] = torch.zeros_like(buffer, device=where)
    model.config = config
    model.generation_config = _generation(source, model)
    model.eval().requires_grad_(False)
    return with_preset(name, model, tokenizer, source.folder, template)


def _generation(source: Source, model: Any) -> Any:
    """Return the config that says where a text ends: generation_config.json, or the model's own."""
    from transformers import GenerationConfig

    folder = source.config_folder()
    if not (folder / "generation_config.json").is_file():
        return model.generation_config
    return GenerationConfig.from_pretrained(str(folder))


def _without_layers(config: Any, dtype: torch.dtype) -> Any:
    """The model of a config with no layer, without memory for its weights."""
    from transformers import AutoModelForCausalLM

    few = copy.deepcopy(config)
    text = few.get_text_config()
    text.num_hidden_layers = 0
    if getattr(text, "layer_types", None):
        text.layer_types = []
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(few, dtype=dtype, trust_remote_code=False)


def _tensors(source: Source, wanted: set[str]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of these names, off the files that hold them."""
    for file in source.weights({name for key in wanted for name in _names(key)}):
        with open_tensors(file, checkpoint.OF_WEIGHTS) as opened:
            for key in wanted:
                if name := next((name for name in _names(key) if name in opened.entries), None):
                    yield key, checkpoint.read_tensor(opened, name)


def _names(key: str) -> list[str]:
    """List the names that a tensor may have in a checkpoint whose text model is inside another."""
    bare = key.removeprefix("model.")
    return [key, *(inside + bare for inside in INSIDE)]
