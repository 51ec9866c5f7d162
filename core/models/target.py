"""The target: the only owner of the model and of its key/value cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from core.errors import UserError
from core.models.cache import StaticKV, cache_argument, mask_value
from core.models.cuda_graphs import CaptureError, PaddedForward, bucket
from core.models.layer_kinds import carries_state, layer_kinds
from core.models.layer_masks import layer_masks
from core.models.tree_mask import ancestor_mask
from core.progress import Progress, silent
from core.rounds.draft import MAX_BUDGET, Draft
from core.rounds.round import Verdict

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

PREFILL_CHUNK = 512  # bounds the memory of hidden states during prefill
LENGTH_BOUND = ("dynamic", "longrope")  # rope types whose rotation changes from some length on
SMALL_CACHE = 4096  # rows of a cache that a short text may reuse at no cost worth saving
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True)
class Scores:
    """One forward's output: logits [N, V] and, for the drafter, features [N, F·h]."""

    logits: Tensor
    features: Tensor


@dataclass
class Place:
    """Where a model's one text lies.

    texts     prefilled so far
    forwards  padded ones that read this cache, by the layers of their features and their rows
    """

    cache: StaticKV | None = None
    texts: int = 0
    forwards: dict[tuple[tuple[int, ...], int], PaddedForward] = field(default_factory=dict)


