"""The DFlash network (arXiv 2602.06036): q for L future tokens from one pass.

Parameter names are those of the published checkpoints. The embedding is the target's, and the head
too unless a checkpoint brings its own, which may score only a part of the vocabulary.

Shapes: T context tokens, F feature layers, h hidden width, A blocks ("anchors"; 1 when decoding),
b block size (L = b − 1 drafted depths), H query heads, G key/value heads, D head width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.models import checkpoint
from core.models.language import Language
from core.models.layer_fields import layer_fields, sliding_layers, window_of
from core.models.layer_kinds import FULL, SLIDING
from core.models.layers import (
    PLAIN_ROPE,
    DecoderLayer,
    Embed,
    LayerContext,
    RMSNorm,
    Rope,
    Rotary,
    Shape,
    drawn,
)

C = TypeVar("C", bound="DFlashConfig")
Model = TypeVar("Model", bound="DFlashModel")

# What some checkpoints do to embeddings and logits, and the values that do nothing.
SCALES = {"input_embedding_scale": 1, "output_multiplier": 1, "final_logit_softcapping": 0}
MASK = "mask_embedding"  # a tensor, or a pickle of one, that stands for the mask token
# Beginnings of tensors' names, and those of the network's.
NAMES = {
    "logit_head.": "",  # SpecForge's first Domino and DSpark
    "encoder.fc.": "fc.",
    "encoder.output_norm_enc.": "hidden_norm.",
    "midlayer.": "layers.0.",
}


@dataclass(frozen=True)
class DFlashConfig:
    """The fields of a published ``config.json`` that decide the drafter's shape.

    num_target_layers   0: the config does not say
    draft_vocab_size    C, the tokens that a head of its own scores; 0: all, by the target's
    sliding             which layers see a window; (): none
    window              the tokens that a row of these layers sees, itself included
    of_root             these layers see so many tokens before the root, whatever the row, and all
                        of the block (speculators)
    causal              whether a row sees only the rows before it in its block; None: in sliding
                        layers
    sample_from_anchor  whether the root's own row predicts the first token
    mask_embedding      a tensor of the file stands for the mask token
    logit_scale         what logits are multiplied by
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    block_size: int
    num_target_layers: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    draft_vocab_size: int = 0
    sliding: tuple[bool, ...] = ()
    window: int = 0
    of_root: bool = False
    causal: bool | None = None
    sample_from_anchor: bool = False
    mask_embedding: bool = False
    attention_sink_bias: bool = False
    attention_value_scale: float = 1.0
    logit_scale: float = 1.0
    rms_norm_eps: float = 1e-6
    rope: Rope = PLAIN_ROPE
    attention_bias: bool = False
    max_position_embeddings: int = 40960
    architecture: ClassVar[str] = "DFlashDraftModel"

    @property
    def first_row(self) -> int:
        """The first row of a block that predicts."""
        return 0 if self.sample_from_anchor else 1

    @property
    def first_read(self) -> int:
        """The first row of a block that is read at all."""
        return self.first_row

    @property
    def max_depth(self) -> int:
        """L, the number of drafted depths."""
        return self.block_size - self.first_row

    @property
    def of_target(self) -> dict[str, int]:
        """The sizes that the target must have, by name."""
        count = {"layer count": self.num_target_layers} if self.num_target_layers else {}
        return {"hidden size": self.hidden_size, "vocabulary size": self.vocab_size} | count

    def feature_layers(self, target_layers: int) -> tuple[int, ...]:
        """The target layers after which it reads."""
        return self.target_layer_ids

    @property
    def shape(self) -> Shape:
        """The sizes that its layers share."""
        return Shape.of(
            self,
            self.hidden_size,
            bias=self.attention_bias,
            sinks=self.attention_sink_bias,
            values=self.attention_value_scale,
        )

    def slides(self, layer: int) -> bool:
        return bool(self.sliding) and self.sliding[layer]

    def layer_shape(self, layer: int) -> Shape:
        """The shape of one layer, counted from 0."""
        sliding = self.slides(layer)
        causal = sliding if self.causal is None else self.causal
        window = self.window if sliding and not self.of_root else 0
        # In speculators only sliding layers are ever causal.
        return replace(self.shape, causal=causal and (sliding or not self.of_root), window=window)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> DFlashConfig:
        """Read a published config, with the reference's defaults for absent optional fields.

        Raises UserError when a field that has no default is missing, or for a layer of another
        kind: it would draft, but not what it was trained to.
        """
        raw = of_speculators(raw)
        inner = {**raw, **(raw.get("dflash_config") or {})}
        if (act := raw.get("hidden_act", "silu")) != "silu":
            raise UserError(f"a DFlash drafter with the activation {act!r} is not supported")
        for name, plain in SCALES.items():
            if inner.get(name) not in (None, plain):
                raise UserError(f"a DFlash drafter with {name} is not supported")
        layers, ids = raw["num_hidden_layers"], inner.get("target_layer_ids")
        of_target = raw.get("num_target_layers", 0) if ids else raw["num_target_layers"]
        part = inner.get("draft_vocab_size")
        sinks = inner.get("attention_sink_bias", inner.get("add_swa_attention_sink_bias"))
        return DFlashConfig(
            **layer_fields(raw, positions=40960),
            num_hidden_layers=layers,
            block_size=inner["block_size"],
            num_target_layers=of_target,
            target_layer_ids=tuple(ids or default_layer_ids(of_target, layers)),
            mask_token_id=inner["mask_token_id"],
            draft_vocab_size=part if part and part != raw["vocab_size"] else 0,
            **_attention(inner, layers),
            sample_from_anchor=bool(inner.get("sample_from_anchor", False)),
            attention_bias=raw.get("attention_bias", False),
            attention_sink_bias=bool(sinks),
            attention_value_scale=inner.get("attention_value_scale", 1.0),
            logit_scale=inner.get("logit_scale", 1.0),
        )

    def to_json(self) -> dict[str, Any]:
        """The published form: a Qwen3 config with DFlash's own fields."""
        plain = asdict(self)
        del plain["rope"], plain[MASK]
        quiet = ("draft_vocab_size", "attention_sink_bias", "attention_value_scale", "logit_scale",
                 "sample_from_anchor", "of_root", "num_target_layers")  # fmt: skip
        unsaid = {each.name: each.default for each in fields(self)} | {"num_target_layers": 0}
        for name in quiet:
            if plain[name] == unsaid[name]:
                del plain[name]
        sliding = plain.pop("sliding") or (False,) * self.num_hidden_layers
        window, causal = plain.pop("window"), plain.pop("causal")
        inner = {
            "target_layer_ids": list(plain.pop("target_layer_ids")),
            "mask_token_id": plain.pop("mask_token_id"),
        }
        return {
            "architectures": [self.architecture],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_dropout": 0.0,
            "layer_types": [(FULL, SLIDING)[slides] for slides in sliding],
            "tie_word_embeddings": False,
            "use_sliding_window": window > 0,
            **({"sliding_window": window} if window else {}),
            **({} if causal is None else {"is_causal": causal}),
            **({"is_neox_style": False} if self.rope.neighbours else {}),
            "dtype": "bfloat16",
            "rope_parameters": self.rope.to_json(),
            "rope_theta": self.rope.theta,
            **plain,
            "dflash_config": inner,
        }


