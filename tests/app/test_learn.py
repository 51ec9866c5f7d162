"""Learn: its steps end in the very draft, mask, walk and cache rows that the product makes."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import numbers
from analysis.numbers import percent
from app.learn import graph, measured, steps, verdict, words
from app.learn.course import course
from app.learn.drawn import DrawnWalks, Draws
from app.learn.material import FOLDER, METHODS, OTHER, PAIR, Material
from app.learn.steps import same_token
from app.learn.words import fill, plain, sections
from core.drafting import builders
from core.drafting.session import FactorisedSession
from core.errors import UserError
from core.methods.dart import TERM_Q
from core.models.tree_mask import ancestor_mask
from core.rounds.draft import Candidates, Draft
from core.rounds.round import REJECTED, UNREACHED, new_tokens
from core.verification.walk import walk


@st.composite
def proposals(draw) -> Candidates:
    depths, width = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    values = st.one_of(st.floats(-6, 0, width=32), st.sampled_from([-np.inf, 0.0, -1.0]))
    rows = draw(
        st.lists(st.lists(values, min_size=width, max_size=width), min_size=depths, max_size=depths)
    )
    log_q = -np.sort(-np.array(rows, np.float32), axis=1)
    ids = np.arange(depths * width).reshape(depths, width)
    return Candidates(ids.astype(np.int64), log_q)


def check_search(found: steps.Search, union: Draft, draft: Draft, *names: str) -> None:
    """The popped entries, in their order, are the draft's rows."""
    rows = [0, *(pop.entry + 1 for pop in found.pops)]
    place = {row: at for at, row in enumerate(rows)}
    for name in ("tokens", "depths", "ranks", "log_q", *names):
        np.testing.assert_array_equal(getattr(union, name)[rows], getattr(draft, name))
    assert [place.get(int(union.parents[row]), -1) for row in rows] == draft.parents.tolist()


@given(proposals(), st.integers(1, 40))
def test_the_steps_end_in_best_first_s_tree_and_the_target_s_mask(lists: Candidates, budget: int):
    draft = builders.best_first(FactorisedSession(lists), [99], budget)
    found = steps.search(lists, budget)
    check_search(found, steps.queue_tree(found, lists, 99), draft, "scores")
    np.testing.assert_array_equal(steps.mask(draft), ancestor_mask(draft))
    assert steps.nesting_faults(draft) == ()  # a tree of marginals is nested


@given(proposals(), st.integers(1, 40))
def test_a_queue_holds_what_waits_best_first(lists: Candidates, budget: int):
    found = steps.search(lists, budget)
    waiting: set[int] = {0} if found.entries else set()
    for pop in found.pops:
        best = min(waiting, key=lambda n: (-found.entries[n].score, n))
        assert pop.entry == best
        waiting = (waiting - {best}) | set(pop.pushed)
        assert list(pop.queue) == sorted(waiting, key=lambda n: (-found.entries[n].score, n))


def test_noise_is_the_sampler_s():
    pytest.importorskip("torch")
    from core.verification.sampling import gumbel_noise

    for seed, position in ((0, 38), (7, 1), (2**63, 5)):
        whole = gumbel_noise(seed, position, 5000).numpy()
        tokens = [0, 17, 4999, 314]
        assert steps.noise(seed, position, tokens) == pytest.approx(whole[tokens].tolist())


# ── the shipped runs ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def shipped() -> Material:
    return Material.shipped()


@pytest.fixture(scope="module")
def made() -> dict:
    return course()


def test_a_figure_shows_the_weights_that_its_text_names_and_explains_only_marks_it_has(made: dict):
    sides = [(step, step.get("side") or {}) for ch in made["chapters"] for step in ch["steps"]]
    (step, side), *others = [each for each in sides if each[1].get("kind") == "weights"]
    named = next(span["num"] for line in step["text"] for span in line if "num" in span)
    assert named.split(", ") == [f"{row['weight']:.2f}" for row in side["rows"]][:4] and not others
    lists = [
        each
        for _, side in sides
        for each in side.get("lists", ())
        if "◆ the" in each.get("note", "")
    ]
    for each in lists:
        assert ("▪" in each["note"]) == any(item["mark"] == "hot" for item in each["items"])


