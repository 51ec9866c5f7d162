"""Tables, timelines and the export command: complete, readable by others, safe to open."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from analysis.engines import profile
from analysis.engines.served import read_served
from analysis.measures.rows import nodes_table, rounds_table
from analysis.table_files import download_table, table_bytes, table_csv, table_parquet
from app.cli import main
from app.commands.trace.export import FORMS
from app.export.graphs import dot, graphml
from app.export.timeline import perfetto
from app.view.drawing import tree_drawing
from app.view.svg import svg
from core.errors import UserError
from core.rounds.round import Times
from core.traces.reader import read_trace
from core.traces.record import Recorder
from core.traces.schema import Trace, summary
from core.traces.writer import write_trace
from tests.helpers.fakes import HOSTILE, make_header, make_run
from tests.helpers.needs import librsvg
from tests.helpers.small_traces import denoised_round, made
from tests.helpers.toys import draft_of


def export(*words: object) -> int:
    return main(["trace", "export", *map(str, words)])


# ── tables ───────────────────────────────────────────────────────────────────────────────────────


def test_a_line_per_round_says_what_the_round_says():
    trace = made(6, 32)
    table = rounds_table(trace)
    assert list(table.columns) == list(table.attrs["about"]["columns"]) and len(table) == 6
    for line, record in zip(table.to_dict("records"), trace.rounds, strict=True):
        assert (line["round"], line["index"]) == (record.number, record.index)
        assert (line["accepted"], line["nodes"]) == (record.accepted, 32)
        assert line["text"] == "".join(map(record.text, record.committed))
        assert line["stop"] == record.stop_reason and line["verify"] == record.times.verify
        assert line["tvd_1"] == pytest.approx(record.probe.tvd[0])
    assert (table["accepted"] + 1).mean() == pytest.approx(summary(trace.rounds)["tau"])


def test_a_round_that_was_not_timed_has_no_seconds():
    first, *others = made(2, 8).rounds
    table = rounds_table(Trace(make_header(), (replace(first, times=Times()), *others), {}))
    stages = table[["draft", "build", "verify", "commit"]]
    assert stages.iloc[0].isna().all() and stages.iloc[1].notna().all()


def test_a_line_per_node_says_what_the_node_says():
    trace = made(3, 32, method="treeflash")
    table = nodes_table(trace.rounds)
    own = list(table.attrs["about"]["columns"])
    assert list(table.columns)[: len(own)] == own
    assert all(name.startswith("note: ") for name in table.columns[len(own) :])
    assert len(table) == sum(len(r.draft) for r in trace.rounds)
    lines = iter(table.to_dict("records"))
    for record in trace.rounds:
        for row in range(len(record.draft)):
            line = next(lines)
            assert (line["round"], line["row"]) == (record.number, row)
            assert line["cause"] == record.why(row) and line["status"] == record.status[row]
            assert line["choice"] == record.verdict.target_tokens[row]
            if row:
                assert line["parents"] == str(record.draft.parents[row])
                assert line["q"] == pytest.approx(np.exp(float(record.draft.log_q[row])), rel=1e-5)
                assert line["p"] == pytest.approx(
                    np.exp(float(record.target_probs.log_p[row])), rel=1e-5
                )
            else:
                assert line["parents"] == "" and np.isnan(line["q"]) and np.isnan(line["p"])
    assert nodes_table([]).empty and rounds_table(Trace(make_header(), (), None)).empty


def test_parquet_keeps_text_and_types_exactly():
    table = nodes_table(made(3, 32, hostile=True).rounds)
    back = pd.read_parquet(io.BytesIO(table_parquet(table)))
    pd.testing.assert_frame_equal(back, table, check_dtype=True)


def test_csv_reads_back_with_every_number():
    table = nodes_table(made(3, 32).rounds)
    back = pd.read_csv(io.BytesIO(table_csv(table)), keep_default_na=True)
    assert len(back) == len(table) and list(back.columns) == list(table.columns)
    for name in ("round", "row", "q", "p", "score", "token"):
        np.testing.assert_array_equal(back[name].to_numpy(), table[name].to_numpy())


@pytest.mark.parametrize(
    "text", [*HOSTILE, "=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", '"', "a,b\n"]
)
def test_no_text_becomes_a_formula_or_another_line(text: str):
    csv = table_csv(pd.DataFrame({"text": [text], text: [1.5]}))
    back = pd.read_csv(io.BytesIO(csv), keep_default_na=False)
    assert len(back) == 1
    for cell in (back["text"][0], back.columns[1]):
        assert not str(cell).startswith(("=", "+", "-", "@", "\t", "\r")) and "\x1b" not in str(
            cell
        )


def test_a_table_is_handed_to_the_browser():
    answer = download_table(pd.DataFrame({"a": [1]}), "rounds", "csv")
    assert answer == {"name": "rounds.csv", "type": "text/csv", "data": "YQoxCg=="}


# ── the timeline ─────────────────────────────────────────────────────────────────────────────────


def validated(text: str) -> list[dict[str, Any]]:
    """Check a file against the Trace Event Format (https://docs.google.com); return its events."""
    file = json.loads(text)
    assert file["displayTimeUnit"] in ("ms", "ns")
    for event in file["traceEvents"]:
        assert event["ph"] in "XMC" and isinstance(event["name"], str)
        assert type(event["pid"]) is int and type(event["tid"]) is int
        assert isinstance(event["ts"], (int, float)) and event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] > 0
        if event["ph"] == "C":
            assert all(isinstance(v, (int, float)) for v in event["args"].values())
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and event["args"]["name"]
    return file["traceEvents"]