def of_speculators(raw: dict[str, Any]) -> dict[str, Any]:
    """A config of speculators in z-lab's form; any other as it is.

    The layers' settings lie in ``transformer_layer_config``. Its numbers of target layers count the
    embedding, so that z-lab's are one lower. Rows of its sliding layers are causal in their block
    unless ``sliding_window_non_causal``, and all see the same tokens before the root.
    """
    if (layer := raw.get("transformer_layer_config")) is None:
        return raw
    own = {name: value for name, value in raw.items() if name not in ("model_type", "head_dim")}
    ids = [number - 1 for number in raw["aux_hidden_state_layer_ids"]]
    causal = False if raw.get("sliding_window_non_causal") else None
    return {**layer, **own, "target_layer_ids": ids, "of_root": True, "causal": causal}


def _attention(raw: dict[str, Any], layers: int) -> dict[str, Any]:
    """Read what the layers see. Sliding ones are causal in the block unless it says otherwise,
    and those of ``use_swa`` are not. Raises UserError for layers of another kind.
    """
    sliding = sliding_layers(raw, layers)
    told = (raw.get("is_causal"), raw.get("causal"), raw.get("causal_head"))
    causal = next((bool(value) for value in told if value is not None), None)
    if raw.get("use_swa") and not any(sliding):
        sliding, causal = (True,) * layers, bool(causal)
    if not any(sliding):
        return {"causal": causal}
    window = window_of(raw, "swa_window_size", "sliding_window")
    root = bool(raw.get("of_root"))
    return {"sliding": sliding, "window": window, "causal": causal, "of_root": root}


