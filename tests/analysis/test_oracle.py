"""Hindsight against brute force, and against the builder that it stands for."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.measures.hindsight import Hindsight, hindsight, most_probable
from analysis.measures.oracle import oracle, oracle_rounds
from analysis.measures.tables import Tables
from core.drafting.builders import best_first
from core.drafting.session import FactorisedSession
from core.rounds.draft import Candidates
from core.rounds.round import Round
from core.traces.schema import Header, Trace
from core.verification.walk import verdict
from tests.helpers import toys
from tests.helpers.small_traces import fake_trace, plain_round


def lists(rng, depths, width, vocabulary=9):
    ids = np.array([rng.permutation(vocabulary)[:width] for _ in range(depths)])
    log_q = -np.sort(rng.exponential(1.5, (depths, width)).astype(np.float32), axis=1)
    return Candidates(ids, log_q)


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 6), st.integers(1, 40))
def test_the_marginals_tree_is_that_of_best_first(seed, depths, width, budget):
    rng = np.random.default_rng(seed)
    made = lists(rng, depths, width)
    text = rng.integers(0, 9, depths).tolist()
    draft = best_first(FactorisedSession(made), [1], budget)
    path = []
    for depth, token in enumerate(text):
        where = np.flatnonzero(made.ids[depth] == token)
        if not len(where):
            break
        path.append(int(where[0]))
    assert most_probable(made.log_q, path, budget) == verdict(draft, text).accepted


def a_round(made, text, budget):
    """Draft after token 1 by best-first, and verify along a text."""
    draft = best_first(FactorisedSession(made), [1], budget)
    return Round(0, 5, draft, verdict(draft, text), tuple(text[:1]))


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4), st.integers(1, 12))
def test_no_tree_of_the_budget_accepts_more_than_hindsight(seed, depths, width, budget):
    """A tree holds at most one path of the text: brute force over all that the lists allow."""
    rng = np.random.default_rng(seed)
    made = lists(rng, depths, width, vocabulary=4)
    text = rng.integers(0, 4, depths + 2).tolist()
    record = a_round(made, text, budget)
    found = hindsight(record, text, budget)
    best = 0
    for length in range(1, min(depths, budget) + 1):
        for ranks in product(range(width), repeat=length):
            if [int(made.ids[d][r]) for d, r in enumerate(ranks)] == text[:length]:
                best = max(best, length)
    assert found.listed == best
    assert found.accepted == found.marginal == record.accepted  # its builder is best-first
    assert found.accepted <= found.listed <= found.possible == min(budget, depths)


def test_a_chain_loses_what_a_tree_of_its_budget_would_have_found():
    """The text takes the second token first, which a chain never drafts."""
    made = Candidates(np.array([[1, 2], [3, 4]]), np.log(np.array([[0.6, 0.4], [0.9, 0.1]], "f4")))
    draft = toys.Chain()(FactorisedSession(made), [0], 2)
    text = [2, 3, 5]
    record = Round(0, 5, draft, verdict(draft, text), (2,))
    found = hindsight(record, text, 2)
    # of two nodes: 1 (.6), then 1-3 (.54) before 2 (.4)
    assert (found.accepted, found.marginal, found.listed, found.possible) == (0, 0, 2, 2)
    found = hindsight(record, text, 4)
    assert (found.accepted, found.marginal, found.listed, found.possible) == (0, 2, 2, 2)


def test_lists_that_were_not_asked_end_what_can_be_said():
    """A drafter whose q depends on the path: after the walk's end one list more is known."""
    oracle_drafter = toys.PathDrafter([*toys.PROMPT, *toys.plain(60)])
    run = toys.run(toys.tree(oracle_drafter), 40, budget=6)
    for record in run.rounds[:-1]:
        found = hindsight(record, list(toys.plain(60))[record.position - 7 :][:5], 6)
        assert found.marginal is None
        assert found.accepted <= found.listed <= record.accepted + 1
        assert found.possible <= 5


def traces(budget, count=40):
    drafter = toys.NoisyOracle([*toys.PROMPT, *toys.plain(80)])
    rounds = toys.run(toys.tree(drafter), count, budget=budget).rounds
    header = Header("ddtree", {"budget": budget}, {"name": "toy"}, "hi", toys.PROMPT)
    return Trace(header, tuple(rounds), {})


def test_the_table_adds_up_over_a_run():
    """The future of every round is the target's own text, from plain decoding."""
    budget, trace = 6, traces(6)
    text = [*toys.PROMPT, *toys.plain(80)]
    table = oracle(Tables.of(trace))
    (row,) = table.to_dict("records")
    expected = []
    for record in trace.rounds:
        ahead = text[record.position + 1 :][:7]
        expected.append(hindsight(record, ahead, budget))
    assert row["rounds"] == len(trace.rounds)
    known = slice(0, -4)  # the last rounds' futures end with the run
    rows = oracle_rounds(Tables.of(trace)).drop(columns=["run", "round"]).to_dict("records")
    mine = [Hindsight(**row) for row in rows]
    assert mine[known] == expected[known]
    assert row["accepted"] == pytest.approx(np.mean([r.accepted for r in trace.rounds]))
    losses = row["builder_loses"] + row["order_loses"] + row["lists_lose"]
    assert losses == pytest.approx(row["possible"] - row["accepted"])
    assert row["tree_share"] + row["lists_share"] == pytest.approx(1)
    assert row["builder_loses"] == pytest.approx(0)


def test_runs_without_lists_have_no_line():
    rounds = tuple(plain_round(n, n) for n in range(3))
    trace = fake_trace("ddtree", 1, 4)
    assert oracle(Tables.of(Trace(trace.header, rounds))).empty
    assert oracle(Tables.of({})).empty
