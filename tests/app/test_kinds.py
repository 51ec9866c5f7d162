"""Files by their contents: every kind that the product writes or reads, and some to refuse."""

from __future__ import annotations

import gzip
import json
import pickle
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from analysis import kinds
from analysis.collected import calibration
from analysis.engines.served import read_served
from analysis.experiments.cost import FORMAT as COST
from analysis.experiments.sweep import SCHEMA, results
from analysis.experiments.sweep_folder import FORMAT as SWEEP
from analysis.kinds import kind_of
from analysis.measures.rows import nodes_table, rounds_table
from analysis.table_files import CSV, PARQUET, table_bytes
from app.cli import main
from app.export import graphs
from app.export.offline import offline_page
from app.export.timeline import perfetto
from app.view.drawing import tree_drawing
from app.view.explanation import Explainer
from app.view.shapes import Paper
from app.view.svg import svg
from core import ASSETS
from core.diffusion.graph_files import FORMAT as GRAPH
from core.errors import UserError, WrongKind
from core.traces.reader import read_trace
from core.train.accuracy import FORMAT as ACCURACY
from tests.helpers.collected_toys import table
from tests.helpers.engine_answers import (
    BENCH,
    DUMP,
    FRAGMENTS,
    LLAMA,
    PROFILE,
    SGLANG,
    STUDIO,
    VLLM,
)
from tests.helpers.engine_logs import LOGS
from tests.helpers.sentences import is_one_sentence
from tests.helpers.users_files import FOREIGN, SAVED, write, zipped

TRACE = ASSETS / "traces" / "chat-dflash.jsonl.gz"


# ── what the page opens ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("file", sorted((ASSETS / "traces").iterdir()), ids=lambda file: file.name)
def test_the_traces_that_ship(file):
    assert kind_of(file) == kinds.TRACE


def test_a_trace_is_known_by_its_contents_under_any_name(tmp_path):
    plain = gzip.decompress(TRACE.read_bytes())
    for name, data in (("a.jsonl", plain), ("a.txt", TRACE.read_bytes()), ("a", plain[:4000])):
        assert kind_of(write(tmp_path, name, data)) == kinds.TRACE
    assert kind_of(write(tmp_path, "one.json", plain.split(b"\n")[0])) == kinds.TRACE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("a.json", each) for each in (VLLM, SGLANG, LLAMA, BENCH, STUDIO, PROFILE)),
        ("a.jsonl", [VLLM, VLLM]), ("dump.jsonl", DUMP), ("fragments.json", FRAGMENTS),
        ("a.txt", json.dumps(SGLANG)), *((f"{n}.log", LOGS[n]) for n in LOGS),
    ],
)  # fmt: skip
def test_what_is_an_engines_counts_is_what_is_read_as_such(name, value, tmp_path):
    path = write(tmp_path, name.replace("/", "-"), value)
    assert kind_of(path) == kinds.COUNTS
    assert read_served(path).records


@pytest.mark.parametrize("rate", ["8.0", "Infinity"])  # the second is its default
def test_a_result_of_sglangs_benchmark_has_no_counts(rate: str, tmp_path: Path, capsys):
    line = f'{{"backend": "sglang", "request_rate": {rate}, "output_throughput": 140.2, '
    path = write(tmp_path, "bench.jsonl", line + '"accept_length": 2.87}\n')
    assert "a mean of the server" in kind_of(path)
    for command in ("trace import", "report"):
        assert main([*command.split(), str(path)]) == 2
        assert "a mean of the server" in capsys.readouterr().err


def test_tables_of_calibrate_and_of_a_grid(tmp_path):
    rows = results([dict.fromkeys(SCHEMA.names) | {"run": "a", "method": "ddtree", "budget": 4}])
    for form in (PARQUET, CSV):
        path = write(tmp_path, f"calibration.{form}", table_bytes(table(), form))
        assert kind_of(path) == kinds.CALIBRATION
        calibration.read_table(path)
        assert kind_of(write(tmp_path, f"g.{form}", table_bytes(rows, form))) == kinds.GRID
        curves = table_bytes(calibration.curves(table()), form)
        assert "curves" in str(kind_of(write(tmp_path, f"curves.{form}", curves)))
    rows.to_parquet(tmp_path / "results.parquet", index=False, schema=SCHEMA)
    assert kind_of(tmp_path / "results.parquet") == kinds.GRID


