"""``denoise`` and ``model graph`` on a toy language; what a bad request gets."""

import json
import os
import random

import pytest

from app.cli import main
from core.diffusion import models
from core.diffusion.graph_files import read_graph, write_graph
from core.diffusion.nfe import denoised_tokens
from core.traces.reader import read_trace
from tests.helpers.diffusion_toys import chain, grown, toy_language


@pytest.fixture
def language(monkeypatch):
    made = toy_language()
    monkeypatch.setattr(models, "load_diffusion", lambda *_, **__: made)
    return made


@pytest.fixture
def graph(tmp_path):
    write_graph(tmp_path / "graph.json", chain(4))
    return tmp_path / "graph.json"


SHORT = ["--length", "16"]


def told(capsys, *words):
    """One JSON line of a run that succeeds."""
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_spiffy_writes_the_same_text_in_fewer_calls(capsys, language, graph):
    plain = told(capsys, "denoise", "--prompt", "hello", *SHORT)
    spiffy = told(capsys, "denoise", "--prompt", "hello", *SHORT, "--spiffy", str(graph))
    assert spiffy["token_ids"] == plain["token_ids"] and spiffy["text"] == plain["text"]
    assert plain["nfe"] == plain["plain_nfe"] == spiffy["plain_nfe"] == 16 > spiffy["nfe"]
    assert spiffy["nfe_speedup"] == 16 / spiffy["nfe"]
    assert [b["plain_nfe"] for b in spiffy["blocks"]] == [8, 8]
    assert sum(level["accepted"] for level in spiffy["levels"]) == 16 - spiffy["nfe"]


def test_ahead_is_the_models_own_unless_it_is_given(capsys, language):
    language.ahead = 1.0
    left = told(capsys, "denoise", "--prompt", "hello", *SHORT)
    free = told(capsys, "denoise", "--prompt", "hello", *SHORT, "--ahead", "0")
    assert (left["ahead"], free["ahead"]) == (1.0, 0.0)
    assert left["token_ids"] != free["token_ids"]


def test_the_report_names_calls_levels_blocks_and_stages(capsys, language, graph):
    assert main(["denoise", "--prompt", "hello", *SHORT, "--spiffy", str(graph)]) == 0
    out = capsys.readouterr().out
    for word in ("model calls (NFE)", "plain calls", "NFE speedup", "level", "block", "verify"):
        assert word in out


def test_a_trace_of_a_run_reads_back_with_its_texts(capsys, language, graph, tmp_path):
    path = tmp_path / "run.jsonl.gz"
    words = ["denoise", "--prompt", "hi", *SHORT, "--spiffy", str(graph), "--trace", str(path)]
    found = told(capsys, *words)
    trace = read_trace(path)
    assert trace.complete and trace.header.method == "spiffy"
    assert denoised_tokens(trace.rounds) == found["token_ids"]
    assert trace.footer["tau"] == found["nfe_speedup"]
    assert trace.header.settings["graph"]["formulas"][0] == [[1, 1]]
    assert trace.rounds[0].text(found["token_ids"][0]) == f"<{found['token_ids'][0]}>"
    assert main(["trace", "check", str(path)]) == 0
    assert main(["trace", "show", str(path)]) == 0
    assert main(["trace", "show", str(path), "--round", "1"]) == 0


def test_the_table_compares_real_runs_with_what_a_plain_run_foretells(
    capsys, language, graph, tmp_path
):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\ntwo two\nthree\n")
    words = ["denoise", "--prompts", str(prompts), *SHORT, "--table", "--graphs", str(graph)]
    assert main(words) == 0
    assert "3 of 3" in capsys.readouterr().out
    cells = told(capsys, *words, "--real", "2", "--paces", "k1", "t0.3")["cells"]
    assert [cell["pace"] for cell in cells] == ["k1", "t0.3"]
    for cell in cells:
        assert cell["really_run"] == cell["identical"] == cell["as_foretold"] == 2
        assert cell["nfe_speedup"] == cell["plain_nfe"] / cell["nfe"] > 1
    assert cells[0]["plain_nfe"] == 48


def test_the_table_of_a_target_that_is_not_exact_counts_its_divergences(
    capsys, monkeypatch, graph, tmp_path
):
    monkeypatch.setattr(models, "load_diffusion", lambda *_, **__: toy_language(drift=1.0))
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(f"prompt {n}" for n in range(8)))
    words = ["denoise", "--prompts", str(prompts), *SHORT, "--table", "--graphs", str(graph)]
    cells = told(capsys, *words, "--paces", "k1")["cells"]
    assert cells[0]["identical"] < cells[0]["really_run"] == 8
    assert cells[0]["parted_tokens"] >= 8 - cells[0]["identical"]
    assert main([*words, "--paces", "k1"]) == 0
    assert f"{8 - cells[0]['identical']} of 8 texts differ from plain denoising's" in " ".join(
        capsys.readouterr().out.split()
    )


