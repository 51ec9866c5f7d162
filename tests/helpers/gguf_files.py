"""Small GGUF files, as llama.cpp's converter writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from tests.helpers import toys

BLOCK_SIZE = 32  # numbers of a row that share a scale
SIZES = ("num_attention_heads", "num_key_value_heads")


def write_llama(
    model: Any,
    file: Path,
    tokenizer: Any = None,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
) -> None:
    """A Llama's weights, its matrices in blocks of this kind where their width allows, and a
    byte-level vocabulary, or none."""
    config, made = model.config, gguf.GGUFWriter(file, "llama")
    made.add_block_count(config.num_hidden_layers)
    made.add_context_length(config.max_position_embeddings)
    made.add_embedding_length(config.hidden_size)
    made.add_feed_forward_length(config.intermediate_size)
    made.add_head_count(config.num_attention_heads)
    made.add_head_count_kv(config.num_key_value_heads)
    made.add_layer_norm_rms_eps(config.rms_norm_eps)
    made.add_rope_dimension_count(config.head_dim)
    made.add_rope_freq_base(config.rope_parameters["rope_theta"])
    made.add_vocab_size(config.vocab_size)
    for each in set(gguf.GGUFValueType) - {gguf.GGUFValueType.STRING, gguf.GGUFValueType.ARRAY}:
        made.add_key_value(f"toy.{each.name}", 1, each)
    if tokenizer is None:
        made.add_tokenizer_model("no_vocab")
    else:
        _write_vocabulary(made, tokenizer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, array in matrices(model).items():
        where = names.get_name(name, (".weight",))
        floats = kind == gguf.GGMLQuantizationType.F32
        if array.ndim > 1 and not floats and array.shape[-1] % BLOCK_SIZE == 0:
            made.add_tensor(where, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            made.add_tensor(where, array)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def matrices(model: Any) -> dict[str, np.ndarray]:
    """A Llama's weights in llama.cpp's order: it turns neighbours where Hugging Face turns the
    halves of a head. A head that is the embedding is left out, as llama.cpp's converter does."""
    config = model.config
    heads = dict(zip(("q_proj", "k_proj"), (getattr(config, size) for size in SIZES), strict=True))
    found = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        for part, count in heads.items():
            if part in name:
                tensor = tensor.unflatten(0, (count, 2, -1)).transpose(1, 2).flatten(0, 2)
        found[name] = tensor.contiguous().numpy()
    return found


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with as many tokens as ``toys.tokenizer``, and the merge that GGUF needs."""
    letters = [*sorted(ByteLevel.alphabet())[:-1], "ab"]
    bpe = Tokenizer(BPE({letter: i for i, letter in enumerate(letters)}, [("a", "b")]))
    bpe.pre_tokenizer, bpe.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    bpe.add_special_tokens(["<|end|>", "<|start|>", "<|mask|>"])
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|end|>")
    made.chat_template = toys.TEMPLATE
    return made


def _write_vocabulary(made: gguf.GGUFWriter, tokenizer: Any) -> None:
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    special = {str(t) for t in tokenizer.added_tokens_decoder.values() if t.special}
    kinds = [gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens]
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    made.add_tokenizer_model("gpt2")
    made.add_token_list(tokens)
    made.add_token_types(kinds)
    made.add_token_merges([" ".join(pair) for pair in merges])
    if tokenizer.eos_token_id is not None:
        made.add_eos_token_id(tokenizer.eos_token_id)
    if tokenizer.chat_template:
        made.add_chat_template(tokenizer.chat_template)


# llama.cpp's names of a drafter's tensors, by what they are called in safetensors.
BLOCK = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
EAGLE = {"hidden_norm": "attn_norm_2", "input_norm": "enc.output_norm"}
DFLASH = {
    "hidden_norm": "enc.output_norm", "markov_head.markov_w1": "markov_w1",
    "markov_head.markov_w2": "markov_w2", "confidence_head.proj": "conf_proj",
    "confidence_head.proj.bias": "conf_proj.bias",
    "attention_conv.base_kernel": "attn_conv_base",
    "attention_conv.kernel_projection": "attn_conv_proj",
    "mlp_conv.base_kernel": "ffn_conv_base", "mlp_conv.kernel_projection": "ffn_conv_proj",
    "candidate_selector.hidden_projection": "selector_hidden",
    "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
    "candidate_selector.successor_codebook": "selector_successor.weight",
}  # fmt: skip
# Fields that DFlash's relatives have in config.json and in a file.
RELATIVES = ("sample_from_anchor", "selector_rank", "selector_top_k", "conv_kernel_size",
             "conv_group_size")  # fmt: skip
YARN = {
    "rope_type": "rope.scaling.type", "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
}  # fmt: skip
ENDS = {"norm": "output_norm", "lm_head": "output", "embed_tokens": "token_embd"}


def write_drafter(
    folder: Path,
    file: Path,
    kind: str,
    stored: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    change: Callable[[dict[str, Any], dict[str, Tensor]], Any] = lambda fields, state: None,
) -> None:
    """A folder of EAGLE-3, DFlash or its relatives as llama.cpp's converter writes it: ``kind`` is
    the architecture. ``change`` gets its own fields and tensors before they are written."""
    raw = json.loads((folder / "config.json").read_text())
    found = load_file(folder / "model.safetensors")
    fields, state = _drafter_fields(raw, kind), dict[str, Any]()
    for name, tensor in found.items():
        if name == "t2d":
            continue
        tensor = tensor + torch.arange(len(tensor)) if name == "d2t" else tensor.float()
        if kind == "eagle3" and ("q_proj" in name or "k_proj" in name):
            count = raw[SIZES["k_proj" in name]]
            tensor = tensor.unflatten(0, (count, 2, -1)).transpose(1, 2).flatten(0, 2)
        state[_llama_name(name, EAGLE if kind == "eagle3" else DFLASH)] = tensor.contiguous()
    rope = raw.get("rope_scaling") or {}
    if rope.get("rope_type") == "llama3":
        state["rope_freqs.weight"] = _llama3(rope, raw["rope_theta"], raw["head_dim"])
    tokens = [str(i) for i in range(raw["vocab_size"])]
    change(fields, state)
    made = gguf.GGUFWriter(file, fields.pop("architecture", kind))
    _write_fields(made, made.arch, fields)
    made.add_tokenizer_model("gpt2")
    made.add_token_list(tokens)
    if kind == "dflash":
        made.add_mask_token_id(raw["dflash_config"]["mask_token_id"])
    for name, tensor in state.items():
        array, plain = tensor.numpy(), stored == gguf.GGMLQuantizationType.F32
        if plain or array.ndim < 2 or array.shape[-1] % BLOCK_SIZE:
            made.add_tensor(name, array)
        else:
            made.add_tensor(name, gguf.quantize(array, stored), raw_dtype=stored)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def _llama_name(name: str, own: dict[str, str]) -> str:
    stem = name.removesuffix(".weight").replace("midlayer.", "layers.0.")
    block, inner = re.fullmatch(r"(?:layers\.(\d+)\.)?(.*)", stem).groups()
    theirs = {**BLOCK, **ENDS, **own}.get(inner, inner)
    end = ".weight" if name.endswith(".weight") else ""
    return f"blk.{block}.{theirs}{end}" if block else theirs + end


def _drafter_fields(raw: dict[str, Any], kind: str) -> dict[str, Any]:
    fields = {
        "block_count": raw["num_hidden_layers"],
        "context_length": raw["max_position_embeddings"],
        "embedding_length": raw["hidden_size"],
        "feed_forward_length": raw["intermediate_size"],
        "attention.head_count": raw["num_attention_heads"],
        "attention.head_count_kv": raw["num_key_value_heads"],
        "attention.key_length": raw["head_dim"],
        "attention.value_length": raw["head_dim"],
        "attention.layer_norm_rms_epsilon": float(raw["rms_norm_eps"]),
        "rope.freq_base": float(raw["rope_theta"]),
    }
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if rope.get("rope_type") == "yarn":
        fields |= {YARN[name]: value for name, value in rope.items() if name in YARN}
    if kind == "eagle3":
        return fields | {
            "vocab_size": raw["vocab_size"],
            "rope.dimension_count": raw["head_dim"],
            "target_layers": raw.get("eagle_aux_hidden_state_layer_ids") or [2, 2, 1],
            "target_hidden_size": raw["target_hidden_size"] or raw["hidden_size"],
            "norm_before_residual": raw["norm_before_residual"],
            "norm_before_fc": raw["norm_before_fc"],
        }
    own = {"target_layers": [i + 1 for i in raw["dflash_config"]["target_layer_ids"]]}
    own |= {"block_size": raw["block_size"]}
    own |= {name: raw[name] for name in RELATIVES if name in raw}
    if raw.get("is_causal") is False:
        own["attention.causal"] = False
    if raw.get("use_sliding_window"):
        slides = [kind == "sliding_attention" for kind in raw["layer_types"]]
        own |= {"attention.sliding_window": raw["sliding_window"]}
        own |= {"attention.sliding_window_pattern": slides}
    return fields | own


def _llama3(rope: dict[str, Any], theta: float, width: int) -> Tensor:
    """The factors by which llama.cpp divides frequencies."""
    plain = theta ** -(torch.arange(0, width, 2).double() / width)
    length, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = (length * plain / (2 * torch.pi) - low) / (high - low)
    return (1 / ((1 - smooth.clamp(0, 1)) / factor + smooth.clamp(0, 1))).float()


def _write_fields(made: gguf.GGUFWriter, arch: str, fields: dict[str, Any]) -> None:
    """Whole numbers as uint32, others as float32, as the converter writes them."""
    for name, value in fields.items():
        name = f"{arch}.{name}"
        if isinstance(value, bool):
            made.add_bool(name, value)
        elif isinstance(value, int):
            made.add_uint32(name, value)
        elif isinstance(value, float):
            made.add_float32(name, value)
        elif isinstance(value, str):
            made.add_string(name, value)
        else:
            made.add_array(name, value)


# ── Qwen3.5 with a head behind its layers ────────────────────────────────────────────────────────

QWEN = {
    **BLOCK, "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out", "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias", "post_attention_layernorm": "post_attention_norm",
    "mlp.gate": "ffn_gate_inp", "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}  # fmt: skip
NEXTN = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm",
         "norm": "shared_head_norm"}  # fmt: skip


def write_qwen(folder: Path, file: Path, tokenizer: Any, heads: int = 1) -> None:
    """A folder of Qwen3.5 whose head is in Qwen's layout, as llama.cpp's converter writes it."""
    raw = json.loads((folder / "config.json").read_text())
    arch = "qwen35moe" if "moe" in raw["model_type"] else "qwen35"
    made, layers = gguf.GGUFWriter(file, arch), raw["num_hidden_layers"]
    rope, width = raw["rope_parameters"], raw["head_dim"]
    fields = {
        "block_count": layers + heads, "context_length": raw["max_position_embeddings"],
        "embedding_length": raw["hidden_size"], "attention.head_count": raw["num_attention_heads"],
        "attention.head_count_kv": raw["num_key_value_heads"], "attention.key_length": width,
        "attention.value_length": width, "nextn_predict_layers": heads,
        "attention.layer_norm_rms_epsilon": float(raw["rms_norm_eps"]),
        "full_attention_interval": 2, "ssm.conv_kernel": raw["linear_conv_kernel_dim"],
        "ssm.state_size": raw["linear_key_head_dim"],
        "ssm.group_count": raw["linear_num_key_heads"],
        "ssm.time_step_rank": raw["linear_num_value_heads"],
        "ssm.inner_size": raw["linear_value_head_dim"] * raw["linear_num_value_heads"],
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_sections": [*rope.get("mrope_section", [11, 11, 10]), 0],
        "rope.dimension_count": int(width * rope["partial_rotary_factor"]),
    }  # fmt: skip
    if arch == "qwen35":
        fields["feed_forward_length"] = raw["intermediate_size"]
    else:
        fields |= {
            "expert_feed_forward_length": raw["moe_intermediate_size"],
            "expert_shared_feed_forward_length": raw["shared_expert_intermediate_size"],
            "expert_count": raw["num_experts"], "expert_used_count": raw["num_experts_per_tok"],
        }  # fmt: skip
    _write_fields(made, arch, fields)
    _write_vocabulary(made, tokenizer)
    for name, tensor in load_file(folder / "model.safetensors").items():
        for theirs, values in _qwen_tensors(name, tensor.float(), raw):
            made.add_tensor(theirs, values.contiguous().numpy())
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def _qwen_tensors(name: str, tensor: Tensor, raw: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    if (name.endswith("norm.weight") and "linear_attn" not in name) or "pre_fc_norm" in name:
        tensor = tensor + 1
    last = raw["num_hidden_layers"]
    name = name.removeprefix("model.").replace("mtp.layers.0.", f"layers.{last}.")
    if name.startswith("mtp."):
        yield f"blk.{last}.nextn.{NEXTN[name.split('.')[1]]}.weight", tensor
    elif name.endswith("experts.gate_up_proj"):
        block = name.split(".")[1]
        for part, half in zip(("gate", "up"), tensor.chunk(2, 1), strict=True):
            yield f"blk.{block}.ffn_{part}_exps.weight", half
    else:
        yield _qwen_name(name), _tiled(name, tensor, raw)


def _qwen_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    block, inner = re.fullmatch(r"(?:layers\.(\d+)\.)?(.*)", stem).groups()
    theirs = {**QWEN, **ENDS}.get(inner, inner) + ".weight" * name.endswith(".weight")
    return f"blk.{block}.{theirs}" if block else theirs


def _tiled(name: str, tensor: Tensor, raw: dict[str, Any]) -> Tensor:
    """The heads of values as llama.cpp repeats them: the first of each group, then the second."""
    groups, width = raw["linear_num_key_heads"], raw["linear_value_head_dim"]
    each, before = raw["linear_num_value_heads"] // groups, 2 * raw["linear_key_head_dim"] * groups

    def turned(rows: Tensor, size: int) -> Tensor:
        return rows.unflatten(0, (groups, each, size)).transpose(0, 1).flatten(0, 2)

    if "A_log" in name:
        return turned(-tensor.exp(), 1)
    if "dt_bias" in name or "in_proj_a" in name or "in_proj_b" in name:
        return turned(tensor, 1)
    if "in_proj_z" in name:
        return turned(tensor, width)
    if "in_proj_qkv" in name or "conv1d" in name:
        tensor = tensor.squeeze(1) if "conv1d" in name else tensor
        return torch.cat([tensor[:before], turned(tensor[before:], width)])
    return turned(tensor.T, width).T if "linear_attn.out_proj" in name else tensor
