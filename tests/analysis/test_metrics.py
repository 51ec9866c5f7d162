"""Tables of traces: against plain code on the raw JSON lines, and on synthetic processes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.charts import figures
from analysis.labels import asked_key, set_apart, temperature, text_key
from analysis.measures import acceptance, causes, comparison, metrics, reliability
from analysis.measures.findings import findings
from analysis.measures.parts import RecordedPart
from analysis.measures.tables import Tables
from analysis.measures.tokens import CLASSES, token_class
from analysis.measures.units import mean_interval
from app.report.sections import PAIRED
from core import ASSETS
from core.rounds.causes import Cause
from core.rounds.draft import NOT_ASKED, Candidates, Draft, Proposal
from core.rounds.round import Round, TargetProbs, Times, Verdict
from core.stats import (
    FEW_SEEN,
    FEW_UNITS,
    bootstrap,
    middle_interval,
    resample,
    tau_interval,
    wilson,
)
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.traces.writer import TraceWriter, write_trace
from tests import GOLDEN, ROOT
from tests.helpers import fakes, raw_numbers, toys
from tests.helpers.small_traces import METHODS, NOTHING, fake_trace, plain_round
from tests.helpers.timing import amount

OLD = GOLDEN / "trace-v1.jsonl"


@pytest.fixture(scope="module")
def logged(tmp_path_factory) -> dict[str, Path]:
    """A trace file of every method."""
    folder = tmp_path_factory.mktemp("traces")
    for n, method in enumerate(METHODS):
        trace = fake_trace(method, 100 * n, 40)
        writer = TraceWriter(folder / f"{method}.jsonl", trace.header)
        for record in trace.rounds:
            writer.write(record)
        writer.finish(wall_seconds=2.0)
    return {method: folder / f"{method}.jsonl" for method in METHODS}


def read(path: Path) -> tuple[Tables, list[dict]]:
    return Tables.of({path.name: read_trace(path)}), raw_numbers.raw_rounds(path)


# ── against the raw lines ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", METHODS)
def test_depths_equal_a_plain_count(logged, method):
    tables, raw = read(logged[method])
    found = acceptance.per_depth(tables).set_index("depth")
    expected = raw_numbers.by_depth(raw)
    assert list(found.index) == sorted(expected)
    for depth, counts in expected.items():
        row, seen = found.loc[depth], counts["observed"]
        for name in ("rounds", "observed", "tested", "accepted"):
            assert row[name] == counts[name], (depth, name)
        assert row["acceptance"] == pytest.approx(counts["accepted"] / seen)
        assert row["marginal"] == pytest.approx(counts["accepted"] / counts["rounds"])
        assert row["nodes"] == pytest.approx(counts["nodes"] / counts["rounds"])
        assert row["tvd"] == pytest.approx(counts["tvd"] / seen)
        for k in range(1, 17):
            assert row[f"coverage_{k}"] == pytest.approx(counts[f"coverage_{k}"] / seen)
        assert np.isnan(row["tvd_low"]) == (seen < FEW_SEEN), "two may lie close by chance"


@pytest.mark.parametrize("method", METHODS)
def test_tau_lengths_and_times_equal_a_plain_count(logged, method):
    tables, raw = read(logged[method])
    (row,) = acceptance.tau(tables).itertuples()
    assert row.tau == pytest.approx(raw_numbers.tau(raw)) and row.low <= row.tau <= row.high
    assert row.rounds == len(raw) and row.tokens == 1 + sum(len(r["committed"]) for r in raw)
    assert row.tokens_per_second == pytest.approx(row.tokens / 2.0)
    lengths = acceptance.acceptance_histogram(tables)
    counts = dict(zip(lengths["length"], lengths["rounds"], strict=True))
    assert counts == Counter(len(r["path"]) for r in raw)
    assert lengths["share"].sum() == pytest.approx(1)
    spent = acceptance.stages(tables).set_index("stage")["seconds"]
    for stage in ("draft", "build", "verify", "commit"):
        assert spent[stage] == pytest.approx(sum(r["times"][stage] for r in raw))


@pytest.mark.parametrize("method", METHODS)
def test_the_causes_are_those_the_rounds_say_and_examples_point_at_them(method):
    records = {r.number: r for r in fake_trace(method, rounds=40).rounds}
    tables = Tables.of(fake_trace(method, rounds=40))
    nodes = tables.nodes
    for number, row, cause in zip(nodes["round"], nodes["row"], nodes["cause"], strict=True):
        assert records[number].why(row) == cause
    assert list(tables.rounds["stop"]) == [r.stop_reason for r in records.values()]
    assert len(nodes) == sum(r.draft.nodes for r in records.values())
    for unit, over in product(("nodes", "stops"), ("depth", "token_class")):
        table = causes.cause_shares(tables, unit, over)
        assert table["count"].sum() == len(nodes if unit == "nodes" else records)
        assert np.allclose(table.groupby(over, observed=True)["share"].sum(), 1)
        for row in table.itertuples():
            record = records[row.example_round]
            if unit == "nodes":
                assert record.why(row.example_row) == row.cause
            else:
                assert (record.stop_reason, record.verdict.path[-1]) == (row.cause, row.example_row)


def test_rows_that_are_never_accepted_are_no_nodes_and_refused_ones_say_so():
    lists = Candidates(np.array([[1, 2], [3, 4]]), np.full((2, 2), -1, np.float32))
    draft = toys.draft_of([-1, 0, 0, 1, 2], [0, 1, 2, 3, 4])
    draft = replace(draft, proposal=Proposal.factorised(lists, draft.depths), side={2, 4})
    verdict = Verdict((0, 1), np.array([1, 9, -1, -1, -1]), bonus_token=9)
    tables = Tables.of(Trace(fakes.make_header(), (Round(0, 5, draft, verdict, (1, 9)),), {}))
    assert tables.nodes["row"].tolist() == [1, 3] and tables.rounds["nodes"].tolist() == [2]
    assert tables.nodes["cause"].tolist() == ["accepted", Cause.REFUSED]
    assert tables.rounds["stop"].tolist() == [Cause.REFUSED]
    assert figures.FIGURES["causes-by-depth"](tables, figures.AUTO).data


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("event", reliability.EVENTS)
def test_reliability_equals_plain_bins(logged, method, event):
    tables, raw = read(logged[method])
    pairs = []
    for r in raw:
        for row in range(1, len(r["nodes"]["token"])):
            if event == "path":
                pairs.append((raw_numbers.path_q(r["nodes"], row), row in r["path"]))
            elif r["nodes"]["parents"][row] in r["path"]:
                pairs.append((math.exp(r["nodes"]["log_q"][row]), row in r["path"]))
    bins = raw_numbers.reliability(pairs, [b / 10 for b in range(11)])
    curve = reliability.reliability(tables, event, "width").set_index("bin")
    assert list(curve.index) == sorted(bins)
    for number, (nodes, mean, accepted) in bins.items():
        row = curve.loc[number]
        assert (row["nodes"], row["accepted"]) == (nodes, accepted)
        assert row["mean_q"] == pytest.approx(mean)
    errors = reliability.calibration_error(tables).set_index("event").loc[event]
    assert errors["ece_width"] == pytest.approx(raw_numbers.ece(bins))
    assert errors["nodes"] == len(pairs)
    assert errors["brier"] == pytest.approx(sum((q - a) ** 2 for q, a in pairs) / len(pairs))
    mass = reliability.reliability(tables, event)
    assert mass["nodes"].sum() == len(pairs) and mass["accepted"].sum() == sum(a for _, a in pairs)


@pytest.mark.parametrize("method", METHODS)
def test_surrogate_equals_plain_sums(logged, method):
    tables, raw = read(logged[method])
    sums = [
        sum(raw_numbers.path_q(r["nodes"], row) for row in range(1, len(r["nodes"]["token"])))
        for r in raw
    ]
    lengths = [len(r["path"]) - 1 for r in raw]
    assert np.allclose(tables.rounds["surrogate"], sums)
    (row,) = reliability.surrogate(tables).itertuples()
    assert row.bias == pytest.approx(np.mean(sums) - np.mean(lengths))
    assert row.correlation == pytest.approx(np.corrcoef(sums, lengths)[0, 1])
    assert row.bias_low <= row.bias <= row.bias_high
    curve = reliability.surrogate_curve(tables)
    assert curve["rounds"].sum() == len(raw) and (curve["rounds"] >= 4).all()
    assert (curve["rounds"] * curve["accepted"]).sum() == pytest.approx(sum(lengths))


@pytest.mark.parametrize("method", METHODS)
def test_mismatches_and_siblings_equal_a_plain_walk(logged, method):
    tables, raw = read(logged[method])
    expected = Counter(m for m in map(raw_numbers.first_mismatch, raw) if m is not None)
    found = causes.first_mismatches(tables)
    counts: Counter = Counter()
    for row in found.itertuples():
        rank = None if pd.isna(row.rank) else int(row.rank)
        counts[rank, True] += row.drafted
        counts[rank, False] += row.count - row.drafted
    assert +counts == expected
    contexts = raw_numbers.next_to_siblings(raw)
    after = causes.after_sibling(tables).set_index("context")
    assert set(after.index) == set(contexts)
    for context, hits in contexts.items():
        assert after.loc[context, "observed"] == len(hits)
        assert after.loc[context, "accepted"] == sum(hits)
    deep = causes.after_sibling(tables, per_depth=True)
    assert deep["observed"].sum() == after["observed"].sum()


def test_the_golden_trace_which_a_limit_ended():
    trace = read_trace(OLD)
    tables, raw = read(OLD)
    (run,) = tables.runs.itertuples()
    assert run.tokens == 9 and run.ended == "token limit"
    assert run.cut == sum(len(r["path"]) - len(r["committed"]) for r in raw)
    assert run.committed + 1 == run.tokens
    (row,) = acceptance.tau(tables).itertuples()
    assert row.tau == pytest.approx(raw_numbers.tau(raw))
    assert row.committed_per_round == pytest.approx(8 / len(trace.rounds))


# ── properties ───────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(1, 40), st.sampled_from(METHODS), st.integers(1, 5),
    st.booleans(),
)  # fmt: skip
def test_what_must_hold_of_any_rounds(seed, budget, method, count, probed):
    trace = fake_trace(method, seed, count, budget)
    if not probed:
        bare = (replace(r, probe=None, target_probs=None) for r in trace.rounds)
        trace = Trace(trace.header, tuple(bare), None)
    tables = Tables.of(trace)
    positions, nodes, rounds = tables.positions, tables.nodes, tables.rounds
    seen = positions.groupby("round").size()
    for record in trace.rounds:  # observed = accepted + 1, at most L
        assert seen[record.number] == min(record.accepted + 1, record.max_depth)
    assert positions["accepted"].sum() == rounds["accepted"].sum() == nodes["accepted"].sum()
    assert not (positions["accepted"] & ~positions["tested"]).any()
    assert ((nodes["cause"] == "unreached") == ~nodes["reached"]).all()
    assert (nodes["path_q"] <= nodes["q"] * (1 + 1e-9)).all()
    assert positions["tvd"].notna().all() == probed
    depth = acceptance.per_depth(tables)
    assert (depth["observed"].to_numpy()[1:] == depth["accepted"].to_numpy()[:-1]).all()
    for low, high, share in (("acceptance_low", "acceptance_high", "acceptance"),
                             ("top1_low", "top1_high", "top1")):  # fmt: skip
        known = depth[depth[share].notna()]
        assert (known[low] <= known[share]).all() and (known[share] <= known[high]).all()


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(METHODS), st.integers(0, 99)), min_size=2, max_size=4))
def test_tables_of_many_traces_are_those_of_each(parts):
    traces = {f"t{n}": fake_trace(m, s, 3, 12) for n, (m, s) in enumerate(parts)}
    together = Tables.of(traces)
    by_run = acceptance.per_depth(together, by="run")
    for name, trace in traces.items():
        alone = Tables.of({name: trace})
        for kind in ("positions", "nodes", "rounds"):
            frame = getattr(together, kind)
            mine = frame[frame["run"] == name].drop(columns=["run", "method"])
            theirs = getattr(alone, kind).drop(columns=["run", "method"])
            pd.testing.assert_frame_equal(
                mine.reset_index(drop=True), theirs, check_index_type=False
            )
        own = by_run[by_run["run"] == name].drop(columns="run").reset_index(drop=True)
        expected = acceptance.per_depth(alone, by="run").drop(columns="run")
        pd.testing.assert_frame_equal(own, expected, check_index_type=False)


@settings(max_examples=amount(2, 8), deadline=None)
@given(st.lists(st.integers(1, 3), min_size=2, max_size=3), st.integers(0, 9), st.booleans())
def test_tables_of_rounds_in_parts_are_those_of_the_whole(sizes, seed, probed):
    """However the runs are put into parts, one that drafts nothing and one without rounds too."""
    kinds = [METHODS[at % len(METHODS)] for at in range(sum(sizes))]
    traces = [fake_trace(m, seed + n, 40, prompt=str(n // 2)) for n, m in enumerate(kinds)]
    traces[0] = Trace(
        fakes.make_header(method="ar"), tuple(plain_round(i, i) for i in range(4)), {}
    )
    traces[1] = Trace(fakes.make_header(), (), None)
    if not probed:
        traces = [Trace(t.header, tuple(replace(r, probe=None) for r in t.rounds), t.footer)
                  for t in traces]  # fmt: skip
    whole, first, parts = Tables.of(traces), 0, []
    for size in sizes:
        parts.append(RecordedPart(traces[first : first + size]))
        first += size
    found = metrics.Report(Tables(whole.names, parts))
    for name, expected in metrics.Report(whole).items():
        pd.testing.assert_frame_equal(found[name], expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", list(metrics.TABLES))
def test_every_column_is_explained(name, logged):
    tables = Tables.of({m: read_trace(path) for m, path in logged.items()})
    table = metrics.TABLES[name](tables)
    about = table.attrs["about"]["columns"]
    assert list(about) == list(table.columns) and all(about.values()), about
    may_be_empty = name.startswith(("findings", "checkpoints", "same-begins"))
    assert (len(table) or may_be_empty) and table.columns.is_unique


# ── nothing to measure ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", list(NOTHING))
def test_nothing_to_measure_gives_empty_tables(case):
    tables = Tables.of(NOTHING[case])
    for name, table in metrics.Report(tables).items():
        assert table.attrs["about"]["table"], name
        if name not in ("runs", "tau", "rounds", "stages", "acceptance-histogram"):
            assert table.empty, name
    for draw in figures.FIGURES.values():
        assert draw(tables, figures.Style("dark")).to_json()
    if case == "denoising":
        assert tables.runs["left_out"].tolist() == [1] and tables.rounds.empty
        assert tables.runs["tokens"].tolist() == [0]
    if case == "plain decoding":
        assert acceptance.tau(tables)["tau"].tolist() == [1.0]


def test_unknown_q_and_probes_of_odd_shapes_are_left_out_never_wrong():
    trace = fake_trace(rounds=6)
    broken = []
    for record in trace.rounds:
        log_q = record.draft.log_q.copy()
        log_q[1] = np.nan if record.index % 2 else -np.inf
        probe = replace(record.probe, coverage=record.probe.coverage[:, :3], tvd=np.empty(0))
        draft = replace(record.draft, log_q=log_q)
        broken.append(replace(record, draft=draft, probe=probe, texts={}))
    tables = Tables.of(Trace(trace.header, tuple(broken), None))
    below = sum(int(np.isin(1, r.draft.path(row))) for r in broken for row in range(len(r.draft)))
    assert tables.nodes["path_q"].isna().sum() == below > 0
    errors = reliability.calibration_error(tables).set_index("event")
    assert errors.loc["path", "unknown"] == below
    assert tables.positions["tvd"].isna().all()
    assert tables.positions["coverage_3"].notna().all()
    assert tables.positions["coverage_4"].isna().all()
    assert set(tables.nodes["token_class"]) == {"unknown"}
    dict(metrics.Report(tables))


def test_what_was_not_timed_took_an_unknown_time():
    trace = fake_trace(rounds=4)
    untimed = [replace(record, times=Times()) for record in trace.rounds]
    tables = Tables.of({"a": Trace(trace.header, tuple(untimed), None)})
    assert tables.rounds["verify"].isna().all() and tables.runs["stage_seconds"].isna().all()
    stages = acceptance.stages(tables)
    assert len(stages) == 4 and stages[["seconds", "ms_per_round", "share"]].isna().all(axis=None)
    half = Tables.of(Trace(trace.header, (*untimed[:2], *trace.rounds[2:]), None))
    total = sum(record.times.total for record in trace.rounds[2:])
    assert half.runs["stage_seconds"].tolist() == [pytest.approx(total)]


def test_a_cut_end_counts_in_tau_and_can_be_left_out():
    trace = fake_trace(rounds=30)
    at = next(i for i, r in enumerate(trace.rounds) if r.accepted >= 2)
    last = replace(trace.rounds[at], committed=trace.rounds[at].committed[:1])
    tables = Tables.of(Trace(trace.header, (*trace.rounds[:at], last), {}))
    assert tables.runs["cut"].tolist() == [last.accepted]
    assert (~tables.positions["in_text"]).sum() == last.accepted
    (row,) = acceptance.tau(tables).itertuples()
    assert (row.tau - row.committed_per_round) * row.rounds == pytest.approx(last.accepted)


# ── statistics ───────────────────────────────────────────────────────────────────────────────────


def test_wilson_against_known_values():
    # Newcombe 1998, table I, method 3: 81/263, 15/148, 0/20, 1/29
    for k, n, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605),
                            (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)):  # fmt: skip
        found = wilson(k, n)
        assert found[0] == pytest.approx(low, abs=6e-5)
        assert found[1] == pytest.approx(high, abs=6e-5)
    assert np.isnan(wilson(0, 0)).all()
    assert wilson(7, 7)[1] == 1


def test_a_single_text_is_drawn_anew_by_its_rounds_and_several_as_wholes():
    texts = [[1, 4, 2, 7, 1, 3], [2, 2], [5], [1, 1, 6], [3, 8]]
    assert tau_interval(texts[:1]) == (3.0, *bootstrap([[length] for length in texts[0]]))
    assert tau_interval(texts) == (46 / 14, *bootstrap(texts))
    assert tau_interval([])[0] is None


def test_bootstrap_is_the_same_every_time_and_pairs():
    lengths, counts = [3, 5, 8, 1], [2, 2, 3, 1]
    assert (resample(lengths, counts) == resample(lengths, counts)).all()
    assert not (resample(lengths, counts, seed=1) == resample(lengths, counts)).all()
    assert bootstrap([[2, 2]] * 5) == (2.0, 2.0)
    assert np.isnan(middle_interval(resample([], []))).all()
    # in pieces or at once: the same draws
    many = np.arange(1, 3000)
    picks = np.random.default_rng(0).integers(0, len(many), (500, len(many)))
    ones = np.ones(len(many))
    assert np.allclose(resample(many, ones, draws=500), many[picks].mean(1))
    # a unit's count is drawn with its sum, and an interval holds the middle 95 %
    assert np.allclose(resample([2, 4, 20], [1, 2, 10]), 2)
    assert middle_interval(np.linspace(0, 1, 1001)) == pytest.approx((0.025, 0.975))
    # the same units are drawn for both of a pair
    assert np.ptp(resample([5, 7, 9], [1, 1, 1]) - resample([4, 6, 8], [1, 1, 1])) < 1e-12


def flat_trace(chances: np.ndarray, hits: np.ndarray) -> Trace:
    """A round per entry: one drafted node with this q, accepted or not."""
    lists = Candidates(np.array([[1, 3]]), np.array([[-1, -2]], np.float32))
    rounds = []
    for index, (chance, hit) in enumerate(zip(chances, hits, strict=True)):
        draft = Draft.chain([0, 1], [np.log(chance)])
        draft = replace(draft, proposal=Proposal.factorised(lists, draft.depths))
        verdict = Verdict((0, 1) if hit else (0,), np.array([1, 2] if hit else [2, 2]))
        rounds.append(Round(index, index, draft, verdict, (1, 2) if hit else (2,)))
    return Trace(fakes.make_header(sampling={"temperature": 0.0}), tuple(rounds), {})


def test_a_calibrated_process_has_no_calibration_error_and_a_wrong_one_its_own():
    rng = np.random.default_rng(5)
    chances = rng.uniform(0.05, 0.75, 6000)
    right = Tables.of(flat_trace(chances, rng.random(6000) < chances))
    errors = reliability.calibration_error(right)
    assert (errors[["ece_mass", "ece_width"]] < 0.025).all(axis=None)
    assert abs(reliability.surrogate(right)["bias"][0]) < 0.02
    for event in reliability.EVENTS:
        curve = reliability.reliability(right, event)
        inside = (curve["share_low"] <= curve["mean_q"]) & (curve["mean_q"] <= curve["share_high"])
        assert inside.mean() >= 0.8
    # every q is 0.2 too high: so are bias and both errors
    wrong = Tables.of(flat_trace(chances + 0.2, rng.random(6000) < chances))
    for row in reliability.calibration_error(wrong).itertuples():
        assert row.bias == pytest.approx(0.2, abs=0.02)
        assert row.ece_mass == pytest.approx(0.2, abs=0.02)
        assert row.ece_width == pytest.approx(0.2, abs=0.02)
    # exactly: q = 1/2 everywhere, a quarter accepted
    exact = Tables.of(flat_trace(np.full(80, 0.5), np.arange(80) % 4 == 0))
    for row in reliability.calibration_error(exact).itertuples():
        assert (row.ece_mass, row.ece_width, row.share) == pytest.approx((0.25, 0.25, 0.25))
    # equal q stay together, and alone where they fill a bin or there are few of them
    tied = Tables.of(flat_trace(np.array([0.2, 0.5, 0.5, 0.5, 0.5, 0.8]), np.arange(6) > 2))
    assert reliability.reliability(tied, bins=3)["nodes"].tolist() == [1, 4, 1]
    mixed = np.array([0.1, 0.2, *[0.5] * 7, 0.8, 0.9])
    spread = reliability.reliability(Tables.of(flat_trace(mixed, np.arange(11) > 2)), bins=3)
    assert spread["nodes"].tolist() == [2, 7, 2]


@pytest.mark.parametrize("low", [1001, 999, 150, 1850])
def test_errors_of_two_values_of_q_do_not_cancel(low):
    """Of nodes at q = 0.2 and at q = 0.8 half are accepted: each is off by 0.3."""
    chances = np.repeat([0.2, 0.8], [low, 2000 - low])
    tables = Tables.of(flat_trace(chances, np.arange(2000) % 2 == 0))
    for row in reliability.calibration_error(tables).itertuples():
        assert row.ece_mass == pytest.approx(0.3, abs=0.01) == row.ece_width
    assert reliability.reliability(tables)["mean_q"].tolist() == pytest.approx([0.2, 0.8])
    assert reliability.surrogate_curve(tables)["rounds"].tolist() == [low, 2000 - low]


def test_the_score_is_never_taken_for_a_probability():
    trace = fake_trace("dart")
    silent = tuple(
        replace(r, draft=replace(r.draft, scores=np.full(len(r.draft), 7, np.float32)))
        for r in trace.rounds
    )
    one, other = Tables.of(trace), Tables.of(Trace(trace.header, silent, trace.footer))
    pd.testing.assert_frame_equal(one.nodes, other.nodes)
    pd.testing.assert_frame_equal(one.rounds, other.rounds)


# ── methods against each other ───────────────────────────────────────────────────────────────────


def test_pairs_are_of_one_text_and_the_difference_is_plain():
    traces = {}
    for n, prompt in enumerate("abcdef"):
        traces[f"x{n}"] = fake_trace("ddtree", n, 8 + n, prompt=prompt)
        if prompt != "f":
            traces[f"y{n}"] = fake_trace("treeflash", 50 + n, 9, prompt=prompt)
    tables = Tables.of(traces)
    assert set(tables.labels.values()) == {"ddtree B=24", "treeflash B=24"}
    (row,) = comparison.compare(tables).itertuples()
    x = [traces[f"x{n}"].rounds for n in range(5)]
    y = [traces[f"y{n}"].rounds for n in range(5)]

    def tau(runs):
        lengths = [r.accepted + 1 for run in runs for r in run]
        return sum(lengths) / len(lengths)

    assert row.texts == 5 and row.difference == pytest.approx(tau(x) - tau(y))
    assert row.low <= row.difference <= row.high
    sums = pd.DataFrame({"sum": [6.0], "count": [2]})
    assert comparison.paired(sums, sums)["better"] == 0
    pd.testing.assert_frame_equal(comparison.compare(tables), comparison.compare(tables))
    assert acceptance.tau(tables)["over"].tolist() == ["prompts", "prompts"]
    assert row.same == 0  # fakes write other texts


def seeded(method: str, prompt: int, seed: int, text: int) -> Trace:
    """A sampled run whose rounds follow from ``text`` alone."""
    rule = {"temperature": 1.0, "seed": seed, "top_k": 0, "top_p": 1.0}
    trace = fake_trace(method, text, 6, prompt=str(prompt), sampling=rule)
    return replace(trace, header=replace(trace.header, seed=seed))


def test_seeds_of_one_prompt_are_no_prompts_of_their_own():
    """Three seeds that write alike tell no more than one does."""
    runs = [[seeded("ddtree", p, s, 10 * p) for p in range(6)] for s in range(3)]
    thrice = acceptance.tau(Tables.of([run for some in runs for run in some])).iloc[0]
    once = acceptance.tau(Tables.of(runs[0])).iloc[0]
    assert (thrice["prompts"], thrice["texts"], thrice["over"]) == (6, 18, "prompts")
    assert (thrice["low"], thrice["high"]) == pytest.approx((once["low"], once["high"]))
    single = acceptance.tau(Tables.of([seeded("ddtree", 0, s, s) for s in range(5)])).iloc[0]
    assert (single["prompts"], single["texts"], single["over"]) == (1, 5, "rounds")
    others = [seeded("dart", p, s, 10 * p + 1) for p in range(6) for s in range(3)]
    both = Tables.of([*others, *(run for some in runs for run in some)])
    first = Tables.of([*(run for run in others if run.header.seed == 0), *runs[0]])
    (many,), (few,) = (comparison.compare(tables).to_dict("records") for tables in (both, first))
    assert (many["prompts"], many["texts"], few["texts"]) == (6, 18, 6)
    assert many["difference"] == pytest.approx(few["difference"])
    assert many["high"] - many["low"] == pytest.approx(few["high"] - few["low"], rel=0.1)


def test_the_interval_of_seeded_runs_holds_as_often_as_it_says():
    """12 prompts × 3 seeds; prompts differ much, seeds little."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(150):
        prompts = rng.normal(2.5, 0.5, 12)
        run = pd.Categorical(np.repeat(np.arange(36), 4))
        frame = pd.DataFrame({"run": run, "nodes": 0, "accepted": 0})
        values = np.repeat(np.repeat(prompts, 3), 4) + rng.normal(0, 0.3, 144)
        tables: Any = SimpleNamespace(prompt_numbers=np.repeat(np.arange(12), 3))
        found = mean_interval(tables, frame, values)
        held += found.low <= 2.5 <= found.high
    assert held >= 0.85 * 150  # by text it is some 70 %


