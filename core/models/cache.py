"""The key/value cache every target forward runs on, and the attention function that reads it.

``StaticKV`` allocates once. Rows ``[0, length)`` are committed context; a forward writes its own
rows right behind them (scratch) and ``commit`` keeps some of these by copying them down in place:
that is all KV compaction is. All layers lie in one tensor, so that it is one copy and not two for
each layer, whose launches would cost a GPU more than the rest of a round's bookkeeping. Hugging
Face models accept the cache as ``past_key_values``.

``grouped_attention`` reads the keys that several query heads share without repeating them (with a
mask, Hugging Face's SDPA path copies them for every head).

Shapes: B batch, H query heads, G key/value heads, T new tokens, S cache rows, D head width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import eager_mask

from core.errors import UserError

ATTENTION = "draftscope_grouped"


class Rows:
    """What the layers of a cache share: their memory, and how much of it is committed.

    Its tensors are [n, B, G, S, D], allocated when the first rows come: one for the keys and values
    of all layers, or, where these are ``apart`` on several devices, one for each. It knows no
    layer, so that a cache nobody holds is freed at once.
    """

    def __init__(self, layers: int, capacity: int, apart: bool):
        self.capacity = capacity
        self.length = 0  # committed rows
        self.slots: torch.Tensor | None = None  # rows to write, see ``StaticKV.fixed``
        self._layers, self._apart = layers, apart
        self._tensors: list[torch.Tensor] = []
        self._places: dict[int, list[tuple[int, int]]] = {}  # by layer: tensor and index in it

    def room(self, layer: int, *states: torch.Tensor) -> None:
        """Make room for a layer's keys and values, which look like ``states`` [B, G, T, D]."""
        if not self._tensors and not self._apart and states[0].shape == states[1].shape:
            self._allocate(states[0], len(states) * self._layers)
        self._places[layer] = [
            self._place(like, len(states) * layer + side) for side, like in enumerate(states)
        ]

    def of(self, layer: int) -> list[torch.Tensor]:
        """The layer's keys and values [B, G, S, D], once there is room for them."""
        return [self._tensors[tensor][index] for tensor, index in self._places.get(layer, ())]

    def _place(self, like: torch.Tensor, number: int) -> tuple[int, int]:
        """In the tensor of all, if it has such a place, else in one that is made for it alone."""
        if self._tensors:
            common = self._tensors[0]
            kinds = [(x.dtype, x.device, *x.shape[-4:-2], x.shape[-1]) for x in (common, like)]
            if number < len(common) and kinds[0] == kinds[1]:
                return 0, number
        self._allocate(like, 1)
        return len(self._tensors) - 1, 0

    def _allocate(self, like: torch.Tensor, count: int) -> None:
        batch, heads, _, width = like.shape
        # Rows behind `length` are masked, but 0 · NaN is NaN: never leave them uninitialised.
        self._tensors.append(like.new_zeros(count, batch, heads, self.capacity, width))

    def keep(self, rows: torch.Tensor) -> None:
        """Commit the scratch rows at these indices, counted from the first scratch row."""
        end = self.length + rows.numel()
        for held in self._tensors:
            source = rows.to(held.device) + self.length  # a split model's layers are apart
            # index_select copies first, so overlapping source and target are safe.
            held[..., self.length : end, :] = held.index_select(-2, source)
        self.length = end

    def repeat(self, copies: int) -> None:
        """[n, B, …] → [n, B·copies, …], each row of the batch ``copies`` times in a row."""
        self._tensors = [held.repeat_interleave(copies, 1) for held in self._tensors]


class StaticLayer(CacheLayerMixin):
    """One layer's keys and values, [B, G, S, D] each: its part of the cache's rows."""

    is_sliding = False

    def __init__(self, rows: Rows, number: int):
        super().__init__()
        self._rows, self._number = rows, number

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self._rows.room(self._number, key_states, value_states)
        self.look()

    def look(self) -> None:
        """Find the rows where they lie now, if there are any."""
        if found := self._rows.of(self._number):
            self.keys, self.values = found
            self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        if (slots := self._rows.slots) is not None:
            self.keys.index_copy_(2, slots, key_states)
            self.values.index_copy_(2, slots, value_states)
            return self.keys, self.values
        start, capacity = self._rows.length, self._rows.capacity
        end = start + key_states.shape[-2]
        if end > capacity:
            raise IndexError(f"KV cache of {capacity} rows cannot hold row {end - 1}")
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._rows.length + query_length, 0

    def get_seq_length(self) -> int:
        return self._rows.length

    def get_max_length(self) -> int:
        return self._rows.capacity

    def reset(self) -> None:
        self._rows.length = 0