def test_a_step_that_tells_of_unreached_nodes_shows_them_as_others(made: dict):
    step = made["chapters"][4]["steps"][6]
    assert "unreached" in plain(step["text"][-1])
    assert not any("dim" in spec["marks"].values() for spec in step["trees"])


def test_marks_of_the_first_figures_are_told_where_they_first_stand(made: dict):
    first = made["chapters"][0]["steps"]
    told = [" ".join(plain(spans) for spans in step["text"]) for step in first]
    drawn = json.dumps(first[0]["side"], ensure_ascii=False)
    assert all(mark in drawn and mark in told[0] for mark in "␣⏎")
    judged = next(at for at, step in enumerate(first) if step["trees"] and not is_open(step, made))
    assert all(mark in told[judged] for mark in ("✓", "×", "dotted"))


def test_no_token_of_the_text_is_a_number_for_want_of_its_words(made: dict):
    said = [
        span["token"]
        for ch in made["chapters"]
        for step in ch["steps"]
        for spans in step["text"]
        for span in spans
        if isinstance(span, dict) and "token" in span
    ]
    assert said and not [each for each in said if re.search(r"\(\d+\)", each)]


def is_open(step: dict, made: dict) -> bool:
    """Whether the target has not spoken yet."""
    return all(made["trees"][spec["name"]].get("untold") for spec in step["trees"])


def test_no_tree_of_a_step_is_a_root_alone(made: dict):
    trees = [tree for ch in made["chapters"] for step in ch["steps"] for tree in step["trees"]]
    assert trees and all(tree["rows"] is None or len(tree["rows"]) > 1 for tree in trees)


def test_the_runs_are_small_and_of_one_text(shipped: Material):
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 300_000
    texts = set()
    for name in METHODS:
        trace, record = shipped.traces[name], shipped.first(name)
        assert trace.complete and trace.header.method == name
        assert record.position == len(trace.header.prompt_ids)
        assert record.draft.nodes == shipped.budget and record.target_probs is not None
        texts.add((trace.header.prompt_text, *(t for r in trace.rounds for t in r.committed)))
    assert len(texts) == 1


def test_the_search_and_the_walk_are_those_of_the_rounds(shipped: Material):
    check_search(shipped.found, shipped.queued, steps.tree_of(shipped.record))
    for name in METHODS:
        for record in shipped.traces[name].rounds:
            tokens = record.verdict.target_tokens
            verdict = walk(steps.tree_of(record), lambda row, t=tokens: int(t[row]))
            visits = steps.visits(record)
            assert tuple(visit.row for visit in visits) == verdict.path == record.verdict.path
            assert visits[-1].choice == record.verdict.bonus and visits[-1].child is None
            assert [visit.child for visit in visits[:-1]] == list(verdict.path[1:])


def test_the_rows_kept_are_those_the_cache_keeps(shipped: Material):
    torch = pytest.importorskip("torch")
    from core.models.cache import StaticKV

    record = shipped.record
    assert any(a != b for a, b in steps.moves(record))  # a path with a gap, or nothing to see
    start, count = record.position, len(record.draft)
    cache = StaticKV(1, start + count)
    rows = torch.arange(start + count, dtype=torch.float32).view(1, 1, -1, 1)
    cache.update(rows[:, :, :start], rows[:, :, :start], 0)
    cache.commit(start)
    cache.update(rows[:, :, start:], rows[:, :, start:], 0)
    cache.commit(torch.tensor(record.verdict.path))
    first: Any = cache.layers[0]
    kept = first.keys[0, 0, : cache.length, 0].tolist()
    assert kept[start:] == [start + a for a, _ in steps.moves(record)]
    assert [b for _, b in steps.moves(record)] == list(range(len(record.verdict.path)))