@pytest.mark.parametrize(("accepted", "low"), [(0, 1), (3, 3.91)])
def test_rounds_that_are_all_alike_still_have_an_interval(accepted, low):
    """39 rounds show nothing of what 9 % of rounds do, 1 − 0.025^(1/39)."""
    rows = {"run": pd.Categorical(["a"] * 39), "nodes": 5, "accepted": accepted}
    frame, tables = pd.DataFrame(rows), cast(Any, SimpleNamespace(prompt_numbers=np.zeros(1, int)))
    found = mean_interval(tables, frame, np.full(39, accepted + 1.0))
    assert (found.low, found.high) == pytest.approx((low, accepted + 1.09), abs=0.002)
    promised = mean_interval(tables, frame, np.full(39, 0.03), each=-1.0)
    assert promised.low == pytest.approx(0.03 - 0.09, abs=0.002)
    plain = mean_interval(tables, frame.assign(nodes=0), np.full(39, 1.0))
    assert (plain.low, plain.high) == (1, 1)


def test_methods_that_write_other_texts_are_told():
    """Speculative sampling at temperature 1: the same request, another text."""
    same = [seeded("ddtree", p, 0, p) for p in range(5)]
    others = [seeded("dart", p, 0, p if p < 3 else 90 + p) for p in range(5)]
    alike = [replace(run, rounds=same[p].rounds) if p < 3 else run for p, run in enumerate(others)]
    tables = Tables.of([*same, *alike])
    (row,) = (found := comparison.compare(tables)).to_dict("records")
    assert (row["texts"], row["same"], row["beginnings"]) == (5, 3, 0)
    assert any("wrote the same text in 3 of 5" in said for said in PAIRED.below(tables, found))