def test_other_files_that_the_page_opens(tmp_path):
    for file in (ASSETS / "collected").iterdir():
        assert kind_of(file) == kinds.COLLECTED
    assert kind_of(ASSETS / "measured" / "table.json") == kinds.TABLE
    assert kind_of(write(tmp_path, "trees.json", SAVED)) == kinds.TREES
    assert kind_of(write(tmp_path, "cost.json", {"format": COST, "version": 1})) == kinds.COST
    for config in ASSETS.rglob("config.json"):
        assert kind_of(config) == kinds.CONFIG, config


# ── what the command line reads or the product writes ────────────────────────────────────────────


def test_what_the_product_writes_beside_these_is_named(tmp_path):
    trace = read_trace(TRACE)
    record = trace.rounds[0]
    drawn = svg(tree_drawing(record, Explainer.of(trace.header)), Paper())
    made = {
        "page.html": (offline_page([trace]), "a page of ours"),
        "run.perfetto.json": (perfetto(trace), "Perfetto"),
        "round.svg": (drawn, "a picture"),
        "round.dot": (graphs.dot(record), "Graphviz"),
        "round.graphml": (graphs.graphml(record), "GraphML"),
        "rounds.csv": (table_bytes(rounds_table(trace), CSV), "a table of rounds"),
        "nodes.parquet": (table_bytes(nodes_table(trace.rounds), PARQUET), "a table of nodes"),
        "counts.json": (read_served(write(tmp_path, "v.json", VLLM)).to_json(), "trace import"),
        "sweep.json": ({"format": SWEEP}, "the plan of a grid"),
        "graph.json": ({"format": GRAPH}, "a draft graph"),
        "accuracy.json": ({"format": ACCURACY}, "report --trained"),
        "model.safetensors.index.json": ({"metadata": {}, "weight_map": {}}, "weights"),
        "steps.csv": ("tokens,ms,batch\n1,2,3\n", "step times"),
        "log.csv": ("step,full_acc_0\n1,0.5\n", "a trainer's log"),
        "prompts.jsonl": ([{"prompt": "hi"}], "prompts"),
    }
    for name, (data, says) in made.items():
        assert says in str(kind_of(write(tmp_path, name, data))), name
    assert "bench" in str(kind_of(ASSETS / "measured" / "bench.json"))
    assert "n-grams" in str(kind_of(ASSETS / "models/smollm2-135m/ngram.safetensors"))
    weights = next((ASSETS / "models/smollm2-135m/dflash").glob("*.safetensors"))
    assert kind_of(weights) == kinds.WEIGHTS
    states = {"token_ids": np.zeros(2, np.int64), "hidden_states": np.zeros((2, 1, 4), np.float32)}
    save_file(states, tmp_path / "states.safetensors")
    assert "hidden states" in str(kind_of(tmp_path / "states.safetensors"))


def test_folders(tmp_path):
    assert "a checkpoint" in str(kind_of(ASSETS / "models/smollm2-135m/dflash"))
    for name, says in (("sweep.json", "a grid"), ("calibration.parquet", "a `calibrate`")):
        (tmp_path / says[-4:]).mkdir()
        write(tmp_path / says[-4:], name, "{}")
        assert says.split()[1].strip("`") in str(kind_of(tmp_path / says[-4:]))


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("says", FOREIGN)
@pytest.mark.parametrize("command", ["trace check", "report", "trace import", "trace show"])
def test_every_command_says_what_a_foreign_file_is(says, command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "x.csv" if says.startswith("a table") else "x", FOREIGN[says])
    assert says in str(kind_of(path))
    assert main([*command.split(), str(path)]) == 2
    complaint = capsys.readouterr().err
    assert is_one_sentence(complaint) and (says in complaint or says.startswith("text"))
    assert not Path("pickled-code-ran").exists()


def test_a_pickle_of_torch_is_named(tmp_path):
    for data in (zipped("archive/data.pkl", "archive/version"), pickle.dumps([1], protocol=4)):
        assert "a pickle" in str(kind_of(write(tmp_path, "pytorch_model.bin", data)))


def test_counts_after_many_other_lines_are_counts(tmp_path):
    other = "INFO Avg generation throughput: 3.0 tokens/s\n"
    log = other * (kinds.LOOKED_AT + 9)
    assert "speculative decoding was off" in str(kind_of(write(tmp_path, "off.log", log)))
    late = write(tmp_path, "late.log", log + LOGS[next(n for n in LOGS if "vllm" in n.lower())])
    assert kind_of(late) == kinds.COUNTS and read_served(late).records


