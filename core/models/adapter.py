"""Gated adapters: low-rank weights that are on at some rows of a causal LM, as in arXiv:2507.11851.

The embedded denoiser is one, which turns the model into a block diffusion model; UNO drafts with
one. The denoiser's folder holds ``config.json`` and ``adapter.safetensors``. Every adapted linear
layer W [out, in] of the base model has two tensors, ``layers.N.{q,k,v,o,gate,up,down}_proj.{a,b}``:
a [r, in] and b [out, r]. For the rows that are adapted the layer is W + (alpha / r) · b @ a, and
``mask_embedding`` [h], if present, is the mask token's input embedding. All other rows are the base
model's. ``core.diffusion.target.BlockLayout`` says which rows are adapted.
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

from core.declared import MAX_COUNT
from core.errors import UserError
from core.models import checkpoint, configs

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
        if not isinstance(self.alpha, int | float):
            raise ValueError(f"alpha must be a number, not {self.alpha!r}")
        if self.mask_token_id < 0 or self.rank < 1:
            raise ValueError("mask_token_id must be ≥ 0 and rank ≥ 1")
        if not 1 <= self.block_size <= MAX_COUNT:
            raise ValueError(f"block_size must be from 1 to {MAX_COUNT}")

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
    check_pairs(folder, shapes_of(tensors), config.rank)
    raw = {name: value for name, value in asdict(config).items() if value is not None}
    checkpoint.write(folder, {"format": FORMAT} | raw, dict(tensors), small, "adapter.safetensors")


def load_config(folder: Path) -> AdapterConfig:
    """Raises UserError when the folder holds no denoiser's config."""
    raw = configs.read_config(folder, "denoiser")
    if raw.get("format") == UNGATED:
        raise UserError(f"{folder} holds a denoiser of an earlier version: train it anew")
    if raw.get("format") != FORMAT:
        raise UserError(f"{folder} holds no denoiser: the format in its config is not {FORMAT!r}")
    with configs.as_user_error(folder, "denoiser"):
        known = {name: raw[name] for name in AdapterConfig.__dataclass_fields__ if name in raw}
        return AdapterConfig(**known)


def load_adapter(folder: Path) -> Adapter:
    """Raises UserError when the folder holds no adapter or a broken one."""
    config, tensors = load_config(folder), checkpoint.read_state(folder)
    check_pairs(folder, shapes_of(tensors), config.rank)
    return Adapter(config, tensors)


class Pairs(Protocol):
    """The low-rank weights of an adapter: of a file, or while they are trained."""

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
        """A context in which these rows (indices [R] of a batch of one; None: all) are adapted."""
        self._pairs, self._rows = pairs, rows
        try:
            yield
        finally:
            self._pairs = self._rows = None


class GatedAdapter:
    """A saved adapter on its model, ready to run."""

    def __init__(
        self,
        model: PreTrainedModel,
        tensors: Mapping[str, Tensor],
        scale: float,
        mask_token_id: int | None = None,
    ):
        """``tensors`` by their names in the file; what the pairs add is multiplied by ``scale``.
        ``mask_token_id``: the token whose embedding is the adapter's own; None: no token's is.

        Raises UserError for an adapter of a model of another shape.
        """
        _check_mask(model, tensors.get(MASK), mask_token_id)
        self._gate = AdapterGate(_adapted(model, tensors))
        dtype, device = model.dtype, model.device
        self._low = {
            name: (tensor.float() * (scale if name.endswith(".b") else 1.0)).to(device, dtype)
            for name, tensor in tensors.items()
        }
        self._embedding: Any = model.get_input_embeddings()
        self._mask = mask_token_id

    def pair(self, name: str) -> tuple[Tensor, Tensor]:
        return self._low[f"{name}.a"], self._low[f"{name}.b"]

    def open(self, rows: Tensor) -> AbstractContextManager[None]:
        """A context in which these rows of a forward are adapted."""
        return self._gate.open(self, rows)

    def embed(self, ids: Tensor, rows: Tensor) -> Tensor:
        """Input embeddings [T, h] of ``ids`` [T], of which ``rows`` [R] are adapted."""
        out = self._embedding(ids)
        if self._mask is not None and (mask := self._low.get(MASK)) is not None:
            masked = (ids[rows] == self._mask)[:, None]
            out[rows] = torch.where(masked, mask, out[rows])
        return out


def projections(model: Any) -> dict[str, Any]:
    """The linear layers of a Llama-like causal LM, by names like ``layers.3.q_proj``.

    Raises UserError for a model without them.
    """
    names = [f"layers.{number}.{part}" for number in range(len(_layers(model))) for part in PARTS]
    found = {name: _projection(model, name) for name in names}
    if not found or None in found.values():
        raise UserError(
            f"a denoiser adapts a Llama-like model's layers; a {type(model).__name__} has others"
        )
    return found


def _layers(model: Any) -> Any:
    """The layers of a causal LM; none where it has no decoder, or one without them."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    return getattr(decoder, "layers", ())


def _projection(model: Any, name: str) -> Any:
    """The model's linear layer of a name like ``layers.3.q_proj``; None: it has none."""
    _, number, part = name.split(".")
    try:
        return _layers(model)[int(number)].get_submodule(f"{PARTS[part]}.{part}")
    except (AttributeError, IndexError):
        return None


def _adapted(model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> dict[str, nn.Module]:
    """The model's linear layers that an adapter changes. Raises UserError where one is missing or
    of another shape."""
    found = {}
    for name in sorted(name[: -len(".a")] for name in tensors if name.endswith(".a")):
        linear = found[name] = _projection(model, name)
        if linear is None:
            raise UserError(f"the adapter changes {name}, which the model does not have")
        expected = linear.out_features, linear.in_features
        its = tensors[f"{name}.b"].shape[0], tensors[f"{name}.a"].shape[1]
        if its != expected:
            raise UserError(
                f"the adapter's {name} is for a layer of shape {its}, but the model's is {expected}"
            )
    return found


def _check_mask(model: PreTrainedModel, row: Tensor | None, mask_token_id: int | None) -> None:
    """Raises UserError for a mask that does not fit the model's embedding."""
    config = model.config.get_text_config()
    if mask_token_id is not None and mask_token_id >= config.vocab_size:
        raise UserError(
            f"the adapter's mask token {mask_token_id} is not one of the "
            f"model's {config.vocab_size} tokens"
        )
    if row is not None and row.shape != (config.hidden_size,):
        raise UserError(
            f"the adapter's mask embedding {tuple(row.shape)} does not fit "
            f"the model's width of {config.hidden_size}"
        )


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_pairs(folder: Path, shapes: Mapping[str, tuple[int, ...]], rank: int) -> None:
    """Check names, ranks and pairs of tensors. Raises UserError for the first wrong one."""
    for name, shape in sorted(shapes.items()):
        if name == MASK and len(shape) == 1:
            continue
        found = _NAME.fullmatch(name)
        if found is None or len(shape) != 2:
            raise UserError(f"{folder}: {name} {shape} belongs to no adapter")
        a = found[3] == "a"
        if shape[0 if a else 1] != rank:
            raise UserError(f"{folder}: {name} {shape} is not of rank {rank}")
        other = name[:-1] + ("b" if a else "a")
        if other not in shapes:
            raise UserError(f"{folder}: the tensor {other} is missing")
