"""The EAGLE-3 network (arXiv 2503.01840): one layer that predicts token after token.

A row joins the feature of one token with the embedding of the *next*. The first features are the
target's; after a drafted token the layer's own output stands in for them. Parameter names are those
of the published checkpoints. Those of speculators (``layers.0.*``, and norms of their own) are read
too.

Shapes: T prefix rows, A blocks, F feature layers, L drafted depths, h hidden width, C tokens of the
head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.drafting.session import tokens_after
from core.errors import UserError
from core.models import checkpoint
from core.models.checkpoint import WithHead
from core.models.language import Language
from core.models.layer_fields import SLIDING, layer_fields, sliding_layers, window_of
from core.models.layers import (
    MLP,
    PLAIN_ROPE,
    Attention,
    LayerContext,
    RMSNorm,
    Rope,
    Rotary,
    Shape,
)

# What a file may hold beside the network: a head, its token maps, and parts of the target.
BESIDE = ("lm_head.weight", "d2t", "t2d", "embed_tokens.weight",
          "verifier_lm_head.weight", "verifier_norm.weight")  # fmt: skip
_SWITCHES = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_IDS = "eagle_aux_hidden_state_layer_ids"
Embed = Callable[[Tensor], Tensor]  # token ids [...] → the target's embeddings [..., h]


@dataclass(frozen=True)
class EagleConfig:
    """The fields of a published ``config.json`` that decide the drafter's shape.

    draft_vocab_size      C, tokens its head covers
    layers                the target layers *after* which it reads; (): EAGLE-3's own three
    norm_before_residual  the residual is the normed feature
    norm_before_fc        one norm over all features before ``fc``
    fc_norm               a norm for each feature before ``fc``
    norm_output           the feature fed back is the normed one
    window                how far a row sees in the committed text: tokens back, itself included; 0:
                          all of it. Of a draft it sees its whole path
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

    @property
    def of_target(self) -> dict[str, int]:
        """The sizes that the target must have, by name."""
        hidden = self.target_hidden_size or self.hidden_size
        return {"hidden size": hidden, "vocabulary size": self.vocab_size}

    @property
    def shape(self) -> Shape:
        """The shape of its layer: attention reads an embedding beside a feature."""
        return Shape.of(self, 2 * self.hidden_size, qk_norm=self.qk_norm, bias=self.attention_bias)

    def feature_layers(self, target_layers: int) -> tuple[int, ...]:
        """The target layers after which it reads, of a target with so many."""
        return self.layers or default_layers(target_layers)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> EagleConfig:
        """Read a published config, or one of speculators, whose layer has its own.

        Raises UserError when a needed field is missing, or for a layer of another kind.
        """
        layer = {**raw, **(raw.get("transformer_layer_config") or {})}
        _check_layer(layer)
        (slides,) = sliding_layers(layer, 1)
        ids = raw.get(_IDS) or (raw.get("eagle_config") or {}).get(_IDS) or ()
        if any(i < 1 for i in ids):
            raise UserError("an EAGLE drafter that reads the target's embeddings as a feature")
        switches: dict[str, Any] = {name: bool(raw.get(name, False)) for name in _SWITCHES}
        return EagleConfig(
            **layer_fields(layer, positions=2048),
            draft_vocab_size=raw.get("draft_vocab_size") or layer["vocab_size"],
            target_hidden_size=raw.get("target_hidden_size") or layer["hidden_size"],
            attention_bias=bool(layer.get("attention_bias", False)),
            qk_norm=layer.get("model_type") == "qwen3",
            layers=tuple(i - 1 for i in ids),  # theirs count states that enter a layer
            window=window_of(layer, "sliding_window") if slides else 0,
            **switches,
        )

    def to_json(self) -> dict[str, Any]:
        """The published form: a Llama config with EAGLE-3's own fields."""
        plain = asdict(self)
        del plain["rope"]
        qk_norm, layers, window = (plain.pop(name) for name in ("qk_norm", "layers", "window"))
        slides = {"layer_types": [SLIDING], "sliding_window": window} if window else {}
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "qwen3" if qk_norm else "llama",
            "num_hidden_layers": 1,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
            **self.rope.to_older_json(),
            **({_IDS: [i + 1 for i in layers]} if layers else {}),
            **slides,
            **plain,
        }


def _check_layer(raw: Mapping[str, Any]) -> None:
    """Raises UserError for more than one layer, or an activation but SiLU."""
    if (count := raw.get("num_hidden_layers", 1)) != 1:
        raise UserError(f"an EAGLE drafter of {count} layers is not supported")
    if (act := raw.get("hidden_act", "silu")) != "silu":
        raise UserError(f"an EAGLE drafter with the activation {act!r} is not supported")


