"""``report``: what it prints and writes, and how it refuses."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.charts.figures import FIGURES
from analysis.measures import metrics
from analysis.measures.acceptance import tau
from analysis.measures.causes import first_mismatches
from analysis.measures.conventions import engine_metrics
from analysis.measures.findings import table
from analysis.measures.tables import Tables
from analysis.numbers import interval, number
from app.export.report_page import html_page, write_table
from app.report.sections import (
    BEGINS,
    Section,
    _by_token,
    _first_depths,
    _left_at,
    _no_interval,
    _outstanding,
    _several,
    _usual,
    cautions,
    doubts,
    notes,
)
from app.report.shown import ReportPart, TextTable, as_html, parts
from app.studio.examples import result_of
from app.terminal import BAR
from core import ASSETS
from core.traces.reader import read_ends, read_trace
from core.traces.record import Recorder
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests import ROOT
from tests.helpers import fakes
from tests.helpers.small_traces import NOTHING, fake_trace, plain_round

GOLDEN = ROOT / "tests" / "golden" / "trace-v1.jsonl"
SHIPPED = ASSETS / "traces"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two methods on three prompts."""
    made = tmp_path_factory.mktemp("runs")
    for n, prompt in enumerate("abc"):
        for method in ("ddtree", "dart"):
            write_trace(made / f"{method}-{n}.jsonl.gz", fake_trace(method, n, 6, prompt=prompt))
    return made


def test_one_trace(call):
    code, out, err = call("report", GOLDEN)
    assert (code, err) == (0, "")
    for words in ("Block efficiency τ", "By depth: ddtree B=6", "Why branches ended", "observed",
                  "What became of drafted nodes", "Why the walks ended, by the depth",
                  "pruned by budget", "Probed: p and all of q", "Is q a probability?", "ECE",
                  "trace-v1.jsonl, round", "interval"):  # fmt: skip
        assert words in out, words
    line = next(x for x in out.splitlines() if x.startswith("ddtree B=6 ") and "rounds" in x)
    trace = read_trace(GOLDEN)
    mean = sum(r.accepted + 1 for r in trace.rounds) / len(trace.rounds)
    low, high = tau(Tables.of(trace)).loc[0, ["low", "high"]]
    assert f" {number(mean)} " in line and low < high and interval(low, high) in line
    assert max(x.count("█") for x in out.splitlines()) == BAR  # the commonest length has all of it


def test_methods_are_compared_on_the_same_texts(call, folder):
    code, out, _ = call("report", folder)
    assert code == 0
    (line,) = [x for x in out.splitlines() if x.startswith("dart B=24  ") and "ddtree" in x]
    assert " 3 " in line and "[" not in line
    assert "Fewer than 5 prompts give a difference but no interval" in out
    code, out, _ = call("report", folder / "ddtree-0.jsonl.gz", folder / "dart-1.jsonl.gz")
    assert code == 0 and "cannot be compared: the prompts differ" in out


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_of_sampled_texts_that_differ_no_tie_is_spoken_of(call, tmp_path, temperature):
    for noise, token in ((1, 3), (2, 4)):
        path, settings = tmp_path / f"{noise}.jsonl", {"temperature": temperature, "noise": noise}
        with Recorder(path, "mine", [5], 1, settings=settings) as record:
            record.round([9, token], [-1, 0], [0, 1], 7)
    code, out, _ = call("report", tmp_path)
    assert code == 0 and "wrote the same text in 0 of 1: " in out
    assert ("`trace compare` says" in out) == (temperature == 0)
    assert ("sampled texts may part at any token" in out) == (temperature > 0)


def test_of_a_text_that_goes_on_behind_the_other_s_end_no_tie_is_spoken_of(call, tmp_path):
    """A loop of its own tells no limit, so a better drafter's rounds reach further."""
    for noise, more in ((1, False), (2, True)):
        settings = {"temperature": 0, "noise": noise}
        with Recorder(tmp_path / f"{noise}.jsonl", "mine", [5], 1, settings=settings) as record:
            record.round([9, 3], [-1, 0], [0, 1], 7)
            if more:
                record.round([7, 3], [-1, 0], [0, 1], 7)
    code, out, _ = call("report", tmp_path)
    assert code == 0 and "wrote the same text in 0 of 1, and in 1 one text is the other's" in out
    assert "trace compare" not in out