def test_the_numbers_of_chapters_4_to_6_are_those_of_their_round(
    shipped: Material, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verdict, "chapter", lambda name, scenes, *_, **values: (scenes, values))
    record, draft, path = shipped.record, shipped.record.draft, shipped.record.verdict.path
    start, end, depths = record.position, path[-1], draft.depths.tolist()
    scenes, told = verdict.one_pass(shipped)
    (places,) = (each.side["positions"] for each in scenes if each.section == "positions")
    assert places == [start + depth for depth in depths]
    assert told["p"] == pytest.approx(math.exp(record.target_probs.log_p[end]))
    assert told["place"] == start + depths[end] and told["level"] == depths.count(depths[end])
    scenes, told = verdict.the_walk(shipped)
    visits = [each.side["lists"][0]["items"] for each in scenes if each.section == "visit"]
    assert len(visits) == len(path) - 1
    assert all(items[0]["mark"] == "chosen" for items in visits)  # drafted, and the target's best
    (side,) = (each.side for each in scenes if each.section == "noise")
    terms = [row["terms"][1] for row in side["lists"][0]["rows"]]
    likeliest = record.target_probs.top_ids[0][: len(terms)].tolist()
    assert terms == [round(g, 2) for g in steps.noise(verdict.SEEDS[0], start + 1, likeliest)]
    log_q = record.log_q_after(end, record.verdict.bonus)
    assert told["rank"] == record.wanted_rank and told["q"] == pytest.approx(math.exp(log_q))
    assert told["odds"] == pytest.approx(math.exp(draft.scores[end] + log_q))
    assert told["odds"] < told["least"] == pytest.approx(math.exp(draft.scores[1:].min()))
    counts = [record.status.count(each) for each in (REJECTED, UNREACHED)]
    assert [told["rejected"], told["unreached"]] == counts
    _, told = verdict.the_cache(shipped)
    assert (told["last"], told["end"]) == (start + len(draft) - 1, start + len(path) - 1)
    assert (told["total"], told["lost"]) == (start + len(path), len(draft) - len(path))
    assert told["right"] != told["naive"]


@pytest.mark.parametrize("text", ["", OTHER])
def test_ddtree_s_trees_are_nested_and_treeflash_s_is_not(shipped: Material, text: str):
    one, two = (shipped.traces[text + name] for name in PAIR)
    assert all(steps.nesting_faults(r.draft) == () for r in one.rounds)
    assert any(steps.nesting_faults(r.draft) for r in two.rounds)


def test_at_the_other_text_the_target_takes_what_is_not_nested(shipped: Material):
    one, two = (shipped.elsewhere[name] for name in PAIR)
    assert one.position == two.position and one.draft.tokens[0] == two.draft.tokens[0]
    assert two.accepted >= one.accepted + 2
    faults = steps.nesting_faults(two.draft)
    assert any(worse in two.verdict.path[:-1] for _, worse in faults)


def test_dart_s_first_term_is_what_its_chapter_computes(shipped: Material):
    from app.learn.scores import list_share

    record, options = shipped.rivals, shipped.traces["dart"].header.settings["options"]
    draft, lists = steps.tree_of(record), record.by_depth
    assert lists is not None and len(draft.children[0]) > 3
    assert lists.ids.shape[1] == options["width"]
    for row in range(1, len(draft)):
        level, rank = int(draft.depths[row]) - 1, int(draft.ranks[row]) - 1
        weight = steps.level_weight(level, options["level_power"]) * options["logit_decay"] ** level
        term = weight * math.log(list_share(lists, level, rank))
        assert term == pytest.approx(float(draft.notes[TERM_Q][row]), rel=1e-3)


def test_the_whole_path_changes_the_list_after_a_token(shipped: Material):
    """EAGLE-3's chapter: one token, one depth, several parents, as many lists; one goes on."""
    from app.learn.material import WHOLE_PATH

    record = shipped.paths[WHOLE_PATH]
    twins, draft = steps.same_token(record), record.draft
    assert len(twins) > 1 and len({int(draft.parents[row]) for row in twins}) == len(twins)
    assert len({(int(draft.tokens[row]), int(draft.depths[row])) for row in twins}) == 1
    lists = [record.candidates_after(row) for row in twins]
    assert len({tuple(listed.log_q.tolist()) for listed in lists if listed}) == len(twins)
    assert sum(bool(draft.children[row]) for row in twins) == 1


