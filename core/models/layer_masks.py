"""The attention mask of each kind of layer, from that of full attention.

A row of a text or of a tree sees a path: the context, its ancestors and itself, in the order of the
cache's rows. So the n-th of the rows that it sees has the n-th position, wherever it lies, and a
layer with a window sees the last of these. A row of a block may see rows after it, too.

Shapes: N rows, S cache rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from core.models.cache import mask_value
from core.models.layer_kinds import ATTENDING, CHUNKED, SLIDING, layer_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# Whether a row sees another: by their positions, and the size that the config gives.
Sees = Callable[[Tensor, Tensor, int], Tensor]
NARROW: dict[str, tuple[str, Sees]] = {
    SLIDING: ("sliding_window", lambda row, seen, size: seen > row - size),
    CHUNKED: ("attention_chunk_size", lambda row, seen, size: seen // size == row // size),
}


def layer_masks(
    config: PreTrainedConfig, mask: Tensor, after: Tensor | None = None
) -> Tensor | dict[str, Tensor | None]:
    """Additive masks [B, 1, N, S] as transformers' models take them: one if all layers are of one
    kind, else one by kind (None for layers that carry a state).

    mask   of full attention: 0 where a row sees another
    after  how many rows after it each sees, [N]; None: none does
    """
    kinds = dict.fromkeys(layer_kinds(config))
    if not NARROW.keys() & kinds:
        return mask
    text = config.get_text_config()
    masks = {
        kind: _narrowed(text, mask, kind, after) if kind in ATTENDING else None for kind in kinds
    }
    (only, *more) = masks.values()
    return masks if more or only is None else only


def _narrowed(text: PreTrainedConfig, mask: Tensor, kind: str, after: Tensor | None) -> Tensor:
    if kind not in NARROW:
        return mask
    field, sees = NARROW[kind]
    if (size := getattr(text, field)) >= mask.shape[-1]:
        return mask
    position = (mask == 0).cumsum(-1) - 1
    own = position[..., -1:] if after is None else position[..., -1:] - after[:, None]
    return mask.masked_fill(~sees(own, position, size), mask_value(mask.dtype))