@pytest.mark.parametrize("texts", [1, 2, FEW_UNITS - 1, FEW_UNITS])
def test_few_texts_have_no_interval(texts):
    pairs = [(method, n) for n in range(texts) for method in ("ddtree", "dart")]
    tables = Tables.of([fake_trace(method, n, 8, prompt=str(n)) for method, n in pairs])
    (row,) = comparison.compare(tables).itertuples()
    assert row.texts == texts and math.isnan(row.low) == (texts < FEW_UNITS)
    # of one text, rounds are drawn
    assert acceptance.tau(tables)["low"].isna().tolist() == [1 < texts < FEW_UNITS] * 2


def test_what_shares_no_text_is_said_and_one_text_has_no_interval():
    whole, other = fake_trace(prompt="a"), fake_trace("dart", prompt="a")
    (row,) = comparison.compare(Tables.of([whole, other])).itertuples()
    assert row.texts == 1 and math.isnan(row.low)
    interrupted = Tables.of([whole, replace(other, footer=None)])
    assert comparison.compare(interrupted).empty
    assert interrupted.runs["ended"].tolist()[1] == "interrupted"
    tables = Tables.of([whole, fake_trace("dart", prompt="b")])
    assert comparison.compare(tables).empty
    assert comparison.incomparable(tables) == [("ddtree B=24", "dart B=24")]