class Target:
    """A causal LM that scores drafts. One text at a time: ``prefill`` starts a new one.

    layers  the layers whose outputs are the drafter's features (the Hugging Face tuple index is the
            layer + 1); a token's feature is their concatenation
    padded  score drafts in padded forwards, which a GPU replays as CUDA graphs (None: on a GPU, if
            the model allows). A result of ``score`` is then valid until the next call
    place   shared by targets of one model that keep other layers' features (None: its own). All of
            them have one text together
    no_graph_reason  why a GPU runs this model without CUDA graphs, or None
    """

    def __init__(
        self,
        model: PreTrainedModel,
        layers: tuple[int, ...] = (),
        padded: bool | None = None,
        place: Place | None = None,
    ):
        self.model, self.layers = model, layers
        self.device, self.dtype = input_device(model), model.dtype
        self.no_graph_reason = no_graph_reason(model)
        self._last_position = context_limit(model) - 1
        on_gpu = self.device.type == "cuda"
        self._padded = on_gpu and self.no_graph_reason is None if padded is None else padded
        self.forwards = 0  # so far
        self._place = place or Place()

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
        """Committed tokens. The root of the next draft has this position."""
        cache = self._place.cache
        return cache.length if cache is not None else 0

    @property
    def texts(self) -> int:
        """Texts prefilled so far: shows a run that another one took its place."""
        return self._place.texts

    @torch.inference_mode()
    def prefill(self, tokens: list[int], reserve: int, report: Progress = silent) -> Scores:
        """Run a prompt into an empty cache that has room for ``reserve`` rows after it.

        Returns the last position's logits [1, V] and all features [T, F·h]. ``report`` hears of
        every part but the last, and what it raises ends the prefill. Raises UserError for an empty
        prompt.
        """
        if not tokens:
            raise UserError("the prompt has no tokens")
        self._place.texts += 1
        self._make_cache(len(tokens) + reserve)
        features, logits = [], None
        for low in range(0, len(tokens), PREFILL_CHUNK):
            if low:
                report(low / len(tokens), "reading the prompt")
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
        """Score root and nodes in one forward: a row sees the context, its ancestors and itself."""
        ids, depths = torch.from_numpy(draft.tokens), torch.from_numpy(draft.depths)
        allowed = torch.from_numpy(ancestor_mask(draft))
        if self._padded and (scores := self._score_padded(ids, depths, allowed)) is not None:
            return scores
        positions = depths.to(self.device) + self.length
        with self._kv.branching(draft.parents):
            return self._forward(ids.to(self.device), positions, allowed.to(self.device))

    @torch.inference_mode()
    def commit(self, verdict: Verdict) -> Tensor:
        """Keep only the cache rows of the accepted path. Returns the path as an index [a + 1]."""
        path = torch.tensor(verdict.path, device=self.device)
        contiguous = verdict.path == tuple(range(len(verdict.path)))
        self._kv.commit(len(verdict.path) if contiguous else path)
        return path

    def _forward(
        self, ids: Tensor, positions: Tensor, allowed: Tensor, last_only: bool = False
    ) -> Scores:
        """One forward of rows that see the context, and each other where ``allowed`` [N, N]."""
        self.forwards += 1
        count, seen = len(ids), self.length
        mask = torch.zeros(count, seen + count, dtype=self.dtype, device=self.device)
        mask[:, seen:].masked_fill_(~allowed, mask_value(self.dtype))
        return Scores(*self._run_model(ids, positions, mask, last_only))

    def _score_padded(self, ids: Tensor, depths: Tensor, allowed: Tensor) -> Scores | None:
        """The padded forward's scores; None when it does not fit or cannot be captured."""
        forward = self._padded_forward(len(ids))
        if not forward.fits:
            return None
        try:
            scores = Scores(*forward(ids, depths, allowed))
        except CaptureError as error:
            self._padded = False
            self._place.forwards.clear()
            self.no_graph_reason = f"its kernels cannot be captured ({error})"
            return None
        self.forwards += 1
        return scores

    def _padded_forward(self, rows: int) -> PaddedForward:
        forwards, key = self._place.forwards, (self.layers, bucket(rows))
        if key not in forwards:
            like = torch.empty(0, dtype=self.dtype, device=self.device)
            forwards[key] = PaddedForward(self._run_model, self._kv, bucket(rows), like)
        return forwards[key]

    def _run_model(
        self, ids: Tensor, positions: Tensor, mask: Tensor, last_only: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The model on rows [N] with an additive mask [N, S]: logits and features."""
        # Nodes beyond the context's end are never committed; some models have no such position.
        where, keep = positions.clamp(max=self._last_position), 1 if last_only else 0
        out = run_rows(
            self.model, where, mask, self._kv,
            input_ids=ids[None], output_hidden_states=self._wanted, logits_to_keep=keep,
        )  # fmt: skip
        hidden = [out.hidden_states[i + 1][0] for i in self.layers]
        features = torch.cat(hidden, -1) if hidden else out.logits.new_empty(len(ids), 0)
        return out.logits[0], features

    @property
    def _wanted(self) -> Any:
        """The hidden states to keep: transformers' models keep all or none."""
        numbers = [i + 1 for i in self.layers]
        return numbers if reads_static_kv(self.model) else bool(numbers)

    @property
    def _kv(self) -> StaticKV:
        assert self._place.cache is not None, "prefill comes first"
        return self._place.cache

    def _make_cache(self, rows: int) -> None:
        """An empty cache of at least ``rows`` rows.

        The last one is reused if it is large enough, and not so large that padded forwards, which
        read all of it, stay slow after one long text.
        """
        cache = self._place.cache
        if cache is None or not rows <= cache.capacity <= max(4 * rows, SMALL_CACHE):
            self._place.forwards.clear()  # they hold the last one
            self._place.cache = cache = make_kv(self.model, -(-rows // 256) * 256)
        cache.reset()


def make_kv(model: PreTrainedModel, capacity: int) -> StaticKV:
    """An empty cache for a model's texts of at most ``capacity`` tokens."""
    layers = model.config.get_text_config().num_hidden_layers
    if reads_static_kv(model):
        return StaticKV(layers, capacity)
    apart = bool(device_map(model))
    if carries_state(model.config):
        from core.models.recurrent import RecurrentKV

        return RecurrentKV(layer_kinds(model.config), capacity, apart)
    from core.models.hugging_face import HuggingFaceKV

    return HuggingFaceKV(layers, capacity, apart)


def run_rows(
    model: Any,
    positions: Tensor,
    mask: Tensor,
    kv: Any,
    after: Tensor | None = None,
    **inputs: Any,
) -> Any:
    """A model's output of rows at these positions [N], whose keys and values join the cache ``kv``
    of S rows with them. ``mask`` [N, S] is additive, of a layer with full attention, and ``after``
    [N] counts the rows after it that each sees; ``inputs`` are the model's own."""
    return model(
        **inputs,
        **{cache_argument(type(model)): kv},
        attention_mask=layer_masks(model.config, mask[None, None], after),
        position_ids=positions[None],
        use_cache=True,
    )


@torch.inference_mode()
def read_one_token(model: PreTrainedModel) -> StaticKV:
    """The cache of a text of one token, which the model reads as it does every other.

    Raises what a model raises that does not run here, and ValueError for one whose keys the cache
    cannot hold: it keeps none, or runs a layer more than once for a token.
    """
    kv, where = make_kv(model, 1), input_device(model)
    layers, written = len(kv.layers), list[int]()
    kv.update = _noting(kv.update, written)
    token = torch.zeros(1, dtype=torch.long, device=where)
    mask = torch.zeros(1, 1, device=where, dtype=model.dtype)
    run_rows(model, token, mask, kv, input_ids=token[None])
    del kv.update
    if len(written) > len({*written}) or len(kv.layers) > layers:
        raise ValueError("it runs a layer more than once for a token")
    if not written and not kv.state_bytes:
        raise ValueError("it keeps no keys of the tokens before")
    return kv


def _noting(update: Callable[..., Any], layers: list[int]) -> Callable[..., Any]:
    """``update`` of a cache, which adds the number of the layer that calls it to ``layers``."""

    def noted(keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **more: Any) -> Any:
        layers.append(layer_idx)
        return update(keys, values, layer_idx, *args, **more)

    return noted


def reads_static_kv(model: PreTrainedModel) -> bool:
    """Whether it is our own, a ``Llama``."""
    return getattr(model, "reads_static_kv", False)


def device_map(model: PreTrainedModel) -> dict[str, int | str]:
    """The device of each part of a model that is spread over several; empty for any other model."""
    return getattr(model, "hf_device_map", None) or {}


def no_graph_reason(model: PreTrainedModel) -> str | None:
    """Why a model's forward cannot be replayed as a CUDA graph; None if it can."""
    config = model.config.get_text_config()
    if device_map(model):
        return "it is spread over several devices"
    if carries_state(model.config):
        return "some of its layers carry a state, which a draft forks depth by depth"
    if any(getattr(config, name, None) for name in EXPERTS):
        return "its tokens decide which of its experts run"
    if any(kind in LENGTH_BOUND for kind, _ in _ropes(config)):
        return "its rotary positions depend on the text's length"
    return None


def _ropes(config: PreTrainedConfig) -> list[tuple[str, int | None]]:
    """A model's rope types, each with the length up to which it rotates as in training."""
    raw = getattr(config, "rope_parameters", None) or {}
    kinds = [raw] if "rope_type" in raw else [v for v in raw.values() if isinstance(v, dict)]
    longest = getattr(config, "max_position_embeddings", None)
    return [
        (str(k.get("rope_type")), k.get("original_max_position_embeddings", longest)) for k in kinds
    ]


def input_device(model: PreTrainedModel) -> torch.device:
    """The device of a model's input and output: the first of several."""
    devices = [where for where in device_map(model).values() if where != "disk"]
    return torch.device(devices[0]) if devices else model.device


def stop_ids(model: PreTrainedModel) -> frozenset[int]:
    """Tokens that end a text, from the model's generation config."""
    config = model.generation_config
    eos = config.eos_token_id if config is not None else None
    return frozenset([eos] if isinstance(eos, int) else eos or [])


def context_limit(model: PreTrainedModel) -> int:
    """Most tokens one text may hold.

    The length from which rotary positions rotate differently is a limit: the keys in the cache were
    rotated the old way.
    """
    config = model.config.get_text_config()
    limits = [getattr(config, "max_position_embeddings", None)]
    limits += [length for kind, length in _ropes(config) if kind in LENGTH_BOUND]
    if getattr(config, "attn_temperature_tuning", False):
        # Llama 4 scales queries by their rows, which a tree's positions are not, in steps.
        limits.append(config.floor_scale - MAX_BUDGET - 1)
    return min((limit for limit in limits if limit and limit > 0), default=1 << 30)
