"""Targets whose layers see a window or a chunk of the text, some with attention sinks.

The slow truth is transformers' own model, attention and cache, which reads a path token by token.
"""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import DynamicCache

from core.methods.sps.drafter import LmDrafter
from core.models.language import Language, load_language
from core.models.layer_masks import layer_masks
from core.models.target import Target, context_limit
from core.rounds.draft import MAX_BUDGET
from core.train.collect import Collector, CollectSettings
from tests.helpers import toys
from tests.helpers.pretend_gpu import padded_forwards

CONTEXT = [5, 17, 3, 44, 9, 28, 3, 11, 40, 2, 31, 7]  # twice as long as the window
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
families = pytest.mark.parametrize("family", toys.WINDOWED)


@torch.inference_mode()
def walked(tokens, model, cache=None):
    """Logits [V] after the last token; ``cache``: of the tokens before these."""
    cache, logits = cache or DynamicCache(config=model.config), None
    for token in tokens:
        logits = model(torch.tensor([[token]]), cache=cache, use_cache=True).logits
    return logits[0, -1]


@families
def test_each_node_equals_its_path_read_token_by_token(family):
    check_rounds(toys.target(family), toys.reference(family), 3)


def check_rounds(where, truth, rounds):
    text = list(CONTEXT)
    where.prefill(text, 60)
    for seed in range(rounds):
        draft = toys.random_draft(seed, 9)
        logits = where.score(draft).logits
        before = DynamicCache(config=truth.config)
        walked(text, truth, before)
        for row in range(len(draft)):
            path = draft.tokens[list(draft.path(row))].tolist()
            expected = walked(path, truth, copy.deepcopy(before))
            torch.testing.assert_close(logits[row].double(), expected, **CLOSE)
        path = draft.path(len(draft) - 1)
        where.commit(toys.verdict_of(draft, path))
        text += draft.tokens[list(path)].tolist()


@families
def test_a_padded_forward_narrows_its_masks_too(family):
    model = toys.model(family)
    plain, padded = toys.target(family), Target(model, toys.LAYERS, padded=True)
    for where in (plain, padded):
        where.prefill(CONTEXT, 60)
    draft = toys.random_draft(1, 9)
    torch.testing.assert_close(padded.score(draft).logits, plain.score(draft).logits, **CLOSE)
    assert padded_forwards(padded)


@pytest.mark.parametrize("family", ["gpt_oss", "gemma3_text", "mistral"])
def test_a_loaded_model_has_no_limit_but_its_positions(family, tmp_path):
    made = toys.language_model(family)
    made.save_pretrained(tmp_path)
    toys.tokenizer().save_pretrained(tmp_path)
    loaded = load_language(str(tmp_path), "cpu").model
    made.set_attn_implementation("eager")
    check_rounds(Target(loaded), made.double(), 1)
    assert context_limit(loaded) == 4096


def test_the_temperature_of_llama_4s_attention_is_a_limit():
    """It counts rows, not positions, and changes with every so many of them."""
    model = toys.model("llama4_text")
    assert context_limit(model) == 4096
    model.config.max_position_embeddings, before = 100_000, 4096
    try:
        assert context_limit(model) == 8192 - MAX_BUDGET - 1
    finally:
        model.config.max_position_embeddings = before


@pytest.mark.parametrize("family", ["mistral", "gemma3_text"])
def test_a_draft_models_rows_see_its_window(family):
    """Over two rounds: rows that were scored and not committed lie between those that count."""
    model, drafter = toys.reference(family), LmDrafter(toys.model(family), 4)
    drafter.reset(64)
    drafter.extend(CONTEXT, None)
    text = list(CONTEXT)
    for root, kept in ((8, [4, 9]), (12, [])):
        session = drafter.begin(root, 4)
        first = session.score([root], [-1])
        second = session.score([3, 4], [0, 0])
        third = session.score([9, 9], [2, 1])
        for log_q, path in (
            (first[0], []),
            (second[0], [3]),
            (second[1], [4]),
            (third[0], [4, 9]),
            (third[1], [3, 9]),
        ):
            truth = walked([*text, root, *path], model).log_softmax(-1)
            torch.testing.assert_close(log_q.double(), truth, **CLOSE)
        drafter.extend([root, *kept], None)
        text += [root, *kept]


@torch.inference_mode()
def test_text_for_training_is_written_as_the_target_writes_it():
    """In batches, of prompts of two lengths, of which one is padded."""
    owner = toys.language_model("gemma3_text")
    collector = Collector(
        Language("toy", owner, toys.tokenizer(), None),
        CollectSettings((0, 2), (0.0,), max_new_tokens=20),
    )
    documents = collector.answer([[*CONTEXT, 3], CONTEXT[:7]], seed=0)
    owner.set_attn_implementation("eager")
    for found in documents:
        out = owner(found.tokens[None].long(), output_hidden_states=True, use_cache=False)
        features = torch.cat([out.hidden_states[i + 1][0] for i in (0, 2)], -1)
        torch.testing.assert_close(found.features.float(), features, rtol=2e-3, atol=2e-3)
        best = out.logits[0, found.answer - 1 : -1].argmax(-1)
        assert best.tolist() == found.tokens[found.answer :].tolist()


def test_a_text_within_the_window_has_one_mask():
    config, mask = toys.config("gemma3_text"), torch.zeros(1, 1, 2, 6)
    masks = layer_masks(config, mask)
    assert isinstance(masks, dict) and all(each is mask for each in masks.values())
    assert layer_masks(toys.config("llama"), mask) is mask
