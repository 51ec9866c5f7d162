"""The DART network (arXiv 2601.19278): one causal layer that predicts a few shifted positions.

A prefix row joins the target's feature of one token with the embedding of the *next*; masks stand
after the last. Row n − 1 predicts depth 1, the masks the depths after it. Parameter names are
those of the published checkpoints.

Shapes: T prefix tokens, h hidden width, A blocks, L drafted depths (one more than the masks).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.models import checkpoint
from core.models.language import Language
from core.models.layer_fields import layer_fields
from core.models.layers import (
    MLP,
    PLAIN_ROPE,
    Attention,
    Embed,
    LayerContext,
    RMSNorm,
    Rope,
    Rotary,
    Shape,
    drawn,
)

# What a published file holds beside the network: a head and its token maps, and the target's
# embedding, which was frozen in training.
BESIDE = ("lm_head.weight", "d2t", "t2d", "embed_tokens.weight")


@dataclass(frozen=True)
class DartConfig:
    """The fields of a published ``config.json`` that decide the drafter's shape.

    draft_length      masks after the prefix; the drafted depths are one more
    draft_vocab_size  tokens its head covers (``d2t`` maps them to the target's)
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    draft_length: int = 7
    target_hidden_size: int = 0
    rms_norm_eps: float = 1e-6
    rope: Rope = PLAIN_ROPE
    max_position_embeddings: int = 2048

    @property
    def max_depth(self) -> int:
        """L, the number of drafted depths."""
        return self.draft_length + 1

    @property
    def of_target(self) -> dict[str, int]:
        hidden = self.target_hidden_size or self.hidden_size
        return {"hidden size": hidden, "vocabulary size": self.vocab_size}

    @property
    def shape(self) -> Shape:
        """The shape of its layer: attention reads an embedding beside a feature, causally."""
        return Shape.of(self, 2 * self.hidden_size, qk_norm=False, causal=True)

    @staticmethod
    def feature_layers(target_layers: int) -> tuple[int, ...]:
        """The layers *after* which it reads: states entering layers 2, n//2 and n − 3."""
        return 1, target_layers // 2 - 1, target_layers - 4

    @staticmethod
    def from_json(raw: dict[str, Any]) -> DartConfig:
        """Read a published config. Raises KeyError for a needed field that is missing."""
        return DartConfig(
            **layer_fields(raw, positions=2048),
            draft_vocab_size=raw.get("draft_vocab_size") or raw["vocab_size"],
            draft_length=int(raw["draft_length"]),
            target_hidden_size=raw.get("target_hidden_size") or raw["hidden_size"],
        )

    def to_json(self) -> dict[str, Any]:
        """The published form: a Llama config with DART's own fields."""
        plain = asdict(self)
        del plain["rope"]
        return {
            "architectures": ["LlamaForCausalLMDart"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_act": "silu",
            "attention_bias": False,
            "pretraining_tp": 1,
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
            **self.rope.to_older_json(),
            **plain,
        }


class DartLayer(nn.Module):
    def __init__(self, config: DartConfig):
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.mask_rep = drawn(2 * width)
        self.self_attn = Attention(config.shape)
        self.mlp = MLP(config.shape.hidden, config.shape.intermediate)
        self.hidden_norm = RMSNorm(width, eps)
        self.input_layernorm = RMSNorm(width, eps)
        self.post_attention_layernorm = RMSNorm(width, eps)


@dataclass(frozen=True)
class PrefixRows:
    """Prefix rows: what attention reads [T, 2h] and the residual [T, h]."""

    inputs: Tensor
    residual: Tensor


class DartModel(nn.Module):
    """The network without embedding and head: features and embeddings in, rows for the head out."""

    def __init__(self, config: DartConfig):
        super().__init__()
        self.config = config
        of_target = 3 * (config.target_hidden_size or config.hidden_size)
        self.fc = nn.Linear(of_target, config.hidden_size, bias=False)
        self.midlayer = DartLayer(config)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def rotary(self, positions: Tensor, dtype: torch.dtype) -> Rotary:
        return Rotary.at(positions, self.config.head_dim, self.config.rope, dtype)

    def prefix(self, features: Tensor, next_embeddings: Tensor) -> PrefixRows:
        """Features [T, 3h] of tokens and the embeddings [T, h] of the tokens after them."""
        layer, x = self.midlayer, self.fc(features)
        embedded = layer.input_layernorm(next_embeddings)
        return PrefixRows(torch.cat([embedded, layer.hidden_norm(x)], -1), x)

    def project(self, prefix: PrefixRows, positions: Tensor) -> LayerContext:
        """Prefix rows at positions [T] → keys and values."""
        rotary = self.rotary(positions, prefix.inputs.dtype)
        return self.midlayer.self_attn.keys_values(prefix.inputs, rotary)

    def forward(
        self,
        last: PrefixRows,
        positions: Tensor,
        context: LayerContext,
        visible: Tensor | None = None,
    ) -> Tensor:
        """The last prefix row of each block (A of them, at positions [A]) with the masks after it
        → rows [A, L, h] for the head. The context is every prefix row before the last.

        The final norm is applied *twice*, as released inference does.
        """
        layer, masks = self.midlayer, self.config.draft_length
        blocks, width = last.residual.shape
        rep = layer.mask_rep.to(last.inputs.dtype)
        inputs = torch.cat([last.inputs[:, None], rep.expand(blocks, masks, -1)], 1)
        residual = torch.cat([last.residual[:, None], rep[:width].expand(blocks, masks, -1)], 1)
        where = positions[:, None] + torch.arange(masks + 1, device=positions.device)
        rotary = self.rotary(where.reshape(-1), inputs.dtype)
        x = residual + layer.self_attn(inputs, context, rotary, visible)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.norm(self.norm(x))

    def rows_at(self, embed: Embed, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """Rows [A, L, h] for the head, for roots at A places (≥ 1) of one text.

        tokens [T] and features [≥ the last anchor, 3h] of the text; every block sees the prefix
        rows before its own last one, which carries its root's embedding.
        """
        last = int(anchors.max())
        next_embeddings = embed(tokens[1 : last + 1]).to(features.dtype)
        prefix = self.prefix(features[:last], next_embeddings)
        positions = torch.arange(last, device=tokens.device)
        context, ends = self.project(prefix, positions), anchors - 1
        own = PrefixRows(prefix.inputs[ends], prefix.residual[ends])
        return self(own, ends, context, positions[None] < ends[:, None])


FORM = checkpoint.Form("DART", DartConfig.from_json, DartModel, beside=BESIDE)


def save_official(model: DartModel, head: Tensor, embedding: Tensor, folder: Path) -> None:
    """Write the published form: with the embedding [V, h], the head [C, h] and its token maps."""
    size, covered = embedding.shape[0], head.shape[0]
    if covered != size:
        raise UserError("only a head over the whole vocabulary can be written")
    maps = {
        "d2t": torch.zeros(covered, dtype=torch.int64),
        "t2d": torch.ones(size, dtype=torch.bool),
    }
    weights = {"embed_tokens.weight": embedding, "lm_head.weight": head.clone()}
    checkpoint.write(
        folder, model.config.to_json(), {**model.state_dict(), **weights, **maps}, False
    )


def export(folder: Path, out: Path, load_target: Callable[[], Language]) -> nn.Module:
    """Write a checkpoint of ours in the official form: with the target's embedding and head.

    Raises UserError for one that has a head of its own.
    """
    found = FORM.load_checkpoint(folder, torch.bfloat16, "cpu")
    if found.head is not None:
        raise UserError(f"{folder} has a head of its own: it is in the official format already")
    target = load_target()
    head, embedding = (
        module.state_dict()["weight"]
        for module in (target.head, target.model.get_input_embeddings())
    )
    save_official(found.model, head, embedding, out)
    return found.model
