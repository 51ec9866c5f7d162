"""Targets that carry a state: each node equals its path read token by token, runs are lossless.

The slow truth is transformers' own model and cache. Every family keeps its states in float32, also
in a float64 model, so results agree to single precision.
"""

import copy
from types import SimpleNamespace

import pytest
import torch
from transformers import DynamicCache, Qwen3_5Config, Qwen3_5ForConditionalGeneration

from core.errors import UserError
from core.models import recurrent
from core.models import target as target_module
from core.models.language import load_language
from core.models.recurrent import RecurrentKV, let_states_fork
from core.models.target import Target, no_graph_reason
from core.train.collect import Collector, CollectSettings
from tests.helpers import toys
from tests.helpers.timing import amount

CONTEXT = [5, 17, 3, 44, 9, 28, 3, 11, 40, 2]
CLOSE = {"rtol": 3e-4, "atol": 3e-4}
families = pytest.mark.parametrize("family", toys.HYBRIDS)


@torch.inference_mode()
def walked(tokens, family, cache, position=0):
    """Logits [V] after the last token, which transformers reads one after the other. Positions are
    given: Bamba's own are wrong in transformers 5.24 when the first layer has no keys."""
    for at, token in enumerate(tokens, position):
        ids, where = torch.tensor([[token]]), torch.tensor([[at]])
        out = toys.reference(family)(ids, position_ids=where, cache=cache, use_cache=True)
    return out.logits[0, -1]


def check_nodes(where, draft, text, family):
    logits = where.score(draft).logits
    after = DynamicCache(config=toys.reference(family).config)
    walked(text, family, after)
    for row in range(len(draft)):
        path = draft.tokens[list(draft.path(row))].tolist()
        expected = walked(path, family, copy.deepcopy(after), len(text))
        torch.testing.assert_close(logits[row], expected, **CLOSE)


@families
def test_each_node_equals_its_path_read_token_by_token(family, monkeypatch):
    """Over three rounds; after the first the states are kept, after the second made again."""
    monkeypatch.setattr(target_module, "PREFILL_CHUNK", 4)
    where, text = toys.target(family), list(CONTEXT)
    where.prefill(text, 60)
    for seed in range(3):
        draft = toys.random_draft(seed, amount(6, 9))
        check_nodes(where, draft, text, family)
        monkeypatch.setattr(recurrent, "KEPT", 0)
        path = draft.path(len(draft) - 1)
        where.commit(toys.verdict_of(draft, path))
        text += draft.tokens[list(path)].tolist()
        assert where.length == len(text)


@families
@pytest.mark.parametrize("sampling", [toys.GREEDY, toys.SAMPLED], ids=["greedy", "sampled"])
def test_a_run_writes_what_plain_decoding_writes(family, sampling):
    method = toys.tree if sampling is toys.GREEDY else toys.line
    truth = toys.plain(18, sampling, family=family)
    drafter = toys.NoisyOracle([*toys.PROMPT, *truth])
    made = toys.run(method(drafter), 18, sampling, family=family)
    assert made.tokens == truth
    assert len(made.rounds) < 18


def test_a_scored_draft_that_is_not_committed_leaves_no_trace():
    where = toys.target("qwen3_5_text")
    where.prefill(CONTEXT, 60)
    where.score(toys.random_draft(5, 9))
    check_nodes(where, toys.random_draft(6, 9), CONTEXT, "qwen3_5_text")
    where.prefill(CONTEXT[:4], 60)  # a new text starts from nothing
    check_nodes(where, toys.random_draft(7, 9), CONTEXT[:4], "qwen3_5_text")


def test_states_are_kept_only_for_layers_that_carry_one():
    where = toys.target("nemotron_h")
    where.prefill(CONTEXT, 60)
    cache = where._kv
    assert isinstance(cache, RecurrentKV)
    assert [layer.is_initialized for layer in cache.layers] == [False, False, True, False]
    assert len(cache._memory.rows_of(0)) == 2  # keys and values of the one layer that attends
    assert sorted(cache._states) == [0, 3]
    with pytest.raises(ValueError, match="cannot be cut"):
        cache.truncate(3)


def test_other_caches_pass_through():
    """`generate` and other plain forwards see the model as it was."""
    model = toys.model("lfm2")
    text = torch.tensor([CONTEXT])
    torch.testing.assert_close(model(text).logits, toys.reference("lfm2")(text).logits, **CLOSE)


def test_what_a_state_rules_out_is_said(monkeypatch):
    model = toys.model("qwen3_next")
    assert "carry a state" in (no_graph_reason(model) or "")
    let_states_fork(model, model.config)  # wrapped already, which does no harm
    monkeypatch.setattr(recurrent, "MIXERS", recurrent.MIXERS - {"Qwen3NextGatedDeltaNet"})
    with pytest.raises(UserError, match="not known here"):
        let_states_fork(model, model.config)
    language = SimpleNamespace(name="x", model=model, tokenizer=None, stop_ids=())
    with pytest.raises(UserError, match="cannot be collected"):
        Collector(language, CollectSettings(layers=()))


def test_a_checkpoint_for_text_and_images_loads_as_its_text_model(tmp_path):
    text = toys.config("qwen3_5_text", toys.LANGUAGE_SIZE).to_dict()
    eyes = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2}
    config = Qwen3_5Config(text_config=text, vision_config={**eyes, "out_hidden_size": 32})
    Qwen3_5ForConditionalGeneration(config).save_pretrained(tmp_path)
    toys.tokenizer().save_pretrained(tmp_path)
    where = Target(load_language(str(tmp_path), "cpu").model)
    where.prefill(CONTEXT, 60)
    assert where.score(toys.random_draft(0, 9)).logits.shape == (9, toys.LANGUAGE_SIZE)
    assert isinstance(where._kv, RecurrentKV)
