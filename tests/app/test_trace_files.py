"""Traces given to the studio on the command line: found, named, listed; and nothing else opens."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.engines.partings import texts_at
from app import cli, trace_files
from app.studio.routes import run_line
from app.trace_files import TraceFile, TraceFiles, find_traces, trace_paths
from core.errors import UserError
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.traces.schema import Header, Trace
from core.traces.writer import TraceWriter, round_to_json, write_trace
from tests.helpers.fakes import FakeEngine, make_header, make_run

HOSTILE = "<img src=x onerror=window.__pwned=1>\x1b]0;owned\x07\u202e.jsonl"


def put(path: Path, header: Header | None = None, footer: dict[str, Any] | None = None) -> Path:
    write_trace(path, Trace(header or make_header(), tuple(make_run(3)), {} | (footer or {})))
    return path


def labels(found: TraceFiles) -> list[str]:
    return [file.label for file in found.files]


# ── what is found ────────────────────────────────────────────────────────────────────────────────


def test_files_and_folders_of_any_depth_sorted_by_name(tmp_path: Path):
    for name in ("s/traces/b-B128.jsonl.gz", "s/traces/b-B16.jsonl", "s/a.jsonl.gz", "one.jsonl"):
        put(tmp_path / name)
    (tmp_path / "s/sweep.json").write_text("{}")
    (tmp_path / "s/empty").mkdir()
    (tmp_path / "s/circle").symlink_to(tmp_path / "s")
    (tmp_path / "s/gone.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "s/pipe.jsonl")  # to open it would wait for ever
    found = find_traces([tmp_path / "s", tmp_path / "one.jsonl", tmp_path / "s/traces"])
    assert labels(found) == [
        "a.jsonl.gz", "one.jsonl", "traces/b-B16.jsonl", "traces/b-B128.jsonl.gz",
    ]  # fmt: skip
    assert found.found == 4 and found.note == ""
    numbered = [path.name for path in trace_paths([tmp_path / "s"])]  # of a report, too
    assert numbered == ["a.jsonl.gz", "b-B16.jsonl", "b-B128.jsonl.gz"]
    assert find_traces([]) == TraceFiles()


def test_a_folder_holds_the_same_traces_for_every_command(tmp_path: Path):
    (tmp_path / "runs" / "deep").mkdir(parents=True)
    for name in ("b.jsonl", "runs/a.jsonl.gz", "runs/deep/c.jsonl"):
        put(tmp_path / name)
    (tmp_path / "runs" / "journal.jsonl").write_text('{"done": 1}\n')
    listed = [file.path for file in find_traces([tmp_path]).files if opens(file)]
    assert sorted(trace_paths([tmp_path])) == sorted(listed)
    assert len(texts_at(tmp_path, None)) == len(listed) == 3


def opens(file: TraceFile) -> bool:
    try:
        return bool(file.header())
    except UserError:
        return False


def test_names_that_several_files_share_get_their_folders(tmp_path: Path):
    for name in ("x/s/t.jsonl", "y/s/t.jsonl", "y/s/u.jsonl"):
        put(tmp_path / name)
    found = find_traces([tmp_path / "x/s", tmp_path / "y/s"])
    assert labels(found) == ["u.jsonl", "x/s/t.jsonl", "y/s/t.jsonl"]


def test_no_more_are_listed_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trace_files, "MAX_FILES", 2)
    for number in (10, 9, 1):
        put(tmp_path / f"{number}.jsonl")
    found = find_traces([tmp_path])
    assert labels(found) == ["1.jsonl", "9.jsonl"]
    assert found.note == "the first 2 of 3 files, by name"


def test_a_path_without_a_trace_is_refused_in_a_sentence(tmp_path: Path):
    put(tmp_path / "good.jsonl")
    (tmp_path / "none").mkdir()
    (tmp_path / "none/x.jsonl").write_text("not JSON\n")
    (tmp_path / "empty.jsonl").touch()
    os.mkfifo(tmp_path / "pipe")
    refused = {
        "nowhere": "no file or folder", "none": "holds no trace", "none/x.jsonl": "not JSON",
        "empty.jsonl": "is empty", "pipe": "no file or folder", "x" * 300: "x",
        "good.jsonl/x": "no file or folder",
    }  # fmt: skip
    for name, sentence in refused.items():
        with pytest.raises(UserError, match=sentence):
            find_traces([tmp_path / "good.jsonl", tmp_path / name])


def test_the_command_refuses_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("app.commands.studio.check_drafter", lambda _: pytest.fail("went on"))
    assert cli.main(["studio", str(tmp_path / "nowhere.jsonl")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("draftscope: there is no file") and err.count("\n") == 1


def test_a_name_tells_nothing_of_the_path_and_stays(tmp_path: Path):
    path = put(tmp_path / "secret.jsonl")
    (one,), (again,) = find_traces([path]).files, find_traces([tmp_path]).files
    assert one.name == again.name and one.name.startswith("file-")
    assert "secret" not in one.name and set(one.name[5:]) <= set("0123456789abcdef")


# ── what the page is told ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good trace, a denoising one, one cut off, and some that are broken or hostile."""
    pytest.importorskip("gradio")
    asked = {"request": "chatcmpl-7", "tag": "nightly"}
    put(tmp_path / "good.jsonl.gz", make_header("why?", "ddtree", **asked))
    put(tmp_path / "plain.jsonl", make_header("what?", "denoise"))
    put(tmp_path / HOSTILE, make_header("<b>\x1b", "/home/ada/<i>mine.py", budget={"a": [1]}))
    cut = put(tmp_path / "cut.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_bytes(b"".join(cut[:-1]))
    (tmp_path / "later.jsonl").write_bytes(b"".join([*cut[:2], b"{broken}\n", *cut[2:]]))
    odd = json.dumps({"kind": "footer", "tau": "<b>", "rounds": []}).encode() + b"\n"
    (tmp_path / "odd.jsonl").write_bytes(b"".join([*cut[:-1], odd]))
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "x"}\n')
    (tmp_path / "zip.jsonl.gz").write_bytes(gzip.compress(b"x" * 99)[:-20])
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))  # nobody writes to them any more
    return tmp_path