class StaticKV(Cache):
    """A preallocated cache for ``layers`` layers of ``capacity`` rows each; ``apart``: the layers
    lie on several devices."""

    def __init__(self, layers: int, capacity: int, apart: bool = False):
        self._rows = Rows(layers, capacity, apart)
        self._static = [StaticLayer(self._rows, number) for number in range(layers)]
        super().__init__(layers=list(self._static))

    @property
    def capacity(self) -> int:
        return self._rows.capacity

    @property
    def length(self) -> int:
        """Committed rows."""
        return self._rows.length

    def commit(self, rows: torch.Tensor | int) -> None:
        """Keep scratch rows: the first ``rows`` of them, or those at the given scratch indices."""
        if isinstance(rows, int):
            self._rows.length += rows
        else:
            self._rows.keep(rows)

    @contextmanager
    def fixed(self, slots: torch.Tensor) -> Iterator[None]:
        """Forwards in here write rows ``slots`` [T] and read the whole cache: no shape depends on
        the text, as a captured graph needs. Their mask says which rows there are."""
        self._rows.slots = slots
        try:
            yield
        finally:
            self._rows.slots = None

    def repeat(self, copies: int) -> None:
        """Let every row of the batch continue in ``copies`` ways."""
        self._rows.repeat(copies)
        for layer in self._static:
            layer.look()

    def truncate(self, length: int) -> None:
        """Forget committed rows behind ``length``."""
        self._rows.length = length

    def reset(self) -> None:
        self.truncate(0)


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Attention with an additive mask: query [B, H, T, D], key/value [B, G, S, D] → [B, T, H, D].

    ``attention_mask`` is [B or 1, 1, T, S], added to the scores; None attends to everything.
    Raises UserError for attention with sinks, which this function does not compute.
    """
    if kwargs.get("s_aux") is not None:
        raise UserError("models whose attention has sinks are not supported")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    softcap = kwargs.get("softcap")
    if not softcap and query.device.type == "cpu":
        # Its blocks never leave the CPU's caches; the scores below are H·T·S numbers in memory.
        # (On CUDA no fused kernel takes both a mask and grouped heads.)
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=scale, enable_gqa=True
        )
    else:
        out = folded(query, key, value, attention_mask, scale, softcap)
    return out.transpose(1, 2).contiguous(), None


def folded(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None,
) -> torch.Tensor:
    """What ``grouped_attention`` computes, [B, H, T, D], with the query heads of a group as further
    rows of one matrix product."""
    batch, heads, new, width = query.shape
    groups = key.shape[1]
    rows = (query * scale).reshape(batch, groups, heads // groups * new, width)
    scores = rows @ key.transpose(2, 3)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        by_head = scores.view(batch, groups, heads // groups, new, key.shape[2])
        by_head += mask[:, :, None]
    weights = torch.softmax(scores, -1)  # summed in float32 where that is wider
    return (weights @ value).view(batch, heads, new, value.shape[-1])


AttentionInterface.register(ATTENTION, grouped_attention)
# Without this, a forward that brings no 4-D mask would silently not be causal.
AttentionMaskInterface.register(ATTENTION, eager_mask)


def mask_value(dtype: torch.dtype) -> float:
    """The additive mask's 'not allowed': the most negative finite number, as Hugging Face uses."""
    return torch.finfo(dtype).min


def make_kv(model: PreTrainedModel, capacity: int) -> StaticKV:
    """An empty cache for a model's texts of at most ``capacity`` tokens."""
    layers = model.config.get_text_config().num_hidden_layers
    return StaticKV(layers, capacity, apart=bool(placed(model)))


def placed(model: PreTrainedModel) -> dict[str, int | str]:
    """Where each part is, of a model that is spread over several devices; else nothing."""
    return getattr(model, "hf_device_map", None) or {}
