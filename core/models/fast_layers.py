"""Layers that compute the same faster on the device at hand: a CPU's linears, a GPU's norms.

A draft of 16 nodes is a matrix product of 17 rows: too few to repay the repacking of the weights
that a plain ``nn.Linear`` does on every call. oneDNN can keep them packed. Measured on two Zen 3
cores, SmolLM2-135M's layers and head, 1 / 17 / 65 rows: 43 / 104 / 202 ms plain, 26 / 49 / 136 ms
packed (float32 both; ``python -m tests.bench.fast_layers``).
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from core.models.layers import RMSNorm

ROWS = 64  # rows the layout is chosen for; no other number is better for all drafts


class PackedLinear(nn.Module):
    """An inference-only ``nn.Linear`` whose weight oneDNN has packed. [..., in] → [..., out]

    ``rows``: the number of rows that the layout is chosen for; any number works.
    """

    def __init__(self, linear: nn.Linear, rows: int = ROWS):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        self.nbytes = sum(p.nbytes for p in linear.parameters())  # an opaque tensor has no nbytes
        # Not a buffer: an opaque tensor can be neither saved nor moved.
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        out = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return out.view(*x.shape[:-1], self.out_features)


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this machine packs weights of this kind: float32 on a CPU with oneDNN."""
    return (
        device.type == "cpu"
        and dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


# Hugging Face norms that compute weight · x / rms(x). Others (Gemma's 1 + weight) are left alone.
PLAIN_NORMS = frozenset(
    f"{family}RMSNorm"
    for family in ("Llama", "Mistral", "Phi3", "Qwen2", "Qwen3", "Qwen3Moe", "SmolLM3")
)


def use_fast_layers(module: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """Replace layers of ``module``, which lies on ``device``, by faster ones; the old are dropped.

    On a CPU linears are packed. On a GPU norms become one kernel each: Hugging Face's are eight,
    and half of what a small forward of Qwen3 launches.
    """
    pack, fuse = can_pack(dtype, device), device.type == "cuda"
    for name, child in list(module.named_children()):
        if pack and type(child) is nn.Linear:
            if f".{name}.weight" in _forward_of(type(module)):
                continue  # it reads the weight itself, as a router does for its type
            setattr(module, name, PackedLinear(child))
        elif fuse and (norm := fused_norm(child)) is not None:
            setattr(module, name, norm)
        elif pack or fuse:
            use_fast_layers(child, dtype, device)


@cache
def _forward_of(kind: type[nn.Module]) -> str:
    """The code of a module's forward; "" where it cannot be had."""
    try:
        return inspect.getsource(kind.forward)
    except (OSError, TypeError):
        return ""


def fused_norm(layer: Any) -> nn.Module | None:
    """The same norm in one kernel, which rounds once; None for a layer that is not a plain norm."""
    if type(layer).__name__ not in PLAIN_NORMS:
        return None
    weight, eps = layer.get_parameter("weight"), float(layer.variance_epsilon)
    made = RMSNorm(len(weight), eps)
    made.weight = nn.Parameter(weight.detach(), requires_grad=False)
    return made.train(layer.training)
