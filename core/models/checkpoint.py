"""Checkpoint folders: ``config.json`` and safetensors, single-file or sharded, checked by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from core.errors import UserError, first_line
from core.files import replacing
from core.models.int8 import compress, expand, expanded_shapes

Shapes = Mapping[str, tuple[int, ...]]
T = TypeVar("T")
Model = TypeVar("Model", bound=nn.Module)


def write(
    folder: Path,
    config: dict[str, Any],
    state: dict[str, Tensor],
    small: bool,
    name: str = "model.safetensors",
) -> None:
    """Write config.json and the file ``name``: bf16, the official form, or ``small`` (int8).

    Loading a small file gives bf16 values exactly, so saving it again in the official form
    (``python -m app export-checkpoint``) loses nothing. Whole numbers and flags stay as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: t.detach().to("cpu", torch.bfloat16 if t.is_floating_point() else t.dtype)
        for name, t in state.items()
    }
    weights = compress(weights) if small else weights
    contiguous = {name: t.contiguous() for name, t in weights.items()}
    with replacing(folder / name) as tensors, replacing(folder / "config.json") as described:
        save_file(contiguous, tensors, metadata={"format": "pt"})
        described.write_text(json.dumps(config, indent=2) + "\n")


def read_config(folder: Path, kind: str) -> dict[str, Any]:
    """The folder's config.json. Raises UserError when there is no readable one."""
    try:
        raw = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} holds no {kind} checkpoint: {error}") from None
    if not isinstance(raw, dict):
        raise UserError(f"{folder} holds no {kind} checkpoint: its config is not an object")
    return raw


def load_config(folder: Path, kind: str, parse: Callable[[dict[str, Any]], T]) -> T:
    """What ``parse`` makes of the folder's config. Raises UserError when it can make nothing."""
    raw = read_config(folder, kind)
    with understood(folder, kind):
        return parse(raw)


@contextmanager
def outlined(folder: Path, kind: str) -> Iterator[None]:
    """While a model is made of its config: it takes no memory, and nonsense is a UserError."""
    with understood(folder, kind), torch.device("meta"):
        yield


@contextmanager
def understood(folder: Path, kind: str) -> Iterator[None]:
    """Whatever a config's wrong values raise, while a model is made of them, as a UserError."""
    try:
        yield
    except (AttributeError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as e:
        raise UserError(f"{folder} holds no {kind} checkpoint: {first_line(e)}") from None


def weight_files(folder: Path) -> list[Path]:
    """The folder's safetensors files; raises UserError when there is none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"{folder} holds no .safetensors file")
    return files


def read_state(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the folder's safetensors files, compact ones expanded.

    Raises UserError when there is none or one cannot be read.
    """
    state: dict[str, Tensor] = {}
    for file in weight_files(folder):
        try:
            state |= load_file(file)
        except Exception as error:  # safetensors raises its own untyped errors
            raise UserError(f"{file} cannot be read: {error}") from None
    try:
        return expand(state)
    except (KeyError, RuntimeError) as error:
        raise UserError(f"{folder}: its int8 weights and exponents do not fit: {error}") from None


def fill(outline: Model, state: dict[str, Tensor], folder: Path) -> Model:
    """Give a model made on the meta device its weights.

    Raises UserError for a missing, surplus or misshapen tensor.
    """
    check_shapes(shapes(outline), {name: tuple(p.shape) for name, p in state.items()}, folder)
    outline.load_state_dict(state, assign=True)
    return outline


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model's tensors."""
    return {name: tuple(p.shape) for name, p in model.state_dict().items()}


def check_shapes(expected: Shapes, found: Shapes, folder: Path) -> None:
    """Raises UserError for the first missing, surplus or misshapen tensor."""
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise UserError(
                f"{folder}: tensor {name} has shape {found.get(name, 'missing')}, "
                f"expected {expected.get(name, 'none of this name')}"
            )


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of every tensor, from the files' headers: no weight is read.

    Raises UserError when there is no file or one cannot be read.
    """
    found: dict[str, tuple[int, ...]] = {}
    for file in weight_files(folder):
        try:
            with safe_open(file, "pt") as stored:
                found |= {n: tuple(stored.get_slice(n).get_shape()) for n in stored.keys()}  # noqa: SIM118
        except Exception as error:  # safetensors raises its own untyped errors
            raise UserError(f"{file} cannot be read: {error}") from None
    return expanded_shapes(found)
