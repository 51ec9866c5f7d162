"""The Hydra and Hydra++ heads (arXiv 2402.05109). Head i, from 0, reads a hidden state h_t and the
embeddings of the root and of i tokens after it.

Hydra's h_t is the target's last hidden state, after the final norm. Hydra++'s is the output of a
Llama layer and a norm over the last hidden states of the whole text, and its heads have more
blocks. That layer is made from the target's config: its tensors tell the widths, and only the
target the width of a head, the norms' ε and the rotary positions.

Parameter names are those of the reference (zankner/Hydra), which counts a dropout before every part
of Hydra++'s heads. It applies one block n − 1 times and stores it n − 1 times; any n − 1 blocks are
read here. Its rotary base is always 10,000, as Vicuna's is; here it is the target's. The published
``hydra_lm_head.pt`` was not at hand: the layout is that of the code that writes it.

Our own heads add the hidden state itself where the published ones have ``res_connection``, a matrix
on the whole input, and share the target's head. Sizes are read off the tensors' shapes.

Shapes: N rows, T tokens, L heads, h hidden width, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig

from core.errors import UserError
from core.methods.heads import OnLastHidden, count_heads
from core.models import checkpoint
from core.models.language import Language
from core.models.layer_fields import layer_fields
from core.models.layers import DecoderLayer, LayerContext, RMSNorm, Rope, Rotary, Shape

PLAIN, PLUS = "mlp", "prefix-mlp"  # Hydra and Hydra++, as published configs name them
PREFIX = "prefix_embeding_layer."
# What the published files also hold: copies of the target's embedding, and one never used.
UNREAD = (
    "input_embed_fn.weight",
    f"{PREFIX}embed_tokens.weight",
    f"{PREFIX}layers.0.self_attn.rotary_emb.inv_freq",
)


@dataclass(frozen=True)
class Prefix:
    """The widths of the layer before Hydra++'s heads. 0: not known yet.

    queries, keys  of all heads of its attention; ``keys`` also of the values
    head_dim       of one head
    """

    intermediate_size: int = 0
    queries: int = 0
    keys: int = 0
    head_dim: int = 0
    rms_norm_eps: float = 1e-6

    @staticmethod
    def from_shapes(shapes: Mapping[str, tuple[int, ...]]) -> Prefix:
        """Raises UserError when a tensor is missing."""
        parts = ("mlp.up_proj", "self_attn.q_proj", "self_attn.k_proj")
        return Prefix(*(_rows(shapes, f"{PREFIX}layers.0.{part}.weight") for part in parts))


@dataclass(frozen=True)
class HydraConfig(OnLastHidden):
    """heads  L, one for each depth

    res_connection  a matrix on the input stands where the hidden state is added
    vocab_size      0: the heads end in the target's own head
    head_bias       heads of their own have biases
    layers          blocks of a head; 0: not known yet
    prefix          the layer before the heads; None: they read the target's hidden states
    rope            that layer's rotary positions; None: not known yet, or no layer
    """

    heads: int
    hidden_size: int
    res_connection: bool = False
    vocab_size: int = 0
    head_bias: bool = False
    layers: int = 1
    prefix: Prefix | None = None
    rope: Rope | None = None

    @property
    def of_target(self) -> dict[str, int]:
        """The sizes that the target must have, by name; those that are not known are left out."""
        prefix = self.prefix or Prefix()
        widths = {
            "width of all query heads": prefix.queries,
            "width of all key heads": prefix.keys,
        }
        return super().of_target | {name: width for name, width in widths.items() if width}

    @property
    def shape(self) -> Shape:
        """The shape of the layer before the heads. Before the target is known it has one key
        head."""
        prefix = self.prefix or Prefix()
        width = prefix.head_dim or prefix.keys
        return Shape(
            hidden=self.hidden_size,
            intermediate=prefix.intermediate_size,
            heads=prefix.queries // width,
            groups=prefix.keys // width,
            head_dim=width,
            inputs=self.hidden_size,
            eps=prefix.rms_norm_eps,
            qk_norm=False,
        )

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> HydraConfig:
        """Read a config before the weights are fetched; published ones say little.

        Raises UserError for heads of another kind.
        """
        kind = raw.get("hydra_head_arch", PLAIN)
        if kind not in (PLAIN, PLUS):
            raise UserError(
                f"Hydra heads of the kind {kind!r} are not supported: only {PLAIN!r} and {PLUS!r}"
            )
        if not raw.get("grounded_heads", True):
            raise UserError("Hydra heads that do not read the drafted tokens are not supported")
        if offset := raw.get("hidden_state_offset", 0):
            where = f"the hidden state {offset!r} layers before the last"
            raise UserError(f"Hydra heads on {where} are not supported")
        hidden, size = (raw.get(name, 0) for name in ("hidden_size", "vocab_size"))
        heads, layers = (raw.get(f"hydra_num_{name}", 0) for name in ("heads", "layers"))
        prefix = Prefix() if kind == PLUS else None
        return HydraConfig(heads, hidden, vocab_size=size, layers=layers, prefix=prefix)

    @staticmethod
    def from_shapes(shapes: Mapping[str, tuple[int, ...]], said: HydraConfig) -> HydraConfig:
        """The config of a file's tensors. Raises UserError for other heads than ``said`` is of."""
        plus = any(name.startswith(PREFIX) for name in shapes)
        if plus != (said.prefix is not None):
            kinds = (f"has {PREFIX}*", PLAIN) if plus else (f"has no {PREFIX}*", PLUS)
            raise UserError(f"its file {kinds[0]}, and its config says hydra_head_arch {kinds[1]}")
        dropout = "1." if plus else ""  # counted before what it stands for
        first, own = f"hydra_mlp.0.{dropout or '0.'}", f"hydra_lm_head.0.{dropout}"
        width = _rows(shapes, f"{first}linear.weight")
        if shapes[f"{first}linear.weight"] != (width, 2 * width):
            raise UserError(f"{first}linear.weight does not read a hidden state and one token")
        layers = sum(bool(re.fullmatch(r"hydra_mlp\.0\.\d+\.linear\.weight", n)) for n in shapes)
        if said.layers not in (0, layers):
            raise UserError(
                f"its config says hydra_num_layers {said.layers!r}, and its file has {layers} "
                "blocks of a head: one that is applied again is stored again"
            )
        return HydraConfig(
            count_heads(shapes, "hydra_mlp."),
            width,
            f"{first}res_connection.weight" in shapes,
            shapes.get(f"{own}weight", (0,))[0],
            f"{own}bias" in shapes,
            layers,
            Prefix.from_shapes(shapes) if plus else None,
        )

    def made_for(self, target: PreTrainedConfig) -> HydraConfig:
        """The config with what only the target tells of the layer before the heads.

        Raises UserError for rotary positions of a kind that is not supported, and KeyError for a
        target without attention heads.
        """
        if self.prefix is None:
            return self
        found = layer_fields(target.get_text_config().to_dict(), positions=0)
        told = {name: found[name] for name in ("head_dim", "rms_norm_eps")}
        return replace(self, prefix=replace(self.prefix, **told), rope=found["rope"])

    def to_json(self) -> dict[str, Any]:
        """The published fields, and the sizes that are compared with the target's."""
        return {
            "model_type": "hydra",
            "hydra_num_heads": self.heads,
            "hydra_num_layers": self.layers,
            "hydra_head_arch": PLAIN if self.prefix is None else PLUS,
            "grounded_heads": True,
            "hidden_state_offset": 0,
            "hidden_size": self.hidden_size,
            "vocab_size": self.vocab_size,
        }


