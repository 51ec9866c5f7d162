"""The EAGLE-3 network (arXiv 2503.01840): a layer, or a few, that predict token after token.

A row joins the feature of one token with the embedding of the *next*: the first layer reads both,
and those after it its output. The first features are the target's; after a drafted token the last
layer's own output stands in for them. Parameter names are those of the published checkpoints. Those
of speculators (``layers.0.*``, and norms of their own) are read too.

Shapes: N rows, T prefix rows, A blocks, F feature layers, L drafted depths, h hidden width, C
tokens of the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from core.drafting.session import tokens_after
from core.errors import UserError
from core.models import checkpoint
from core.models.checkpoint import WithHead
from core.models.language import Language
from core.models.layer_fields import layer_fields, sliding_layers, window_of
from core.models.layer_kinds import FULL, SLIDING
from core.models.layers import (
    MLP,
    PLAIN_ROPE,
    Attention,
    DecoderLayer,
    Embed,
    LayerContext,
    RMSNorm,
    Rope,
    Rotary,
    Shape,
)

_SWITCHES = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
IDS = "eagle_aux_hidden_state_layer_ids"
PREFIX_CHUNK = 128  # rows of a text that pass through several layers at once
Contexts = tuple[LayerContext, ...]  # one of each layer


Config = TypeVar("Config", bound="EagleConfig")


@dataclass(frozen=True)
class EagleConfig:
    """The fields of a published ``config.json`` that decide the drafter's shape.

    draft_vocab_size      C, tokens its head covers
    layers                the target layers *after* which it reads; −1: the embeddings; ():
                          EAGLE-3's own three
    norm_before_residual  the residual is the normed feature
    norm_before_fc        one norm over all features before ``fc``
    fc_norm               a norm for each feature before ``fc``
    norm_output           the feature fed back is the normed one
    window                how far a row sees in the committed text: tokens back, itself included; 0:
                          all of it. Of a draft it sees its whole path
    whole                 layers, counted from 0, that see all of the text in spite of the window
    own_embedding         the file holds an embedding; None: its tensors tell
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    target_hidden_size: int = 0
    rms_norm_eps: float = 1e-6
    rope: Rope = PLAIN_ROPE
    max_position_embeddings: int = 2048
    attention_bias: bool = False
    qk_norm: bool = False
    layers: tuple[int, ...] = ()
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    window: int = 0
    num_hidden_layers: int = 1
    whole: tuple[int, ...] = ()
    own_embedding: bool | None = None

    @property
    def of_target(self) -> dict[str, int]:
        hidden = self.target_hidden_size or self.hidden_size
        return {"hidden size": hidden, "vocabulary size": self.vocab_size}

    @property
    def shape(self) -> Shape:
        """The shape of its first layer: attention reads an embedding beside a feature."""
        return Shape.of(self, 2 * self.hidden_size, qk_norm=self.qk_norm, bias=self.attention_bias)

    def feature_layers(self, target_layers: int) -> tuple[int, ...]:
        """The target layers after which it reads, of a target with so many."""
        return self.layers or default_layers(target_layers)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> EagleConfig:
        """Read a published config, or one of speculators, whose layers have their own.

        Raises UserError when a needed field is missing, or for a layer of another kind.
        """
        layer = {**raw, **(raw.get("transformer_layer_config") or {})}
        _check_layer(layer)
        count = layer.get("num_hidden_layers", 1)
        slides = sliding_layers(layer, count)
        switches: dict[str, Any] = {name: bool(raw.get(name, False)) for name in _SWITCHES}
        return EagleConfig(
            **layer_fields(layer, positions=2048),
            draft_vocab_size=raw.get("draft_vocab_size") or layer["vocab_size"],
            target_hidden_size=raw.get("target_hidden_size") or layer["hidden_size"],
            attention_bias=bool(layer.get("attention_bias", False)),
            qk_norm=layer.get("model_type") == "qwen3",
            layers=_layers_after(raw),
            window=window_of(layer, "sliding_window") if any(slides) else 0,
            num_hidden_layers=count,
            whole=tuple(i for i, own in enumerate(slides) if not own) if any(slides) else (),
            **switches,
        )

    def to_json(self) -> dict[str, Any]:
        """The published form: a Llama config with EAGLE-3's own fields."""
        plain = asdict(self)
        del plain["rope"], plain["own_embedding"]  # the tensors say it
        apart = ("qk_norm", "layers", "window", "whole")
        qk_norm, layers, window, whole = (plain.pop(name) for name in apart)
        kinds = [(SLIDING, FULL)[i in whole] for i in range(plain.pop("num_hidden_layers"))]
        slides = {"layer_types": kinds, "sliding_window": window} if window else {}
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "qwen3" if qk_norm else "llama",
            "num_hidden_layers": len(kinds),
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
            **self.rope.to_older_json(),
            **({IDS: [i + 1 for i in layers]} if layers else {}),
            **slides,
            **plain,
        }


