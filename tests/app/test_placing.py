"""Where an uploaded file opens, or the one sentence on it; whatever it is called and holds."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

pytest.importorskip("gradio")

from analysis.experiments.sweep import SCHEMA, results
from analysis.numbers import number
from analysis.table_files import CSV, PARQUET, table_bytes
from app.report.scored import _numbered
from app.studio.components import for_upload
from app.studio.examples import Examples
from app.studio.placing import PLACES, place
from app.studio.routes import named, run_line
from app.studio.runs import Runs
from app.studio.tabs import TABS, results_answers
from app.studio.tabs.calibration import calibrate_result
from app.studio.tabs.results import SHIPPED, Opens, _counted, opened
from app.studio.tabs.results_answers import pooled
from app.studio.tabs.whatif import Simulations
from core import ASSETS
from core.errors import UserError
from core.methods.registry import built_in
from core.traces.reader import read_trace
from core.traces.record import Recorder
from tests.helpers.collected_toys import table
from tests.helpers.engine_answers import VLLM
from tests.helpers.fakes import FakeEngine
from tests.helpers.users_files import FOREIGN, SAVED, write

STEPS = "batch,tokens,ms\n" + "".join(
    f"{batch},{tokens},{10 + batch * tokens / 20}\n" for batch in (1, 8) for tokens in (1, 4, 8)
)


@pytest.fixture
def runs() -> Runs:
    return Runs(FakeEngine())


def test_traces_are_open_where_they_belong(runs: Runs, tmp_path: Path):
    for name, view in (("chat-dart", "run"), ("code-spiffy-10", "denoise")):
        told = place(runs, ASSETS / "traces" / f"{name}.jsonl.gz")
        run = runs.get(told["ticket"])
        assert told["view"] == view and run is not None
        assert run_line("t", run)["file"] == f"{name}.jsonl.gz"  # by which a list tells it
    trees = {
        "output_ids": [1, 2, 3, 4], "num_input_tokens": 1,
        "round_trees": [{"accepted_indices": [0, 1], "tree": {"node_token_ids": [3, 9],
                                                              "parents": [-1, 0, 0]}}],
    }  # fmt: skip
    told = place(runs, write(tmp_path, "trees.json", trees))
    run = runs.get(told["ticket"])
    assert told["view"] == "run" and run is not None and run.rounds[0].accepted == 1


def test_other_files_are_for_the_route_of_a_tab(runs: Runs, tmp_path: Path):
    files = {
        ("calibration", "open"): write(tmp_path, "t.parquet", table_bytes(table(), PARQUET)),
        ("whatif", "open"): ASSETS / "collected" / "fibonacci.safetensors",
        ("whatif", "open_cost"): write(tmp_path, "c.json", {"format": "draftscope-cost"}),
        ("results", "open"): write(tmp_path, "v.json", VLLM),
    }
    for (view, route), file in files.items():
        assert place(runs, file) == {"view": view, "route": route}
    assert place(runs, write(tmp_path, "s.csv", STEPS)) == {"view": "results", "route": "open"}
    assert {view for view, _ in PLACES.values()} <= {tab.name for tab in TABS}


@pytest.mark.parametrize("says", FOREIGN)
def test_a_foreign_file_is_named_in_one_sentence(says: str, runs: Runs, tmp_path: Path):
    path = write(tmp_path, "x.csv" if says.startswith("a table") else "x", FOREIGN[says])
    with pytest.raises(UserError) as told:
        place(runs, path)
    assert says in str(told.value) and str(tmp_path) not in str(told.value)


def test_what_is_damaged_is_said_of_the_file_by_its_name(runs: Runs, tmp_path: Path):
    cut = write(tmp_path, "a\x1b[31m.jsonl", '{"format": "draftscope-trace", "version": 1}\n')
    wrong = write(tmp_path, "trees.json", SAVED | {"num_input_tokens": 9})
    empty = write(tmp_path, "empty.jsonl", "")
    for file, says in ((cut, ".jsonl, line 1"), (wrong, "leaves no text"), (empty, "is empty")):
        with pytest.raises(UserError, match=says) as told:
            place(runs, file)
        assert not {"\n", "\x1b"} & set(str(told.value)) and str(tmp_path) not in str(told.value)


def test_an_engines_counts_are_words_and_a_damaged_file_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    told = opened(write(tmp_path, "v.json", VLLM))
    assert told["title"] == "vLLM" and told["sheets"][0]["rows"][0][5] == "2.25"
    assert [each["title"] for each in told["sheets"]][1:] == [
        "Accepted tokens per round", "By place of the draft, as a chain",
    ]  # fmt: skip
    ((named_so, marks),) = told["strips"]
    assert len(marks) > 2 and told["counted"] and told["lines"]
    json.dumps(told, allow_nan=False)
    monkeypatch.setattr(results_answers, "MAX_STRIP", 2)
    assert opened(tmp_path / "v.json")["strips"] == [[named_so, marks[:2]]]
    bad = write(tmp_path, "w.json", {"timings": {"draft_n": 1, "draft_n_accepted": 2}})
    with pytest.raises(UserError, match="more tokens are accepted"):
        opened(bad)


def test_step_times_are_advice_on_the_run_on_view_as_the_command_gives_it(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    steps, run = write(tmp_path, "s.csv", STEPS), ASSETS / "traces" / "chat-dflash.jsonl.gz"
    told = opened(steps, lambda: {"mine.jsonl": read_trace(run)})
    assert "the rounds of mine.jsonl, with" in told["about"]
    code, out, _ = call("advise", run, "--cost", steps, "--json")
    facts = json.loads(out)
    assert code == 0 and facts["flags"] and facts["sentences"] == told["lines"]
    assert told["flags"] == [
        [each["engine"], each["note"], each["text"]] for each in facts["flags"]
    ]
    speeds, best = told["sheets"]
    assert len(speeds["rows"]) == len(best["rows"]) == 2 and "*" in "".join(speeds["rows"][0])
    assert {"batch 1", "batch 8"} == {
        d["meta"]["name"] for d in told["figure"]["data"] if "meta" in d
    }
    json.dumps(told, allow_nan=False)
    served = write(tmp_path, "v.json", VLLM)
    told = opened(steps, dict, lambda: served)
    code, out, _ = call("advise", served, "--cost", steps, "--json")
    assert code == 0 and json.loads(out)["sentences"] == told["lines"]
    assert "of vLLM: the counts that were open here, with" in told["about"]
    with pytest.raises(UserError, match="open a run in Run first"):
        opened(steps)
    with pytest.raises(UserError, match="open the counts again, then this file"):
        _counted(Opens(file="gone"))
    other = read_trace(ASSETS / "traces" / "chat-hydra.jsonl.gz")
    with pytest.raises(UserError, match="Compare shows 2: open the run whose drafts they time"):
        opened(steps, lambda: {"A, mine": read_trace(run), "B, other": other})
    monkeypatch.setattr(results_answers, "MAX_CELL", 5)  # what is copied is never cut as cells are
    flags = opened(steps, lambda: {"mine.jsonl": read_trace(run)})["flags"]
    assert flags == [[each["engine"], each["note"], each["text"]] for each in facts["flags"]]


def recorded(path: Path, accepted: tuple[int, ...], budget: int = 4) -> Path:
    path.parent.mkdir(exist_ok=True)
    with Recorder(path, "mi\x1bne", [len(accepted)], budget=budget) as record:
        for taken in accepted:
            record.round([9, 1, 2, 3, 4], [-1, 0, 1, 2, 3], range(taken + 1), 9)
    return path


def test_many_traces_are_measured_together_as_the_command_does(call, tmp_path: Path):
    files = [
        recorded(tmp_path / str(at) / "run.jsonl", accepted)  # all by one name
        for at, accepted in enumerate(((4, 1), (0,), (2, 2, 3)))
    ]
    code, out, _ = call("report", *files, "--json")
    metrics = {row["metric"]: row["value"] for row in json.loads(out)["engine-metrics"]}
    bad = write(tmp_path, "no\x1btes.jsonl", "hello")
    told = pooled([*files, bad], gone=2)
    assert "\\u001b" not in json.dumps(told, allow_nan=False)
    assert code == 0 and "The rounds of 3 traces together" in told["about"]
    for each in told["sheets"]:  # words to the left, numbers to the right
        for at, head in enumerate(each["heads"][1:], 1):
            is_words = head in ("metric", "formula", "over", " ", "an example of the commonest")
            assert (at in each["words"]) == is_words, head
    assert [each["title"] for each in told["sheets"]] == [
        "Block efficiency τ, tokens per round, with its 95 % interval",
        "By depth: mi␛ne B=4",
        "Tokens per round, accepted + 1: share of rounds",
        "Why the walks ended, by the depth of the token after the last accepted one",
        "The same by other names",
        "The same by place of the draft: vLLM",
        "The same by place of the draft: EAGLE",
    ]
    for line in ("Fewer than 5 prompts, or", "mi␛ne B=4: 6 of 6 walks", "No trace holds probe"):
        assert any(each.startswith(line) for each in told["lines"]), line
    rows = {row[0]: row[-1] for each in told["sheets"] for row in each["rows"]}
    assert [rows[f"acceptance at {n}"] for n in range(4)] == ["0.83", "0.67", "0.33", "0.17"]
    assert all(rows[f"{n}-α"] == number(metrics[f"{n}-α"]) for n in range(4))
    first, second = told["lines"][-2:]
    assert first.startswith("Left out: no␛tes.jsonl, line 1") and str(tmp_path) not in first
    assert second.startswith("Left out: 2 files no longer on the server")
    with pytest.raises(UserError, match=r"tes\.jsonl, line 1"):
        pooled([bad])
    several = pooled([bad] * 10 + files)["lines"]
    assert several[-1] == "And 2 more are left out."
    assert sum(line.startswith("Left out: ") for line in several) == 8


def test_sentences_on_traces_together_are_the_command_s(call, tmp_path: Path):
    file = recorded(tmp_path / "lies.jsonl", (4, 1) * 3)
    file.write_text(file.read_text().replace('"rounds":6,', '"rounds":7,'))
    told, (_, out, _) = pooled([file])["lines"], call("report", file)
    assert told[0].startswith("lies.jsonl: this trace is not sound") and "walks" in told[1]
    assert any("Observed: the parent was accepted" in line for line in told)
    assert all(line in out for line in told)


def test_too_much_for_the_page_is_for_the_command(tmp_path: Path, monkeypatch):
    files = [recorded(tmp_path / f"{at}.jsonl", (4, 1)) for at in range(2)]
    monkeypatch.setattr(results_answers, "MAX_NODES", 10)
    assert pooled(files[:1])["sheets"]
    monkeypatch.setattr(results_answers, "MAX_CELL", 5)
    cells = [c for s in pooled(files[:1])["sheets"] for row in s["rows"] for c in row]
    assert max(map(len, cells)) == 5
    with pytest.raises(UserError, match="more than 10 nodes: `python -m app report FOLDER`"):
        pooled(files)


@pytest.mark.parametrize("tab", [calibrate_result, Simulations(Examples()).add_cost, opened])
def test_another_tabs_opener_says_what_the_file_is_and_not_where(tab, tmp_path: Path, monkeypatch):
    folder = tmp_path / "uploads"
    folder.mkdir()
    file = write(folder, "run.jsonl.gz", (ASSETS / "traces" / "chat-dart.jsonl.gz").read_bytes())
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(folder))
    told = named("open", for_upload(tab))({"path": str(file)})
    assert "it seems to be a trace" in told["error"] and str(tmp_path) not in told["error"]


# ── what the tab Results says ────────────────────────────────────────────────────────────────────


def grid_rows() -> list[dict]:
    """Two methods on two texts, one run of which failed."""
    common = {"options": "{}", "seed": 0, "temperature": 0.0, "model": "m", "error": None}
    good = common | {"method": "ddtree", "budget": 16, "tokens": 6, "seconds": 2.0}
    rows = [
        good | {"prompt_hash": "a", "acceptance_lengths": [3, 3], "same_as_plain": True},
        good | {"prompt_hash": "b", "acceptance_lengths": [1, 5], "same_as_plain": False},
        common | {"method": "dart", "budget": 8, "prompt_hash": "a"} | {"error": "no room"},
    ]
    return [dict.fromkeys(SCHEMA.names) | {"run": str(n)} | row for n, row in enumerate(rows)]


def test_a_grids_table_is_scored_as_the_command_scores_it(tmp_path: Path):
    frame = results(grid_rows())
    frame.to_parquet(tmp_path / "results.parquet", index=False, schema=SCHEMA)
    told = opened(tmp_path / "results.parquet")
    (sheet,) = told["sheets"]
    assert sheet["rows"] == [
        ["ddtree B=16", "3.00", "–", "2", "2", "–", "3.0", "1 of 2"],
        ["dart B=8", "–", "–", "0", "0", "1", "–", "–"],
    ]
    assert told["lines"] == ["of m"]
    again = results([*grid_rows(), grid_rows()[0] | {"run": "3", "seed": 1}])
    again.to_parquet(tmp_path / "again.parquet", index=False, schema=SCHEMA)
    assert opened(tmp_path / "again.parquet")["sheets"][0]["rows"][0][3:5] == ["2", "3"]
    by_csv = opened(write(tmp_path, "results.csv", table_bytes(frame, CSV)))
    assert by_csv["sheets"] == told["sheets"]


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        (
            "acceptance_lengths",
            [1 << 40],
            "run 2: .*acceptance_lengths.* must be",
        ),
        ("temperature", -1.0, "run 2: temperature must be"),
        ("seconds", None, "run 2 neither failed nor"),
        ("method", None, "run 2: method must be"),
    ],
)
def test_a_grids_table_that_cannot_be_is_one_sentence(column, value, says, tmp_path: Path):
    rows = grid_rows()
    rows[1][column] = value
    parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "results.parquet")
    with pytest.raises(UserError, match=says) as told:
        opened(tmp_path / "results.parquet")
    assert "\n" not in str(told.value)


def test_targets_are_scored_apart(tmp_path: Path):
    rows = grid_rows()
    rows[1] |= {"model": "n", "prompt_hash": "a"}  # the same text with another target
    frame = results(rows)
    frame.to_parquet(tmp_path / "results.parquet", index=False, schema=SCHEMA)
    (sheet,) = opened(tmp_path / "results.parquet")["sheets"]
    assert [row[0] for row in sheet["rows"]] == [
        "ddtree B=16 of m", "ddtree B=16 of n", "dart B=8 of m",
    ]  # fmt: skip
    rows[1] |= {"model": "m", "top_k": 5}
    rows[0] |= {"top_k": 0}
    rows.append(rows[0] | {"error": "no room", "model": None, "top_k": 0})
    parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "results.parquet")
    (sheet,) = opened(tmp_path / "results.parquet")["sheets"]
    assert [row[0] for row in sheet["rows"]] == [
        "ddtree B=16 top-k=0", "ddtree B=16 top-k=5", "ddtree B=16 (target unknown)", "dart B=8",
    ]  # fmt: skip
    del rows[1]  # of one target, what failed is its own
    parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "results.parquet")
    (sheet,) = opened(tmp_path / "results.parquet")["sheets"]
    assert [row[0] for row in sheet["rows"]] == ["ddtree B=16", "dart B=8"]
    assert sheet["rows"][0][5] == "1"


def test_variants_with_long_names_keep_what_differs(tmp_path: Path):
    one = grid_rows()[0] | {"method": f"ddtree@{'/long' * 30}/first"}
    options = [json.dumps({"candidates": n, "note": "x" * 90, "more": "y" * 60}) for n in (4, 8, 9)]
    rows = [one, one | {"method": one["method"].replace("first", "second")},
            one | {"temperature": 1.0}, *(one | {"options": each} for each in options),
            one | {"options": options[0].replace("x" * 90, "z" * 90)}]  # fmt: skip
    frame = results([row | {"run": str(n)} for n, row in enumerate(rows)])
    frame.to_parquet(tmp_path / "results.parquet", index=False, schema=SCHEMA)
    (sheet,) = opened(tmp_path / "results.parquet")["sheets"]
    names = [row[0] for row in sheet["rows"]]
    assert len(set(names)) == len(rows) and all(len(name) < 120 for name in names)
    assert names[0].endswith("/long/first B=16") and names[1].endswith("/long/second B=16")
    assert names[2].endswith("first B=16 T=1")
    assert _numbered(["one", "two", "one"]) == ["one (1)", "two", "one (2)"]


@pytest.mark.parametrize("change", [{"seed": -3}, {"seed": 1 << 40}, {"temperature": 500.0}])
def test_what_a_grid_can_write_is_read(change: dict, tmp_path: Path):
    frame = results([row | change for row in grid_rows()])
    for form in (PARQUET, CSV):
        told = opened(write(tmp_path, f"results.{form}", table_bytes(frame, form)))
        assert len(told["sheets"][0]["rows"]) == 2


@pytest.mark.parametrize("kind", ["lists", "texts"])
def test_a_small_file_that_unpacks_to_much_is_refused(kind: str, tmp_path: Path):
    row = grid_rows()[0]
    large = {"lists": {"acceptance_lengths": [1] * 10_000}, "texts": {"options": "x" * (1 << 20)}}
    schema = SCHEMA.set(SCHEMA.get_field_index("options"), pa.field("options", pa.large_string()))
    one = pa.Table.from_pylist([row | large[kind]], schema=schema)
    with parquet.ParquetWriter(tmp_path / "results.parquet", schema, compression="zstd") as file:
        for _ in range(20):
            file.write_table(pa.concat_tables([one] * 100))
    assert (tmp_path / "results.parquet").stat().st_size < 1 << 20
    with pytest.raises(UserError, match="too large for a grid's table"):
        opened(tmp_path / "results.parquet")


def test_a_table_of_methods_takes_the_place_of_the_one_that_ships(tmp_path: Path):
    whole = json.loads(SHIPPED.read_text())
    told = opened(write(tmp_path, "table.json", whole))["table"]
    assert [row["tau"] for row in told["rows"]] == [row["tau"] for row in whole["rows"]]
    row = whole["rows"][0] | {"method": "mi\x1bne" + "x" * 500}
    rows = [row, row | {"method": "dflash+static"}, row | {"method": "ar"}]
    mine, built, plain = opened(write(tmp_path, "t.json", whole | {"rows": rows}))["table"]["rows"]
    assert mine["title"] == mine["method"] and len(mine["title"]) <= 120 and mine["knows"] == ""
    assert mine["title"].startswith("mi␛ne") and plain["knows"] == ""
    assert plain["title"] == built_in("ar").title
    assert built["title"] == f"{built_in('dflash').title}, static"
    assert built["knows"] == built_in("dflash").drafter_info.knows
    options = opened(write(tmp_path, "o.json", whole | {"rows": [row | {"options": {"a": 1}}]}))
    assert options["table"]["rows"][0]["options"] == {}  # the page shows none
    for broken in (whole | {"rows": []}, whole | {"rows": [whole["rows"][0] | {"tau": "x"}]}):
        with pytest.raises(UserError, match="rows"):
            opened(write(tmp_path, "table.json", broken))


def test_a_checkpoint_is_what_model_doctor_says_of_its_config(runs: Runs, tmp_path: Path):
    config = ASSETS / "models" / "smollm2-135m" / "dflash" / "config.json"
    assert place(runs, config) == {"view": "results", "route": "open"}
    told = opened(config)
    assert told["lines"][0].startswith("opens as a drafter: dflash")
    assert "drafts 0 " not in told["lines"][0]  # its head has all of the target's tokens
    assert "model doctor FOLDER" in told["lines"][-1] and "/" not in told["lines"][0]
    other = write(tmp_path, "config.json", {"model_type": "nothing-like-it"})
    more = opened(other)["lines"]
    assert any("does not open" in line for line in more)
    assert not any("weights are not here" in line for line in told["lines"])
    assert not any("draftscope-" in line for line in (*told["lines"], *more))
    with pytest.raises(UserError, match="too large for a checkpoint's config"):
        opened(write(tmp_path, "config.json", {"model_type": "llama", "more": "x" * (4 << 20)}))


def test_a_config_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("app.studio.tabs.results_answers.SECONDS", 0.2)
    huge = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1e9}
    with pytest.raises(UserError, match=r"stopped after 0\.2 seconds"):
        opened(write(tmp_path, "config.json", huge))
