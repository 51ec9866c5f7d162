"""Padded forwards on the whole cache equal plain ones, whatever the padding holds."""

import copy
import gc
import weakref
from functools import partial

import numpy as np
import pytest
import torch

from core.models.cuda_graphs import (
    BUCKETS,
    CapturedFunction,
    CaptureError,
    PaddedDrafterPass,
    bucket,
)
from core.models.target import Target, no_graph_reason
from core.rounds.round import Verdict
from tests.helpers import toys
from tests.helpers.pretend_gpu import padded_forwards

FAMILIES = toys.FAMILIES
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
DRAFTED = {"rtol": 1e-5, "atol": 1e-5}  # a drafter's softmax and angles are computed in float32
PROMPT = list(toys.PROMPT)


def pair(family="llama", layers=toys.LAYERS):
    """The same model scored plainly and in padded forwards."""
    return Target(toys.model(family), layers), Target(toys.model(family), layers, True)


def drafts(seed, sizes):
    rng = np.random.default_rng(seed)
    return [toys.random_draft(rng, size + 1) for size in sizes]


@pytest.mark.parametrize("rows", [1, 2, 9, 10, 64, 65, 66, 1025, 1026, 5000])
def test_a_bucket_holds_its_rows_and_the_next_smaller_does_not(rows):
    size = bucket(rows)
    assert size >= rows and (size in BUCKETS or size == rows > BUCKETS[-1])
    assert all(smaller < rows for smaller in BUCKETS if smaller < size)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("nodes", [0, 1, 7, 8, 9, 16, 33, 64, 100])
def test_a_padded_forward_equals_the_plain_one(family, nodes):
    plain, padded = pair(family)
    for where in (plain, padded):
        where.prefill(PROMPT, 400)
    (draft,) = drafts(nodes, [nodes])
    one, two = plain.score(draft), padded.score(draft)
    assert two.logits.shape == one.logits.shape and two.features.shape == one.features.shape
    torch.testing.assert_close(two.logits, one.logits, **CLOSE)
    torch.testing.assert_close(two.features, one.features, **CLOSE)
    assert plain.forwards == padded.forwards


@torch.inference_mode()
def test_the_contents_of_the_padding_are_irrelevant():
    _, padded = pair()
    padded.prefill(PROMPT, 400)
    small, large = drafts(1, [5, 8])
    clean = padded.score(small).logits.clone()
    padded.score(large)  # leaves its tokens, depths and mask in the buffers
    torch.testing.assert_close(padded.score(small).logits, clean, rtol=0, atol=0)
    forward = padded_forwards(padded)[9]
    forward.inputs.ids[6:], forward.inputs.depths[6:] = 47, 900
    forward.inputs.allowed[6:] = True
    padded._kv.layers[0].keys[:, :, padded.length + 6 :] = 1e6
    padded._kv.layers[0].values[:, :, padded.length + 6 :] = -1e6
    torch.testing.assert_close(padded.score(small).logits, clean, rtol=0, atol=0)


@torch.inference_mode()
def test_a_row_that_sees_padding_changes():
    """So the test above can fail."""
    _, padded = pair()
    padded.prefill(PROMPT, 400)
    (small,) = drafts(1, [5])
    clean = padded.score(small).logits.clone()
    forward = padded_forwards(padded)[9]
    forward.inputs.allowed[:6, 6:] = True
    open_ = torch.stack([*forward._run()][:1])[0][:6]
    assert not torch.allclose(open_, clean)


@pytest.mark.parametrize("seed", range(3))
def test_many_rounds_and_texts_on_one_cache_stay_equal(seed):
    plain, padded = pair("qwen3")
    rng = np.random.default_rng(seed)
    for text in range(3):
        prompt = rng.integers(0, toys.VOCABULARY, int(rng.integers(1, 30))).tolist()
        for where in (plain, padded):
            where.prefill(prompt, 500)
        for _ in range(6):
            draft = toys.random_draft(rng, 1 + int(rng.integers(0, 40)))
            one, two = plain.score(draft), padded.score(draft)
            torch.testing.assert_close(two.logits, one.logits, **CLOSE)
            row = int(rng.integers(len(draft)))
            path = [row]
            while path[0]:
                path.insert(0, int(draft.parents[path[0]]))
            for where in (plain, padded):
                where.commit(Verdict(tuple(path), np.array([0])))
            assert plain.length == padded.length, text


def test_without_room_for_the_padding_the_plain_forward_runs():
    plain, padded = pair()
    prompt = (PROMPT * 40)[:250]
    for where in (plain, padded):
        where.prefill(prompt, 6)
    (draft,) = drafts(3, [5])
    assert padded._kv.capacity == 256 and not padded._padded_forward(6).fits
    assert torch.equal(padded.score(draft).logits, plain.score(draft).logits)