def test_eagle_3_is_judged_over_many_prompts_and_not_by_one_answer(made: dict):
    found = measured.CourseMeasurements()
    own, other, head = (found.row(name) for name in ("eagle3", "ddtree", "mtp"))
    assert own["low"] <= other["high"] and other["low"] <= own["high"]
    told, beside = (
        plain([span for part in made["chapters"][7]["steps"][at]["text"] for span in part])
        for at in (6, 7)
    )
    tau, tau2, own_tau = (numbers.number(row["tau"], 2) for row in (own, other, head))
    assert f"{tau} tokens with EAGLE-3 and {tau2} with DDTree" in told
    assert "overlap, so nobody can tell which is ahead" in told
    assert f"{own_tau} tokens with the head and {tau} with EAGLE-3" in beside


def numbers_of(step: dict) -> list[str]:
    spans = (span for part in step["text"] for span in part)
    return [span["num"] for span in spans if isinstance(span, dict) and "num" in span]


def test_the_target_drafts_for_itself_at_the_end_of_spiffy_s_chapter(made: dict, shipped: Material):
    step = made["chapters"][9]["steps"][-1]
    names = [spec["name"] for spec in step["trees"]]
    assert names == ["ddtree", "uno"]
    plain, own = (shipped.traces[name].rounds for name in names)
    assert all(r.probe is not None and r.probe.tvd[0] < 1e-3 for r in own), "q is p at depth 1"
    accepted = [made["trees"][name]["accepted"] for name in ("uno", "ddtree")]
    rounds = [len(own), len(plain), 2 * len(own)]
    assert numbers_of(step) == [str(n) for n in (shipped.budget, *accepted, *rounds)]


def test_the_target_s_own_layer_drafts_at_the_same_place(made: dict, shipped: Material):
    records = {name: shipped.paths[name] for name in ("eagle3", "mtp")}
    assert len({(each.position, int(each.draft.tokens[0])) for each in records.values()}) == 1
    step = made["chapters"][7]["steps"][-1]
    views = [made["trees"][spec["name"]] for spec in step["trees"]]
    assert [view["accepted"] for view in views] == [each.accepted for each in records.values()]
    numbers = numbers_of(step)
    best = records["mtp"].draft.children[0][0]
    assert numbers[:2] == [percent(views[1][each][best]) for each in ("q", "p")]
    assert numbers[2:4] == [str(records[name].accepted) for name in ("mtp", "eagle3")]
    assert numbers[4:6] == [str(len(shipped.traces[name].rounds)) for name in ("mtp", "eagle3")]


def test_spiffy_s_example_accepts_by_any_order_of_a_drafted_set():
    sets = [frozenset(formula) for formula in graph.GRAPH.formulas]
    graph.GRAPH.check()
    for order in permutations([(1, 1), (2, 1), (3, 1), (4, 1)]):
        states = [frozenset(order[:n]) for n in range(1, 4)]
        passed = next((n for n, state in enumerate(states) if state not in sets), 3)
        rows = tuple(sets.index(state) + 1 for state in states[:passed])
        assert graph.EXAMPLE.accepted(order) == rows
    both = graph.EXAMPLE.accepted(graph.USUAL)[1]
    assert both == graph.EXAMPLE.accepted(graph.OTHER)[1]
    assert len(graph.EXAMPLE.draft.links[both]) == 2


def test_every_formula_of_spiffy_s_graph_is_marked_where_calibration_is_told(made: dict):
    marked = [step["trees"][0]["marks"] for step in made["chapters"][9]["steps"] if step["trees"]]
    hot = [marks for marks in marked if graph.HOT in marks.values()]
    assert [set(marks) for marks in hot] == [{str(n + 1) for n in range(len(graph.GRAPH))}]


# ── the course ───────────────────────────────────────────────────────────────────────────────────


def test_eleven_chapters_of_plain_data(made: dict):
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert len(made["chapters"]) == 11
    for chapter in made["chapters"]:
        assert 4 <= len(chapter["steps"]) <= 15
        quiz = chapter["quiz"]
        assert 0 <= quiz["answer"] < len(quiz["options"]) <= 3