def read(listed: Any, denoising: bool = False) -> dict[str, Any]:
    """The group once all is read; its files by label."""
    end = time.monotonic() + 60
    while (group := listed.group(denoising))[0]["reading"]:
        assert time.monotonic() < end
        time.sleep(0.01)
    return group[0] | {file["label"]: file for file in group[0]["files"]}


def test_every_file_is_listed_with_what_it_is_or_why_not(folder: Path):
    from app.studio.examples import HEADING, TraceList

    listed = TraceList(find_traces([folder]))
    group = read(listed)
    assert group["topic"] == HEADING and len(group["files"]) == 7
    tau = group["good.jsonl.gz"]["tau"]  # a request is found by the id that its server logged
    assert group["good.jsonl.gz"]["words"] == f"DDTree B 64 · τ {tau:.2f} · chatcmpl-7 · nightly"
    assert group["cut.jsonl"]["tau"] is group["odd.jsonl"]["tau"] is None
    assert group["good.jsonl.gz"]["prompt"] == "why?" and group["good.jsonl.gz"]["opens"]
    assert group["cut.jsonl"]["words"].endswith("interrupted") and group["cut.jsonl"]["opens"]
    assert "line 3 is not JSON" in group["later.jsonl"]["words"] and group["later.jsonl"]["opens"]
    assert "the rounds contradict the footer" in group["odd.jsonl"]["words"]
    for name in ("prompts.jsonl", "zip.jsonl.gz"):
        assert not group[name]["opens"] and name in group[name]["words"]
    denoised = read(listed, denoising=True)["files"]
    assert [file["words"] for file in denoised] == ["Plain denoising · 3 model calls"]


def test_hostile_names_and_headers_are_made_visible_and_no_path_is_shown(folder: Path):
    from app.studio.examples import TraceList

    shown = str(read(TraceList(find_traces([folder]))))
    assert "\x1b" not in shown and "\u202e" not in shown and "onerror" in shown
    assert str(folder) not in shown and "/home/ada" not in shown


# ── what opens ───────────────────────────────────────────────────────────────────────────────────


def asked(found: TraceFiles) -> tuple[Any, Any]:
    """The runs on view, and the routes of a page that lists these files."""
    from app.studio.examples import Examples, TraceList
    from app.studio.routes import Routes, named
    from app.studio.runs import Runs

    runs = Runs(FakeEngine())
    routes = Routes(runs, Examples(files=TraceList(found))).of_runs()
    return runs, {name: named(name, route) for name, route in routes.items()}


def test_only_listed_files_open_by_their_names(folder: Path):
    found = find_traces([folder / "good.jsonl.gz", folder / "cut.jsonl"])
    runs, ask = asked(found)
    topics = [group["topic"] for group in ask["examples"]({})["prompts"]]
    assert topics[:2] == ["From the command line", "chat"]
    assert [
        group["topic"] for group in asked(TraceFiles())[1]["examples"]({})["prompts"]
    ] == topics[1:]
    for file in found.files:
        run = runs.get(ask["example"]({"name": file.name})["ticket"])
        assert run is not None and len(run.rounds) == 3
    assert "ticket" in ask["example"]({"name": "chat-ar"})
    other = find_traces([folder / "later.jsonl"]).files[0].name
    paths = [str(folder / "good.jsonl.gz"), "good.jsonl.gz", "../good", str(found.files[0].path)]
    for name in (*paths, other, "", None, "file-0"):
        called = f" called {name}" if name else ""
        assert ask["example"]({"name": name}) == {"error": f"there is no example{called}"}


