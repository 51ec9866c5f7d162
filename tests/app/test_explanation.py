"""Why a node was drafted, as its method declares it; marks alike everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.collected.collection import Collection
from analysis.collected.whatif import Simulation
from app.view.drawing import tree_drawing
from app.view.explanation import Explainer
from app.view.node import node_view
from app.view.rounds import round_view
from app.view.svg import svg
from app.view.tree import text_tree
from core import ASSETS
from core.methods.dart import COUNT, NOTES
from core.methods.method import Explanation, Mark, Note, find_builder
from core.methods.names import BUILDERS
from core.methods.treeflash import BEHIND, MARGINAL
from core.rounds.draft import CHILDLESS, Draft
from core.rounds.round import Round
from core.traces.record import with_proposal
from tests.helpers.fakes import make_header, make_round
from tests.helpers.pages import plain_json
from tests.helpers.small_rounds import small_round

COLLECTED = ASSETS / "collected" / "fibonacci.safetensors"
EVERY = ("ddtree", "treeflash", "dart", "ar", "dflash+continuity", "mine.py")


def explainer(method: str, **options: object) -> Explainer:
    return Explainer.of(make_header("why?", method, options=options))


def with_notes(**notes: list[float]) -> Round:
    """The small round with notes: the root's NaN is put in front."""
    record = small_round()
    arrays = {name: np.array([np.nan, *v], np.float32) for name, v in notes.items()}
    return replace(record, draft=replace(record.draft, notes=arrays))


def explained(record: Round, row: int, method: str, **options: object) -> dict:
    view = explainer(method, **options).view(record, row)
    assert view is not None
    return view


# ── whose declaration ────────────────────────────────────────────────────────────────────────────


def test_the_method_s_declaration_is_found_by_the_header():
    assert explainer("treeflash").explanation.layout == "versus"
    assert explainer("dflash+continuity").explanation.layout == "terms"
    assert explainer("ddtree") == explainer("dflash+best-first")
    unknown = Explainer(budget=64)
    assert explainer("no such method") == explainer("dflash+no-builder") == unknown
    own = replace(make_header("why?", "/home/ada/mine.py"), drafter={"kind": "treeflash"})
    assert Explainer.of(own).explanation == explainer("treeflash").explanation
    for kind in ("mine", [1], None, {"a": 1}):
        odd = replace(make_header("why?", "mine.py"), drafter={"kind": kind})
        assert Explainer.of(odd) == unknown


def test_a_draft_below_its_budget_gives_its_reason():
    """EAGLE-2's tree of 8 depths and 10 children has 10 + 7·100 nodes, whatever the budget."""
    collected = Collection.load(COLLECTED)
    for method, budget, nodes in (("dart+eagle2", 1024, 710), ("dart+chain", 16, 8)):
        record = Simulation(collected, method).round(collected.answer + 5, budget)
        own = explainer(method)
        said = replace(own, budget=budget).fewer(record)
        assert record.draft.nodes == nodes and f"{nodes} of {budget} nodes: " in said
        assert "?" not in said and said in round_view(record, replace(own, budget=budget))["fewer"]
        assert replace(own, budget=nodes).fewer(record) == ""
        assert "fewer" not in round_view(record, replace(own, budget=nodes))
        unknown = Explainer(budget=budget).fewer(record)
        assert unknown.endswith("why there are no more is not recorded.")
    assert all(find_builder(name).ends for name in BUILDERS)
    assert explainer("ar").fewer(small_round()) == ""


def test_no_file_that_a_header_names_is_run(tmp_path):
    file = tmp_path / "evil.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    Explainer.of(make_header("why?", str(file)))
    assert not (tmp_path / "ran").exists()


def test_options_that_cannot_be_are_the_defaults():
    assert explainer("treeflash", candidates=8).options["candidates"] == 8
    for odd in ("<b>", -1, None, [], 1e400):
        assert explainer("treeflash", candidates=odd).options["candidates"] == 16
    assert Explainer.of(make_header("why?", "treeflash")).options["candidates"] == 16


# ── layouts ──────────────────────────────────────────────────────────────────────────────────────


def test_a_path_s_place_and_factors():
    record = make_round(3, 30)
    order = np.argsort(-record.draft.scores[1:], kind="stable") + 1
    for place, row in enumerate(order[:5].tolist(), 1):
        view = explained(record, row, "ddtree")
        assert view["layout"] == "path" and view["by_path"]
        assert (view["place"], view["nodes"]) == (place, 30)
        path_q = node_view(record, row)["path_q"]
        assert np.prod(view["factors"]) == pytest.approx(path_q, rel=1e-2)
        assert view["lead"].startswith("The drafter's ")
    assert Explainer().view(record, 0) is None and node_view(record, 0)["explanation"] is None


def test_a_score_that_is_no_path_s_is_not_called_one():
    record = make_round(3, 10)
    reversed_scores = replace(record.draft, scores=-record.draft.scores)
    assert not explained(replace(record, draft=reversed_scores), 4, "ddtree")["by_path"]


def test_two_probabilities_side_by_side():
    record = make_round(4, 64, method="treeflash")
    deep = int(np.flatnonzero(record.draft.depths == 2)[0])
    view = explained(record, deep, "treeflash", candidates=8)
    parent = node_view(record, int(record.draft.parents[deep]))["label"]
    assert view["layout"] == "versus" and f"after {parent}, its parent" in view["lead"]
    logs = [record.draft.log_q[deep], record.draft.notes[MARGINAL][deep]]
    assert view["versus"]["odds"] == pytest.approx(np.exp(logs), rel=1e-3)
    assert view["versus"]["ratio"] == pytest.approx(np.exp(logs[0] - logs[1]), rel=1e-3)
    ((label, value, form, help),) = view["notes"]
    assert (label, value) == ("parent is candidate", record.draft.notes[BEHIND][deep])
    assert form == "count" and "M = 8 " in help
    assert explained(record, 1, "treeflash")["notes"] == []  # the root is not a candidate
    assert node_view(record, deep, explainer("treeflash"))["notes"] == []  # not shown twice