def test_tables_and_page_are_written(call, folder, tmp_path):
    out = tmp_path / "new" / "tables"
    code, _, err = call("report", folder, "--out", out, "--to", "csv", "parquet", "json", "--html")
    assert code == 0 and "33 tables (csv, parquet, json) and report.html written" in err
    assert err.endswith(
        "give no line of same-begins, checkpoints-by-depth, checkpoints-stretches\n"
    )
    names = sorted(folder.glob("*.gz"))
    tables = Tables.of({p.name: read_trace(p) for p in names})
    for name, expected in metrics.Report(tables).items():
        if expected.empty:
            assert not list(out.glob(f"{name}.*"))
            continue
        packed = pd.read_parquet(out / f"{name}.parquet")
        assert list(packed.columns) == list(expected.columns)
        assert packed.attrs["about"]["columns"].keys() == set(expected.columns)
        told = json.loads((out / f"{name}.json").read_text())
        assert len(told["rows"]) == len(packed) == len(expected)
        assert set(told["columns"]) == set(expected.columns)
        plain = pd.read_csv(out / f"{name}.csv")
        numbers = expected.select_dtypes("number").columns
        pd.testing.assert_frame_equal(
            plain[numbers].astype(float), expected[numbers].astype(float), check_index_type=False
        )
    page = (out / "report.html").read_text()
    assert page.count("plotly.js v") == 1 and "<link" not in page
    block = page.partition('id="ds-report">')[2].partition("</script>")[0]
    titles = [figure["layout"]["meta"]["title"] for figure in json.loads(block)]
    assert len(titles) == len(set(titles)) == len(FIGURES)


def test_a_table_without_lines_is_not_written_nor_left_from_before(call, tmp_path):
    out = tmp_path / "out"
    write_trace(tmp_path / "t.jsonl", fake_trace(rounds=2))
    out.mkdir()
    for name in ("checkpoints-by-depth.csv", "mine.csv"):
        (out / name).write_text("depth\n", "utf-8")
    assert call("report", tmp_path / "t.jsonl", "--out", out)[0] == 0
    files = {path.name: path.read_text() for path in out.glob("*.csv")}
    assert "checkpoints-by-depth.csv" not in files and files.pop("mine.csv")
    assert "runs.csv" in files and all(text.count("\n") > 1 for text in files.values())


def test_what_lies_beyond_the_end_is_said(call, tmp_path):
    trace = fake_trace(rounds=20)
    at = next(i for i, r in enumerate(trace.rounds) if r.accepted >= 1)
    last = replace(trace.rounds[at], committed=trace.rounds[at].committed[:1])
    write_trace(tmp_path / "t.jsonl", Trace(trace.header, (*trace.rounds[:at], last), {}))
    assert (
        f"token limit): {last.accepted} verified tokens, left out"
        in call("report", tmp_path / "t.jsonl")[1]
    )


def test_csv_holds_no_formula(tmp_path):
    trace = fake_trace(prompt='=HYPERLINK("http://x")', rounds=2)
    write_table(Tables.of(trace).runs, tmp_path / "runs.csv")
    assert pd.read_csv(tmp_path / "runs.csv")["prompt"][0].startswith("'=")


def test_hostile_names_stay_text(call, tmp_path):
    evil = "<script>alert(1)</script>\x1b[31m"
    trace = fake_trace(rounds=3)
    trace = Trace(replace(trace.header, method=evil), trace.rounds, None)
    write_trace(tmp_path / "evil.jsonl", trace)
    code, out, _ = call("report", tmp_path / "evil.jsonl")
    assert code == 0 and "\x1b" not in out and "interrupted" in out
    assert "<script>alert" not in html_page(Tables.of(trace), [], [evil], [evil])


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        ((), "interrupted"),
        (tuple(plain_round(i, i) for i in range(3)), "1.00"),
    ],
)
def test_little_to_tell_is_no_error(call, tmp_path, rounds, said):
    write_trace(tmp_path / "t.jsonl", Trace(fakes.make_header(method="ar"), rounds, None))
    code, out, err = call("report", tmp_path / "t.jsonl", "--out", tmp_path / "o")
    assert code == 0, err
    assert said in out


