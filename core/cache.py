"""The key/value cache every target forward runs on, and the attention function that reads it.

``StaticKV`` allocates once. Rows ``[0, length)`` are committed context; a forward writes its own
rows right behind them (scratch) and ``commit`` keeps some of these by copying them down in place:
that is all KV compaction is. Hugging Face models accept it as ``past_key_values``.

``grouped_attention`` reads the keys that several query heads share without repeating them (with a
mask, Hugging Face's SDPA path copies them for every head).

Shapes: B batch, H query heads, G key/value heads, T new tokens, S cache rows, D head width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import eager_mask

from core.errors import UserError

ATTENTION = "draftscope_grouped"


class StaticLayer(CacheLayerMixin):
    """One layer's keys and values, [B, G, S, D] each; allocated at the first ``update``."""

    is_sliding = False

    def __init__(self, capacity: int):
        super().__init__()
        self.capacity = capacity
        self.length = 0  # committed rows
        self.slots: torch.Tensor | None = None  # rows to write, see ``StaticKV.fixed``

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        batch, heads, _, width = key_states.shape
        # Rows behind `length` are masked, but 0 · NaN is NaN: never leave them uninitialised.
        self.keys = key_states.new_zeros(batch, heads, self.capacity, width)
        self.values = value_states.new_zeros(batch, heads, self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        if self.slots is not None:
            self.keys.index_copy_(2, self.slots, key_states)
            self.values.index_copy_(2, self.slots, value_states)
            return self.keys, self.values
        end = self.length + key_states.shape[-2]
        if end > self.capacity:
            raise IndexError(f"KV cache of {self.capacity} rows cannot hold row {end - 1}")
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def commit(self, rows: torch.Tensor | int) -> None:
        """Keep scratch rows: the first ``rows`` of them, or those at the given scratch indices."""
        if isinstance(rows, int):
            self.length += rows
            return
        assert self.keys is not None and self.values is not None
        end = self.length + rows.numel()
        source = rows.to(self.keys.device) + self.length  # a split model's layers are apart
        # Indexing on the right copies first, so overlapping source and target are safe.
        self.keys[:, :, self.length : end] = self.keys[:, :, source]
        self.values[:, :, self.length : end] = self.values[:, :, source]
        self.length = end

    def repeat(self, copies: int) -> None:
        """[B, …] → [B·copies, …], each row ``copies`` times in a row."""
        assert self.keys is not None and self.values is not None
        self.keys = self.keys.repeat_interleave(copies, 0)
        self.values = self.values.repeat_interleave(copies, 0)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity

    def reset(self) -> None:
        self.length = 0


class StaticKV(Cache):
    """A preallocated cache for ``layers`` layers of ``capacity`` rows each."""

    def __init__(self, layers: int, capacity: int):
        self._static = [StaticLayer(capacity) for _ in range(layers)]
        super().__init__(layers=list(self._static))
        self.capacity = capacity

    @property
    def length(self) -> int:
        """Committed rows."""
        return self._static[0].length

    def commit(self, rows: torch.Tensor | int) -> None:
        for layer in self._static:
            layer.commit(rows)

    @contextmanager
    def fixed(self, slots: torch.Tensor) -> Iterator[None]:
        """Forwards in here write rows ``slots`` [T] and read the whole cache: no shape depends on
        the text, as a captured graph needs. Their mask says which rows there are."""
        for layer in self._static:
            layer.slots = slots
        try:
            yield
        finally:
            for layer in self._static:
                layer.slots = None

    def repeat(self, copies: int) -> None:
        """Let every row of the batch continue in ``copies`` ways."""
        for layer in self._static:
            layer.repeat(copies)

    def truncate(self, length: int) -> None:
        """Forget committed rows behind ``length``."""
        for layer in self._static:
            layer.length = length

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
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    return (weights @ value).view(batch, heads, new, value.shape[-1])


AttentionInterface.register(ATTENTION, grouped_attention)
# Without this, a forward that brings no 4-D mask would silently not be causal.
AttentionMaskInterface.register(ATTENTION, eager_mask)


def mask_value(dtype: torch.dtype) -> float:
    """The additive mask's 'not allowed': the most negative finite number, as Hugging Face uses."""
    return torch.finfo(dtype).min


def kv_layers(config: PreTrainedConfig) -> int:
    return config.get_text_config().num_hidden_layers
