"""The keys and values of the target that the assistant reads.

They are computed once more from what enters the target's layers, which are features like others: so
a drafter needs nothing of the target's cache, and reads a text that is there already, too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core.errors import UserError
from core.methods.gemma4_assistant.model import KeysAndValues
from core.models.target import device_map

TARGET = "gemma4_text"


class TargetKeys:
    """The last layer of each kind of attention that keeps keys of its own, of a Gemma 4 target.

    layers  what is read of the target: what enters those layers, and the last hidden state
    """

    def __init__(self, model: Any, name: str, own: Any):
        """``own``: transformers' config of the assistant's layers. Raises UserError for another
        target, or one whose keys do not fit them."""
        config = model.config.get_text_config()
        if config.model_type != TARGET:
            raise UserError(
                f"the assistant reads keys of a Gemma 4 target, and {name!r} is {config.model_type}"
            )
        if device_map(model):
            raise UserError("the assistant cannot read a target that lies on several devices")
        count = config.num_hidden_layers - (config.num_kv_shared_layers or 0)
        self._at = {kind: i for i, kind in enumerate(config.layer_types[:count])}
        _check(self._at, config, own, name)
        self._at = {kind: i for kind, i in self._at.items() if kind in own.layer_types}
        self._decoder, self._last = model.get_decoder(), config.num_hidden_layers - 1
        self.layers = tuple(sorted({*(i - 1 for i in self._at.values()), self._last}))

    def hidden(self, features: Tensor) -> Tensor:
        """The last hidden states [T, H] in features [T, F·H]."""
        return self._part(features, self._last)

    def project(self, features: Tensor, positions: Tensor) -> KeysAndValues:
        """Keys and values of T tokens at their positions [T]."""
        from transformers.models.gemma4.modeling_gemma4 import apply_rotary_pos_emb

        found = {}
        for kind, i in self._at.items():
            layer = self._decoder.layers[i]
            attention = layer.self_attn
            x = layer.input_layernorm(self._part(features, i - 1)[None])
            shape = (*x.shape[:2], -1, attention.head_dim)
            keys = attention.k_proj(x).view(shape)
            own = attention.v_proj  # None: values are the keys, before their norm
            values = keys if own is None else own(x).view(shape)
            cos, sin = self._decoder.rotary_emb(x, positions[None], kind)
            keys = apply_rotary_pos_emb(attention.k_norm(keys), cos, sin, unsqueeze_dim=2)
            found[kind] = keys.transpose(1, 2), attention.v_norm(values).transpose(1, 2)
        return found

    def _part(self, features: Tensor, layer: int) -> Tensor:
        width = features.shape[-1] // len(self.layers)
        at = self.layers.index(layer) * width
        return features[:, at : at + width]


def joined(before: KeysAndValues, fresh: KeysAndValues) -> KeysAndValues:
    """The keys and values of a text and of those after it."""
    if not before:
        return fresh
    return {
        kind: tuple(torch.cat(pair, 2) for pair in zip(before[kind], both, strict=True))
        for kind, both in fresh.items()
    }  # type: ignore[return-value]


def _check(at: dict[str, int], config: Any, own: Any, name: str) -> None:
    for n, kind in enumerate(own.layer_types):
        if kind not in at:
            raise UserError(f"the assistant reads keys of {kind}, which {name!r} does not keep")
        mine, theirs = own.per_layer_config[n], config.per_layer_config[at[kind]]
        sizes = [(each.num_key_value_heads, each.head_dim) for each in (mine, theirs)]
        if sizes[0] != sizes[1]:
            raise UserError(
                f"the assistant reads {sizes[0][0]} keys of width {sizes[0][1]} ({kind}), "
                f"but {name!r} has {sizes[1][0]} of width {sizes[1][1]}"
            )