def _rows(shapes: Mapping[str, tuple[int, ...]], name: str) -> int:
    """Rows of a matrix. Raises UserError when there is none of this name."""
    if len(shape := shapes.get(name, ())) != 2:
        raise UserError(f"it has no matrix {name}")
    return shape[0]


class HydraBlock(nn.Module):
    """x₀ + SiLU(Wx + b) or Rx + SiLU(Wx + b), where x₀ is the first h numbers of x; W and b zero at
    the start."""

    def __init__(self, width: int, tokens: int, res_connection: bool):
        """``tokens``: how many embeddings come with a hidden state in x."""
        super().__init__()
        inputs = (tokens + 1) * width
        self.linear = nn.Linear(inputs, width)
        for parameter in self.linear.parameters():
            nn.init.zeros_(parameter)
        self.res_connection = nn.Linear(inputs, width) if res_connection else None

    def forward(self, x: Tensor) -> Tensor:
        """[N, (tokens + 1)·h] → [N, h]."""
        own = self.res_connection
        kept = x[:, : self.linear.out_features] if own is None else own(x)
        return kept + F.silu(self.linear(x))


class HydraModel(nn.Module):
    """The heads, each a sequence of blocks and, where it has one, its own linear head."""

    def __init__(self, config: HydraConfig):
        super().__init__()
        self.config = config
        self.hydra_mlp = nn.ModuleList(self._blocks(i + 1) for i in range(config.heads))
        self.hydra_lm_head = nn.ModuleList(
            self._own_head() for _ in range(config.heads if config.vocab_size else 0)
        )

    def _blocks(self, tokens: int) -> nn.Sequential:
        """The first block reads the embeddings; the others add what they compute to their rows."""
        c = self.config
        blocks = [HydraBlock(c.hidden_size, tokens, c.res_connection)]
        blocks += (HydraBlock(c.hidden_size, 0, False) for _ in range(c.layers - 1))
        return nn.Sequential(*(part for block in blocks for part in (*self._dropout(), block)))

    def _own_head(self) -> nn.Module:
        c = self.config
        linear = nn.Linear(c.hidden_size, c.vocab_size, bias=c.head_bias)
        return nn.Sequential(*self._dropout(), linear) if c.prefix else linear

    def _dropout(self) -> list[nn.Module]:
        """Return the place that a dropout takes in the numbering of published tensor names."""
        return [nn.Identity()] if self.config.prefix else []

    def forward(self, hidden: Tensor, path: Tensor) -> Tensor:
        """The hidden states [N, h] and the embeddings of the root and i tokens [N, i + 1, h] → rows
        [N, h] for the target's head at depth i + 1, or the head's own logits [N, V]."""
        head = path.shape[1] - 1
        rows = self.hydra_mlp[head](torch.cat([hidden, path.flatten(1)], -1))
        return self.hydra_lm_head[head](rows) if self.config.vocab_size else rows


