"""Folders of draft language models: any causal LM, or the target's own first layers.

The second kind shares the target's embedding, first layers, final norm and head. Its config is
``{"format": "draftscope-first-layers", "layers": N, "rank": r, "parts": {name: [out, in]}}``.
``model.safetensors`` holds what was trained: a low-rank change b @ a of each linear layer W
[out, in], as ``layers.N.{q,k,v,o,gate,up,down}_proj.{a,b}``: a [r, in], b [out, r]. Rank 0: nothing
was trained, and there is no such file.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.declared import MAX_COUNT
from core.errors import UserError
from core.methods.sps.translation import shared_tokens
from core.models import checkpoint, configs
from core.models.adapter import PARTS
from core.models.checkpoint import DrafterForm
from core.models.hub import Source
from core.models.language import load_vocabulary
from core.models.layers import drawn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from core.models.language import Language

KIND, FORMAT = "sps", "draftscope-first-layers"


@dataclass(frozen=True)
class DraftConfig:
    """``layers``: how many of the target's are used; None: the folder holds a model of its own.

    rank   of the trained change; 0: none
    parts  (out, in) of each linear layer that is changed
    """

    layers: int | None = None
    rank: int = 0
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = (self.layers or 1, self.rank, *(n for shape in self.parts.values() for n in shape))
        whole = all(type(n) is int and n >= 0 for n in sizes) and sizes[0] <= MAX_COUNT
        if not (whole and self.parts.keys() <= PARTS.keys()):
            raise ValueError("layers, rank and parts are whole numbers of known parts")

    @property
    def apart(self) -> bool:
        """Whether it is a model of its own, whose tokens may be others than the target's."""
        return self.layers is None

    @property
    def of_target(self) -> dict[str, int]:
        """The sizes that the target must have, by name, where the config gives them."""
        return {"hidden size": self.parts["q_proj"][1]} if "q_proj" in self.parts else {}

    def feature_layers(self, target_layers: int) -> tuple[int, ...]:
        """None: it reads tokens alone."""
        return ()

    @staticmethod
    def of(raw: dict[str, Any]) -> DraftConfig:
        parts = {name: (n, m) for name, (n, m) in raw.get("parts", {}).items()}
        return DraftConfig(int(raw["layers"]), raw.get("rank", 0), parts)

    def to_json(self) -> dict[str, Any]:
        parts = {name: list(shape) for name, shape in self.parts.items()}
        return {"format": FORMAT, "layers": self.layers, "rank": self.rank, "parts": parts}


class Pair(nn.Module):
    """A low-rank matrix b @ a, zero at the start. [..., in] → [..., out]"""

    def __init__(self, shape: tuple[int, int], rank: int):
        super().__init__()
        self.a = drawn(rank, shape[1], std=shape[1] ** -0.5)
        self.b = nn.Parameter(torch.zeros(shape[0], rank))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.a), self.b)


class Changed(nn.Module):
    """A linear layer, which stays the target's, and what training added to it."""

    def __init__(self, linear: Any, more: Pair):
        super().__init__()
        self.linear, self.more = linear, more

    def forward(self, x: Tensor) -> Tensor:
        # In training the change is float32, whatever the target is.
        return self.linear(x) + self.more(x.to(self.more.a.dtype)).to(x.dtype)

    def merged(self) -> nn.Linear:
        """One linear layer that computes the same."""
        made = copy.deepcopy(self.linear)
        made.weight = nn.Parameter(made.weight + self.more.b @ self.more.a, requires_grad=False)
        return made


class DraftAdapter(nn.Module):
    """The low-rank weights that training adds to the target's first layers."""

    def __init__(self, config: DraftConfig):
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: Pair(shape, config.rank) for name, shape in config.parts.items()})
            for _ in range((config.layers or 0) if config.rank else 0)
        )


class DraftForm(DrafterForm[DraftConfig]):
    """A draft model of its own, or a change to the target's first layers."""

    def load_config(self, folder: Path) -> DraftConfig:
        """Raises UserError for a folder that holds neither kind."""
        if configs.read_config(folder, KIND).get("format") == FORMAT:
            return configs.parsed_at(folder, KIND, DraftConfig.of)
        _config(folder)
        return DraftConfig()

    def outline(self, folder: Path) -> nn.Module:
        """The model, or the adapter, without its weights."""
        config = self.load_config(folder)
        with configs.on_meta(folder, KIND):
            if config.layers is not None:
                return DraftAdapter(config)
            from transformers import AutoModelForCausalLM

            return AutoModelForCausalLM.from_config(_config(folder), trust_remote_code=False)

    def read_shapes(self, folder: Path) -> dict[str, tuple[int, ...]]:
        """Shapes of the file's tensors that the model has; a head tied to the embedding is there.

        transformers renames the tensors of some families as it loads them, and says then what is
        missing: theirs count as there.
        """
        known, found = checkpoint.shapes(self.outline(folder)), checkpoint.read_shapes(folder)
        if self.load_config(folder).layers is None:
            if _config(folder).get_text_config().tie_word_embeddings:
                found.setdefault("lm_head.weight", known.get("lm_head.weight", ()))
            if 2 * len(found.keys() & known.keys()) >= len(known):
                return known | {name: found[name] for name in known if name in found}
        return {name: shape for name, shape in found.items() if name in known}

    def folders(self, folder: Path) -> tuple[Path, ...]:
        """The folders that hold its weights: none where all are the target's."""
        config = self.load_config(folder)
        return (folder,) if config.layers is None or config.rank else ()

    def covers(
        self, folder: Path, config: DraftConfig, target: str | None
    ) -> tuple[int | None, bool]:
        """Of a draft model with a tokenizer of its own: how many of the target's tokens it has."""
        if not config.apart:
            return super().covers(folder, config, target)
        with suppress(UserError):  # a tokenizer that cannot be read
            if target is not None:
                own = load_vocabulary(str(folder))
                return len(shared_tokens(load_vocabulary(target), own)), True
        return None, True


