"""Masked-diffusion targets on Hugging Face models: many states of a block in one model call.

``BlockCausalTarget``: the text before a block does not see the block. So its keys and values are
cached, all drafts of the block read them, and one pass over all drafts is exact. The keys and
values of a finished block are computed in the next block's first call, so no call is spent on the
context alone.

``BidirectionalTarget`` (LLaDA): everything sees everything, so a draft also changes the context's
hidden states. ``exact`` runs every draft as a whole sequence of its own. ``shared`` is the paper's
mask: one sequence whose context saw the undrafted block (Spiffy §4.2); cheaper, and not exact.

Attention between two drafts is never computed: their rows form a batch, not one masked sequence.

Shapes: S states (row 0 the current block), P positions of a block, N rows of a state (P, or P + 1
with a shift), K clean rows, C context rows, R = K + S·N rows of a call; H query heads, G key/value
heads, D head width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from core.errors import UserError
from core.models.adapter import GatedAdapter
from core.models.cache import StaticKV, additive_mask
from core.models.target import PREFILL_CHUNK, context_limit, make_kv, stop_ids
from core.rounds.draft import Array

BLOCK_ATTENTION = "draftscope_blocks"
BATCH_ROWS = 8192  # rows of one batch of whole sequences: bounds the memory of activations


@dataclass(frozen=True)
class BlockLayout:
    """How a block-causal model was trained.

    shift  whether a position is predicted by the row before it, not by its own row. The last known
           token (the root) then comes first in the block's rows and is not yet context
    clean  what finished text sees: its past (``causal``), or its own block too (``block``). Blocks
           are counted back from the end of the prompt, so the first one may be shorter
    left   whether the known left part of a block is read as finished text, causally. The first
           masked position's row, too, while nothing behind it is known. Needs a shift
    """

    shift: bool = False
    clean: Literal["block", "causal"] = "block"
    left: bool = False

    def __post_init__(self) -> None:
        if self.left and not self.shift:
            raise ValueError("a known left part is only read as finished text with a shift")


class LazyLogits(Sequence[Tensor]):
    """Logits of each state [len(positions[s]), V]. The head is applied when an entry is read."""

    def __init__(self, head: nn.Module, hidden: Sequence[Tensor], vocabulary: int):
        self._head, self._hidden, self._vocabulary = head, hidden, vocabulary

    def __len__(self) -> int:
        return len(self._hidden)

    @torch.inference_mode()
    def __getitem__(self, state: Any) -> Any:
        if isinstance(state, slice):
            return [self[i] for i in range(*state.indices(len(self)))]
        rows = self._hidden[state]
        logits = self._head(rows) if len(rows) else rows.new_empty(0, self._vocabulary)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


class Attend(Protocol):
    """The attention of one forward: scaled queries, keys, values → outputs [B, H, T, D]."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor: ...


