"""Weights in FP8 beside their scales, as DeepSeek, Qwen, Xiaomi and GLM publish them.

A stored number times its scale is the weight: in float32, as transformers and compressed-tensors
compute it. There is a scale for each block of a matrix (``weight_scale_inv``, which is the factor
itself and no inverse, or ``weight_scale``), for each of its rows, or one for all. Scales of
activations change what an engine computes, and no weight; they are left out.

Shapes: n × m of a matrix, E of a stack of them, b × c of a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.errors import UserError
from core.json_input import read_json

BLOCK = (128, 128)  # where a config does not say
KINDS = ("F8_E4M3", "F8_E5M2")  # how the names of types of weights begin, in a file's header
OF_WEIGHTS, OF_ACTIVATIONS = ("_scale_inv", "_scale"), ("input_scale", "activation_scale")
MANY = 1 << 20  # the largest side of a block that a config may name
Shape = tuple[int, ...]


def scales_of(kinds: Mapping[str, str], folder: Path) -> dict[str, str | None]:
    """The scale of every weight in FP8 among a folder's tensors; None: it lacks one. Where none has
    one and the config knows of no quantisation, the numbers are the weights: {}.

    kinds  of tensors, by their names: types as a file's header says them
    """
    found = dict[str, str | None]()
    for name, kind in kinds.items():
        if kind.startswith(KINDS) and not name.endswith(OF_WEIGHTS):
            own = (name + end for end in OF_WEIGHTS)
            found[name] = next((each for each in own if each in kinds), None)
    return found if any(found.values()) or _quantisation(folder) else {}


def beside(scales: Mapping[str, str | None]) -> set[str]:
    """Names that tensors may have which belong to weights in FP8 and are none."""
    modules = (name.removesuffix("weight") for name in scales if name.endswith(".weight"))
    activations = {module + end for module in modules for end in OF_ACTIVATIONS}
    return activations | {name for name in scales.values() if name is not None}


def block_of(folder: Path) -> tuple[int, int]:
    """The sides of a block, as the config in a folder says them. Raises UserError."""
    told = _quantisation(folder)
    groups = _part(told, "config_groups").values()  # of compressed-tensors
    sides = (_part(group, "weights").get("block_structure") for group in groups)
    block = next(filter(None, (told.get("weight_block_size"), *sides)), BLOCK)
    if not (
        isinstance(block, list | tuple)
        and len(block) == 2
        and all(type(side) is int and 1 <= side <= MANY for side in block)
    ):
        raise UserError(f"{folder}: weights in blocks of {str(block)[:40]} are impossible")
    return block[0], block[1]


def _quantisation(folder: Path) -> dict[str, Any]:
    """Read what the config in a folder says of it; {}: nothing, or there is no config."""
    try:
        return _part(read_json(folder / "config.json"), "quantization_config")
    except UserError:
        return {}


def _part(raw: Any, name: str) -> dict[str, Any]:
    """An object in a config; empty where there is none."""
    found = raw.get(name) if isinstance(raw, dict) else None
    return found if isinstance(found, dict) else {}


def check(
    scales: Mapping[str, str | None],
    shapes: Mapping[str, Shape],
    block: tuple[int, int],
    folder: Path,
) -> None:
    """Raises UserError for a weight in FP8 without a scale, or with one that does not fit it."""
    for name, scale in scales.items():
        where = f"{folder}: tensor {name[:120]} is in FP8, and its scale"
        if scale is None:
            raise UserError(f"{where} is missing")
        if len(shapes[name]) < 2 or _grid(shapes[name], shapes[scale], block) is None:
            raise UserError(
                f"{where} of shape {shapes[scale]} does not fit its shape {shapes[name]} in blocks "
                f"of {block[0]} × {block[1]}, by rows or as a whole"
            )


def _grid(shape: Shape, scale: Shape, block: tuple[int, int]) -> Shape | None:
    """The shape [E, …, 1 or n or ⌈n/b⌉, 1 or ⌈m/c⌉] in which a scale lies over its matrices; None:
    it does not."""
    *stack, rows, columns = shape
    grid = (*stack, -(-rows // block[0]), -(-columns // block[1]))
    by_rows = (*stack, rows, 1)
    whole = (*stack, 1, 1)
    if scale == grid:
        return grid
    if scale in (by_rows, by_rows[:-1]):
        return by_rows
    if scale in (whole, whole[:-1], whole[:-2], (), (1,)):
        return whole if scale else (1,) * len(shape)
    return None


def weights(quantised: Tensor, scale: Tensor, block: tuple[int, int]) -> Tensor:
    """The float32 weights [E, …, n, m] of numbers in FP8 and their scale, which fits
    (``check``)."""
    found, factors = quantised.float(), scale.float()
    if scale.dtype == torch.uint8:  # the exponents of powers of two, as E8M0 has them
        factors = (factors - 127).exp2()
    grid = _grid(tuple(quantised.shape), tuple(scale.shape), block)
    assert grid is not None, "check comes first"
    if factors.numel() == 1:
        return found.mul_(factors.reshape(()))
    factors = factors.reshape(grid)
    rows, columns = found.shape[-2:]
    if grid[-1] > 1:
        factors = factors.repeat_interleave(block[1], -1)[..., :columns]
    if grid[-2] in (1, rows):
        return found.mul_(factors)
    for at in range(grid[-2]):  # a factor of every number would take as much memory again
        some = found[..., at * block[0] : (at + 1) * block[0], :]
        some.mul_(factors[..., at : at + 1, :])
    return found
