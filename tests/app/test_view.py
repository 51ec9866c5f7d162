"""The data of the page: lean, complete, finite, and safe whatever the trace holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.view.node import node_view
from app.view.rounds import (
    GHOST,
    drawable,
    has_stop,
    header_view,
    round_view,
    why_view,
)
from core.rounds.causes import Cause
from core.rounds.draft import Draft
from core.rounds.round import Probe, Round, TargetProbs, Verdict
from core.traces.reader import read_trace
from core.visible import visible
from tests import ROOT
from tests.helpers.fakes import make_header, make_round, make_run
from tests.helpers.pages import plain_json
from tests.helpers.small_rounds import TEXTS, small_round


def test_a_round_s_payload():
    view = round_view(small_round(), first=True)
    plain_json(view)
    assert view["status"] == "aararu"
    assert view["path"] == [0, 1, 3] and view["accepted"] == 2
    assert view["beside"] == [1, 1, 0]
    assert view["labels"] == {
        "0": "The",
        "1": "␣sky",
        "2": "␣sea",
        "3": "␣is",
        "4": "⏎",
        "5": "␣was",
    }
    assert view["q"] == [None, 0.6, 0.3, 0.5, 0.25, 0.02]
    assert view["p"] == [None, 0.9, 0.05, 0.8, 0.0004, 0.5]
    assert view["text"] == [
        ["The", "p", 0],
        [" sky", "a", 1],
        [" is", "a", 3],
        [" blue", "b", GHOST],
    ]
    ghost = view["ghost"]
    assert ghost["parent"] == 3 and ghost["label"] == "␣blue" and ghost["p"] == 0.7
    assert ghost["why"] == "not drafted: outside the candidates"
    assert ghost["y"] == view["y"][0] == view["y"][1] == view["y"][3]


def test_rows_scored_for_the_drafter_alone_make_no_round_deeper():
    record = small_round()
    deepest = record.draft.depths.max()
    side = frozenset(np.flatnonzero(record.draft.depths == deepest).tolist())
    assert round_view(record)["depth"] == deepest
    record = replace(record, draft=replace(record.draft, side=side))
    assert round_view(record)["depth"] == deepest - 1


def test_a_round_s_payload_has_its_cause_and_the_coverage_at_depth_1():
    header = header_view(make_header())
    view = round_view(small_round())
    assert view["cause"] == "outside" and header["causes"]["outside"] == Cause.OUTSIDE.short
    assert view["coverage"] == {} and view["tvd"] == []  # without a probe nothing is known
    shares = np.linspace(0.1, 0.85, 16, dtype=np.float32)
    for width, known in ((16, {"1": 0.1, "4": 0.25, "16": 0.85}), (3, {"1": 0.1})):
        probe = Probe(
            np.array([0.5, 0.2], np.float32), np.stack([shares, shares / 2])[:, :width],
            np.ones(2, np.float32), np.ones(2, np.int32),
        )  # fmt: skip
        assert round_view(replace(small_round(), probe=probe))["coverage"] == known


def test_every_cause_that_ends_a_walk_has_its_words_in_the_header():
    causes = header_view(make_header())["causes"]
    found = {round_view(record)["cause"] for record in make_run(6, 30)}
    assert found and found <= set(causes)
    assert not {"accepted", "outranked", "unreached", "side"} & set(causes)


def test_1024_nodes_stay_lean_and_carry_no_top_lists():
    text = plain_json(round_view(make_round(1, 1024)))
    assert len(text) < 60_000


def test_a_cut_round_counts_only_what_was_committed():
    record = replace(small_round(), committed=(1,))
    assert [piece[1] for piece in round_view(record)["text"]] == ["a"]


def test_the_inspector_of_an_accepted_node():
    node = node_view(small_round(), 3)
    plain_json(node)
    assert node["why"] == node["status"] == "accepted"
    assert node["path"] == ["The", "␣sky"] and node["label"] == "␣is" and node["depth"] == 2
    assert (node["rank_q"], node["rank_p"]) == (1, 1)
    assert node["path_q"] == pytest.approx(0.3) and node["path_p"] == pytest.approx(0.72)
    assert node["position"] == 22 and node["observed"]
    assert [e["label"] for e in node["drafter"]] == ["␣is", "⏎"]
    assert node["drafter"][0]["own"] and node["next"] == "␣blue"


def test_the_inspector_s_target_list_is_after_the_parent():
    record = make_round(4, 64)
    row = int(np.flatnonzero(record.draft.depths == 2)[0])
    parent = int(record.draft.parents[row])
    probs = record.target_probs
    assert probs is not None
    shown = [entry["odds"] for entry in node_view(record, row)["target"]]
    assert shown == pytest.approx(np.exp(probs.top_log_p[parent]), rel=1e-3)


def test_why_a_node_ended():
    record = small_round()
    assert node_view(record, 2)["why"] == "outranked: a sibling was the target's token"
    assert node_view(record, 5)["why"].startswith("unreached: ")
    assert node_view(record, 5)["tvd"] is None and not node_view(record, 5)["observed"]
    stopped_at_once = small_round(path=(0,))
    rejected = "rejected: the target's token here was not drafted: outside the candidates"
    assert node_view(stopped_at_once, 1)["why"] == rejected


def test_where_the_text_ends_inside_a_draft_that_is_said_and_nothing_was_missed():
    record = small_round()
    said = why_view(record)["why"]
    cut = replace(record, committed=record.committed[:1])
    wanted = visible(record.text(record.verdict.bonus))
    assert said.startswith(f"the target wanted “{wanted}” (p ")
    ends = f"the text ends with “{visible(record.text(record.committed[0]))}” at depth 1; "
    assert why_view(cut)["why"] == ends + "the walk went on behind it, which τ counts"
    ghost = node_view(cut, GHOST)["why"]
    assert ghost == "the target's token, behind the end of the text"


def test_the_inspector_of_the_ghost():
    record = small_round(bonus=6)
    probe = Probe(
        np.array([0.1, 0.2, 0.3], np.float32), np.ones((3, 16), np.float32),
        np.ones(3, np.float32), np.array([1, 1, 42], np.int32),
    )  # fmt: skip
    node = node_view(replace(record, probe=probe), GHOST)
    plain_json(node)
    assert node["status"] == "bonus" and node["label"] == "␣blue" and node["depth"] == 3
    assert (node["p"], node["q"]) == (0.7, None)
    assert (node["rank_p"], node["rank_q"]) == (1, 42)
    assert node["tvd"] == 0.3 and node["path_p"] == pytest.approx(0.72 * 0.7)


def test_rows_that_are_not_there():
    for row in (6, 10**9, -2):
        with pytest.raises(IndexError):
            node_view(small_round(), row)


def test_a_text_of_one_token_has_no_ghost():
    alone = Round(0, 3, Draft.root_only(1), Verdict((0,), np.array([-1])), (), texts=TEXTS)
    view = round_view(alone, first=True)
    assert not has_stop(alone) and "ghost" not in view and view["text"] == [[" sky", "p", 0]]
    assert node_view(alone, 0)["next"] is None
    with pytest.raises(IndexError):
        node_view(alone, GHOST)


def test_numbers_that_are_none_leave_as_null():
    record = small_round()
    nothing = np.full(6, np.nan, np.float32)
    draft = replace(record.draft, log_q=nothing, scores=np.full(6, np.inf, np.float32))
    probs = record.target_probs
    assert probs is not None
    broken = replace(
        record, draft=draft, target_probs=replace(probs, log_p=nothing, entropy=nothing)
    )
    plain_json(round_view(broken))
    for row in (0, 3, GHOST):
        plain_json(node_view(broken, row))


def test_every_node_of_many_rounds_can_be_inspected():
    for record in make_run(6, 30, hostile=True):
        plain_json(round_view(record))
        draft = replace(record.draft, proposal=None)
        bare = replace(record, draft=draft, target_probs=None, probe=None)
        plain_json(round_view(bare))
        for row in range(GHOST, len(record.draft)):
            plain_json(node_view(record, row))
            plain_json(node_view(bare, row))


def test_an_absurdly_large_round_is_drawn_in_part():
    record = make_round(1, 1024)
    small = drawable(record, 100)
    assert len(small.draft) <= 100
    assert [int(small.draft.tokens[r]) for r in small.verdict.path] == [
        int(record.draft.tokens[r]) for r in record.verdict.path
    ]
    assert all(p < row for row, p in enumerate(small.draft.parents.tolist()))
    rows = [*range(len(small.draft) - 1), record.verdict.path[-1]]
    assert small.proposal.after.tolist() == record.proposal.after[rows].tolist()
    answers = record.verdict.target_tokens[rows]
    assert small.verdict.target_tokens.tolist() == answers.tolist()
    assert isinstance(small.target_probs, TargetProbs)
    plain_json(round_view(small))
    chain = Round(
        0, 0, Draft.chain([0] * 300), Verdict(tuple(range(300)), np.zeros(300, np.int64)), (0,)
    )
    assert len(drawable(chain, 100).verdict.path) == 100


def test_the_header_is_text_only():
    hostile = "<script>${1}\ud800\x00"
    view = header_view(make_header(hostile, hostile, sampling={hostile: [hostile]}))
    assert "\x00" not in plain_json(view)


def test_the_target_s_token_has_the_q_that_the_inspector_says():
    found = 0
    for record in make_run(12, seed=3):
        view = round_view(record)
        if "ghost" in view:
            assert view["ghost"]["q"] == node_view(record, GHOST)["q"]
            found += view["ghost"]["q"] is not None
    assert found


def test_a_node_s_own_probability_is_one_number_in_its_lists_too():
    found = 0
    traces = ROOT / "assets" / "traces"
    for record in read_trace(traces / "chat-ddtree-64.jsonl.gz").rounds:
        for row in range(1, min(len(record.draft), 20)):
            view = node_view(record, row)
            for name, entries in (("p", view["target"]), ("q", view["drafter"])):
                own = [each["odds"] for each in entries if each["own"]]
                assert own in ([], [view[name]])
                found += len(own)
    assert found > 100
