"""A plain Llama without transformers, whose import takes a core two seconds and 120 MB.

The same operations in the same order as its ``LlamaForCausalLM``, so the same numbers, bit for bit;
tests hold that. It answers to the same names, as far as the engine, drafters and probes ask. A
CPU's embedded target is read with it; every other model is transformers' own.

Shapes: B batch, N rows, S cache rows, H query heads, D head width, h hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from core.json_input import read_json
from core.models import cache
from core.models.cache import StaticKV, mask_value
from core.models.fast_layers import use_fast_layers
from core.models.layers import MLP
from core.models.stored_embedding import StoredEmbedding

WEIGHTS, EMBEDDING = "model.safetensors", "model.embed_tokens.weight"


class LlamaConfig(SimpleNamespace):
    """The fields of ``config.json``. Not frozen, since Hugging Face's are not."""

    def get_text_config(self) -> LlamaConfig:
        return self

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Output:
    """logits [B, N, V]; hidden_states [B, N, h] by number: 0 the embeddings, i + 1 after layer i
    (after the last, also the final norm)."""

    logits: Tensor
    hidden_states: dict[int, Tensor] = field(default_factory=dict)


class Norm(nn.Module):
    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.hidden_size))
        self.variance_epsilon = config.rms_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        # Not F.rms_norm: it rounds otherwise.
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (x * scale)


class Attention(nn.Module):
    def __init__(self, config: LlamaConfig, number: int):
        super().__init__()
        self.number, self.width = number, config.head_dim
        inner, outer = config.num_attention_heads * config.head_dim, config.hidden_size
        shared = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(outer, inner, bias=False)
        self.k_proj = nn.Linear(outer, shared, bias=False)
        self.v_proj = nn.Linear(outer, shared, bias=False)
        self.o_proj = nn.Linear(inner, outer, bias=False)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, kv: StaticKV | None
    ) -> Tensor:
        query, keys, values = (
            linear(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, keys = rotated(query, *rotary), rotated(keys, *rotary)
        if kv is not None:
            keys, values = kv.update(keys, values, self.number)
        out, _ = cache.grouped_attention(self, query, keys, values, mask, self.width**-0.5)
        return self.o_proj(out.flatten(2))


class Layer(nn.Module):
    def __init__(self, config: LlamaConfig, number: int):
        super().__init__()
        self.self_attn = Attention(config, number)
        self.mlp = MLP(config.hidden_size, config.intermediate_size)
        self.input_layernorm, self.post_attention_layernorm = Norm(config), Norm(config)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, kv: StaticKV | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotary, mask, kv)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaDecoder(nn.Module):
    """The model without its head."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        # Not drawn at random: on the meta device that would import torch's compiler.
        unread = torch.empty(config.vocab_size, config.hidden_size)
        self.embed_tokens: nn.Module = nn.Embedding.from_pretrained(unread)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = Norm(config)


class Llama(nn.Module):
    """A causal LM for inference. Its parameters have transformers' names.

    reads_static_kv  its cache is a ``StaticKV`` as it is
    """

    reads_static_kv = True

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config, self.model = config, LlamaDecoder(config)
        self.lm_head: nn.Module = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.generation_config = SimpleNamespace(eos_token_id=config.eos_token_id)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.norm.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.model.norm.weight.device

    def get_decoder(self) -> LlamaDecoder:
        return self.model

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, head: nn.Module) -> None:
        self.lm_head = head

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: StaticKV | None = None,
        use_cache: bool = False,
        output_hidden_states: Collection[int] = (),
        logits_to_keep: int = 0,
        inputs_embeds: Tensor | None = None,
    ) -> Output:
        """Rows [B, N], or ``inputs_embeds`` [B, N, h], with an additive mask [1, 1, N, S] (None:
        causal).

        output_hidden_states  the numbers of those that are wanted: of 1,024 rows all take 70 MB
        logits_to_keep        logits of so many last rows; 0: of all
        """
        x = self.model.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        wanted = frozenset(output_hidden_states)
        seen = cache.length if cache is not None else 0
        count = x.shape[1]
        if attention_mask is None:
            closed = x.new_full((1, 1, count, seen + count), mask_value(x.dtype))
            attention_mask = closed.triu(1 + seen)
        if position_ids is None:
            position_ids = torch.arange(seen, seen + count, device=x.device)[None]
        rotary, kept = self._rotary(position_ids), {0: x} if 0 in wanted else {}
        for number, layer in enumerate(self.model.layers, 1):
            x = layer(x, rotary, attention_mask, cache)
            if number == len(self.model.layers):
                x = self.model.norm(x)
            if number in wanted:
                kept[number] = x
        return Output(self.lm_head(x[:, -logits_to_keep:]), kept)

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [B, 1, N, D]."""
        width, base = self.config.head_dim, self.config.rope_parameters["rope_theta"]
        every = torch.arange(0, width, 2, dtype=torch.float, device=positions.device)
        angles = positions[..., None].float() * (1.0 / (base ** (every / width)))
        angles = torch.cat((angles, angles), -1)[:, None]
        return angles.cos(), angles.sin()


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[B, H, N, D] turned by its rows' positions."""
    low, high = x.chunk(2, -1)
    return (x * cos) + (torch.cat((-high, low), -1) * sin)


def load(folder: Path) -> Llama:
    """A folder's model for inference in float32 on a CPU, whose head is its embedding.

    Layer by layer, so that the weights are never there twice. The embedding stays in its file.
    """
    file = folder / WEIGHTS
    with torch.device("meta"):
        model = Llama(LlamaConfig(**read_config(folder)))
    stored = StoredEmbedding(file, EMBEDDING, torch.float32)
    model.model.embed_tokens = stored
    for at, layer in enumerate(model.model.layers):
        _fill(layer, file, f"model.layers.{at}.")
    _fill(model.model.norm, file, "model.norm.")
    head: Any = model.lm_head
    head.weight = nn.Parameter(stored.weight, requires_grad=False)
    use_fast_layers(model, torch.float32, torch.device("cpu"))
    return model.eval()


def read_config(folder: Path) -> dict[str, Any]:
    raw = read_json(folder / "config.json")
    assert isinstance(raw, dict)
    return raw


def _fill(module: nn.Module, file: Path, prefix: str) -> None:
    """Load a part's weights, and pack them at once."""
    with safe_open(file, "pt") as stored:
        state = {n: stored.get_tensor(prefix + n).float() for n in module.state_dict()}
    module.load_state_dict(state, assign=True)
    module.requires_grad_(False)
    use_fast_layers(module, torch.float32, torch.device("cpu"))