def test_the_text_is_decided_by_all_that_decides_it_the_seed_only_above_temperature_zero():
    def key(seed, temperature):
        rule = {"temperature": temperature, "seed": seed, "top_k": 0, "top_p": 1.0}
        return text_key(replace(fakes.make_header(sampling=rule), seed=seed))

    assert key(1, 0) == key(2, 0)
    greedy = {"temperature": 0.0}
    header, untold = fakes.make_header(sampling=greedy), fakes.make_header()
    assert key(1, 0) == text_key(header)
    others = [
        untold, fakes.make_header(max_new_tokens=31, sampling=greedy),
        replace(header, dtype="bfloat16"),
        replace(header, device="cuda:0"), replace(header, prompt_ids=(1, 2)),
    ]  # fmt: skip
    keys = {text_key(h) for h in (header, *others)} | {key(1, 0.7), key(2, 0.7)}
    warm = fakes.make_header(sampling={"temperature": 0.7, "seed": 1})
    assert text_key(warm) == key(1, 0.7)  # its own seed, not the header's
    assert asked_key(header) != asked_key(others[1])  # another limit
    assert len(keys) == 8 and text_key(replace(header, device="cuda:1")) in keys
    assert text_key(fakes.make_header(method="dart", budget=8)) == text_key(untold)


