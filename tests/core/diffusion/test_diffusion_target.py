"""Many states in one model call: each must score as if its sequence were run whole and alone."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.diffusion import target as targets
from core.diffusion.denoise import denoise
from core.diffusion.nfe import denoised_tokens
from core.diffusion.request import DenoiseSettings
from core.diffusion.target import BidirectionalTarget, BlockCausalTarget, BlockLayout
from core.errors import UserError
from core.rounds.blocks import MASKED
from tests.helpers import diffusion_reference as reference
from tests.helpers import toys
from tests.helpers.diffusion_models import GRAPH, MAKERS, MASK, own_model
from tests.helpers.timing import amount

LAYOUTS = [BlockLayout(shift, clean) for shift in (False, True) for clean in ("block", "causal")]
LAYOUTS += [BlockLayout(shift=True, clean="causal", left=True)]
# Hugging Face norms and rotates in float32, whatever the model, and the toys amplify. Rows that see
# one token too many or too few differ by 1e-2 and more.
EXACT = {"rtol": 0, "atol": 2e-4}


@cache
def truth(family="llama", layers=4):
    """The same weights, run whole in float64."""
    model = own_model(family, layers)
    config = model.config
    theta = config.rope_parameters["rope_theta"]
    width = getattr(config, "head_dim", None) or 32 // config.num_attention_heads
    shape = reference.Shape(layers, width, config.rms_norm_eps, theta)
    state = model.state_dict()
    return lambda ids, allowed, place=None: reference.forward(
        state, reference.LLAMA, shape, ids, allowed, place
    )


def block_causal(layout, family="llama"):
    return BlockCausalTarget(own_model(family), MASK, layout)


def tokens(count):
    return st.lists(st.integers(0, MASK - 1), min_size=count, max_size=count)


@st.composite
def texts(draw):
    """A prompt, finished blocks, and for every block's moment some states of it."""
    size = draw(st.integers(1, 6))
    prompt = draw(tokens(draw(st.integers(1, 14))))
    blocks = [draw(tokens(size)) for _ in range(draw(st.integers(0, 3)))]
    states = [
        draw(st.lists(st.lists(st.integers(0, MASK), min_size=size, max_size=size), max_size=4))
        for _ in range(len(blocks) + 1)
    ]
    return size, prompt, blocks, [np.array([[MASK] * size, *some]) for some in states]


def positions_of(states, masked_only):
    """The positions still masked, or all of them, from the last to the first."""
    every = np.arange(states.shape[1])[::-1].copy()
    return [np.flatnonzero(state == MASK) if masked_only else every for state in states]


def compare(scores, states, positions, whole):
    """Every scored row of every state against the state's own whole forward."""
    assert len(scores) == len(states)
    for logits, state, rows in zip(scores, states, positions, strict=True):
        assert logits.shape == (len(rows), toys.VOCABULARY)
        torch.testing.assert_close(logits, whole(state.tolist())[torch.tensor(rows)], **EXACT)


# ── block-causal ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", toys.FAMILIES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@given(text=texts(), seen=st.lists(st.booleans(), min_size=4, max_size=4))
@settings(max_examples=amount(6, 12))
def test_every_state_of_a_pass_scores_as_it_does_alone(family, layout, text, seen):
    """Also when a block was never looked at before the next (``seen``), and when one is twice."""
    size, prompt, blocks, moments = text
    target = block_causal(layout, family)
    target.begin(prompt, size * len(moments), size)
    for done, states in enumerate(moments):
        for masked_only in (True, False) if seen[done] else ():
            positions = positions_of(states, masked_only)
            compare(
                target.score(states, positions),
                states,
                positions,
                lambda state, done=done: reference.block_causal(
                    truth(family),
                    prompt,
                    blocks[:done],
                    state,
                    shift=layout.shift,
                    clean=layout.clean,
                    size=size,
                    **({"left": MASK} if layout.left else {}),
                ),
            )
        if done < len(blocks):
            target.advance(blocks[done])


