"""The key/value cache and the attention that reads it."""

import gc
import weakref

import numpy as np
import pytest
import torch
from transformers import DynamicCache
from transformers.models.gemma2 import modeling_gemma2 as gemma2
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
from transformers.models.llama.modeling_llama import eager_attention_forward

from core.models.cache import StaticKV, folded_attention, grouped_attention, mask_value
from core.models.target import make_kv
from tests.helpers import toys


def rows(seed, count, heads=2, width=8, batch=1):
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, heads, count, width)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in "kv")


def filled(capacity=32, context=5, scratch=6, layers=2):
    """A cache with committed context and scratch rows after it, and all rows written to it."""
    cache, written = StaticKV(layers, capacity), []
    for layer in range(layers):
        known, new = rows(layer, context), rows(10 + layer, scratch)
        cache.update(*known, layer)
        written.append((known, new))
    cache.commit(context)
    for layer, (_, new) in enumerate(written):
        cache.update(*new, layer)
    return cache, written


def check_rows(cache, written, path):
    for layer, (known, new) in zip(cache.layers, written, strict=True):
        for side, stored in enumerate((layer.keys, layer.values)):
            expected = torch.cat([known[side], new[side][:, :, list(path)]], 2)
            assert torch.equal(stored[:, :, : cache.length], expected)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_layers_together_apart_and_of_other_shapes_commit_the_same(apart, wide):
    """Layers of one shape share a tensor; any other layer has its own."""
    cache, written = StaticKV(3, 32, apart), []
    for layer in range(3):
        heads, width = (4, 16) if wide and layer == 1 else (2, 8)
        known, new = rows(layer, 5, heads, width), rows(10 + layer, 6, heads, width)
        if wide and layer == 2:  # keys and values of different widths
            known, new = (known[0], known[1][..., :4]), (new[0], new[1][..., :4])
        cache.update(*known, layer)
        written.append((known, new))
    cache.commit(5)
    for layer, (_, new) in enumerate(written):
        cache.update(*new, layer)
    cache.commit(torch.tensor([0, 2, 5]))
    check_rows(cache, written, [0, 2, 5])
    memory = {
        (rows_.untyped_storage().data_ptr())
        for layer in cache.layers
        for rows_ in (layer.keys, layer.values)
    }
    assert len(memory) == (6 if apart else 4 if wide else 1)
    cache.repeat(2)
    assert all(layer.keys.shape[0] == layer.values.shape[0] == 2 for layer in cache.layers)
    assert torch.equal(cache.layers[2].values[1, :, :5], written[2][0][1][0])


def test_keys_and_values_of_two_widths_take_no_more_bytes_than_their_own():
    cache = StaticKV(3, 32)
    for layer in range(3):
        keys, values = rows(layer, 5)
        cache.update(keys, values[..., :4], layer)
    assert cache.bytes_per_token == 3 * 2 * (8 + 4) * keys.element_size()


def test_random_paths_one_after_the_other():
    rng = np.random.default_rng(0)
    cache, expected = StaticKV(1, 400), rows(99, 0)
    for step in range(40):
        new = rows(step, 10)
        keys, values = cache.update(*new, 0)
        assert torch.equal(keys, torch.cat([expected[0], new[0]], 2))
        assert torch.equal(values, torch.cat([expected[1], new[1]], 2))
        path = [
            0,
            *sorted(rng.choice(np.arange(1, 10), rng.integers(0, 9), replace=False).tolist()),
        ]
        cache.commit(torch.tensor(path))
        expected = tuple(
            torch.cat([e, n[:, :, path]], 2) for e, n in zip(expected, new, strict=True)
        )
    assert cache.length == expected[0].shape[2]
    assert torch.equal(cache.layers[0].keys[:, :, : cache.length], expected[0])


def test_a_full_cache_raises_instead_of_overwriting():
    cache = StaticKV(1, 8)
    cache.update(*rows(0, 8), 0)
    cache.commit(8)
    with pytest.raises(IndexError, match="8 rows"):
        cache.update(*rows(1, 1), 0)


def test_a_dropped_cache_is_freed_at_once():
    """Waiting for a garbage collection could double the memory on a GPU."""
    gc.collect()
    gc.disable()
    try:
        cache, _ = filled()
        keys = weakref.ref(cache.layers[0].keys)
        del cache
        assert keys() is None
    finally:
        gc.enable()


def test_truncate_drops_rows_after_a_length():
    cache, written = filled()
    cache.commit(6)
    cache.truncate(7)
    assert cache.length == 7
    check_rows(cache, written, [0, 1])
    cache.reset()
    assert cache.length == 0