def test_bad_input_is_one_sentence(call, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for words in (
        ["report"],
        ["report", tmp_path / "none.jsonl"],
        ["report", tmp_path / "empty"],
        ["report", tmp_path / "file"],
        ["report", GOLDEN, "--html"],
        ["report", GOLDEN, "--to", "csv"],
        ["report", GOLDEN, "--to", "xls", "--out", tmp_path],
        ["report", GOLDEN, "--out", tmp_path / "file" / "deeper"],
    ):
        code, _, err = call(*words)
        assert code == 2, words
        assert err.splitlines()[-1].startswith("draftscope: ") and "Traceback" not in err


def damaged(folder: Path, into: Path) -> Path:
    """A copy of a folder of traces, with an empty file and a damaged one beside them."""
    shutil.copytree(folder, into)
    (into / "empty.jsonl").touch()
    lines = gzip.decompress((SHIPPED / "chat-dart.jsonl.gz").read_bytes()).splitlines(True)
    (into / "torn.jsonl").write_bytes(b"".join([*lines[:5], b"\0\0\n", *lines[5:]]))
    return into


def test_a_damaged_file_of_a_folder_is_left_out_and_named(call, folder, tmp_path):
    runs = damaged(folder, tmp_path / "runs")
    whole = call("report", folder, "--json")[1]
    code, out, err = call("report", runs, "--json")
    assert code == 1 and out == whole
    assert err.splitlines()[-2:] == [
        "left out: empty.jsonl is empty, not a trace",
        "left out: torn.jsonl, line 6 is not JSON: not a trace",
    ]
    for trace in runs.glob("ddtree*"):
        trace.unlink()
    code, _, err = call("trace", "export", runs, "--to", "profile", "--out", tmp_path / "p.json")
    assert code == 1 and "left out: empty.jsonl" in err and (tmp_path / "p.json").is_file()
    assert call("report", folder)[0] == 0


def test_a_damaged_file_that_is_named_is_refused_and_so_is_a_folder_of_nothing_else(
    call, folder, tmp_path
):
    runs = damaged(folder, tmp_path / "runs")
    code, out, err = call("report", runs, runs / "torn.jsonl")
    assert (code, out) == (2, "") and "torn.jsonl, line 6" in err
    for trace in runs.glob("*.gz"):
        trace.unlink()
    code, out, err = call("report", runs)
    assert (code, out) == (2, "") and "torn.jsonl, line 6" in err


def test_copies_of_a_run_are_named(call, tmp_path):
    (tmp_path / "copy.jsonl").write_bytes(
        gzip.decompress((SHIPPED / "chat-dart.jsonl.gz").read_bytes())
    )
    for name in ("chat-dart", "chat-ddtree-16"):
        shutil.copy(SHIPPED / f"{name}.jsonl.gz", tmp_path)
    out = call("report", tmp_path)[1]
    assert "chat-dart.jsonl.gz and copy.jsonl have the same header" in out
    assert out.count("have the same header") == 1
    (tmp_path / "copy.jsonl").unlink()
    assert "the same header" not in call("report", tmp_path)[1]


def test_every_engines_name_is_computed_as_it_says(folder):
    """Counted again over the records, one round at a time."""
    plain = plain_round(99, 5)
    traces = [read_trace(path) for path in sorted(folder.glob("ddtree*"))]
    traces = [replace(trace, rounds=(*trace.rounds, plain)) for trace in traces]
    rounds = [record for trace in traces for record in trace.rounds]
    drafts = sum(r.draft.nodes > 0 for r in rounds)
    found = engine_metrics(Tables.of(traces)).set_index("metric")["value"].to_dict()
    accepted, drafted = sum(r.accepted for r in rounds), sum(r.draft.nodes for r in rounds)
    deepest = max(r.max_depth for r in rounds)
    tokens = sum(1 + sum(len(r.committed) for r in trace.rounds) for trace in traces)

    def reached(depth):
        return sum(r.accepted >= depth for r in rounds)

    count = len(rounds)
    assert found == pytest.approx({
        "τ, average acceptance length": 1 + accepted / count,
        "τ without the bonus token": accepted / count,
        **{
            f"{n}-α": reached(n + 1) / reached(n) if reached(n) else float("nan")
            for n in range(deepest)
        },
        "mean acceptance length": 1 + accepted / drafts,
        "draft acceptance rate": accepted / drafted,
        **{f"acceptance at {n}": reached(n + 1) / drafts for n in range(deepest)},
        "spec_accept_length": tokens / count,
        "draft_n_accepted ÷ draft_n": accepted / drafted,
        "matches per candidate": accepted / drafts,
    }, nan_ok=True)  # fmt: skip


def test_places_are_told_as_deep_as_drafts_went(call, tmp_path):
    """A chain of 40, a chain of 2 that says it is endless, and what vLLM's log would list."""
    _chains(tmp_path / "long.jsonl", "long", 40, [40, 3, 0, 40])
    _chains(tmp_path / "short.jsonl", "short", 2, [2, 0])
    lines = (tmp_path / "short.jsonl").read_text().replace(
        '"kind":"round",', '"kind":"round","max_depth":2147483647,'
    )  # fmt: skip
    (tmp_path / "short.jsonl").write_text(lines)
    code, out, _ = call("report", tmp_path, "--json")
    rows = [row for row in json.loads(out)["engine-metrics"] if row["place"] is not None]
    told = {(row["method"], row["engine"]): [] for row in rows}
    for row in rows:
        told[row["method"], row["engine"]].append(row["value"])
    assert told["long", "vLLM"] == [0.75] * 3 + [0.5] * 37
    assert told["long", "EAGLE"] == pytest.approx([0.75, 1, 1, 2 / 3] + [1] * 36)
    assert told["short", "vLLM"] == [0.5, 0.5] and told["short", "EAGLE"] == [0.5, 1]
    code, out, err = call("report", tmp_path)
    (line,) = [x for x in out.splitlines() if x.startswith("acceptance at 31 ")]
    assert code == 0 and line.split()[-2:] == ["0.50", "–"], err
    assert "acceptance at 32" not in out and "show the first 32" in out
    assert "best chain" not in out and "not the drafter's best" not in out  # nothing tells it


def _chains(path: Path, method: str, drafted: int, accepted: list[int]) -> None:
    with Recorder(path, method, [1, 2]) as record:
        for taken in accepted:
            record.round([9, *range(10, 10 + drafted)], [-1, *range(drafted)], range(taken + 1), 9)


def test_a_run_without_rounds_is_said_to_have_none(call, folder, tmp_path):
    empty = tmp_path / "empty.jsonl"
    write_trace(empty, Trace(fakes.make_header(), (), {"text": "Ok\x1b."}))
    code, out, _ = call("trace", "show", empty)
    said = "this run has no rounds: it ended before the first one; its text is “Ok␛.”"
    assert code == 0 and said in out and result_of(read_ends(empty)) == "no rounds"
    code, out, _ = call("report", empty, folder)
    assert code == 0 and "1 of 7 runs has no rounds: only the numbers of runs and of" in out
    assert "no rounds" not in call("report", folder)[1]
    _, out, _ = call("report", empty)
    assert out.splitlines()[-1].startswith("1 of 1 run has no rounds"), out


def test_a_gate_that_is_missed_is_exit_code_1(call, folder):
    low, high = sorted(tau(Tables.of(list(map(read_trace, folder.iterdir()))))["tau"])
    code, _, err = call("report", folder, "--gate", f"tau>={low}", "rounds > 1")
    assert code == 0 and "gate" not in err
    code, _, err = call("report", folder, "--gate", f"tau>{low}", f"tau <= {high}")
    assert code == 1 and err.count("gate missed: ") == 1 and "tau > " in err
    code, _, err = call("report", folder, "--gate", f"tau>{high}", "tokens_per_second>=0")
    assert code == 1 and err.count("has tau") == 2 and "tokens_per_second" not in err


def test_a_number_that_is_not_known_misses_its_gate(call, tmp_path):
    _chains(tmp_path / "a.jsonl", "mine", 2, [1] * 3)  # of so few rounds there is no interval
    code, _, err = call("report", tmp_path / "a.jsonl", "--gate", "low>=0", "rounds>=3")
    assert code == 1 and err.count("gate missed: ") == 1 and "has low –, not low >= 0" in err


@pytest.mark.parametrize(
    "words", ["tau", "tau=2", "speed>3", "tau>=x", "tau>=nan", "tau<=inf", ">=3"]
)
def test_what_is_no_gate_is_one_sentence(call, words):
    code, out, err = call("report", GOLDEN, "--gate", words)
    assert (code, out) == (2, "") and "gate" in err and len(err.splitlines()) == 1


def test_the_places_where_the_target_left_the_best_chain_add_up():
    """One row of a table may hold several lines of a cell: ranks outside of the lists."""
    found = Tables.of({"a": read_trace(ASSETS / "traces" / "chat-eagle3.jsonl.gz")})
    told = _left_at(first_mismatches(found))
    assert sum(told["share"]) == pytest.approx(1.0) and told["place"].is_unique
    assert [*told["place"].cat.categories[:7]] == [f"rank {rank}" for rank in range(2, 9)]
    outside = told.loc[told["place"] == "not listed", "share"].item()
    assert outside > 0.3 and set(told["rounds"]) == {told["count"].sum()}


def test_the_commonest_sorts_of_token_are_told_with_all_that_ended_there():
    """Of eight sorts, each with two causes, the six with most positions; an example of the
    commoner cause."""
    rows = [
        {"method": "a", "token_class": sort, "count": count, "observed_share": 0.5,
         "example_run": f"{sort} {count}", "example_round": 1, "example_row": 2}
        for n, sort in enumerate("hgfedcba") for count in (n + 1, 2 * n + 3)
    ]  # fmt: skip
    unseen = rows[-1] | {"count": 99, "observed_share": np.nan}
    found = _by_token(pd.DataFrame([*rows, unseen]))
    assert list(dict.fromkeys(found["token_class"])) == [*"abcdef"]
    assert dict(zip(found["token_class"], found["observed"], strict=True)) == {
        sort: 3 * n + 4 for n, sort in enumerate("hgfedcba") if sort < "g"
    }
    assert set(found["example"][found["token_class"] == "a"]) == {"a 17, round 1, row 2"}


def test_where_the_target_left_the_chain_is_shown_of_methods_that_tell_it():
    columns = ("method", "rank", "outside", "count", "drafted", "share")
    rows = [("a", 2, False, 6, 3, 0.6), ("a", 9, False, 1, 1, 0.1), ("a", 11, False, 1, 0, 0.1),
            ("a", None, True, 1, 0, 0.1), ("a", None, False, 1, 0, 0.1),
            ("b", None, False, 5, 0, 1.0)]  # fmt: skip
    found = _left_at(pd.DataFrame(rows, columns=columns).astype({"rank": "Int32"}))
    assert [*zip(found["place"], found["count"], strict=True)] == [
        ("rank 2", 6), ("rank > 8", 2), ("not listed", 1), ("not recorded", 1)
    ]  # fmt: skip
    assert set(found["method"]) == {"a"} and set(found["drafted"]) == {4 / 10}


def test_every_finding_is_told_once_and_what_does_not_vary_has_no_table():
    found = table(Tables.of({"a": fake_trace(rounds=20, rule="fly")}))
    assert len(_outstanding(found)) == 1 < len(_usual(found)) == len(found) - 1
    assert "rule" not in set(_usual(found)["finding"])
    scripts = pd.DataFrame({"script": ["latin", "cyrillic"]})
    depths = pd.DataFrame({"depth": range(1, 99)})
    assert list(BEGINS.keep(depths)["depth"]) == [1, 2, 3, 4]
    assert list(_first_depths(depths)["depth"]) == [*range(1, 33)]
    assert len(_several("script")(scripts)) == 2 and _several("script")(scripts[:1]).empty


def test_a_table_for_each_pair_names_it_in_order_and_has_the_sign_of_a_difference():
    frame = pd.DataFrame({"method": ["a", "b"], "other": ["b", "a"], "low": [0.1, -0.3],
                          "high": [0.2, -0.1]})  # fmt: skip
    frame.attrs["declared"] = "compare"
    section = Section("Pairs", "pairs", "low", each=("method", "other"))
    made = list(parts([section], {"pairs": frame}, Tables.of({"a": fake_trace()})))
    assert [part.title for part in made] == ["Pairs: a against b", "Pairs: b against a"]
    assert [part.body[0].rows for part in made] == [[("[+0.10, +0.20]",)], [("[−0.30, −0.10]",)]]


def test_a_cause_without_a_line_has_no_column_and_another_value_has_one():
    rows = {"method": ["m", "m"], "timed": [2, 2], "share": [0.25, 0.75]}
    values = pd.Categorical(["pruned", "beyond"], ["pruned", "outside", "beyond"])
    for across, heads in (("cause", 4), ("stage", 5)):
        frame = pd.DataFrame({**rows, across: values})
        frame.attrs["declared"] = "stages"
        section = Section("t", "t", "method timed *", across=across, cell="share", absent="none")
        (part,) = parts([section], {"t": frame}, Tables.of({"a": fake_trace()}))
        (grid,) = part.body
        assert len(grid.heads) == heads
        assert list(grid.rows[0]) == ["m", "2", "0.25", *["none"] * (heads - 4), "0.75"]


def test_what_pairs_and_single_methods_leave_open_is_said_where_it_is_so():
    hot = fake_trace("dart", sampling={"temperature": 1.0})
    tables = Tables.of({"a": fake_trace("ddtree"), "b": hot})
    one, other = map(str, tables.rounds["method"].unique())
    usual = {"method": one, "other": other, "prompts": 5, "low": 0.1, "same": 3, "texts": 3,
             "beginnings": 0}  # fmt: skip

    def said(*changes):
        return " ".join(doubts(tables, pd.DataFrame([usual | each for each in changes])))

    assert said(*[{}] * 14) == ""
    assert said(*[{}] * 15).endswith("by chance: of these 15, expect about 1.")
    assert said({"prompts": 4}, {}).startswith("Fewer than 5 prompts")
    assert "in 2 of 3: sampled texts may part" in said({"same": 2})
    assert "`trace compare` says whether" in said({"same": 2, "other": one})
    assert said({"same": 2, "beginnings": 1}).endswith("in 1 one text is the other's beginning.")
    assert "beginning: sampled" in said({"same": 1, "beginnings": 1})
    for low, rounds, few in ((0.1, 9, False), (np.nan, 9, True), (np.nan, 0, False)):
        frame = pd.DataFrame({"low": [0.1, low], "rounds": [9, rounds]})
        assert bool([*_no_interval(tables, frame)]) == few


def test_a_page_marks_the_columns_of_words_and_shows_no_control_character():
    grid = TextTable(("a", "b", "c"), [["x", "1", "<w>"]], ("c",))
    page = as_html([ReportPart("t", ["<p>\x1b", grid])], ())
    assert '<td>1</td><td class="ds-words">&lt;w&gt;</td>' in page
    assert "&lt;p&gt;" in page and "\x1b" not in page


def test_of_usual_runs_nothing_is_noted_but_what_the_numbers_count():
    """A text that ended at once, plain decoding and runs of which one tells probes among them."""
    bare = fake_trace("dart")
    bare = replace(bare, rounds=tuple(replace(r, probe=None) for r in bare.rounds))
    tables = Tables.of({"a": fake_trace(), "b": bare})
    (only,) = notes(tables)
    assert [*cautions(tables)] == []
    odd = replace(bare, rounds=(replace(bare.rounds[0], faults=("a fault",)), *bare.rounds[1:]))
    assert [each[:2] for each in cautions(Tables.of({"x": odd}))] == ["x:"]
    assert only.startswith("Observed: ")
    said = [*notes(Tables.of(NOTHING["plain decoding"]))]
    assert not any("last depth" in each for each in said)
    ended = [*notes(Tables.of(NOTHING["a text that ended at once"]))]
    assert any("1 round is left out" in each for each in ended)
    assert not any("no rounds" in each for each in ended)


def test_a_q_that_is_not_known_has_no_table_of_its_errors(call, tmp_path):
    _chains(tmp_path / "a.jsonl", "mine", 2, [1] * 10)
    code, out, _ = call("report", tmp_path / "a.jsonl")
    assert code == 0 and "Is q a probability?" not in out and "By depth" in out
