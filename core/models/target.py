"""The target: the only owner of the model and of its key/value cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from core.errors import UserError
from core.models.cache import StaticKV, make_kv, mask_value, placed
from core.models.cuda_graphs import CannotCapture, FixedForward, bucket
from core.models.tree_mask import ancestor_mask
from core.rounds.draft import Draft
from core.rounds.round import Verdict

PREFILL_CHUNK = 512  # bounds the memory of hidden states during prefill
LENGTH_BOUND = ("dynamic", "longrope")  # rope types that turn otherwise from some length on
ROOMY = 4096  # rows of a cache that are no burden to a short text
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True)
class Scores:
    """What one forward says: logits [N, V] and, for the drafter, features [N, F·h]."""

    logits: Tensor
    features: Tensor


class Target:
    """A causal LM that scores drafts. One text at a time: ``prefill`` starts a new one.

    ``layers``: after which layers the hidden states are kept as the drafter's features (the
    Hugging Face tuple index is the layer + 1); their concatenation is a token's feature.
    ``fixed``: score drafts in padded forwards, which a GPU replays as CUDA graphs (the default
    there); what ``score`` gives is then valid until the next. ``obstacle`` says why a model is read
    plainly on a GPU, if it is.
    """

    def __init__(
        self, model: PreTrainedModel, layers: tuple[int, ...] = (), fixed: bool | None = None
    ):
        self.model, self.layers = model, layers
        self.device, self.dtype = home(model), model.dtype
        self.obstacle = obstacle(model)
        self._last_position = context_limit(model) - 1
        on_gpu = self.device.type == "cuda"
        self._fixed = on_gpu and self.obstacle is None if fixed is None else fixed
        self.forwards = 0  # counted, so that a report never has to guess
        self.texts = 0  # prefilled so far: tells a run that another one took its place
        self._cache: StaticKV | None = None
        self._forwards: dict[int, FixedForward] = {}  # on this cache, by rows

    @property
    def vocabulary(self) -> int:
        return self.model.config.get_text_config().vocab_size

    @property
    def context_limit(self) -> int:
        """Most tokens one text may hold."""
        return context_limit(self.model)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end the text, from the model's generation config."""
        return stop_ids(self.model)

    @property
    def length(self) -> int:
        """Committed tokens: the root of the next draft stands at this position."""
        return self._cache.length if self._cache is not None else 0

    @torch.inference_mode()
    def prefill(self, tokens: list[int], reserve: int) -> Scores:
        """Read a prompt into an empty cache with room for ``reserve`` rows behind it.

        Returns the last position's logits [1, V] and every position's features [T, F·h].
        """
        if not tokens:
            raise UserError("the prompt has no tokens")
        self.texts += 1
        self._make_cache(len(tokens) + reserve)
        features, logits = [], None
        for low in range(0, len(tokens), PREFILL_CHUNK):
            ids = torch.tensor(tokens[low : low + PREFILL_CHUNK], device=self.device)
            count, seen = len(ids), self.length
            causal = torch.ones(count, count, dtype=torch.bool, device=self.device).tril()
            positions = torch.arange(seen, seen + count, device=self.device)
            scores = self._forward(ids, positions, causal, last_only=True)
            self._kv.commit(count)
            features.append(scores.features)
            logits = scores.logits
        assert logits is not None
        return Scores(logits, torch.cat(features))

    @torch.inference_mode()
    def score(self, draft: Draft) -> Scores:
        """Root and nodes in one forward: each row sees the context, its ancestors and itself."""
        ids, depths = torch.from_numpy(draft.tokens), torch.from_numpy(draft.depths)
        allowed = torch.from_numpy(ancestor_mask(draft))
        if self._fixed and (scores := self._score_fixed(ids, depths, allowed)) is not None:
            return scores
        positions = depths.to(self.device) + self.length
        return self._forward(ids.to(self.device), positions, allowed.to(self.device))

    @torch.inference_mode()
    def commit(self, verdict: Verdict) -> Tensor:
        """Keep the cache rows of the accepted path only; returns the path as an index [a + 1]."""
        path = torch.tensor(verdict.path, device=self.device)
        contiguous = verdict.path == tuple(range(len(verdict.path)))
        self._kv.commit(len(verdict.path) if contiguous else path)
        return path

    def _forward(
        self, ids: Tensor, positions: Tensor, allowed: Tensor, last_only: bool = False
    ) -> Scores:
        """One forward of new rows: all see the committed context, and each other as ``allowed``."""
        self.forwards += 1
        count, seen = len(ids), self.length
        mask = torch.zeros(count, seen + count, dtype=self.dtype, device=self.device)
        mask[:, seen:].masked_fill_(~allowed, mask_value(self.dtype))
        return Scores(*self._read(ids, positions, mask, last_only))

    def _score_fixed(self, ids: Tensor, depths: Tensor, allowed: Tensor) -> Scores | None:
        """The padded forward's scores; None when it does not fit or cannot be captured."""
        forward = self._fixed_forward(len(ids))
        if not forward.fits:
            return None
        try:
            scores = Scores(*forward(ids, depths, allowed))
        except CannotCapture as error:
            self._fixed, self._forwards = False, {}
            self.obstacle = f"its kernels cannot be captured ({error})"
            return None
        self.forwards += 1
        return scores

    def _fixed_forward(self, rows: int) -> FixedForward:
        rows = bucket(rows)
        if rows not in self._forwards:
            like = torch.empty(0, dtype=self.dtype, device=self.device)
            self._forwards[rows] = FixedForward(self._read, self._kv, rows, like)
        return self._forwards[rows]

    def _read(
        self, ids: Tensor, positions: Tensor, mask: Tensor, last_only: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The model on rows [N] with an additive mask [N, S]: logits and features."""
        out = self.model(
            ids[None],
            attention_mask=mask[None, None],
            # Nodes behind the context's end can never be committed; some models have no such place.
            position_ids=positions[None].clamp(max=self._last_position),
            past_key_values=self._kv,
            use_cache=True,
            output_hidden_states=bool(self.layers),
            logits_to_keep=1 if last_only else 0,
        )
        hidden = [out.hidden_states[i + 1][0] for i in self.layers]
        features = torch.cat(hidden, -1) if hidden else out.logits.new_empty(len(ids), 0)
        return out.logits[0], features

    @property
    def _kv(self) -> StaticKV:
        assert self._cache is not None, "prefill comes first"
        return self._cache

    def _make_cache(self, rows: int) -> None:
        """An empty cache of at least ``rows`` rows; the last one is used again if it is enough, and
        not so much that fixed forwards, which read all of it, would feel a long text for ever."""
        if self._cache is None or not rows <= self._cache.capacity <= max(4 * rows, ROOMY):
            self._cache = make_kv(self.model, -(-rows // 256) * 256)
            self._forwards = {}  # they were made for the old one
        self._cache.reset()


def obstacle(model: PreTrainedModel) -> str | None:
    """Why a model's forward cannot be replayed as a CUDA graph, if it cannot."""
    config = model.config.get_text_config()
    if placed(model):
        return "it is spread over several devices"
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        return "some of its layers see a sliding window"
    if any(getattr(config, name, None) for name in EXPERTS):
        return "which of its experts run hangs on the tokens"
    if any(kind in LENGTH_BOUND for kind, _ in _ropes(config)):
        return "its rotary positions hang on the text's length"
    return None


def _ropes(config: PreTrainedConfig) -> list[tuple[str, int | None]]:
    """The kinds of rotary positions a model has, and up to which length each turns as it began."""
    given = getattr(config, "rope_parameters", None) or {}
    kinds = [given] if "rope_type" in given else [v for v in given.values() if isinstance(v, dict)]
    longest = getattr(config, "max_position_embeddings", None)
    return [
        (str(k.get("rope_type")), k.get("original_max_position_embeddings", longest)) for k in kinds
    ]


def home(model: PreTrainedModel) -> torch.device:
    """Where a model takes its input and leaves its output: the first device of several."""
    devices = [where for where in placed(model).values() if where != "disk"]
    return torch.device(devices[0]) if devices else model.device


def stop_ids(model: PreTrainedModel) -> frozenset[int]:
    """Tokens that end a text, from the model's generation config."""
    config = model.generation_config
    eos = config.eos_token_id if config is not None else None
    return frozenset([eos] if isinstance(eos, int) else eos or [])


def context_limit(model: PreTrainedModel) -> int:
    """Most tokens one text may hold.

    Our masks let every token see its whole past, which is what a sliding-window model does
    too as long as the text fits its window: there it ends. So does it where rotary positions would
    turn otherwise for a longer text: what stands in the cache was turned the old way.
    """
    config = model.config.get_text_config()
    limits = [getattr(config, "max_position_embeddings", None)]
    limits += [length for kind, length in _ropes(config) if kind in LENGTH_BOUND]
    if "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"]):
        limits.append(getattr(config, "sliding_window", None))
    return min((limit for limit in limits if limit), default=1 << 30)
