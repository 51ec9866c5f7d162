"""The kinds of a target's layers, by what a layer keeps of the text before a token.

Read from the config alone, so a target can be refused before its weights are fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
BOTH = "hybrid"  # attention and a state, side by side
ATTENDING = frozenset({FULL, SLIDING, CHUNKED, BOTH})  # keep the keys of every token
CARRYING = frozenset({"linear_attention", "conv", BOTH})  # keep one state, whatever the length
STATELESS = frozenset({"mlp", "moe"})  # keep nothing


def layer_kinds(config: PreTrainedConfig) -> tuple[str, ...]:
    """The kind of each layer, as transformers names it."""
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None)
    usual = SLIDING if getattr(text, "sliding_window", None) else FULL
    return tuple(kinds) if kinds else (usual,) * text.num_hidden_layers


def carries_state(config: PreTrainedConfig) -> bool:
    """Whether some layer carries a state along the text, as linear attention does."""
    return not CARRYING.isdisjoint(layer_kinds(config))


def check_branches(name: str, config: PreTrainedConfig) -> None:
    """Check that a drafted tree can branch off every layer of the target ``name``.

    Raises UserError that names a kind of layer for which this is not known.
    """
    if unknown := set(layer_kinds(config)) - ATTENDING - CARRYING - STATELESS:
        raise UserError(
            f"the target {name!r} has layers of the kind {min(unknown)!r}, and how a drafted tree "
            "branches off these is not known here"
        )