def test_a_chapter_s_run_is_the_recorded_one(made: dict, shipped: Material):
    for chapter in made["chapters"]:
        if run := chapter.get("run"):
            method = run["filling"]["0.method"]
            header = shipped.traces[method].header
            assert run["filling"]["prompt"] == header.prompt_text
            assert run["filling"]["0.budget"] == header.settings["budget"] == shipped.budget
            words = shlex.split(run["command"])
            assert words[:5] == ["python", "-m", "app", "run", method]
            assert words[-1] == header.prompt_text
    assert [bool(chapter.get("run")) for chapter in made["chapters"]] == [True] * 9 + [False] * 2


def test_every_figure_shows_rows_that_are_there_with_their_parents(made: dict):
    for chapter in made["chapters"]:
        for step in chapter["steps"]:
            assert step["alt"] and all(plain(spans) for spans in step["text"])
            assert step["trees"] or step["side"]
            for spec in step["trees"]:
                whole = made["trees"][spec["name"]]
                rows = range(len(whole["tokens"])) if spec["rows"] is None else spec["rows"]
                assert list(rows) == sorted(set(rows)) and rows[0] == 0
                assert all(whole["parents"][row] in rows for row in rows if row)
                marked = {int(row) for row in spec["marks"]} | {spec["select"] or 0}
                assert marked - {-1} <= set(rows)
                assert -1 not in marked or "ghost" in whole


def test_a_tree_before_the_verdict_shows_nothing_of_it(made: dict):
    for name, whole in made["trees"].items():
        if name.endswith("?") or name in ("queue", "graph"):
            assert whole["untold"] and whole["p"] is None and "ghost" not in whole
            assert set(whole["status"][1:]) == {"u"} and whole["path"] == [0]


def test_the_last_queue_step_leaves_the_budget_s_nodes(made: dict, shipped: Material):
    end = next(step for step in reversed(made["chapters"][2]["steps"]) if step["trees"][0]["marks"])
    whole = len(made["trees"]["queue"]["tokens"])
    assert whole - len(end["trees"][0]["marks"]) - 1 == shipped.budget


def test_only_the_course_s_own_words_are_read_as_marks():
    hostile = {"token": "*no* {name} <b>"}
    spans = fill("A *term*, {it} and {n:.1f}.", {"it": hostile, "n": 3})
    assert spans == ["A ", {"term": "term"}, ", ", hostile, " and ", {"num": "3.0"}, "."]
    assert plain(fill("{one:%}, {rows}", {"one": 0.042, "rows": (0, 2)})) == "4.2%, 0, 2"
    with pytest.raises(KeyError):
        fill("{missing}", {})


def test_a_guess_is_asked_where_a_node_is_judged_and_answered_by_the_verdict(made: dict):
    chapters = [
        [step for step in chapter["steps"] if "ask" in step] for chapter in made["chapters"]
    ]
    assert all(chapters[1:8]) and not any(chapters[8:])
    judged = [(number, step) for number, steps in enumerate(chapters, 1) for step in steps]
    for _, step in judged:
        ask, (told,) = step["ask"], step["ask"]["trees"]
        before, after = (made["trees"][spec["name"]] for spec in (step["trees"][0], told))
        assert before["untold"] and before["tokens"] == after["tokens"]
        kids = [row for row, parent in enumerate(after["parents"]) if parent == 0]
        *drafted, none = ask["options"]
        assert sorted(each["row"] for each in drafted) == kids and none["row"] == -1
        assert step["trees"][0]["numbers"] == {
            str(each["row"]): at for at, each in enumerate(drafted, 1)
        }
        right = ask["options"][ask["answer"]]
        assert right["row"] == (after["path"][1] if after["accepted"] else -1)
        for at, each in enumerate(ask["options"]):
            why = plain(each["why"])
            assert why.startswith("Yes" if at == ask["answer"] else "No") and "p = " in why
            if each is not none:
                label = after["labels"][str(after["tokens"][each["row"]])]
                assert each["label"] == label and label in why
    assert any(step["ask"]["options"][step["ask"]["answer"]]["row"] < 0 for _, step in judged)
    texts = [plain(span for spans in step["text"] for span in spans) for _, step in judged]
    assert len(set(texts)) == len(texts)