def test_a_temperature_that_is_not_told_is_not_called_greedy():
    headers = {"a": fakes.make_header(), "b": fakes.make_header(sampling={"temperature": 0.0})}
    assert set_apart(headers) == {"a": "T=not told", "b": "T=0"}
    assert asked_key(headers["a"]) != asked_key(headers["b"])
    assert temperature(fakes.make_header(sampling={"temperature": None})) is None


def test_a_label_names_no_budget_that_decides_nothing():
    methods = ("dflash", "ar", "mine.py")
    runs = [fake_trace(method, budget=b) for method in methods for b in (4, 16, 64)]
    told = {"depths": 7, "chain": True}
    deep = [replace(t, header=replace(t.header, drafter=told)) for t in runs]
    assert list(Tables.of(deep).labels.values()) == [
        *("dflash B=4", "dflash", "dflash"),
        *3 * ["plain"],
        *("mine B=4", "mine", "mine"),
    ]
    untold = ["mine B=4", "mine B=16", "mine B=64"]
    assert list(Tables.of(runs).labels.values()) == [*3 * ["dflash"], *3 * ["plain"], *untold]


def test_labels_tell_apart_what_differs_and_nothing_else_and_are_short():
    long = "/data/" + 80 * "x"
    traces = [
        fake_trace(budget=8), fake_trace(budget=16), fake_trace(budget=16, prompt="b"),
        fake_trace("dart", options={"beam": 20, "ngram_weight": 0.5}),
        fake_trace("dart", options={"beam": 20, "ngram_weight": 0.0}),
        *(fake_trace("treeflash", options={"ngram": long + end}) for end in "abb"),
    ]  # fmt: skip
    labels = list(Tables.of(traces).labels.values())
    assert labels[:5] == [
        "ddtree B=8", "ddtree B=16", "ddtree B=16", "dart B=24 ngram_weight=0.5",
        "dart B=24 ngram_weight=0.0",
    ]  # fmt: skip
    one, two, three = labels[5:]
    assert one != two == three and max(map(len, labels)) <= 60