def test_a_score_of_terms_adds_up():
    record = make_round(5, 40, method="dart")
    for row in range(1, 20):
        view = explained(record, row, "dart")
        assert view["layout"] == "terms" and [name for name, _ in view["terms"]]
        total = (view["above"] or 0) + sum(value for _, value in view["terms"])
        assert total == pytest.approx(view["score"], rel=1e-2)
        assert {note[0] for note in view["notes"]} == {"n-gram context", "n-gram count"}


def test_a_draft_without_the_notes_is_shown_by_its_path():
    for method in ("treeflash", "dart"):
        assert explained(small_round(), 3, method)["layout"] == "path"


def test_why_a_node_can_have_no_children():
    record = make_round(4, 64, method="treeflash")
    after, least = record.proposal.after, replace(record.proposal, max_depth=2)
    record = replace(record, draft=with_proposal(record.draft, least))
    for row in range(1, len(record.draft)):
        leaf = explained(record, row, "treeflash", candidates=8)["leaf"]
        assert (leaf != "") == (after[row] == CHILDLESS)
        if leaf:
            last = record.draft.depths[row] == record.max_depth
            assert ("the drafter's last" in leaf) == last and (last or "M = 8" in leaf)
            assert record.draft.children[row] == ()
    assert (after == CHILDLESS).any()


def test_own_notes_stay_in_the_table():
    record = with_notes(**{"log luck": [-0.5, -1, -2, -3, -4], "<b> mass": [1, 2, 3, 4, 5]})
    assert node_view(record, 2)["notes"][:2] == [  # then that its list has another q
        ["luck", 0.3679, "probability", ""],
        ["<b> mass", 2.0, "number", ""],
    ]


# ── marks ────────────────────────────────────────────────────────────────────────────────────────


def test_marks_are_one_sign_per_row_and_the_same_everywhere():
    record = with_notes(**{MARGINAL: np.log([0.6, 0.1, 0.24, 0.6, 0.02]).tolist()})
    marks = explainer("treeflash").marks(record)
    assert marks.signs == ("", "", "▲", "▲", "▼", "") and set(marks.help) == {"▲", "▼"}
    view = round_view(record, explainer("treeflash"))
    assert view["signs"] == list(marks.signs) and view["sign_help"] == dict(marks.help)
    drawn = svg(tree_drawing(record, explainer("treeflash")))
    for row, sign in enumerate(marks.signs):
        mark = [sign, marks.help[sign]] if sign else []
        assert row == 0 or explained(record, row, "treeflash")["mark"] == mark
    for sign, help in marks.help.items():
        assert drawn.count(sign) == marks.signs.count(sign) and help in drawn
    assert text_tree(record, explainer("treeflash")).count("▲") == 2
    assert "▲" not in text_tree(record)


def test_the_first_mark_that_holds_is_drawn():
    zeros, nan = [0.0] * 5, float("nan")
    values = (zeros, zeros, [2, 1, 0, 0, nan], [9, 1, 3, 0, nan])
    record = with_notes(**dict(zip(NOTES, values, strict=True)))
    assert explainer("dart").marks(record).signs == ("", "n2", "n1", "n0", "n–", "")
    notes = {name: v for name, v in record.draft.notes.items() if name != COUNT}
    without = replace(record, draft=replace(record.draft, notes=notes))
    assert explainer("dart").marks(without).signs == ("", "n2", "n1", "n0", "n0", "")
    assert explainer("dart").marks(small_round()).signs == ()
    assert "signs" not in round_view(small_round(), explainer("dart"))


def test_any_declaration_is_drawn():
    """A method that is not listed: its notes, forms and marks need no code here."""
    own = Explanation(
        lead="Copied from position {position} of {depth}.",
        notes=(Note("head", "draft head", "count", "of {heads}"),),
        marks=(Mark("2", "head", "the second head", 1.5, 2.5),),
    )
    made = Explainer(own, {"head": own.notes[0]}, {"heads": 4})
    record = with_notes(head=[1, 2, 1, 2, 3])
    view = made.view(record, 2)
    assert view["lead"] == "Copied from position ? of 1."
    assert view["notes"] == [["draft head", 2.0, "count", "of 4"]]
    assert view["mark"] == ["2", "the second head"]


# ── hostile and empty ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", EVERY)
def test_every_node_is_explained_in_plain_json(method: str):
    for seed in range(3):
        record = make_round(seed, 40, method=method, hostile=True)
        for how in map(explainer, EVERY):
            plain_json(round_view(record, how))
            for row in range(len(record.draft)):
                plain_json(node_view(record, row, how))


def test_broken_notes_break_nothing():
    infinite = [float("inf"), -float("inf"), float("nan"), 1e30, -5.0]
    record = with_notes(**dict.fromkeys((MARGINAL, BEHIND, *NOTES, "{depth"), infinite))
    for how in map(explainer, EVERY):
        plain_json(round_view(record, how))
        svg(tree_drawing(record, how))
        for row in range(len(record.draft)):
            plain_json(node_view(record, row, how))


def test_plain_decoding_has_nothing_to_explain():
    record = replace(make_round(1, 4), draft=Draft.root_only(3))
    assert explainer("ar").marks(record).signs == ()
