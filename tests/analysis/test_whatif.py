"""The tab What-if equals real runs: every method, several settings each, on toys; and the file."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from safetensors.numpy import save_file

from analysis.charts.parts import Point
from analysis.collected.budget_figures import (
    doubt,
    speed_by_budget,
    tau_by_budget,
    tau_over_texts,
)
from analysis.collected.collect import CollectionPlan, collect
from analysis.collected.collection import Collection
from analysis.collected.many_texts import whatif_texts
from analysis.collected.whatif import Simulation
from analysis.experiments.cost import fit
from app.studio.tabs.whatif_answers import speeds
from core import ASSETS
from core.decoding.decode import Decoder
from core.drafting.builders import Chain, best_first
from core.drafting.session import Builder, FactorisedSession
from core.errors import UserError
from core.methods.medusa.tree import published
from core.methods.method import BY_DEPTH, BY_PREVIOUS, find_builder
from core.methods.names import BUILDERS
from core.methods.registry import find_method, listed
from core.ngram import build_store
from core.rounds.causes import Cause
from core.rounds.draft import Candidates
from core.rounds.round import new_tokens
from tests import ROOT
from tests.helpers import toys
from tests.helpers.collected_toys import (
    FACTS,
    KEPT,
    NEW,
    collection_in,
    corrupt,
    drafters,
    points,
    real,
    simulate,
    source,
)

CASES = [
    *(("dflash", b, {}) for b in (1, 2, 4, 7, 64)),
    *(("ddtree", b, {}) for b in (1, 3, 8, 16, 47, 64, 200)),
    ("treeflash", 8, {"candidates": 12, "siblings": 14}),
    ("treeflash", 40, {"candidates": 4, "siblings": 14}),
    ("treeflash", 40, {"candidates": 12, "siblings": 3}),
    ("treeflash", 64, {"candidates": 1, "siblings": 1}),
    ("treeflash", 150, {"candidates": 5, "siblings": 6}),
    ("treeflash+chain", 6, {"candidates": 7, "siblings": 7}),
    ("treeflash+opt-tree", 20, {"candidates": 6, "siblings": 9, "gain": 0.05}),
    ("dart", 59, {}),
    ("dart", 10, {"width": 5, "beam": 3}),
    ("dart", 30, {"ngram_weight": 2.0, "beam": 7}),
    ("dart", 30, {"logit_decay": 0.5, "level_power": 0.0}),
    ("dart", 30, {"ngram_at_first": False, "width": 40, "epsilon": 1e-4}),
    ("dart+best-first", 33, {}),
    ("dart+opt-tree", 12, {"gain": 0.2}),
    ("dflash+opt-tree", 30, {}),
    ("dflash+opt-tree", 12, {"gain": 0.1}),
    ("dflash+opt-tree", 64, {"gain": 0.4}),
    ("dflash+continuity", 25, {"ngram_weight": 0.1}),
    ("treeflash+continuity", 25, {"candidates": 3, "siblings": 3}),
    ("caddtree", 40, {"node_ms": 0.5}),
    ("caddtree", 5, {"node_ms": 4.0}),
    ("treeflash+cost-aware", 40, {"candidates": 12, "siblings": 14, "node_ms": 1.0}),
]


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    return collection_in(tmp_path_factory.mktemp("collected"))


@pytest.fixture(scope="module")
def grams(tmp_path_factory, collected):
    path = tmp_path_factory.mktemp("grams") / "grams.safetensors"
    build_store([collected.tokens.tolist()[:50]], path, toys.VOCABULARY)
    return str(path)


@pytest.mark.parametrize(("method", "budget", "options"), CASES)
def test_a_simulated_run_is_the_real_one(method, budget, options, collected, grams):
    if "ngram_weight" in find_method(method).resolve({}):
        options = options | {"ngram": grams}
    rounds = real(method, budget, options)
    found = simulate(collected, method, budget, options)
    assert found.lengths == tuple(r.accepted + 1 for r in rounds)
    assert found.starts == tuple(r.position for r in rounds)
    assert found.exact and "exact" in found.note
    simulation = Simulation(collected, method, options)
    for record in rounds[::5]:
        mine = simulation.round(record.position, budget)
        for field in ("tokens", "parents", "depths", "ranks"):
            np.testing.assert_array_equal(getattr(mine.draft, field), getattr(record.draft, field))
        np.testing.assert_allclose(mine.draft.log_q, record.draft.log_q, atol=1e-5)
        np.testing.assert_allclose(mine.draft.scores, record.draft.scores, atol=1e-4)
        assert mine.verdict.path == record.verdict.path
        assert mine.verdict.bonus == record.verdict.bonus
        assert mine.stop_reason == record.stop_reason


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("dflash+eagle2", {}),
        ("treeflash+eagle2", {"top_k": 3}),
        ("dart", {"beam": 2}),
        ("dflash+static", {}),
        ("caddtree", {}),
    ],
)
def test_what_no_larger_budget_drafts_is_not_laid_to_the_budget(method, options):
    """The causes of rounds of a real drafter, against the largest draft of the same builder."""
    text = Collection.load(ASSETS / "collected" / "fibonacci.safetensors")
    simulation, causes = Simulation(text, method, options), set[Cause]()
    for at in range(text.answer, text.end - 8, 3):
        record = simulation.round(at, 8 if method == "caddtree" else 60)
        rows = record.verdict.path[1:]
        cause, missed = record.stop_reason, (*record.draft.tokens[list(rows)], record.verdict.bonus)
        whole, row = simulation.draft(at, 1024), 0
        for token in missed:
            row = row if row is None else whole.child(row, int(token))
        if cause is not Cause.TEXT_ENDED:
            assert (cause in (Cause.PRUNED, Cause.SHORT_LIST)) == (row is not None)
            causes.add(cause)
    assert causes & {Cause.STOPPED, Cause.NOT_READ}


def test_a_simulated_round_tells_the_rank_of_a_token_that_its_own_lists_lack():
    text = Collection.load(ASSETS / "collected" / "fibonacci.safetensors")
    record = Simulation(text, "ddtree").round(44, 8)
    assert record.wanted_rank == 21 and record.stop_reason is Cause.SHORT_LIST


def test_a_simulated_round_and_a_run_tell_their_own_numbers(collected):
    text = Collection.load(ASSETS / "collected" / "fibonacci.safetensors")
    simulation, at = Simulation(text, "ddtree"), text.answer + 7
    record, other = simulation.round(at, 5), simulation.round(at)
    assert (record.index, record.position, record.budget, record.draft.nodes) == (7, at, 5, 5)
    assert other.budget == other.draft.nodes == find_method("ddtree").budget
    run = simulation.run(16, 6)  # the last round goes beyond the sixth token
    assert (run.lengths, run.new_tokens, run.tau) == ((4, 2), 6, 3.0)
    assert run.starts == (text.answer, text.answer + 4)
    assert simulation.drafted(simulation.run(5, 6)) == [5, 5]  # searched with a budget of 16
    assert simulation.run(16, 5).tau == 4.0  # of the first token no round tells
    with pytest.raises(UserError, match="1 to 1024"):
        simulation.draft(at, 0)
    with pytest.raises(UserError, match=f"not {text.end - text.answer + 1}"):
        simulation.run(16, text.end - text.answer + 1)
    tokens = collected.tokens.copy()
    tokens[collected.answer + 1] = 0  # as good a token as any
    zero = replace(collected, arrays={**collected.arrays, "tokens": tokens})
    assert Simulation(zero, "ddtree").round(collected.answer, 2).committed[0] == 0


def test_a_rank_is_told_only_of_lists_that_all_nodes_of_a_depth_share():
    """TreeFlash's lists by depth hold the token six times where the list at the node does not, or
    was not asked for; a place of a list that nothing fills ranks no token."""
    text = Collection.load(ASSETS / "collected" / "fibonacci.safetensors")
    simulation, seen = Simulation(text, "treeflash"), 0
    for at in range(text.answer, text.end - 8):
        record = simulation.round(at, 8)
        by_depth = text.lists("treeflash", at).ids[record.accepted :][:1]
        own = record.proposal.candidates(record.verdict.path[-1])
        if own is None or record.verdict.bonus not in own.ids:
            assert record.wanted_rank is None
            seen += record.verdict.bonus in by_depth
    assert seen == 6
    record = Simulation(text, "ddtree").round(44, 8)
    lists = text.lists("dflash", 44)
    log_q = np.where(lists.ids == record.verdict.bonus, -np.inf, lists.log_q)
    assert replace(record, lists=replace(lists, log_q=log_q)).wanted_rank is None


OTHERS = {  # method: its drafter, the builder of a real run, the options
    "medusa": (toys.medusa_drafter, published(), {"published": True}),
    "medusa+best-first": (toys.medusa_drafter, best_first, {}),
    "peagle+best-first": (toys.parallel_drafter, best_first, {}),
    "uno": (toys.uno_drafter, best_first, {}),
    "pld": (lambda: toys.pld_drafter(copied=4), Chain(), {"copied": 4}),
}


@pytest.mark.parametrize("budget", [1, 7, 40])
@pytest.mark.parametrize("method", OTHERS)
def test_a_simulated_run_of_lists_by_depth_is_the_real_one(method, budget, tmp_path):
    """A collected file holds all of such lists."""
    make, builder, options = OTHERS[method]
    drafter, kind = make(), method.partition("+")[0]
    models = source({kind: drafter})
    models.options[kind] = asdict(drafter.options) if kind == "pld" else {}
    made = collect(models, toys.PROMPT, tmp_path / "x.safetensors", CollectionPlan(60, 48))
    found = simulate(made, method, budget, options)
    rounds = toys.run(Decoder(method, drafter, builder), 60, budget=budget).rounds
    assert found.exact and found.lengths == tuple(r.accepted + 1 for r in rounds if r.committed)
    assert max(found.lengths) > 1


def test_a_fully_accepted_path_still_asks_for_the_token_after_it():
    shipped = Collection.load(ROOT / "assets" / "collected" / "fibonacci.safetensors")
    simulation = Simulation(shipped, "treeflash")
    depth, full = shipped.limits("treeflash").max_depth, 0
    for start in simulation.run(64).starts:
        record = simulation.round(start, 64)
        after = shipped.tokens[start + 1 :][: record.accepted + 1].tolist()
        assert list(record.committed) == after and record.verdict.bonus == after[-1]
        full += record.accepted == depth
    assert full == 2


def test_where_the_context_is_full_nothing_is_made_up(collected):
    """A file whose text ends with an accepted token: the bonus after it is not known."""
    simulation = Simulation(collected, "ddtree")
    records = [simulation.round(start, 64) for start in simulation.run(64).starts]
    whole = next(record for record in records if record.accepted)
    end = whole.position + 1 + whole.accepted
    short = replace(collected, arrays={**collected.arrays, "tokens": collected.tokens[:end]})
    record = Simulation(short, "ddtree").round(whole.position, 64)
    assert record.committed == whole.committed[:-1] and record.verdict.bonus == -1


def test_every_listed_method_was_simulated():
    drafts = {n: m.drafter_info for n, m in listed().items() if m.drafter}
    listable = {n for n, info in drafts.items() if info.states in (BY_DEPTH, BY_PREVIOUS)}
    # P-EAGLE's own builder is the chain.
    assert {m for m, *_ in CASES} | {*OTHERS, "peagle"} >= listable


def test_the_cases_are_worth_something(collected):
    taus = [simulate(collected, "ddtree", b).tau for b in (1, 16, 47)]
    assert taus == sorted(taus) and taus[0] < taus[-1]


@pytest.mark.parametrize("count", [2, 3, 17])
def test_a_beginning_of_the_text_is_a_shorter_run(count, collected):
    found = simulate(collected, "ddtree", 16, new_tokens=count)
    assert found.lengths == tuple(r.accepted + 1 for r in real("ddtree", 16, {}, count))


def test_one_search_serves_all_budgets(collected, grams, monkeypatch):
    for method, options in (("ddtree", {}), ("treeflash", {"candidates": 6}), ("dart", {})):
        options = options | ({"ngram": grams} if method == "dart" else {})
        budgets = [64, 1, 8, 31]
        together = Simulation(collected, method, options).curve(budgets)
        alone = [simulate(collected, method, b, options) for b in budgets]
        assert [(w.budget, w.lengths) for w in together] == [(w.budget, w.lengths) for w in alone]
    simulation = Simulation(collected, "ddtree")
    simulation.curve([1, 8, 64])
    monkeypatch.setattr(simulation, "builder", None)  # everything is known by now
    assert simulation.run(5).rounds and simulation.run(63).rounds


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40))
def test_nested_means_that_smaller_drafts_are_beginnings(seed, small, large):
    """Ties included, and lists that are shorter than what a builder reads: the claim that
    ``BuilderInfo.nested`` makes, of every builder that makes it. Rows above the budget b belong to
    larger budgets alone."""
    small, large = sorted((small, large))
    rng = np.random.default_rng(seed)
    log_q = np.log(rng.dirichlet(np.full(9, 0.4), 4)).astype(np.float32).round(1)
    lists = Candidates(np.argsort(rng.random((4, 9)), 1), -np.sort(-log_q, 1))
    made = {"continuity": toys.continuity([1, 2, 3], [4], width=7, beam=3)}
    for name in [name for name in BUILDERS if find_builder(name).nested]:
        method = find_method(f"dflash+{name}")
        builder = made.get(name) or method.make_builder(FACTS, method.resolve({}))
        one, two = (builder(FactorisedSession(lists), [2, 1], b) for b in (small, large))
        for field in ("tokens", "parents", "ranks", "scores"):
            rows = getattr(two, field)[: 1 + small]
            np.testing.assert_array_equal(getattr(one, field), rows, err_msg=name)


def test_a_static_tree_of_short_lists_is_simulated_budget_by_budget():
    """A token that is not listed makes no room for later nodes, so drafts are not nested."""
    shipped = Collection.load(ROOT / "assets" / "collected" / "fibonacci.safetensors")
    alone = simulate(shipped, "treeflash+static", 64)
    together = Simulation(shipped, "treeflash+static").curve([64, 1024])
    assert together[0].lengths == alone.lengths


def test_a_builder_that_reads_the_clock_is_never_exact(collected):
    found = simulate(collected, "caddtree", 16, {"measure": True})
    assert not found.exact and "times of a real run" in found.note


def test_figures_mark_what_is_not_exact(tmp_path, collected):
    """By budget, over several texts, and of the expected speed: one decision, everywhere hollow."""
    made = collect(source(), toys.PROMPT, tmp_path / "x.safetensors", CollectionPlan(NEW, 4))
    runs = Simulation(made, "ddtree").curve([1, 4, 40])
    inexact = {run.budget for run in runs if not run.exact}
    assert inexact and inexact != {1, 4, 40}
    over = whatif_texts({"one": runs, "two": Simulation(collected, "ddtree").curve([1, 4, 40])})
    timed = [Point(run.budget, 1.0, doubt=doubt(run.exact)) for run in runs]
    for figure in (
        tau_by_budget({"DDTree": runs}),
        tau_over_texts({"DDTree": over}),
        speed_by_budget("DDTree", timed, 1.0, "Times."),
    ):
        line = next(t for t in figure.data if t.name == "DDTree" and t.fill is None)
        hollow = {x for x, c in zip(line.x, line.marker.color, strict=True) if c != line.line.color}
        assert hollow == inexact == {p["x"] for p in line.meta["points"] if p.get("doubt")}
        assert "Hollow points are not exact" in figure.layout.meta["says"]


def test_a_stop_token_ends_the_run_where_a_real_one_ends(tmp_path, collected):
    stop = int(collected.tokens[collected.answer + 20])
    made = collect(
        source(stop=[stop]), toys.PROMPT, tmp_path / "x.safetensors", CollectionPlan(NEW, 48)
    )
    first = collected.tokens[collected.answer :].tolist().index(stop)
    assert made.end == made.answer + first + 1
    for budget in (2, 16, 40):
        rounds = real("ddtree", budget, {}, stop=[stop])
        found = simulate(made, "ddtree", budget)
        assert found.lengths == tuple(r.accepted + 1 for r in rounds)


def test_a_sampled_text_is_exact_for_its_seed_and_says_so(tmp_path):
    plan = CollectionPlan(24, 48, toys.HOT)
    made = collect(source(), toys.PROMPT, tmp_path / "x.safetensors", plan)
    found = simulate(made, "ddtree", 24)
    rounds = real("ddtree", 24, {}, 24, sampling=toys.HOT)
    assert found.lengths == tuple(r.accepted + 1 for r in rounds)
    assert made.tokens[made.answer : made.end].tolist() == new_tokens(rounds)
    assert "seed 5" in found.note and "another text" in found.note


def test_a_cut_list_is_exact_until_its_last_token_is_drafted(tmp_path, collected):
    """Where it says exact it is; where it does not, it says which list was cut."""
    made = collect(source(), toys.PROMPT, tmp_path / "x.safetensors", CollectionPlan(NEW, 4))
    seen = set()
    for method, options in (
        ("ddtree", {}), ("dflash", {}), ("dflash+opt-tree", {}), ("dflash+opt-tree", {"gain": 0.1}),
        ("dart+continuity", {"ngram_weight": 0.0, "width": 9}),
    ):  # fmt: skip
        for budget in (1, 3, 5, 9, 17, 40):
            found = simulate(made, method, budget, options)
            whole = simulate(collected, method, budget, options)
            seen.add(found.exact)
            assert whole.exact
            if found.exact:
                assert found.lengths == whole.lengths
            else:
                assert "4 tokens per depth" in found.note
    assert seen == {True, False}
    assert simulate(made, "dflash", 40).exact  # a chain reads the first of each list
    assert not simulate(
        made, "dflash+eagle2", 3
    ).exact  # which reads ten, and has a rule of its own
    held = "4 tokens per depth, 12 candidates and 14 siblings may not be enough"
    assert simulate(made, "treeflash", 40).note == f"not exact: in 39 rounds the file's {held}"
    cut, full = Simulation(made, "ddtree"), Simulation(collected, "ddtree")
    for budget in range(10, 18):  # a single round
        one, other = (each.draft(made.answer, budget) for each in (cut, full))
        last = np.flatnonzero(other.ranks == 4)[:1]  # no draft of so many nodes can differ
        assert cut.run(budget, 2).exact == (not len(last) or budget <= last[0])
        assert np.array_equal(one.tokens, other.tokens) or not cut.run(budget, 2).exact


def test_more_candidates_or_siblings_than_the_file_has_are_said(collected):
    assert not simulate(collected, "treeflash", 8, {"candidates": 13}).exact
    assert simulate(collected, "treeflash", 4, {"candidates": 12, "siblings": 40}).exact
    assert not simulate(collected, "treeflash", 300, {"candidates": 12, "siblings": 40}).exact


def test_a_list_is_cut_only_where_the_builder_reads(tmp_path, collected):
    """A chain reads the best token alone; a width of one's own says nothing about what stands
    after a candidate."""
    made = collect(source(), toys.PROMPT, tmp_path / "x.safetensors", CollectionPlan(NEW, 1))
    found = simulate(made, "dflash", 7)
    assert found.exact and found.lengths == simulate(collected, "dflash", 7).lengths
    assert not simulate(made, "ddtree", 7).exact
    simulation = Simulation(collected, "treeflash", {"candidates": 13})
    simulation.builder = Narrow()
    assert not simulation.run(8).exact


class Narrow(Builder):
    """A builder of one's own that reads what is listed after each of its candidates."""

    reads = 3

    def __call__(self, session, text, budget):
        return best_first(session, text, budget)