def test_settings_of_other_engines_are_two_labels_and_what_names_a_request_is_none():
    runs = [
        fake_trace(threshold=k, request=str(n), max_tokens=n, strict=False)
        for n, k in enumerate((2, 2, 0.5))
    ]
    assert list(Tables.of(runs).labels.values()) == [
        f"ddtree B=24 threshold={k}" for k in (2, 2, 0.5)
    ]


def test_words_of_other_engines_are_labels_unless_they_name_the_single_runs():
    def labels(*settings):
        return list(Tables.of([fake_trace(**each) for each in settings]).labels.values())

    rules = ({"rule": rule, "request": str(n)} for n, rule in enumerate(("block", "standard")))
    assert labels(*rules) == ["ddtree B=24 rule=block", "ddtree B=24 rule=standard"]
    several = [{"rule": "block" if n else "standard", "uuid": f"u{n}"} for n in range(5)]
    assert labels(*several) == ["ddtree B=24 rule=standard", *["ddtree B=24 rule=block"] * 4]
    ids = [{"uuid": f"u{max(n, 1)}"} for n in range(6)]  # two runs share one
    assert labels(*ids) == [f"ddtree B=24 uuid=u{max(n, 1)}" for n in range(6)]
    drafters = [{"name": "one"}, {"name": "two"}, {"name": "two", "kind": "mtp"}]
    made = [replace(fake_trace(), header=fakes.make_header()) for _ in drafters]
    made = [
        replace(each, header=replace(each.header, drafter=drafter))
        for each, drafter in zip(made, drafters, strict=True)
    ]
    assert list(Tables.of(made).labels.values()) == [
        "ddtree B=64 drafter=one", "ddtree B=64 drafter=two",
        "ddtree B=64 kind=mtp drafter=two",
    ]  # fmt: skip


