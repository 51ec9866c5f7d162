"""A target by its config alone: whether it opens here, and what it takes in memory.

The model is made without weights and reads one token. So the code that loads and runs a target says
itself what it refuses and what it keeps for a text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from core.declared import MAX_SAID
from core.json_input import read_json
from core.models import embedded
from core.models.checkpoint import stored_shapes
from core.models.hub import WEIGHTS, Source, loading_model
from core.models.language import target_config
from core.models.layer_kinds import CARRYING, layer_kinds
from core.models.presets import preset_of
from core.models.target import read_one_token
from core.models.tree_reading import cannot_run, let_trees_branch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class TargetMemory:
    """Bytes that a target takes in one type of numbers.

    weights  of all parameters
    token    kept for a token of text: keys and values; None: unknown
    state    of one copy of all states that its layers carry along a text; 0: they carry none; None:
             unknown
    """

    weights: int
    token: int | None
    state: int | None


@dataclass(frozen=True)
class Outline:
    """A target that opens.

    architecture  transformers' class
    carrying      how many of its layers carry a state along the text
    stored        how its weights are quantised, as its config says it; "": they are not
    memory        by the type of numbers that it computes in
    """

    architecture: str
    hidden_size: int
    vocabulary: int
    layers: int
    carrying: int
    parameters: int
    stored: str
    memory: Mapping[torch.dtype, TargetMemory]


def outline(name: str, *dtypes: torch.dtype) -> Outline | None:
    """The target of this name; None: the embedded one is not made yet.

    dtypes  of its ``memory``, at least one

    No weights are fetched. Raises UserError for one that cannot be read, and the sentence that
    loading or the first forward would end with for one that does not open.
    """
    config: Any = target_config(name)
    if config is None:
        return None
    with loading_model(name):
        from core.models import hugging_face

        if name == embedded.NAME:  # read without transformers so far
            config = hugging_face.load_config(Source(str(embedded.embedded_path())))
        hugging_face.check_method(name, config)
        hugging_face.check_scales(name, config, _stored(name))
        model = hugging_face.without_weights(config)
        let_trees_branch(model, config)
        memory = {dtype: _memory(model.to(dtype)) for dtype in dtypes}  # type: ignore[arg-type]
        text, quantised = config.get_text_config(), getattr(config, "quantization_config", None)
        return Outline(
            architecture=type(model).__name__,
            hidden_size=text.hidden_size,
            vocabulary=text.vocab_size,
            layers=text.num_hidden_layers,
            carrying=sum(kind in CARRYING for kind in layer_kinds(config)),
            parameters=sum(p.numel() for p in model.parameters()),
            stored=_method(quantised),
            memory=memory,
        )


def _stored(name: str) -> Collection[str]:
    """Names of the tensors of a target's folder, if it is one and holds weights. Raises UserError
    for weights that are not whole."""
    source = preset_of(name).target
    folder = source.folder
    if folder is None or not any(folder.glob(WEIGHTS[0])):
        return ()
    source.weights()
    return stored_shapes(folder)


def names_language_model(folder: Path) -> bool:
    """Whether all architectures that a folder's config names are transformers' own, and some is."""
    import transformers

    raw = read_json(folder / "config.json")
    names = raw.get("architectures") if isinstance(raw, dict) else None
    found = names if isinstance(names, list) else []
    return bool(found) and all(isinstance(n, str) and hasattr(transformers, n) for n in found)


def _memory(model: PreTrainedModel) -> TargetMemory:
    """Run one token through a model on the meta device, and count what it keeps. Raises UserError
    for one that does not run here."""
    weights = sum(p.nbytes for p in model.parameters())
    try:
        kv = read_one_token(model)
    except (RuntimeError, NotImplementedError):  # code that must see numbers: unknown
        return TargetMemory(weights, None, None)
    except Exception as error:
        raise cannot_run(model, error) from error
    return TargetMemory(weights, kv.bytes_per_token, kv.state_bytes)


def _method(quantised: Any) -> str:
    """The name of a quantisation, as a sentence may hold it."""
    told = quantised if isinstance(quantised, Mapping) else vars(quantised or object)
    name = told.get("quant_method", "")
    return "".join(c for c in str(name) if c.isprintable())[:MAX_SAID]
