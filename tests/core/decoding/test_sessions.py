"""The seam: draft sessions, searches over what they have said so far, and other verification."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.measures.probe import observe
from core.decoding.decode import Decoder
from core.drafting.builders import Chain, OptTree, SampledChain, best_first, grow
from core.drafting.session import NO_STATE, DraftSession, FactorisedSession, spread
from core.drafting.states import StateTable
from core.errors import UserError
from core.rounds.causes import Cause
from core.rounds.draft import NOT_ASKED, Candidates, Draft
from core.rounds.round import SIDE, Sampling
from core.traces.writer import round_to_json
from core.verification.rules import SpeculativeSampling, block_odds
from tests.helpers import toys
from tests.helpers.draft_sessions import ROOT, path_function
from tests.helpers.fakes import round_from_json
from tests.helpers.timing import amount, usually
from tests.helpers.toys import PROMPT, FunctionSession, plain, run


def every_path(after, depth, vocabulary):
    """Scores of all paths of 1 … depth tokens, by brute force."""
    scores = {(): 0.0}
    for length in range(1, depth + 1):
        for path in product(range(vocabulary), repeat=length):
            above = scores[path[:-1]]
            scores[path] = above + float(after((ROOT, *path[:-1]))[path[-1]])
    del scores[()]
    return {path: score for path, score in scores.items() if np.isfinite(score)}


def paths_of(draft):
    return [tuple(draft.tokens[list(draft.path(row))[1:]].tolist()) for row in range(1, len(draft))]


class AllAtOnce(DraftSession):
    """The same session, every state of which is known from the start."""

    def __init__(self, session):
        self.max_depth = session.max_depth
        found, wanted = [], np.array([0], np.int32)
        while len(wanted):
            found.append(session.expand(wanted))
            wanted = found[-1].next[found[-1].next != NO_STATE]
        names = ("states", "ids", "log_q", "next")
        self.all = type(found[0])(
            *(np.concatenate([getattr(f, name) for f in found]) for name in names)
        )

    def expand(self, states):
        return self.all


@pytest.mark.parametrize("at_once", [1, 3, 7])
def test_many_nodes_are_scored_a_few_at_a_time(monkeypatch, at_once):
    """The same draft and log q, though only the first nodes' log q is kept."""
    after = path_function(5, 6, ties=False)
    expected = best_first(whole := FunctionSession(after, ROOT, 4, 6), [ROOT], 60)
    monkeypatch.setattr("core.drafting.session.SCORED_AT_ONCE", at_once)
    parts = FunctionSession(after, ROOT, 4, 6)
    parts.again = True
    draft = best_first(parts, [ROOT], 60)
    assert paths_of(draft) == paths_of(expected)
    np.testing.assert_array_equal(draft.scores, expected.scores)
    assert parts.batches > whole.batches
    deepest = [ROOT, *max(paths_of(draft), key=len)][:4]
    for path in (deepest, deepest[:2], [ROOT, 5, 5, 5], deepest):
        assert torch.equal(
            parts.log_q(path), torch.stack([after(path[: n + 1]) for n in range(len(path))])
        )
        assert len(parts._log_q) < 2 * at_once + len(path)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 4), st.integers(2, 4), st.integers(1, 40), st.booleans()
)
def test_best_first_over_paths_is_brute_force(seed, depth, vocabulary, budget, ties):
    """Score for score the best paths of all, prefix-closed, in at most L batches; and node for node
    the search that knows every state from the start, ties included."""
    after = path_function(seed, vocabulary, ties)
    session = FunctionSession(after, ROOT, depth, vocabulary)
    draft = best_first(session, [1, ROOT], budget)
    scores = every_path(after, depth, vocabulary)
    best = sorted(scores.values(), reverse=True)[:budget]
    np.testing.assert_allclose(sorted(draft.scores[1:], reverse=True), best, atol=1e-5)
    found = paths_of(draft)
    assert len(set(found)) == len(found)
    assert all(len(path) == 1 or path[:-1] in found for path in found)
    np.testing.assert_allclose(draft.scores[1:], [scores[path] for path in found], atol=1e-5)
    assert session.batches <= depth
    whole = best_first(AllAtOnce(FunctionSession(after, ROOT, depth, vocabulary)), [ROOT], budget)
    for name in ("tokens", "parents", "ranks", "scores"):
        np.testing.assert_array_equal(getattr(draft, name), getattr(whole, name))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 40), st.integers(1, 9), st.booleans()
)
def test_small_batches_make_the_same_draft(seed, depth, budget, most, ties):
    after = path_function(seed, 4, ties)
    session = FunctionSession(after, ROOT, depth, 4)
    session.at_once, sizes, expand = most, [], session.expand
    session.expand = lambda states: sizes.append(len(states)) or expand(states)
    draft = best_first(session, [ROOT], budget)
    whole = best_first(AllAtOnce(FunctionSession(after, ROOT, depth, 4)), [ROOT], budget)
    for name in ("tokens", "parents", "ranks", "scores"):
        np.testing.assert_array_equal(getattr(draft, name), getattr(whole, name))
    assert max(sizes) <= max(most, budget // 4)


def test_small_batches_ask_for_less():
    """A tree that goes deep drops most of the root's children again."""

    def asked(most):
        session = FunctionSession(path_function(4, 30, False), ROOT, 8, 30)
        session.at_once, sizes, expand = most, [], session.expand
        session.expand = lambda states: sizes.append(len(states)) or expand(states)
        best_first(session, [ROOT], 60)
        return sum(sizes)

    assert asked(8) < asked(None)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 30), st.booleans())
