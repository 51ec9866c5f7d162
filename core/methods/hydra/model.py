"""The Hydra heads (arXiv 2402.05109). Head i, from 0, reads the target's last hidden state and the
embeddings of the root and of i tokens after it.

Parameter names are those of the published heads. These also have ``res_connection``, a matrix on
the whole input, and a linear head of their own; ours add the hidden state itself, and share the
target's head. Sizes are read off the tensors' shapes.

Shapes: N rows, L heads, h hidden width, V vocabulary.
"""

from __future__ import annotations

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
class HydraConfig(OnLastHidden):
    """heads  L, one for each depth

    res_connection  a matrix on the input stands where the hidden state is added
    vocab_size      0: the heads end in the target's own head
    """

    heads: int
    hidden_size: int
    res_connection: bool = False
    vocab_size: int = 0

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> HydraConfig:
        """What a config says before the weights are fetched; published ones say little.

        Raises UserError for heads of another kind: Hydra++ has a layer before its heads.
        """
        kind, layers = raw.get("hydra_head_arch", "mlp"), raw.get("hydra_num_layers", 1)
        if (kind, layers) != ("mlp", 1):
            what = f"Hydra heads of the kind {kind!r} and {layers!r} layers"
            raise UserError(f"{what} are not supported: only 'mlp' of 1 layer is")
        hidden, size = (raw.get(name, 0) for name in ("hidden_size", "vocab_size"))
        return HydraConfig(raw.get("hydra_num_heads", 0), hidden, vocab_size=size)

    @staticmethod
    def from_shapes(shapes: Mapping[str, tuple[int, ...]]) -> HydraConfig:
        """Of a file's tensors. Raises UserError when they are no Hydra heads of one layer."""
        first = shapes.get("0.0.linear.weight")
        if first is None or len(first) != 2 or first[1] != 2 * first[0]:
            raise UserError("it has no tensor 0.0.linear.weight that is twice as wide as high")
        own = shapes.get("0.1.weight", (0,))
        return HydraConfig(
            count_heads(shapes), first[0], "0.0.res_connection.weight" in shapes, own[0]
        )

    def to_json(self) -> dict[str, Any]:
        """The published names of the first fields, and the sizes."""
        plain = asdict(self)
        return {"model_type": "hydra", "hydra_num_heads": plain.pop("heads"), **plain}


class HydraBlock(nn.Module):
    """h + SiLU(Wx + b) or Rx + SiLU(Wx + b), of x = (h, embeddings); W and b zero at the start."""

    def __init__(self, width: int, tokens: int, res_connection: bool):
        super().__init__()
        inputs = (tokens + 1) * width
        self.linear = nn.Linear(inputs, width)
        for parameter in self.linear.parameters():
            nn.init.zeros_(parameter)
        self.res_connection = nn.Linear(inputs, width) if res_connection else None

    def forward(self, hidden: Tensor, path: Tensor) -> Tensor:
        """The hidden states [N, h] and a path's embeddings [N, i + 1, h] → [N, h]."""
        x = torch.cat([hidden, path.flatten(1)], -1)
        kept = hidden if self.res_connection is None else self.res_connection(x)
        return kept + F.silu(self.linear(x))


class HydraModel(nn.ModuleList):
    """The heads, each a block and, where it has one, its own linear head."""

    def __init__(self, config: HydraConfig):
        width, size = config.hidden_size, config.vocab_size
        super().__init__(
            nn.ModuleList(
                [
                    HydraBlock(width, tokens, config.res_connection),
                    *([nn.Linear(width, size, bias=False)] if size else []),
                ]
            )
            for tokens in range(1, config.heads + 1)
        )
        self.config = config

    def forward(self, hidden: Tensor, path: Tensor) -> Tensor:
        """The hidden states [N, h] and the embeddings of the root and i tokens [N, i + 1, h] → rows
        [N, h] for the target's head at depth i + 1, or the head's own logits [N, V]."""
        block, *own = self[path.shape[1] - 1]  # type: ignore[misc]
        rows = block(hidden, path)
        return own[0](rows) if own else rows


FORM = checkpoint.Form("Hydra", HydraConfig.from_json, HydraModel, sizes=HydraConfig.from_shapes)


def export(folder: Path, out: Path, load_target: Callable[[], Language]) -> nn.Module:
    """Write a checkpoint of ours in bf16."""
    model = FORM.load_model(folder, torch.bfloat16, "cpu")
    FORM.save_model(model, out)
    return model