@pytest.mark.parametrize("family", toys.FAMILIES)
def test_a_model_on_static_kv_equals_dynamic_cache(family):
    """Hugging Face's forward in pieces, with either cache: the same logits."""
    owner, tokens = toys.reference(family), torch.tensor([list(range(1, 30))])
    static, dynamic = make_kv(owner, 64), DynamicCache()
    seen = 0
    for size in (7, 1, 12, 9):
        ids = tokens[:, seen : seen + size]
        mask = torch.zeros(1, 1, size, seen + size, dtype=torch.float64)
        mask[..., seen:].masked_fill_(torch.ones(size, size).triu(1).bool(), mask_value(mask.dtype))
        where = torch.arange(seen, seen + size)[None]
        with torch.inference_mode():
            one = owner(ids, attention_mask=mask, position_ids=where, cache=static).logits
            two = owner(ids, position_ids=where, cache=dynamic).logits
        static.commit(size)
        seen += size
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


# ── attention ────────────────────────────────────────────────────────────────────────────────────


class Module(torch.nn.Module):
    """The attributes that Hugging Face's eager attention needs of its layer."""

    def __init__(self, share):
        super().__init__()
        self.num_key_value_groups = share
        self.training = False


def attention_case(seed, share, new, keys, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(1, 2 * share, new, 8, generator=generator, dtype=dtype)
    key, value = (torch.randn(1, 2, keys, 8, generator=generator, dtype=dtype) for _ in "kv")
    allowed = torch.rand(new, keys, generator=generator) < 0.6
    allowed[:, 0] = True
    mask = torch.zeros(1, 1, new, keys, dtype=dtype).masked_fill_(~allowed, mask_value(dtype))
    return query, key, value, mask


@pytest.mark.parametrize("share", [1, 3, 4])
@pytest.mark.parametrize(("new", "keys"), [(1, 1), (1, 20), (9, 20), (20, 20)])
def test_grouped_attention_equals_hugging_faces_eager_one(share, new, keys):
    query, key, value, mask = attention_case(new + keys, share, new, keys)
    ours, _ = grouped_attention(Module(share), query, key, value, mask, scaling=0.3)
    theirs, _ = eager_attention_forward(Module(share), query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    other = folded_attention(query, key, value, mask, 0.3, None)  # what CUDA gets
    torch.testing.assert_close(ours, other.transpose(1, 2), rtol=1e-6, atol=1e-6)
    ours, _ = grouped_attention(Module(share), query, key, value, mask)
    theirs, _ = eager_attention_forward(Module(share), query, key, value, mask, scaling=8**-0.5)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    ours, _ = grouped_attention(Module(share), query, key, value, mask, softcap=0.5)
    theirs, _ = gemma2.eager_attention_forward(Module(share), query, key, value, mask,
                                               scaling=8**-0.5, softcap=0.5)  # fmt: skip
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    sinking = Module(share)
    sinking.sinks = torch.linspace(-2, 2, 2 * share, dtype=query.dtype)
    ours, _ = grouped_attention(sinking, query, key, value, mask, 0.3, s_aux=sinking.sinks)
    theirs, _ = gpt_oss.eager_attention_forward(sinking, query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_grouped_attention_without_mask_sees_everything():
    query, key, value, _ = attention_case(0, 2, 5, 9)
    open_mask = torch.zeros(1, 1, 5, 9, dtype=torch.float64)
    one, _ = grouped_attention(Module(2), query, key, value, None)
    two, _ = grouped_attention(Module(2), query, key, value, open_mask)
    assert torch.equal(one, two)


def test_masked_keys_have_no_influence():
    query, key, value, mask = attention_case(1, 2, 6, 12)
    one, _ = grouped_attention(Module(2), query, key, value, mask)
    hidden = (mask[0, 0] < 0).all(0)
    hidden[-1] = True
    mask[..., -1] = mask_value(torch.float64)
    one, _ = grouped_attention(Module(2), query, key, value, mask)
    key[:, :, hidden], value[:, :, hidden] = 1e3, -1e3
    two, _ = grouped_attention(Module(2), query, key, value, mask)
    assert torch.equal(one, two)


def test_grouped_attention_does_not_change_its_inputs():
    case = attention_case(2, 2, 5, 9)
    before = [x.clone() for x in case]
    grouped_attention(Module(2), *case)
    assert all(torch.equal(a, b) for a, b in zip(case, before, strict=True))


@pytest.mark.parametrize("family", toys.FAMILIES)
def test_a_model_on_grouped_attention_called_without_a_mask_is_causal(family):
    """As ``generate`` and training call it: Hugging Face must build the causal mask."""
    tokens = torch.tensor([[5, 17, 3, 44, 9, 28]])
    with torch.inference_mode():
        ours = toys.model(family)(tokens, use_cache=False).logits
        theirs = toys.reference(family)(tokens, use_cache=False).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_repeated_rows_continue_independently():
    cache = StaticKV(1, 32)
    cache.update(*rows(0, 4, batch=2), 0)
    cache.commit(4)
    before = cache.layers[0].keys[:, :, :4].clone()
    cache.repeat(3)
    assert torch.equal(cache.layers[0].keys[:, :, :4], before.repeat_interleave(3, 0))
    keys, _ = cache.update(*rows(5, 1, batch=6), 0)
    assert keys.shape == (6, 2, 5, 8)