def test_the_budget_s_trees_are_those_of_best_first_and_their_verdicts_of_the_text(
    made: dict, shipped: Material
):
    """Parts of one recorded pass: the very draft of each budget, and the text that was written."""
    lists, root = shipped.lists(), int(shipped.record.draft.tokens[0])
    text = [token for record in shipped.traces["ddtree"].rounds for token in record.committed]
    step = made["chapters"][2]["steps"][-1]
    (slider,) = step["sliders"]
    assert slider["values"] == [str(nodes) for nodes in range(1, 41)]
    for nodes, state in zip(range(1, 41), step["states"], strict=True):
        draft = builders.best_first(FactorisedSession(lists), [root], nodes)
        record, view = shipped.grown[nodes], made["trees"][state["trees"][0]["name"]]
        np.testing.assert_array_equal(record.draft.tokens, draft.tokens)
        np.testing.assert_array_equal(record.draft.parents, draft.parents)
        assert view["tokens"] == draft.tokens.tolist() and view["p"][1] is not None
        assert list(record.committed) == text[: len(record.committed)]
        assert [draft.tokens[row] for row in view["path"][1:]] == text[: view["accepted"]]
        assert len(record.committed) == view["accepted"] + 1
        assert f"accepts {view['accepted'] or 'nothing'}" in plain(state["text"][0])
    own = shipped.grown[shipped.budget]
    assert own.verdict.path == shipped.record.verdict.path
    assert {record.accepted for record in shipped.grown.values()} == {0, 1, 2, 3}
    assert step["trees"] == step["states"][slider["start"]]["trees"]


def test_every_draw_wins_by_recorded_p_and_the_noise_of_its_place(made: dict, shipped: Material):
    walks, draws = shipped.walks, shipped.draws
    record, probs = walks.record, walks.record.target_probs
    assert probs is not None
    np.testing.assert_array_equal(draws.tokens[0], draws.tokens[0, :1].repeat(len(draws.seeds), 0))
    for at, heat in enumerate(draws.temperatures):
        for seed, number in enumerate(draws.seeds):
            for row in range(len(record.draft)):
                drawn, place = int(draws.tokens[at, seed, row]), record.position + 1
                ids = [drawn, *probs.top_ids[row].tolist()]
                logs = np.array([draws.log_p[at, seed, row], *probs.top_log_p[row]]) / (heat or 1)
                g = steps.noise(number, place + int(record.draft.depths[row]), ids) if heat else 0
                assert (logs + g)[0] >= (logs + g).max() - 0.01  # lists are rounded
    step = made["chapters"][4]["steps"][-1]
    assert len(step["states"]) == len(draws.temperatures) * len(draws.seeds)
    accepted = np.array([made["trees"][s["trees"][0]["name"]]["accepted"] for s in step["states"]])
    by_heat = accepted.reshape(len(draws.temperatures), -1).mean(1)
    assert by_heat[0] == record.accepted and by_heat[-1] < by_heat[0]
    for state in step["states"]:
        for table in state["side"]["lists"]:
            (won,) = [row for row in table["rows"] if row["mark"] == "chosen"]
            assert won["sum"] == max(row["sum"] for row in table["rows"])


def test_p_at_a_temperature_adds_up_to_at_most_one(shipped: Material):
    for at, heat in enumerate(shipped.draws.temperatures):
        probs = shipped.walks.round(at, 0).target_probs
        assert probs is not None
        sums = np.exp(probs.top_log_p).sum(-1)
        assert (sums < 1.01).all()
        if heat == 0.25:
            assert sums.min() > 0.95  # nearly all of it is with the likeliest ten


def test_draws_that_are_missing_broken_or_of_another_tree_are_told(
    tmp_path: Path, shipped: Material
):
    with pytest.raises(UserError, match=r"drawn\.json cannot be read"):
        Draws.read(tmp_path / "drawn.json")
    (tmp_path / "drawn.json").write_text('{"temperatures": 1}')
    with pytest.raises(UserError, match=r"drawn\.json cannot be read"):
        Draws.read(tmp_path / "drawn.json")
    with pytest.raises(ValueError, match="another tree"):
        DrawnWalks(shipped.record, shipped.draws)