class BlockTarget:
    """The common part of both targets: the model, its head, and the counts of calls and rows."""

    exact: bool

    def __init__(self, model: PreTrainedModel, mask_id: int):
        model.set_attn_implementation(BLOCK_ATTENTION)  # only this target may run the model now
        self.model, self.mask_id = model, mask_id
        self.device, self.stop_ids = model.device, stop_ids(model)
        self.vocabulary = int(model.config.get_text_config().vocab_size)
        self.forwards = 0  # one per ``score``
        self.rows = 0  # positions computed so far: a cost that does not depend on a clock

    def _check(self, prompt: Sequence[int], length: int, block: int) -> None:
        if not len(prompt):
            raise UserError("the prompt has no tokens")
        if length < 1 or block < 1:
            raise UserError(f"length {length} and block {block} must be at least 1")
        if len(prompt) + length > (limit := context_limit(self.model)):
            raise UserError(
                f"the prompt ({len(prompt)} tokens) and {length} new ones "
                f"exceed the model's context of {limit}"
            )

    def _hidden(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """The decoder's normed output rows [B, T, h], the input of the head."""
        return self._decode(positions, attend, input_ids=ids)

    def _decode(self, positions: Tensor, attend: Attend, **inputs: Tensor) -> Tensor:
        self.rows += next(iter(inputs.values())).shape[:2].numel()
        decoder: Any = self.model.base_model
        out = decoder(**inputs, position_ids=positions, use_cache=False, attend=attend)
        return out.last_hidden_state

    def _logits(self, hidden: Tensor, positions: Sequence[Array]) -> LazyLogits:
        """``hidden`` are the rows of these positions, one state after another."""
        head = self.model.get_output_embeddings()
        assert head is not None, "a causal LM has a head"
        return LazyLogits(head, hidden.split([len(p) for p in positions]), self.vocabulary)

    def _upload(self, *arrays: Array) -> tuple[Tensor, ...]:
        """Arrays of integers, copied to the device in one transfer."""
        flat = np.concatenate([np.asarray(a, np.int64).ravel() for a in arrays])
        return torch.from_numpy(flat).to(self.device).split([np.size(a) for a in arrays])


class BlockCausalTarget(BlockTarget):
    """A block-causal model: clean text in a cache, and the drafts of the current block."""

    exact = True

    def __init__(
        self,
        model: PreTrainedModel,
        mask_id: int,
        layout: BlockLayout | None = None,
        adapter: GatedAdapter | None = None,
    ):
        """``adapter``: of the rows that are not finished text."""
        super().__init__(model, mask_id)
        self.layout, self.adapter = layout or BlockLayout(), adapter
        self._tokens: list[int] = []  # clean text; the cache holds the first of these
        self._block = 1
        self._cache: StaticKV | None = None
        self._clean_masks: dict[tuple[int, int], Tensor] = {}

    def begin(self, prompt: Sequence[int], length: int, block: int) -> None:
        """Start a text. Raises UserError when it has no prompt or cannot fit the context."""
        self._check(prompt, length, block)
        self._tokens, self._block = list(prompt), block
        rows = len(prompt) + length
        if self._cache is None or self._cache.capacity < rows:
            self._cache = make_kv(self.model, -(-rows // 256) * 256)
        self._cache.reset()
        # The end of the prompt joins the first call; the rest is encoded now, to keep that small.
        chunk = max(block, PREFILL_CHUNK // block * block)
        while (rest := self._uncached) > chunk:
            self._encode(rest % chunk or chunk)

    @torch.inference_mode()
    def score(self, states: Array, positions: Sequence[Array]) -> LazyLogits:
        """See ``DiffusionTarget``: one pass of K + S·N rows."""
        clean, size = self._uncached, states.shape[1] + self.layout.shift
        # With a shift row 0 is the root's; either way row p predicts position p.
        rows = [clean + s * size + np.asarray(p, np.int64) for s, p in enumerate(positions)]
        hidden = self._run(clean, states, np.concatenate(rows))
        self.forwards += 1
        return self._logits(hidden, positions)

    def advance(self, block: Sequence[int]) -> None:
        """The finished block becomes clean text. The next call computes its keys and values."""
        self._tokens += [int(token) for token in block]

    @property
    def _kv(self) -> StaticKV:
        assert self._cache is not None, "begin comes first"
        return self._cache

    @property
    def _uncached(self) -> int:
        """Tokens of the clean text that are not in the cache yet, without the root."""
        return len(self._tokens) - int(self.layout.shift) - self._kv.length

    @torch.inference_mode()
    def _encode(self, count: int) -> None:
        """Put the next ``count`` clean tokens into the cache."""
        nothing = np.empty(0, np.int64)
        self._run(count, nothing.reshape(0, self._block), nothing)

    def _run(self, clean: int, states: Array, rows: Array) -> Tensor:
        """One pass over the next ``clean`` clean tokens, which join the cache, and the states.

        Returns the decoder's output [len(rows), h] at ``rows`` of these K + S·N.
        """
        seen = self._kv.length
        first = seen + clean
        root = np.full((len(states), int(self.layout.shift)), self._tokens[-1])
        blocks = np.hstack([root, states])
        place = np.tile(np.arange(first, first + blocks.shape[1]), len(states))
        begin = self._open_from(states)
        adapted = clean + np.flatnonzero(np.arange(blocks.shape[1]) >= begin[:, None])
        ids, place, index, begin, adapted = self._upload(
            np.concatenate([self._tokens[seen:first], blocks.ravel()]),
            np.concatenate([np.arange(seen, first), place]),
            rows,
            begin,
            adapted,
        )
        mask = self._state_mask(begin, blocks.shape[1]) if self.layout.left else None
        attend = BlockCausalAttention(self._kv, clean, len(states), self._clean_mask(clean), mask)
        hidden = self._hidden(ids[None], place[None], attend, adapted)[0]
        self._kv.commit(clean)
        return hidden[index]

    def _hidden(
        self, ids: Tensor, positions: Tensor, attend: Attend, adapted: Tensor | None = None
    ) -> Tensor:
        if self.adapter is None:
            return super()._hidden(ids, positions, attend)
        assert adapted is not None
        inputs = self.adapter.embed(ids[0], adapted)[None]
        with self.adapter.open(adapted):
            return self._decode(positions, attend, inputs_embeds=inputs)

    def _open_from(self, states: Array) -> Array:
        """The first row of each state [S] that sees the whole block and is adapted."""
        if not self.layout.left:
            return np.zeros(len(states), np.int64)
        masked = states == self.mask_id
        left = np.where(masked.any(1), masked.argmax(1), states.shape[1])
        known_behind = masked.sum(1) < states.shape[1] - left
        return left + ~known_behind

    def _state_mask(self, begin: Tensor, rows: int) -> Tensor:
        """The additive masks [S, 1, N, N] of states whose rows before ``begin`` [S] are causal."""
        row = torch.arange(rows, device=self.device)
        seen = (row <= row[:, None]) | (row[:, None] >= begin[:, None, None])
        return additive_mask(seen, self.model.dtype)[:, None]

    def _clean_mask(self, count: int) -> Tensor | None:
        """The additive mask [count, count] of new clean rows; None when all see all."""
        step = 1 if self.layout.clean == "causal" else self._block
        if count <= step:
            return None
        key = (count, step)
        if key not in self._clean_masks:
            left = torch.arange(count - 1, -1, -1, device=self.device) // step  # from the end
            mask = additive_mask(left[:, None] <= left, self.model.dtype)
            self._clean_masks = {key: mask}  # a text's blocks are alike: one mask is enough
        return self._clean_masks[key]


class BidirectionalTarget(BlockTarget):
    """A model with full attention: prompt, blocks and the masks of later blocks see each other."""

    def __init__(
        self,
        model: PreTrainedModel,
        mask_id: int,
        mode: Literal["exact", "shared"] = "exact",
        batch_rows: int = BATCH_ROWS,
    ):
        super().__init__(model, mask_id)
        self.mode: Literal["exact", "shared"] = mode
        self.batch_rows = batch_rows
        self._tokens = np.zeros(0, np.int64)
        self._start = 0  # of the current block

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether a draft's scores equal those that its state would get alone."""
        return self.mode == "exact"

    def begin(self, prompt: Sequence[int], length: int, block: int) -> None:
        """Start a text. Raises UserError when it has no prompt or cannot fit the context."""
        self._check(prompt, length, block)
        masks = np.full(length, self.mask_id, np.int64)
        self._tokens = np.concatenate([np.asarray(prompt, np.int64), masks])
        self._start = len(prompt)

    @torch.inference_mode()
    def score(self, states: Array, positions: Sequence[Array]) -> LazyLogits:
        """See ``DiffusionTarget``. In ``exact`` mode the sequences are run in batches."""
        positions = [np.asarray(p, np.int64) for p in positions]
        run = self._run_whole if self.exact else self._run_shared
        self.forwards += 1
        return self._logits(run(states, positions), positions)

    def advance(self, block: Sequence[int]) -> None:
        """The finished block's tokens are known to all later calls."""
        self._tokens[self._start : self._start + len(block)] = block
        self._start += len(block)

    def _run_whole(self, states: Array, positions: Sequence[Array]) -> Tensor:
        """One sequence per state, in batches of at most ``batch_rows`` rows."""
        total, end = len(self._tokens), self._start + states.shape[1]
        sequences = np.tile(self._tokens, (len(states), 1))
        sequences[:, self._start : end] = states
        size = max(1, self.batch_rows // total)
        picked = []
        for low in range(0, len(states), size):
            batch = sequences[low : low + size]
            rows = [i * total + self._start + p for i, p in enumerate(positions[low : low + size])]
            ids, index = self._upload(batch, np.concatenate(rows))
            place = torch.arange(total, device=self.device)[None]
            hidden = self._hidden(ids.view(batch.shape), place, full_attention)
            picked.append(hidden.flatten(0, 1)[index])
        return torch.cat(picked)

    def _run_shared(self, states: Array, positions: Sequence[Array]) -> Tensor:
        """One sequence with the current block, and the rows of the drafts after it."""
        total, size = len(self._tokens), states.shape[1]
        end = self._start + size
        base = self._tokens.copy()
        base[self._start : end] = states[0]
        block = np.arange(self._start, end)
        place = np.concatenate([np.arange(total), np.tile(block, len(states) - 1)])
        rows = [(total + (s - 1) * size if s else self._start) + p for s, p in enumerate(positions)]
        ids, place, index = self._upload(
            np.concatenate([base, states[1:].ravel()]), place, np.concatenate(rows)
        )
        attend = SharedContextAttention(total, self._start, end)
        return self._hidden(ids[None], place[None], attend)[0][index]


# ── attention ────────────────────────────────────────────────────────────────────────────────────


def block_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Hugging Face's attention function: runs the ``attend`` that the target passed along."""
    attend: Attend | None = kwargs.get("attend")
    if attend is None:
        raise RuntimeError("a denoising model may only be run by its target")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: Any = module.layer_idx
    return attend(layer, query * scale, key, value).transpose(1, 2).contiguous(), None


AttentionInterface.register(BLOCK_ATTENTION, block_attention)  # no mask function: no mask is built


def full_attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Every row of a sequence sees all of it → [B, H, T, D]."""
    grouped = query.shape[1] != key.shape[1]
    return scaled_dot_product_attention(query, key, value, scale=1.0, enable_gqa=grouped)


class StateRows(NamedTuple):
    """The rows of S states: scaled queries [H, S, N, D], keys and values [G, S, N, D]."""

    query: Tensor
    key: Tensor
    value: Tensor

    @classmethod
    def of(cls, states: int, *tensors: Tensor) -> StateRows:
        """From tensors [·, S·N, D]."""
        return cls(*(x.unflatten(1, (states, -1)) for x in tensors))


@dataclass(frozen=True)
class BlockCausalAttention:
    """K clean rows, which join the context, then S states that see the context and themselves.

    The masks are added to the scores: [K, K] among the clean rows, [S, 1, N, N] within the states.
    """

    kv: StaticKV
    clean: int
    states: int
    clean_mask: Tensor | None
    state_mask: Tensor | None

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        clean, seen = self.clean, self.kv.length
        keys, values = self.kv.update(key[:, :, :clean], value[:, :, :clean], layer)
        keys, values, parts = keys[0], values[0], []
        if clean:
            own = StateRows.of(1, *(x[0, :, :clean] for x in (query, key, value)))
            parts.append(attend_shared(own, keys[:, :seen], values[:, :seen], self.clean_mask))
        if self.states:
            own = StateRows.of(self.states, *(x[0, :, clean:] for x in (query, key, value)))
            parts.append(attend_shared(own, keys, values, self.state_mask))
        return torch.cat(parts, 2)


@dataclass(frozen=True)
class SharedContextAttention:
    """T rows that see each other, then drafts that see themselves and these rows.

    A draft replaces the rows from ``begin`` to ``end``: it is as long as these, and does not see
    them.
    """

    total: int
    begin: int
    end: int

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        total, size = self.total, self.end - self.begin
        base = full_attention(layer, *(x[:, :, :total] for x in (query, key, value)))
        if query.shape[2] == total:
            return base
        keys, values = (
            torch.cat([x[0, :, : self.begin], x[0, :, self.end : total]], 1) for x in (key, value)
        )
        drafts = (query.shape[2] - total) // size
        own = StateRows.of(drafts, *(x[0, :, total:] for x in (query, key, value)))
        return torch.cat([base, attend_shared(own, keys, values)], 2)


def attend_shared(
    own: StateRows, keys: Tensor, values: Tensor, mask: Tensor | None = None
) -> Tensor:
    """States that see shared rows and themselves, but not each other → [1, H, S·N, D].

    The shared ``keys`` and ``values`` are [G, C, D]; ``mask``, [N, N] or [S, 1, N, N], is added to
    the scores within a state. One softmax covers C + N.
    """
    heads, states, rows, width = own.query.shape
    groups, context = keys.shape[:2]
    # Put the query heads of a key head side by side within each state: no key is repeated.
    query = own.query.view(groups, -1, states, rows, width).transpose(1, 2)
    query = query.reshape(groups, states, -1, width)
    inside = query @ own.key.transpose(-1, -2)
    if mask is not None:
        inside.view(groups, states, -1, rows, rows).add_(mask)
    scores = torch.cat([query.flatten(1, 2) @ keys.transpose(-1, -2), inside.flatten(1, 2)], -1)
    weights = torch.softmax(scores, -1, torch.promote_types(scores.dtype, torch.float32))
    weights = weights.to(values.dtype)
    out = weights[..., :context] @ values
    out += (weights[..., context:].unflatten(1, (states, -1)) @ own.value).flatten(1, 2)
    out = out.view(groups, states, -1, rows, out.shape[-1]).transpose(1, 2)
    return out.reshape(1, heads, states * rows, -1)
