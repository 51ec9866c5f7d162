"""The data of the Denoise view: the steps, the ranking, the graph, and why each draft ended."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.export.graphs import dot
from app.studio.engine import LiveEngine, ModelChoice
from app.studio.examples import Examples
from app.studio.requested import OWN_AHEAD, denoising_of
from app.view.comparison import differences
from app.view.denoise import (
    CountedGraph,
    draft_view,
    graph_of,
    graph_view,
    is_denoising,
    last_known,
    outline_dot,
    outline_view,
)
from app.view.drawing import outline_drawing
from app.view.layout import layered
from app.view.rounds import header_view, round_line, tree_view
from app.view.shapes import Group, Paper, Words
from app.view.tree import SIGNS
from core.diffusion.draft_graph import DraftGraph, make_graph
from core.diffusion.nfe import count_nfe, denoised_tokens
from core.diffusion.pace import Pace
from core.diffusion.request import DenoiseRequest
from core.errors import UserError
from core.rounds.blocks import MASKED
from core.rounds.round import ACCEPTED, REJECTED, UNREACHED, Round
from core.traces.reader import read_trace
from core.traces.writer import write_trace
from tests.helpers import fakes
from tests.helpers.denoise_fakes import (
    GRAPH,
    make_header,
    plain_rounds,
    spiffy_rounds,
    traces,
    walk,
)
from tests.helpers.pages import plain_json

PLAIN = plain_rounds(block=16, blocks=3)
SPIFFY = spiffy_rounds(PLAIN)


def view(record: Round, before: Round | None = None) -> dict:
    """All that the page draws of a call. ``before``: the round before it."""
    return round_line(record) | tree_view(record, before=before)


def views(rounds: tuple[Round, ...]) -> list[dict]:
    return [view(record, before) for record, before in zip(rounds, (None, *rounds), strict=False)]


def drafts(rounds: tuple[Round, ...]):
    """(record, row, view of the row) of every draft."""
    for at, record in enumerate(rounds):
        same = at and rounds[at - 1].block.index == record.block.index
        left = last_known(rounds[at - 1]) if same else None
        for row in range(1, len(record.draft)):
            yield record, row, draft_view(record, row, left)


# ── steps ────────────────────────────────────────────────────────────────────────────────────────


def test_both_runs_tell_the_same_steps():
    told = [
        [step for view in views(rounds) for step in view["steps"]] for rounds in (PLAIN, SPIFFY)
    ]
    assert [s["picks"] for s in told[0]] == [s["picks"] for s in told[1]]
    assert [s["ranking"] for s in told[0]] == [s["ranking"] for s in told[1]]
    steps = list(walk(SPIFFY))
    for view, step in zip(told[1], steps, strict=True):
        assert view["count"] == step.count == len(view["picks"])
        assert [row[0] for row in view["ranking"]] == step.ranking.positions.tolist()


@pytest.mark.parametrize("rounds", [PLAIN, SPIFFY])
def test_the_tally_ends_at_what_the_run_saved(rounds: tuple[Round, ...]):
    whole = count_nfe(rounds, frozenset())
    calls, plain, less, speedup = views(rounds)[-1]["steps"][-1]["tally"]
    assert (calls, plain) == (whole.calls, whole.plain)
    assert less == plain - calls and speedup == pytest.approx(whole.speedup, abs=1e-4)


def test_a_block_given_in_part_is_told_once():
    record = PLAIN[0]
    state = record.block.state.copy()
    ranking = record.block.steps[0].ranking
    state[ranking.positions[-1]] = 0
    step = replace(record.block.steps[0], ranking=_without_last(ranking))
    started = replace(record, block=replace(record.block, state=state, steps=(step,)))
    known = view(started)["known"]
    assert known == [[int(ranking.positions[-1]), "The", "The"]]
    assert "known" not in view(started, started)


def _without_last(ranking):
    return type(ranking)(ranking.positions[:-1], ranking.ids[:-1], ranking.p[:-1])


# ── the graph ────────────────────────────────────────────────────────────────────────────────────


def test_the_first_call_of_a_block_draws_no_graph():
    firsts = [next(calls)[0] for _, calls in groupby(enumerate(SPIFFY), lambda c: c[1].block.index)]
    told = views(SPIFFY)
    assert all(told[at]["drafted"] == 0 for at in firsts)
    assert all(len(view["nodes"]) == len(view["lines"]) == view["drafted"] + 1 for view in told)
    assert all(view["drafted"] == 0 for view in views(PLAIN))


def test_a_graph_is_drawn_with_every_pathway():
    at = max(range(len(SPIFFY)), key=lambda at: SPIFFY[at].accepted)
    record, left = SPIFFY[at], last_known(SPIFFY[at - 1])
    view = graph_view(record, left)
    assert view["sources"] == [list(parents) for parents in record.draft.sources]
    assert any(len(parents) > 1 for parents in view["sources"])
    assert view["path"] == list(record.verdict.path)
    letters = {ACCEPTED: "a", REJECTED: "r", UNREACHED: "u"}
    assert view["status"] == "".join(letters[s] for s in record.status)
    assert len({view["y"][row] for row in view["path"]} | {view["ghost"]["y"]}) == 1
    for row, lines in enumerate(view["lines"][1:], 1):
        assert [line[0] for line in lines] == [e.position for e in record.draft.edits[row]]
        product = math.prod(line[2] for line in lines)
        assert product == pytest.approx(math.exp(record.draft.scores[row]), rel=1e-2)


def test_what_became_of_each_draft():
    words = {ACCEPTED: "accepted: ", UNREACHED: "unreached: "}
    seen = set()
    for record, row, view in drafts(SPIFFY):
        status, after = record.status[row], record.block.after()
        seen.add(view["why"].split(":")[0])
        assert view["why"].startswith(words.get(status, ("rejected: ", "outranked: ")))
        assert [p[0] for p in view["parents"]] == list(record.draft.sources[row])
        for edit, told in zip(record.draft.edits[row], view["edits"], strict=True):
            now = after[edit.position]
            fate = "masked" if now == MASKED else "same" if now == edit.token else "other"
            assert told["fate"] == fate and told["rank"] == [edit.position_rank, edit.token_rank]
            assert told["p"] is not None
            if fate == "other":
                assert told["wrote"]
        if status == ACCEPTED:  # an accepted draft's edits are what the target wrote
            assert {edit["fate"] for edit in view["edits"]} == {"same"}
    assert seen == {"accepted", "rejected", "outranked", "unreached"}


def test_p_is_left_out_where_the_ranking_is_not_known():
    at = next(at for at, r in enumerate(SPIFFY) if r.draft.nodes)
    left = last_known(SPIFFY[at - 1])
    for ranking in (None, replace(left, ids=left.ids + 1)):  # the second is of other tokens
        assert all(e["p"] is None for e in draft_view(SPIFFY[at], 1, ranking)["edits"])


formulas = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3)), min_size=1, max_size=5).map(
    lambda pairs: tuple(sorted({i: (i, j) for i, j in pairs}.values()))
)


@given(st.lists(formulas, min_size=1, max_size=6), st.sampled_from([1, None]), st.integers(0, 99))
def test_levels_are_columns_and_the_path_is_straight(found, tokens, seed):
    pace = Pace(tokens) if tokens else Pace(threshold=0.5)
    closed = {f[:n] for f in found for n in range(1, len(f) + 1)}
    graph: DraftGraph = make_graph(list(closed), pace)
    draft = graph.outline()
    rng, path = random.Random(seed), [0]
    while below := [c for c in draft.children[path[-1]] if rng.random() < 0.8]:
        path.append(rng.choice(below))
    placed = layered(draft, path, ghost=True)
    assert {placed.y[row] for row in path} == {placed.ghost}
    columns: dict[int, list[Any]] = {int(draft.depths[path[-1]]) + 1: [placed.ghost]}
    for row in range(len(draft)):
        columns.setdefault(int(draft.depths[row]), []).append(float(placed.y[row]))
    for column in columns.values():
        assert np.all(np.diff(sorted(column)) >= 1 - 1e-9)
    beside = [y for y in columns.get(1, []) if y != placed.ghost]
    assert sum(y < placed.ghost for y in beside) == len(beside) // 2
    assert min(float(placed.y.min()), placed.ghost) == 0
    assert np.all(np.isfinite(placed.y))
    alone = layered(draft)
    assert alone.ghost is None and alone.y.min() == 0


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_s_words():
    view = header_view(make_header(GRAPH))
    assert view["drafts"] and view["title"] == "Spiffy, D = 8" and view["graph"] == "d8-total"
    assert view["facts"][:3] == ["1 token a step", "block 32", "length 64"]
    plain = header_view(make_header(pace=Pace(threshold=0.9)))
    assert not plain["drafts"] and plain["facts"][0] == "every position of p ≥ 0.9 a step"
    for hostile in ({"formulas": [["x"], 3]}, {"formulas": 7}, "d10", [1]):
        header = make_header()
        told = header_view(replace(header, settings={**header.settings, "graph": hostile}))
        assert not told["drafts"] and told["title"] == "Plain denoising"
    assert "title" not in header_view(fakes.make_header())


def test_what_two_runs_do_not_share():
    one, other = make_header(GRAPH), make_header()
    assert differences([one, other]) == []
    assert differences([one, replace(make_header(), seed=3)]) == []  # greedy: the seed says nothing
    assert differences([one, make_header(temperature=1.0, seed=3)]) == [
        "the temperatures differ",
        "the seeds differ",
    ]
    assert differences([one, make_header(pace=Pace(2))]) == ["the tokens per step differ"]


def test_a_trace_opens_as_it_was_live(tmp_path: Path):
    live, _ = traces(block=16)
    write_trace(tmp_path / "t.jsonl.gz", live)
    read = read_trace(tmp_path / "t.jsonl.gz")
    assert is_denoising(read.header.method) and views(read.rounds)[3] == views(live.rounds)[3]
    assert not is_denoising(fakes.make_header().method)


@pytest.mark.parametrize("pace", [Pace(1), Pace(3), Pace(threshold=0.6)])
def test_every_payload_is_plain_json(pace: Pace):
    plain = plain_rounds(pace, block=16, blocks=2, hostile=True)
    for rounds in (plain, spiffy_rounds(plain, GRAPH, pace)):
        for view in views(rounds):
            text = plain_json(view)
            assert "\x1b" not in text and "\u202e" not in text and "A" * 500 not in text


def test_numbers_that_are_none_leave_as_null():
    record = SPIFFY[1]
    step = record.block.steps[0]
    p = np.full_like(step.ranking.p, np.nan)
    bad = replace(step, ranking=replace(step.ranking, p=p))
    broken = replace(record, block=replace(record.block, steps=(bad, *record.block.steps[1:])))
    plain_json(view(broken, SPIFFY[0]))


# ── the calibrated graph and the examples ────────────────────────────────────────────────────────


def test_a_calibrated_graph_counts_what_became_of_its_formulas():
    view = outline_view(CountedGraph.of(GRAPH, SPIFFY))
    plain_json(view)
    assert all(type(key) is str for key in view["labels"])  # the server refuses others
    assert len(view["nodes"]) == len(GRAPH) + 1 and view["sources"][0] == []
    calls = [record for record in SPIFFY if record.draft.nodes]
    best = next(node for node in view["nodes"] if node["name"] == "c₁₁")
    accepted = sum(record.accepted > 0 and record.verdict.path[1] == 1 for record in calls)
    assert best["why"] == (
        "sets position 1 of the ranking to its best token. "
        f"Drafted in {len(calls)} calls of this run, accepted in {accepted}"
    )
    third = next(node for node in view["nodes"] if node["name"] == "c₁₁ c₃₁")
    assert third["why"].startswith(
        "sets position 1 of the ranking to its best token, "
        "position 3 of the ranking to its best token."
    )
    text = outline_dot(GRAPH)
    assert text.count("->") == sum(map(len, view["sources"])) and "c₁₁ c₂₁ c₃₁" in text


def test_a_calibrated_graph_for_a_column_is_read_and_has_every_formula_with_its_counts():
    outline, paper = CountedGraph.of(GRAPH, SPIFFY), Paper(width=234.0)
    drawing = outline_drawing(outline, paper)
    assert paper.is_read(drawing)
    words = [part.text for shape in drawing.shapes if isinstance(shape, Group)
             for part in shape.parts if isinstance(part, Words)]  # fmt: skip
    for name, (accepted, drafted) in zip(outline.names[1:], outline.counts[1:], strict=True):
        sign = SIGNS[ACCEPTED] if accepted else SIGNS[UNREACHED]
        assert f"{sign} {name} {accepted}/{drafted}" in words
    counts = [tuple(line[-1][1].split()[1::2]) for line in outline_view(outline)["lines"] if line]
    assert counts == [tuple(map(str, pair)) for pair in outline.counts[1:]]
    assert {"rate", "the block before a call", "never accepted"} <= set(words)


def test_a_call_s_dot_names_every_edit_and_pathway():
    record = max(SPIFFY, key=lambda r: (r.draft.nodes, r.accepted))
    text = dot(record)
    assert 'label="the block"' in text and "<mask>" not in text
    assert text.count("->") == sum(map(len, record.draft.sources)) + 1  # and where it went on
    for edits in record.draft.edits[1:]:
        assert ", ".join(f"{e.position}: " for e in edits[:1]) in text


def test_a_header_s_graph_comes_back_as_it_was():
    graph = graph_of(make_header(GRAPH).settings)
    assert graph is not None and graph.formulas == GRAPH.formulas and graph.name == GRAPH.name
    assert graph_of(make_header().settings) is None


def test_the_examples_keep_denoising_runs_apart():
    examples = Examples()
    groups = {which: examples.groups(denoising=which) for which in (False, True)}
    usual, denoised = ([r["name"] for group in groups[w] for r in group["runs"]] for w in groups)
    assert denoised == ["code-denoise", "code-spiffy-10", "list-denoise", "list-spiffy-10"]
    assert usual and not set(usual) & set(denoised)
    for group in groups[True]:
        plain, spiffy = (read_trace(examples.path(run["name"])) for run in group["runs"])
        assert is_denoising(plain.header.method) and is_denoising(spiffy.header.method)
        assert differences([plain.header, spiffy.header]) == []
        assert np.array_equal(denoised_tokens(plain.rounds), denoised_tokens(spiffy.rounds))


def test_the_live_engine_starts_both_denoising_runs():
    torch = pytest.importorskip("torch")
    from tests.helpers.diffusion_toys import ToyTarget

    engine = LiveEngine(ModelChoice(device="cpu"))
    engine._denoiser = SimpleNamespace(  # type: ignore[assignment]
        target=ToyTarget(), block=8, ahead=0.7, name="smollm2-135m", tokenizer_hash="x",
        device="cpu", model=SimpleNamespace(dtype=torch.float64), encode_chat=lambda _: [3, 1, 4],
    )  # fmt: skip
    spiffy, plain = (
        engine.start(DenoiseRequest("p", 16, graph=graph)).header for graph in ("3", None)
    )
    assert (spiffy.method, plain.method) == ("spiffy", "denoise")
    assert graph_of(spiffy.settings).name == "k1-d3" and spiffy.settings["block"] == 8
    assert spiffy.settings["ahead"] == 0.7  # the model's own
    said: list[str] = []
    own = engine.start(DenoiseRequest("p", 16, ahead=0.2), lambda _, what: said.append(what)).header
    assert said == ["the model's first call"]
    assert own.settings["ahead"] == 0.2 and differences([own, plain]) == [
        "the orders of unmasking differ"
    ]


def test_the_first_denoising_run_says_that_the_denoiser_is_loaded(monkeypatch):
    pytest.importorskip("torch")
    import core.diffusion.models as models

    def refuse(_name, _device, _report):
        raise UserError("none here")

    monkeypatch.setattr(models, "load_diffusion", refuse)
    said: list[str] = []
    with pytest.raises(UserError, match="none here"):
        LiveEngine(ModelChoice(device="cpu")).start(
            DenoiseRequest("p", 16), lambda _, what: said.append(what)
        )
    assert said == ["loading the denoiser"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 0.0),
        ({"ahead": 0.7}, 0.7),
        ({"ahead": 0.7, "pace": {"tokens": 2}}, 0.7),
        ({"ahead": 0.7, "pace": {"threshold": 0.4}}, 0.4),
        ({"ahead": "<b>", "pace": []}, 0.0),
    ],
)
def test_the_page_knows_how_sure_a_run_must_be_to_leave_the_order(settings, expected):
    header = replace(make_header(), settings=settings)
    assert header_view(header)["ahead"] == expected


def test_the_form_leaves_the_order_to_the_model_unless_it_is_told():
    form = {
        "prompt": "p", "tokens": 1, "graph": 10, "length": 64, "block": 0, "ahead": OWN_AHEAD,
        "temperature": 0, "seed": 0,
    }  # fmt: skip
    assert [(each.graph, each.ahead) for each in denoising_of(form)] == [("10", None), (None, None)]
    assert [each.ahead for each in denoising_of(form | {"ahead": 0})] == [0, 0]
