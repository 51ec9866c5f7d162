"""The command line: what it prints, how it ends, and that nothing bad ends in a traceback.

Most tests call ``main`` in this process on a random byte-level model: it writes every byte there
is, escapes included. Starting time, signals and pipes need a process of their own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from app.terminal import FittingTable, GrowingText, bar
from app.trace_log import nth_path
from core.methods.names import METHODS
from core.methods.registry import listed
from core.models import embedded
from core.models.presets import shipped_presets
from core.rounds.draft import MAX_BUDGET
from core.traces.reader import read_trace
from core.visible import flowing
from tests import ROOT
from tests.helpers.processes import start
from tests.helpers.sentences import is_one_sentence
from tests.helpers.toys_on_disk import options_for

GOLDEN = ROOT / "tests" / "golden" / "trace-v1.jsonl"
ESCAPES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def no_more_than_progress(err: str) -> bool:
    """A machine that is slow enough is told that a file is being read."""
    return all(line.startswith("reading ") for line in err.splitlines())


# ── what is there ────────────────────────────────────────────────────────────────────────────────


def test_what_goes_into_a_file_gets_there_while_a_bar_shows(toy, tmp_path):
    """A terminal for stderr and a file for stdout: a bar must not take the answers."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    (tmp_path / "questions.txt").write_text("hi\nho\n")
    words = ("run", "ar", "--prompts", tmp_path / "questions.txt", "--max-new-tokens", 4, "--json")
    command = [sys.executable, "-m", "app", *map(str, (*words, *toy[:2], *toy[4:]))]
    with (tmp_path / "answers.jsonl").open("w") as answers:
        running = subprocess.Popen(command, cwd=ROOT, stdout=answers, stderr=theirs)
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal says that its last writer has gone
            while some := os.read(ours, 4096):
                shown += some
    os.close(ours)
    assert running.wait() == 0 and b"\x1b" in shown, "there was no bar"
    lines = (tmp_path / "answers.jsonl").read_text().splitlines()
    assert [json.loads(line)["prompt"] for line in lines] == ["hi", "ho"]


def test_bytes_on_stdin_that_are_no_text_are_one_sentence(call, monkeypatch, toy):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "utf-8"))
    code, _, err = call("run", "ar", "--prompt", "-", *toy)
    assert code == 2 and is_one_sentence(err) and "UTF-8" in err


def test_version(call):
    assert call("--version")[1].startswith("draftscope 0")


def test_doctor_ends_well_without_a_target(call, monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(tmp_path / "not" / "there"))
    code, out, _ = call("model", "doctor")
    assert code == 0
    assert "torch 2" in out
    assert "python -m app model fetch" in out
    for name, method in listed().items():
        lines = out[re.search(rf"^  {name} · ", out, re.M).start() :].splitlines()
        for option, line in zip(method.all_options, lines[1:], strict=False):
            assert f"{option.name}={option.default} " in line and option.help in line
            assert option.range is None or str(option.range) in line


def test_doctor_has_one_verdict_on_a_target_that_does_not_load(call, monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(tmp_path))
    folder = embedded.embedded_path()
    folder.mkdir(parents=True)
    for name in ("draftscope.json", "config.json", "model.safetensors"):
        (folder / name).write_text("{}")
    code, out, _ = call("model", "doctor")
    assert "  in it: models 6 bytes; what is removed" in out
    (line,) = re.findall(rf"^  target {embedded.NAME}: .*", out, re.M)
    assert code == 1 and "cannot be loaded" in line and "ready" not in line
    assert f"remove {folder}" in out[out.index("\nbroken\n") :]


# ── run ──────────────────────────────────────────────────────────────────────────────────────────


def test_run_streams_the_text_and_ends_with_a_table(call, toy):
    code, out, err = call("run", "ddtree", "--prompt", "hi", "--max-new-tokens", 20, *toy)
    assert code == 0, err
    for word in ("tokens", "rounds", "τ", "tokens/s", "verify", "acceptance length", "█"):
        assert word in out
    assert not ESCAPES.search(out)