# A drafter of one's own, which cannot answer at many places at once.
OWN = """
from core.methods.method import DrafterInfo, Method
from tests.helpers.toys import RandomDrafter

METHOD = Method("Own", DrafterInfo("own", "", lambda *_: RandomDrafter()), "best-first")
"""
BY_PATH = """
from core.methods.method import BY_PATH, DrafterInfo, Method

METHOD = Method("Deep", DrafterInfo("deep", "", lambda *_: None, states=BY_PATH), "best-first")
"""


def test_a_drafter_of_ones_own_is_asked_token_by_token(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    made = collect(
        source({"own": toys.RandomDrafter()}),
        toys.PROMPT,
        tmp_path / "x.safetensors",
        CollectionPlan(20, 48),
    )
    found = simulate(made, str(tmp_path / "own.py"), 12)
    rounds = toys.run(Decoder("own", toys.RandomDrafter(), best_first), 20, budget=12).rounds
    assert found.lengths == tuple(r.accepted + 1 for r in rounds if r.committed)


def test_states_that_are_paths_cannot_be_listed_and_that_is_said(tmp_path, collected):
    (tmp_path / "deep.py").write_text(BY_PATH)
    with pytest.raises(UserError, match="depends on the whole path") as error:
        simulate(collected, str(tmp_path / "deep.py"), 8)
    assert "\n" not in str(error.value)
    text = (*toys.PROMPT, *toys.plain(60))
    with pytest.raises(UserError, match="too many paths"):
        collect(
            source({"deep": toys.PathDrafter(text)}),
            toys.PROMPT,
            tmp_path / "x",
            CollectionPlan(8, 8),
        )


@pytest.mark.parametrize("width", [6, 48])
def test_a_recorded_session_answers_as_the_live_one(tmp_path, width):
    """Of another drafter than the one whose home reads the file: states are listed by protocol."""
    text = (*toys.PROMPT, *toys.plain(60))
    live = toys.ConditionalDrafter(text, candidates=5)
    path = tmp_path / "x.safetensors"
    made = collect(source({"treeflash": live}), toys.PROMPT, path, CollectionPlan(12, width))
    limits = made.limits("treeflash")
    assert (limits.candidates, limits.siblings, limits.max_depth) == (5, 9, 7)
    found = Simulation(made, "treeflash", {"candidates": 5, "siblings": 9})
    for position in list(made.positions)[::3]:
        live.reset(99)
        live.extend(made.tokens[:position].tolist(), made.tokens[:position])
        session = live.begin(int(made.tokens[position]), 24)
        draft = best_first(session, made.tokens[: position + 1].tolist(), 24)
        mine = found.draft(position, 24)
        for field in ("tokens", "parents", "ranks", "log_q"):
            np.testing.assert_array_equal(getattr(mine, field), getattr(draft, field))


# ── collecting ───────────────────────────────────────────────────────────────────────────────────


def test_other_work_starts_anew(tmp_path, collected):
    path = tmp_path / "x.safetensors"
    with pytest.raises(ZeroDivisionError):
        collect(
            source(),
            toys.PROMPT,
            path,
            CollectionPlan(NEW, 48),
            report=lambda d, w: d > 0.5 and 1 / 0,
        )
    made = collect(source(), toys.PROMPT, path, CollectionPlan(20, 8))
    assert made.end - made.answer == 20 and made.limits("ddtree").width == 8


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (CollectionPlan(1), "at least 2"),
        (CollectionPlan(0), "at least 1"),
        (CollectionPlan(8, 0), "1 to 1024"),
        (CollectionPlan(8, 2000), "1 to 1024"),
        (CollectionPlan(5000), "context"),
    ],
)
def test_a_plan_out_of_range_is_one_sentence(plan, words, tmp_path):
    with pytest.raises(UserError, match=words):
        collect(source(), toys.PROMPT, tmp_path / "x", plan)


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