def test_opt_tree_over_paths_finds_what_best_first_finds(seed, depth, budget, ties):
    after = path_function(seed, 3, ties)
    one = OptTree()(FunctionSession(after, ROOT, depth, 3), [ROOT], budget)
    two = best_first(FunctionSession(after, ROOT, depth, 3), [ROOT], budget)
    np.testing.assert_allclose(sorted(one.scores[1:]), sorted(two.scores[1:]), atol=1e-5)


def test_a_chain_asks_for_one_node_at_a_time_and_none_after_its_last():
    after = path_function(3, 5, False)
    session = FunctionSession(after, ROOT, 6, 5)
    draft = Chain()(session, [ROOT], 4)
    best, path = [], (ROOT,)
    for _ in range(4):
        best.append(int(after(path).argmax()))
        path = (*path, best[-1])
    assert draft.tokens[1:].tolist() == best
    assert session.batches == 4 and draft.proposal.after.tolist() == [0, 1, 2, 3, NOT_ASKED]


def test_a_list_that_was_not_asked_for_counts_as_pruned():
    """A builder that stops early leaves the state after its last node unknown."""
    session = FunctionSession(path_function(3, 5, False), ROOT, 6, 5)
    table = StateTable(session)
    rows = table.complete(lambda: toys_rows(table))
    draft = table.draft(ROOT, rows)
    assert draft.proposal.after.tolist()[0] == 0
    after = StateTable(FunctionSession(path_function(3, 5, False), ROOT, 6, 5))
    bare = after.draft(ROOT, toys_rows(after))
    assert bare.proposal.after.tolist() == [0, NOT_ASKED]
    record = replace(toys_round(bare, (0, 1), 3), budget=1)
    assert record.stop_reason == Cause.PRUNED


def toys_rows(table):
    """The best child of the root alone."""
    from core.drafting.states import Rows

    zero = np.zeros(1, np.int32)
    return Rows(zero, zero + 1, zero, table.log_q[:1, 0], zero)


def toys_round(draft, path, bonus):
    from core.rounds.round import Round

    return Round(0, 9, draft, toys.verdict_of(draft, path, bonus), (1, bonus))


def test_a_session_tells_all_of_q_along_any_path():
    after = path_function(5, 6, False)
    session = FunctionSession(after, ROOT, 4, 6)
    best_first(session, [ROOT], 3)
    for path in ([ROOT], [ROOT, 2], [ROOT, 5, 5, 0]):
        expected = torch.stack([after(tuple(path[: n + 1])) for n in range(len(path))])
        torch.testing.assert_close(session.log_q(path), expected)