def test_hostile_words_of_a_model_stay_words(shipped: Material):
    hostile = "*x*{q}\n- [x] <img src=x onerror=alert(1)>"
    record = shipped.record
    texts = {int(token): hostile for token in record.draft.tokens}
    run = shipped.traces["ddtree"]
    rounds = (replace(record, texts={**record.texts, **texts}), *run.rounds[1:])
    other = replace(shipped, traces={**shipped.traces, "ddtree": replace(run, rounds=rounds)})
    for made, own in zip(course(other)["chapters"], course(shipped)["chapters"], strict=True):
        assert made["quiz"]["answer"] == own["quiz"]["answer"]
        for step, known in zip(made["steps"], own["steps"], strict=True):
            shapes = [
                [[type(span) for span in spans] for spans in s["text"]] for s in (step, known)
            ]
            assert shapes[0] == shapes[1]


def test_every_section_of_every_chapter_is_told(monkeypatch: pytest.MonkeyPatch):
    told: dict[str, list[str]] = {}

    class Sections(dict):
        def __init__(self, name: str) -> None:
            super().__init__(sections(name))
            self.name = name

        def __getitem__(self, key: str) -> list[str]:
            told.setdefault(self.name, []).append(key)
            return super().__getitem__(key)

    monkeypatch.setattr(words, "sections", Sections)
    course()
    assert list(told) == sorted(file.stem for file in words.FOLDER.glob("*.md"))
    for name, keys in told.items():
        wanted = [key for key in dict.fromkeys(keys) if key not in ("", "Question")]
        assert wanted == [key for key in sections(name) if key not in ("", "Question")]


# ── what was measured ────────────────────────────────────────────────────────────────────────────


def test_the_last_chapter_shows_the_reports_numbers(made: dict):
    rows = [
        row
        for file in measured.FOLDER.glob("tau-*.json")
        for row in json.loads(file.read_text())["rows"]
    ]
    plain = [row for row in rows if not row["options"] and row["temperature"] == 0]
    tau = {(f"{row['method']} {row['budget']}", row["source"]): row["tau"] for row in plain}
    budgets, sources = (
        [each["meta"] for each in s["side"]["figures"][0]["data"] if "points" in each["meta"]]
        for s in made["chapters"][-1]["steps"][:2]
    )
    for method, line, group in zip(measured.TREES, budgets, sources, strict=False):
        assert {f"{method} {p['x']}": p["y"] for p in line["points"]} == {
            name: value for (name, source), value in tau.items()
            if source == "all" and name.startswith(method)
        }  # fmt: skip
        shown = [p["y"] for p in group["points"]]
        assert shown == [tau[f"{method} 64", source] for source in measured.SOURCES]


def test_a_method_keeps_its_colour_from_figure_to_figure_of_the_last_chapter(made: dict):
    colours: dict[str, set[str]] = {}
    for step in made["chapters"][-1]["steps"][:7]:
        for each in step["side"]["figures"][0]["data"]:
            if each.get("meta", {}).get("points"):
                name = re.sub(r", chain of 7$|'s q′?$", "", each["meta"]["name"])
                colours.setdefault(name, set()).add(each["marker"]["color"])
    methods = [colours.pop(name) for name in measured.ORDER]
    assert all(len(each) == 1 for each in methods)
    assert len(set.union(*methods)) == len(methods)
    assert not set.union(*methods) & set.union(*colours.values())  # of what is no method


def test_a_token_has_one_spelling(made: dict):
    """Words, lists and the run's text show the blanks at a token's ends, as boxes do."""
    steps = [step for ch in made["chapters"] for step in ch["steps"]]
    spans = [s for step in steps for text in step["text"] for s in text if isinstance(s, dict)]
    sides = [step["side"] for step in steps if step["side"]]
    texts = [row["groups"] for side in sides for row in side.get("rows", ()) if "groups" in row]
    said = {
        *(span["token"] for span in spans if "token" in span),
        *(item["label"] for side in sides for item in side.get("items", ())),
        *(piece for side in sides for piece in side.get("plain", ())),
        *(piece for groups in texts for group in groups for piece in group),
    }
    assert "␣night" in said and not [each for each in said if each != each.strip()]


