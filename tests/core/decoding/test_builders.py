"""Builders against brute force, against Algorithm 1 written plainly, and at their edges."""

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.drafting.builders import Chain, OptTree, best_first, grow
from core.drafting.session import FactorisedSession, as_builder
from core.errors import UserError
from core.models.tree_mask import ancestor_mask
from core.rounds.draft import MARGINAL, NOT_ASKED, Candidates
from tests.helpers.draft_sessions import BEHIND, Tables, TablesSession
from tests.helpers.timing import amount
from tests.helpers.toys import draft_of, random_parents

chain = Chain()


def table(seed, depths, width, tokens=50):
    """Random log q, sorted best first, with distinct ids per depth."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(depths, tokens)) * 2
    log_q = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    ids = np.argsort(-log_q, axis=1)[:, :width]
    return Candidates(ids, np.take_along_axis(log_q, ids, 1).astype(np.float32))


def rank_paths(draft):
    """Every drafted row as its tuple of ranks, 0 = best."""
    return [
        tuple(int(draft.ranks[r]) - 1 for r in draft.path(row)[1:]) for row in range(1, len(draft))
    ]


def every_prefix(log_q):
    """All prefixes with their scores: the brute force."""
    depths, width = log_q.shape
    exact = log_q.astype(np.float64)
    return {
        ranks: float(sum(exact[d, r] for d, r in enumerate(ranks)))
        for length in range(1, depths + 1)
        for ranks in itertools.product(range(width), repeat=length)
    }


def algorithm_1(log_q, budget):
    """DDTree's Algorithm 1 with Python's heapq on rank tuples: [(ranks, score)] in pop order."""
    depths, width = log_q.shape
    q = log_q.astype(np.float64).tolist()
    order = itertools.count()
    heap = []

    def push(ranks):
        score = sum(q[depth][rank] for depth, rank in enumerate(ranks))
        if score > -np.inf:
            heapq.heappush(heap, (-score, next(order), ranks))

    push((0,))
    popped = []
    while heap and len(popped) < budget:
        negative, _, ranks = heapq.heappop(heap)
        popped.append((ranks, -negative))
        if ranks[-1] + 1 < width:
            push((*ranks[:-1], ranks[-1] + 1))
        if len(ranks) < depths:
            push((*ranks, 0))
    return popped


def check_shape(draft, candidates, root, budget):
    """Check what every draft must satisfy, of any builder."""
    assert draft.nodes <= budget
    assert draft.tokens[0] == root and draft.parents[0] == -1 and draft.depths[0] == 0
    assert draft.ranks[0] == 0 and draft.log_q[0] == 0 and draft.scores[0] == 0
    for row in range(1, len(draft)):
        parent, depth, rank = draft.parents[row], draft.depths[row], draft.ranks[row]
        assert 0 <= parent < row
        assert depth == draft.depths[parent] + 1
        assert draft.tokens[row] == candidates.ids[depth - 1, rank - 1]
        assert draft.log_q[row] == candidates.log_q[depth - 1, rank - 1]
    paths = rank_paths(draft)
    assert len(set(paths)) == len(paths), "a prefix stands twice"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("budget", [1, 2, 7, 64, 1024])
def test_best_first_pops_in_the_order_of_algorithm_1(seed, budget):
    candidates = table(seed, 15, min(budget, 50))
    draft = best_first(FactorisedSession(candidates), [0], budget)
    expected = algorithm_1(candidates.log_q, budget)
    assert rank_paths(draft) == [ranks for ranks, _ in expected]
    np.testing.assert_allclose(draft.scores[1:], [score for _, score in expected], rtol=1e-6)


def test_the_chain_is_the_argmax_of_every_depth():
    candidates = table(2, 7, 20)
    draft = chain(FactorisedSession(candidates), [5], 64)
    check_shape(draft, candidates, 5, 64)
    assert draft.tokens.tolist() == [5, *candidates.ids[:, 0]]
    assert draft.parents.tolist() == list(range(-1, 7))
    np.testing.assert_allclose(draft.scores[1:], candidates.log_q[:, 0].cumsum(), rtol=1e-6)
    assert chain(FactorisedSession(candidates), [5], 3).nodes == 3


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("builder", [chain, best_first, OptTree()])
def test_without_any_candidate_nothing_is_drafted(builder, shape):
    none = Candidates(np.zeros(shape, np.int64), np.zeros(shape, np.float32))
    assert builder(FactorisedSession(none), [7, 9], 8).tokens.tolist() == [9]


def test_a_function_s_reach_is_noted_and_hooks_are_a_builder_s():
    def build(session, text, budget):
        return grow(session, text, [(0, 0), (0, 2)])

    build.reads = 3
    draft = as_builder(build)(FactorisedSession(table(1, 2, 4)), [9], 2)
    assert draft.ranks.tolist() == [0, 1, 3] and draft.proposal.read == 3
    for hook in ("for_run", "took"):
        with pytest.raises(UserError, match=f"Mine has {hook}: let it be a Builder"):
            as_builder(type("Mine", (), {"__call__": build, hook: print})())


def test_building_leaves_the_candidates_alone():
    candidates = table(0, 5, 12)
    ids, log_q = candidates.ids.copy(), candidates.log_q.copy()
    best_first(FactorisedSession(candidates), [0], 100)
    chain(FactorisedSession(candidates), [0], 100)
    np.testing.assert_array_equal(candidates.ids, ids)
    np.testing.assert_array_equal(candidates.log_q, log_q)


def test_rows_do_not_depend_on_the_tables_layout():
    ids, log_q = (x := table(4, 6, 20)).ids, x.log_q
    straight = best_first(FactorisedSession(x), [0], 90)
    for other in (
        np.asfortranarray(log_q),
        log_q.astype(np.float64),
        np.repeat(log_q, 2, 1)[:, ::2],
    ):
        draft = best_first(FactorisedSession(Candidates(ids, other)), [0], 90)
        np.testing.assert_array_equal(draft.parents, straight.parents)
        np.testing.assert_array_equal(draft.ranks, straight.ranks)


@st.composite
def tables(draw):
    """Small tables on a coarse grid, so that ties are everywhere; zero and −inf included."""
    depths, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    value = st.sampled_from([0.0, -0.25, -0.5, -1.0, -2.0, -np.inf])
    rows = [
        sorted(draw(st.lists(value, min_size=width, max_size=width)), reverse=True)
        for _ in range(depths)
    ]
    return np.array(rows, np.float32)


@settings(max_examples=300)
@given(tables(), st.integers(1, 90))
def test_of_any_table_the_best_possible_prefixes_are_drafted(log_q, budget):
    """All of them where the budget reaches; best-first in the order of Algorithm 1, ties too."""
    candidates = Candidates(np.tile(np.arange(log_q.shape[1]), (len(log_q), 1)), log_q)
    possible = [score for score in every_prefix(log_q).values() if np.isfinite(score)]
    best = np.array(sorted(possible, reverse=True)[:budget], np.float32)
    for builder in (best_first, OptTree()):
        draft = builder(FactorisedSession(candidates), [0], budget)
        check_shape(draft, candidates, 0, budget)
        np.testing.assert_array_equal(-np.sort(-draft.scores[1:]), best)
    draft = best_first(FactorisedSession(candidates), [0], budget)
    expected = algorithm_1(log_q, budget)
    assert list(zip(rank_paths(draft), draft.scores[1:].tolist(), strict=True)) == expected


# ── transitions: what may stand at a depth hangs on the token before ─────────────────────────────


def conditional(seed, depths, candidates, siblings, tokens=40):
    """Random transitions: rows of distinct tokens, of which some are candidates of their depth."""
    rng = np.random.default_rng(seed)
    shape = (depths, candidates, siblings)
    chosen = np.stack([rng.permutation(tokens)[:candidates] for _ in range(depths)])
    ids = np.stack([
        [rng.permutation(tokens)[:siblings] for _ in range(candidates)] for _ in range(depths)
    ])  # fmt: skip
    logits = 1.5 * rng.normal(size=(depths, candidates, tokens))
    log_q = -np.sort(-(logits - np.log(np.exp(logits).sum(-1, keepdims=True))))[..., :siblings]
    ids[0], log_q[0] = ids[0, :1], log_q[0, :1]
    return transitions(chosen, ids, log_q, rng.normal(size=shape))


def transitions(chosen, ids, log_q, marginal):
    follow = np.full(ids.shape, -1, np.int32)
    for place in np.ndindex(ids.shape):
        where = np.flatnonzero(chosen[place[0]] == ids[place])
        if len(where):
            follow[place] = where[0]
    numbers = log_q.astype(np.float32), marginal.astype(np.float32)
    return Tables(ids.astype(np.int64), *numbers, follow)


def offered(tables, eager=True):
    return TablesSession(tables, eager)


def every_conditional_prefix(t):
    """Ranks → (score, row of its depth's table) of every possible prefix, by walking them all."""
    found = {}

    def walk(depth, state, ranks, score):
        for rank in range(t.ids.shape[2]):
            step = float(t.log_q[depth, state, rank])
            if step == -np.inf:
                continue
            found[(*ranks, rank)] = score + step, state
            after = int(t.follow[depth, state, rank])
            if after >= 0 and depth + 1 < len(t.ids):
                walk(depth + 1, after, (*ranks, rank), score + step)

    walk(0, 0, (), 0.0)
    return found


def heap_over(t, budget):
    """The search with Python's heapq: [ranks] in pop order, siblings found before children."""
    every, order, heap, popped = every_conditional_prefix(t), itertools.count(), [], []

    def push(ranks):
        if ranks in every:
            heapq.heappush(heap, (-every[ranks][0], next(order), ranks))

    push((0,))
    while heap and len(popped) < budget:
        ranks = heapq.heappop(heap)[2]
        popped.append(ranks)
        push((*ranks[:-1], ranks[-1] + 1))
        push((*ranks, 0))
    return popped


def check_conditional(draft, t, root, budget):
    """Every field of a draft over transitions against the tables, node by node."""
    every, last = every_conditional_prefix(t), len(t.ids)
    assert draft.nodes <= budget and draft.tokens[0] == root
    paths = [(), *rank_paths(draft)]
    assert len(set(paths)) == len(paths)
    assert np.isnan(draft.notes[MARGINAL][0]) and np.isnan(draft.notes[BEHIND][0])
    for row, ranks in enumerate(paths):
        state = 0 if not ranks else int(t.follow[(at := (len(ranks) - 1, every[ranks][1],
                                                         ranks[-1]))])  # fmt: skip
        after = int(draft.proposal.after[row])
        if state < 0 or len(ranks) == last:
            assert after == -1
            assert not draft.children[row]
        else:
            np.testing.assert_array_equal(draft.proposal.lists.ids[after], t.ids[len(ranks), state])
            np.testing.assert_array_equal(
                draft.proposal.lists.log_q[after], t.log_q[len(ranks), state]
            )
        if not ranks:
            continue
        parent = int(draft.parents[row])
        assert 0 <= parent < row and paths[parent] == ranks[:-1]
        assert draft.depths[row] == len(ranks)
        assert draft.tokens[row] == t.ids[at] and draft.log_q[row] == t.log_q[at]
        assert draft.scores[row] == pytest.approx(every[ranks][0], rel=1e-6, abs=1e-6)
        assert draft.notes[MARGINAL][row] == t.marginal[at]
        after = draft.notes[BEHIND][row]
        assert np.isnan(after) if len(ranks) == 1 else after == every[ranks][1] + 1


@st.composite
def conditional_tables(draw):
    """Small transitions on a coarse grid: ties everywhere, zeros and −inf included."""
    depths, count, kept = (draw(st.integers(1, 3)) for _ in range(3))
    value = st.sampled_from([0.0, -0.25, -0.5, -1.0, -2.0, -np.inf])
    tokens = st.permutations(range(5))
    ids = np.array([[draw(tokens)[:kept] for _ in range(count)] for _ in range(depths)])
    log_q = np.array([
        [sorted(draw(st.lists(value, min_size=kept, max_size=kept)), reverse=True)
         for _ in range(count)] for _ in range(depths)
    ])  # fmt: skip
    chosen = np.array([draw(tokens)[:count] for _ in range(depths)])
    ids[0], log_q[0] = ids[0, :1], log_q[0, :1]
    marginal = np.arange(ids.size).reshape(ids.shape)
    return transitions(chosen, ids, log_q, marginal)


@settings(max_examples=amount(100, 300))
@given(conditional_tables(), st.integers(1, 40))
def test_any_transitions_give_an_optimal_prefix_closed_set(t, budget):
    draft = best_first(offered(t), [3], budget)
    check_conditional(draft, t, 3, budget)
    assert rank_paths(draft) == heap_over(t, budget)
    best = sorted((s for s, _ in every_conditional_prefix(t).values()), reverse=True)[:budget]
    np.testing.assert_array_equal(draft.scores[1:], np.array(best, np.float32))


def assert_same_draft(one, two):
    for name in ("tokens", "parents", "depths", "ranks", "log_q", "scores"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    for name in one.notes.keys() | two.notes.keys():
        np.testing.assert_array_equal(one.notes[name], two.notes[name])
    for row, (a, b) in enumerate(zip(one.proposal.after, two.proposal.after, strict=True)):
        assert (
            a == b == -1
            or min(a, b) == NOT_ASKED
            or (
                one.proposal.candidates(row).ids.tolist()
                == two.proposal.candidates(row).ids.tolist()
            )
        )


BUILDERS = {
    "best-first": best_first,
    "chain": chain,
    "opt-tree": OptTree(),
    "opt-tree 0.05": OptTree(0.05),
    "opt-tree 0.3": OptTree(0.3),
}


@pytest.mark.parametrize("name", BUILDERS)
@settings(max_examples=amount(50, 120))
@given(conditional_tables(), st.integers(1, 40))
def test_states_expanded_only_when_reached_give_the_same_draft(name, t, budget):
    builder = BUILDERS[name]
    assert_same_draft(
        builder(offered(t, eager=False), [3], budget), builder(offered(t), [3], budget)
    )


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("budget", [1, 4, 12, 60])
def test_few_states_are_expanded_for_a_small_draft(name, budget):
    for seed in range(20):
        t = conditional(seed, 5, 6, 6, tokens=12)
        some = offered(t, eager=False)
        one, two = (BUILDERS[name](x, [3], budget) for x in (some, offered(t)))
        assert_same_draft(one, two)
        assert len(some.calls) <= 5 + 1, "at most one batch a depth"
        assert budget > 4 or "opt" in name or sum(some.calls) < 24, "not all states"
    again = grow(offered(t, eager=False), [3], pairs(one))
    assert_same_draft(again, grow(offered(t), [3], pairs(one)))


def test_one_row_per_depth_is_the_factorised_search():
    """Transitions that say the same after every token are DDTree."""
    plain = table(2, 6, 12)
    shape = (6, 12, 12)
    t = Tables(
        np.broadcast_to(plain.ids[:, None], shape),
        np.broadcast_to(plain.log_q[:, None], shape),
        np.broadcast_to(plain.log_q[:, None], shape),
        np.broadcast_to(np.arange(12, dtype=np.int32), shape),
    )
    one = best_first(FactorisedSession(plain), [5], 200)
    two = best_first(offered(t), [5], 200)
    for name in ("tokens", "parents", "depths", "ranks", "log_q", "scores"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.proposal.factorised_lists and not one.notes


# ── the chain over transitions ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("budget", [1, 3, 64])
def test_the_chain_follows_the_best_token_until_it_is_no_candidate(seed, budget):
    t = conditional(seed, 6, 4, 3, tokens=6)
    state, ranks = 0, []
    while state >= 0 and len(ranks) < min(budget, 6):
        state = int(t.follow[len(ranks), state, 0])
        ranks.append(0)
    draft = chain(offered(t), [1, 7], budget)
    check_conditional(draft, t, 7, budget)
    assert rank_paths(draft) == [tuple(ranks[:n]) for n in range(1, len(ranks) + 1)]


# ── opt-tree ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [1, 2, 3])
def test_opt_tree_goes_on_where_a_level_adds_next_to_nothing(width):
    """Probabilities far below a float's precision still make nodes while the budget lasts."""
    for seed in range(amount(30, 100)):
        rng = np.random.default_rng(seed)
        log_q = -np.sort(rng.exponential(40, (12, width)), 1).astype(np.float32)
        candidates = Candidates(np.tile(np.arange(width), (12, 1)), log_q)
        for budget in (12, 60, 400):
            one, two = (
                b(FactorisedSession(candidates), [0], budget) for b in (OptTree(), best_first)
            )
            np.testing.assert_array_equal(np.sort(one.scores), np.sort(two.scores))


@settings(max_examples=amount(80, 200))
@given(conditional_tables(), st.integers(1, 40))
def test_opt_tree_of_any_transitions_is_as_good_as_best_first(t, budget):
    draft = OptTree()(offered(t), [3], budget)
    check_conditional(draft, t, 3, budget)
    expected = best_first(offered(t), [3], budget).scores
    np.testing.assert_array_equal(np.sort(draft.scores), np.sort(expected))
    assert (np.diff(draft.depths) >= 0).all(), "level by level"


@pytest.mark.parametrize("gain", [0.02, 0.1, 0.3, 0.6, 5.0])
@pytest.mark.parametrize("budget", [4, 30])
def test_opt_tree_ends_with_the_first_level_that_gains_too_little(gain, budget):
    ended = []
    for seed in range(6):
        t = conditional(seed, 4, 4, 5, tokens=7)
        every = {ranks: score for ranks, (score, _) in every_conditional_prefix(t).items()}
        reached = 0.0
        for depth in range(1, 5):
            some = sorted((r for r in every if len(r) <= depth), key=every.get, reverse=True)
            whole = sum(np.exp(every[r]) for r in some[:budget])
            if whole - reached < gain:
                break
            reached = whole
        draft = OptTree(gain)(offered(t), [0], budget)
        check_conditional(draft, t, 0, budget)
        assert set(rank_paths(draft)) == set(some[:budget])
        ended.append(depth)
    assert gain < 0.3 or min(ended) < 4


# ── a builder of one's own ───────────────────────────────────────────────────────────────────────


def pairs(draft):
    """(parent row, rank from 0) of every drafted row: what ``grown`` is given."""
    return [(int(p), int(r) - 1) for p, r in zip(draft.parents[1:], draft.ranks[1:], strict=True)]


@pytest.mark.parametrize("seed", range(4))
def test_grow_makes_the_same_draft_from_parents_and_ranks(seed):
    t = conditional(seed, 4, 3, 5, tokens=7)
    for session in (lambda: FactorisedSession(table(seed, 5, 9)), lambda: offered(t)):
        for builder in (best_first, chain, OptTree()):
            one = builder(session(), [2, 6], 25)
            two = grow(session(), [2, 6], pairs(one))
            for name in ("tokens", "parents", "depths", "ranks", "log_q"):
                np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
            np.testing.assert_allclose(one.scores, two.scores, rtol=1e-6)
            assert one.notes.keys() == two.notes.keys()
            for name, values in one.notes.items():
                np.testing.assert_array_equal(values, two.notes[name])
    check_conditional(two, t, 6, 25)


def test_grow_takes_any_tree_and_none():
    candidates = table(0, 3, 6)
    draft = grow(FactorisedSession(candidates), [9], [(0, 4), (0, 1), (2, 5), (1, 0), (3, 2)])
    check_shape(draft, candidates, 9, 5)
    assert rank_paths(draft) == [(4,), (1,), (1, 5), (4, 0), (1, 5, 2)]
    assert grow(FactorisedSession(candidates), [9], []).tokens.tolist() == [9]


# ── the ancestor mask ────────────────────────────────────────────────────────────────────────────


def walked_mask(parents):
    """Who may see whom, by walking the parents of every row."""
    allowed = np.zeros((len(parents), len(parents)), bool)
    for row in range(len(parents)):
        above = row
        while above >= 0:
            allowed[row, above] = True
            above = parents[above]
    return allowed


def test_the_mask_equals_a_parent_walk_on_200_random_trees():
    rng = np.random.default_rng(0)
    for _ in range(200):
        parents = random_parents(rng, int(rng.integers(1, 80)))
        mask = ancestor_mask(draft_of(parents, range(len(parents))))
        assert mask.dtype == bool
        np.testing.assert_array_equal(mask, walked_mask(parents))


def test_a_chains_mask_is_causal():
    draft = chain(FactorisedSession(table(0, 7, 3)), [0], 64)
    np.testing.assert_array_equal(ancestor_mask(draft), np.tri(8, dtype=bool))


@pytest.mark.parametrize("pair", [(0, 5), (0, -1), (2, 0)])
def test_grow_refuses_a_pair_that_nothing_was_offered_for(pair):
    """A rank there is none of, and a child after the last depth."""
    candidates = table(0, 2, 5)
    with pytest.raises(ValueError, match="nothing of rank"):
        grow(FactorisedSession(candidates), [9], [(0, 0), (1, 0), pair])


def test_grow_gives_a_leaf_no_child():
    ids = np.arange(8).reshape(2, 2, 2)
    log_q = np.full((2, 2, 2), -1, np.float32)
    follow = np.array([[[0, -1], [0, -1]], [[-1, -1], [-1, -1]]], np.int32)
    leafy = Tables(ids, log_q, log_q, follow)
    assert len(grow(offered(leafy), [9], [(0, 0), (1, 1)])) == 3
    with pytest.raises(ValueError, match="after node 1"):
        grow(offered(leafy), [9], [(0, 1), (1, 0)])
