"""Readers of the fields in which a published config describes its layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import UserError
from core.models.layer_kinds import FULL, SLIDING
from core.models.layers import Rope


def layer_fields(raw: Mapping[str, Any], positions: int) -> dict[str, Any]:
    """The fields of a published config that every drafter's layers have, for its config class.

    positions  ``max_position_embeddings`` where the config does not say

    Raises KeyError for a needed field that is missing, and UserError for rotary positions that
    cannot be or are not supported.
    """
    heads, hidden = raw["num_attention_heads"], raw["hidden_size"]
    width, rope = raw.get("head_dim") or hidden // heads, Rope.of(raw)
    rope.check(width)
    return {
        "hidden_size": hidden,
        "intermediate_size": raw["intermediate_size"],
        "num_attention_heads": heads,
        "num_key_value_heads": raw.get("num_key_value_heads") or heads,
        "head_dim": width,
        "vocab_size": raw["vocab_size"],
        "rms_norm_eps": raw.get("rms_norm_eps", 1e-6),
        "rope": rope,
        "max_position_embeddings": raw.get("max_position_embeddings", positions),
    }


def sliding_layers(raw: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    """Which of a config's layers see a sliding window. Raises UserError for layers of other kinds
    than these and full attention."""
    first = raw.get("max_window_layers", 28) if raw.get("use_sliding_window") else layers
    kinds = raw.get("layer_types") or [(FULL, SLIDING)[i >= first] for i in range(layers)]
    if len(kinds) != layers or set(kinds) - {FULL, SLIDING}:
        raise UserError("a drafter with layers of other kinds is not supported")
    return tuple(kind == SLIDING for kind in kinds)


def window_of(raw: Mapping[str, Any], *names: str) -> int:
    """The tokens that a sliding layer's row sees, itself included, by the first of the fields that
    is there. Raises UserError where none is."""
    window = next((raw[name] for name in names if raw.get(name)), None)
    if type(window) is not int or window < 1:
        raise UserError("the config has sliding layers, but no window")
    return window