def test_run_json_is_one_object_and_all_methods_agree(call, toy):
    texts, methods = [], METHODS.keys() - {"gemma4-assistant"}  # for a Gemma 4 target alone
    for method in methods:
        words = ("--prompt", "hi", "--max-new-tokens", 24, "--temperature", 1, "--json")
        code, out, err = call("run", method, *words, "--budget", 9, *options_for(toy, method))
        assert code == 0, err
        (line,) = out.splitlines()
        done = json.loads(line)
        assert len(done["token_ids"]) == done["tokens"] == 24
        assert done["rounds"] == len(done["acceptance_lengths"])
        assert done["tau"] == pytest.approx(sum(done["acceptance_lengths"]) / done["rounds"])
        assert set(done["stage_seconds"]) == {"prefill", "draft", "build", "verify", "commit"}
        assert done["seconds"] >= sum(done["stage_seconds"].values()) * 0.99
        assert done["prompt"] == "hi" and done["tokens_per_second"] > 0
        texts.append((done["token_ids"], done["text"]))
    assert len(texts) == len(methods) and all(text == texts[0] for text in texts)


def test_trace_holds_the_run_and_the_probe_changes_nothing(call, toy, tmp_path):
    ids = []
    for name, more in (("a.jsonl", []), ("b.jsonl.gz", ["--no-probe"])):
        path = tmp_path / name
        words = ("--prompt", "hi", "--max-new-tokens", 16, "--json", "--trace", path, *more)
        code, out, _ = call("run", "ddtree", *words, *toy)
        assert code == 0
        done, trace = json.loads(out), read_trace(path)
        assert trace.complete and trace.footer["text"] == done["text"]
        assert len(trace.rounds) == done["rounds"]
        assert (trace.rounds[0].target_probs is not None) == (not more)
        ids.append(done["token_ids"])
        assert call("trace", "check", path)[0] == 0
        code, tree, _ = call("trace", "show", path, "--round", 1)
        assert code == 0 and "●" in tree and not ESCAPES.search(tree)
        code, listing, _ = call("trace", "show", path)
        assert code == 0 and "complete" in listing and not ESCAPES.search(listing)
    assert ids[0] == ids[1]


def test_several_prompts_a_line_each_and_a_total(call, toy, tmp_path):
    prompts = tmp_path / "p.txt"
    prompts.write_text("one\n\n two \n")
    trace = tmp_path / "t.jsonl.gz"
    words = ("--prompts", prompts, "--max-new-tokens", 5, "--trace", trace)
    code, out, err = call("run", "ddtree", *words, *toy)
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) == 4 and lines[-1].startswith("2 prompts · 10 tokens")
    assert not ESCAPES.search(out)
    for index, text in ((1, "one"), (2, "two")):
        assert read_trace(tmp_path / f"t-{index}.jsonl.gz").header.prompt_text == text


def test_a_prompt_that_fails_leaves_the_others(call, toy, tmp_path):
    prompts = tmp_path / "p.jsonl"
    long = {"prompt": "x" * 5000}
    prompts.write_text("\n".join(map(json.dumps, [{"prompt": "a"}, long, {"prompt": "\u2028b"}])))
    words = ("--prompts", prompts, "--max-new-tokens", 5, "--json")
    code, out, err = call("run", "ddtree", *words, *toy)
    assert code == 2 and is_one_sentence(err)
    assert "do not fit the model's context" in err
    done = [json.loads(line) for line in out.splitlines()]
    assert [d["prompt"] for d in done] == ["a", "x" * 5000, "\u2028b"]
    assert "error" in done[1] and len(done[2]["token_ids"]) == 5


