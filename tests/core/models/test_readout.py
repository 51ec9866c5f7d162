"""A target's ends against the whole model: random small ones of each kind that scales or caps."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import save_file

from core.decoding.dumps import read_dump, reading_of
from core.errors import UserError
from core.models.language import Language
from core.models.readout import Readout, entering
from core.train.collect import Collector

SMALL = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 64, "initializer_range": 0.5,
}  # fmt: skip
LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4}
TEXT_ONLY = {"vocab_size_per_layer_input": 40, "hidden_size_per_layer_input": 4}
KINDS = {
    "Gemma2": {"final_logit_softcapping": 1.5},
    "Gemma3": {"final_logit_softcapping": 1.5},
    "Gemma3 ": {"final_logit_softcapping": None},
    "Gemma4": {"final_logit_softcapping": 1.5, **TEXT_ONLY},
    "VaultGemma": {"final_logit_softcapping": 1.5},
    "Granite": {"logits_scaling": 7.0, "embedding_multiplier": 12.0},
    "Cohere": {"logit_scale": 0.0625},
    "Cohere2": {"logit_scale": 0.25},
    "HyperCLOVAX": {"logits_scaling": 0.3, "embedding_multiplier": 3.0},
    "MiniCPM3": {"scale_emb": 12, "dim_model_base": 4, **LATENT},
    "Llama": {},
}


def made(kind):
    name = kind.strip()
    text = getattr(transformers, f"{name}TextConfig", None) or getattr(
        transformers, f"{name}Config"
    )
    torch.manual_seed(0)
    config = text(**SMALL, **KINDS[kind])
    return getattr(transformers, f"{name}ForCausalLM")(config).double().eval()


@pytest.fixture(params=KINDS)
def language(request):
    return Language(request.param, made(request.param), None, None)


TOKENS = torch.tensor([[1, 5, 9, 33, 7, 12, 8]])


@torch.inference_mode()
def test_p_of_kept_states_is_the_targets_own(language, tmp_path):
    out = language.model(TOKENS, output_hidden_states=True, use_cache=False)
    assert torch.allclose(language.logits(out.hidden_states[-1]), out.logits, rtol=0, atol=1e-9)
    embedded = entering(language.model.config, language.embedding(TOKENS))
    assert torch.allclose(embedded, out.hidden_states[0], rtol=0, atol=1e-9)
    before = []
    hook = language.model.model.norm.register_forward_pre_hook(lambda _, x: before.append(x[0][0]))
    language.model(TOKENS, use_cache=False)
    hook.remove()
    states = torch.stack([out.hidden_states[1][0], before[0]], 1).contiguous()
    save_file({"token_ids": TOKENS[0], "hidden_states": states}, tmp_path / "hs_0.safetensors")
    reading = reading_of(read_dump(tmp_path / "hs_0.safetensors"), language, [0], answer=2)
    assert torch.allclose(reading.logits(2, 6), out.logits[0, 2:6], rtol=0, atol=1e-9)
    assert torch.allclose(reading.states[-1], out.hidden_states[0][0], rtol=0, atol=1e-9)


@torch.inference_mode()
def test_training_learns_from_the_targets_own_p(language):
    collector = object.__new__(Collector)
    collector.language, collector.model = language, language.model
    out = language.model(TOKENS, output_hidden_states=True, use_cache=False)
    found = collector._logits(out.hidden_states[-1])
    assert torch.allclose(found, out.logits.float(), rtol=0, atol=1e-5)


def test_a_scale_that_is_not_known_is_one_sentence():
    config = transformers.LlamaConfig(**SMALL, logits_scaling=4.0)
    with pytest.raises(UserError, match=r"'llama' with logits_scaling = 4\.0 is not supported"):
        Readout.of(config)
