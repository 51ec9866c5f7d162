"""Linear layers with their weights laid out once for this CPU's matrix kernels.

A draft of 16 nodes is a matrix product of 17 rows: too few to repay the repacking of the weights
that a plain ``nn.Linear`` does on every call. oneDNN can keep them packed. Measured on two Zen 3
cores, SmolLM2-135M's layers and head, 1 / 17 / 65 rows: 43 / 104 / 202 ms plain, 26 / 49 / 136 ms
packed (float32 both; ``python -m tests.bench.packed``).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

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


def pack_linears(module: nn.Module) -> None:
    """Replace every ``nn.Linear`` below ``module`` by a packed one; the originals are let go."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child))
        else:
            pack_linears(child)
