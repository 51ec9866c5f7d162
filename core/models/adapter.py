"""The embedded denoiser: a low-rank adapter that turns a causal LM into a block diffusion model.

A folder holds ``config.json`` and ``adapter.safetensors``. Every adapted linear layer W [out, in]
of the base model has two tensors, ``layers.N.{q,k,v,o,gate,up,down}_proj.{a,b}``: a [r, in] and
b [out, r]. For the rows that are adapted the layer is W + (alpha / r) · b @ a, and
``mask_embedding`` [h], if present, is the mask token's input embedding. All other rows are the base
model's: a gated adapter, as in arXiv:2507.11851. ``core.diffusion.target.BlockLayout`` says which
rows are adapted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.models import checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FORMAT, UNGATED = "draftscope-gated-denoiser", "draftscope-denoiser"
PARTS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), "self_attn"),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), "mlp"),
}
MASK = "mask_embedding"
_NAME = re.compile(rf"layers\.(\d+)\.({'|'.join(PARTS)})\.([ab])")


@dataclass(frozen=True)
class AdapterConfig:
    """How the adapter was trained.

    ahead  the confidence that a position needs to be unmasked before the first masked one
    """

    base: str
    mask_token_id: int
    block_size: int
    rank: int
    alpha: float
    ahead: float = 0.0
    base_sha: str | None = None

    def __post_init__(self) -> None:
        whole = (self.mask_token_id, self.block_size, self.rank)
        if any(type(value) is not int for value in whole):
            raise ValueError("mask_token_id, block_size and rank are whole numbers")
        if not isinstance(self.ahead, int | float) or not 0 <= self.ahead <= 1:
            raise ValueError(f"ahead must be from 0 to 1, not {self.ahead!r}")
        if self.mask_token_id < 0 or self.block_size < 1 or self.rank < 1:
            raise ValueError("mask_token_id must be ≥ 0, block_size and rank ≥ 1")

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
    if raw.get("format") == UNGATED:
        raise UserError(f"{folder} holds a denoiser of an earlier version: train it anew")
    if raw.get("format") != FORMAT:
        raise UserError(f"{folder} holds no denoiser: the format in its config is not {FORMAT!r}")
    with checkpoint.as_user_error(folder, "denoiser"):
        known = {name: raw[name] for name in AdapterConfig.__dataclass_fields__ if name in raw}
        config = AdapterConfig(**known)
    tensors = checkpoint.read_state(folder)
    _check(folder, tensors, config)
    return Adapter(config, tensors)


class Pairs(Protocol):
    """The low-rank weights of a denoiser: of a file, or while they are trained."""

    def pair(self, name: str) -> tuple[Tensor, Tensor]:
        """a [r, in] and b [out, r], with the scale in it, of the projection ``layers.N.…``."""
        ...


class AdapterGate:
    """Adds low-rank weights to some rows of a model's forwards, and to none outside ``open``."""

    def __init__(self, projections: Mapping[str, nn.Module]):
        """``projections`` by name: they call the gate from now on."""
        self._pairs: Pairs | None = None
        self._rows: Tensor | None = None
        for name, linear in projections.items():
            linear.register_forward_hook(self._hook(name))

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        def add(_module: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
            if self._pairs is None:
                return out
            a, b = self._pairs.pair(name)
            if self._rows is None:
                return out + inputs[0] @ a.T @ b.T
            out[0].index_add_(0, self._rows, inputs[0][0, self._rows] @ a.T @ b.T)
            return out

        return add

    @contextmanager
    def open(self, pairs: Pairs, rows: Tensor | None = None) -> Iterator[None]:
        """Within it, these rows (indices [R] of a batch of one; None: all) are adapted."""
        self._pairs, self._rows = pairs, rows
        try:
            yield
        finally:
            self._pairs = self._rows = None


class GatedAdapter:
    """A saved adapter on its model, ready to run."""

    def __init__(self, model: PreTrainedModel, adapter: Adapter):
        """Raises UserError for an adapter of a model of another shape."""
        _check_fits(model, adapter)
        dtype, device, scale = model.dtype, model.device, adapter.config.scale
        self._low = {
            name: (tensor.float() * (scale if name.endswith(".b") else 1.0)).to(device, dtype)
            for name, tensor in adapter.tensors.items()
        }
        self._embedding: Any = model.get_input_embeddings()
        self._mask = adapter.config.mask_token_id
        named = projections(model)
        self._gate = AdapterGate({name: named[name] for name in _adapted(adapter)})

    def pair(self, name: str) -> tuple[Tensor, Tensor]:
        return self._low[f"{name}.a"], self._low[f"{name}.b"]

    def open(self, rows: Tensor) -> AbstractContextManager[None]:
        """Within it, these rows of a forward are adapted."""
        return self._gate.open(self, rows)

    def embed(self, ids: Tensor, rows: Tensor) -> Tensor:
        """Input embeddings [T, h] of ``ids`` [T], of which ``rows`` [R] are adapted."""
        out = self._embedding(ids)
        if (mask := self._low.get(MASK)) is not None:
            masked = (ids[rows] == self._mask)[:, None]
            out[rows] = torch.where(masked, mask, out[rows])
        return out


def projections(model: Any) -> dict[str, Any]:
    """The linear layers of a Llama-like causal LM, by names like ``layers.3.q_proj``.

    Raises UserError for a model without them.
    """
    try:
        return {
            f"layers.{index}.{name}": layer.get_submodule(f"{part}.{name}")
            for index, layer in enumerate(model.model.layers)
            for name, part in PARTS.items()
        }
    except AttributeError:
        raise UserError(
            f"a denoiser adapts a Llama-like model's layers; a {type(model).__name__} has others"
        ) from None


def _adapted(adapter: Adapter) -> list[str]:
    """The projections that it has weights for."""
    return sorted(name[: -len(".a")] for name in adapter.tensors if name.endswith(".a"))


def _check_fits(model: PreTrainedModel, adapter: Adapter) -> None:
    """Raises UserError for an adapter whose tensors do not fit the model's projections."""
    config = model.config.get_text_config()
    if adapter.config.mask_token_id >= config.vocab_size:
        raise UserError(
            f"the denoiser's mask token {adapter.config.mask_token_id} is not one of the "
            f"model's {config.vocab_size} tokens"
        )
    layers: dict[str, Any] = projections(model)
    for name in _adapted(adapter):
        if name not in layers:
            raise UserError(f"the denoiser adapts {name}, which the model does not have")
        expected = layers[name].out_features, layers[name].in_features
        found = adapter.tensors[f"{name}.b"].shape[0], adapter.tensors[f"{name}.a"].shape[1]
        if found != expected:
            raise UserError(
                f"the denoiser's {name} is for a layer of shape {found}, "
                f"but the model's is {expected}"
            )
    row = adapter.tensors.get(MASK)
    if row is not None and row.shape != (config.hidden_size,):
        raise UserError(
            f"the denoiser's mask embedding {tuple(row.shape)} does not fit "
            f"the model's width of {config.hidden_size}"
        )


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
