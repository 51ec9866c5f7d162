"""Masked-diffusion targets on Hugging Face models: many states of a block in one model call.

``BlockCausalTarget``: text before the block does not see it, so its keys and values are kept and
every draft of the block reads them; one pass over all of them is exact. A finished block's own
keys and values are made in the next block's first call: no call is ever spent on the context.

``BidirectionalTarget`` (LLaDA): everything sees everything, so a draft changes the context's states
too. ``exact`` runs every draft as a whole sequence of its own; ``shared`` is the paper's mask, one
sequence whose context saw the undrafted block (Spiffy, section 4.2): cheaper, and not exact.

No score between two drafts is computed: their rows form a batch, not one masked sequence.

Shapes: S states (row 0 the current block), L positions of a block, N rows of a state (L, or L + 1
with a shift), P clean rows, C context rows, R = P + S·N rows of a call; H query heads, G key/value
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
from core.models.cache import StaticKV, make_kv, mask_value
from core.models.target import PREFILL_CHUNK, context_limit, stop_ids
from core.rounds.draft import Array

BLOCKS = "draftscope_blocks"
BATCH_ROWS = 8192  # rows of one batch of whole sequences: bounds the memory of activations


@dataclass(frozen=True)
class Layout:
    """How a block-causal model was trained.

    shift  a position is predicted by its own row (False), or by the row before it (True): then
           the last known token, the root, leads the block's rows and is not yet context
    clean  finished text sees its past only (``causal``), or also its own block (``block``).
           Blocks are counted back from the end of the prompt, so the first may be shorter
    """

    shift: bool = False
    clean: Literal["block", "causal"] = "block"


class Scores(Sequence[Tensor]):
    """Logits of each state, [len(wanted[s]), V]: the head is applied when one is read."""

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
    """Who sees whom in one forward: scaled queries, keys, values → outputs [B, H, T, D]."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor: ...


class BlockTarget:
    """What both targets share: the model, its head, and the counting of calls and rows."""

    exact: bool

    def __init__(self, model: PreTrainedModel, mask_id: int):
        model.set_attn_implementation(BLOCKS)  # the model is this target's from now on
        self.model, self.mask_id = model, mask_id
        self.device, self.stop_ids = model.device, stop_ids(model)
        self.vocabulary = int(model.config.get_text_config().vocab_size)
        self.forwards = 0  # one per ``score``
        self.rows = 0  # positions computed so far, for a cost that depends on no clock

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
        """The decoder's output rows [B, T, h], normed: what the head reads."""
        self.rows += ids.numel()
        decoder: Any = self.model.base_model
        out = decoder(input_ids=ids, position_ids=positions, use_cache=False, attend=attend)
        return out.last_hidden_state

    def _scores(self, hidden: Tensor, wanted: Sequence[Array]) -> Scores:
        """``hidden`` are the wanted rows of all states, one after another."""
        head = self.model.get_output_embeddings()
        assert head is not None, "a causal LM has a head"
        return Scores(head, hidden.split([len(w) for w in wanted]), self.vocabulary)

    def _upload(self, *arrays: Array) -> tuple[Tensor, ...]:
        """Whole numbers to the device in one transfer."""
        flat = np.concatenate([np.asarray(a, np.int64).ravel() for a in arrays])
        return torch.from_numpy(flat).to(self.device).split([np.size(a) for a in arrays])


