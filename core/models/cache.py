"""The key/value cache of every target forward, and the attention function that reads it.

``StaticKV`` allocates once. Rows ``[0, length)`` are committed context. A forward writes its own
rows right after them (scratch), and ``commit`` keeps some of these by copying them down in place.
Written by hand, because Hugging Face's caches cannot drop rows in the middle. All layers share one
tensor where they can: a commit is then one copy, not two per layer, whose launches would cost a GPU
more than the rest of a round's bookkeeping. ``hugging_face.HuggingFaceKV`` is the same cache as
Hugging Face's models accept it; this module needs torch alone.

``grouped_attention`` reads the keys that several query heads share without repeating them. (With a
mask, Hugging Face's SDPA path copies them for every head.)

Shapes: B batch, H query heads, G key/value heads, T new tokens, S cache rows, D head width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from inspect import signature

import numpy as np
import torch
import torch.nn.functional as F

CACHES = ("cache", "cache_params", "past_key_values")  # transformers has the first since 5.24


@lru_cache  # by class: reading a signature takes some 50 µs
def cache_argument(reader: type[torch.nn.Module]) -> str:
    """The argument of a model's or a layer's forward that is its cache. Raises ValueError where
    there is none."""
    known = signature(reader.forward).parameters
    if found := next((name for name in CACHES if name in known), None):
        return found
    raise ValueError("it takes no cache")


class Memory:
    """The tensors that the layers of a cache share, and how many rows are committed.

    Tensors are [n, B, G, S, D], allocated when the first rows come: one for the keys and values of
    all layers, or one for each where the layers lie on several devices (``apart``) or differ in
    shape. Memory holds no reference to layers: without a cycle, a dropped cache is freed at once.

    slots  rows to write, see ``StaticKV.write_to``
    """

    def __init__(self, layers: int, capacity: int, apart: bool):
        self.capacity = capacity
        self.length = 0
        self.slots: torch.Tensor | None = None
        self._layers, self._apart = layers, apart
        self._tensors: list[torch.Tensor] = []
        self._places: dict[int, list[tuple[int, int]]] = {}  # by layer: tensor and index in it

    def make_room(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Allocate a layer's rows, for keys and values [B, G, T, D] like these."""
        if not self._tensors and not self._apart and keys.shape == values.shape:
            self._allocate(keys, 2 * self._layers)
        self._places[layer] = [
            self._place(like, 2 * layer + side) for side, like in enumerate((keys, values))
        ]

    def rows_of(self, layer: int) -> list[torch.Tensor]:
        """The layer's keys and values [B, G, S, D]; nothing before there is room for them."""
        return [self._tensors[tensor][index] for tensor, index in self._places.get(layer, ())]

    def _place(self, like: torch.Tensor, number: int) -> tuple[int, int]:
        """The place of this number in the shared tensor if it fits, else in a tensor of its own."""
        if self._tensors:
            shared = self._tensors[0]
            kinds = [(x.dtype, x.device, *x.shape[-4:-2], x.shape[-1]) for x in (shared, like)]
            if number < len(shared) and kinds[0] == kinds[1]:
                return 0, number
        self._allocate(like, 1)
        return len(self._tensors) - 1, 0

    def _allocate(self, like: torch.Tensor, count: int) -> None:
        batch, heads, _, width = like.shape
        # Rows after `length` are masked, but 0 · NaN is NaN: they must not be uninitialised.
        self._tensors.append(like.new_zeros(count, batch, heads, self.capacity, width))

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors)

    def commit(self, rows: torch.Tensor) -> None:
        """Commit the scratch rows at these indices, counted from the first scratch row."""
        end = self.length + rows.numel()
        for tensor in self._tensors:
            source = rows.to(tensor.device) + self.length
            # index_select copies first, so overlapping source and target are safe.
            tensor[..., self.length : end, :] = tensor.index_select(-2, source)
        self.length = end

    def grow(self, rows: int) -> None:
        """[…, S, D] → […, ``rows``, D]."""
        more, self.capacity = rows - self.capacity, rows
        self._tensors = [F.pad(tensor, (0, 0, 0, more)) for tensor in self._tensors]

    def repeat(self, copies: int) -> None:
        """[n, B, …] → [n, B·copies, …], each row of the batch ``copies`` times in a row."""
        self._tensors = [tensor.repeat_interleave(copies, 1) for tensor in self._tensors]