def _check_layer(raw: Mapping[str, Any]) -> None:
    """Raises UserError for no layer, or an activation but SiLU."""
    if (count := raw.get("num_hidden_layers", 1)) < 1:
        raise UserError(f"an EAGLE drafter of {count} layers is not supported")
    if (act := raw.get("hidden_act", "silu")) != "silu":
        raise UserError(f"an EAGLE drafter with the activation {act!r} is not supported")


def _layers_after(raw: Mapping[str, Any]) -> tuple[int, ...]:
    """The target layers after which a published config reads; (): it names none.

    Of its own, as speculators and vLLM write it, the field numbers the layers that a state enters.
    In ``eagle_config``, as SpecForge, ModelOpt and SGLang have it, it numbers the layers that it
    leaves. There, too, some name EAGLE-3's own three by the layers they enter (2, n//2, n − 3;
    SGLang's pull request 25454). Raises UserError.
    """
    entered, left = raw.get(IDS) or (), (raw.get("eagle_config") or {}).get(IDS) or ()
    ids = tuple(entered or left)
    if any(i < 0 for i in ids):
        raise UserError(
            "an EAGLE drafter that reads a state before the target's embeddings is not supported"
        )
    own = len(ids) == 3 and ids == (2, (ids[2] + 3) // 2, ids[2])
    return tuple(i - 1 for i in ids) if entered or own else ids


def default_layers(target_layers: int) -> tuple[int, int, int]:
    """The layers *after* which EAGLE-3 reads: states entering layers 2, n//2 and n − 3."""
    return 1, target_layers // 2 - 1, target_layers - 4


class BareLayer(nn.Module):
    """A layer without norms before attention."""

    def __init__(self, config: EagleConfig):
        super().__init__()
        self.self_attn = Attention(config.shape)
        self.mlp = MLP(config.shape.hidden, config.shape.intermediate)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class EagleLayer(BareLayer):
    def __init__(self, config: EagleConfig):
        super().__init__(config)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)


@dataclass(frozen=True)
class LayerRows:
    """Rows of the first layer at their positions.

    inputs    [N, 2h]  what attention reads
    residual  [N, h]
    rotary    of their positions
    """

    inputs: Tensor
    residual: Tensor
    rotary: Rotary

    def part(self, low: int, high: int) -> LayerRows:
        """The rows from ``low`` on and before ``high``."""
        turns = self.rotary
        rotary = Rotary(turns.cos[low:high], turns.sin[low:high], turns.neighbours)
        return LayerRows(self.inputs[low:high], self.residual[low:high], rotary)


def own_embedding(config: EagleConfig) -> nn.Embedding | None:
    """An embedding [V, h] that is the drafter's own, if it has one."""
    sizes = config.vocab_size, config.hidden_size
    return nn.Embedding(*sizes) if config.own_embedding else None