def test_the_timeline_holds_every_stage_in_microseconds():
    trace = made(5, 16)
    events = validated(perfetto(trace))
    stages = [e for e in events if e.get("cat") == "stage"]
    assert [e["name"] for e in stages] == ["draft", "build", "verify", "commit"] * 5
    for name in ("draft", "build", "verify", "commit"):
        total = sum(e["dur"] for e in stages if e["name"] == name)
        assert total == pytest.approx(1e6 * sum(getattr(r.times, name) for r in trace.rounds))
    rounds = [e for e in events if e.get("cat") == "round"]
    for whole, parts in zip(rounds, [stages[i : i + 4] for i in range(0, 20, 4)], strict=True):
        assert parts[0]["ts"] == whole["ts"]
        for one, other in pairwise(parts):
            assert other["ts"] == pytest.approx(one["ts"] + one["dur"])
        assert parts[-1]["ts"] + parts[-1]["dur"] == pytest.approx(whole["ts"] + whole["dur"])
    taus = [e["args"]["τ"] for e in events if e["ph"] == "C" and e["name"] == "τ"]
    assert taus == [summary(trace.rounds[:n])["tau"] for n in range(1, 6)]


def test_what_was_not_timed_has_no_length_in_the_timeline():
    times = Times(0.5, 0, 1.5, 0), Times(), Times(0, 0, 2, 0)
    rounds = [replace(r, times=t) for r, t in zip(make_run(3, 4, True), times, strict=True)]
    events = validated(perfetto(Trace(make_header(), tuple(rounds), None)))
    slices = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [
        ("round 1", 0, 2e6), ("draft", 0, 0.5e6), ("verify", 0.5e6, 1.5e6),
        ("round 3", 2e6, 2e6), ("verify", 2e6, 2e6),
    ]  # fmt: skip
    taus = [e["args"]["τ"] for e in events if e["name"] == "τ"]
    assert taus == [summary(rounds[:n])["tau"] for n in (1, 3)]
    other = json.loads(perfetto(Trace(make_header(), tuple(rounds), None)))["otherData"]
    assert other["left out"].startswith("1 of 3 rounds")


def test_a_trace_without_times_has_no_timeline():
    rounds = tuple(replace(r, times=Times()) for r in make_run(2, 4, True))
    with pytest.raises(UserError, match="no times"):
        perfetto(Trace(make_header(), rounds, None))


def test_absurd_times_still_make_a_file():
    rounds = tuple(replace(r, times=Times(1e299, 0, 1e299, 0)) for r in make_run(2, 4, True))
    assert validated(perfetto(Trace(make_header(), rounds, None)))


# ── the command ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("to", ["svg", "html", "csv"])
def test_a_folder_is_answered_with_the_form_that_takes_it(tmp_path: Path, capsys, to: str):
    assert main(["trace", "export", str(tmp_path), "--to", to]) == 2
    said = capsys.readouterr().err
    assert "is a folder, and --to" in said and "`--to site` takes folders" in said


@pytest.mark.parametrize("to", list(FORMS))
def test_every_form_is_written_beside_the_trace(trace_file: Path, capsys, to: str):
    if to == "pdf":
        librsvg()
    assert export(trace_file, "--to", to) == 0
    path = Path(capsys.readouterr().out.split(": ")[0])
    assert path.parent == trace_file.parent and path.stat().st_size > 300
    assert path.name == FORMS[to].ending or (path.name.startswith("run") and path.suffix)


