"""The budget that would have drafted the target's token: against drafts made anew, one by one."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.measures.misses import miss, sentence
from core.drafting.builders import best_first
from core.drafting.session import FactorisedSession
from core.rounds.causes import Cause
from core.rounds.draft import Candidates, Proposal
from core.rounds.round import Probe, Round, Verdict
from core.verification.walk import verdict

IDS = np.argsort(np.random.default_rng(5).random((6, 40)), axis=1)


def made(budget: int, text: list[int], seed: int = 0) -> Round:
    """A round whose draft is best-first search's own, on a text that is known."""
    rng = np.random.default_rng(seed)
    odds = np.sort(rng.dirichlet(np.full(40, 0.3), 6), axis=1)[:, ::-1] + 1e-9
    lists = Candidates(IDS, np.log(odds).astype(np.float32))
    draft = best_first(FactorisedSession(lists), [99], budget)
    decided = verdict(draft, text)
    tokens = tuple(draft.tokens[list(decided.path[1:])].tolist())
    return Round(0, 10, draft, decided, (*tokens, decided.bonus), budget=budget)


def least(text: list[int], seed: int, accepted: int) -> int:
    """The least budget that accepts another number: slowly, one node more each time."""
    budget = 8
    while made(budget, text, seed).accepted == accepted:
        budget += 1
    return budget


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ranks", [(0, 0, 3, 1, 0, 2, 0), (2, 5, 0, 0, 1, 0, 0), (0, 9, 1, 0, 0)])
def test_the_budget_and_what_it_accepts_are_those_of_real_drafts(seed, ranks):
    text = [int(IDS[depth % 6, rank]) for depth, rank in enumerate(ranks)]
    record = made(8, text, seed)
    accepted = record.accepted
    found = miss(record)
    assert found is not None
    if found.reason != Cause.PRUNED:
        return
    assert found.rank == ranks[accepted] + 1
    budget = least(text, seed, accepted)
    assert found.nodes == budget
    then = f"the round then accepts {made(budget, text, seed).accepted} instead of {accepted}"
    assert f"it needs {budget} nodes, and {then}" in sentence(found, str, accepted)


@pytest.mark.parametrize("seed", range(6))
def test_lists_that_depend_on_the_path_tell_the_least_budget(seed):
    """Every listed token that is more probable, along the nodes that were drafted, comes first."""
    text = [int(IDS[0, 0]), int(IDS[1, 9])]
    record = made(8, text, seed)
    draft, proposal = record.draft, record.proposal
    lists = Candidates(proposal.lists.ids.copy(), proposal.lists.log_q)
    apart = replace(draft, proposal=Proposal(lists, proposal.after, proposal.max_depth))
    found, accepted = miss(replace(record, draft=apart)), record.accepted
    if found.reason != Cause.PRUNED:
        return
    scores = {}
    for row in range(len(draft)):
        path = draft.tokens[list(draft.path(row)[1:])].tolist()
        above = sum(float(draft.log_q[r]) for r in draft.path(row)[1:])
        if len(path) < proposal.max_depth:
            for token, log_q in zip(lists.ids[len(path)], lists.log_q[len(path)], strict=True):
                scores[(*path, int(token))] = above + float(log_q)
    mine = scores[tuple(text[: accepted + 1])]
    assert found.nodes == 1 + sum(score > mine + 1e-6 for score in scores.values())
    assert not found.exact


@pytest.mark.parametrize("seed", range(6))
def test_lists_that_are_full_tell_the_least_budget_and_not_what_the_round_accepts(seed):
    """A larger budget makes them longer, and what they then hold may come first."""
    text = [int(IDS[0, 0]), int(IDS[1, 6])]
    record = made(8, text, seed)
    if record.accepted != 1:
        return
    lists = record.proposal.lists
    cut = Candidates(lists.ids[:, :8], lists.log_q[:, :8])
    proposal = Proposal.factorised(cut, record.draft.depths)
    found = miss(replace(record, draft=replace(record.draft, proposal=proposal)))
    enough = least(text, seed, accepted=1)
    assert found is not None and found.nodes <= enough and found.exact <= (found.nodes == enough)
    words = f"it needs ≥ {found.nodes} nodes"
    assert found.exact or sentence(found, str, 1).endswith(words)


def test_another_builder_s_draft_gets_no_budget():
    text = [int(IDS[0, 0]), int(IDS[1, 30])]
    record = made(8, text)
    other = replace(record.draft, scores=record.draft.scores + 3)
    found = miss(replace(record, draft=other))
    assert found is not None and found.nodes is None
    assert "pruned by budget" in sentence(found, str, record.accepted)


def test_a_text_that_ends_has_no_miss():
    record = made(8, [int(IDS[0, 0])])
    end = replace(record, verdict=Verdict((0,), record.verdict.target_tokens * 0 - 1))
    assert miss(end) is None


@pytest.mark.parametrize("seed", range(6))
def test_a_token_beyond_the_list_needs_no_fewer_nodes_than_are_counted(seed):
    """The list is as wide as the budget: a larger one may hold the token, a chain's never."""
    text = [int(IDS[0, 0]), int(IDS[1, 22])]
    record = made(8, text, seed)
    if record.accepted != 1:
        return
    lists = record.proposal.lists
    short = Candidates(lists.ids[:, :8], lists.log_q[:, :8])
    proposal = Proposal.factorised(short, record.draft.depths)
    none = np.zeros(2, np.float32)
    probe = Probe(none, np.zeros((2, 16), np.float32), none, np.array([1, 23], np.int32))
    record = replace(record, draft=replace(record.draft, proposal=proposal), probe=probe)
    found, enough = miss(record), least(text, seed, accepted=1)
    assert found is not None and "(p " not in sentence(replace(found, p=None), str, 1)
    assert found is not None and not found.exact
    assert 24 <= found.nodes <= enough
    assert sentence(found, str, 1).endswith(f"it needs ≥ {found.nodes} nodes")
    chain = replace(record.draft, proposal=replace(proposal, read=1))
    found = miss(replace(record, draft=chain))
    assert found is not None and found.nodes is None
    assert "no budget drafts it" in sentence(found, str, 1)


def test_a_draft_that_left_out_something_better_gets_no_number():
    """As the dynamic tree of EAGLE-2 does, which expands ten nodes a level."""
    text = [int(IDS[0, 0]), int(IDS[1, 30])]
    record = made(8, text)
    draft = replace(
        record.draft, log_q=record.draft.log_q - np.float32(3) * (record.draft.ranks > 1)
    )
    found = miss(replace(record, draft=replace(draft, scores=record.draft.scores)))
    assert found is not None and found.nodes is None


def test_no_number_of_nodes_is_told_for_a_builder_that_goes_on_from_some_nodes_alone():
    """Its larger drafts hold the token sooner than best-first, or never."""
    record = made(8, [int(IDS[0, 0]), int(IDS[1, 9])], 1)
    assert (told := miss(record)) is not None and told.nodes is not None
    for limit in ({"read": 10}, {"beam": 4}):
        limited = replace(record.draft, proposal=replace(record.draft.proposal, **limit))
        found = miss(replace(record, draft=limited))
        assert found is not None and found.nodes is None


def test_of_what_a_rule_left_out_best_first_s_need_is_told():
    record = replace(made(8, [int(IDS[0, 0]), int(IDS[1, 9])], 1), budget=9)
    found = miss(record)
    assert found is not None and found.reason is Cause.STOPPED
    assert f"best-first needs {found.nodes} nodes" in sentence(found, str, record.accepted)