def test_the_file_tells_what_it_holds(collected):
    assert collected.methods == ("dflash", "ddtree", "caddtree", "treeflash", "dart")
    assert collected.header.prompt_text == "hello"
    assert collected.positions == range(8, 8 + NEW - 1)
    assert collected.piece(3) == "<b>3" and collected.piece(10**6) == "⟨1000000⟩"
    assert len(collected.arrays["target.ids"]) >= NEW - 1
    choices = collected.arrays["target.ids"][:, 0]
    np.testing.assert_array_equal(choices, collected.tokens[collected.answer + 1 :][: len(choices)])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: simulate(c, "ar"), "plain decoding"),
        (lambda c: simulate(c, "ddtree", 0), "1 to 1024"),
        (lambda c: simulate(c, "ddtree", 8, {"width": 3}), "no option"),
        (lambda c: simulate(c, "treeflash", 8, {"candidates": 0}), "candidates must be 1"),
        (lambda c: simulate(c, "ddtree", 8, new_tokens=999), "1 to 48"),
        (lambda c: Simulation(c, "ddtree").draft(3), "8 to 54, not at 3"),
        (lambda c: simulate(c, "dart", 8), "n-gram store"),
    ],
)
def test_a_question_without_answer_is_one_sentence(call, words, collected):
    with pytest.raises(UserError, match=words) as error:
        call(collected)
    assert "\n" not in str(error.value)