def test_a_round_and_a_table_are_chosen(trace_file: Path, tmp_path: Path, capsys):
    out = tmp_path / "x.csv"
    assert export(trace_file, "--to", "csv", "--table", "nodes", "--round", 2, "--out", out) == 0
    assert set(pd.read_csv(out)["round"]) == {2}
    assert export(trace_file, "--to", "svg", "--round", 3, "--dark") == 0
    assert (tmp_path / "run-round-3.svg").read_text().startswith("<svg")
    assert (
        export(trace_file, trace_file, "--to", "html", "--plain", "--out", tmp_path / "two.html")
        == 0
    )
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--to", "svg", "--round", "9"], "no round 9"),
        (["--to", "svg", "--round", "0"], "no round 0"),
        (["--to", "csv", "--round", "1"], "a table of rounds has them all"),
        (["--to", "doc"], "choose from"),
        (["--to", "html", "--out", "/nowhere/at/all.html"], "cannot be written"),
    ],
)
def test_what_is_amiss_is_one_sentence(trace_file: Path, capsys, words: list[str], sentence: str):
    assert export(trace_file, *words) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1


def test_a_trace_is_never_overwritten(trace_file: Path, capsys):
    before = trace_file.read_bytes()
    assert export(trace_file, "--to", "csv", "--out", trace_file) == 2
    assert export(trace_file, trace_file, "--to", "csv") == 2
    other = trace_file.with_name("other.jsonl")
    other.write_bytes(before)
    assert export(other, trace_file, "--to", "html", "--out", trace_file) == 2
    assert trace_file.read_bytes() == before
    capsys.readouterr()


def test_table_bytes_knows_both_forms():
    frame = pd.DataFrame({"a": [1.5], "b": ["x"]})
    assert table_bytes(frame, "csv") == b"a,b\n1.5,x\n"
    assert table_bytes(frame, "parquet")[:4] == b"PAR1"


def test_every_export_counts_rounds_from_one():
    """The third round is 3 wherever a file says which round it shows."""
    trace = made(5, 16)
    third = trace.rounds[2]
    graph = nx.read_graphml(io.BytesIO(graphml(third)))
    assert graph.graph["round"] == 3
    assert 'digraph "round 3"' in dot(third)
    assert 'aria-label="round 3' in svg(tree_drawing(third))
    assert nodes_table([third])["round"].tolist() == [3] * len(third.draft)
    assert rounds_table(trace)["round"].tolist() == [1, 2, 3, 4, 5]
    events = [e["name"] for e in validated(perfetto(trace)) if e.get("cat") == "round"]
    assert events == [f"round {n}" for n in range(1, 6)]


# ── a profile ────────────────────────────────────────────────────────────────────────────────────


def test_a_profile_is_what_the_rounds_say_and_is_read_again(tmp_path, capsys):
    """Of two runs in a folder; its vectors by hand, and by the reader of counts."""
    runs = [made(4, 16), made(7, 16)]
    for n, trace in enumerate(runs):
        write_trace(tmp_path / f"{n}.jsonl.gz", trace)
    assert export(tmp_path, "--to", "profile") == 0
    told = json.loads((tmp_path / "speculation_profile.json").read_text())
    taken = [r.accepted for trace in runs for r in trace.rounds]
    depth = max(int(r.draft.depths.max()) for trace in runs for r in trace.rounds)
    shares = [sum(n >= place for n in taken) / len(taken) for place in range(1, depth + 1)]
    assert told["num_speculative_tokens"] == depth == len(told["conditional_accept_rates"])
    assert told["marginal_accept_rates"] == pytest.approx(shares, abs=1e-6)
    assert told["mean_accept_length"] == pytest.approx(1 + sum(taken) / len(taken), abs=1e-6)
    means = [summary(trace.rounds)["tau"] for trace in runs]
    assert told["mean_accept_length_per_request"] == pytest.approx(sum(means) / 2, abs=1e-6)
    for then, now, given in zip([1.0, *shares], shares, told["conditional_accept_rates"]):  # noqa: B905
        assert given == pytest.approx(now / then if then else 0.0, abs=1e-6)
    found = read_served(tmp_path / "speculation_profile.json")
    assert (found.rounds, found.accepted, found.kind) == (len(taken), sum(taken), "profile")
    assert found.tau == pytest.approx(told["mean_accept_length"], abs=1e-6)
    assert str(tmp_path) not in json.dumps(told)
    assert told["max_supported_k"] == max(r.max_depth for t in runs for r in t.rounds) > depth