def test_a_listed_file_that_is_gone_or_broken_is_a_sentence(folder: Path):
    found = find_traces([folder])
    _, ask = asked(found)
    (folder / "good.jsonl.gz").unlink()
    names = {file.label: file.name for file in found.files}
    for label, sentence in (("good.jsonl.gz", "cannot be read"), ("later.jsonl", "line 3"),
                            ("prompts.jsonl", "not a Draftscope trace")):  # fmt: skip
        answer = ask["example"]({"name": names[label]})
        assert sentence in answer["error"] and str(folder) not in answer["error"]


def test_the_address_opens_the_only_file_unless_it_is_a_denoising_run(folder: Path):
    from app.studio.examples import address_end

    one = find_traces([folder / "good.jsonl.gz"])
    assert address_end(one) == f"/#trace={one.files[0].name}"
    for others in (find_traces([folder / "plain.jsonl"]), find_traces([folder]), None):
        assert address_end(others) == ""


# ── files that are being written ─────────────────────────────────────────────────────────────────


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch):
    """Looks follow each other at once, and no file grows old by itself."""
    examples = pytest.importorskip("app.studio.examples")
    monkeypatch.setattr(examples, "LOOK", 0.0)
    return examples


def wait(until: Any) -> None:
    end = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end
        time.sleep(0.01)


def same(some: Sequence[Round], others: Sequence[Round]) -> bool:
    return list(map(round_to_json, some)) == list(map(round_to_json, others))


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_a_trace_that_is_being_written_is_followed(tmp_path: Path, quick: Any, ending: str):
    path, (first, second, third) = tmp_path / f"t{ending}", make_run(3)
    writer = TraceWriter(path, make_header())
    writer.write(first)
    runs, ask = asked(find_traces([path]))
    run = runs.get(ask["example"]({"name": find_traces([path]).files[0].name})["ticket"])
    wait(lambda: len(run.rounds) == 1 and run.reading)
    assert run.state == "running" and run.news(0)["reading"] == "being written"
    assert run_line("t", run)["follows"]
    writer.write(second)
    wait(lambda: len(run.rounds) == 2)
    writer.write(third)
    writer.finish()
    wait(lambda: run.state != "running")
    assert run.state == "done" and same(run.rounds, read_trace(path).rounds)


def test_one_that_was_finished_a_moment_ago_is_not_followed(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path, make_header())
    for record in make_run(3):
        writer.write(record)
    writer.finish()
    runs, ask = asked(find_traces([path]))
    run = runs.get(ask["example"]({"name": find_traces([path]).files[0].name})["ticket"])
    wait(lambda: run.state != "running")
    assert run.state == "done" and len(run.rounds) == 3 and run.reading == ""


def test_one_that_nobody_looks_at_or_writes_to_is_not_followed_for_ever(
    tmp_path: Path, quick: Any, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path, make_header())
    writer.write(make_run(1)[0])
    runs, ask = asked(find_traces([path]))
    name = find_traces([path]).files[0].name
    stopped, old = (runs.get(ask["example"]({"name": name})["ticket"]) for _ in range(2))
    for run in (stopped, old):
        wait(lambda run=run: len(run.rounds) == 1)
    stopped.stop.set()
    wait(lambda: stopped.state == "stopped")
    assert old.state == "running"
    os.utime(path, (0, 0))
    wait(lambda: old.state == "stopped")
    assert len(old.rounds) == 1


def test_a_half_written_line_waits_for_its_other_half(tmp_path: Path, quick: Any):
    path = put(tmp_path / "t.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole[:-300])
    reader = iter(quick.OpenFile(path))
    found = [next(reader), next(reader)]
    path.write_bytes(whole)
    assert same([*found, *reader], read_trace(path).rounds)


def test_files_that_come_to_a_folder_are_listed(folder: Path, quick: Any):
    listed = quick.TraceList(find_traces([folder]))
    before = read(listed)
    assert before["grows"]
    writer = TraceWriter(folder / "new.jsonl.gz", make_header("new?", "ddtree"))
    writer.write(make_run(1)[0])
    now = read(listed)
    assert now["new.jsonl.gz"]["words"].endswith(quick.BEING_WRITTEN)
    writer.finish()
    assert " · τ " in read(listed)["new.jsonl.gz"]["words"]
    (folder / "new.jsonl.gz").unlink()
    assert [f["name"] for f in read(listed)["files"]] == [f["name"] for f in before["files"]]
    assert not read(quick.TraceList(find_traces([folder / "good.jsonl.gz"])))["grows"]


def test_a_folder_may_be_empty_until_a_recorder_writes_to_it(tmp_path: Path, quick: Any):
    with pytest.raises(UserError, match="holds no trace"):
        find_traces([tmp_path])
    listed = quick.TraceList(find_traces([tmp_path], empty=True))
    assert read(listed)["note"] == "no trace yet: they are listed as they come"
    assert listed.group(denoising=True) == []
    put(tmp_path / "t.jsonl")
    assert [file["label"] for file in read(listed)["files"]] == ["t.jsonl"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.jsonl").write_text("{}")
    with pytest.raises(UserError, match="holds no trace"):
        find_traces([tmp_path / "other"], empty=True)
