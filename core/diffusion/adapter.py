"""The embedded denoiser: a low-rank adapter that turns a causal LM into a block diffusion model.

A folder holds ``config.json`` and ``adapter.safetensors``. Every adapted linear layer W [out, in]
of the base model has two tensors, ``layers.N.{q,k,v,o,gate,up,down}_proj.{a,b}``: a [r, in] and
b [out, r]. The denoiser's layer is W + (alpha / r) · b @ a. ``mask_embedding`` [h], if present, is
the mask token's input embedding; the head keeps the base model's row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from core.errors import UserError
from core.models import checkpoint

FORMAT = "draftscope-denoiser"
PARTS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), "self_attn"),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), "mlp"),
}
MASK = "mask_embedding"
_NAME = re.compile(rf"layers\.(\d+)\.({'|'.join(PARTS)})\.([ab])")


@dataclass(frozen=True)
class AdapterConfig:
    """How the adapter was trained. ``core.diffusion.target.Layout`` explains shift and clean."""

    base: str
    mask_token_id: int
    shift: bool
    clean: Literal["causal", "block"]
    block_size: int
    rank: int
    alpha: float
    base_sha: str | None = None

    def __post_init__(self) -> None:
        whole = (self.mask_token_id, self.block_size, self.rank)
        if any(type(value) is not int for value in whole) or type(self.shift) is not bool:
            raise ValueError("mask_token_id, block_size and rank are whole numbers, shift a flag")
        if self.mask_token_id < 0 or self.block_size < 1 or self.rank < 1:
            raise ValueError("mask_token_id must be ≥ 0, block_size and rank ≥ 1")
        if self.clean not in ("causal", "block"):
            raise ValueError(f"clean must be causal or block, not {self.clean!r}")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


@dataclass(frozen=True, eq=False)
class Adapter:
    """The contents of an adapter folder: the config, and the tensors by their names in the file."""

    config: AdapterConfig
    tensors: dict[str, Tensor]


def save_adapter(
    folder: Path, tensors: Mapping[str, Tensor], config: AdapterConfig, small: bool = True
) -> None:
    """Write config.json and adapter.safetensors: in int8 with ``small``, else in bf16."""
    _check(folder, tensors, config)
    raw = {name: value for name, value in asdict(config).items() if value is not None}
    checkpoint.write(folder, {"format": FORMAT} | raw, dict(tensors), small, "adapter.safetensors")


def load_adapter(folder: Path) -> Adapter:
    """Raises UserError when the folder holds no adapter or a broken one."""
    raw = checkpoint.read_config(folder, "denoiser")
    if raw.get("format") != FORMAT:
        raise UserError(f"{folder} holds no denoiser: the format in its config is not {FORMAT!r}")
    with checkpoint.as_user_error(folder, "denoiser"):
        known = {name: raw[name] for name in AdapterConfig.__dataclass_fields__ if name in raw}
        config = AdapterConfig(**known)
    tensors = checkpoint.read_state(folder)
    _check(folder, tensors, config)
    return Adapter(config, tensors)


@torch.no_grad()
def merge(model: PreTrainedModel, adapter: Adapter) -> None:
    """Add the adapter to the model's weights in place, computed in float32.

    The model must have plain linears, as loaded with ``fast=False``. A mask embedding unties the
    input embedding from the head. Raises UserError for an adapter of a model of another shape.
    """
    vocabulary = model.config.get_text_config().vocab_size
    if adapter.config.mask_token_id >= vocabulary:
        raise UserError(
            f"the denoiser's mask token {adapter.config.mask_token_id} is not one of the "
            f"model's {vocabulary} tokens"
        )
    for name, a in adapter.tensors.items():
        if not name.endswith(".a"):
            continue
        b = adapter.tensors[name.removesuffix("a") + "b"]
        weight = _layer(model, name).weight
        if weight.shape != (b.shape[0], a.shape[1]):
            raise UserError(
                f"the denoiser's {name.removesuffix('.a')} is for a layer of shape "
                f"{(b.shape[0], a.shape[1])}, but the model's is {tuple(weight.shape)}"
            )
        a, b = a.to(weight.device).float(), b.to(weight.device).float()
        delta = adapter.config.scale * (b @ a)
        weight.copy_(weight.to(torch.promote_types(weight.dtype, torch.float32)) + delta)
    if (row := adapter.tensors.get(MASK)) is not None:
        set_embedding(model, adapter.config.mask_token_id, row)


def set_embedding(model: PreTrainedModel, token: int, row: Tensor) -> None:
    """Make ``row`` [h] the input embedding of ``token``; a tied head keeps the old row."""
    embedding: Any = model.get_input_embeddings()
    if row.shape != embedding.weight.shape[1:]:
        raise UserError(
            f"the denoiser's mask embedding {tuple(row.shape)} does not fit "
            f"the model's embedding {tuple(embedding.weight.shape)}"
        )
    weight = embedding.weight.detach().clone()
    weight[token] = row.to(weight)
    embedding.weight = nn.Parameter(weight, requires_grad=False)
    model.config.get_text_config().tie_word_embeddings = False


def _layer(model: PreTrainedModel, name: str) -> Any:
    found = _NAME.fullmatch(name)
    assert found is not None, "_check has checked the names"
    try:
        return model.get_submodule(f"model.layers.{found[1]}.{PARTS[found[2]]}.{found[2]}")
    except AttributeError:
        raise UserError(f"the denoiser adapts {name}, which the model does not have") from None


def _check(folder: Path, tensors: Mapping[str, Tensor], config: AdapterConfig) -> None:
    """Check names, ranks and pairs of tensors. Raises UserError for the first wrong one."""
    for name, tensor in sorted(tensors.items()):
        if name == MASK and tensor.ndim == 1:
            continue
        found = _NAME.fullmatch(name)
        if found is None or tensor.ndim != 2:
            raise UserError(f"{folder}: {name} {tuple(tensor.shape)} belongs to no denoiser")
        a = found[3] == "a"
        if tensor.shape[0 if a else 1] != config.rank:
            raise UserError(f"{folder}: {name} {tuple(tensor.shape)} is not of rank {config.rank}")
        other = name[:-1] + ("b" if a else "a")
        if other not in tensors:
            raise UserError(f"{folder}: the tensor {other} is missing")