class EagleModel(nn.Module):
    """The network without a head.

    midlayer      the first layer
    layers        those after it, by their published numbers
    embed_tokens  an embedding that was trained along; None: the target's serves
    """

    def __init__(self, config: EagleConfig):
        super().__init__()
        self.config = config
        width, eps = config.target_hidden_size or config.hidden_size, config.rms_norm_eps
        count = len(config.layers) or 3
        self.fc = nn.Linear(count * width, config.hidden_size, bias=False)
        self.input_norm = RMSNorm(count * width, eps) if config.norm_before_fc else None
        norms = [RMSNorm(width, eps) for _ in range(count)]
        self.fc_norm = nn.ModuleList(norms) if config.fc_norm else None
        self.midlayer = EagleLayer(config)
        shape = replace(config.shape, inputs=config.hidden_size)
        later = range(1, config.num_hidden_layers)
        self.layers = nn.ModuleDict({str(number): DecoderLayer(shape) for number in later})
        self.norm = RMSNorm(config.hidden_size, eps)
        self.embed_tokens = own_embedding(config)

    @property
    def stack(self) -> list[Any]:
        """Its layers, the first one first."""
        return [self.midlayer, *self.layers.values()]

    @property
    def like(self) -> Tensor:
        """A tensor on its device and in its precision."""
        return self.midlayer.post_attention_layernorm.weight

    def reduce(self, features: Tensor) -> Tensor:
        """The target's features [T, F·h] → the first features of its own, [T, h]."""
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm is not None:
            parts = features.chunk(len(self.fc_norm), -1)
            normed = (norm(part) for norm, part in zip(self.fc_norm, parts, strict=True))
            features = torch.cat([*normed], -1)
        return self.fc(features)

    def join(self, hidden: Tensor, next_embeddings: Tensor, positions: Tensor) -> LayerRows:
        """Features [N, h] of tokens with the embeddings [N, h] of the tokens after them."""
        layer, config = self.midlayer, self.config
        normed = layer.hidden_norm(hidden)
        inputs = torch.cat([layer.input_layernorm(next_embeddings), normed], -1)
        rotary = Rotary.at(positions, config.head_dim, config.rope, inputs.dtype)
        return LayerRows(inputs, normed if config.norm_before_residual else hidden, rotary)

    def empty(self, rows: int) -> Contexts:
        """Room for ``rows`` prefix rows in each layer, or some more."""
        shape = self.config.shape  # keys and values of every layer have the same sizes
        return tuple(LayerContext.empty(shape, rows, self.like) for _ in self.stack)

    def project(
        self, hidden: Tensor, next_embeddings: Tensor, known: Contexts, positions: Tensor
    ) -> Contexts:
        """Keys and values [G, T, D] in each layer of prefix rows, as ``join`` takes them, that come
        after the rows that are ``known``."""
        rows = self.join(hidden, next_embeddings, positions)
        first = self.midlayer.self_attn
        if not self.layers:  # nothing reads what attention would say
            return (first.keys_values(rows.inputs, rows.rotary),)
        found = list(known)
        for low in range(0, len(hidden), PREFIX_CHUNK):
            fresh = self._next_rows(rows.part(low, low + PREFIX_CHUNK), found)
            found = [old.then(new) for old, new in zip(found, fresh, strict=True)]
        start = known[0].rows
        return tuple(LayerContext(each.keys[:, start:], each.values[:, start:]) for each in found)

    def _next_rows(self, rows: LayerRows, known: Sequence[LayerContext]) -> Iterator[LayerContext]:
        """Each layer's keys and values of the text's next rows, which see those that are ``known``,
        and each other backwards."""
        count, start, device = len(rows.residual), known[0].rows, rows.residual.device
        own = torch.arange(count, device=device)
        everything = torch.ones(1, count, start, dtype=torch.bool, device=device)
        visible = self.seen(everything, (own + start)[None], start)
        ahead = own > own[:, None]
        far = own[:, None] - own >= (self.config.window or count)
        x, inputs = rows.residual, rows.inputs
        for number, layer in enumerate(self.stack):
            inputs = layer.input_layernorm(x) if number else inputs
            fresh = layer.self_attn.keys_values(inputs, rows.rotary)
            yield fresh
            if number == len(self.layers):
                return
            hidden = ahead if number in self.config.whole else ahead | far
            x = _through(
                layer, x, inputs, rows.rotary, known[number], fresh, visible[number], hidden
            )

    def seen(self, visible: Tensor, positions: Tensor, prefix: int) -> list[Tensor]:
        """Narrow ``visible``, bool [..., N, T], to what rows at ``positions`` [..., N] see in each
        layer: with a window, of the text's own ``prefix`` rows only the last ones."""
        if not self.config.window:
            return [visible] * len(self.stack)
        ago = positions[..., None] - torch.arange(prefix, device=positions.device)
        near = visible.clone()
        near[..., :prefix] &= ago < self.config.window
        whole = self.config.whole
        return [visible if number in whole else near for number in range(len(self.stack))]

    def forward(
        self,
        rows: LayerRows,
        context: Contexts,
        visible: Sequence[Tensor],
        before: Contexts | None = None,
        hidden: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Contexts]:
        """N rows of A blocks → their features to feed back and what the head reads, both [N, h],
        and the rows near each block [G, A·n, D] in each layer.

        Each row sees the context's rows that ``visible`` bool [A, T] or [A, b, T] of the layer
        says, the rows of its block that came ``before`` [G, A·(n − b), D], and of the block's own b
        those that are not ``hidden`` bool [b, b]; None: all.
        """
        x, inputs, near = rows.residual, rows.inputs, list[LayerContext]()
        for number, layer in enumerate(self.stack):
            inputs = layer.input_layernorm(x) if number else inputs
            fresh = layer.self_attn.keys_values(inputs, rows.rotary)
            own = fresh if before is None else _beside(before[number], fresh, len(x))
            x = _through(
                layer, x, inputs, rows.rotary, context[number], own, visible[number], hidden
            )
            near.append(own)
        normed = self.norm(x)
        return normed if self.config.norm_output else x, normed, tuple(near)

    def read(
        self, embed: Embed, tokens: Tensor, features: Tensor, count: int
    ) -> tuple[Tensor, Contexts]:
        """The first features of its own [count, h] of a text's first ``count`` (≥ 1) tokens, and
        each layer's keys and values of all but the last: its row needs the token after it."""
        hidden = self.reduce(features[:count])
        positions = torch.arange(count - 1, device=tokens.device)
        embedded = embed(tokens[1:count]).to(hidden.dtype)
        return hidden, self.project(hidden[:-1], embedded, self.empty(0), positions)

    def rows_at(
        self, embed: Embed, tokens: Tensor, features: Tensor, anchors: Tensor, depths: int
    ) -> Tensor:
        """Rows [A, L, h] for the head, for roots at A places (≥ 1) of one text whose own tokens
        are drafted (training-time test).

        tokens [T] and features [≥ the last anchor, F·h] of the text. At each step a block reads
        the features that it made at the step before. It sees the prefix, and of the steps its own.
        """
        ends = anchors - 1
        hidden, context = self.read(embed, tokens, features, int(anchors.max()))
        positions = torch.arange(context[0].rows, device=tokens.device)
        before, paths = positions[None] < ends[:, None], tokens_after(tokens, anchors, depths)
        fed, near, found = hidden[ends], None, list[Tensor]()
        for step in range(depths):
            rows = self.join(fed, embed(paths[:, step]).to(fed.dtype), ends + step)
            visible = self.seen(before, ends + step, len(positions))
            fed, out, near = self(rows, context, visible, near)
            found.append(out)
        return torch.stack(found, 1)