def test_grow_over_paths_asks_level_by_level():
    after = path_function(8, 4, False)
    session = FunctionSession(after, ROOT, 5, 4)
    draft = grow(session, [ROOT], [(0, 1), (0, 0), (1, 2), (3, 0)])
    assert draft.parents.tolist() == [-1, 0, 0, 1, 3] and draft.ranks.tolist() == [0, 2, 1, 3, 1]
    scores = every_path(after, 3, 4)
    expected = [scores[path] for path in paths_of(draft)]
    np.testing.assert_allclose(draft.scores[1:], expected, atol=1e-5)


def test_stage_times_interleave_and_add_up():
    text = PROMPT + plain(60, Sampling())
    found = run(Decoder("m", toys.PathDrafter(text), best_first), 20, budget=9)
    assert all(r.times.draft > 0 and r.times.build > 0 for r in found.rounds)


# ── rows that are scored and never accepted ──────────────────────────────────────────────────────


class WindowDrafter(toys.NoisyOracle):
    """Learns the target's token after every side row, as Lookahead's pool does."""

    def __init__(self, text):
        super().__init__(text)
        self.seen = []

    def observe(self, draft, verdict):
        self.seen.append((draft, verdict.target_tokens[sorted(draft.side)].tolist()))


def with_window(session, text, budget):
    """A tree, and after the root two more copies of its best path, as side rows."""
    draft = best_first(session, text, budget)
    chain = Chain()(session, text, 3)
    count, more = len(draft), len(chain) - 1
    parents = np.where(np.arange(more) == 0, 0, count + np.arange(more) - 1)

    def joined(one, two):
        return np.concatenate([one, two])

    return Draft(
        tokens=joined(draft.tokens, chain.tokens[1:]),
        parents=joined(draft.parents, parents).astype(np.int32),
        depths=joined(draft.depths, chain.depths[1:]),
        ranks=joined(draft.ranks, chain.ranks[1:]),
        log_q=joined(draft.log_q, chain.log_q[1:]),
        scores=joined(draft.scores, chain.scores[1:]),
        side=frozenset(range(count, count + more)),
    )


@pytest.mark.parametrize("sampling", [Sampling(), toys.HOT], ids=["greedy", "hot"])
def test_side_rows_are_scored_and_never_accepted(sampling):
    text = PROMPT + plain(90, sampling)
    drafter = WindowDrafter(text)
    found = run(Decoder("m", drafter, with_window), 50, sampling, 12, observe=observe)
    assert found.tokens == plain(50, sampling)
    assert any(r.accepted for r in found.rounds)
    for record, (draft, tokens) in zip(found.rounds, drafter.seen, strict=True):
        assert record.draft is draft and len(draft.side) == 3
        assert draft.side.isdisjoint(record.verdict.path)
        assert {record.status[row] for row in draft.side} == {SIDE}
        assert {record.why(row) for row in draft.side} == {SIDE}
        rows = sorted(draft.side)
        assert tokens == record.verdict.target_tokens[rows].tolist()
        known = [*text[: record.position], *draft.tokens[list(draft.path(rows[-1]))].tolist()]
        logits = toys.full_forward(known).logits[-1].numpy()
        assert tokens[-1] == toys.own_choice(logits, sampling, len(known))
        again = round_from_json(round_to_json(record))
        assert again.draft.side == draft.side and again.status == record.status


# ── speculative sampling ─────────────────────────────────────────────────────────────────────────

P = {(): (1, 3, 4), (0,): (2, 2, 4), (1,): (4, 4, 0), (2,): (0, 6, 2)}  # eighths
Q = {(): (4, 2, 2), (0,): (2, 4, 2), (1,): (2, 2, 4), (2,): (4, 2, 2)}
GRID = (np.arange(12) + 0.5) / 12  # every threshold of these fractions lies between its points


