"""p beside q at one place: every number against the round it is read from."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from app.studio.examples import Examples
from app.studio.routes import Routes
from app.studio.runs import Runs
from app.view.beside import MOST, beside_view
from app.view.comparison import shared_prompts
from core.errors import UserError
from core.traces.schema import Trace
from tests.helpers.fakes import FakeEngine, make_header, make_run


def test_behind_the_likeliest_only_what_was_asked_for_or_chosen_is_told():
    places = [(make_run(2, seed=seed)[1], 0) for seed in range(1, 5)]
    view = beside_view(places, int(places[0][0].draft.tokens[-1]))
    behind = view["tokens"][MOST:]
    assert behind and all(line["own"] or line["chosen"] for line in behind)


def test_every_number_is_the_round_s_own():
    one, other = make_run(2, seed=1)[1], make_run(2, seed=2)[1]
    places = [(one, 0), None, (other, other.verdict.path[-1])]
    token = int(one.draft.tokens[1])
    view = beside_view(places, token)
    assert view["listed"] == [True, False, True]
    assert sum(line["own"] for line in view["tokens"]) == 1
    assert len(view["tokens"]) <= MOST + 3
    compared = 0
    for line in view["tokens"]:
        each = line["token"]
        assert line["p"][1] is line["q"][1] is line["rank"][1] is None and line["drafted"][1] == ""
        for at, (record, row) in ((0, places[0]), (2, places[2])):
            compared += 1
            drafted = [
                n for n, parent in enumerate(record.draft.parents)
                if parent == row and record.draft.tokens[n] == each
            ]  # fmt: skip
            assert bool(line["drafted"][at]) == bool(drafted)
            listed = record.candidates_after(row)
            ids = [] if listed is None else list(listed.ids)
            if each in ids:
                assert line["rank"][at] == ids.index(each) + 1
                assert line["q"][at] == pytest.approx(
                    math.exp(listed.log_q[ids.index(each)]), rel=1e-3
                )
            if drafted and record.target_probs is not None:
                chance = math.exp(record.target_probs.log_p[drafted[0]])
                assert line["p"][at] == pytest.approx(chance, rel=1e-3)
    assert compared > 4


def test_a_token_that_one_run_alone_names_has_its_text():
    one, other = make_run(2, seed=1)[1], make_run(2, seed=2)[1]
    told = beside_view([(replace(one, texts={}), 0), (other, 0)], int(other.draft.tokens[1]))
    named = {line["label"] for line in told["tokens"] if line["token"] in other.texts}
    assert named and not any(label.startswith("⟨") for label in named)


def test_the_target_s_choice_is_marked():
    record = make_run(1)[0]
    row = record.verdict.path[-1]
    view = beside_view([(record, row)], record.verdict.bonus)
    (own,) = [line for line in view["tokens"] if line["own"]]
    assert own["chosen"]
    assert own["drafted"] == [""]


def test_runs_of_one_prompt_are_known_by_it():
    headers = [make_header("a"), make_header("b"), make_header("a")]
    assert shared_prompts(headers) == [0, 1, 0]


def test_the_route_believes_nothing():
    runs = Runs(FakeEngine())
    ticket = runs.open(Trace(make_header(), tuple(make_run(2)), {}))
    ask = Routes(runs, Examples()).of_runs()["beside"]
    place = {"ticket": ticket, "round": 0, "row": 0}
    assert ask({"places": [place, None], "token": 3})["listed"][1] is False
    for wrong in (
        {},
        {"places": [place]},
        {"places": [place | {"row": 999}], "token": 1},
        {"places": [place | {"round": "0"}], "token": 1},
        {"places": ["x"], "token": 1},
        {"places": 3, "token": 1},
        {"places": [place | {"row": True}], "token": 1},
    ):
        with pytest.raises(UserError):
            ask(wrong)
