"""The probe against naive numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from analysis.probe import observe
from core.decoding.decode import Proposal, Seen
from core.verification.sampling import TargetSampler
from core.rounds.draft import Candidates
from core.rounds.round import Sampling
from tests import toys

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def softmax(row):
    e = np.exp(row - row.max())
    return e / e.sum()


def seen_round(
    rows=30, depths=5, path_length=3, vocabulary=60, seed=0, sampling=toys.GREEDY, cold=None
):
    """A round with random logits on a random tree; ``cold`` vocabulary entries are impossible."""
    rng = np.random.default_rng(seed)
    parents = toys.random_parents(rng, rows)
    for step in range(1, path_length):
        parents[step] = step - 1
    draft = toys.draft_of(parents, rng.integers(0, vocabulary, rows))
    logits = torch.from_numpy(3 * rng.normal(size=(rows, vocabulary))).float()
    if cold:
        logits[:, list(cold)] = -torch.inf
    q = torch.from_numpy(3 * rng.normal(size=(depths, vocabulary))).float()
    if cold:
        q[:, [c + 1 for c in cold]] = -torch.inf
    log_q = q.log_softmax(-1)
    proposal = Proposal.factorised(log_q, 20)
    verdict = toys.verdict_of(draft, range(path_length), bonus=int(rng.integers(0, vocabulary)))
    return Seen(draft, verdict, logits, proposal, TargetSampler(sampling), position=40)


def whole(seen):
    """log q of every depth over the full vocabulary."""
    return seen.proposal.along([0] * len(seen.proposal.candidates.ids))


def over(candidates, log_q):
    """These candidates with another q behind them."""
    return Proposal(candidates, lambda path: log_q[: len(path)])


def check_beliefs(seen, beliefs):
    logits = seen.logits.double().numpy()
    for row in range(len(seen.draft)):
        p = softmax(logits[row])
        entropy = -sum(x * np.log(x) for x in p if x > 0)
        assert beliefs.entropy[row] == pytest.approx(entropy, abs=1e-4)
        order = np.argsort(-p, kind="stable")[: beliefs.top_ids.shape[1]]
        np.testing.assert_allclose(np.exp(beliefs.top_log_p[row]), p[order], **CLOSE)
        np.testing.assert_allclose(p[beliefs.top_ids[row]], p[order], **CLOSE)
        if row == 0:
            assert np.isnan(beliefs.log_p[0]) and beliefs.rank[0] == 0
            continue
        above = softmax(logits[seen.draft.parents[row]])
        own = above[seen.draft.tokens[row]]
        assert np.exp(beliefs.log_p[row]) == pytest.approx(own, rel=1e-4, abs=1e-9)
        assert beliefs.rank[row] == 1 + (above > own).sum()


def check_probe(seen, probe):
    path, proposal = seen.verdict.path, seen.proposal
    depths = min(len(path), len(proposal.candidates.ids))
    q_all = whole(seen).double().exp().numpy()
    assert probe.tvd.shape == probe.entropy_q.shape == probe.rank_q.shape == (depths,)
    assert probe.coverage.shape == (depths, 16)
    for depth in range(depths):
        p, q = softmax(seen.logits[path[depth]].double().numpy()), q_all[depth]
        assert probe.tvd[depth] == pytest.approx(np.abs(p - q).sum() / 2, abs=1e-4)
        assert probe.entropy_q[depth] == pytest.approx(
            -sum(x * np.log(x) for x in q if x > 0), abs=1e-4
        )
        best = proposal.candidates.ids[depth]
        for k in range(16):
            assert probe.coverage[depth, k] == pytest.approx(p[best[: k + 1]].sum(), abs=1e-4)
        own = q[seen.verdict.target_tokens[path[depth]]]
        assert probe.rank_q[depth] == 1 + (q > own).sum()


@pytest.mark.parametrize("seed", range(3))
def test_beliefs_and_probe_equal_naive_numpy(seed):
    seen = seen_round(seed=seed)
    found = observe(seen)
    check_beliefs(seen, found.target_probs)
    check_probe(seen, found.probe)


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 256, 257, 300])
def test_drafts_around_and_beyond_a_slab(rows):
    seen = seen_round(rows=rows, path_length=min(3, rows))
    found = observe(seen)
    check_beliefs(seen, found.target_probs)
    check_probe(seen, found.probe)


class Largest(TorchDispatchMode):
    """The most numbers that any tensor made within had."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = out if isinstance(out, (list, tuple)) else [out]
        self.count = max(self.count, *(t.numel() for t in made if isinstance(t, torch.Tensor)), 0)
        return out


def test_no_more_than_a_slab_of_rows_is_worked_on_however_many_children_one_has():
    """All but the first rows of a draft hang on one slab; the numbers are those of any other."""
    vocabulary = 300
    seen = seen_round(rows=700, vocabulary=vocabulary, path_length=1)
    rng = np.random.default_rng(1)
    parents = np.append([-1], np.minimum(np.arange(699), rng.integers(0, 100, 699)))
    object.__setattr__(seen, "draft", toys.draft_of(parents, seen.draft.tokens))
    object.__setattr__(seen, "verdict", replace(seen.verdict, choices=np.zeros(700, np.int64)))
    with Largest() as largest:
        found = observe(seen)
    assert largest.count <= 128 * vocabulary
    check_beliefs(seen, found.target_probs)
    log_p = seen.logits[:128].log_softmax(-1)[parents[1:]]
    own = log_p.gather(1, torch.from_numpy(seen.draft.tokens[1:, None]))
    np.testing.assert_array_equal(found.target_probs.log_p[1:], own[:, 0])
    np.testing.assert_array_equal(found.target_probs.rank[1:], (log_p > own).sum(1) + 1)