def test_a_round_that_drafted_nothing_had_no_best_token():
    """Prompt lookup drafted in 20 of 62 rounds; in the others its best token was not taken, also
    where it was not asked for one."""
    trace = read_trace(ASSETS / "traces" / "chat-pld.jsonl.gz")
    drafts = [each.draft for each in trace.rounds]
    none = [replace(d.proposal, after=np.full(len(d), NOT_ASKED, np.int32)) for d in drafts]
    drafts = [replace(d, proposal=each) for d, each in zip(drafts, none, strict=True)]
    unasked = [replace(r, draft=d) for r, d in zip(trace.rounds, drafts, strict=True)]
    without = [at for at, draft in enumerate(drafts) if not draft.nodes]
    for rounds in (trace.rounds, tuple(unasked)):
        positions = Tables.of(replace(trace, rounds=rounds)).positions
        best = positions.query("depth == 1")["best"].iloc[without]
        assert len(best) == 42 and (best == 0).all()


def test_ranks_that_are_not_known_count_nowhere(tmp_path):
    """-1 in the file: no mismatch, no sibling, no best token is concluded from it."""
    trace = fake_trace("ddtree", rounds=40)
    bare = [
        replace(r, draft=replace(
            r.draft, ranks=np.where(r.draft.ranks > 0, -1, 0).astype(np.int32), proposal=None
        ), probe=None)
        for r in trace.rounds
    ]  # fmt: skip
    write_trace(path := tmp_path / "a.jsonl", replace(trace, rounds=tuple(bare)))
    found = read_trace(path)
    assert not found.mark and found.rounds[0].node(1).rank is None
    tables = Tables.of(found)
    assert (tables.nodes["rank"] == -1).all() and tables.positions["rank"].isna().all()
    reached = tables.positions[tables.positions["accepted"]]
    assert len(reached) and reached["best"].isna().all()
    assert causes.first_mismatches(tables).empty
    # some rounds that do not tell it: the share of the others is no fair one
    some = Tables.of(replace(trace, rounds=(*bare[:20], *trace.rounds[20:])))
    first = acceptance.per_depth(some).iloc[0]
    assert (first["observed"], first["told"]) == (40, 20) and np.isnan(first["top1"])
    assert (
        causes.after_sibling(tables).empty
        or (causes.after_sibling(tables)["context"] == "along the spine").all()
    )
    assert all("second" not in each.words for each in findings(tables))


