"""Drawing tokens: argmax, or Gumbel-max with noise keyed by seed and position alone."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.rounds.round import Sampling
from core.verification.sampling import (
    ACCEPT_STREAM,
    DRAFT_STREAM,
    RESIDUAL_STREAM,
    TARGET_STREAM,
    TargetSampler,
    best,
    gumbel_noise,
    uniforms,
)
from tests.helpers.toys import own_choice

GOLDEN_NOISE = [-0.14801852, -0.6096015, 1.4367098, -0.6832656]


def logits_of(seed, rows=1, size=40, scale=2.0):
    return scale * torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))


def survivors(logits, *settings):
    """The tokens that temperature, top-k and top-p leave, of every row."""
    scores = TargetSampler(Sampling(*settings)).filtered(logits)
    return [row.isfinite().nonzero().flatten().tolist() for row in scores]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_best_of_a_row_is_torch_s_argmax_the_first_of_equals(dtype):
    rows = logits_of(3, rows=40, size=300).to(dtype)
    rows[:, 150:] = rows[:, :150]  # every value twice
    rows[5] = -torch.inf
    rows[6, 70:] = torch.inf
    rows[7, [9, 80]] = torch.nan
    with torch.inference_mode():
        found = best(rows[:, :299])  # rows that do not lie after each other
    assert found.dtype == torch.int64 and torch.equal(found, rows[:, :299].argmax(-1))
    assert found[5] == 0 and found[6] == 70 and found[7] == 9
    assert best(rows[:0]).shape == (0,)


# ── noise ────────────────────────────────────────────────────────────────────────────────────────


def test_noise_depends_on_seed_position_and_stream_only():
    torch.manual_seed(1)
    first = gumbel_noise(3, 17, 50)
    torch.manual_seed(2)
    assert torch.equal(first, gumbel_noise(3, 17, 50))
    others = [gumbel_noise(3, 18, 50), gumbel_noise(4, 17, 50)]
    others += [gumbel_noise(3, 17, 50, s) for s in (DRAFT_STREAM, ACCEPT_STREAM, RESIDUAL_STREAM)]
    noise = torch.stack([first, *others])
    assert len(noise.unique(dim=0)) == 6
    assert torch.equal(first, gumbel_noise(3, 17, 50, TARGET_STREAM))


def test_noise_is_the_same_on_every_machine():
    """Literal values: a change here changes every seeded text ever shown."""
    expected = np.random.Generator(np.random.Philox(key=[7, 11])).random(4) + 2.0**-54
    found = gumbel_noise(7, 11, 4)
    np.testing.assert_array_equal(found, (-np.log(-np.log(expected))).astype(np.float32))
    np.testing.assert_allclose(found, GOLDEN_NOISE, rtol=1e-6)


def test_noise_draws_nothing_from_global_generators():
    def next_numbers(choose):
        torch.manual_seed(5)
        np.random.seed(5)
        if choose:
            TargetSampler(Sampling(1.0)).choose(logits_of(0), [4])
        return float(torch.rand(1)), np.random.random()

    assert next_numbers(True) == next_numbers(False)


def test_noise_is_gumbel():
    noise = gumbel_noise(0, 0, 400_000).double()
    assert noise.isfinite().all()
    assert abs(noise.mean() - 0.57722) < 0.01
    assert abs(noise.var() - math.pi**2 / 6) < 0.02
    assert abs((noise < 1).double().mean() - math.exp(-math.exp(-1))) < 0.003


def test_positions_and_streams_are_independent():
    streams = (TARGET_STREAM, DRAFT_STREAM)
    noise = torch.stack([gumbel_noise(0, p, 2000, s) for p in range(10) for s in streams])
    off_diagonal = torch.corrcoef(noise.double()) - torch.eye(20)
    assert off_diagonal.abs().max() < 0.12


def test_streams_share_no_number():
    """Also not at another place, as streams would that begin a few numbers apart."""
    streams = [set(uniforms(3, 7, 400, stream).tolist()) for stream in range(4)]
    assert len(set.union(*streams)) == sum(map(len, streams)) == 1600


@pytest.mark.filterwarnings("error")
def test_any_whole_number_is_a_seed_and_large_ones_do_not_collapse():
    seeds = [0, 5, 2**31, 2**53, 2**53 + 1, 2**63, 2**63 + 1, 2**64 - 1]
    noise = torch.stack([gumbel_noise(seed, 1 << 20, 8) for seed in seeds])
    assert noise.isfinite().all() and len(noise.unique(dim=0)) == len(seeds)
    assert all(gumbel_noise(seed, 3, 8).isfinite().all() for seed in (-1, 2**64 + 5))


# ── choosing ─────────────────────────────────────────────────────────────────────────────────────


def test_greedy_is_argmax_and_the_first_of_equals():
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [5.0, 5.0, 5.0, 5.0]])
    assert TargetSampler(Sampling()).choose(logits, []).tolist() == [1, 0]


def test_a_token_does_not_depend_on_how_its_position_was_reached():
    """Alone, in a batch, in any order, after other positions, from another sampler: the same."""
    sampling = Sampling(temperature=0.8, top_k=12, top_p=0.9, seed=3)
    logits, positions = logits_of(0, rows=30), list(range(100, 130))
    sampler = TargetSampler(sampling)
    together = sampler.choose(logits, positions).tolist()
    rows = zip(logits, positions, strict=True)
    alone = [int(TargetSampler(sampling).choose(row[None], [p])[0]) for row, p in rows]
    backwards = sampler.choose(logits.flip(0), positions[::-1]).flip(0).tolist()
    assert together == alone == backwards
    assert len(set(together)) > 5


def test_noise_forgotten_by_the_cache_comes_back_the_same():
    sampler, logits = TargetSampler(Sampling(1.0, seed=2)), logits_of(1)
    first, again = ([int(sampler.choose(logits, [p])[0]) for p in range(300)] for _ in "ab")
    assert first == again
    assert sampler._noise.cache_info().currsize <= 128


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(0.7, 5, 0.5)])
def test_choosing_leaves_the_logits_alone(sampling):
    logits = logits_of(2, rows=3)
    before = logits.clone()
    TargetSampler(sampling).choose(logits, [1, 2, 3])
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(1.0, seed=1), Sampling(0.6, 8), Sampling(1.4, 0, 0.7, 9), Sampling(0.9, 10, 0.8, 4)],
)
def test_the_sampler_equals_its_transcription_in_numpy(sampling):
    logits = logits_of(7, rows=200)
    chosen = TargetSampler(sampling).choose(logits, list(range(200))).tolist()
    assert chosen == [own_choice(logits[i].numpy(), sampling, i) for i in range(200)]


def test_low_precision_logits_are_sampled_in_float32():
    logits = logits_of(3).bfloat16()
    assert TargetSampler(Sampling(1.0)).filtered(logits).dtype == torch.float32


# ── top-k and top-p ──────────────────────────────────────────────────────────────────────────────


ODDS = [math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]


@pytest.mark.parametrize(
    ("logits", "settings", "left"),
    [
        ([1.0, 4.0, 2.0, 3.0, 0.0], (1.0, 1), [1]),
        ([1.0, 4.0, 2.0, 3.0, 0.0], (1.0, 3), [1, 2, 3]),
        ([1.0, 4.0, 2.0, 3.0, 0.0], (1.0, 0), [0, 1, 2, 3, 4]),
        ([1.0, 4.0, 2.0, 3.0, 0.0], (1.0, 5), [0, 1, 2, 3, 4]),
        ([1.0, 4.0, 2.0, 3.0, 0.0], (1.0, 99), [0, 1, 2, 3, 4]),
        ([1.0, 3.0, 1.0, 1.0, 0.0], (1.0, 2), [0, 1, 2, 3]),  # all that tie with the last
        (ODDS, (1.0, 0, 0.49), [0]),  # a token stays while the mass before it is below p
        (ODDS, (1.0, 0, 0.6), [0, 1]),
        (ODDS, (1.0, 0, 0.79), [0, 1]),
        (ODDS, (1.0, 0, 0.81), [0, 1, 2]),
        (ODDS, (1.0, 0, 1.0), [0, 1, 2, 3]),
        ([0.0] * 4, (1.0, 0, 0.5), [0, 1]),  # ties go to the lower id
        (ODDS, (1.0, 2, 0.6), [0]),  # top-2 renormalises to 0.625 and 0.375
        (ODDS, (0.25, 0, 0.8), [0]),  # and the temperature comes first
        (ODDS, (50.0, 0, 0.8), [0, 1, 2, 3]),
    ],
)
def test_what_top_k_and_top_p_leave(logits, settings, left):
    assert survivors(torch.tensor([logits]), *settings) == [left]


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([-30.0, -1.0, 0.0, 0.5, 0.5001, 3.0, 60.0]), min_size=2, max_size=30),
    st.sampled_from([1e-12, 1e-6, 0.1, 0.5, 0.9, 0.999999, 1.0]),
    st.integers(0, 5),
    st.sampled_from([0.01, 0.3, 1.0, 5.0]),
)
def test_the_best_token_always_survives(values, top_p, top_k, temperature):
    logits = torch.tensor([values])
    settings = temperature, top_k, top_p
    (left,) = survivors(logits, *settings)
    assert int(logits.argmax()) in left
    assert int(TargetSampler(Sampling(*settings)).choose(logits, [0])[0]) in left


def test_impossible_tokens_are_never_drawn():
    logits = torch.full((1, 10), -torch.inf)
    logits[0, 3], logits[0, 7] = 0.0, -2.0
    sampler = TargetSampler(Sampling(2.0, top_p=0.99))
    assert {int(sampler.choose(logits, [p])[0]) for p in range(300)} == {3, 7}


# ── the distribution ─────────────────────────────────────────────────────────────────────────────

DRAWS = 20_000


def chi_square(counts, expected):
    return sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True) if e > 0)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(1.0), Sampling(1.0, seed=9), Sampling(0.5), Sampling(1.7, 4), Sampling(1.0, 0, 0.8)],
)
def test_tokens_follow_the_filtered_softmax(sampling):
    logits = torch.tensor([[1.2, 0.3, -0.5, 2.0, 0.0, -1.0, 0.9, 0.31]])
    sampler = TargetSampler(sampling)
    p = sampler.filtered(logits).softmax(-1)[0].double().numpy()
    drawn = sampler.choose(logits.expand(DRAWS, -1), list(range(DRAWS)))
    counts = torch.bincount(drawn, minlength=8).numpy()
    assert (counts[p == 0] == 0).all()
    # 7 degrees of freedom at most: 24.3 is the 99.9 % quantile; the seeds are fixed
    assert chi_square(counts, DRAWS * p) < 24.3


def test_two_step_texts_follow_the_chain_rule():
    """Over a vocabulary of 3, the joint of two dependent positions equals its enumeration."""
    first = torch.tensor([0.4, -0.3, 1.0])
    second = torch.tensor([[1.0, 0.0, -1.0], [0.0, 0.5, 0.2], [-0.7, 0.1, 0.9]])
    joint = first.softmax(0)[:, None] * second.softmax(1)
    counts = torch.zeros(3, 3)
    for seed in range(DRAWS):
        a = int((first + gumbel_noise(seed, 10, 3)).argmax())
        counts[a, int((second[a] + gumbel_noise(seed, 11, 3)).argmax())] += 1
    expected = DRAWS * joint.flatten().double().numpy()
    assert chi_square(counts.flatten().numpy(), expected) < 26.1  # 8 degrees, 99.9 %


def test_noise_is_finite_at_both_ends_of_the_uniform(monkeypatch):
    ends = np.array([0.0, 2.0**-53, 1 - 2.0**-53])
    drawn = SimpleNamespace(random=lambda _: ends)
    monkeypatch.setattr(np.random, "Generator", lambda _: drawn)
    noise = gumbel_noise(0, 0, 3)
    assert noise.isfinite().all() and (noise.diff() > 0).all()