def test_impossible_tokens_give_numbers_and_not_nan():
    seen = seen_round(cold=(1, 5, 30), rows=140)
    found = observe(seen)
    check_beliefs(seen, found.target_probs)
    check_probe(seen, found.probe)
    assert np.isfinite(found.target_probs.entropy).all() and np.isfinite(found.probe.tvd).all()
    assert np.isfinite(found.probe.entropy_q).all()


@pytest.mark.parametrize(("path_length", "observed"), [(1, 1), (3, 3), (5, 5), (6, 5)])
def test_depths_are_observed_up_to_one_behind_the_accepted(path_length, observed):
    """A fully accepted block has L accepted nodes and no depth L + 1 to observe."""
    assert len(observe(seen_round(path_length=path_length)).probe.tvd) == observed


@pytest.mark.parametrize("vocabulary", [5, 15, 16, 17])
def test_small_vocabularies_are_fully_covered(vocabulary):
    found = observe(seen_round(vocabulary=vocabulary))
    assert found.probe.coverage.shape == (3, 16)
    assert found.target_probs.top_ids.shape[1] == min(10, vocabulary)
    if vocabulary <= 16:
        np.testing.assert_allclose(found.probe.coverage[:, vocabulary - 1 :], 1, atol=1e-5)


def test_coverage_is_of_the_drafters_best_however_few_the_round_keeps():
    """A proposal may hold fewer than 16 tokens of a depth: the definition does not change."""
    seen, expected = seen_round(), observe(seen_round()).probe.coverage
    few = Candidates(seen.proposal.candidates.ids[:, :4], seen.proposal.candidates.log_q[:, :4])
    object.__setattr__(seen, "proposal", over(few, whole(seen)))
    np.testing.assert_array_equal(observe(seen).probe.coverage, expected)


def test_a_drafter_that_gives_no_distribution_is_not_probed():
    seen = seen_round()
    object.__setattr__(seen, "proposal", Proposal(seen.proposal.candidates))
    found = observe(seen)
    assert found.probe is None and found.target_probs is not None


def test_q_is_asked_for_along_the_accepted_path_and_no_further():
    """[root, x_1, …]: one token per observed depth, the one that stands before it."""
    for path_length, asked in ((1, 1), (3, 3), (6, 5)):
        seen, paths = seen_round(path_length=path_length), []
        given = whole(seen)

        def along(path, given=given, paths=paths):
            paths.append(list(path))
            return given[: len(path)]

        object.__setattr__(seen, "proposal", Proposal(seen.proposal.candidates, along))
        observe(seen)
        assert paths == [seen.draft.tokens[:asked].tolist()]


def test_equal_distributions_have_no_distance():
    seen = seen_round()
    rows = list(seen.verdict.path)
    log_q = torch.zeros(5, 60)
    log_q[:3] = seen.logits[rows]
    object.__setattr__(seen, "proposal", over(seen.proposal.candidates, log_q.log_softmax(-1)))
    assert observe(seen).probe.tvd.max() < 1e-5


def test_disjoint_distributions_are_at_distance_one():
    seen = seen_round()
    seen.logits[:, :30] = -torch.inf
    log_q = torch.full((5, 60), -torch.inf)
    log_q[:, :30] = -np.log(30)
    object.__setattr__(seen, "proposal", over(seen.proposal.candidates, log_q))
    np.testing.assert_allclose(observe(seen).probe.tvd, 1, atol=1e-5)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, seed=4), Sampling(0.7, 9, 0.8)])
def test_every_row_gets_the_targets_token_and_asked_rows_keep_theirs(sampling):
    seen = seen_round(rows=150, sampling=sampling)
    choices = observe(seen).choices
    asked = seen.verdict.target_tokens >= 0
    np.testing.assert_array_equal(choices[asked], seen.verdict.target_tokens[asked])
    for row in np.flatnonzero(~asked):
        after = 40 + int(seen.draft.depths[row]) + 1
        assert choices[row] == toys.own_choice(seen.logits[row].numpy(), sampling, after)


def test_p_does_not_depend_on_the_sampling_temperature():
    one, two = observe(seen_round()), observe(seen_round(sampling=Sampling(0.2, 3, 0.5)))
    np.testing.assert_array_equal(one.target_probs.log_p, two.target_probs.log_p)
    np.testing.assert_array_equal(one.probe.tvd, two.probe.tvd)


def test_plain_decoding_has_beliefs_and_no_probe():
    found = toys.run(toys.AR, 5, observe=observe)
    assert all(r.probe is None and r.target_probs is not None for r in found.rounds)


def test_observing_leaves_what_it_saw_alone():
    seen = seen_round(rows=140)
    before = seen.logits.clone(), whole(seen).clone(), seen.verdict.target_tokens.copy()
    observe(seen)
    assert torch.equal(seen.logits, before[0]) and torch.equal(whole(seen), before[1])
    np.testing.assert_array_equal(seen.verdict.target_tokens, before[2])


def test_numbers_are_plain_float32_and_int32_arrays():
    found = observe(seen_round())
    assert {a.dtype for a in (found.target_probs.log_p, found.target_probs.entropy, found.probe.tvd)} == {
        np.dtype(np.float32)
    }
    assert found.target_probs.rank.dtype == found.probe.rank_q.dtype == np.int32