def test_a_log_of_objects_is_what_its_texts_are(tmp_path):
    log = LOGS[next(n for n in LOGS if "vllm" in n.lower())]
    lines = "".join(json.dumps({"message": line}) + "\n" for line in log.splitlines())
    path = write(tmp_path, "app.log", '{"message": "it starts"}\n' + lines)
    assert kind_of(path) == kinds.COUNTS and read_served(path).records
    assert kind_of(write(tmp_path, "one.log", json.dumps({"message": log}))) == kinds.JSON


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.zip", zipped("pkg/__init__.py", "pkg/version.py", "pkg/version"), "a zip file"),
        ("tokenizer_config.json", {"model_max_length": 9}, "JSON of another kind"),
        ("generation_config.json", {"eos_token_id": 2}, "JSON of another kind"),
        ("notes.md", "# Notes\n\nThe header says draftscope-trace.\n", "text of another kind"),
        ("cut.jsonl", '{"kind":"header","format":"draftscope-trace","vers', "and is damaged"),
        ("mz.txt", "MZ is how a program for DOS begins, and this text too.\n", "text of another"),
        ("x.exe", b"MZ\x90\0\3\0\0\0", "a program"),
        ("g.tsv", "run\tmethod\tprompt_hash\tacceptance_lengths\n", "a table with tabs"),
        ("g.csv", "run\tmethod\tprompt_hash\tacceptance_lengths\n", "a table with tabs"),
        ("cut.parquet", table_bytes(table(), PARQUET)[:-9], "a damaged Parquet file"),
    ],
)
def test_what_looks_like_another_kind_is_told_from_it(name, data, says, tmp_path):
    assert says in str(kind_of(write(tmp_path, name, data)))


def test_an_empty_file_and_one_that_is_not_there(tmp_path, capsys):
    for data in (b"", b"\n \n"):
        assert kind_of(write(tmp_path, "x", data)) == kinds.EMPTY
    with pytest.raises(UserError, match="cannot be read"):
        kind_of(tmp_path / "nowhere")
    assert kinds.explained(WrongKind("no trace", tmp_path / "nowhere")) == "no trace"
    assert main(["trace", "check", str(tmp_path / "x")]) == 2
    assert is_one_sentence(capsys.readouterr().err)


def test_checking_several_files_ends_with_their_sum(tmp_path, capsys):
    write(tmp_path, "b.jsonl", "hello")
    (tmp_path / "a.jsonl.gz").write_bytes(TRACE.read_bytes())
    assert main(["trace", "check", str(tmp_path / "a.jsonl.gz")]) == 0
    assert "files:" not in capsys.readouterr().out
    assert main(["trace", "check", *map(str, sorted(tmp_path.iterdir()))]) == 2
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "2 files: 1 without a fault, 1 not a trace"


def test_a_command_names_the_one_that_reads_the_file(tmp_path, capsys):
    assert main(["trace", "import", str(TRACE)]) == 2
    assert "it seems to be a trace, which `trace show` and `report` read" in capsys.readouterr().err
    assert main(["whatif", str(TRACE)]) == 2
    assert "it seems to be a trace" in capsys.readouterr().err
    assert main(["report", str(ASSETS / "models/smollm2-135m/dflash")]) == 2
    assert "`model doctor FOLDER`" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(40))
def test_damage_never_ends_in_anything_but_a_kind(seed, tmp_path):
    """Files that are cut and changed at random; names of columns and keys are hostile."""
    rng = np.random.default_rng(seed)
    path = tmp_path / f"x{rng.choice(['.json', '.jsonl', '.csv', '.parquet', ''])}"
    hostile = pd.DataFrame({"\x1b[31m\n=1": [1], "<b>": [2]})
    source = [
        TRACE.read_bytes(), json.dumps(VLLM).encode(), table_bytes(table(), PARQUET),
        (ASSETS / "collected/fibonacci.safetensors").read_bytes()[:100_000],
        table_bytes(hostile, PARQUET), json.dumps({"format": ["x"], "__metadata__": 3}).encode(),
        b"[" * 100_000, json.dumps(asdict(read_served(write(tmp_path, "v.json", VLLM)))).encode(),
    ][seed % 8]  # fmt: skip
    data = bytearray(source[: int(rng.integers(1, len(source) + 1))])
    for at in rng.integers(0, len(data), 4):
        data[at] = rng.integers(0, 256)
    said = str(kind_of(write(tmp_path, path.name, bytes(data))))
    assert said and not {"\n", "\x1b"} & set(said)
    assert not {"\n", "\x1b"} & set(str(kind_of(write(tmp_path, path.name, source))))
