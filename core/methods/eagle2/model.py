"""EAGLE-1's network: one layer whose outputs stand in for the target's last hidden states.

A row is ``fc`` over the embedding of the *next* token and a feature; the layer has no norm before
its attention and none at its end, and the head is the target's. Parameter names are those of the
published checkpoints, but for ``midlayer``, which they call ``layers.0``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.methods.eagle3.drafter import loader
from core.methods.eagle3.model import (
    BareLayer,
    EagleConfig,
    EagleModel,
    LayerRows,
    official_name,
    own_embedding,
    told_by_tensors,
)
from core.models import checkpoint
from core.models.layers import Rotary, Shape


@dataclass(frozen=True)
class FeatureConfig(EagleConfig):
    """``bias``: whether ``fc`` has one."""

    bias: bool = True

    @property
    def shape(self) -> Shape:
        return Shape.of(self, self.hidden_size, qk_norm=self.qk_norm, bias=self.attention_bias)

    def feature_layers(self, target_layers: int) -> tuple[int, ...]:
        """The last: its output is the last hidden state, after the final norm."""
        return (target_layers - 1,)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> FeatureConfig:
        """Read a published config. Raises UserError for any other."""
        if raw.get("qkv_bias"):
            raise UserError("an EAGLE drafter with qkv_bias is not supported")
        found = EagleConfig.from_json(raw)
        if (count := found.num_hidden_layers) != 1:
            raise UserError(f"an EAGLE drafter of {count} layers that has no head is not supported")
        return FeatureConfig(**vars(found), bias=bool(raw.get("bias", True)))

    def to_json(self) -> dict[str, Any]:
        raw = super().to_json() | {"architectures": ["LlamaForCausalLM"]}
        del raw["draft_vocab_size"]  # its head is the target's; EAGLE-3's configs have the field
        return raw


class FeatureModel(EagleModel):
    """The network without a head."""

    def __init__(self, config: FeatureConfig):
        nn.Module.__init__(self)  # none of EAGLE-3's norms
        self.config = config
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=config.bias)
        self.midlayer, self.layers = BareLayer(config), nn.ModuleDict()
        self.norm = nn.Identity()
        self.embed_tokens = own_embedding(config)

    def reduce(self, features: Tensor) -> Tensor:
        """The target's last hidden states are features already."""
        return features

    def join(self, hidden: Tensor, next_embeddings: Tensor, positions: Tensor) -> LayerRows:
        """Features [N, h] of tokens with the embeddings [N, h] of the tokens after them."""
        x, config = self.fc(torch.cat([next_embeddings, hidden], -1)), self.config
        return LayerRows(x, x, Rotary.at(positions, config.head_dim, config.rope, x.dtype))


FORM = checkpoint.Form(
    "EAGLE-2",
    FeatureConfig.from_json,
    FeatureModel,
    sizes=told_by_tensors,
    rename=official_name,
)
load = loader("eagle2", FORM)
