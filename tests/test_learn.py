"""Learn: the steps told end in the very draft, mask, walk and cache rows that the product makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.learn import steps
from core import builders
from core.types import Candidates


@st.composite
def proposals(draw) -> Candidates:
    depths, width = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    values = st.one_of(st.floats(-6, 0, width=32), st.sampled_from([-np.inf, 0.0, -1.0]))
    rows = draw(
        st.lists(st.lists(values, min_size=width, max_size=width), min_size=depths, max_size=depths)
    )
    log_q = -np.sort(-np.array(rows, np.float32), axis=1)
    ids = np.arange(depths * width).reshape(depths, width)
    return Candidates(ids.astype(np.int64), log_q)


@given(proposals(), st.integers(1, 40))
def test_the_pops_are_best_first_s(candidates: Candidates, budget: int):
    draft = builders.best_first(candidates, [99], budget)
    found = steps.search(candidates, budget)
    union = steps.considered(found, candidates, 99)
    rows = [0, *(pop.entry + 1 for pop in found.pops)]
    place = {row: at for at, row in enumerate(rows)}
    for name in ("tokens", "depths", "ranks", "log_q", "scores"):
        np.testing.assert_array_equal(getattr(union, name)[rows], getattr(draft, name))
    assert [place.get(int(union.parents[row]), -1) for row in rows] == draft.parents.tolist()


@given(proposals(), st.integers(1, 40))
def test_a_queue_holds_what_waits_best_first(candidates: Candidates, budget: int):
    found = steps.search(candidates, budget)
    waiting: set[int] = {0} if found.entries else set()
    for pop in found.pops:
        best = min(waiting, key=lambda n: (-found.entries[n].score, n))
        assert pop.entry == best
        waiting = (waiting - {best}) | set(pop.pushed)
        assert list(pop.queue) == sorted(waiting, key=lambda n: (-found.entries[n].score, n))


@given(proposals(), st.integers(1, 40))
def test_the_mask_is_the_target_s(candidates: Candidates, budget: int):
    draft = builders.best_first(candidates, [99], budget)
    np.testing.assert_array_equal(steps.mask(draft), builders.ancestor_mask(draft))


@given(proposals(), st.integers(1, 40))
def test_a_tree_of_marginals_is_nested(candidates: Candidates, budget: int):
    assert steps.unnested(builders.best_first(candidates, [99], budget)) == ()


def test_noise_is_the_sampler_s():
    pytest.importorskip("torch")
    from core.sampling import gumbel_noise

    for seed, position in ((0, 38), (7, 1), (2**63, 5)):
        whole = gumbel_noise(seed, position, 5000).numpy()
        tokens = [0, 17, 4999, 314]
        assert steps.noise(seed, position, tokens) == pytest.approx(whole[tokens].tolist())