class BlockCausalTarget(BlockTarget):
    """A block-causal model: committed text in a cache, drafts of the current block beside it."""

    exact = True

    def __init__(self, model: PreTrainedModel, mask_id: int, layout: Layout | None = None):
        super().__init__(model, mask_id)
        self.layout = layout or Layout()
        self._tokens: list[int] = []  # clean text; the cache holds the first of it
        self._block = 1
        self._cache: StaticKV | None = None
        self._staircases: dict[tuple[int, int], Tensor] = {}

    def begin(self, prompt: Sequence[int], length: int, block: int) -> None:
        """Start a text. Raises UserError when it has no prompt or cannot fit the context."""
        self._check(prompt, length, block)
        self._tokens, self._block = list(prompt), block
        rows = len(prompt) + length
        if self._cache is None or self._cache.capacity < rows:
            self._cache = make_kv(self.model, -(-rows // 256) * 256)
        self._cache.reset()
        # The prompt's end joins the first call; what is before it must not swell that.
        chunk = max(block, PREFILL_CHUNK // block * block)
        while (rest := self._clean) > chunk:
            self._encode(rest % chunk or chunk)

    @torch.inference_mode()
    def score(self, states: Array, wanted: Sequence[Array]) -> Scores:
        """The seam's ``score`` (see ``DiffusionTarget``): one pass, P + S·N rows."""
        shift, clean, seen = int(self.layout.shift), self._clean, self._kv.length
        count, size = states.shape[0], states.shape[1] + shift
        root = np.full((count, shift), self._tokens[-1])
        first = seen + clean
        ids = np.concatenate([self._tokens[seen:first], np.hstack([root, states]).ravel()])
        place = np.tile(np.arange(first, first + size), count)
        # With a shift row 0 is the root's: either way row w predicts position w.
        index = [clean + s * size + np.asarray(w, np.int64) for s, w in enumerate(wanted)]
        ids, place, index = self._upload(
            ids, np.concatenate([np.arange(seen, first), place]), np.concatenate(index)
        )
        attend = BlockPass(self._kv, clean, count, self._staircase(clean))
        hidden = self._hidden(ids[None], place[None], attend)[0]
        self._kv.commit(clean)
        self.forwards += 1
        return self._scores(hidden[index], wanted)

    def advance(self, block: Sequence[int]) -> None:
        """The finished block becomes clean text; its keys and values come with the next call."""
        self._tokens += [int(token) for token in block]

    @property
    def _kv(self) -> StaticKV:
        assert self._cache is not None, "begin comes first"
        return self._cache

    @property
    def _clean(self) -> int:
        """Tokens of the clean text that are not in the cache yet (never the root)."""
        return len(self._tokens) - int(self.layout.shift) - self._kv.length

    @torch.inference_mode()
    def _encode(self, count: int) -> None:
        """Put the next ``count`` clean tokens into the cache."""
        seen = self._kv.length
        ids, place = self._upload(
            np.array(self._tokens[seen : seen + count]), np.arange(seen, seen + count)
        )
        attend = BlockPass(self._kv, count, 0, self._staircase(count))
        self._hidden(ids[None], place[None], attend)
        self._kv.commit(count)

    def _staircase(self, count: int) -> Tensor | None:
        """Additive mask [count, count] among new clean rows; None when all see all."""
        step = 1 if self.layout.clean == "causal" else self._block
        if count <= step:
            return None
        key = (count, step)
        if key not in self._staircases:
            left = torch.arange(count - 1, -1, -1, device=self.device) // step  # from the end
            mask = torch.zeros(count, count, dtype=self.model.dtype, device=self.device)
            mask.masked_fill_(left[:, None] > left[None, :], mask_value(self.model.dtype))
            self._staircases = {key: mask}  # a text's blocks are alike: the last one is enough
        return self._staircases[key]


class BidirectionalTarget(BlockTarget):
    """A model in which everything sees everything: prompt, blocks and the masks of later blocks."""

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
        self._begin = 0  # of the current block

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether a draft's scores are its state's own."""
        return self.mode == "exact"

    def begin(self, prompt: Sequence[int], length: int, block: int) -> None:
        """Start a text. Raises UserError when it has no prompt or cannot fit the context."""
        self._check(prompt, length, block)
        masks = np.full(length, self.mask_id, np.int64)
        self._tokens = np.concatenate([np.asarray(prompt, np.int64), masks])
        self._begin = len(prompt)

    @torch.inference_mode()
    def score(self, states: Array, wanted: Sequence[Array]) -> Scores:
        """The seam's ``score`` (see ``DiffusionTarget``); the sequences of ``exact`` in batches."""
        wanted = [np.asarray(w, np.int64) for w in wanted]
        run = self._whole if self.exact else self._shared
        self.forwards += 1
        return self._scores(run(states, wanted), wanted)

    def advance(self, block: Sequence[int]) -> None:
        """The finished block's tokens are known from now on."""
        self._tokens[self._begin : self._begin + len(block)] = block
        self._begin += len(block)

    def _whole(self, states: Array, wanted: Sequence[Array]) -> Tensor:
        """One sequence per state, as many at a time as ``batch_rows`` holds."""
        total, end = len(self._tokens), self._begin + states.shape[1]
        sequences = np.tile(self._tokens, (len(states), 1))
        sequences[:, self._begin : end] = states
        few = max(1, self.batch_rows // total)
        picked = []
        for low in range(0, len(states), few):
            batch = sequences[low : low + few]
            rows = [i * total + self._begin + w for i, w in enumerate(wanted[low : low + few])]
            ids, index = self._upload(batch, np.concatenate(rows))
            place = torch.arange(total, device=self.device)[None]
            hidden = self._hidden(ids.view(batch.shape), place, everything)
            picked.append(hidden.flatten(0, 1)[index])
        return torch.cat(picked)

    def _shared(self, states: Array, wanted: Sequence[Array]) -> Tensor:
        """One sequence with the current block, and the drafts' rows behind it."""
        total, size = len(self._tokens), states.shape[1]
        end = self._begin + size
        base = self._tokens.copy()
        base[self._begin : end] = states[0]
        block = np.arange(self._begin, end)
        place = np.concatenate([np.arange(total), np.tile(block, len(states) - 1)])
        rows = [(total + (s - 1) * size if s else self._begin) + w for s, w in enumerate(wanted)]
        ids, place, index = self._upload(
            np.concatenate([base, states[1:].ravel()]), place, np.concatenate(rows)
        )
        attend = SharedPass(total, self._begin, end)
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
    """Hugging Face's attention function: leaves who sees whom to the call's ``attend``."""
    attend: Attend | None = kwargs.get("attend")
    if attend is None:
        raise RuntimeError("a denoising model is run by its target only")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: Any = module.layer_idx
    return attend(layer, query * scale, key, value).transpose(1, 2).contiguous(), None


AttentionInterface.register(BLOCKS, block_attention)  # without a mask function: no mask is built


def everything(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Every row of a sequence sees all of it: [B, H, T, D]."""
    grouped = query.shape[1] != key.shape[1]
    return scaled_dot_product_attention(query, key, value, scale=1.0, enable_gqa=grouped)


class Rows(NamedTuple):
    """Scaled queries [H, S, N, D] and the same rows' keys and values [G, S, N, D]."""

    query: Tensor
    key: Tensor
    value: Tensor

    @classmethod
    def of(cls, states: int, *tensors: Tensor) -> Rows:
        """From [·, S·N, D] each."""
        return cls(*(x.unflatten(1, (states, -1)) for x in tensors))


@dataclass(frozen=True)
class BlockPass:
    """P clean rows, which join the context, then S states that see the context and themselves."""

    kv: StaticKV
    clean: int
    states: int
    staircase: Tensor | None

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        clean, seen = self.clean, self.kv.length
        keys, values = self.kv.update(key[:, :, :clean], value[:, :, :clean], layer)
        keys, values, parts = keys[0], values[0], []
        if clean:
            own = Rows.of(1, *(x[0, :, :clean] for x in (query, key, value)))
            parts.append(beside_shared(own, keys[:, :seen], values[:, :seen], self.staircase))
        if self.states:
            own = Rows.of(self.states, *(x[0, :, clean:] for x in (query, key, value)))
            parts.append(beside_shared(own, keys, values))
        return torch.cat(parts, 2)


@dataclass(frozen=True)
class SharedPass:
    """T rows that see each other, then drafts that see these but rows begin … end, and themselves.

    The drafts are as long as the rows they replace.
    """

    total: int
    begin: int
    end: int

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        total, size = self.total, self.end - self.begin
        base = everything(layer, *(x[:, :, :total] for x in (query, key, value)))
        if query.shape[2] == total:
            return base
        keys, values = (
            torch.cat([x[0, :, : self.begin], x[0, :, self.end : total]], 1) for x in (key, value)
        )
        drafts = (query.shape[2] - total) // size
        own = Rows.of(drafts, *(x[0, :, total:] for x in (query, key, value)))
        return torch.cat([base, beside_shared(own, keys, values)], 2)


def beside_shared(own: Rows, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """States that see shared rows and themselves, not each other → [1, H, S·N, D].

    The shared ``keys`` and ``values`` are [G, C, D]; ``mask`` [N, N] is added to the scores inside
    a state. One softmax over C + N.
    """
    heads, states, rows, width = own.query.shape
    groups, context = keys.shape[:2]
    # The query heads of a key head side by side within each state: no key is repeated.
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