def test_a_larger_cache_gets_its_own_forwards():
    _, padded = pair()
    padded.prefill(PROMPT, 10)
    (draft,) = drafts(4, [3])
    padded.score(draft)
    first = padded_forwards(padded)[9]
    padded.prefill(PROMPT, 20)
    padded.score(draft)
    assert padded_forwards(padded)[9] is first, "the same cache: the captured forward is used again"
    padded.prefill(PROMPT * 60, 400)
    padded.score(draft)
    assert padded_forwards(padded)[9] is not first


def test_a_replaced_cache_is_freed_at_once():
    """The larger one must fit on the same GPU."""
    _, padded = pair()
    padded.prefill(PROMPT, 10)
    (draft,) = drafts(4, [3])
    padded.score(draft)
    dropped = [weakref.ref(padded._kv.layers[0].keys), weakref.ref(padded_forwards(padded)[9])]
    gc.collect()
    gc.disable()
    try:
        padded.prefill(PROMPT * 60, 400)
        assert all(where() is None for where in dropped)
    finally:
        gc.enable()


DRAFTERS = {
    "dflash": toys.dflash_drafter,
    "sliding": partial(toys.dflash_drafter, sliding=(True, False), window=5),
    "treeflash": toys.treeflash_drafter,
    "dart": toys.dart_drafter,
}


def padded_drafter(drafter):
    drafter._padded = True
    return drafter


def assert_same_q(one, two, root):
    path = [root] + [0] * 6
    torch.testing.assert_close(two.log_q(path), one.log_q(path), **DRAFTED)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", DRAFTERS.values(), ids=DRAFTERS)
def test_a_padded_pass_drafts_as_the_plain_one(make, seed, monkeypatch):
    """Over texts and rounds that commit one token or a whole block, on a reused context."""
    plain, padded, passes, call = make(), padded_drafter(make()), [], PaddedDrafterPass.__call__
    monkeypatch.setattr(
        PaddedDrafterPass, "__call__", lambda self, *args: passes.append(1) or call(self, *args)
    )
    rng, width = np.random.default_rng(seed), 32 * len(plain.layers)
    for text in range(3):
        count = int(rng.integers(1, 30))
        for drafter in (plain, padded):
            drafter.reset(200)
        for _ in range(7):
            features = torch.from_numpy(rng.normal(size=(count, width)))
            *tokens, root = rng.integers(toys.VOCABULARY, size=count + 1).tolist()
            for drafter in (plain, padded):
                drafter.extend(tokens, features)
            one, two = plain.begin(root, 16), padded.begin(root, 16)
            assert_same_q(one, two, root)
            assert (two.by_depth.ids == one.by_depth.ids).all(), text
            before = len(passes)
            assert_same_q(one, padded.begin(root, 16), root)  # again, with no new context
            assert len(passes) == before + 1, "by the same pass"
            count = int(rng.integers(1, 9))
        assert padded._pass is not None and padded._length == plain._length


@pytest.mark.parametrize("make", DRAFTERS.values(), ids=DRAFTERS)
def test_the_padding_of_a_drafter_pass_is_irrelevant(make):
    drafter = padded_drafter(make())
    ones, found = torch.ones(3, 32 * len(drafter.layers), dtype=torch.float64), []
    for junk in (0.0, 1e3):
        drafter.reset(100)
        drafter.extend([1, 2, 3], ones)
        drafter.begin(5, 16)  # makes the pass
        with torch.inference_mode():
            drafter._pass.inputs.features[:] = junk
            contexts = (
                drafter._context if isinstance(drafter._context, list) else [drafter._context]
            )
            for layer in contexts:
                layer.keys[:, 3:], layer.values[:, 3:] = junk, -junk
        drafter.extend([4], ones[:1])
        found.append(drafter.begin(6, 16).log_q([6] + [0] * 6).clone())
    assert torch.equal(*found)