class StaticLayer:
    """One layer's keys and values [B, G, S, D]: a view of the cache's memory."""

    def __init__(self, memory: Memory, number: int):
        self._memory, self._number = memory, number
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None
        self.is_initialized = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self._memory.make_room(self._number, key_states, value_states)
        self.refresh()

    def refresh(self) -> None:
        """View the rows where they lie now, if there are any."""
        if found := self._memory.rows_of(self._number):
            self.keys, self.values = found
            self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        if (slots := self._memory.slots) is not None:
            self.keys.index_copy_(2, slots, key_states)
            self.values.index_copy_(2, slots, value_states)
            return self.keys, self.values
        start, capacity = self._memory.length, self._memory.capacity
        end = start + key_states.shape[-2]
        if end > capacity:
            raise IndexError(f"KV cache of {capacity} rows cannot hold row {end - 1}")
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]


class StaticKV:
    """A preallocated cache for ``layers`` layers of ``capacity`` rows each.

    ``apart``: the layers lie on several devices.
    """

    layers: list[StaticLayer]

    def __init__(self, layers: int, capacity: int, apart: bool = False):
        self._memory = Memory(layers, capacity, apart)
        self.layers = [StaticLayer(self._memory, number) for number in range(layers)]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new rows [B, G, T, D] of a layer. Returns all rows that it may read."""
        return self.layers[layer_idx].update(key_states, value_states)

    @property
    def capacity(self) -> int:
        return self._memory.capacity

    @property
    def length(self) -> int:
        """Committed rows."""
        return self._memory.length

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values in all layers; 0 before the first rows come."""
        return self._memory.nbytes // self.capacity

    @property
    def state_bytes(self) -> int:
        """One copy of all states that layers carry along the text: there are none here."""
        return 0

    def commit(self, rows: torch.Tensor | int) -> None:
        """Keep scratch rows: the first ``rows`` of them, or those at the given scratch indices."""
        if isinstance(rows, int):
            self._memory.length += rows
        else:
            self._memory.commit(rows)

    @contextmanager
    def write_to(self, slots: torch.Tensor) -> Iterator[None]:
        """In this context, forwards write rows ``slots`` [T] and read the whole cache.

        So no shape depends on the text, as CUDA graphs need. The mask must hide unused rows.
        """
        self._memory.slots = slots
        try:
            yield
        finally:
            self._memory.slots = None

    def branching(self, parents: np.ndarray) -> AbstractContextManager[None]:
        """In this context a forward's rows are a tree: ``parents`` [N], −1 for the root.

        Keys and values need no such notice, since the mask tells it all; states do.
        """
        return nullcontext()

    def repeat(self, copies: int) -> None:
        """Repeat every row of the batch ``copies`` times, to continue it in several ways."""
        self._memory.repeat(copies)
        for layer in self.layers:
            layer.refresh()

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` rows at least. Not for a cache that CUDA graphs read."""
        if rows > self.capacity:
            self._memory.grow(-(-rows // 256) * 256)
            for layer in self.layers:
                layer.refresh()

    def truncate(self, length: int) -> None:
        """Drop committed rows after ``length``."""
        self._memory.length = length

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

    ``attention_mask`` is [B or 1, 1, T, S], added to the scores; None attends to everything. By
    transformers' names, ``softcap`` bounds the scores, and ``s_aux`` [H] are sinks: what each head
    may attend to nothing at.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    softcap, sinks = kwargs.get("softcap"), kwargs.get("s_aux")
    if not softcap and sinks is None and query.device.type == "cpu":
        # The fused kernel stays within the CPU's caches; `folded_attention` keeps H·T·S scores in
        # memory. (On CUDA no fused kernel takes both a mask and grouped heads.)
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=scale, enable_gqa=True
        )
    else:
        out = folded_attention(query, key, value, attention_mask, scale, softcap, sinks)
    return out.transpose(1, 2).contiguous(), None


def folded_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """``grouped_attention`` with the query heads of a group as rows of one matrix product.

    Returns [B, H, T, D].
    """
    batch, heads, new, width = query.shape
    groups = key.shape[1]
    rows = (query * scale).reshape(batch, groups, heads // groups * new, width)
    scores = rows @ key.transpose(2, 3)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        by_head = scores.view(batch, groups, heads // groups, new, key.shape[2])
        by_head += mask[:, :, None]
    if sinks is not None:
        column = sinks.view(1, groups, -1, 1).repeat_interleave(new, 2).to(scores.dtype)
        scores = torch.cat([scores, column.expand(batch, -1, -1, -1)], -1)
    weights = torch.softmax(scores, -1)[..., : key.shape[2]]  # half precisions: sums in float32
    return (weights @ value).view(batch, heads, new, value.shape[-1])


def mask_value(dtype: torch.dtype) -> float:
    """The additive mask's value for "not allowed": the most negative finite number, as in Hugging
    Face."""
    return torch.finfo(dtype).min


def additive_mask(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The additive mask of what is ``allowed``, bool [..., T, S], on the same device."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, mask_value(dtype))