def test_other_drafter_options_need_another_file(collected):
    header = collected.header
    limits = {"dflash": structs.replace(header.drafters["dflash"], options={"temperature": 2.0})}
    other = replace(collected, header=structs.replace(header, drafters=limits))
    with pytest.raises(UserError, match=r"temperature=2.0.*--set temperature=1.0"):
        simulate(other, "ddtree", 8)
    with pytest.raises(UserError, match="nothing of treeflash's drafter, only of dflash"):
        simulate(other, "treeflash", 8)


@pytest.mark.parametrize(
    "change",
    [
        lambda a, h, m: m.update(format="x"),
        lambda a, h, m: m.update(version="2"),
        lambda a, h, m: h.update(end=10**9),
        lambda a, h, m: h.update(answer=-1),
        lambda a, h, m: h.update(answer="8"),
        lambda a, h, m: h.update(stops=["x"]),
        lambda a, h, m: h.update(surplus=1),
        lambda a, h, m: h["drafters"]["dart"].update(depths=10**9),
        lambda a, h, m: h["drafters"]["treeflash"].update(candidates=200),
        lambda a, h, m: h.update(sampling={"temperature": "hot"}),
        lambda a, h, m: h.update(sampling={"weather": 1}),
        lambda a, h, m: a.pop("tokens"),
        lambda a, h, m: a.pop("treeflash.next_log_q"),
        lambda a, h, m: a.update({"pieces": a["dart.ids"]}),
        lambda a, h, m: a.update({"dflash.ids": a["dflash.log_q"]}),
        lambda a, h, m: a["dflash.ids"].fill(h["vocabulary"]),
        lambda a, h, m: a["dflash.log_q"].fill(np.nan),
        lambda a, h, m: a["treeflash.next_ids"].fill(60000),
    ],
)
def test_a_damaged_file_is_one_sentence(change, tmp_path, collected):
    path = tmp_path / "x.safetensors"
    path.write_bytes(collected.path.read_bytes())
    corrupt(path, change)
    with pytest.raises(UserError) as error:
        made = Collection.load(path)
        for method in ("ddtree", "treeflash", "dart+best-first"):
            simulate(made, method, 8)
    assert "\n" not in str(error.value)


