"""The embedded target without transformers: the same bits as with it."""

import json

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from core.chat import user_turn
from core.methods.sps.model import DraftAdapter, DraftConfig, first_layers
from core.models import llama
from core.models.chat_template import render_chat
from core.models.fast_layers import use_fast_layers
from core.models.layer_fields import layer_fields
from core.models.target import Target
from core.models.tokens import FolderTokenizer
from tests.helpers import toys

LAYERS, VOCABULARY = 3, 128
PROMPT = [5, 17, 3, 44, 9, 28, 3, 11]
ALL = (-1, *range(LAYERS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model and its tokenizer in bf16, as the embedded one is stored."""
    where = tmp_path_factory.mktemp("target")
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=96, intermediate_size=160, num_hidden_layers=LAYERS, num_attention_heads=3,
        num_key_value_heads=1, head_dim=32, vocab_size=VOCABULARY, max_position_embeddings=512,
        rms_norm_eps=1e-5, tie_word_embeddings=True, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(where)
    toys.tokenizer().save_pretrained(where)
    return where


@pytest.fixture(scope="module")
def ours(folder):
    return llama.load(folder)


@pytest.fixture(scope="module")
def theirs(folder):
    from core.models.hub import Source
    from core.models.hugging_face import load_config, load_model

    source = Source(str(folder))
    model = load_model(source, load_config(source), torch.float32, split=False).eval()
    use_fast_layers(model, torch.float32, torch.device("cpu"))
    return model


def same(one, other):
    return torch.equal(one.logits, other.logits) and torch.equal(one.features, other.features)


def test_prefill_and_every_draft_have_the_same_bits(ours, theirs):
    one, other = Target(ours, ALL), Target(theirs, ALL)
    assert same(one.prefill(PROMPT, 300), other.prefill(PROMPT, 300))
    rng = np.random.default_rng(0)
    for rows in (1, 2, 8, 41, 200):
        draft = toys.draft_of(toys.random_parents(rng, rows), rng.integers(0, VOCABULARY, rows))
        assert same(one.score(draft), other.score(draft)), rows


def test_it_answers_without_a_cache_and_a_mask(ours, theirs):
    ids = torch.tensor([PROMPT, PROMPT[::-1]])
    with torch.inference_mode():
        assert torch.equal(ours(ids).logits, theirs(ids, use_cache=False).logits)
        last = ours(ids, logits_to_keep=2).logits
        assert torch.equal(last, theirs(ids, use_cache=False, logits_to_keep=2).logits)


def test_only_the_wanted_hidden_states_are_kept(ours):
    found = ours(torch.tensor([PROMPT]), output_hidden_states=[0, 2])
    assert found.hidden_states.keys() == {0, 2}
    assert not ours(torch.tensor([PROMPT])).hidden_states


def test_its_first_layers_make_a_draft_model(ours):
    part = first_layers(ours, DraftAdapter(DraftConfig(2)))
    assert part.config.num_hidden_layers == 2 and ours.config.num_hidden_layers == LAYERS
    whole = ours(torch.tensor([PROMPT]), output_hidden_states=[2]).hidden_states[2]
    normed = ours.model.norm(whole)
    assert torch.equal(part(torch.tensor([PROMPT])).logits, ours.lm_head(normed))


def test_parameters_have_transformers_names(folder):
    raw = json.loads((folder / "config.json").read_text())
    names = LlamaForCausalLM(LlamaConfig(**raw)).state_dict().keys()
    assert llama.Llama(llama.LlamaConfig(**raw)).state_dict().keys() == names


@pytest.mark.parametrize("text", ["two\nlines", "naïve ✓ 你好", "  spaces ", "<|end|>x", ""])
def test_the_tokenizer_answers_as_transformers_does(folder, text):
    mine, whole = FolderTokenizer(folder), toys.tokenizer()
    for split in (False, True):
        ids = whole(text, split_special_tokens=split).input_ids
        assert mine(text, split_special_tokens=split).input_ids == ids
        assert mine.decode(ids) == whole.decode(ids)
        assert mine.decode(ids, skip_special_tokens=True) == whole.decode(
            ids, skip_special_tokens=True
        )
    turn = [{"role": "user", "content": text}]
    frame = whole.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    assert render_chat(mine, user_turn(text)) == frame
    assert mine.get_vocab() == whole.get_vocab()
    assert mine.eos_token_id == whole.eos_token_id, "asked of transformers'"


def test_its_config_tells_a_drafters_layer_the_same(ours, theirs):
    """Hydra++'s layer takes its shape from the target."""
    one, other = (layer_fields(model.config.to_dict(), 0) for model in (ours, theirs))
    assert one == other
