"""Hydra++ in its published layout, and the method from its tensors alone."""

import json
import math

import torch
from safetensors.torch import save_file

from core.methods.hydra.drafter import load
from core.methods.method import QOptions
from core.models.language import Language
from tests.helpers import toys
from tests.helpers.drafter_reference import mlp, norm, rotate

LAYERS, HEADS, WIDTH = 4, 4, 32
P = "prefix_embeding_layer."


def tensors(vocabulary, target, seed=5):
    """The tensors of ``hydra_lm_head.pt`` for a target of the toys' sizes, float32."""
    own = target.config
    q = own.num_attention_heads * head_width(own)
    kv = own.num_key_value_heads * head_width(own)
    middle, size = own.intermediate_size, WIDTH
    shapes = {
        f"{P}layers.0.self_attn.q_proj.weight": (q, size),
        f"{P}layers.0.self_attn.k_proj.weight": (kv, size),
        f"{P}layers.0.self_attn.v_proj.weight": (kv, size),
        f"{P}layers.0.self_attn.o_proj.weight": (size, q),
        f"{P}layers.0.self_attn.rotary_emb.inv_freq": (head_width(own) // 2,),
        f"{P}layers.0.mlp.gate_proj.weight": (middle, size),
        f"{P}layers.0.mlp.up_proj.weight": (middle, size),
        f"{P}layers.0.mlp.down_proj.weight": (size, middle),
        f"{P}layers.0.input_layernorm.weight": (size,),
        f"{P}layers.0.post_attention_layernorm.weight": (size,),
        f"{P}norm.weight": (size,),
    }
    for i in range(HEADS):
        for part in ("linear", "res_connection"):
            shapes[f"hydra_mlp.{i}.1.{part}.weight"] = (size, (i + 2) * size)
            shapes[f"hydra_mlp.{i}.1.{part}.bias"] = (size,)
        shapes[f"hydra_mlp.{i}.3.linear.weight"] = (size, size)
        shapes[f"hydra_mlp.{i}.3.linear.bias"] = (size,)
        shapes[f"hydra_lm_head.{i}.1.weight"] = (vocabulary, size)
        shapes[f"hydra_lm_head.{i}.1.bias"] = (vocabulary,)
    rng, made = torch.Generator().manual_seed(seed), {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=rng)
        made[name] = 1 + 0.3 * noise if "norm" in name else 0.3 * noise
    for i in range(HEADS):  # one block, applied three times and stored as often
        for part in ("weight", "bias"):
            for again in (5, 7):
                block = made[f"hydra_mlp.{i}.3.linear.{part}"]
                made[f"hydra_mlp.{i}.{again}.linear.{part}"] = block.clone()
    made["input_embed_fn.weight"] = target.get_input_embeddings().weight.detach().float().clone()
    unused = torch.randn(vocabulary, size, generator=rng)
    unused[0] = 0  # of the padding token, as the reference leaves it
    return made | {f"{P}embed_tokens.weight": unused}


def head_width(config):
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


CONFIG = {
    "hydra_num_heads": HEADS,
    "hydra_num_layers": LAYERS,
    "hydra_head_arch": "prefix-mlp",
    "base_model_name_or_path": "x/y",
    "grounded_heads": True,
    "hidden_state_offset": 0,
    "transformers_version": "4.34.1",
}


def published(folder, target, changes=None, fields=None, vocabulary=toys.VOCABULARY):
    """A folder in the official layout; ``changes``: tensors by name, None: left out."""
    folder.mkdir(exist_ok=True)
    state = tensors(vocabulary, target) | (changes or {})
    save_file({n: t for n, t in state.items() if t is not None}, folder / "model.safetensors")
    config = CONFIG | (fields or {})
    config = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return state


def slow_hidden(w, config, rope, features):
    """Compute what the heads read after tokens with these features [T, h]: each row, token by
    token and head by head."""
    eps, width = config.rms_norm_eps, head_width(config)
    share = config.num_attention_heads // config.num_key_value_heads
    layer = {n.removeprefix(f"{P}layers.0."): t for n, t in w.items()}
    keys, values, out = [], [], None
    for i, feature in enumerate(features):
        x = norm(feature, layer["input_layernorm.weight"], eps)
        query, key, value = (layer[f"self_attn.{n}_proj.weight"] @ x for n in "qkv")
        query, key, value = (part.view(-1, width) for part in (query, key, value))
        keys.append(torch.stack([rotate(row, i, rope) for row in key]))
        values.append(value)
        mixed = []
        for head, row in enumerate(query):
            seen = torch.stack([k[head // share] for k in keys])
            odds = (seen @ rotate(row, i, rope) / math.sqrt(width)).softmax(-1)
            mixed.append(odds @ torch.stack([v[head // share] for v in values]))
        x = feature + layer["self_attn.o_proj.weight"] @ torch.cat(mixed)
        x = x + mlp(norm(x, layer["post_attention_layernorm.weight"], eps), layer)
        out = norm(x, w[f"{P}norm.weight"], eps)
    return out


def heads_on(w, hidden, path):
    """Logits [V] of the head of a path's depth on a hidden state [h]."""

    def affine(name, x):
        return w[f"{name}.weight"] @ x + w[f"{name}.bias"]

    def silu(x):
        return x / (1 + (-x).exp())

    mine = f"hydra_mlp.{len(path) - 1}."
    embedded = [w["input_embed_fn.weight"][token] for token in path]
    x = torch.cat([hidden, *embedded])
    x = affine(f"{mine}1.res_connection", x) + silu(affine(f"{mine}1.linear", x))
    for number in (3, 5, 7):
        x = x + silu(affine(f"{mine}{number}.linear", x))
    return affine(f"hydra_lm_head.{len(path) - 1}.1", x)


def toy_language(family="llama", target=None):
    """A target over the toys' small vocabulary."""
    target = target or toys.model(family)
    return Language("toy", target, toys.tokenizer(), None)


def loaded(folder, family="llama", **more):
    language = toy_language(family)
    state = published(folder, language.model, **more)
    drafter = load(language, folder, QOptions())
    return drafter, {name: tensor.double() for name, tensor in state.items() if tensor is not None}
