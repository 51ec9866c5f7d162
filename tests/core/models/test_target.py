"""The target: every node sees its own path and nothing else, wherever it is in the tree."""

import numpy as np
import pytest
import torch

from core.errors import UserError
from core.models import target as target_module
from tests.helpers import toys

CONTEXT = [5, 17, 3, 44, 9, 28, 3, 11, 40, 2]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # Hugging Face's norms and softmax work in float32

pytestmark = pytest.mark.parametrize("family", (*toys.FAMILIES, "qwen3_moe"))


def prefilled(family, context=CONTEXT, reserve=200):
    where = toys.target(family)
    where.prefill(context, reserve)
    return where


def check_cache(where, text, family):
    """Committed keys (rotated, so positions too) and values equal a fresh forward's."""
    assert where.length == len(text)
    expected = toys.full_forward(text, family).kv
    for ours, theirs in zip(toys.committed_kv(where), expected, strict=True):
        torch.testing.assert_close(ours[0], theirs[0], **CLOSE)
        torch.testing.assert_close(ours[1], theirs[1], **CLOSE)


@pytest.mark.parametrize("seed", range(3))
def test_each_nodes_logits_equal_its_path_decoded_as_a_chain(family, seed):
    where, draft = prefilled(family), toys.random_draft(seed)
    scores = where.score(draft)
    for row in range(len(draft)):
        text = CONTEXT + draft.tokens[list(draft.path(row))].tolist()
        alone = toys.full_forward(text, family)
        torch.testing.assert_close(scores.logits[row], alone.logits[-1], **CLOSE)
        torch.testing.assert_close(scores.features[row], alone.features[-1], **CLOSE)


def test_layer_minus_one_is_what_enters_the_first_layer(family):
    where, layers = toys.target(family, (-1, 2)), (-1, 2)
    table = toys.model(family).get_input_embeddings().weight
    scores, alone = where.prefill(CONTEXT, 60), toys.full_forward(CONTEXT, family, layers)
    torch.testing.assert_close(scores.features, alone.features, **CLOSE)
    assert torch.equal(scores.features[:, :32], table[torch.tensor(CONTEXT)])
    draft = toys.random_draft(1)
    features = where.score(draft).features
    assert torch.equal(features[:, :32], table[torch.from_numpy(draft.tokens)])


@pytest.mark.parametrize("length", [15, 16, 17, 32, 50])
def test_prefill_in_chunks_equals_prefill_at_once(family, length, monkeypatch):
    monkeypatch.setattr(target_module, "PREFILL_CHUNK", 16)
    text = [(7 * i + i * i) % toys.VOCABULARY for i in range(length)]
    where, alone = toys.target(family), toys.full_forward(text, family)
    scores = where.prefill(text, 4)
    assert where.forwards == -(-length // 16)
    torch.testing.assert_close(scores.logits[0], alone.logits[-1], **CLOSE)
    torch.testing.assert_close(scores.features, alone.features, **CLOSE)
    check_cache(where, text, family)


def test_many_random_commits_keep_the_cache_a_fresh_prefill(family):
    rng = np.random.default_rng(4)
    where, text = prefilled(family, reserve=400), list(CONTEXT)
    for step in range(30):
        draft = toys.random_draft(100 + step, 25)
        scores = where.score(draft)
        path = draft.path(int(rng.integers(0, 25)))
        row_text = text + draft.tokens[list(path)].tolist()
        expected = toys.full_forward(row_text, family)
        torch.testing.assert_close(scores.logits[path[-1]], expected.logits[-1], **CLOSE)
        where.commit(toys.verdict_of(draft, path))
        text = row_text
        check_cache(where, text, family)


def test_a_chain_as_a_tree_is_byte_identical_to_a_causal_pass(family, monkeypatch):
    """One chunk of prefill after the context against the same tokens as a draft."""
    tokens = [4, 7, 9, 7, 2, 30, 31, 32]
    monkeypatch.setattr(target_module, "PREFILL_CHUNK", len(CONTEXT))
    causal = toys.target(family).prefill(CONTEXT + tokens, 50)
    where = prefilled(family)
    drafted = where.score(toys.draft_of([-1, *range(7)], tokens))
    assert torch.equal(drafted.features, causal.features[len(CONTEXT) :])
    torch.testing.assert_close(drafted.logits[-1], causal.logits[0], rtol=1e-12, atol=1e-12)


def test_scoring_does_not_commit(family):
    where = prefilled(family)
    first = where.score(toys.random_draft(1)).logits
    where.score(toys.random_draft(2, 60))
    assert where.length == len(CONTEXT)
    assert torch.equal(where.score(toys.random_draft(1)).logits, first)
    check_cache(where, CONTEXT, family)


def test_a_second_text_does_not_see_the_first(family):
    where = prefilled(family)
    where.score(toys.random_draft(1))
    where.commit(toys.verdict_of(toys.random_draft(1), (0,)))
    other = [1, 2, 3]
    scores = where.prefill(other, 50)
    torch.testing.assert_close(
        scores.logits[0], toys.full_forward(other, family).logits[-1], **CLOSE
    )
    check_cache(where, other, family)
    longer = [(3 * i) % toys.VOCABULARY for i in range(600)]  # the cache must grow
    where.prefill(longer, 50)
    check_cache(where, longer, family)


def test_features_are_optional(family):
    where = toys.target(family, layers=())
    scores = where.prefill(CONTEXT, 4)
    assert scores.features.shape == (len(CONTEXT), 0)


def test_a_run_leaves_no_attribute_hook_or_gradient_on_the_model(family):
    owner = toys.model(family)
    before = set(vars(owner)), set(vars(owner.config)), len(owner._forward_hooks)
    toys.run(toys.tree(toys.RandomDrafter()), 10, family=family)
    assert (set(vars(owner)), set(vars(owner.config)), len(owner._forward_hooks)) == before
    assert all(p.grad is None for p in owner.parameters())


def test_an_empty_prompt_is_a_user_error(family):
    with pytest.raises(UserError, match="no tokens"):
        toys.target(family).prefill([], 4)


def test_stop_ids_may_be_one_several_or_none(family):
    assert toys.target(family).stop_ids == frozenset()
    assert toys.target(family, stop=[3]).stop_ids == {3}
    assert toys.target(family, stop=[3, 9]).stop_ids == {3, 9}
    one = toys.target(family, stop=[3])
    one.model.generation_config.eos_token_id = 0
    assert one.stop_ids == {0}


def test_a_long_prompt_is_reported_part_by_part_and_can_be_stopped(family, monkeypatch):
    monkeypatch.setattr(target_module, "PREFILL_CHUNK", 8)
    where, heard = toys.target(family), []
    text = (CONTEXT * 3)[:19]
    where.prefill(text, 4, lambda done, _: heard.append(done))
    assert heard == [8 / 19, 16 / 19]

    def stop(*_):
        raise KeyboardInterrupt

    before = where.forwards
    with pytest.raises(KeyboardInterrupt):
        where.prefill(text, 4, stop)
    assert where.forwards == before + 1
    alone = toys.target(family).prefill(text, 4)
    assert torch.equal(where.prefill(text, 4).logits, alone.logits)  # nothing is left of it
