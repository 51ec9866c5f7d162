"""The cost-aware builder: the budget that brute force over all budgets finds."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.measures.findings import findings
from analysis.measures.misses import miss, sentence
from analysis.measures.tables import Tables
from core import ASSETS
from core.decoding.decode import Decoder
from core.drafting import builders
from core.drafting.builders import AsFarAsItPays, PaysAsMeasured, best_first, warm_up
from core.drafting.session import FactorisedSession
from core.methods.caddtree import WORTH
from core.methods.registry import find_method
from core.rounds.causes import Cause
from core.rounds.draft import Candidates
from core.rounds.round import GREEDY
from core.traces.reader import read_trace
from tests.helpers import toys
from tests.helpers.draft_sessions import ROOT, path_function
from tests.helpers.toys import FunctionSession, plain, run

MOST = 60
FACTS = toys.SimpleNamespace(name="toy", vocabulary=toys.VOCABULARY, stop_ids=frozenset())


def rates(draft, fixed, node):
    """Expected tokens per ms of the first 0, 1, … nodes."""
    tokens = 1 + np.concatenate([[0], np.exp(draft.scores[1:].astype(float)).cumsum()])
    return tokens / (fixed + node * np.arange(len(draft)))


def offered(seed, depths=4, width=9):
    rng = np.random.default_rng(seed)
    log_q = np.log(rng.dirichlet(np.full(width, 0.5), depths)).astype(np.float32)
    return FactorisedSession(
        Candidates(np.argsort(rng.random((depths, width)), 1), -np.sort(-log_q, 1))
    )


def check(draft, whole, fixed, node):
    """A beginning of the best-first draft, and no other is faster; each node is worth 1 or more."""
    found = rates(whole, fixed, node)
    assert found[draft.nodes] >= found.max() * (1 - 1e-6)
    assert (np.diff(found)[: draft.nodes] > -1e-6).all() and (
        np.diff(found)[draft.nodes :] < 1e-6
    ).all()
    for name in ("tokens", "parents", "ranks", "scores"):
        np.testing.assert_array_equal(getattr(draft, name), getattr(whole, name)[: len(draft)])
    worth = draft.notes[WORTH][1:]
    adds = np.exp(draft.scores[1:].astype(float)) / node
    np.testing.assert_allclose(worth, adds / found[: draft.nodes], rtol=1e-4)
    assert (worth >= 1 - 1e-5).all()


COSTS = (st.floats(0.5, 500), st.floats(0.01, 50))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), *COSTS)
def test_the_budget_is_the_one_that_brute_force_finds(seed, fixed, node):
    draft = AsFarAsItPays(fixed, node, WORTH)(offered(seed), [3], MOST)
    check(draft, best_first(offered(seed), [3], MOST), fixed, node)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), *COSTS)
def test_so_it_is_where_q_depends_on_the_path(seed, fixed, node):
    """States that are not known yet count as leaves on the way, never in the end."""
    after = path_function(seed, 4, False)
    one, two = (FunctionSession(after, ROOT, 4, 4) for _ in "ab")
    draft = AsFarAsItPays(fixed, node, WORTH)(one, [ROOT], MOST)
    check(draft, best_first(two, [ROOT], MOST), fixed, node)
    assert one.batches <= two.batches + 1


@pytest.mark.parametrize("sampling", [toys.GREEDY, toys.HOT], ids=["greedy", "hot"])
def test_budgets_differ_from_round_to_round_and_the_text_does_not(sampling):
    method = find_method("caddtree")
    builder = method.make_builder(FACTS, method.resolve({"round_ms": 50, "node_ms": 1}))
    drafter = toys.NoisyOracle([*toys.PROMPT, *plain(90, sampling)], boost=6.0)
    found = run(Decoder("m", drafter, builder), 60, sampling, 64)
    assert found.tokens == plain(60, sampling)
    assert len({record.draft.nodes for record in found.rounds}) > 3
    causes = {r.stop_reason for r in found.rounds if r.draft.nodes < 64}
    assert Cause.STOPPED in causes and not causes & {Cause.PRUNED, Cause.SHORT_LIST}


def test_its_rule_ended_the_walks_and_not_the_budget_that_it_left():
    trace = read_trace(ASSETS / "traces" / "chat-caddtree.jsonl.gz")
    assert max(record.draft.nodes for record in trace.rounds) < trace.header.settings["budget"]
    causes = Counter(record.stop_reason for record in trace.rounds)
    assert causes == {Cause.STOPPED: 32, Cause.TEXT_ENDED: 1}
    own = [record for record in trace.rounds if record.stop_reason is Cause.STOPPED]
    told = [sentence(found, str, r.accepted) for r in own if (found := miss(r))]
    assert len(told) == len(own) and not any("budget" in each for each in told)
    assert any(": left out by the builder's own rule. Its path has q" in each for each in told)
    said = next(f.words for f in findings(Tables.of({"A": trace}), by="run") if f.about == "ends")
    assert "32 of 33 walks ended at a token that the builder left out by its own rule" in said
    assert "a builder that drafts more of the lists (a wider tree) would help" in said


def test_nodes_that_cost_nothing_or_all_there_is():
    assert AsFarAsItPays(100.0, 1e-9, WORTH)(offered(1), [3], 20).nodes == 20
    assert AsFarAsItPays(1.0, 1e3, WORTH)(offered(1), [3], 20).nodes == 0
    assert AsFarAsItPays(1.0, 1.0, WORTH)(toys.pld_drafter().begin(3, 1), [3], 9).nodes == 0


# ── the cost of the run's own rounds ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("build", [best_first, AsFarAsItPays(1, 1, WORTH)])
def test_no_round_compiles_the_search(build, kind):
    warm_up()
    known = set(builders._best_first.signatures)
    lists = Candidates(np.zeros((2, 3), np.int32), np.zeros((2, 3), kind))
    lists.log_q.flags.writeable = False  # a type of its own to the compiler
    build(FactorisedSession(lists), [0], 4)
    assert set(builders._best_first.signatures) == known


START = AsFarAsItPays(90.0, 1.6, WORTH)


def test_what_is_measured_takes_the_place_of_what_was_supposed():
    learns = PaysAsMeasured(START)
    assert learns.cost == START
    for _ in range(20):
        for nodes in (3, 17, 40):
            learns.took(nodes, (20 + 0.25 * nodes) / 1e3)
    assert len(learns._rounds) == 32
    nodes, spent = np.array([(0, 90.0), (64, 90 + 64 * 1.6), *learns._rounds]).T
    node, fixed = np.polyfit(nodes, spent, 1)
    assert learns.cost.node == pytest.approx(node) and learns.cost.fixed == pytest.approx(fixed)
    assert learns.cost.fixed < 40, "the two supposed rounds weigh little"
    assert learns.for_run(GREEDY).cost == START, "a run begins anew"


def test_a_cost_stays_above_nothing():
    learns = PaysAsMeasured(START)
    for nodes in (0, 60) * 16:
        learns.took(nodes, (60 - nodes) / 1e3)
    assert learns.cost.node == PaysAsMeasured.LEAST and learns.cost.fixed > 0


@pytest.mark.parametrize("sampling", [toys.GREEDY, toys.HOT])
def test_a_run_tells_its_rounds_and_writes_plain_decodings_text(sampling, monkeypatch):
    told, took = [], PaysAsMeasured.took

    def listen(self, nodes, seconds):
        told.append((nodes, seconds))
        took(self, nodes, seconds)

    monkeypatch.setattr(PaysAsMeasured, "took", listen)
    values = {"round_ms": 50.0, "node_ms": 0.5, "measure": True}
    builder = find_method("caddtree").make_builder(FACTS, values)
    found = toys.run(toys.Decoder("caddtree", toys.dflash_drafter(), builder), 40, sampling, 24)
    assert found.tokens == toys.plain(40, sampling)
    assert told == [(r.draft.nodes, r.times.total) for r in found.rounds]
    assert builder.cost == replace(START, fixed=50.0, node=0.5), (
        "the engine keeps it for other runs"
    )