class PrefixLayer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.layers = nn.ModuleList([DecoderLayer(shape)])
        self.norm = RMSNorm(shape.hidden, shape.eps)


class HydraPlusModel(HydraModel):
    """Hydra++: the heads, and a layer that makes the hidden states that they read.

    Its keys and values depend on the target's hidden states alone. So a text's tokens are only
    projected, and the layer itself runs for the last one before a root.
    """

    def __init__(self, config: HydraConfig):
        super().__init__(config)
        self.prefix_embeding_layer = PrefixLayer(config.shape)

    @property
    def like(self) -> Tensor:
        """A tensor on its device and in its precision."""
        return self.prefix_embeding_layer.norm.weight

    @property
    def _layer(self) -> Any:
        return self.prefix_embeding_layer.layers[0]

    def _rotary(self, positions: Tensor) -> Rotary:
        rope = self.config.rope
        assert rope is not None, "it was loaded for no target"
        return Rotary.at(positions, self.config.shape.head_dim, rope, self.like.dtype)

    def project(self, hidden: Tensor, positions: Tensor) -> LayerContext:
        """The target's last hidden states [T, h] of tokens at their positions → keys and values."""
        normed = self._layer.input_layernorm(hidden)
        return self._layer.self_attn.keys_values(normed, self._rotary(positions))

    def attend(self, hidden: Tensor, positions: Tensor, context: LayerContext) -> Tensor:
        """The last hidden states [N, h] of tokens at their positions, with the keys and values of
        at least all tokens before them → what the heads read, [N, h]."""
        visible = torch.arange(context.rows, device=hidden.device) < positions[:, None]
        rows = self._layer(hidden[:, None], context, self._rotary(positions), visible)
        return self.prefix_embeding_layer.norm(rows[:, 0])


def network(config: HydraConfig) -> HydraModel:
    return HydraModel(config) if config.prefix is None else HydraPlusModel(config)


def official_name(name: str) -> str:
    """A tensor's name in the reference, of the name in our earlier files: those of Medusa's."""
    name = re.sub(r"^(\d+)\.0\.", r"hydra_mlp.\1.0.", name)
    return re.sub(r"^(\d+)\.1\.weight$", r"hydra_lm_head.\1.weight", name)


FORM = checkpoint.Form(
    "Hydra",
    HydraConfig.from_json,
    network,
    sizes=HydraConfig.from_shapes,
    unread=UNREAD,
    rename=official_name,
)


def form_for(target: PreTrainedConfig) -> checkpoint.Form[HydraConfig, HydraModel]:
    """The form of heads that draft for a target."""
    return replace(
        FORM, sizes=lambda shapes, said: HydraConfig.from_shapes(shapes, said).made_for(target)
    )


def _one_block_again(model: HydraModel) -> bool:
    """Whether the blocks after each head's first are one and the same, as in the reference."""
    heads = ([part for part in head if isinstance(part, HydraBlock)] for head in model.hydra_mlp)  # type: ignore[attr-defined]
    return all(
        torch.equal(*pair)
        for blocks in heads
        for block in blocks[2:]
        for pair in zip(blocks[1].parameters(), block.parameters(), strict=True)
    )


def export(folder: Path, out: Path, load_target: Callable[[], Language]) -> nn.Module:
    """Write a checkpoint of ours in the official form.

    The reference loads without complaint a file that lacks its parts, and leaves these random. So
    all of them are written out: ``res_connection`` = [I 0], which passes the hidden state on, heads
    that are the target's, and biases of zero. Raises UserError for blocks that it cannot hold.
    """
    model = FORM.load_model(folder, torch.bfloat16, "cpu")
    own, state = model.config, dict(model.state_dict())
    if not _one_block_again(model):
        raise UserError(f"{folder}: the official form holds one block that is applied again")
    head = None if own.vocab_size else load_target().head.state_dict()["weight"]
    size = own.vocab_size or cast(Tensor, head).shape[0]
    with torch.device("meta"):
        whole = network(replace(own, res_connection=True, vocab_size=size, head_bias=True))
    for name, part in whole.state_dict().items():
        if name in state:
            continue
        state[name] = made = torch.zeros(part.shape, dtype=torch.bfloat16)
        if name.endswith("res_connection.weight"):
            made[:, : own.hidden_size] = torch.eye(own.hidden_size)
        elif head is not None and name.endswith("weight"):
            made.copy_(head)
    whole.load_state_dict(state, assign=True)
    FORM.save_model(whole, out)
    return whole
