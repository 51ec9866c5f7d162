"""Which draft length pays: truncation, the optimum, intervals, refusals and what one pastes."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from analysis.charts.chart import as_json
from analysis.charts.figures import PAGE, worth_by_size
from analysis.collected.collection import Collection
from analysis.collected.whatif import Simulation
from analysis.engines.served import read_served
from analysis.experiments import shorter
from analysis.experiments.advise import advise, choices, flags, sentences, sizes_of
from analysis.experiments.cost import Cost, Stage, fit
from analysis.experiments.step_times import StepTimes, of_cost, read_step_times
from analysis.labels import split_by
from analysis.measures.counts import Served, summed
from analysis.numbers import interval
from app import cli
from app.report.advised import MOST_SIZES, advice_sheets
from core import ASSETS
from core.errors import UserError
from core.rounds.draft import Draft
from core.rounds.round import Round, Verdict
from core.stats import ratio_interval, resample_columns
from core.traces.reader import read_trace
from core.traces.schema import Trace
from tests.helpers.collected_toys import collection_in, points, real
from tests.helpers.fakes import make_header
from tests.helpers.sentences import is_one_sentence
from tests.helpers.small_traces import saved

SHIPPED = ASSETS / "collected" / "walk-in-the-rain.safetensors"


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    return collection_in(tmp_path_factory.mktemp("collected"))


def chain(places: int, accepted: int, index: int, position: int) -> Round:
    draft = Draft.chain([40, *range(1, places + 1)])
    target = np.array([*range(1, accepted + 1), *[40] * (places + 1 - accepted)])
    verdict = Verdict(tuple(range(accepted + 1)), target)
    committed = (*range(1, accepted + 1), 40)
    return Round(index, position, draft, verdict, committed)


def trace(lengths, places=5, method="dflash", **header) -> Trace:
    rounds, at = [], 10
    for index, accepted in enumerate(lengths):
        rounds.append(chain(places, accepted, index, at))
        at += accepted + 1
    made = replace(make_header("why?", method), **({"drafter": {"kind": "dflash"}} | header))
    return Trace(made, tuple(rounds), {})


LENGTHS = np.random.default_rng(3).geometric(0.4, 200) - 1
LENGTHS = np.minimum(LENGTHS, 5).tolist()
# seconds of a toy machine that grows slower with batch × tokens
TOY = {(None, b): {n: 0.01 + 0.0004 * b * n for n in range(1, 7)} for b in (1, 4, 16, 64)}


def recorded(lengths=LENGTHS, times=TOY, asked=(), **more):
    return shorter.of_traces({"a": trace(lengths, **more)}, sizes_of(StepTimes(times), asked))


def test_the_best_size_of_every_batch_is_that_of_brute_force():
    table = advise(recorded(), StepTimes(TOY))
    speeds = table["batch"] * table["tau"] / table["seconds"]
    assert table["tokens_per_second"].tolist() == pytest.approx(speeds.tolist())
    found = {c.batch: c for c in choices(table)}
    assert len({c.size for c in found.values()}) > 2  # the toy has several optima
    for (_, batch), row in TOY.items():
        speeds = {0: 1 / row[1]}
        for size in range(1, 6):
            tokens = sum(min(length, size) + 1 for length in LENGTHS)
            speeds[size] = tokens / len(LENGTHS) / row[size + 1]
        best = max(speeds, key=speeds.__getitem__)
        assert found[batch].size == best
        if best:
            assert found[batch].ratio == pytest.approx(speeds[best] / speeds[0])


def mixed(drafted, **header) -> Trace:
    """A run whose rounds drafted as many places as told, and accepted as many as told."""
    rounds, at = [], 10
    for index, (places, accepted) in enumerate(drafted):
        rounds.append(chain(places, accepted, index, at))
        at += accepted + 1
    return replace(trace([], **header), rounds=tuple(rounds))


def shipped(name) -> dict[str, Trace]:
    return {name: read_trace(ASSETS / "traces" / f"chat-{name}.jsonl.gz")}


def test_rounds_that_drafted_nothing_take_a_step_of_plain_decoding():
    """Prompt lookup drafted in 20 of 62 rounds: 42 · 10 ms + 20 · 10.7 ms for 65 tokens."""
    times = StepTimes({(None, 1): {1: 0.010, 2: 0.0107, 11: 0.02}})
    of = shorter.of_traces(shipped("pld"), sizes_of(times, (1, 10)))
    one, ten = advise(of, times).to_dict("records")
    assert one["ratio"] == pytest.approx(65 / (42 * 0.010 + 20 * 0.0107) * 0.010)
    assert ten["seconds"] == pytest.approx((42 * 0.010 + 20 * 0.02) / 62)
    assert one["ratio"] > 1 and one["best"] and one["measured"]


def test_a_draw_takes_the_steps_of_the_rounds_that_it_takes():
    """Every round is as fast as plain decoding here, so every draw is, whatever it takes."""
    times = StepTimes({(None, 1): {1: 0.01, 2: 0.02, 3: 0.03}})
    run = mixed([(0, 0), (1, 1), (2, 2)] * 10)
    runs = {str(n): replace(run, rounds=run.rounds[: 6 + n]) for n in range(6)}
    runs = {n: replace(r, header=replace(r.header, prompt_text=n)) for n, r in runs.items()}
    for some in ({"a": run}, runs):
        (row,) = advise(shorter.of_traces(some, lambda drafts: [2]), times).to_dict("records")
        assert (row["ratio_low"], row["ratio_high"]) == pytest.approx((1, 1))


def test_side_rows_are_verified_too():
    times = StepTimes({(None, 1): {n: 0.001 * n for n in (1, 100)}})
    (run,) = shipped("lookahead").values()
    of = shorter.of_traces({"a": run}, sizes_of(times, (2,)))
    (row,) = advise(of, times).to_dict("records")
    rows = [1 + min(r.draft.nodes, 2) + len(r.draft.side) for r in run.rounds if r.committed]
    assert row["seconds"] == pytest.approx(0.001 * np.mean(rows)) and max(rows) > 3


def test_counts_that_tell_every_round_charge_it_as_it_was():
    pairs = [(0, 0)] * 12 + [(1, 1)] * 5 + [(2, 3)] * 4 + [(0, 3)] * 9
    told = Served(
        "llama.cpp", rounds=30, drafted=44, accepted=13, order=tuple(pairs),
        histogram=tuple(sum(a == n for a, _ in pairs) for n in range(3)),
    )  # fmt: skip
    times = StepTimes({(None, 1): {n: 0.01 + 0.001 * n for n in range(1, 5)}})
    counts = shorter.of_counts(summed([told], "dump"), sizes_of(times, ()))
    rounds = mixed([(drafted, accepted) for accepted, drafted in pairs])
    rounds = shorter.of_traces({"a": rounds}, sizes_of(times, ()))
    one, other = (advise(of, times) for of in (counts, rounds))
    steps = [1 + min(drafted, 3) for _, drafted in pairs]
    assert one["seconds"].iloc[2] == pytest.approx(0.01 + 0.001 * np.mean(steps))
    for column in ("tau", "seconds", "ratio", "ratio_low", "ratio_high"):
        assert one[column].tolist() == pytest.approx(other[column].tolist())
    assert not counts.doubts


@pytest.mark.parametrize(("engine", "first"), [("vLLM", 2), ("LM Studio", 1)])
def test_a_round_that_may_have_had_no_draft_is_charged_as_one_with(engine, first):
    """LM Studio tells no draft from one that was refused at once: even K = 1 is a lower bound."""
    told = Served(engine, rounds=40, drafted=70, accepted=50, places=(30, 15, 5))
    times = StepTimes({(None, 1): {n: 0.01 + 0.001 * n for n in range(1, 5)}})
    of = shorter.of_counts(summed([told], "page"), sizes_of(times, ()))
    assert min(of.doubts) == first


def test_where_draft_lengths_are_not_told_the_speed_is_a_lower_bound():
    told = Served("vLLM", rounds=40, drafted=70, accepted=50, places=(30, 15, 5))
    times = StepTimes({(None, 1): {n: 0.01 + 0.001 * n for n in range(1, 5)}})
    of = shorter.of_counts(summed([told], "page"), sizes_of(times, ()))
    found = advise(of, times)
    assert found["seconds"].tolist() == pytest.approx([0.012, 0.013, 0.014])
    said = list(sentences(choices(found), of, times))
    assert any(s.startswith("K = 2, 3:") and "the speed is at least this" in s for s in said)


@pytest.mark.parametrize(("method", "budget"), [("dflash", 20), ("ddtree", 20), ("dart", 60)])
def test_simulated_rounds_tell_how_much_they_drafted(method, budget):
    simulation = Simulation(Collection.load(SHIPPED), method)
    simulation.run(64)  # a search of a larger budget may serve
    run = simulation.run(budget)
    assert simulation.drafted(run) == [simulation.draft(at, budget).nodes for at in run.starts]


def test_where_nothing_beats_plain_decoding_it_says_so_and_prints_no_flag():
    slow = {(None, 8): {n: 0.01 * n for n in range(1, 7)}}
    of = recorded([0, 1] * 20, slow)
    found = choices(advise(of, StepTimes(slow)))
    assert [c.size for c in found] == [0] and found[0].ratio < 1
    assert flags(found, of) == []
    said = list(sentences(found, of, StepTimes(slow)))
    assert said[0].startswith("No draft beats plain decoding")
    assert not any("largest that was compared" in sentence for sentence in said)
    close = {(None, 8): {1: 0.01, 2: 0.0153}}
    of = recorded([0, 1] * 20, close)
    found = choices(advise(of, StepTimes(close)))
    said = list(sentences(found, of, StepTimes(close)))
    assert found[0].ratio < 1 < found[0].high and 0 < found[0].chosen < 1
    within = interval(found[0].low, found[0].high)
    assert said[0].startswith("No draft is shown to beat plain decoding") and within in said[0]
    doubtful = replace(of, doubts={2: "at least this"})
    said = list(sentences(choices(advise(doubtful, StepTimes(slow))), doubtful, StepTimes(slow)))
    assert said[0].startswith("No draft is shown to beat") and "K = 2: at least this." in said
    faster = StepTimes({(None, 8): {1: 0.01, 2: 0.0147}})
    (found,) = choices(advise(of, faster))
    assert found.size == 1 and found.low < 1 < found.ratio
    assert next(sentences([found], of, faster)).endswith("not shown to beat plain decoding.")


def test_so_few_rounds_advise_nothing():
    few = recorded([5, 5, 5, 5])
    chosen = choices(advise(few, StepTimes(TOY)))
    said = " ".join(sentences(chosen, few, StepTimes(TOY)))
    assert "Only 4 rounds: too few rounds to choose a draft." in said
    assert "Batch" not in said and "the largest" not in said and not flags(chosen, few)
    assert not any(c.size for c in chosen)
    assert flags(choices(advise(more := recorded([5] * 5), StepTimes(TOY))), more)


def test_where_the_largest_draft_is_best_it_says_that_a_larger_one_is_not_known():
    flat = {(None, 1): {1: 0.01, 6: 0.01}}
    of = recorded(times=flat)
    found = choices(advise(of, StepTimes(flat)))
    assert [c.size for c in found] == [5]
    assert any("K = 5 is the largest that was compared" in s for s in
               sentences(found, of, StepTimes(flat)))  # fmt: skip


def test_the_largest_draft_is_that_of_each_batch():
    times = StepTimes({(None, 1): {1: 0.01, 3: 0.01}, (None, 4): {1: 0.01, 3: 0.01, 6: 0.09}})
    of = recorded(times=times.cells)
    found = choices(advise(of, times))
    assert [(c.size, c.largest) for c in found] == [(2, 2), (2, 5)]
    (said,) = [s for s in sentences(found, of, times) if "the largest that was compared" in s]
    assert said.startswith("K = 2 is the largest that was compared at batch 1:")


def test_a_batch_of_which_nothing_follows_is_named():
    times = StepTimes({(None, 1): {1: 0.01, 2: 0.011}, (None, 4): {1: 0.01, 7: 0.011}})
    of = recorded(times=times.cells, asked=(5,))
    found = choices(advise(of, times))
    assert [c.batch for c in found] == [4]
    assert "Batch 1 is timed to 2 tokens: nothing is said of it." in sentences(found, of, times)
    assert not any("Batch 1 " in s for s in sentences(found, of, times, [4]))
    asked = [1, 4, 64]
    assert [c.batch for c in choices(advise(of, times, asked))] == [4]
    said = list(sentences(found, of, times, asked))
    assert "Batch 1 is timed to 2 tokens: nothing is said of it." in said
    assert "Batch 64 is outside of the table, which has 1 to 4: nothing is said of it." in said
    with pytest.raises(UserError, match="batch 1 is timed to 2 tokens"):
        advise(of, times, [1, 64])
    (vllm,) = [f for f in flags(found, of) if f.engine == "vLLM"]
    assert "not from the table: below batch 4 its K" in vllm.note


def test_an_interval_of_one_text_is_said_to_hold_for_it_alone(collected):
    alone = "the interval holds for it alone"
    assert alone in recorded().notes[0] and alone not in recorded([1, 2]).notes[0]
    found = shorter.of_texts([collected], "dflash", {}, lambda drafts: [1])
    assert alone in found.notes[0].lower()


# ── truncation ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("method", "large", "small"), [("ddtree", 16, 5), ("dflash", 7, 1)])
def test_a_draft_cut_short_accepts_what_the_shorter_one_does(method, large, small):
    """At places of a shipped text, against a draft that is built anew with the small budget."""
    simulation = Simulation(Collection.load(SHIPPED), method)
    places = simulation.collection.positions[:120]
    records = [simulation.round(at, large) for at in places]
    anew = [simulation.round(at, small).accepted + 1 for at in places]
    assert shorter._kept(records, [small])[:, 0].tolist() == anew
    assert len(set(anew)) > 1 and max(anew) < max(r.accepted + 1 for r in records)


def test_collected_texts_are_simulated_with_their_own_rounds(collected):
    times = StepTimes({(None, 1): {n: 0.01 + 0.001 * n for n in range(1, 9)}})
    found = shorter.of_texts([collected], "dflash", {}, sizes_of(times, ()))
    assert found.drafts.chain and found.sizes == tuple(range(1, len(found.sizes) + 1))
    for at, size in enumerate(found.sizes):
        run = real("dflash", size, {})
        lengths = [record.accepted + 1 for record in run]
        assert found.tau[at] == pytest.approx(np.mean(lengths), rel=0.1)  # real ends may be cut
        assert found.tau[at] == Simulation(collected, "dflash").run(size).tau
    assert not found.doubts and not found.paired
    assert np.isnan(advise(found, times)["chosen"]).all()


def test_counts_of_an_engine_say_the_same_as_the_rounds(tmp_path):
    histogram = [LENGTHS.count(n) for n in range(6)]
    response = {
        "metrics": {"speculative_decoding": {
            "num_spec_steps": len(LENGTHS), "num_draft_tokens": 5 * len(LENGTHS),
            "num_accepted_draft_tokens": sum(LENGTHS), "num_spec_tokens": 5,
            "acceptance_histogram": histogram,
        }}
    }  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(response), "utf-8")
    counts = read_served(tmp_path / "a.json")
    assert counts.full
    found = shorter.of_counts(counts, sizes_of(StepTimes(TOY), ()))
    rounds = recorded()
    assert found.sizes == rounds.sizes and found.tau == pytest.approx(rounds.tau)
    assert np.quantile(found.draws, [0.025, 0.975], 0) == pytest.approx(
        np.quantile(rounds.draws, [0.025, 0.975], 0), abs=0.02
    )
    assert not found.doubts


def test_a_draft_that_ended_early_counts_as_it_was():
    some = trace([2, 2, 0])
    short, almost = chain(1, 1, 3, 17), chain(4, 1, 4, 19)
    mixed = replace(some, rounds=(*some.rounds, short, almost))
    found = shorter.of_traces({"a": mixed}, lambda drafts: [1, 2])
    assert found.tau.tolist() == [(2 + 2 + 1 + 2 + 2) / 5, (3 + 3 + 1 + 2 + 2) / 5]
    assert any("In 2 rounds less than 5 was drafted" in note for note in found.notes)


# ── intervals ────────────────────────────────────────────────────────────────────────────────────


def test_the_interval_holds_the_true_speed_about_as_often_as_it_says():
    times = StepTimes({(None, 1): {1: 0.010, 4: 0.013}})
    inside, p = 0, 0.6
    truth = (1 + p + p**2 + p**3) * 0.010 / 0.013
    rng = np.random.default_rng(0)
    for _ in range(100):
        lengths = np.minimum(rng.geometric(1 - p, 120) - 1, 3).tolist()
        of = shorter.of_traces({"a": trace(lengths, places=3)}, sizes_of(times, (3,)))
        (row,) = advise(of, times).to_dict("records")
        inside += row["ratio_low"] <= truth <= row["ratio_high"]
    assert 88 <= inside <= 99


def test_units_that_are_alike_are_drawn_as_single_ones_are():
    rng = np.random.default_rng(1)
    sums, counts = rng.integers(1, 6, (60, 2)).astype(float), np.ones((60, 2))
    together = np.quantile(resample_columns(sums, counts), [0.025, 0.975], 0)
    for column in range(2):
        low, high = ratio_interval(sums[:, column], counts[:, column])
        assert together[:, column] == pytest.approx([low, high], abs=0.1)
    often = resample_columns(sums[:1], counts[:1], np.array([9.0]))
    assert (often == sums[0]).all()


def test_several_texts_are_the_units_and_few_give_no_interval():
    runs = {str(n): trace(LENGTHS[n * 20 : n * 20 + 20], prompt_text=f"{n}") for n in range(6)}
    of = shorter.of_traces(runs, lambda drafts: [2])
    assert of.notes[0] == "Over 6 prompts, 120 rounds." and len(of.draws)
    few = shorter.of_traces(dict(list(runs.items())[:3]), lambda drafts: [2])
    assert not len(few.draws) and any("no interval" in note for note in few.notes)
    assert np.isnan(advise(few, StepTimes(TOY))["low"]).all()


# ── step times ───────────────────────────────────────────────────────────────────────────────────


def test_steps_between_measured_ones_are_estimates_and_outside_there_are_none():
    times = StepTimes({(None, 1): {1: 1.0, 3: 2.0}, (None, 5): {1: 2.0, 3: 6.0}})
    for batch, tokens, seconds, measured in [
        (1, 1, 1.0, True), (1, 2, 1.5, False), (5, 3, 6.0, True), (3, 3, 4.0, False),
        (2, 2, (3 * 1.5 + 4.0) / 4, False),
    ]:  # fmt: skip
        step = times.step(None, batch, tokens)
        assert (step.seconds, step.measured) == (pytest.approx(seconds), measured)
    for batch, tokens in product((6, 100), (1, 3)):
        assert times.step(None, batch, tokens) is None
    assert times.step(None, 1, 4) is None
    of = shorter.of_traces({"a": trace(LENGTHS)}, sizes_of(times, ()))
    found = advise(of, times, [1, 3])
    assert found["measured"].tolist() == [False, True, False, False]


def test_a_table_reads_alike_as_csv_and_json(tmp_path):
    lines = [
        {"batch": b, "tokens": n, "ms": 10.0 * n, "draft_ms": 2.0 if n > 1 else 0, "context": 512}
        for b in (1, 2) for n in (1, 2, 4)
    ]  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(lines), "utf-8")
    rows = ["batch,tokens,ms,draft_ms,context"]
    rows += [f"{x['batch']},{x['tokens']},{x['ms']},{x['draft_ms'] or ''},512" for x in lines]
    (tmp_path / "a.csv").write_text("\n".join(rows), "utf-8")
    for name in ("a.jsonl", "lines.json"):  # an object a line
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)), "utf-8")
    names = ("a.json", "a.csv", "a.jsonl", "lines.json")
    one, *others = (read_step_times(tmp_path / name) for name in names)
    assert others == [one] * 3
    assert one.cells[512, 2] == {1: 0.010, 2: 0.022, 4: 0.042}


def test_a_measured_cost_is_a_table_of_batch_1(tmp_path):
    law = fit(points(lambda n: 0.05 + 0.001 * n))
    staged = (Stage(4, 0.01, 0.001, 0.002, 5), Stage(16, 0.01, 0.003, 0.002, 8))
    kept = Cost("toy", "dflash", law, staged)
    (tmp_path / "cost.json").write_text(json.dumps(kept.to_json()), "utf-8")
    times = read_step_times(tmp_path / "cost.json")
    assert times == of_cost(kept) and times.batches(None) == [1]
    row = times.cells[None, 1]
    assert list(row) == [1, 5, 8]  # of 16 places the drafter had 7, in every round
    assert row[5] == pytest.approx(0.013 + law.seconds(5))
    for method in ("ddtree", "pld", "somebody's"):  # drafts that end where they end
        row = of_cost(replace(kept, method=method)).cells[None, 1]
        assert list(row) == [1, 5, 17] and row[17] == pytest.approx(0.015 + law.seconds(8))
    of = recorded(method="ddtree", times=times.cells)
    assert any("acceptance from ddtree's" in s for s in sentences([], of, times))


def test_a_measured_mean_is_not_averaged_again():
    """The drafts of a budget of 10 had 1.6 rows in the mean: its time is charged as it stands."""
    law = fit(points(lambda n: 0.05 + 0.001 * n))
    times = of_cost(Cost("toy", "pld", law, (Stage(10, 0.01, 0.001, 0.002, 1.6),)))
    of = shorter.of_traces(shipped("pld"), sizes_of(times, (10,)))
    (row,) = advise(of, times).to_dict("records")
    assert row["seconds"] == pytest.approx(0.013 + 0.05 + 0.0016) and row["measured"]
    assert any("do not correct them again" in s for s in sentences([], of, times))


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────

TABLES = [
    ("a.json", "{}", "not a table of step times"), ("a.json", "[]", "0 lines"),
    ("a.json", '[{"tokens": 1}]', "ms is missing"), ("a.json", '[{"tokens": 1, "ms": 0}]', "above"),
    ("a.json", '[{"tokens": 1, "ms": 1, "k": 2}]', "no field k"),
    ("a.json", '[{"tokens": 2, "ms": 1}]', "no step of plain decoding"),
    ("a.json", '[{"tokens": 1, "ms": 1}]', "no step with a draft for batch 1"),
    ("a.json", '[{"tokens": 1, "ms": 1}, {"tokens": 1, "ms": 2}]', "twice"),
    ("a.json", '[{"tokens": 1, "ms": 1}, {"tokens": 1, "ms": 2, "context": 4}]', "context"),
    ("a.csv", "tokens,ms\n1,x\n", "ms"), ("a.csv", "tokens,ms\n1,2,3\n", "no field more"),
    ("a.csv", "", "0 lines"), ("a.json", '{"format": "draftscope-cost"}', "not a result of"),
]  # fmt: skip


OTHERS = [
    ("a.jsonl", '{"format": "draftscope-trace"}\n{"round": 0}\n', "a trace, which `trace show`"),
    ("a.json", '{"format": "draftscope-trace"}\n{"round": 0}\n', "a trace, which `trace show`"),
    ("a.json", "%PDF-1.7\n%\xe2\n", "a PDF"), ("a.csv", "round,text\n1,x\n", "a table of another"),
    ("a.jsonl", '{"prompt": "Why?"}\n', "prompts, which `run --prompts` reads"),
    ("a.jsonl", '{"turns": ["Why?"]}\n', "prompts, which `run --prompts` reads"),
    ("a.json", '[{"role": "user", "content": "x"}]', "prompts, which `run --prompts` reads"),
    ("a.json", '[{"conversations": []}]', "prompts, which `run --prompts` reads"),
    ("a.csv", "problem,answer\n1,2\n", "prompts, which `run --prompts` reads"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "seems"), OTHERS)
def test_another_file_is_told_with_what_it_seems_to_be(name, text, seems, tmp_path, capsys):
    (tmp_path / name).write_text(text, "latin-1")
    run = str(saved(tmp_path / "run.jsonl", trace(LENGTHS)))
    assert cli.main(["advise", run, "--cost", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert is_one_sentence(said) and f"it seems to be {seems}" in said
    assert "not a table of step times (a .csv or JSON with tokens, ms and batch of each" in said


@pytest.mark.parametrize(("name", "text", "says"), TABLES)
def test_what_is_no_table_is_one_sentence(name, text, says, tmp_path, capsys):
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(UserError, match=says):
        read_step_times(tmp_path / name)
    run = str(saved(tmp_path / "run.jsonl", trace(LENGTHS)))
    assert cli.main(["advise", run, "--cost", str(tmp_path / name)]) == 2
    assert is_one_sentence(capsys.readouterr().err)


def test_beyond_what_was_recorded_nothing_is_said():
    with pytest.raises(UserError, match="of 6 would accept was not recorded, and is not extrap"):
        recorded(asked=(2, 6))
    short = {(None, 1): {1: 0.01, 3: 0.012}}
    assert recorded(times=short).sizes == (1, 2)
    with pytest.raises(UserError, match="step times ends at 3"):
        recorded(times=short, asked=(4,))
    endless = {(None, 1): {1: 0.01, 1 << 30: 20.0}}
    assert recorded(times=endless).sizes == (1, 2, 3, 4, 5)
    with pytest.raises(UserError, match="batch 9 is outside of the table, which has 1 to 1"):
        advise(recorded(times=short), StepTimes(short), [9])


def test_rounds_of_which_no_shorter_ones_follow_are_refused(tmp_path):
    ran, evil = tmp_path / "ran", tmp_path / "evil.py"
    evil.write_text(f"open({str(ran)!r}, 'w').close()")
    tree = Draft.chain([0, 1, 2, 3])
    tree = replace(tree, parents=np.array([-1, 0, 0, 1], np.int32))
    verdict = Verdict((0, 1), np.array([1, 9, 9, 9]))
    run = trace([1])
    bushy = replace(run, rounds=(replace(run.rounds[0], draft=tree, verdict=verdict),))
    of = {"a": replace(bushy, header=replace(run.header, method="ddtree"))}
    assert shorter.of_traces(of, lambda drafts: [1, 2]).tau.tolist() == [2, 2]
    for method in ("eagle3", "somebody's own", str(evil), "vLLM eagle3"):
        of = {"a": replace(bushy, header=replace(run.header, method=method))}
        with pytest.raises(UserError, match=r"a smaller tree is not known to be .* told, 3"):
            shorter.of_traces(of, lambda drafts: [1])
        whole = shorter.of_traces(of, sizes_of(StepTimes({(None, 1): {1: 1.0, 9: 2.0}}), ()))
        assert whole.sizes == (3,) and whole.tau.tolist() == [2]
        assert shorter.ALIKE not in whole.notes and "recorded size alone" in "".join(whole.notes)
    assert not ran.exists()
    block = replace(run.header, method="sps", settings={"options": {"block": True}})
    with pytest.raises(UserError, match="judges a chain as a whole"):
        shorter.of_traces({"a": replace(run, header=block)}, lambda drafts: [1])
    for rule, said in (("fly", "drafted after it"), ("synthetic", "was simulated")):
        ruled = replace(run.header, method="vLLM eagle3", settings={"rule": rule})
        with pytest.raises(UserError, match=said):
            shorter.of_traces({"a": replace(run, header=ruled)}, lambda drafts: [1])
    two = {"a": run, "b": trace([1], method="pld")}
    with pytest.raises(UserError, match="several settings"):
        shorter.of_traces(two, lambda drafts: [1])
    own = [{"max_running": n} for n in range(6)]
    for told, splits in ((own, True), ([{"request": each} for each in own], False)):
        of = {str(n): replace(run, header=replace(run.header, settings=each))
              for n, each in enumerate(told)}  # fmt: skip
        assert bool(split_by({n: each.header for n, each in of.items()})) == splits
        if splits:
            with pytest.raises(
                UserError, match=r"…\): give those of one; max_running has 6 values"
            ):
                shorter.of_traces(of, lambda drafts: [1])
        else:
            assert shorter.of_traces(of, lambda drafts: [1]).rounds
    with pytest.raises(UserError, match="drafted anything"):
        shorter.of_traces({"a": trace([0], places=0)}, lambda drafts: [1])


def test_requests_of_one_server_count_together_however_they_sampled():
    rng = np.random.default_rng(0)
    asked = [{}, *({"temperature": float(n % 3 == 0)} for n in range(1, 10))]
    of = {
        str(n): trace(rng.integers(0, 6, 20), method="vLLM eagle3",
                      prompt_ids=(n,), settings={"sampling": each})
        for n, each in enumerate(asked)
    }  # fmt: skip
    found = shorter.of_traces(of, sizes_of(StepTimes(TOY), ()))
    lengths = [r.accepted for each in of.values() for r in each.rounds]
    assert found.tau[-1] == pytest.approx(1 + np.mean(lengths)) and found.method == "vLLM eagle3"
    (said,) = (note for note in found.notes if "as they were served" in note)
    assert "6 texts at T = 0, 3 texts at T = 1, 1 text at a T that is not told" in said
    assert shorter.labels_of(of) == ["vLLM eagle3"]  # so the page takes them, too


# ── what one pastes, and the command ─────────────────────────────────────────────────────────────


def test_the_flags_can_be_pasted():
    of = recorded(method="eagle3", drafter={"kind": "eagle3"})
    chosen = choices(advise(of, StepTimes(TOY)))
    given = flags(chosen, of)
    word, config = shlex.split(next(f.text for f in given if f.engine == "vLLM"))
    assert word == "--speculative-config"
    config = json.loads(config)
    assert config["method"] == "eagle3"
    assert config["num_speculative_tokens"] == max(c.size for c in chosen)
    schedule = config["num_speculative_tokens_per_batch_size"]
    note = next(f.note for f in given if f.engine == "vLLM")
    assert note.endswith(
        "table: between two batches the K of the larger holds, above batch 64 its K holds"
    )
    assert schedule[0][0] == 1 and schedule[-1][1] == 64
    assert all(a[1] + 1 == b[0] for a, b in pairwise(schedule))
    for c in chosen:
        assert [k for first, last, k in schedule if first <= c.batch <= last] == [c.size]
    for size in {c.size for c in chosen if c.size}:
        assert any(
            f"--speculative-num-steps {size} --speculative-eagle-topk 1 "
            f"--speculative-num-draft-tokens {size + 1}" == f.text
            for f in given
        )
        assert any(f"--spec-type draft-eagle3 --spec-draft-n-max {size} " in f.text for f in given)


def test_sglang_counts_the_root_of_a_tree():
    tree = replace(Draft.chain([40, 1, 2, 3]), parents=np.array([-1, 0, 0, 1], np.int32))
    run = trace([1] * 6, method="eagle3", drafter={"kind": "eagle3"})
    run = replace(run, rounds=tuple(replace(record, draft=tree) for record in run.rounds))
    times = StepTimes({(None, 1): {1: 0.01, 4: 0.01}})
    of = shorter.of_traces({"a": run}, sizes_of(times, ()))
    (flag,) = flags(choices(advise(of, times)), of)
    assert (flag.engine, flag.text) == ("SGLang", "--speculative-num-draft-tokens 4")


def test_a_gap_between_two_batches_is_told():
    rows = dict.fromkeys((1, 2, 4), TOY[None, 4])
    times = StepTimes({(None, batch): row for batch, row in rows.items()})
    of = recorded(method="eagle3", drafter={"kind": "eagle3"}, times=times.cells)
    (vllm,) = [f for f in flags(choices(advise(of, times)), of) if f.engine == "vLLM"]
    assert "between two batches the K of the larger holds, above batch 4" in vllm.note


def test_the_tables_have_each_context_s_own_numbers_and_the_best_of_many_sizes():
    rows = {size: 0.01 if size <= 3 else 0.09 for size in range(1, 42)}
    slower = {size: 2 * seconds for size, seconds in rows.items()}
    times = StepTimes({(100, 1): rows, (900, 1): slower})
    of = recorded(times=times.cells, places=40)
    found = advise(of, times)
    every, best = advice_sheets(found, choices(found), of)
    assert "K=2" in every.heads and len(every.heads) <= 2 + 1 + MOST_SIZES
    step, context = best.heads.index("step"), best.heads.index("context")
    assert [(row[context], row[step]) for row in best.rows] == [
        ("100", "10.0 ms"), ("900", "20.0 ms"),
    ]  # fmt: skip


NGRAM = {"method": "ngram", "prompt_lookup_max": 2, "prompt_lookup_min": 1}
MOD = "--spec-type ngram-mod --spec-ngram-mod-n-match 24 --spec-ngram-mod-n-min 5"
TOLD = {  # a drafter, its options, vLLM's config, other engines and their options
    "pld": ({"longest": 2, "copied": 5, "whole": True}, NGRAM, {}),
    "ngram-mod": ({}, None, {"llama.cpp": f"{MOD} --spec-ngram-mod-n-max 5"}),
    "suffix": ({}, {"method": "suffix"}, {}),
    "dflash2": ({}, None, {}),
    "sps": ({}, {"method": "draft_model"}, {
        "SGLang": "--speculative-num-steps 5 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 6",
        "llama.cpp": "--spec-type draft-simple --spec-draft-n-max 5 --spec-draft-n-min 0",
        "TensorRT-LLM": "speculative_config: {decoding_type: Draft_Target, max_draft_len: 5}",
    }),
}  # fmt: skip


@pytest.mark.parametrize("kind", TOLD)
def test_an_engine_is_told_what_the_drafter_s_home_declares(kind):
    options, config, others = TOLD[kind]
    flat = {(None, 1): {1: 0.01, 6: 0.01}}
    of = recorded(
        times=flat, method=kind, drafter={"kind": kind},
        settings={"options": options, "rule": "target token"},
    )  # fmt: skip
    given = {f.engine: f for f in flags(choices(advise(of, StepTimes(flat))), of)}
    vllm = given.pop("vLLM", None)
    if config is None:
        assert vllm is None
    else:
        assert json.loads(shlex.split(vllm.text)[1]) == config | {"num_speculative_tokens": 5}
        assert ("model" in vllm.note) == (kind == "sps")
    assert {engine: f.text for engine, f in given.items()} == others


def test_a_recorder_s_drafter_keeps_its_engine_s_name_and_an_unknown_one_is_left_out():
    creator = {"name": shorter.RECORDER}

    def served(engine, kind):
        return recorded(
            method=f"{engine} {kind}", drafter={"kind": kind}, creator=creator
        ).serving  # fmt: skip

    assert served("vLLM", "medusa9").vllm == {"method": "medusa9"}
    assert served("vLLM", "ngram").vllm == {"method": "ngram"}
    assert "prompt_lookup_max" in served("vLLM", "ngram").adds
    assert served("vLLM", "medusa").adds.endswith("vLLM 0.32 is the last that serves it")
    assert set(served("SGLang", "eagle3").flags) == {"SGLang", "llama.cpp", "TensorRT-LLM"}
    assert served("SGLang", "ngram").vllm is None and not served("SGLang", "ngram").flags
    of = recorded(drafter={"kind": "medusa9"})
    (vllm,) = [f for f in flags(choices(advise(of, StepTimes(TOY))), of) if f.engine == "vLLM"]
    assert "method" not in json.loads(shlex.split(vllm.text)[1])
    assert "method" in vllm.note


def test_the_figure_shows_every_line_and_marks_estimates():
    rows = {1: 0.010, 3: 0.011, 6: 0.013}
    times = StepTimes({(c, b): rows for c in (100, 900) for b in (1, 8)})
    of = shorter.of_traces({"a": trace(LENGTHS)}, sizes_of(times, ()))
    drawn = as_json(worth_by_size(advise(of, times), "draft length K", PAGE))
    assert drawn["layout"]["meta"]["choices"] == ["context 100", "context 900"]
    told = [(at, said) for t in drawn["data"] if isinstance(t.get("hovertext"), list)
            for at, said in zip(t["x"], t["hovertext"], strict=True) if said]  # fmt: skip
    assert len(told) == 4 * 5
    assert {x for x, said in told if "between measured" not in said} == {2, 5}


def test_the_command_shows_writes_and_tells_json(tmp_path, capsys):
    run = str(saved(tmp_path / "run.jsonl", trace(LENGTHS)))
    rows = [{"batch": b, "tokens": n, "ms": 1e3 * s} for (_, b), r in TOY.items()
            for n, s in r.items()]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps(rows), "utf-8")
    line = ["advise", run, "--cost", str(tmp_path / "t.json")]
    assert cli.main([*line, "--out", str(tmp_path / "o")]) == 0
    out = capsys.readouterr().out
    assert "× plain decoding" in out and "--speculative-config" in out and "Batch 64" in out
    assert "plotly" in (tmp_path / "o" / "advice.html").read_text("utf-8").lower()
    assert (tmp_path / "o" / "advice.csv").read_text("utf-8").count("\n") == 1 + 4 * 5
    assert cli.main([*line, "--json", "--batch", "1", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [c["batch"] for c in found["best"]] == [1, 2]
    assert {r["measured"] for r in found["table"] if r["batch"] == 2} == {False}
    assert found["flags"] and found["sentences"]


def test_of_too_few_rounds_the_command_shows_what_was_seen_and_recommends_nothing(tmp_path, capsys):
    run = str(saved(tmp_path / "run.jsonl", trace([5, 5, 5, 5])))
    (tmp_path / "t.csv").write_text("tokens,ms\n1,10\n6,12\n", "utf-8")
    line = ["advise", run, "--cost", str(tmp_path / "t.csv")]
    assert cli.main(line) == 0
    out = capsys.readouterr().out
    assert "of only 4 rounds" in out and "*" not in out and "drawn best" not in out
    assert cli.main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["best"] and not found["flags"]
    assert {(row["rounds"], row["best"]) for row in found["table"]} == {(4, False)}


def test_rounds_of_several_texts_count_together():
    text = Collection.load(SHIPPED)
    some = shorter.of_texts([text, text], "dflash", {}, lambda drafts: [1, 3])
    runs = [Simulation(text, "dflash").run(size) for size in (1, 3)]
    assert some.rounds == tuple(2 * run.rounds for run in runs) and not some.few
    assert some.tau.tolist() == [run.tau for run in runs]


def test_a_long_schedule_is_printed_whole(tmp_path, capsys):
    """Its K changes with every batch: the command is longer than a line of text may be."""
    run = str(saved(tmp_path / "run.jsonl", trace(LENGTHS)))
    rows = [{"batch": b, "tokens": n, "ms": 10 if n <= 1 + b % 2 else 90}
            for b in range(1, 61) for n in range(1, 7)]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps(rows), "utf-8")
    assert cli.main(["advise", run, "--cost", str(tmp_path / "t.json")]) == 0
    out = capsys.readouterr().out.splitlines()
    (line,) = [line for line in out if line.startswith("--speculative-config")]
    assert len(line) > 400
    schedule = json.loads(shlex.split(line)[1])["num_speculative_tokens_per_batch_size"]
    assert schedule == [[b, b, b % 2] for b in range(1, 61)]


@pytest.mark.parametrize(
    "words", [["x.safetensors", "run.jsonl"], ["run.jsonl", "--methods", "ddtree"], ["nothing"]]
)
def test_files_that_do_not_belong_together_are_one_sentence(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "run.jsonl", trace(LENGTHS))
    (tmp_path / "t.csv").write_text("tokens,ms\n1,10\n2,11\n", "utf-8")
    assert cli.main(["advise", *words, "--cost", "t.csv"]) == 2
    assert is_one_sentence(capsys.readouterr().err)