def default_layer_ids(num_target_layers: int, num_draft_layers: int) -> tuple[int, ...]:
    """Feature layers when a config names none: evenly spaced from 1 to num_target_layers − 3."""
    if num_draft_layers == 1:
        return (num_target_layers // 2,)
    step = (num_target_layers - 4) / (num_draft_layers - 1)
    return tuple(round(1 + i * step) for i in range(num_draft_layers))


class Layer(DecoderLayer):
    def __init__(self, config: DFlashConfig, number: int):
        super().__init__(config.layer_shape(number))


class DFlashModel(nn.Module):
    """The network alone: features and block embeddings in, hidden rows for the head out."""

    layer: type[Layer] = Layer

    def __init__(self, config: DFlashConfig):
        super().__init__()
        self.config = config
        c = config
        self.layers = nn.ModuleList(self.layer(c, i) for i in range(c.num_hidden_layers))
        self._slides = [c.slides(i) for i in range(c.num_hidden_layers)]
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.fc = nn.Linear(len(c.target_layer_ids) * c.hidden_size, c.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mask_embedding = drawn(c.hidden_size) if c.mask_embedding else None

    def embed(self, embed: Embed, ids: Tensor) -> Tensor:
        """The embeddings of a block's tokens [..., h], in the network's precision."""
        found = embed(ids).to(self.norm.weight.dtype)
        if self.mask_embedding is None:
            return found
        masked = (ids == self.config.mask_token_id)[..., None]
        return torch.where(masked, self.mask_embedding, found)

    def rotary(self, positions: Tensor, dtype: torch.dtype) -> Rotary:
        return Rotary.at(positions, self.config.head_dim, self.config.rope, dtype)

    def project(self, features: Tensor, positions: Tensor) -> list[LayerContext]:
        """Context features [T, F·h] at their positions → every layer's keys and values."""
        x = self.hidden_norm(self.fc(features))
        rotary = self.rotary(positions, x.dtype)
        return [layer.self_attn.keys_values(x, rotary) for layer in self.layers]  # type: ignore[operator, union-attr]

    def forward(
        self,
        block: Tensor,
        positions: Tensor,
        context: list[LayerContext],
        visible: Tensor | None = None,
    ) -> Tensor:
        """Block embeddings [A, b, h] at positions [A, b] → the residual stream [A, b, h].

        ``visible`` bool [A, T]: the context rows that a block sees, of those in its window; None:
        all. A row's number is its position. ``norm`` is not applied: TreeFlash's head reads the
        stream before and after it.
        """
        rotary, config = self.rotary(positions.reshape(-1), block.dtype), self.config
        near = visible
        if config.window:  # the cache holds the whole context: what a window has left is masked
            columns = torch.arange(context[0].rows, device=positions.device)
            last = positions[..., :1].expand_as(positions) - 1 if config.of_root else positions
            near = last[..., None] - columns < config.window
            near = near if visible is None else near & visible[:, None]
        x = block
        for layer, far, slides in zip(self.layers, context, self._slides, strict=True):
            x = layer(x, far, rotary, near if slides else visible)
        return x

    def rows_at(self, embed: Embed, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """The residual stream [A, L, h] of the rows that predict, for A roots in one text.

        tokens [T] and features [≥ the last anchor, F·h] of the text; every block sees what stands
        before its own root, and no other block.
        """
        last, config, where = int(anchors.max()), self.config, tokens.device
        positions = torch.arange(last, device=where)
        context = self.project(features[:last], positions)
        ids = torch.full((len(anchors), config.block_size), config.mask_token_id, device=where)
        ids[:, 0] = tokens[anchors]
        own = anchors[:, None] + torch.arange(config.block_size, device=where)
        visible = positions[None] < anchors[:, None]
        block = self.embed(embed, ids).to(features.dtype)
        return self(block, own, context, visible)[:, config.first_read :]


def network_name(name: str) -> str:
    """The network's name of a tensor."""
    found = (new + name[len(old) :] for old, new in NAMES.items() if name.startswith(old))
    return next(found, name)


def _told_by_tensors(shapes: Mapping[str, tuple[int, ...]], config: C) -> C:
    """The config with what only a file's tensors tell."""
    return replace(config, mask_embedding=MASK in shapes)


def form(
    kind: str,
    parse: Callable[[dict[str, Any]], C],
    network: Callable[[C], Model],
) -> checkpoint.Form[C, Model]:
    """The form of a drafter on DFlash's block."""
    return checkpoint.Form(
        kind,
        parse,
        network,
        sizes=_told_by_tensors,
        beside=checkpoint.BESIDE,
        rename=network_name,
        pickles=(f"{MASK}.pt",),
    )


FORM = form("DFlash", DFlashConfig.from_json, DFlashModel)


def export(folder: Path, out: Path, load_target: Callable[[], Language]) -> nn.Module:
    """Write a checkpoint of ours in the official form (see ``methods.method.Checkpoint``)."""
    model = FORM.load_model(folder, torch.bfloat16, "cpu")
    FORM.save_model(model, out)
    return model
