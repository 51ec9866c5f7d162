"""Checkpoints in int8 whose dequantised values are exact bf16 numbers: half the size of bf16.

A matrix is stored in groups of 64 columns, each with a power-of-two scale. An int8 integer times a
power of two has at most 8 significant bits, as many as bf16 holds. So expanding a file always gives
the same bf16 checkpoint, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

GROUP = 64
_CODES, _EXPONENTS = ".int8", ".exponent"


def compress(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices [n, m] as int8 codes [n, m] and exponents [n, ⌈m/64⌉]; other floats as bf16."""
    packed: dict[str, Tensor] = {}
    for name, weight in state.items():
        if weight.ndim != 2 or not weight.is_floating_point():
            packed[name] = weight.to(torch.bfloat16) if weight.is_floating_point() else weight
            continue
        groups = _grouped(weight.float())
        peak = groups.abs().amax(-1, keepdim=True).clamp_min(2.0**-100)
        # The smallest scale 2^e with peak / 2^e ≤ 127.
        exponent = torch.ceil(torch.log2(peak / 127.0))
        codes = torch.round(groups / torch.exp2(exponent)).clamp(-127, 127)
        packed[name + _CODES] = codes.flatten(1)[:, : weight.shape[1]].to(torch.int8)
        packed[name + _EXPONENTS] = exponent.squeeze(-1).to(torch.int8)
    return {name: tensor.contiguous() for name, tensor in packed.items()}


def expand(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The bf16 checkpoint of an int8 one; any other comes back as it is."""
    plain: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name.endswith(_CODES):
            base = name.removesuffix(_CODES)
            scale = torch.exp2(state[base + _EXPONENTS].float())[..., None]
            whole = (_grouped(tensor.float()) * scale).flatten(1)
            plain[base] = whole[:, : tensor.shape[1]].to(torch.bfloat16)
        elif not name.endswith(_EXPONENTS):
            plain[name] = tensor
    return plain


def expanded_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of ``expand``'s result."""
    whole = {n.removesuffix(_CODES): s for n, s in shapes.items() if not n.endswith(_EXPONENTS)}
    return dict(sorted(whole.items()))


def _grouped(matrix: Tensor) -> Tensor:
    """[n, m] → [n, ⌈m/64⌉, 64], padded with zeros."""
    padding = -matrix.shape[1] % GROUP
    return torch.nn.functional.pad(matrix, (0, padding)).unflatten(1, (-1, GROUP))