def test_a_profile_is_of_sound_rounds_of_runs_with_any():
    """Runs of one drafter have seeds of their own; of its path two parts are of no one machine."""
    run, drafter = made(4, 16), {"checkpoint": "/home/me/org/name"}
    first, second = (
        replace(make_header(sampling={"temperature": 1.0, "seed": n}), drafter=drafter)
        for n in (1, 2)
    )
    odd = replace(run.rounds[0], faults=("a fault",)), replace(run.rounds[1], committed=())
    told = profile.made([replace(run, header=first)])
    more = replace(run, header=first, rounds=(*odd, *run.rounds))
    assert profile.made([more, replace(run, header=second, rounds=())]) == told
    assert told["draft_checkpoint"] == {"name": "org/name"}
    assert told["measurement_conditions"]["sampling"] == {"temperature": 1.0}
    assert told["measurement_conditions"]["num_samples"] == 1
    chain, tree = (
        replace(run, rounds=(replace(run.rounds[1], draft=draft_of(parents, [9, 4, 5])),))
        for parents in ([-1, 0, 1], [-1, 0, 0])
    )
    for runs, drafts in (([chain, chain], "chains"), ([chain, tree], "trees")):
        assert profile.made(runs)["measurement_conditions"]["drafts"] == drafts
    with pytest.raises(UserError, match="token by token, not of denoising"):
        profile.made([Trace(run.header, (denoised_round(),), {})])
    with pytest.raises(UserError, match=r"no round of these runs counts: .* a fault"):
        profile.made([replace(run, rounds=odd[:1])])


def test_a_place_s_share_is_of_all_rounds_also_where_drafts_were_shorter(tmp_path):
    with Recorder(path := tmp_path / "a.jsonl", "mine", [1], budget=2) as record:
        record.round([9, 4, 5], [-1, 0, 1], [0, 1, 2], 9)
        record.round([9, 4], [-1, 0], [0, 1], 9)
    told = profile.made([read_trace(path)])
    assert told["marginal_accept_rates"] == [1.0, 0.5] == told["conditional_accept_rates"]


def test_a_profile_counts_no_places_of_rows_scored_for_the_drafter_alone():
    record = make_run(4, 16)[0]
    deepest = int(np.argmax(record.draft.depths))
    more = replace(record, draft=record.draft.with_side(np.array([5, 6]), [deepest, deepest]))
    for each in (record, more):
        told = profile.made([Trace(make_header(), (each,), {})])
        assert told["num_speculative_tokens"] == int(record.draft.depths.max())


@pytest.mark.parametrize(
    ("settings", "rule"),
    [({}, "longest_prefix"), ({"rule": "block"}, "block"), ({"options": {"block": True}}, "block")],
)
def test_a_profile_tells_how_drafts_were_verified(settings, rule):
    trace = Trace(make_header(**settings), tuple(make_run(4, 16)), {})
    assert profile.made([trace])["verification_method"] == rule


@pytest.mark.parametrize(("rule", "said"), [("synthetic", "simulated"), ("fly", "FLy accepted")])
def test_a_profile_is_measured_and_of_a_rule_that_it_names(rule, said):
    with pytest.raises(UserError, match=said):
        profile.made([Trace(make_header(rule=rule), tuple(make_run(4, 16)), {})])


def test_a_profile_of_different_drafters_is_refused(tmp_path, capsys):
    write_trace(tmp_path / "a.jsonl", made(4, 16))
    write_trace(tmp_path / "b.jsonl", made(4, 16, method="treeflash"))
    assert export(tmp_path, "--to", "profile") == 2
    assert "these runs have 2 methods" in capsys.readouterr().err
    write_trace(tmp_path / "b.jsonl", made(4, 16, sampling={"temperature": 1.0, "seed": 3}))
    assert export(tmp_path, "--to", "profile") == 2
    assert "these runs have 2 ways of sampling" in capsys.readouterr().err
    for what, more in (("budgets", {"budget": 8}), ("rules", {"rule": "block"})):
        other = replace(made(4, 16), header=make_header(**more))
        with pytest.raises(UserError, match=f"these runs have 2 {what}"):
            profile.made([made(4, 16), other])
    write_trace(tmp_path / "c.jsonl", made(2, 0))
    assert export(tmp_path / "c.jsonl", "--to", "profile") == 2
    assert "nothing was drafted" in capsys.readouterr().err
    assert export(tmp_path / "a.jsonl", "--to", "profile", "--round", 1) == 2
