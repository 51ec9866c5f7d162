"""Small GGUF files, as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from tests import toys

BLOCK = 32  # numbers of a row that share a scale
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
    if tokenizer is None:
        made.add_tokenizer_model("no_vocab")
    else:
        _write_vocabulary(made, tokenizer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, array in matrices(model).items():
        where = names.get_name(name, (".weight",))
        floats = kind == gguf.GGMLQuantizationType.F32
        if array.ndim > 1 and not floats and array.shape[-1] % BLOCK == 0:
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
