"""Commands that fill a folder: killed after something was finished they go on, and two at once do
not mix."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pandas as pd
import pytest
from safetensors import safe_open

from app import cli
from core.files import replacing
from core.journal import alone
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests import ROOT
from tests.helpers import stopped
from tests.helpers.fakes import make_header, make_run
from tests.helpers.toys_on_disk import save_toys

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    save_toys(folder)
    lines = [{"prompt": f"Say {number} words about ships."} for number in range(3)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "traces").mkdir()
    for seed in range(3):
        run = Trace(make_header(str(seed)), tuple(make_run(3, 4)), {})
        write_trace(folder / "traces" / f"{seed}.jsonl", run)
    return folder


Ask = Callable[[object], bool]


@pytest.fixture(scope="module")
def process() -> Iterator[Ask]:
    """Starts a command that stands still when it has kept so many things, and kills it (None)."""
    command = [sys.executable, "-m", "tests.helpers.stopped"]
    with Popen(command, cwd=ROOT, text=True, stdin=PIPE, stdout=PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        sent, told = server.stdin, server.stdout

        def ask(what: object) -> bool:
            print(json.dumps(what), file=sent, flush=True)
            return json.loads(told.readline())

        yield ask
        sent.close()


MODEL = "--model {toys}/target --device cpu --prompts {toys}/prompts.jsonl"
DRAFTER = "--drafter {toys}/drafter"
CASES = {  # a command line without --out, and how many things it keeps until it stops, each time
    "collect": (f"collect dflash {MODEL} {DRAFTER} --max-new-tokens 20", (7,)),
    "calibrate": (
        f"calibrate dflash {MODEL} {DRAFTER} --anchors 6 --continuations 2 --max-new-tokens 8",
        (4,),
    ),
    "grid run": (
        f"grid run --methods ar dflash --budget 4 {MODEL} {DRAFTER} --max-new-tokens 8",
        (3,),
    ),
    "grid table": (
        f"grid table --methods ar dflash --budget 4 {MODEL} {DRAFTER} --max-new-tokens 8 "
        "--time-every 0 --temperature 0",
        (4,),
    ),
    "model graph": ("model graph --prompts {toys}/prompts.jsonl --length 16", (2,)),
    "trace pack": ("trace pack {toys}/traces", (2,)),
    "train": (  # in its text, and in its fit after the checkpoint of step 100
        f"train dflash {MODEL} --temperature 0 --batch 1 --minutes 2 --draft-layers 1 "
        "--block-size 4 --target-layers 0 1 --sequences 1 --anchors 4",
        (4, 5),
    ),
}

ANEW = {"trace pack"}  # begins anew: it takes seconds


def contents(out: Path) -> dict[str, object]:
    """Give what all files hold but for times and random names."""
    return {
        str(path.relative_to(out)): _content(path)
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def _content(path: Path) -> object:
    if path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            about = {k: re.sub(r'"created": *"[^"]*"', "", v) for k, v in file.metadata().items()}
            names = sorted(file.keys())
            return about, names, [file.get_tensor(name).double().tolist() for name in names]
    if path.name.endswith(".jsonl.gz"):
        trace = read_trace(path)
        return trace.complete, [(r.draft.tokens.tolist(), r.committed) for r in trace.rounds]
    if path.name == "results.parquet":
        return pd.read_parquet(path)[["run", "tau", "tokens"]].to_dict()
    return "a page" if path.suffix == ".html" else path.read_bytes()


def places(out: Path) -> dict[Path, tuple[int, int]]:
    """Which files lie there, as they were written."""
    found = ((path, path.stat()) for path in out.rglob("*") if path.is_file())
    return {path: (at.st_ino, at.st_mtime_ns) for path, at in found}


def call(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The exit code, and how many things were kept."""
    kept, real = [], os.fsync
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda file: (kept.append(file), real(file)))
        for toy in stopped.toys():
            patched.setattr(*toy)
        return cli.main(words), len(kept)


@pytest.mark.parametrize("name", CASES)
def test_killed_it_goes_on_and_two_do_not_mix(toys, process, tmp_path, monkeypatch, capsys, name):
    out, whole = tmp_path / "out", tmp_path / "whole"
    line, stops = CASES[name]
    words = [*line.format(toys=toys).split(), "--out"]
    code, most = call([*words, str(whole)], monkeypatch)
    assert code == 0
    for after in stops:
        assert process(([*words, str(out)], after)), "it stands still"
        before = places(out)
        capsys.readouterr()
        assert call([*words, str(out)], monkeypatch)[0] == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert re.search(r"another \w+ is at work in ", said) and len(said) < 300
        assert places(out) == before
        assert not process(None)
    code, kept = call([*words, str(out)], monkeypatch)
    assert code == 0
    assert name in ANEW or kept <= most - sum(stops) + 1  # one: a note of the settings
    assert contents(out) == contents(whole)


@pytest.mark.parametrize("name", ["collect", "calibrate", "model graph", "trace pack"])
def test_ctrl_c_says_that_the_same_command_continues(toys, tmp_path, monkeypatch, capsys, name):
    def pressed(_: int) -> None:
        raise KeyboardInterrupt

    for toy in stopped.toys():
        monkeypatch.setattr(*toy)
    monkeypatch.setattr(os, "fsync", pressed)
    out = tmp_path / "out"
    assert cli.main([*CASES[name][0].format(toys=toys).split(), "--out", str(out)]) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"draftscope: stopped; the same command continues from {out}"


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ("report {run} --to csv parquet json --html", "folder"),
        ("advise {run} --cost {cost}", "folder"),
        ("model export medusa", "folder"),
        ("trace export {run} --to csv", "rounds.csv"),
    ],
)
def test_one_output_has_one_writer_and_no_lock_stays(call, tmp_path, words, out):
    """While another process holds it nothing is written; then all of it is."""
    run = tmp_path / "run.jsonl"
    write_trace(run, Trace(make_header("why?", "ddtree"), tuple(make_run(4)), {}))
    (tmp_path / "t.csv").write_text("batch,tokens,ms\n1,1,10\n1,2,11\n1,8,14\n")
    named = words.format(run=run, cost=tmp_path / "t.csv")
    place = tmp_path / out
    held_there = alone(place, "x") if out == "folder" else replacing(place)
    with held_there as unfinished:
        before = sorted(tmp_path.rglob("*"))
        code, _, said = call(*named.split(), "--out", place)
        assert code == 2 and "another " in said.splitlines()[-1]
        assert sorted(tmp_path.rglob("*")) == before
        if unfinished is not None:
            unfinished.write_bytes(b"")
    assert call(*named.split(), "--out", place)[0] == 0
    there = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert len(there) > 1 and not any(name == "lock" or name.endswith(".tmp") for name in there)


@pytest.mark.skipif(sys.platform == "win32", reason="its devices have no place in folders")
def test_a_device_is_written_and_never_replaced(call, tmp_path):
    (tmp_path / "null").symlink_to("/dev/null")
    run = GOLDEN / "trace-v1-paths.jsonl"
    assert call("trace", "export", run, "--to", "csv", "--out", tmp_path / "null")[0] == 0
    assert (tmp_path / "null").is_char_device() and len(list(tmp_path.iterdir())) == 1
    code, _, said = call("trace", "export", run, "--to", "csv", "--out", "/dev/full")
    assert code == 2 and "No space left" in said