def _through(
    layer: Any,
    x: Tensor,
    inputs: Tensor,
    rotary: Rotary,
    context: LayerContext,
    near: LayerContext,
    visible: Tensor,
    hidden: Tensor | None = None,
) -> Tensor:
    """Rows [N, h] through a layer whose attention reads ``inputs``, in as many blocks as there are
    rows of ``visible`` [A, …]; context, near rows and what is seen as in ``Attention.attend``."""
    queries = layer.self_attn.queries(inputs, rotary).unflatten(0, (len(visible), -1))
    x = x + layer.self_attn.attend(queries, context, near, visible, hidden).flatten(0, 1)
    return x + layer.mlp(layer.post_attention_layernorm(x))


def _beside(near: LayerContext, fresh: LayerContext, blocks: int) -> LayerContext:
    """One more row [G, A, D] after each block's rows [G, A·n, D]."""
    both = (
        torch.cat([a.unflatten(1, (blocks, -1)), b.unflatten(1, (blocks, -1))], 2).flatten(1, 2)
        for a, b in ((near.keys, fresh.keys), (near.values, fresh.values))
    )
    return LayerContext(*both)


def save(found: WithHead[EagleModel], folder: Path, small: bool = False) -> None:
    """Write the published form, without a head where the target's serves (``small``: in int8)."""
    config, state = found.model.config, dict(found.model.state_dict())
    if found.head is not None:
        state["lm_head.weight"] = found.head
    if found.ids is not None:
        ids = found.ids.cpu()
        state["d2t"] = ids - torch.arange(len(ids))
        state["t2d"] = torch.isin(torch.arange(config.vocab_size), ids)
    if config.num_hidden_layers > 1:  # only the form of one layer calls it so
        state = {name.replace("midlayer.", "layers.0.", 1): t for name, t in state.items()}
    checkpoint.write(folder, config.to_json(), state, small)


def official_name(name: str) -> str:
    """A tensor's published name, of speculators' name for it."""
    return name.replace("layers.0.", "midlayer.", 1) if name.startswith("layers.0.") else name


EMBEDDING = "embed_tokens.weight"
BESIDE = tuple(name for name in checkpoint.BESIDE if name != EMBEDDING)  # a head and its maps


def told_by_tensors(shapes: Mapping[str, tuple[int, ...]], config: Config) -> Config:
    """The config with what only a file's tensors tell."""
    return replace(config, own_embedding=EMBEDDING in shapes)


FORM = checkpoint.Form(
    "EAGLE-3", EagleConfig.from_json, EagleModel,
    sizes=told_by_tensors, beside=BESIDE, rename=official_name,
)  # fmt: skip


def export(folder: Path, out: Path, load_target: Callable[[], Language]) -> nn.Module:
    """Write a checkpoint of ours in the official form: with a head of its own."""
    found = FORM.load_checkpoint(folder, torch.bfloat16, "cpu")
    if found.head is None:
        head = load_target().head.state_dict()["weight"].to("cpu", torch.bfloat16)
        found = WithHead(found.model, head if found.ids is None else head[found.ids], found.ids)
    save(found, out)
    return found.model
