"""Layers as the device at hand computes them fastest: a CPU's linears, a GPU's norms.

A draft of 16 nodes is a matrix product of 17 rows: too few to repay the repacking of the weights
that a plain ``nn.Linear`` does on every call. oneDNN can keep them packed. Measured on two Zen 3
cores, SmolLM2-135M's layers and head, 1 / 17 / 65 rows: 43 / 104 / 202 ms plain, 26 / 49 / 136 ms
packed (float32 both; ``python -m tests.bench.packed``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from core.models.layers import RMSNorm

ROWS = 64  # rows the layout is chosen for; no other number is better for all drafts


class PackedLinear(nn.Module):
    """An inference-only ``nn.Linear`` whose weight oneDNN has packed. [..., in] → [..., out]

    ``rows``: how many the layout is chosen for; any number may come.
    """

    def __init__(self, linear: nn.Linear, rows: int = ROWS):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        self.nbytes = sum(p.nbytes for p in linear.parameters())  # an opaque tensor does not say
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


# Hugging Face's norms that are weight · x / rms(x); others (Gemma's 1 + weight) stay as they are.
PLAIN_NORMS = frozenset(
    f"{family}RMSNorm"
    for family in ("Llama", "Mistral", "Phi3", "Qwen2", "Qwen3", "Qwen3Moe", "SmolLM3")
)


def suit(module: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """Replace the layers below ``module``, which lie on ``device``, by those it computes fastest.

    A CPU's linears are packed. A GPU's norms become one kernel each: Hugging Face's are eight,
    and half of what a small forward of Qwen3 launches.
    """
    if can_pack(dtype, device):
        _replace(module, _packed)
    elif device.type == "cuda":
        _replace(module, fused)


def _packed(layer: nn.Module) -> nn.Module | None:
    return PackedLinear(layer) if type(layer) is nn.Linear else None


def fused(layer: Any) -> nn.Module | None:
    """The same norm in one kernel, rounding once; None for what is no plain norm."""
    if type(layer).__name__ not in PLAIN_NORMS:
        return None
    weight, eps = layer.get_parameter("weight"), float(layer.variance_epsilon)
    made = RMSNorm(len(weight), eps)
    made.weight = nn.Parameter(weight.detach(), requires_grad=False)
    return made.train(layer.training)


def _replace(module: nn.Module, other: Callable[[nn.Module], nn.Module | None]) -> None:
    """Every layer below ``module`` that has another; the originals are let go."""
    for name, child in list(module.named_children()):
        if (found := other(child)) is not None:
            setattr(module, name, found)
        else:
            _replace(child, other)
