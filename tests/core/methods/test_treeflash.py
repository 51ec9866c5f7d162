"""TreeFlash's sessions against its formula evaluated pair by pair, and beside DDTree."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.measures.probe import observe
from core.drafting.best import top
from core.drafting.builders import best_first
from core.drafting.session import WrappedSession
from core.methods.treeflash import BEHIND, TreeFlashOptions
from core.methods.treeflash.drafter import TreeFlashDrafter, TreeFlashSession
from core.methods.treeflash.model import ArApproximation, PairLinear, initial_model
from core.rounds.draft import MARGINAL
from tests.helpers import slow_methods, toys
from tests.helpers.drafter_reference import assert_close, listed, numbers
from tests.helpers.pretend_gpu import HERE, gpu
from tests.helpers.timing import amount, usually
from tests.helpers.toys import PROMPT, run, tree

VOCABULARY = toys.VOCABULARY


# ── the method, one pair at a time ───────────────────────────────────────────────────────────────


def a_session(width=16, changes=None, **options):
    """A session after 9 context tokens and root 7, and the residual rows by the slow way."""
    owner = toys.model()
    drafter = TreeFlashDrafter(
        toys.treeflash_model(1, **(changes or {})),
        owner.get_input_embeddings(),
        owner.get_output_embeddings(),
        TreeFlashOptions(**options),
    )
    features = numbers(4, 9, 64)
    drafter.reset(40)
    drafter.extend([0] * 9, features)
    session = drafter.begin(7, width)
    assert isinstance(session, TreeFlashSession) and session.state_count
    return SimpleNamespace(
        drafter=drafter,
        session=session,
        h=slow_methods.treeflash_rows(drafter, features, 7),
        temperature=options.get("temperature", 1.0),
        count=min(options.get("candidates", 16), VOCABULARY),
        siblings=min(options.get("siblings", 16), VOCABULARY),
    )


def slow_after(a, state):
    """(the depth before a state, the token there, log q [V] and log q′ [V] of the depth after it):
    state 1 + (d − 1)·M + m stands after the m-th best token of depth d."""
    depth, place = (0, None) if state == 0 else (1 + (state - 1) // a.count, (state - 1) % a.count)
    before = 7 if place is None else int(listed(a.session).ids[depth - 1, place])
    plain, conditioned = (
        slow_methods.treeflash(a.drafter, a.h[depth], b, a.temperature) for b in (None, before)
    )
    return SimpleNamespace(depth=depth, before=before, q=plain, conditioned=conditioned)


def check_lists(a, children):
    """Every list of an answer: the best tokens by the formula, where they lead, and their notes."""
    best = listed(a.session).ids[:, : a.count].tolist()
    assert children.ids.shape == children.log_q.shape == (len(children.states), a.siblings)
    assert children.ids.dtype == np.int64 and children.next.dtype == np.int32
    assert children.log_q.dtype == children.notes[MARGINAL].dtype == np.float32
    for row, state in enumerate(children.states.tolist()):
        slow, ids = slow_after(a, state), children.ids[row].tolist()
        assert len(set(ids)) == a.siblings
        assert_close(children.log_q[row], slow.conditioned.topk(a.siblings).values, 2e-5)
        assert_close(children.log_q[row], slow.conditioned[ids], 2e-5)  # each has its own value
        assert_close(children.notes[MARGINAL][row], slow.q[ids], 2e-5)
        after = np.nan if state == 0 else (state - 1) % a.count + 1
        np.testing.assert_array_equal(children.notes[BEHIND][row], [after] * a.siblings)
        for token, after in zip(ids, children.next[row].tolist(), strict=True):
            inner = slow.depth + 1 < a.session.max_depth and token in best[slow.depth]
            place = best[slow.depth].index(token) if inner else None
            assert after == (-1 if place is None else 1 + slow.depth * a.count + place)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, {}),
        ({"candidates": 4, "siblings": 9}, {}),
        ({"candidates": 9, "siblings": 3}, {}),
        ({"candidates": 1, "siblings": 1}, {}),
        ({"candidates": 48, "siblings": 48}, {}),
        ({"candidates": 1024, "siblings": 1024}, {}),
        ({"temperature": 0.4}, {}),
        ({"temperature": 3.0}, {}),
        ({}, {"rms_norm_eps": 1e-1}),  # the embedding's norm keeps its own ε
        ({}, {"block_size": 2}),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_asked_in_whatever_order_the_lists_are_the_formulas(options, changes, seed):
    a, rng = a_session((4, 40)[seed], changes, **options), np.random.default_rng(seed)
    assert a.session.state_count == 1 + (a.session.max_depth - 1) * a.count
    unknown = set(range(a.session.state_count))
    while unknown:
        size = int(rng.integers(1, 1 + len(unknown)))
        asked = rng.permutation(sorted(unknown))[:size].astype(np.int32)
        children = a.session.expand(asked)
        answered = children.states.tolist()
        assert set(asked.tolist()) <= set(answered) <= unknown, "a state is answered once"
        assert len(set(answered)) == len(answered)
        check_lists(a, children)
        unknown -= set(answered)


# ── few answers on a CPU, one elsewhere ──────────────────────────────────────────────────────────


class Counted(WrappedSession):
    """The session, with the states of each of its answers; with ``eager`` all come at once."""

    def __init__(self, session, eager=False):
        super().__init__(session)
        self.session, self.eager, self.answers = session, eager, []

    def expand(self, states):
        whole = np.arange(self.session.state_count, dtype=np.int32)
        children = self.session.expand(whole if self.eager else states)
        self.answers.append(children.states)
        return children


@pytest.mark.parametrize("budget", [1, 3, 16, 64, 300])
def test_a_small_draft_needs_few_states_and_equals_that_from_all_of_them(budget):
    few, every = (Counted(a_session(budget).session, eager) for eager in (False, True))
    one, two = (best_first(session, [7], budget) for session in (few, every))
    for name in ("tokens", "parents", "depths", "ranks"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    np.testing.assert_allclose(one.log_q, two.log_q, rtol=1e-5, atol=1e-6)
    states = sum(map(len, few.answers))
    assert len(every.answers) == 1 and len(few.answers) <= 3
    assert states == len(set(np.concatenate(few.answers))) <= few.session.state_count == 97
    assert budget > 64 or states <= 2 * budget + 10
    after = one.proposal and one.proposal.after
    for row in range(len(one)):
        depth, token = one.depths[row], one.tokens[row]
        inner = row == 0 or token in listed(few.session).ids[depth - 1, :16]
        assert (after[row] >= 0) == (depth < 7 and inner)


def test_elsewhere_one_answer_holds_every_state(monkeypatch):
    """A transfer costs more there than a row of the head."""
    a = a_session(candidates=6, siblings=9)
    with gpu(monkeypatch):
        drafter = toys.moved(a.drafter, HERE)
        session = drafter.session(a.h.to(HERE), (0, 7), 16)
        children = session.expand(np.array([0], np.int32))
    np.testing.assert_array_equal(children.states, np.arange(1 + 6 * 6))
    check_lists(a, children)


# ── beside DDTree ────────────────────────────────────────────────────────────────────────────────


ZERO = [*product((1, 5, 16, 40), (toys.GREEDY, toys.HOT))]


@pytest.mark.parametrize(("budget", "sampling"), usually(ZERO[1::3], ZERO))
def test_a_zero_head_drafts_ddtrees_trees_round_by_round(budget, sampling):
    flash = toys.treeflash_drafter(zero=True, candidates=budget, siblings=budget)
    steps = amount(50, 110)
    ours = run(tree(flash), steps, sampling, budget, observe=observe)
    theirs = run(tree(toys.dflash_drafter()), steps, sampling, budget, observe=observe)
    assert len(ours.rounds) == len(theirs.rounds) and ours.tokens == theirs.tokens
    for one, two in zip(ours.rounds, theirs.rounds, strict=True):
        for name in ("tokens", "parents", "depths", "ranks"):
            np.testing.assert_array_equal(getattr(one.draft, name), getattr(two.draft, name))
        marginal = one.draft.notes[MARGINAL][1:]
        assert_close(one.draft.log_q, two.draft.log_q)
        assert_close(one.draft.scores, two.draft.scores)
        assert_close(marginal, two.draft.log_q[1:])
        np.testing.assert_array_equal(one.by_depth.ids[:, :budget], two.by_depth.ids[:, :budget])
        assert_close(one.probe.tvd, two.probe.tvd)
        assert_close(one.probe.coverage, two.probe.coverage)


def test_the_initial_model_is_its_backbone():
    backbone = toys.dflash_model(3)
    made = initial_model(backbone)
    assert not made.ar_approximation.d.weight.any()
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(made.model.state_dict()[name], tensor)
    h, before = numbers(1, 5, 32), numbers(2, 5, 32)
    assert torch.equal(made.conditioned(h, before), made.model.norm(h))


@pytest.mark.parametrize("candidates", [2, 16])
def test_the_probe_compares_q_given_the_accepted_path(candidates):
    drafter, seen = toys.treeflash_drafter(candidates=candidates), []

    def watch(scene):
        seen.append(scene)
        return observe(scene)

    found = run(tree(drafter), 40, toys.HOT, 40, observe=watch)
    text, several = PROMPT + found.tokens, 0
    for record, scene in list(zip(found.rounds, seen, strict=True))[:20]:
        whole = toys.full_forward(text[: record.position])
        h = slow_methods.treeflash_rows(drafter, whole.features, text[record.position])
        path = record.draft.tokens[list(record.verdict.path)].tolist()
        for depth in range(min(len(path), 7)):
            q = slow_methods.treeflash(drafter, h[depth], path[depth]).exp()
            p = scene.logits[record.verdict.path[depth]].softmax(-1)
            assert_close(record.probe.tvd[depth], (p - q).abs().sum() / 2, 1e-4)
            assert_close(record.probe.coverage[depth], p[q.topk(16).indices].cumsum(0), 1e-4)
        several += len(path) > 1
    assert several > 2, "paths of length 0 prove little"


@pytest.mark.parametrize(("size", "count"), [(64, 5), (640, 4), (6400, 16), (1000, 16), (64, 99)])
def test_top_is_topk(size, count):
    rows = numbers(size, 7, size)
    rows[3, :100] = rows[3, 0]  # ties: the values are topk's, and each id carries its value
    found, expected = top(rows, count), rows.topk(min(count, size))
    assert torch.equal(found.values, expected.values)
    assert torch.equal(rows.gather(1, found.indices), found.values)
    for row in found.indices.tolist():
        assert len(set(row)) == len(row)
    assert torch.equal(found.indices[0], expected.indices[0])


def test_halving_the_first_layer_and_broadcasting_change_nothing():
    torch.manual_seed(3)
    head = ArApproximation(32, 24).double()
    ug = head.ug
    assert isinstance(ug, PairLinear)
    torch.nn.init.normal_(head.d.weight)
    rows, before = torch.randn(5, 1, 32).double(), torch.randn(5, 7, 32).double()
    whole = ug.weight @ torch.cat([head.norm(before), rows.expand(-1, 7, -1)], -1).mT
    u, g = (whole.mT + ug.bias).chunk(2, -1)
    slow = head.d(g * g.sigmoid() * u)
    assert torch.allclose(head(before, rows), slow, atol=1e-12)
    head.halve()
    head.halve()  # once is enough
    assert torch.allclose(head(before, rows), slow, atol=1e-12)