def test_what_more_nodes_bring_is_the_ratio_of_the_line_s_ends(made: dict):
    step = made["chapters"][-1]["steps"][0]
    lines = [
        each["meta"] for each in step["side"]["figures"][0]["data"] if "points" in each["meta"]
    ]
    points = lines[0]["points"]
    first, last = points[0], points[-1]
    times = f"{last['x'] / first['x']:g} times the nodes for {last['y'] / first['y']:.2f} times"
    assert times in plain([span for spans in step["text"] for span in spans])


def test_what_the_intervals_of_tvd_leave_open_is_not_said(made: dict):
    (figure,) = made["chapters"][-1]["steps"][4]["side"]["figures"]
    lines = {each["meta"]["name"]: each["meta"] for each in figure["data"]}
    given, mark = (
        {p["x"]: p for p in lines[name]["points"]}
        for name in ("TreeFlash's q′", "the marginal, held out")
    )
    apart = [at for at in sorted(given.keys() & mark.keys()) if given[at]["low"] > mark[at]["high"]]
    told = plain(made["chapters"][-1]["steps"][4]["text"][-1])
    assert f"at depths {', '.join(map(str, apart))};" in told and 0 < len(apart) < len(mark)


def test_every_method_was_judged_at_two_budgets_and_both_temperatures():
    found = measured.CourseMeasurements()
    for method in measured.TREES:
        for temperature in (0, 1):
            rates = found.some(method, temperature=temperature)
            assert {16, 64} <= {rate.budget for rate in rates}
        for rate in found.some(method):
            counted = sum(n * many for n, many in enumerate(rate.lengths, 1))
            assert counted / sum(rate.lengths) == pytest.approx(rate.tau)
            assert rate.low <= rate.tau <= rate.high


def test_measurements_that_are_missing_or_broken_are_one_sentence(tmp_path: Path):
    found = measured.CourseMeasurements(tmp_path)
    for name in ("curves", "bench", "spiffy"):
        with pytest.raises(UserError, match=r"cannot be read"):
            getattr(found, name)
    with pytest.raises(UserError, match=r"no τ of ddtree at B = 64"):
        found.at("ddtree")
    with pytest.raises(UserError, match=r"no τ of ddtree at B = 3"):
        measured.CourseMeasurements().row("ddtree", 3)
    found = measured.CourseMeasurements(tmp_path)
    (tmp_path / "tau-one.json").write_text("{")
    with pytest.raises(UserError, match=r"tau-one\.json cannot be read"):
        _ = found.rates


def test_the_race_is_of_one_text_in_the_recorded_time(shipped: Material, made: dict):
    plain_run, drafted = shipped.timed
    assert plain_run.header.prompt_ids == drafted.header.prompt_ids
    assert new_tokens(plain_run.rounds) == new_tokens(drafted.rounds)
    side = made["chapters"][0]["steps"][0]["side"]
    for row, run in zip(side["rows"], shipped.timed, strict=True):
        assert row["ends"] == sorted(row["ends"]) and len(row["ends"]) == len(run.rounds)
        assert row["ends"][-1] == pytest.approx(sum(r.times.total for r in run.rounds), abs=1e-3)
        assert [len(group) for group in row["groups"]] == [len(r.committed) for r in run.rounds]


def test_what_the_last_step_of_dart_says_of_scores_is_so(shipped: Material):
    record = shipped.rivals
    draft, last = record.draft, record.verdict.path[-1]
    assert not draft.children[last], "nothing was drafted after it, as the text says"
    beside = [row for row in draft.children[int(draft.parents[last])] if row != last]
    goes_on = [row for row in beside if draft.children[row]]
    assert goes_on and all(draft.scores[row] > draft.scores[last] for row in goes_on)


def test_equal_tokens_are_continued_clearly_otherwise_in_the_chapter_on_paths(shipped: Material):
    twins = same_token(shipped.paths["eagle3"])
    record = shipped.paths["eagle3"]
    (kept,) = [row for row in twins if record.draft.children[row]]
    token = int(record.draft.tokens[record.draft.children[kept][0]])
    odds = []
    for row in twins:
        listed = record.candidates_after(row)
        odds.append(np.exp(listed.log_q[listed.ids.tolist().index(token)]))
    assert max(odds) > 1.5 * min(odds)