def test_a_failing_run_leaves_an_older_trace_alone(call, toy, tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_bytes(GOLDEN.read_bytes())
    words = ("--prompt", "x" * 5000, "--trace", path)
    code, _, err = call("run", "ddtree", *words, *toy)
    assert code == 2 and is_one_sentence(err)
    assert path.read_bytes() == GOLDEN.read_bytes()


# ── bad input ────────────────────────────────────────────────────────────────────────────────────

BAD = [
    "frobnicate",
    "run ddtree {x} --bugdet 3",
    "run ddtree {x} --budg 3",
    "run {x}",
    "run eagle {x}",
    "run ddtree",
    "run ddtree --prompt ' '",
    "run ddtree --prompt '\udcff'",
    "run ddtree {x} --prompts x.txt",
    "run ddtree {x} --budget 0",
    "run ddtree {x} --budget 1025",
    "run ddtree {x} --budget many",
    "run ddtree {x} --budget {huge}",
    "run ddtree {x} --max-new-tokens 0",
    "run ddtree {x} --temperature -1",
    "run ddtree {x} --temperature nan",
    "run ddtree {x} --temperature inf",
    "run ddtree {x} --top-p 0",
    "run ddtree {x} --top-p nan",
    "run ddtree {x} --top-k -1",
    "run ddtree --prompts /nowhere.jsonl",
    "run ddtree --prompts /",
    "run ddtree --prompts {python}",
    "run ddtree --prompts /dev/null",
    "run ddtree --prompts {prompts}",
    "run ddtree {x} --trace {empty}/precious.txt",
    "run ddtree {x} --trace {prompts}",
    "denoise {x} --trace {empty}/precious.txt",
    "denoise {x} --trace {prompts}",
    "run ddtree {x} --trace {folder}",
    "run ddtree {x} --trace {prompts}/x.jsonl",
    "run ddtree {x} --drafter /nowhere",
    "run ddtree {x} --drafter /nope",
    "run ddtree {x} --drafter nope",
    "studio --port 0 --drafter /nope",
    "model fetch nope",
    "model fetch {empty}",
    "model doctor nope",
    "model doctor {empty}",
    "model ngram {prompts} --out {empty}/x.safetensors --min-count 99999999999999999999",
    "denoise {x} --length 0",
    "denoise {x} --length -5",
    "denoise {x} --length 99999999",
    "denoise {x} --table --real -1",
    "run dflash+opt-tree {x} {toys} --set gain=nan",
    "model export --out /proc/x --drafter {drafter}",
    "run ar {x} --model {preset}",
    "run ar {x} --model {target} --device tpu",
    "run ddtree {x} --model {target} --drafter {empty}",
    "run ddtree {x} --model {target} --drafter {broken}",
    "run ddtree {x} --model {target}",
    "run ar {x} --model {empty}",
    "run ar {x} --model {broken}",
    "run ar {x} --model /nowhere/at/all",
    "run ar {x} --model {target} --device toaster",
    "run ar {x} --model {target} --device cuda:99",
    "run ar {x} --model {target} --device meta",
    "trace show",
    "trace show /nowhere.jsonl",
    "trace show /",
    "trace show {python}",
    "trace show {golden} --round 999",
    "trace show {golden} --round 0",
    "trace check /dev/null",
    "trace check {prompts}",
    "run ddtree {x} --methods dflash",
    "run dart+ {x}",
    "run dart+magic {x}",
    "run magic+chain {x}",
    "run dart+chain+chain {x}",
    "run /nowhere/method.py {x}",
    "run {empty}/x.py {x}",
    "run {nothing} {x}",
    "run ddtree {x} --set temperature",
    "run ddtree {x} --set =3",
    "run ddtree {x} --set beam=3",
    "run ar {x} --set temperature=1",
    "run treeflash {x} --set candidates=many",
    "run treeflash {x} --set candidates=2.5",
    "run dart {x} --set ngram_at_first=maybe",
    "run ddtree {x} {toys} --set temperature=0",
    "run dflash+continuity {x} {toys}",
    "run dflash+continuity {x} {toys} --set ngram={prompts}",
    "run treeflash {x} {toys}",
    "run dart {x} --model {target}",
    "audit ddtree --set beam=3",
    "audit ddtree --methods magic",
    "bench ddtree dflash --set beam=3",
    "bench treeflash --set siblings=x",
    "model export eagle --out {empty}/e",
    "model export --out {target}",
    "model export --out {empty}/e --model other/model",
    "model export dart --out {empty}/e --drafter {drafter}",
    "denoise {x} --table --trace {empty}/t.jsonl",
    "denoise {x} --table --spiffy 5",
    "model graph --out {empty} --prompts x.txt --count -3",
    "audit ddtree --budget 4 0",
    "audit magic",
    "bench --repeats 0",
    "bench ddtree --json --tables latex",
    "report {golden} --tables tex",
    "bench --budget 5000",
    "bench magic",
    "bench llama.cpp --model {target}",
    "bench llama.cpp --temperature 1",
    "bench llama.cpp --device cuda:0",
    "run llama.cpp {x}",
    "grid run",
    "grid run --out {prompts}/x {x}",
    "grid run --out {empty} {x} --budget 4 0",
    "grid run --out {empty} {x} --max-new-tokens 0",
    "grid run magic --out {empty} {x}",
    "grid run --out {empty} {x} --seed 999999999999999999999999999999",
    "grid run ddtree --out {empty} {x} --set beam=3",
    "grid run --out {empty} {x} --drafter /nowhere",
    "grid run --out {target} {x}",
    "grid run --out {empty} {x} --workers 2",
    "grid run --out {empty} {x} --ray local --workers 0",
    "grid run --out {empty} {x} --ray local --device cuda:1",
    "grid run ar --out {empty} {x} --model {broken}",
    "grid table",
    "grid table ar --out {prompts}/x {x}",
    "grid table magic --out {empty} {x}",
    "grid table ar --out {empty} {x} --temperature -1",
    "studio --host 203.0.113.7 --port 0",
    "studio --port 70000",
    "--port http",
]


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(call, toy, tmp_path, line):
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.jsonl").mkdir()
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (broken / name).write_bytes((Path(toy[1]) / name).read_bytes())
    (broken / "model.safetensors").write_bytes(b"\xff" * 100)
    texts = {
        "prompts.jsonl": "not JSON\n",
        "nothing.py": "METHOD = 3\n",
        "preset.toml": '[x]\ntarget = "a/b"\nbudgets = { ddtree = 5000 }\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    places = {name.split(".")[0]: tmp_path / name for name in (*texts, "empty", "folder.jsonl")}
    places |= {"broken": broken, "target": toy[1], "drafter": toy[3], "golden": GOLDEN}
    places |= {"toys": f"--model {toy[1]} --drafter {toy[3]}", "x": "--prompt x"}
    places |= {"python": sys.executable, "huge": "9" * 5000}
    code, out, err = call(*shlex.split(line.format_map(places)))
    assert code == 2, err
    assert is_one_sentence(err), err
    assert out == ""
    assert (tmp_path / "prompts.jsonl").read_text() == "not JSON\n"


SAID = {
    "run ar --prompt x --drafter /nope": "there is no folder /nope",
    "run ar --prompt x --trace x.txt": "must be named NAME.jsonl or NAME.jsonl.gz",
    "denoise --prompt x --length 0": "the length in tokens must be 1 to 16384, not 0",
    "denoise --prompt x --length 99999999": "the length in tokens must be 1 to 16384",
    "model fetch nope": "there is no preset, folder or model 'nope'",
}


@pytest.mark.parametrize("line", SAID)
def test_bad_input_is_called_by_its_name(call, line):
    code, _, err = call(*line.split())
    assert code == 2 and SAID[line] in err


def test_the_shipped_presets_are_within_range():
    assert all(1 <= b <= MAX_BUDGET for p in shipped_presets().values() for b in p.budgets.values())


def test_a_preset_out_of_range_names_its_file(call, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('[x]\ntarget = "a/b"\nbudgets = { ddtree = 5000 }\n')
    _, _, err = call("run", "ar", "--prompt", "x", "--model", path)
    assert f"{path}, [x]: budgets.ddtree must be a whole number of at most 1024, not 5000" in err


@pytest.mark.parametrize("device", ["mps", "tpu"])
def test_another_device_is_refused_with_those_there_are(call, toy, device):
    code, _, err = call("run", "ar", "--prompt", "x", *toy[:2], "--device", device)
    assert code == 2 and "choose one of auto, cpu" in err and len(err.splitlines()[-1]) < 100


def test_traces_of_several_prompts_replace_no_other_file(call, tmp_path, monkeypatch):
    monkeypatch.setattr("app.commands.common.load_engine", lambda *_: pytest.fail("too late"))
    (tmp_path / "p.txt").write_text("one\ntwo\n")
    precious = tmp_path / "t-2.jsonl"
    precious.write_text('{"prompt": "mine"}\n')
    words = ("--prompts", tmp_path / "p.txt", "--trace", tmp_path / "t.jsonl")
    code, _, err = call("run", "ar", *words)
    assert code == 2 and "t-2.jsonl exists and is not a trace" in err
    assert precious.read_text() == '{"prompt": "mine"}\n'


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_sentence_from_the_first_line_on(call, toy, tmp_path):
    (tmp_path / "t.jsonl").symlink_to("/dev/full")
    words = ("--prompt", "x", "--max-new-tokens", 4, "--trace", tmp_path / "t.jsonl")
    code, _, err = call("run", "ar", *words, *toy)
    assert code == 2 and is_one_sentence(err) and "No space left" in err


def test_a_cache_that_cannot_be_made_is_one_sentence(call, monkeypatch, tmp_path):
    """As under a home folder that can only be read."""
    (tmp_path / "home").write_text("no folder")
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(tmp_path / "home" / "cache"))
    code, _, err = call("model", "fetch")
    assert code == 2 and f"{tmp_path / 'home'}" in err
    assert is_one_sentence(err.splitlines()[-1] + "\n") and "cannot be used" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", ["trace show {0}", "trace check {0}", "trace export {0} --to csv --out -", ""]
)
def test_a_full_output_is_one_sentence(words):
    line = f"{sys.executable} -m app {words.format(GOLDEN) or '--help'} > /dev/full"
    done = subprocess.run(line, shell=True, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and is_one_sentence(done.stderr)
    assert "No space left" in done.stderr
    assert subprocess.run(f"{line} 2>&1", shell=True, cwd=ROOT).returncode == 2


def test_a_port_that_is_taken_and_a_host_that_is_not_there(call):
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", 0))
        mine.listen()
        port = mine.getsockname()[1]
        code, _, err = call("studio", "--port", port)
        assert code == 2 and f"port {port} is taken: choose another with --port" in err
        code, _, err = call("studio", "--host", "203.0.113.7", "--port", port)
        assert code == 2 and "cannot listen on 203.0.113.7: " in err and err.count("\n") == 1


def test_hostile_file_names_and_headers_reach_no_terminal(call, tmp_path):
    lines = GOLDEN.read_text().splitlines()
    head = json.loads(lines[0])
    evil = "\x1b]0;owned\x07\u202e\x9b31m"
    head |= {"method": evil, "prompt_text": evil, "model": {"name": evil}, "created": evil}
    path = tmp_path / "evil\x1b[31m.jsonl"
    path.write_text("\n".join([json.dumps(head), *lines[1:]]))
    for words in (
        ("trace", "show", path),
        ("trace", "check", path),
        ("trace", "show", path, "--round", 99),
    ):
        _, out, err = call(*words)
        assert not ESCAPES.search(out + err)


# ── how a process ends ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)],
                         ids=["int", "term"])  # fmt: skip
def test_a_signal_keeps_the_trace(toy, tmp_path, number, code):
    """Twice at once: as `timeout` sends SIGTERM to its child, and then to all of the group."""
    path = tmp_path / "stopped.jsonl.gz"
    words = ("--prompt", "hi", "--max-new-tokens", 4000, "--trace", path)
    process = start("run", "ddtree", *words, *toy)
    deadline = time.monotonic() + 120
    while not path.exists() or path.stat().st_size < 3_000:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    for _ in range(1 + (number == signal.SIGTERM)):
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.splitlines()[-1] == f"draftscope: stopped; {path} holds the rounds so far"
    trace = read_trace(path)
    assert trace.rounds and not trace.complete


def test_a_reader_that_goes_away_is_no_traceback(toy, tmp_path):
    long = tmp_path / "long.jsonl"
    lines = GOLDEN.read_text().splitlines()
    again = (json.dumps(json.loads(lines[1]) | {"index": n}) for n in range(3000))
    long.write_text("\n".join([lines[0], *again]))
    process = start("trace", "show", long)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert no_more_than_progress(process.stderr.read())
    assert process.wait(60) == 141


@pytest.mark.parametrize("words", [("trace", "show", GOLDEN), ("--version",), ("frobnicate",)])
def test_a_closed_stdout_is_a_reader_that_has_gone(words):
    line = " ".join([sys.executable, "-m", "app", *map(str, words), ">&-"])
    done = subprocess.run(line, shell=True, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if words[0] == "frobnicate":
        assert done.returncode == 2 and is_one_sentence(done.stderr)
    else:
        assert done.returncode == 141 and no_more_than_progress(done.stderr)


def test_a_closed_stderr_says_nothing_on_stdout():
    line = f"{sys.executable} -m app frobnicate 2>&-"
    done = subprocess.run(line, shell=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_ctrl_c_ends_the_studio_as_it_ends_everything(tmp_path):
    process = start("studio", "--port", 0, "--model", tmp_path)
    assert process.stdout is not None and "Ctrl-C" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err.splitlines()[-1] == "draftscope: stopped"


def test_a_poor_terminal_gets_escapes_not_exceptions():
    process = start("trace", "show", GOLDEN, env={"PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and no_more_than_progress(err)
    assert "\\u03c4" in out  # τ


def test_no_colour_in_a_pipe():
    out, _ = start("trace", "show", GOLDEN).communicate(timeout=60)
    assert "\x1b" not in out


# ── small parts ──────────────────────────────────────────────────────────────────────────────────


def test_growing_text_waits_for_half_characters(capsys):
    text = GrowingText(sys.stdout)
    for so_far in ("a", "a\ufffd", "aé\x1b", "aé\x1b\ufffd"):
        text.show(so_far)
    assert capsys.readouterr().out == "aé␛"
    text.show("aé\x1b\ufffd", final=True)
    assert capsys.readouterr().out == "\ufffd"


@given(st.lists(st.text("a \n\x1b\u0301é\u200d\u200c👩🔬\ufffd", max_size=3), max_size=6))
def test_growing_text_prints_what_the_whole_text_shows(pieces):
    out = io.StringIO()
    text, whole = GrowingText(out), ""
    for piece in pieces:
        text.show(whole := whole + piece)
    text.show(whole, final=True)
    assert out.getvalue() == flowing(whole)


def test_a_table_that_is_too_wide_goes_on_below_and_cuts_nothing():
    heads = ("method", "depth", "observed", "tested nodes", "a long share")
    rows = [("a name of many words", str(n), "12,345", "0.123", f"[0.{n}, 9.9]") for n in (1, 2)]
    out = Console(file=io.StringIO(), width=34)
    out.print(FittingTable(heads, rows, left=("method",)))
    assert [line.rstrip() for line in cast(io.StringIO, out.file).getvalue().splitlines()] == [
        "method        depth  observed",
        "a name of         1    12,345",
        "many words",
        "a name of         2    12,345",
        "many words",
        "",
        "                     tested",
        "method        depth   nodes",
        "a name of         1   0.123",
        "many words",
        "a name of         2   0.123",
        "many words",
        "",
        "                         a long",
        "method        depth       share",
        "a name of         1  [0.1, 9.9]",
        "many words",
        "a name of         2  [0.2, 9.9]",
        "many words",
    ]


def test_a_table_that_fits_is_as_rich_draws_it_without_asking_rich(monkeypatch):
    """Rich takes a millisecond a row: of 20,000 rounds fourteen seconds."""
    heads, rows = ("word", "τ", ""), [("漢字", "1.25", "x"), ("é", "12", "a b"), ("", "–", "")]
    table, asked = FittingTable(heads, rows, left=("word", "")), []

    def drawn(what: object) -> str:
        out = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
        out.print(what)
        return re.sub(r"\x1b\[\d*m", "", cast(io.StringIO, out.file).getvalue())

    wide = [
        2 + max(map(cell_len, (head, *cells))) for head, *cells in zip(heads, *rows, strict=True)
    ]
    expected = drawn(table._part(range(3), wide))
    monkeypatch.setattr(FittingTable, "_part", lambda *_: asked.append(1))
    assert drawn(table) == expected and expected.count("\n") == 4 and not asked


def test_bar_is_exact_to_an_eighth_and_shows_the_smallest():
    assert bar(8, 8, width=4) == "████"
    assert bar(3, 8, width=4) == "█▌"
    assert bar(1, 10_000, width=4) == "▏"
    assert bar(0, 8) == ""


def test_numbered_traces_keep_both_suffixes():
    assert nth_path(Path("x/run.jsonl.gz"), 3) == Path("x/run-3.jsonl.gz")
    assert nth_path(Path("run"), 1) == Path("run-1")
    assert nth_path(None, 1) is None
