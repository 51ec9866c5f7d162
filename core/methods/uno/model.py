"""Adapters by which a target drafts for itself: PEFT's folders, and the denoiser that ships.

A folder in PEFT's layout holds ``adapter_config.json`` and tensors such as
``model.layers.N.self_attn.q_proj.lora_A.weight`` [r, in] and ``lora_B`` [out, r]. What they add to
a layer is scaled by alpha / r, or by alpha / √r where the config says ``use_rslora``. Its places to
guess hold random tokens, and a row sees only those before it, as in any pass of the target. The
denoiser's hold its mask token, and see each other (``core.models.adapter``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.methods.sps.model import model_of_layers, shared
from core.models import adapter, checkpoint, configs
from core.models.adapter import MASK, PARTS, GatedAdapter, check_pairs
from core.models.checkpoint import DrafterForm
from core.models.hub import CONFIG, config_file

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KIND = "uno"
_STORED = re.compile(
    rf"(?:base_model\.model\.)?model\.layers\.(\d+)\.(?:self_attn|mlp)\.({'|'.join(PARTS)})"
    r"\.lora_([AB])(?:\.default)?\.weight"
)
_OWN = re.compile(rf"layers\.\d+\.({'|'.join(PARTS)})\.[ab]")
# What PEFT can also do to a layer, and the value that leaves it out.
_OTHERS: Mapping[str, Any] = {
    "use_dora": False, "bias": "none", "rank_pattern": {}, "alpha_pattern": {},
    "fan_in_fan_out": False, "modules_to_save": None, "lora_bias": False,
}  # fmt: skip


@dataclass(frozen=True)
class UnoConfig:
    """How an adapter is applied.

    rank           r of its pairs
    scale          what they add is multiplied by it
    mask_token_id  the token at the places to guess; None: random ones
    masks          how many places it was trained with; 0: not known
    causal         whether a place to guess sees only those before it
    """

    rank: int
    scale: float
    mask_token_id: int | None = None
    masks: int = 0
    causal: bool = True

    @property
    def of_target(self) -> dict[str, int]:
        """Nothing that a config tells: the layers' shapes are compared where it is loaded."""
        return {}

    def feature_layers(self, target_layers: int) -> tuple[int, ...]:
        """None: it is the target."""
        return ()

    @staticmethod
    def of_peft(raw: dict[str, Any]) -> UnoConfig:
        """Raises ValueError for anything but a plain low-rank adapter."""
        if raw.get("peft_type", "LORA") != "LORA":
            raise ValueError(f"its peft_type is not LORA but {raw['peft_type']!r}")
        for name, plain in _OTHERS.items():
            if (raw.get(name) or plain) != plain:
                raise ValueError(f"its {name} is {raw[name]!r}: only plain low-rank pairs are read")
        rank, alpha = int(raw["r"]), float(raw.get("lora_alpha", raw["r"]))
        if rank < 1:
            raise ValueError("its rank r must be 1 or more")
        return UnoConfig(rank, alpha / (rank**0.5 if raw.get("use_rslora") else rank))


def _place(folder: Path) -> Path:
    """The folder of the adapter: published repositories hold it in one of their own."""
    return (folder / config_file(folder)).parent


def _named(stored: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Stored tensors, or their shapes, by our names. Raises UserError for one of another name."""
    found = {}
    for name, value in stored.items():
        if (own := _STORED.fullmatch(name)) is not None:
            name = f"layers.{own[1]}.{own[2]}.{own[3].lower()}"
        elif name != MASK and not _OWN.fullmatch(name):
            raise configs.LayoutError(
                f"{folder}: the tensor {name} is no low-rank part of a projection"
            )
        found[name] = value
    return found


class UnoForm(DrafterForm[UnoConfig]):
    """A gated adapter of the target, in our layout or as PEFT stores it."""

    def load_config(self, folder: Path) -> UnoConfig:
        """Raises UserError for a folder that holds no adapter."""
        if (name := config_file(folder)) == CONFIG[0]:
            own = adapter.load_config(folder)
            return UnoConfig(own.rank, own.scale, own.mask_token_id, own.block_size, False)
        raw = configs.read_config(folder, KIND, name)
        return configs.parsed(raw, folder, KIND, UnoConfig.of_peft)

    def read_shapes(self, folder: Path) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors, by ``layers.N.PART.a`` and ``.b``. Raises UserError."""
        return _named(checkpoint.read_shapes(_place(folder)), folder)

    def outline(self, folder: Path) -> nn.Module:
        """The adapter without its weights: which layers it changes, its own tensors tell. Raises
        UserError where they are not pairs of the config's rank."""
        shapes, made = self.read_shapes(folder), nn.Module()
        check_pairs(folder, shapes, self.load_config(folder).rank)
        for name, shape in shapes.items():
            part = made
            *above, last = name.split(".")
            for each in above:
                if not hasattr(part, each):
                    part.add_module(each, nn.Module())
                part = part.get_submodule(each)
            part.register_parameter(last, nn.Parameter(torch.empty(shape, device="meta"), False))
        return made

    def folders(self, folder: Path) -> tuple[Path, ...]:
        """The folders that hold its weights."""
        return (_place(folder),)


FORM = UnoForm()


def load_tensors(folder: Path) -> dict[str, Tensor]:
    """The adapter's tensors by our names. Raises UserError for those that do not fit its config."""
    check_pairs(folder, FORM.read_shapes(folder), FORM.load_config(folder).rank)
    return _named(checkpoint.read_state(_place(folder)), folder)


def adapted(
    model: PreTrainedModel, tensors: Mapping[str, Tensor], config: UnoConfig
) -> tuple[PreTrainedModel, GatedAdapter]:
    """The target as a model that shares its weights, and the adapter on it. The target's own
    modules stay as they are.

    Raises UserError for an adapter of layers that the target does not have, or of other sizes.
    """
    decoder: Any = model.get_decoder()
    if not isinstance(layers := getattr(decoder, "layers", None), nn.ModuleList):
        raise UserError("this target's layers cannot be shared")
    made = model_of_layers(model, [shared(layer) for layer in layers], {})
    return made, GatedAdapter(made, tensors, config.scale, config.mask_token_id)