STATES = np.array([[MASK] * 4, [MASK, 7, MASK, MASK], [MASK, 7, MASK, 9]])
ALL = [np.arange(4)] * 3


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_finished_block_joins_the_next_call_as_if_it_had_been_encoded_apart(layout):
    joined, apart = block_causal(layout), block_causal(layout)
    for target in (joined, apart):
        target.begin(toys.PROMPT, 12, 4)
        target.score(STATES, ALL)
        target.advance([1, 2, 3, 4])
    apart._encode(4)
    before = joined.forwards, joined.rows
    here, there = joined.score(STATES, ALL), apart.score(STATES, ALL)
    for a, b in zip(here, there, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    rows = 3 * (4 + layout.shift)
    assert joined.forwards == before[0] + 1 and joined.rows == before[1] + 4 + rows
    here, there = joined.score(STATES, ALL), apart.score(STATES, ALL)
    assert joined.rows == before[1] + 4 + 2 * rows, "the context is computed once"


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("length", [17, 18, 21, 24])
def test_a_long_prompt_is_read_in_chunks_of_whole_blocks(layout, length, monkeypatch):
    prompt = [3 * i % MASK for i in range(length)]
    whole, chunked = block_causal(layout), block_causal(layout)
    whole.begin(prompt, 8, 4)
    monkeypatch.setattr(targets, "PREFILL_CHUNK", 10)
    chunked.begin(prompt, 8, 4)
    assert chunked._kv.length > 0 == whole._kv.length and chunked.forwards == 0
    for a, b in zip(whole.score(STATES, ALL), chunked.score(STATES, ALL), strict=True):
        torch.testing.assert_close(a, b, **EXACT)


def test_one_state_cannot_reach_another(monkeypatch):
    """No score between two states is computed: even NaN stays in its own."""
    model = copy.deepcopy(own_model())
    model.model.embed_tokens.weight[13] = torch.nan
    target = BlockCausalTarget(model, MASK)
    target.begin(toys.PROMPT, 8, 4)
    states = STATES.copy()
    states[1, 0] = 13
    first, poisoned, last = target.score(states, ALL)
    assert torch.isfinite(first).all() and torch.isfinite(last).all()
    assert torch.isnan(poisoned).all()
    target.advance([1, 2, 3, 4])
    assert torch.isfinite(target.score(STATES, ALL)[0]).all(), "nor does it stay in the context"


def test_the_head_is_applied_only_to_states_that_are_read():
    model = copy.deepcopy(own_model())
    seen = []
    model.lm_head.register_forward_hook(lambda _m, args, _o: seen.append(len(args[0])))
    target = BlockCausalTarget(model, MASK)
    target.begin(toys.PROMPT, 8, 4)
    scores = target.score(STATES, [np.array([2, 0]), np.array([0]), np.array([], np.int64)])
    assert seen == []
    assert scores[0].shape[0] == 2 and seen == [2]
    assert scores[2].shape == (0, toys.VOCABULARY) and seen == [2]
    assert [len(s) for s in scores[:2]] == [2, 1] and scores[-1].shape[0] == 0
    assert len(scores) == 3


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_target_forgets_the_text_before(layout):
    used, fresh = block_causal(layout), block_causal(layout)
    used.begin([9] * 30, 12, 6)
    used.score(np.full((2, 6), MASK), [np.arange(6)] * 2)
    used.advance([5] * 6)
    for target in (used, fresh):
        target.begin(toys.PROMPT, 8, 4)
    for a, b in zip(used.score(STATES, ALL), fresh.score(STATES, ALL), strict=True):
        assert torch.equal(a, b)


def test_clean_text_is_what_distinguishes_the_layouts():
    """So the tests above would notice a layout mistaken for another."""
    found = []
    for layout in LAYOUTS:
        target = block_causal(layout)
        target.begin(toys.PROMPT, 8, 4)
        found.append(target.score(STATES, ALL)[0])
    for i, a in enumerate(found):
        assert all((a - b).abs().max() > 1e-2 for b in found[:i])


# ── bidirectional ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", toys.FAMILIES)
@given(text=texts(), batch_rows=st.sampled_from([1, 40, 10**6]))
@settings(max_examples=15)
def test_exact_runs_every_state_as_a_sequence_of_its_own(family, text, batch_rows):
    size, prompt, blocks, moments = text
    target = BidirectionalTarget(own_model(family), MASK, batch_rows=batch_rows)
    target.begin(prompt, size * len(moments), size)
    known = [*prompt, *(t for block in blocks for t in block)]
    total = len(prompt) + size * len(moments)
    for done, states in enumerate(moments):
        begin = len(prompt) + size * done
        line = known[:begin] + [MASK] * (total - begin)
        positions = positions_of(states, True)
        before = target.rows
        compare(
            target.score(states, positions),
            states,
            positions,
            lambda state, line=line, begin=begin: reference.bidirectional(
                truth(family), line, begin, state
            ),
        )
        assert target.rows - before == len(states) * total and target.forwards == done + 1
        if done < len(blocks):
            target.advance(blocks[done])


def paper_mask(total, begin, size, drafts):
    """Rows of the shared context and drafts, Spiffy section 4.2, written out."""
    rows = total + size * drafts
    allowed = torch.zeros(rows, rows, dtype=torch.bool)
    allowed[:total, :total] = True
    for draft in range(drafts):
        mine = slice(total + draft * size, total + (draft + 1) * size)
        allowed[mine, :total] = True
        allowed[mine, begin : begin + size] = False
        allowed[mine, mine] = True
    return allowed


@pytest.mark.parametrize("family", toys.FAMILIES)
@given(text=texts())
@settings(max_examples=15)
def test_shared_is_the_papers_mask(family, text):
    size, prompt, blocks, moments = text
    target = BidirectionalTarget(own_model(family), MASK, "shared")
    total = len(prompt) + size * len(moments)
    target.begin(prompt, size * len(moments), size)
    for done, states in enumerate(moments):
        begin, drafts = len(prompt) + size * done, len(states) - 1
        known = [*prompt, *(t for block in blocks[:done] for t in block)]
        line = [*known, *states[0].tolist(), *[MASK] * (total - begin - size)]
        ids = line + [int(t) for state in states[1:] for t in state]
        place = [*range(total), *list(range(begin, begin + size)) * drafts]
        expected = truth(family)(ids, paper_mask(total, begin, size, drafts), place)
        scores = target.score(states, [np.arange(size)] * len(states))
        rows = [begin, *(total + i * size for i in range(drafts))]
        for logits, low in zip(scores, rows, strict=True):
            torch.testing.assert_close(logits, expected[low : low + size], **EXACT)
        if done < len(blocks):
            target.advance(blocks[done])


@pytest.mark.parametrize("layers", [1, 4])
def test_a_shared_context_changes_drafts_of_a_bidirectional_model(layers):
    """From the second layer on: the context of the first has seen no block yet."""
    exact, shared = (
        BidirectionalTarget(own_model("llama", layers), MASK, mode) for mode in ("exact", "shared")
    )
    for target in (exact, shared):
        target.begin(toys.PROMPT, 12, 4)
    gaps = [
        float((a - b).abs().max())
        for a, b in zip(exact.score(STATES, ALL), shared.score(STATES, ALL), strict=True)
    ]
    assert gaps[0] < 1e-9
    assert all(gap < 1e-9 for gap in gaps) if layers == 1 else all(gap > 1e-2 for gap in gaps[1:])
    assert exact.exact and not shared.exact and BlockCausalTarget(own_model(), MASK).exact
    assert shared.rows == 20 + 2 * 4 and exact.rows == 3 * 20


# ── both ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", MAKERS)
def test_a_text_that_does_not_fit_is_refused(make):
    model = copy.deepcopy(own_model())
    model.config.max_position_embeddings = 64
    target = make(model)
    for prompt, length, block, why in (
        ([], 8, 4, "no tokens"),
        ([1, 2], 0, 4, "at least 1"),
        ([1, 2], 8, 0, "at least 1"),
        ([1] * 40, 25, 4, "exceed the model's context of 64"),
    ):
        with pytest.raises(UserError, match=why) as error:
            target.begin(prompt, length, block)
        assert "\n" not in str(error.value)
    target.begin([1] * 40, 24, 4)


@pytest.mark.parametrize("make", MAKERS)
def test_a_target_states_its_tokens_and_device(make):
    model = copy.deepcopy(own_model())
    model.generation_config.eos_token_id = [4, 6]
    target = make(model)
    assert (target.mask_id, target.vocabulary, target.forwards) == (MASK, toys.VOCABULARY, 0)
    assert target.stop_ids == {4, 6} and target.device == model.device


def test_a_denoising_model_cannot_be_run_directly():
    model = copy.deepcopy(own_model())
    BlockCausalTarget(model, MASK)
    with pytest.raises(RuntimeError, match="only be run by its target"):
        model(torch.tensor([[1, 2, 3]]))


# ── under the denoising loop ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("temperature", [0.0, 1.2])
@pytest.mark.parametrize(
    "make",
    [*(lambda m, lay=lay: BlockCausalTarget(m, MASK, lay) for lay in LAYOUTS), MAKERS[1]],
    ids=[*map(str, LAYOUTS), "bidirectional"],
)
def test_drafts_change_the_number_of_calls_and_nothing_else(make, temperature):
    settings = DenoiseSettings(24, 8, temperature=temperature, seed=3, timed=False, go_on=True)
    texts_, calls = [], []
    for graph in (None, GRAPH):
        target = make(own_model())
        rounds = list(denoise(target, toys.PROMPT, settings, graph))
        texts_.append(denoised_tokens(rounds))
        calls.append(target.forwards)
        assert target.forwards == len(rounds)
    assert texts_[0] == texts_[1] and len(texts_[0]) == 24 and MASKED not in texts_[0]
    assert calls[0] == 24 and calls[1] < 24