SHIPPED = ROOT / "assets" / "traces"


def test_a_denoising_run_says_how_it_was_sampled_and_ended():
    """Its header has a length, and the rule among its settings."""
    trace = read_trace(SHIPPED / "code-denoise.jsonl.gz")
    warm = {**trace.header.settings, "temperature": 0.7, "seed": 3}
    short = {**trace.header.settings, "length": 96}
    tables = Tables.of([
        trace, replace(trace, header=replace(trace.header, settings=warm)),
        replace(trace, header=replace(trace.header, settings=short)),
        read_trace(SHIPPED / "code-spiffy-10.jsonl.gz"),
    ])  # fmt: skip
    runs = tables.runs
    assert runs["temperature"].tolist() == [0.0, 0.7, 0.0, 0.0]
    assert runs["seed"].tolist() == [0, 3, 0, 0]
    assert runs["ended"].tolist() == ["token limit", "token limit", "stop token", "token limit"]
    del warm["length"]
    unlimited = Tables.of([replace(trace, header=replace(trace.header, settings=warm))])
    assert unlimited.runs["ended"].tolist() == ["not told"]
    assert runs["text"].nunique() == 3 and runs["text"][0] == runs["text"][3]


# ── sorts of tokens, examples ────────────────────────────────────────────────────────────────────


def test_token_classes():
    known = {
        " the": "word start", "ing": "word continuation", "'s": "word continuation",
        " 42": "number", "3.5": "number", ",": "punctuation", " (": "punctuation",
        "():": "punctuation", "{": "code symbol", " ==": "code symbol", "\n": "newline",
        "\n\n  ": "newline", "  ": "whitespace", "\t": "whitespace", "<|im_end|>": "special",
        "</s>": "special", "<div>": "word continuation", "": "whitespace", "�": "other",
        "🙂": "other", "日本": "word continuation", None: "unknown",
    }  # fmt: skip
    assert {text: token_class(text) for text in known} == known
    assert set(known.values()) == set(CLASSES)


def test_examples_can_be_narrowed_and_refuse_what_is_not_there():
    tables = Tables.of(fake_trace(rounds=20))
    found = causes.examples(tables, "outranked", depth=1, limit=3)
    assert len(found) == 3 and set(found["depth"]) == {1} and set(found["cause"]) == {"outranked"}
    with pytest.raises(ValueError, match="not a cause"):
        causes.examples(tables, "boredom")
    with pytest.raises(ValueError, match="narrowed"):
        causes.examples(tables, "outranked", weather=1)


def test_p_is_read_where_it_is():
    trace = fake_trace(rounds=2)
    with_p, without = trace.rounds[0], replace(trace.rounds[1], target_probs=None)
    assert isinstance(with_p.target_probs, TargetProbs)
    nodes = Tables.of(Trace(trace.header, (with_p, without), None)).nodes
    assert nodes.groupby("round")["p"].apply(lambda p: p.notna().all()).tolist() == [True, False]
    expected = np.exp(with_p.target_probs.log_p[1:])
    assert np.allclose(nodes[nodes["round"] == 1]["p"], expected, rtol=1e-6)