def default_layers(target_layers: int) -> tuple[int, int, int]:
    """The layers *after* which EAGLE-3 reads: states entering layers 2, n//2 and n − 3."""
    return 1, target_layers // 2 - 1, target_layers - 4


class BareLayer(nn.Module):
    """Without norms before attention."""

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
class Rows:
    """Rows of the layer at their positions.

    inputs    [N, 2h]  what attention reads
    residual  [N, h]
    rotary    of their positions
    """

    inputs: Tensor
    residual: Tensor
    rotary: Rotary


class EagleModel(nn.Module):
    """The network without embedding and head."""

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
        self.norm = RMSNorm(config.hidden_size, eps)

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

    def join(self, hidden: Tensor, next_embeddings: Tensor, positions: Tensor) -> Rows:
        """Features [N, h] of tokens with the embeddings [N, h] of the tokens after them."""
        layer, config = self.midlayer, self.config
        normed = layer.hidden_norm(hidden)
        inputs = torch.cat([layer.input_layernorm(next_embeddings), normed], -1)
        rotary = Rotary.at(positions, config.head_dim, config.rope, inputs.dtype)
        return Rows(inputs, normed if config.norm_before_residual else hidden, rotary)

    def project(self, hidden: Tensor, next_embeddings: Tensor, positions: Tensor) -> LayerContext:
        """Keys and values [G, T, D] of prefix rows, as ``join`` takes them."""
        return self.keys_values(self.join(hidden, next_embeddings, positions))

    def keys_values(self, rows: Rows) -> LayerContext:
        """Keys and values [G, N, D]."""
        return self.midlayer.self_attn.keys_values(rows.inputs, rows.rotary)

    def near_enough(self, positions: Tensor, of: Tensor) -> Tensor:
        """Whether rows at ``positions`` [N] see the text's at ``of`` [T], bool [N, T]."""
        ago = positions[:, None] - of
        return ago < self.config.window if self.config.window else ago >= 0

    def forward(
        self, rows: Rows, context: LayerContext, near: LayerContext, visible: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """N rows → their features to feed back and what the head reads, both [N, h].

        Each row sees the context rows that ``visible`` bool [N, T] says (None: all), and its own
        n rows of ``near`` [G, N·n, D].
        """
        layer = self.midlayer
        queries = layer.self_attn.queries(rows.inputs, rows.rotary)[:, None]
        x = rows.residual + layer.self_attn.attend(queries, context, near, visible)[:, 0]
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        normed = self.norm(x)
        return normed if self.config.norm_output else x, normed

    def rows_at(
        self, embed: Embed, tokens: Tensor, features: Tensor, anchors: Tensor, depths: int
    ) -> Tensor:
        """Rows [A, L, h] for the head, for roots at A places (≥ 1) of one text whose own tokens
        are drafted (training-time test).

        tokens [T] and features [≥ the last anchor, F·h] of the text. At each step a block reads
        the features that it made at the step before. It sees the prefix, and of the steps its own.
        """
        last, ends = int(anchors.max()), anchors - 1
        positions = torch.arange(last - 1, device=tokens.device)
        hidden = self.reduce(features[:last])
        context = self.project(hidden[:-1], embed(tokens[1:last]).to(hidden.dtype), positions)
        before, paths = positions[None] < ends[:, None], tokens_after(tokens, anchors, depths)
        fed, near, found = hidden[ends], None, list[Tensor]()
        for step in range(depths):
            rows = self.join(fed, embed(paths[:, step]).to(fed.dtype), ends + step)
            visible = before & self.near_enough(ends + step, positions)
            near = _beside(near, self.keys_values(rows), len(anchors))
            fed, out = self(rows, context, near, visible)
            found.append(out)
        return torch.stack(found, 1)


def _beside(near: LayerContext | None, fresh: LayerContext, blocks: int) -> LayerContext:
    """One more row [G, A, D] after each block's rows [G, A·n, D]; None: there are none yet."""
    if near is None:
        return fresh
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
    checkpoint.write(folder, config.to_json(), state, small)


def official_name(name: str) -> str:
    """A tensor's published name, of speculators' name for it."""
    return name.replace("layers.0.", "midlayer.", 1) if name.startswith("layers.0.") else name


FORM = checkpoint.Form(
    "EAGLE-3", EagleConfig.from_json, EagleModel, beside=BESIDE, rename=official_name
)


def export(folder: Path, out: Path, load_target: Callable[[], Language]) -> nn.Module:
    """Write a checkpoint of ours in the official form: with a head of its own."""
    found = FORM.load_checkpoint(folder, torch.bfloat16, "cpu")
    if found.head is None:
        head = load_target().head.state_dict()["weight"].to("cpu", torch.bfloat16)
        found = WithHead(found.model, head if found.ids is None else head[found.ids], found.ids)
    save(found, out)
    return found.model