def test_the_page_s_speeds_are_of_budgets_that_were_timed_for_this_drafter(collected):
    law = fit(points(lambda rows: 0.05 + 0.001 * rows)[:6])  # up to 17 rows
    cost, simulation = replace(KEPT, verify=law), Simulation(collected, "ddtree")
    runs = simulation.curve((4, 16, 64))
    found = speeds(simulation, runs, cost)
    assert [each["budget"] for each in found["points"]] == [4, 16]
    seconds = 0.013 + law.seconds(5)
    wanted = (runs[0].new_tokens - 1) / runs[0].rounds / seconds
    assert found["points"][0]["speed"] == pytest.approx(wanted)
    assert found["plain"] == pytest.approx(1 / law.seconds(1))
    assert speeds(Simulation(collected, "dart+best-first"), runs, cost) is None


def without_siblings(arrays, header, metadata):
    header["drafters"]["treeflash"].update(siblings=0)
    for name in ("next_ids", "next_log_q", "next_marginal"):
        arrays[f"treeflash.{name}"] = arrays[f"treeflash.{name}"][..., :0]


@pytest.mark.parametrize(
    "change", [lambda a, h, m: h.update(vocabulary=2**31 - 1), without_siblings]
)
def test_sizes_that_would_break_a_search_are_refused_before_one(change, tmp_path, collected):
    """No array is made of a length that only the header claims, nor searched where it is empty."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(collected.path.read_bytes())
    corrupt(path, change)
    with pytest.raises(UserError, match="header cannot be read"):
        Collection.load(path)


# ── without the model, and from the command line ─────────────────────────────────────────────────


def command(*words):
    from app.cli import main

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*map(str, words)])
    return code, out.getvalue(), err.getvalue()


def test_the_command_tells_the_same_numbers(collected):
    path = collected.path
    code, out, _ = command("whatif", path, "--methods", "ddtree", "--budget", 4, 16, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [line["budget"] for line in lines] == [4, 16]
    for line in lines:
        found = simulate(collected, "ddtree", line["budget"])
        assert tuple(line["acceptance_lengths"]) == found.lengths and line["exact"] is True
    code, out, err = command(
        "whatif", path, "--methods", "ddtree", "treeflash", "--set", "candidates=4", "--budget", 8
    )
    assert code == 0 and "treeflash" in out and "exact for this text" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--methods", "ddtree", "--budget", "0"), "1 to 1024"),
        (("--methods", "ddtree", "--set", "beam=3"), "no option 'beam'"),
        (
            ("--methods", "ddtree", "treeflash", "--set", "foo=1"),
            "none of these methods has an option 'foo'",
        ),
        (("--set", "foo=1"), "none of these methods has an option 'foo'"),
        (("--methods", "dflash+opt-tree", "--set", "gain=nan"), "the option gain"),
        (("--methods", "dflash+opt-tree", "--set", "gain=-1"), "the option gain"),
        (("--methods", "dflash+opt-tree", "--set", "gain=inf"), "the option gain"),
        (("--methods", "nosuch"), "unknown method"),
        (("--methods", "ar"), "plain decoding"),
        (("--methods", "ddtree", "--max-new-tokens", "0"), "--max-new-tokens must be at least 1"),
    ],
)
def test_a_bad_question_on_the_command_line_is_one_sentence(words, says, collected):
    code, _, err = command("whatif", collected.path, *words)
    assert code == 2 and says in err and err.count("\n") == 1


@pytest.mark.parametrize("content", [b"notes", None])
def test_collecting_replaces_nothing_but_its_like(content, tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    if content is None:
        save_file({"weight": np.zeros(2)}, path)
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    monkeypatch.setattr("app.commands.common.load_engine", lambda *_, **_m: pytest.fail("late"))
    code, _, err = command("collect", "--out", path, "--prompt", "hi")
    assert code == 2 and "exists and is not a collected text" in err and err.count("\n") == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--prompt", "other"), "another prompt"),
        (("--seed", "3"), "another sampling"),
        (("--max-new-tokens", "49"), "another number of new tokens, 48"),
        (("--max-new-tokens", "47"), "another number of new tokens, 48"),
        (("--methods", "dflash", "dart"), "another set of drafters"),
        (("--width", "47"), "another number of tokens per depth, 48"),
        (("--no-marginals",), "another choice of --no-marginals"),
        (("--set", "siblings=15"), "another siblings, 14"),
        ((), "loaded"),
    ],
)
def test_a_finished_collection_is_only_replaced_by_the_same(words, says, collected, monkeypatch):
    def load(*_, **more):
        raise UserError("loaded")

    monkeypatch.setattr("app.commands.common.load_engine", load)
    before = collected.path.read_bytes()
    settings = ("--max-new-tokens", 48, "--width", 48, "--set", "candidates=12", "--set")
    methods = () if "--methods" in words else ("--methods", *drafters())
    asked = (*settings, "siblings=14", *methods, *words)
    prompt = () if "--prompt" in words else ("--prompt", "hello")
    code, _, err = command("collect", "--out", collected.path, *prompt, *asked)
    assert code == 2 and says in err and err.count("\n") == 1
    assert collected.path.read_bytes() == before


def test_a_note_names_the_rows_it_is_about(tmp_path):
    made = collect(source(), toys.PROMPT, tmp_path / "x.safetensors", CollectionPlan(NEW, 4))
    words = ("--methods", "ddtree", "dflash+opt-tree", "--set", "gain=0.1", "--budget", 2, 40)
    code, _, err = command("whatif", made.path, *words)
    assert code == 0
    for line in err.splitlines():
        if "not exact" in line:
            assert line.startswith(("ddtree, budget ", "dflash+opt-tree, budget "))
    assert "not exact" in err and " 1 rounds" not in err


def test_a_missing_file_is_one_sentence(tmp_path):
    for name in ("whatif", "cost"):
        code, _, err = command(name, tmp_path / "gone", "--methods", "ddtree")
        assert code == 2 and "there is no file" in err and err.count("\n") == 1
