"""The probe against naive numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from analysis.measures.misses import miss, sentence
from analysis.measures.probe import observe, probe_along
from core.decoding.decode import Scene
from core.drafting.best import top
from core.drafting.probabilities import order, target
from core.drafting.session import FactorisedSession
from core.rounds.causes import Cause
from core.rounds.draft import Candidates, Proposal
from core.rounds.round import Round, Sampling
from core.traces import distributions
from core.verification.rules import TargetTokens
from tests.helpers import toys

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def softmax(row):
    e = np.exp(row - row.max())
    return e / e.sum()


def make_scene(
    rows=30, depths=5, path_length=3, vocabulary=60, seed=0, sampling=toys.GREEDY, cold=None
):
    """A round with random logits on a random tree; ``cold`` vocabulary entries are impossible."""
    rng = np.random.default_rng(seed)
    parents = toys.random_parents(rng, rows)
    for step in range(1, path_length):
        parents[step] = step - 1
    draft = toys.draft_of(parents, rng.integers(0, vocabulary, rows))
    logits = torch.from_numpy(3 * rng.normal(size=(rows, vocabulary))).float()
    q = torch.from_numpy(3 * rng.normal(size=(depths, vocabulary))).float()
    if cold:
        logits[:, list(cold)] = -torch.inf
        q[:, [c + 1 for c in cold]] = -torch.inf
    session = FactorisedSession.of(q.log_softmax(-1), 20)
    verdict = toys.verdict_of(draft, range(path_length), bonus=int(rng.integers(0, vocabulary)))
    return Scene(draft, verdict, logits, session, TargetTokens(sampling), position=40)


def with_q(scene, log_q, keep=20):
    """The scene with another q."""
    lists = scene.session.by_depth
    lists = Candidates(lists.ids[:, :keep], lists.log_q[:, :keep])
    return replace(scene, session=FactorisedSession(lists, lambda depths: log_q[:depths]))


def check_target_probs(scene, found):
    logits = scene.logits.double().numpy()
    for row in range(len(scene.draft)):
        p = softmax(logits[row])
        entropy = -sum(x * np.log(x) for x in p if x > 0)
        assert found.entropy[row] == pytest.approx(entropy, abs=1e-4)
        order = np.argsort(-p, kind="stable")[: found.top_ids.shape[1]]
        np.testing.assert_allclose(np.exp(found.top_log_p[row]), p[order], **CLOSE)
        np.testing.assert_allclose(p[found.top_ids[row]], p[order], **CLOSE)
        if row == 0:
            assert np.isnan(found.log_p[0]) and found.rank[0] == 0
            continue
        above = softmax(logits[scene.draft.parents[row]])
        own = above[scene.draft.tokens[row]]
        assert np.exp(found.log_p[row]) == pytest.approx(own, rel=1e-4, abs=1e-9)
        assert found.rank[row] == 1 + (above > own).sum()


def check_probe(scene, probe):
    path, session = scene.verdict.path, scene.session
    depths = min(len(path), session.max_depth)
    q_all = session.log_q([0] * depths).double().exp().numpy()
    assert probe.tvd.shape == probe.entropy_q.shape == probe.rank_q.shape == (depths,)
    assert probe.coverage.shape == (depths, 16)
    for depth in range(depths):
        p, q = softmax(scene.logits[path[depth]].double().numpy()), q_all[depth]
        assert probe.tvd[depth] == pytest.approx(np.abs(p - q).sum() / 2, abs=1e-4)
        entropy = -sum(x * np.log(x) for x in q if x > 0)
        assert probe.entropy_q[depth] == pytest.approx(entropy, abs=1e-4)
        best = session.by_depth.ids[depth]
        for k in range(16):
            assert probe.coverage[depth, k] == pytest.approx(p[best[: k + 1]].sum(), abs=1e-4)
        own = q[scene.verdict.target_tokens[path[depth]]]
        assert probe.rank_q[depth] == (1 + (q > own).sum() if own > 0 else 0)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"seed": 1},
        {"cold": (1, 5, 30), "rows": 140},
        *({"rows": rows, "path_length": min(3, rows)} for rows in (1, 127, 128, 129, 256, 257)),
    ],
)
def test_it_equals_naive_numpy_also_around_a_slab_and_with_impossible_tokens(shape):
    scene = make_scene(**shape)
    found = observe(scene)
    check_target_probs(scene, found.target_probs)
    check_probe(scene, found.probe)
    floats = (found.target_probs.entropy, found.probe.tvd, found.probe.entropy_q)
    assert all(np.isfinite(values).all() and values.dtype == np.float32 for values in floats)
    assert found.target_probs.rank.dtype == found.probe.rank_q.dtype == np.int32


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
    """The parents of all rows are in one slab; the numbers are those of any other draft."""
    vocabulary = 300
    scene = make_scene(rows=700, vocabulary=vocabulary, path_length=1)
    rng = np.random.default_rng(1)
    parents = np.append([-1], np.minimum(np.arange(699), rng.integers(0, 100, 699)))
    verdict = replace(scene.verdict, target_tokens=np.zeros(700, np.int64))
    draft = toys.draft_of(parents, scene.draft.tokens)
    scene = replace(scene, draft=draft, verdict=verdict)
    with Largest() as largest:
        found = observe(scene)
    assert largest.count <= 128 * vocabulary
    check_target_probs(scene, found.target_probs)


@pytest.mark.parametrize(("path_length", "observed"), [(1, 1), (3, 3), (5, 5), (6, 5)])
def test_depths_are_observed_up_to_one_after_the_accepted_and_q_is_read_no_further(
    path_length, observed
):
    """A fully accepted block has L accepted nodes and no depth L + 1 to observe."""
    scene, paths = make_scene(path_length=path_length), []
    read = scene.session.log_q
    scene.session.log_q = lambda path: paths.append(list(path)) or read(path)
    assert len(observe(scene).probe.tvd) == observed
    assert paths == [scene.draft.tokens[:observed].tolist()]


@pytest.mark.parametrize("vocabulary", [5, 15, 16, 17])
def test_small_vocabularies_are_fully_covered(vocabulary):
    found = observe(make_scene(vocabulary=vocabulary))
    assert found.probe.coverage.shape == (3, 16)
    assert found.target_probs.top_ids.shape[1] == min(10, vocabulary)
    if vocabulary <= 16:
        np.testing.assert_allclose(found.probe.coverage[:, vocabulary - 1 :], 1, atol=1e-5)


def test_coverage_is_of_the_drafters_best_however_few_the_session_lists():
    scene = make_scene()
    few = with_q(scene, scene.session.log_q([0] * 5), keep=4)
    np.testing.assert_array_equal(observe(few).probe.coverage, observe(scene).probe.coverage)


@pytest.mark.parametrize("size", [60, 64 * 9, 64 * 40])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
def test_of_equals_the_lowest_id_stands_first_however_many_are_listed(size, kind):
    rng = torch.Generator().manual_seed(size)
    rows = torch.randint(-3, 4, (5, size), generator=rng).to(kind) / 4 * torch.tensor([[-1.0]])
    most = torch.randint(-2, 4, (5, 64), generator=rng).repeat_interleave(64, 1)[:, :size]
    rows = torch.minimum(rows, most.to(kind) / 4)  # by the chunks in which ``top`` looks
    rows[:, ::7], rows[0, 1::2] = -torch.inf, 0.0  # beside −0
    by_hand = rows.double().sort(dim=-1, descending=True, stable=True).indices
    for count in (1, 2, 16, 30, size):
        best = top(rows.to(kind), count)
        assert torch.equal(best.indices, by_hand[:, :count])
        assert torch.equal(best.values, rows.to(kind).gather(1, best.indices))
        found = distributions._best(rows.double().numpy(), count)
        np.testing.assert_array_equal(found, by_hand[:, :count])
    tokens = by_hand[:, [30]]
    assert set(order(rows, tokens).tolist()) == {31}
    assert set(distributions._ranks(rows.numpy(), tokens[:, 0].numpy())) == {31}


def test_of_tokens_with_one_q_one_alone_is_the_best():
    """As where counts are few, or logits have 16 bits: a chain drafts one of them."""
    even = torch.full((1, 60), 1 / 60).log()
    session = FactorisedSession.of(even, 60)
    logits = torch.zeros(1, 60)
    ranks = [
        int(probe_along(session, [0], logits, np.array([token])).rank_q[0]) for token in range(60)
    ]
    assert ranks == list(range(1, 61))


def test_of_tokens_with_one_p_the_listed_have_a_rank_each_and_the_others_share_one():
    tokens, parents = torch.arange(60), torch.zeros(60).long()
    found = target(torch.zeros(60, 60), parents, tokens, 10)
    listed = found["top"][0].tolist()
    ranks = [listed.index(token) + 1 if token in listed else 11 for token in range(60)]
    assert len(listed) == 10 and found["rank_p"].tolist() == ranks


@pytest.mark.parametrize("vocabulary", [None, 58])
def test_a_token_that_q_gives_nothing_has_no_rank(vocabulary):
    scene = make_scene(path_length=2)
    wanted = [int(token) for token in scene.verdict.target_tokens[[0, 1]]]
    log_q = scene.session.log_q([0] * 5).clone()
    log_q[1, wanted[1]] = -torch.inf
    scene = with_q(scene, log_q)
    scene.session.draft_vocabulary = vocabulary
    seen = observe(scene)
    first = 1 + int((log_q[0] > log_q[0, wanted[0]]).sum())
    assert seen.probe.rank_q.tolist() == [first, 0] and seen.probe.vocabulary == vocabulary
    lists = scene.session.by_depth
    held = np.where(lists.ids == wanted[1], -np.inf, lists.log_q)  # q = 0 is in no list
    proposal = Proposal.factorised(Candidates(lists.ids, held), scene.draft.depths)
    draft = replace(scene.draft, proposal=proposal)
    record = Round(0, 7, draft, scene.verdict, (1, 1), probe=seen.probe)
    assert record.stop_reason is (Cause.VOCABULARY if vocabulary else Cause.OUTSIDE)
    found = miss(record)
    assert found is not None and found.rank is None
    assert sentence(found, str, 1).endswith(f", {record.stop_reason.words}")


def test_a_drafter_that_cannot_tell_all_of_q_is_not_probed():
    scene = make_scene()
    found = observe(replace(scene, session=FactorisedSession(scene.session.by_depth)))
    assert found.probe is None and found.target_probs is not None


def test_the_distance_of_equal_and_of_disjoint_distributions():
    scene = make_scene()
    log_q = torch.zeros(5, 60)
    log_q[:3] = scene.logits[list(scene.verdict.path)]
    assert observe(with_q(scene, log_q.log_softmax(-1))).probe.tvd.max() < 1e-5
    scene.logits[:, :30] = -torch.inf
    log_q = torch.full((5, 60), -torch.inf)
    log_q[:, :30] = -np.log(30)
    np.testing.assert_allclose(observe(with_q(scene, log_q)).probe.tvd, 1, atol=1e-5)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, seed=4), Sampling(0.7, 9, 0.8)])
def test_every_row_gets_the_targets_token_and_the_walk_s_rows_keep_theirs(sampling):
    scene = make_scene(rows=150, sampling=sampling)
    tokens = observe(scene).target_tokens
    walked = scene.verdict.target_tokens >= 0
    np.testing.assert_array_equal(tokens[walked], scene.verdict.target_tokens[walked])
    for row in np.flatnonzero(~walked):
        after = 40 + int(scene.draft.depths[row]) + 1
        assert tokens[row] == toys.own_choice(scene.logits[row].numpy(), sampling, after)


def test_p_does_not_depend_on_the_sampling_temperature():
    one, two = observe(make_scene()), observe(make_scene(sampling=Sampling(0.2, 3, 0.5)))
    np.testing.assert_array_equal(one.target_probs.log_p, two.target_probs.log_p)
    np.testing.assert_array_equal(one.probe.tvd, two.probe.tvd)


def test_plain_decoding_has_p_and_no_probe():
    found = toys.run(toys.AR, 5, observe=observe)
    assert all(r.probe is None and r.target_probs is not None for r in found.rounds)


def test_observing_leaves_what_it_saw_alone():
    scene = make_scene(rows=140)
    before = scene.logits.clone(), scene.verdict.target_tokens.copy()
    observe(scene)
    assert torch.equal(scene.logits, before[0])
    np.testing.assert_array_equal(scene.verdict.target_tokens, before[1])


def test_depths_behind_one_without_a_proposal_are_not_probed():
    log_q = torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf], [0.0, -torch.inf]])
    session = FactorisedSession.of(log_q, 2)
    found = probe_along(session, [5, 0, 0], torch.zeros(3, 2), np.array([0, 0, 0]))
    assert len(found.tvd) == len(found.rank_q) == 1 and found.tvd[0] == 0.5