class OnGrid(SpeculativeSampling):
    """The rule with uniform numbers from a grid, so that a mean over the grid is an integral."""

    def __init__(self, numbers):
        super().__init__(Sampling(1.0))
        self.numbers = numbers

    def _uniform(self, after, stream, number):
        return self.numbers[after, stream]


class Fractions:
    def log_q(self, path):
        return torch.tensor(
            [[x / 8 for x in Q[tuple(path[1 : i + 1])]] for i in range(len(path))]
        ).log()


def test_speculative_sampling_has_the_targets_distribution_exactly():
    """Every draft, weighed by q, and every uniform number on a grid: the committed pairs of tokens
    have exactly p(first) p(second | first)."""
    law = np.zeros((3, 3))
    for first, second in product(range(3), repeat=2):
        weight = Q[()][first] / 8 * Q[(first,)][second] / 8
        draft = Draft.chain([ROOT, first, second])
        logits = torch.tensor([P[()], P[(first,)], (1, 1, 1)]).div(8).log()
        for accept1, accept2, left in product(GRID, repeat=3):
            numbers = {(1, 2): accept1, (2, 2): accept2} | {(n, 3): left for n in (1, 2, 3)}
            verdict = OnGrid(numbers).verify(draft, logits, 0, Fractions())
            tokens = [*draft.tokens[list(verdict.path[1:])].tolist(), verdict.bonus]
            share = weight / len(GRID) ** 3
            if len(tokens) > 1:
                law[tokens[0], tokens[1]] += share
            else:  # a round ended after one token: the next one follows p
                law[tokens[0]] += share * np.array(P[(tokens[0],)]) / 8
    expected = np.array([[P[()][a] / 8 * P[(a,)][b] / 8 for b in range(3)] for a in range(3)])
    np.testing.assert_allclose(law, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ((2, 2, 4), (4, 2, 2)),
        ((1, 3, 4), (2, 2, 4)),
        ((4, 9, 3), (8, 8, 0)),  # after a refusal the second draw may be refused too
    ],
)
def test_independent_siblings_have_the_targets_distribution_exactly(p, q):
    """Multi-round sampling: two draws from q stand after the root, tried one after the other."""
    law = np.zeros(3)

    class One:
        def log_q(self, path):
            return torch.tensor([[x / sum(q) for x in q]]).log()

    class Rule(OnGrid):
        def _uniform(self, after, stream, number):
            return self.numbers[stream, number]

    logits = torch.tensor([p, (1, 1, 1), (1, 1, 1)]).div(sum(p)).log()
    for one, two in product(range(3), repeat=2):
        draft = toys.draft_of([-1, 0, 0], [ROOT, one, two])
        for first, second, left in product((0.125, 0.375, 0.625, 0.875), repeat=3):
            rule = Rule({(2, 0): first, (2, 1): second, (3, 0): left})
            verdict = rule.verify(draft, logits, 0, One())
            tokens = [*draft.tokens[list(verdict.path[1:])].tolist(), verdict.bonus]
            law[tokens[0]] += q[one] / sum(q) * q[two] / sum(q) / 4**3
    np.testing.assert_allclose(law, np.array(p) / sum(p), atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_block_verification_has_the_targets_distribution_exactly(seed):
    """Every draft of three tokens, weighed by q: the next three tokens have p's law, and no fewer
    are accepted than one by one."""
    rng, size, length = np.random.default_rng(seed), 3, 3
    after = {
        path: rng.dirichlet(np.full(size, 0.5), 2)
        for depth in range(length + 1)
        for path in product(range(size), repeat=depth)
    }
    law, accepted, one_by_one = np.zeros((size,) * length), 0.0, 0.0
    for tokens in product(range(size), repeat=length):
        p = np.stack([after[tokens[:end]][0] for end in range(length + 1)])
        q = np.stack([after[tokens[:end]][1] for end in range(length)])
        at = np.arange(length), np.array(tokens)
        weight = q[at].prod()
        keep, then = block_odds(p, q, tokens)
        one_by_one += weight * np.minimum(1, p[:length][at] / q[at]).cumprod().sum()
        for end in range(length + 1):
            share = weight * keep[end] * np.prod(1 - keep[end + 1 :])
            accepted += share * end
            if end == length:
                law[tokens] += share
                continue
            for rest in product(range(size), repeat=length - end):
                odds = then[end, rest[0]]
                for more in range(1, len(rest)):  # later rounds follow p
                    odds *= after[tokens[:end] + rest[:more]][0][rest[more]]
                law[tokens[:end] + rest] += share * odds
    for path in product(range(size), repeat=length):
        expected = np.prod([after[path[:end]][0][path[end]] for end in range(length)])
        assert law[path] == pytest.approx(expected, abs=1e-12)
    assert accepted >= one_by_one - 1e-12


def test_speculative_sampling_leaves_side_rows_alone():
    draft = replace(toys.draft_of([-1, 0], [ROOT, 1]), side=frozenset({1}))
    sure = torch.tensor([[0.0, 50.0, 0.0], [0.0, 0.0, 0.0]])
    verdict = SpeculativeSampling(Sampling(1.0)).verify(draft, sure, 0, None)
    assert verdict.path == (0,) and verdict.bonus == 1


def test_a_place_without_a_token_hides_no_token():
    lists = Candidates(np.array([[2, 0, 0]]), np.array([[-1, -2, -np.inf]], np.float32))
    assert spread(lists, 4).tolist() == [[-2, -np.inf, -1, -np.inf]]


def speculative(drafter):
    return Decoder("sps", drafter, SampledChain(), SpeculativeSampling)


def test_speculative_sampling_is_plain_decoding_when_greedy():
    text = PROMPT + plain(80, Sampling())
    found = run(speculative(toys.PathDrafter(text)), 40, budget=4)
    assert found.tokens == plain(40, Sampling())
    assert any(r.accepted for r in found.rounds)


@pytest.mark.parametrize(
    "drafter", usually([toys.RandomDrafter], [toys.RandomDrafter, toys.sps_drafter])
)
def test_speculative_samplings_texts_follow_the_target(drafter):
    """The first two tokens of many seeds against the target's exact law; a rule that lets p alone
    decide, or draws the bonus from p after a refusal, is off by far more than this allows."""
    sampling, seeds = Sampling(0.7, top_k=5), amount(1000, 3000)
    chooser = SpeculativeSampling(sampling)
    first = chooser.probabilities(toys.full_forward(PROMPT).logits[-1])
    law = np.zeros((toys.VOCABULARY, toys.VOCABULARY))
    for token in np.flatnonzero(first):
        logits = toys.full_forward([*PROMPT, int(token)]).logits[-1]
        law[token] = first[token] * chooser.probabilities(logits)
    counts, method, target = np.zeros_like(law), speculative(drafter()), toys.target()
    for seed in range(seeds):
        tokens = run(method, 2, Sampling(0.7, top_k=5, seed=seed), budget=3, target=target).tokens
        counts[tokens] += 1
    assert counts[law == 0].sum() == 0
    cells = law > 0
    chi = ((counts[cells] - seeds * law[cells]) ** 2 / (seeds * law[cells])).sum()
    freedom = cells.sum() - 1
    assert chi < freedom + 4 * np.sqrt(2 * freedom), (chi, freedom)


def test_a_refused_node_says_so_and_survives_a_trace():
    found = run(speculative(toys.RandomDrafter()), 30, toys.HOT, 5, observe=observe)
    refused = [r for r in found.rounds if r.draft.nodes and r.accepted < r.draft.nodes]
    assert refused
    for record in refused:
        row = record.verdict.path[-1] + 1
        assert record.why(row) == Cause.REFUSED
        again = round_from_json(round_to_json(record))
        assert again.verdict.bonus == record.verdict.bonus and again.why(row) == Cause.REFUSED


def test_speculative_sampling_needs_all_of_q():
    class Mute(toys.RandomDrafter):
        def begin(self, root, width):
            session = super().begin(root, width)
            return FactorisedSession(Candidates(session.by_depth.ids, session.by_depth.log_q))

    with pytest.raises(UserError, match="all of q"):
        run(speculative(Mute()), 10, toys.HOT, 5)
