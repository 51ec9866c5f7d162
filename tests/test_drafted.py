"""Why a node was drafted: three kinds of drafts, told by their notes; cues alike everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app import drafted
from app.view.explanation import candidate_width, cues, drafted_view, kind
from app.view.rounds import node_view, round_view
from app.view.tree import svg_tree, text_tree
from core.drafting import builders
from core.methods.dart import search as continuity
from core.rounds.draft import Draft
from core.rounds.round import Round
from tests.fakes import make_header, make_round
from tests.test_render import small_round
from tests.test_view import plain_json


def noted(**notes: list[float]) -> Round:
    """The small round with notes: _ stands for a blank, and the root's NaN is put in front."""
    named = {k.replace("_", " "): np.array([np.nan, *v], np.float32) for k, v in notes.items()}
    record = small_round()
    return replace(record, draft=replace(record.draft, notes=named))


def test_the_names_are_those_that_core_writes():
    assert (drafted.MARGINAL, drafted.BEHIND) == (builders.MARGINAL, builders.BEHIND)
    ours = (drafted.TERM_Q, drafted.TERM_NGRAM, drafted.CONTEXT, drafted.COUNT)
    assert ours == continuity.NOTES


def test_a_prefix_is_told_by_its_path():
    record = make_round(3, 30)
    order = np.argsort(-record.draft.scores[1:], kind="stable") + 1
    for place, row in enumerate(order[:5].tolist(), 1):
        told = drafted_view(record, row)
        assert told is not None and told["kind"] == "prefix" and told["by_path"]
        assert (told["place"], told["nodes"]) == (place, 30)
        path_q = node_view(record, row)["path_q"]
        assert np.prod(told["factors"]) == pytest.approx(path_q, rel=1e-2)
    assert drafted_view(record, 0) is None and node_view(record, 0)["drafted"] is None


def test_a_score_that_is_no_path_s_is_not_called_one():
    record = make_round(3, 10)
    own = replace(record.draft, scores=-record.draft.scores)
    told = drafted_view(replace(record, draft=own), 4)
    assert told is not None and not told["by_path"]


def test_a_conditioned_node_tells_both_q_and_its_parent_s_candidate():
    record = make_round(4, 64, method="treeflash")
    deep = int(np.flatnonzero(record.draft.depths == 2)[0])
    told = drafted_view(record, deep, width=8)
    assert told is not None and told["kind"] == "conditioned"
    parent = int(record.draft.parents[deep])
    assert told["given"] == node_view(record, parent)["label"]
    assert told["behind"] == record.draft.notes[drafted.BEHIND][deep] and told["width"] == 8
    assert told["q"] == pytest.approx(np.exp(record.draft.log_q[deep]), rel=1e-3)
    assert told["marginal"] == pytest.approx(
        np.exp(record.draft.notes[drafted.MARGINAL][deep]), rel=1e-3
    )
    first = drafted_view(record, 1, width=8)
    assert first is not None and first["behind"] is None  # the root is no candidate
    assert node_view(record, deep)["notes"] == []  # told, so not in the table again


def test_why_a_conditioned_node_has_no_children():
    record = make_round(4, 64, method="treeflash")
    offers = record.draft.offers
    assert offers is not None and record.candidates is not None
    leaves = np.flatnonzero(offers.after < 0).tolist()
    assert leaves
    for row in range(1, len(record.draft)):
        told = drafted_view(record, row)
        assert told is not None and (told["leaf"] != "") == (row in leaves)
        assert told["leaf"] == "" or record.draft.children[row] == ()
    row = leaves[0]
    depth = int(record.draft.depths[row])
    cut = replace(record.candidates, ids=record.candidates.ids[:depth])
    last = drafted_view(replace(record, candidates=cut), row)
    assert last is not None and last["leaf"] == "last"


def test_a_weighed_node_s_terms_add_up():
    record = make_round(5, 40, method="dart")
    for row in range(1, 20):
        told = drafted_view(record, row)
        assert told is not None and told["kind"] == "weighed"
        total = (told["above"] or 0) + told["term_q"] + told["term_ngram"]
        assert total == pytest.approx(told["score"], rel=1e-2)


def test_cues_are_one_mark_per_row_and_the_same_everywhere():
    log = np.log
    record = noted(**{"log_q_(marginal)": log([0.6, 0.1, 0.24, 0.6, 0.02]).tolist()})
    marked = cues(record)
    assert kind(record.draft) == "conditioned"
    assert marked.marks == ("", "", "▲", "▲", "▼", "") and set(marked.words) == {"▲", "▼"}
    view = round_view(record)
    assert view["cues"] == list(marked.marks) and view["cue_words"] == dict(marked.words)
    svg = svg_tree(record)
    for mark in "▲▼":
        assert svg.count(mark) == marked.marks.count(mark)
        assert marked.words[mark] in svg
    assert text_tree(record).count("▲") == 2


def test_cues_of_n_gram_contexts():
    nothing = [0.0] * 5
    record = noted(
        **{
            "score:_q_term": nothing,
            "score:_n-gram_term": nothing,
            "n-gram_context": [2, 1, 0, 0, np.nan],
            "n-gram_count": [9, 1, 3, 0, np.nan],
        }
    )
    assert cues(record).marks == ("", "n2", "n1", "n0", "n–", "")
    assert not cues(small_round()).marks and "cues" not in round_view(small_round())


@pytest.mark.parametrize("method", ["ddtree", "treeflash", "dart", "ar"])
def test_every_node_is_explained_in_plain_json(method: str):
    for seed in range(3):
        record = make_round(seed, 40, method=method, hostile=True)
        plain_json(round_view(record))
        for row in range(len(record.draft)):
            plain_json(node_view(record, row))


def test_broken_notes_break_nothing():
    infinite = [float("inf"), -float("inf"), float("nan"), 1e30, -5.0]
    names = ["log_q_(marginal)", "behind_candidate", "score:_q_term", "score:_n-gram_term"]
    for some in (names, names[2:], [*names[2:], "n-gram_context"]):
        record = noted(**dict.fromkeys(some, infinite))
        plain_json(round_view(record))
        svg_tree(record)
        for row in range(len(record.draft)):
            plain_json(node_view(record, row))


def test_own_notes_stay_in_the_table():
    record = noted(**{"log_luck": [-0.5, -1, -2, -3, -4], "<b>_mass": [1, 2, 3, 4, 5]})
    assert node_view(record, 2)["notes"] == [["luck", 0.3679, True], ["<b> mass", 2.0, False]]
    assert node_view(record, 2)["drafted"]["kind"] == "prefix"


def test_the_candidates_of_a_header():
    assert candidate_width(make_header(options={"candidates": 16})) == 16
    for settings in ({}, {"options": None}, {"options": {"candidates": "<b>"}}):
        assert candidate_width(make_header(**settings)) is None
    assert candidate_width(None) is None


def test_plain_decoding_has_nothing_to_explain():
    record = replace(make_round(1, 4), draft=Draft.root_only(3))
    assert kind(record.draft) == "prefix" and not cues(record).marks