def test_calibration_writes_readable_graphs_that_the_next_command_takes(capsys, language, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(f"prompt number {n}" for n in range(5)))
    words = ["model", "graph", "--out", str(tmp_path / "g"), "--prompts", str(prompts), *SHORT]
    assert main([*words, "--budget", "3", "5"]) == 0
    calls = language.target.forwards
    found = read_graph(tmp_path / "g" / "k1-d3.json")
    assert len(found) == 3 and found.provenance["prompts"] == 5
    assert found.provenance["score"] == "degree-1" and len(found.provenance["counts"]) == 3
    assert main([*words, "--budget", "3", "--score", "total"]) == 0
    assert main([*words, "--budget", "3", "--score", "degree-0", "--keep", "8"]) == 0
    assert read_graph(tmp_path / "g" / "k1-d3.json").provenance["kept"] == 8
    assert language.target.forwards == calls, "the counts were kept"
    capsys.readouterr()
    spiffy = told(
        capsys, "denoise", "--prompt", "x", *SHORT, "--spiffy", str(tmp_path / "g" / "k1-d5.json")
    )
    assert spiffy["nfe"] < 16


def test_counts_that_are_kept_survive_a_disk_that_is_full(language, tmp_path, monkeypatch, capsys):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(f"prompt number {n}" for n in range(3)))
    words = ["model", "graph", "--out", str(tmp_path / "g"), "--prompts", str(prompts), *SHORT]
    assert main(words) == 0
    (kept,) = (tmp_path / "g").glob("collected-*.jsonl")
    before = kept.read_text()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main([*words, "--count", "2"]) == 2 and "No space left" in capsys.readouterr().err
    assert kept.read_text() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--spiffy", "nothing.json"], "cannot be read"),
        (["--spiffy", "0"], "1 to"),
        (["--spiffy", "7"], "model graph"),
        (["--tokens-per-step", "0"], "tokens per step"),
        (["--threshold", "1.5"], "threshold"),
        (["--length", "17", "--block", "8"], "multiple"),
        (["--block", "5"], "multiple"),
        (["--temperature", "-1"], "temperature"),
        (["--ahead", "1.2"], "ahead must be 0 to 1"),
        (["--tokens-per-step", "2", "--threshold", "0.9"], "name either"),
        (["--paces", "x3"], "must be a pace"),
    ],
)
def test_a_bad_request_is_one_sentence_and_exit_code_2(capsys, language, words, said):
    assert main(["denoise", "--prompt", "hello", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lookahead", "0"], "--lookahead"),
        (["--budget", "0"], "--budget"),
        (["--count", "0"], "--count"),
        (["--keep", "0"], "--keep"),
        (["--score", "best"], "--score"),
    ],
)
def test_a_bad_calibration_is_one_sentence(capsys, language, tmp_path, words, said):
    prompts = tmp_path / "p.txt"
    prompts.write_text("one\n")
    assert main(["model", "graph", "--out", str(tmp_path), "--prompts", str(prompts), *words]) == 2
    assert said in capsys.readouterr().err


# ── graph files ──────────────────────────────────────────────────────────────────────────────────


def test_a_graph_file_reads_back_as_it_was(tmp_path):
    for seed in range(20):
        graph = grown(random.Random(seed), 8, 1 + seed % 2)
        write_graph(tmp_path / "g.json", graph)
        again = read_graph(tmp_path / "g.json")
        assert (again.formulas, again.pace) == (graph.formulas, graph.pace)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"version": 2},
        {"version": True},
        {"pace": {"tokens": 0}},
        {"pace": {"tokens": 1, "threshold": 0.9}},
        {"pace": {"threshold": "0.9"}},
        {"pace": None},
        {"formulas": []},
        {"formulas": [[]]},
        {"formulas": [[[1, 1]], [[1, 1]]]},
        {"formulas": [[[1, 1], [1, 2]]]},
        {"formulas": [[[1, 1], [2, 1]]]},
        {"formulas": [[[0, 1]]]},
        {"formulas": [[[1, 1.0]]]},
        {"formulas": [[[1, True]]]},
        {"formulas": [[[1, 1, 1]]]},
        {"formulas": [[[1 << 40, 1]]]},
        {"formulas": [[[1, 1 << 40]]]},
        {"formulas": [[[n, 1]] for n in range(1, 200)]},
        {"formulas": "c11"},
        {"provenance": []},
    ],
)
def test_a_file_that_is_no_draft_graph_is_one_sentence(capsys, language, graph, change):
    value = json.loads(graph.read_text()) | change
    graph.write_text(json.dumps(value))
    assert main(["denoise", "--prompt", "hello", "--spiffy", str(graph)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_is_not_json_is_one_sentence(capsys, language, graph):
    for text in ("", "{", "[" * 100_000, "null"):
        graph.write_text(text)
        assert main(["denoise", "--prompt", "hello", "--spiffy", str(graph)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