@pytest.mark.parametrize("make", DRAFTERS.values(), ids=DRAFTERS)
def test_a_round_that_does_not_fit_and_a_failed_capture_use_the_plain_pass(make, monkeypatch):
    """A prompt is longer than a pass. Later rounds use the pass, until its capture fails."""
    plain, padded, calls = make(), padded_drafter(make()), []
    call = PaddedDrafterPass.__call__

    def counted(self, *args):
        calls.append(len(args[0]))
        if len(calls) == 3:
            raise CaptureError("not permitted")
        return call(self, *args)

    monkeypatch.setattr(PaddedDrafterPass, "__call__", counted)
    rng = np.random.default_rng(0)
    for drafter in (plain, padded):
        drafter.reset(100)
    for count in (40, 2, 3, 1, 4):
        features = torch.from_numpy(rng.normal(size=(count, 32 * len(plain.layers))))
        *tokens, root = rng.integers(toys.VOCABULARY, size=count + 1).tolist()
        for drafter in (plain, padded):
            drafter.extend(tokens, features)
        assert_same_q(plain.begin(root, 16), padded.begin(root, 16), root)
    assert len(calls) == 3 and not padded._padded


def test_after_a_failed_capture_the_plain_forward_runs(monkeypatch, caplog):
    plain, padded = pair()
    for where in (plain, padded):
        where.prefill(PROMPT, 400)
    (draft,) = drafts(5, [7])

    def fail(_):
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(CapturedFunction, "_capture", fail)
    padded._padded_forward(8)._run._device = torch.device("cuda")
    assert torch.equal(padded.score(draft).logits, plain.score(draft).logits)
    assert padded.no_graph_reason == "its kernels cannot be captured (operation not permitted)"
    assert "without a CUDA graph: operation not permitted" in caplog.text
    assert not padded._padded and padded.forwards == plain.forwards


def test_an_error_in_a_replay_is_raised(monkeypatch):
    _, padded = pair()
    padded.prefill(PROMPT, 400)
    (draft,) = drafts(5, [7])

    class Broken:
        def replay(self):
            raise RuntimeError("out of memory")

    monkeypatch.setattr(CapturedFunction, "_capture", lambda _: Broken())
    padded._padded_forward(8)._run._device = torch.device("cuda")
    with pytest.raises(RuntimeError, match="out of memory"):
        padded.score(draft)
    assert padded._padded


def test_padded_forwards_are_off_on_a_cpu_by_default():
    assert not Target(toys.model())._padded and Target(toys.model(), padded=True)._padded


@pytest.mark.parametrize(("family", "words"), [("llama", None), ("qwen3_moe", "experts")])
def test_the_reason_against_cuda_graphs_is_named(family, words):
    found = no_graph_reason(toys.model(family))
    assert found is None if words is None else words in found


def on_meta(module):
    """On the meta device: shapes without numbers. What a GPU's capture refuses fails there too: to
    read a number or a shape that depends on data, and to mix in a tensor made on the CPU."""
    return copy.deepcopy(module).to("meta")


@pytest.mark.parametrize(
    "family", ["gemma3_text", *(f for f in FAMILIES if no_graph_reason(toys.model(f)) is None)]
)
def test_a_targets_padded_forward_needs_nothing_of_the_host(family):
    padded = Target(on_meta(toys.model(family)), toys.LAYERS, True)
    padded.prefill(PROMPT, 400)
    for draft in drafts(0, [0, 12]):
        logits = padded.score(draft).logits
        assert logits.shape == (len(draft), toys.VOCABULARY) and logits.is_meta
    assert len(padded_forwards(padded)) == 2


@pytest.mark.parametrize("make", DRAFTERS.values(), ids=DRAFTERS)
def test_a_drafters_padded_pass_needs_nothing_of_the_host(make):
    drafter = padded_drafter(make())
    drafter.model, drafter.embedding = map(on_meta, (drafter.model, drafter.embedding))
    drafter.reset(100)
    one_pass = drafter._new_pass()
    for ids in ([1], [4]):
        features = torch.ones(1, 32 * len(drafter.layers), dtype=torch.float64)
        rows = one_pass(features, 3, ids)
        assert rows.shape == (7, 32) and rows.is_meta


@pytest.mark.parametrize(
    "kernels",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: x + torch.arange(3),
        lambda x: x + torch.tensor([1, 2, 3]),
    ],
)
def test_what_a_capture_refuses_fails_on_meta(kernels):
    kernels(torch.ones(3))
    with pytest.raises((RuntimeError, NotImplementedError)):
        kernels(torch.ones(3, device="meta"))


def test_a_cache_much_too_large_for_the_next_text_is_replaced():
    """A padded forward reads all of it: a short text would pay for a long one before it."""
    _, padded = pair()
    padded.prefill(PROMPT, 3500)
    large = padded._kv
    padded.prefill(PROMPT, 200)
    assert padded._kv is large, "4,096 rows are reused"
    padded.prefill(PROMPT, 6000)
    padded.prefill(PROMPT, 2000)
    assert padded._kv.capacity > 6000, "a third of it is used"
    padded.prefill(PROMPT, 200)
    assert padded._kv.capacity == 256
