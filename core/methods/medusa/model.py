"""The Medusa heads (arXiv 2401.10774). Parameter names are those of the published checkpoints.

Published configs do not say the sizes: these are read off the tensors' shapes.

Shapes: N rows, L heads, h hidden width, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.errors import UserError
from core.methods.heads import OnLastHidden, count_heads
from core.models import checkpoint
from core.models.language import Language


@dataclass(frozen=True)
class MedusaConfig(OnLastHidden):
    """heads  L, one for each depth

    layers      residual blocks of a head
    vocab_size  0: the heads end in the target's own head
    """

    heads: int
    hidden_size: int
    layers: int = 1
    vocab_size: int = 0

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> MedusaConfig:
        """Read a config before the weights are fetched; published ones say little."""
        hidden, size = (raw.get(name, 0) for name in ("hidden_size", "vocab_size"))
        return MedusaConfig(raw.get("medusa_num_heads", 0), hidden, vocab_size=size)

    @staticmethod
    def from_shapes(shapes: Mapping[str, tuple[int, ...]], said: MedusaConfig) -> MedusaConfig:
        """The config of a file's tensors; some published configs say another number of heads.

        Raises UserError when they are no Medusa heads.
        """
        first = shapes.get("0.0.linear.weight")
        if first is None or len(first) != 2:
            raise UserError("it has no tensor 0.0.linear.weight")
        blocks = [n for n in shapes if re.fullmatch(r"0\.\d+\.linear\.weight", n)]
        own = shapes.get(f"0.{len(blocks)}.weight", (0,))
        return MedusaConfig(count_heads(shapes), first[0], len(blocks), own[0])

    def to_json(self) -> dict[str, Any]:
        """The published form, the sizes, and for vLLM that the blocks have biases: it leaves them
        out unless it is told."""
        plain = asdict(self)
        names = {"medusa_num_heads": plain.pop("heads"), "medusa_num_layers": plain.pop("layers")}
        return {"model_type": "medusa", **names, "medusa_fc_bias": True, **plain}


class ResBlock(nn.Module):
    """x + SiLU(Wx + b), W and b zero at the start."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)
        for parameter in self.linear.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(x))


class MedusaModel(nn.ModuleList):
    """The heads, each a sequence of blocks and, where it has one, its own linear head."""

    def __init__(self, config: MedusaConfig):
        width, size = config.hidden_size, config.vocab_size
        super().__init__(
            nn.Sequential(
                *(ResBlock(width) for _ in range(config.layers)),
                *([nn.Linear(width, size, bias=False)] if size else []),
            )
            for _ in range(config.heads)
        )
        self.config = config

    def forward(self, x: Tensor) -> Tensor:
        """The target's last hidden states [N, h] → each head's rows for the target's head
        [N, L, h], or its own logits [N, L, V]."""
        return torch.stack([head(x) for head in self], -2)


FORM = checkpoint.Form(
    "Medusa", MedusaConfig.from_json, MedusaModel, sizes=MedusaConfig.from_shapes
)


def export(folder: Path, out: Path, load_target: Callable[[], Language]) -> nn.Module:
    """Write a checkpoint of ours in the official form: each head with a linear head of its own."""
    model = FORM.load_model(folder, torch.bfloat16, "cpu")
    if not model.config.vocab_size:
        weight = load_target().head.state_dict()["weight"].to("cpu", torch.bfloat16)
        size, width = weight.shape
        whole = MedusaModel(MedusaConfig(model.config.heads, width, model.config.layers, size)).to(
            torch.bfloat16
        )
        last = {f"{i}.{model.config.layers}.weight": weight for i in range(model.config.heads)}
        whole.load_state_dict(dict(model.state_dict()) | last)
        model = whole
    FORM.save_model(model, out)
    return model