FORM = DraftForm()


def load_adapter(folder: Path, config: DraftConfig) -> DraftAdapter:
    """The trained part of a folder's first layers. Raises UserError for tensors that do not fit."""
    with configs.on_meta(folder, KIND):
        made = DraftAdapter(config)
    state = checkpoint.read_state(folder) if config.rank else {}
    return checkpoint.fill(made, state, folder).requires_grad_(False)


def save_adapter(adapter: DraftAdapter, folder: Path, small: bool = False) -> None:
    checkpoint.write(folder, adapter.config.to_json(), dict(adapter.state_dict()), small)


def first_layers(model: PreTrainedModel, adapter: DraftAdapter) -> PreTrainedModel:
    """The target's embedding, first layers, final norm and head as a model that shares them, with
    the adapter's changes.

    Raises UserError for a target that does not have so many layers, or none by that name.
    """
    whole: Any = model.get_decoder()
    count = adapter.config.layers
    assert count is not None
    if not isinstance(layers := getattr(whole, "layers", None), nn.ModuleList):
        raise UserError("this target's layers cannot be shared: name a draft model")
    if count > len(layers):
        raise UserError(f"the target has {len(layers)} layers, not {count}")
    fields: dict[str, Any] = {"num_hidden_layers": count}
    if kinds := getattr(model.config, "layer_types", None):
        fields["layer_types"] = kinds[:count]
    made: list[nn.Module] = [shared(layer) for layer in layers[:count]]
    for layer, changes in zip(made, adapter.layers, strict=False):
        assert isinstance(changes, nn.ModuleDict)
        changed(layer, cast("dict[str, Pair]", dict(changes.items())))
    return model_of_layers(model, made, fields)


def model_of_layers(
    model: Any, layers: list[nn.Module] | None, fields: Mapping[str, Any]
) -> PreTrainedModel:
    """A model of a target's class that shares the target's embedding and head, on ``layers`` and
    the target's final norm; None: on new ones without weights.

    fields  of its config, where they differ from the target's
    """
    config = copy.deepcopy(model.config.get_text_config())
    for name, value in fields.items():
        setattr(config, name, value)
    with torch.device("meta"):
        made: Any = type(model)(config)
    part = made.get_decoder()
    for name, child in model.get_decoder().named_children():
        if layers is not None or name not in ("layers", "norm"):
            setattr(part, name, child)
    if layers is not None:
        part.layers = nn.ModuleList(layers)
    made.set_output_embeddings(model.get_output_embeddings())
    return made.eval()


def changed(layer: nn.Module, pairs: Mapping[str, Pair]) -> nn.Module:
    """A layer whose linear layers have what training adds to them."""
    for name, pair in pairs.items():
        place = getattr(layer, PARTS[name])
        setattr(place, name, Changed(getattr(place, name), pair))
    return layer


def merge(layer: nn.Module) -> None:
    """Add what training changed to a layer's own linear layers, in place."""
    for place in {*PARTS.values()}:
        part = getattr(layer, place)
        for name, each in [*part.named_children()]:
            if isinstance(each, Changed):
                setattr(part, name, each.merged())


def export(folder: Path, out: Path, load_target: Callable[[], Language]) -> nn.Module:
    """Write the target's changed first layers as a model of their own with the target's tokenizer,
    in transformers' layout. Raises UserError for a folder that holds such a model already."""
    config = FORM.load_config(folder)
    if config.layers is None:
        raise UserError(f"{folder} holds a whole model, in transformers' layout already")
    language = load_target()
    adapter = load_adapter(folder, config).to(language.device, language.model.dtype)
    made: Any = first_layers(language.model, adapter)
    for layer in made.get_decoder().layers:
        merge(layer)
    state = dict(made.state_dict())
    if made.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    checkpoint.write(out, {**made.config.to_dict(), "dtype": "bfloat16"}, state, small=False)
    language.tokenizer.save_pretrained(out)
    return made


def shared(module: nn.Module) -> nn.Module:
    """The same module with the same weights, whose parts can be exchanged without its owner's."""
    made = copy.copy(module)
    made._forward_hooks = OrderedDict()  # transformers' report a layer's output to its own model
    made._modules = {n: m and shared(m) for n, m in module._modules.items()}
    return made


def _config(folder: Path) -> Any:
    from core.models.hugging_face import load_config as load_hugging_face

    with configs.as_user_error(folder, KIND):
        try:
            return load_hugging_face(Source(str(folder)))
        except OSError as error:
            raise ValueError(error) from None
