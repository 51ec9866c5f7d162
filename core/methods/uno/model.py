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
from torch.nn import functional as F

from core.errors import UserError
from core.methods.sps.model import model_of_layers, shared
from core.models import adapter as denoiser
from core.models import checkpoint
from core.models.adapter import MASK, PARTS
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
        """Raises ValueError for what is no plain low-rank adapter."""
        if raw.get("peft_type", "LORA") != "LORA":
            raise ValueError(f"its peft_type is not LORA but {raw['peft_type']!r}")
        for name, plain in _OTHERS.items():
            if (raw.get(name) or plain) != plain:
                raise ValueError(f"its {name} is {raw[name]!r}: only plain low-rank pairs are read")
        rank, alpha = int(raw["r"]), float(raw.get("lora_alpha", raw["r"]))
        if rank < 1:
            raise ValueError("its rank r must be 1 or more")
        return UnoConfig(rank, alpha / (rank**0.5 if raw.get("use_rslora") else rank))

    @staticmethod
    def of_denoiser(raw: dict[str, Any]) -> UnoConfig:
        if raw.get("format") != denoiser.FORMAT:
            raise ValueError(f"the format in its config is not {denoiser.FORMAT!r}")
        scale = raw["alpha"] / raw["rank"]
        return UnoConfig(raw["rank"], scale, raw["mask_token_id"], raw["block_size"], False)


def _place(folder: Path) -> Path:
    """The folder of the adapter: published repositories hold it in one of their own."""
    return (folder / config_file(folder)).parent


def load_config(folder: Path) -> UnoConfig:
    """Raises UserError for a folder that holds no adapter."""
    name = config_file(folder)
    parse = UnoConfig.of_denoiser if name == CONFIG[0] else UnoConfig.of_peft
    return checkpoint.parsed(checkpoint.read_config(folder, KIND, name), folder, KIND, parse)


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors, by ``layers.N.PART.a`` and ``.b``. Raises UserError."""
    return _named(checkpoint.read_shapes(_place(folder)), folder)


def _named(stored: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Stored tensors, or their shapes, by our names. Raises UserError for one of another name."""
    found = {}
    for name, value in stored.items():
        if (own := _STORED.fullmatch(name)) is not None:
            name = f"layers.{own[1]}.{own[2]}.{own[3].lower()}"
        elif name != MASK and not _OWN.fullmatch(name):
            raise checkpoint.LayoutError(
                f"{folder}: the tensor {name} is no low-rank part of a projection"
            )
        found[name] = value
    return found


def outline(folder: Path) -> nn.Module:
    """The adapter without its weights: every pair that it has a half of, of the config's rank.
    Raises UserError."""
    config, found, made = load_config(folder), read_shapes(folder), nn.Module()
    for name, shape in found.items():
        expected = shape
        if name != MASK:
            stem, _, half = name.rpartition(".")
            if f"{stem}.{'b' if half == 'a' else 'a'}" not in found:
                raise UserError(f"{folder}: the tensor {name} has no other half")
            sizes = (config.rank, *shape[1:2]) if half == "a" else (*shape[:1], config.rank)
            expected = tuple(sizes) if len(shape) == 2 else (config.rank, 1)
        _put(made, name, expected)
    return made


def _put(module: nn.Module, name: str, shape: tuple[int, ...]) -> None:
    *above, last = name.split(".")
    for part in above:
        if not hasattr(module, part):
            module.add_module(part, nn.Module())
        module = module.get_submodule(part)
    module.register_parameter(last, nn.Parameter(torch.empty(shape, device="meta"), False))


def folders(folder: Path) -> tuple[Path, ...]:
    """The folders that hold its weights."""
    return (_place(folder),)


def load_tensors(folder: Path) -> dict[str, Tensor]:
    """The adapter's tensors by our names. Raises UserError for those that do not fit its config."""
    checkpoint.check_shapes(checkpoint.shapes(outline(folder)), read_shapes(folder), folder)
    return _named(checkpoint.read_state(_place(folder)), folder)


class RowGate:
    """``rows``: those of the pass at hand that are adapted, indices [R]; None: no row is."""

    rows: Tensor | None = None


class Gated(nn.Module):
    """A linear layer, which stays the target's, and what the gate's rows add: b @ a. A batch of one
    pass, [1, T, in] → [1, T, out]."""

    a: Tensor
    b: Tensor

    def __init__(self, linear: nn.Module, a: Tensor, b: Tensor, gate: RowGate):
        super().__init__()
        self.linear, self._gate = linear, gate
        self.register_buffer("a", a)
        self.register_buffer("b", b)

    def forward(self, x: Tensor) -> Tensor:
        out = self.linear(x)
        if (rows := self._gate.rows) is None:
            return out
        more = F.linear(F.linear(x[:, rows], self.a), self.b)
        return out.index_add(1, rows, more)


def gated(
    model: PreTrainedModel, tensors: Mapping[str, Tensor], scale: float, gate: RowGate
) -> PreTrainedModel:
    """The target as a model that shares its weights, with the adapter at the gate's rows. The
    target's own modules stay as they are.

    Raises UserError for an adapter of layers that the target does not have, or of other sizes.
    """
    whole: Any = model.get_decoder()
    layers = [shared(layer) for layer in whole.layers]
    for name in sorted(tensors):
        if not name.endswith(".a"):
            continue
        _, number, part, _ = name.split(".")
        a, b = tensors[name], tensors[f"{name[:-2]}.b"]
        try:
            at: Any = getattr(layers[int(number)], PARTS[part])
            linear = getattr(at, part)
            sizes = linear.out_features, linear.in_features
        except (AttributeError, IndexError):
            raise UserError(
                f"the adapter changes layers.{number}.{part}, which the target does not have"
            ) from None
        if (b.shape[0], a.shape[1]) != sizes:
            raise UserError(
                f"the adapter's layers.{number}.{part} is for a layer of shape "
                f"{(b.shape[0], a.shape[1])}, but the target's is {sizes}"
            )
        a, b = (half.to(model.device, model.dtype) for half in (a, scale * b.float()))
        setattr(at, part, Gated(linear, a, b, gate))
    return model_of_layers(model, layers, {})
