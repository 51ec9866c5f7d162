"""Faulty surroundings: a home that nobody can write, IPv6 alone, code beside a checkpoint, a full
disk, a clock that goes back."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.journal import open_journal
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests import ROOT
from tests.helpers.fakes import make_header, make_run
from tests.helpers.processes import running
from tests.helpers.toys_on_disk import save_toys

GOLDEN = ROOT / "tests" / "golden" / "trace-v1-paths.jsonl"


# ── a home that nobody can write ─────────────────────────────────────────────────────────────────

HOMELESS = """
import sys
from app import cli
for line in sys.stdin.read().splitlines():
    assert cli.main(line.split()) == 0, line
"""


def homeless() -> dict[str, str]:
    """An environment whose home not even root can write: it is below /dev/null."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG", "HF_", "DRAFTSCOPE"))}
    return kept | {"HOME": "/dev/null/home", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


below_a_device = pytest.mark.skipif(sys.platform == "win32", reason="there is no /dev/null")


@below_a_device
def test_a_home_that_cannot_be_written_hinders_nobody(tmp_path: Path):
    save_toys(tmp_path)
    model = f"--model {tmp_path / 'target'}"
    run = f"run ddtree {model} --drafter {tmp_path / 'drafter'} --device cpu --max-new-tokens 4"
    lines = [
        f"trace show {GOLDEN}", f"report {GOLDEN}", "run --help",
        f"trace export {GOLDEN} --to csv --out {tmp_path / 't.csv'}",
        f"model doctor {tmp_path / 'target'}", f"{run} --prompt Hi --trace {tmp_path / 't.jsonl'}",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", HOMELESS], input="\n".join(lines), env=homeless(), text=True,
        capture_output=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-2000:]
    assert (tmp_path / "t.csv").stat().st_size > 100 and read_trace(tmp_path / "t.jsonl").complete


@below_a_device
def test_a_home_that_cannot_be_written_has_a_studio(tmp_path: Path):
    """Its page, its settings and an upload are there."""
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("gradio")
    save_toys(tmp_path)
    words = ["studio", "--model", str(tmp_path / "target"), "--port", "0", "--device", "cpu"]
    command = [sys.executable, "-m", "app", *words]
    with running(
        command, env=homeless(), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as studio:  # fmt: skip
        try:
            assert studio.stdout is not None and studio.stderr is not None
            home = re.search(r"http://\S+", studio.stdout.readline())
            assert home is not None, studio.stderr.read()
            for path in ("/", "/config"):
                assert httpx.get(home[0].rstrip("/") + path, timeout=60).status_code == 200
            sent = httpx.post(
                home[0].rstrip("/") + "/gradio_api/upload", timeout=60,
                files={"files": ("t.jsonl", GOLDEN.read_bytes())},
            )  # fmt: skip
            assert sent.status_code == 200, sent.text
        finally:
            studio.terminate()
        assert "Traceback" not in studio.stderr.read()
    assert studio.returncode == 143


# ── the network ──────────────────────────────────────────────────────────────────────────────────


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_a_machine_with_ipv6_alone_has_a_studio(monkeypatch: pytest.MonkeyPatch):
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("gradio")
    from app.studio.access import Access
    from app.studio.runs import Runs
    from app.studio.server import launch
    from tests.helpers.fakes import FakeEngine

    real = socket.socket

    class OnlySix(real):
        def __init__(self, family: int = -1, *args: Any, **more: Any):
            if family == socket.AF_INET:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *args, **more)

    monkeypatch.setattr("app.studio.served.socket.socket", OnlySix)
    runs = Runs(FakeEngine())
    with pytest.raises(UserError, match=r"^the studio cannot .* choose --host ::1$"):
        launch(runs, "127.0.0.1", 0)
    for host, access in (("::1", Access.of("::1")), ("::", Access.of("::"))):
        monkeypatch.setattr("app.studio.served.socket.socket", OnlySix)
        served = launch(runs, host, 0, access=access)
        try:
            home = f"http://[::1]:{served.port}"
            assert served.address == home
            monkeypatch.setattr("app.studio.served.socket.socket", real)
            asked = f"/config?token={access.token}" if access.token else "/config"
            found = httpx.get(home + asked, timeout=60)
            assert found.status_code == 200 and found.json()["root"] == home
            evil = httpx.get(home + asked, headers={"host": "[::2]"}, timeout=60)
            assert evil.status_code == 403
        finally:
            served.close()
    runs.close()


# ── checkpoints with programs ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("folder", ["target", "drafter"])
def test_code_beside_a_checkpoint_is_never_run(file: str, folder: str, tmp_path: Path):
    """A config's ``auto_map`` names classes of Python files in its folder."""
    save_toys(tmp_path)
    mark, place = tmp_path / "ran", tmp_path / folder / file
    code = f"open({str(mark)!r}, 'w').close()\nclass Mine: pass\n"
    for name in ("modeling_mine.py", "configuration_mine.py", "tokenization_mine.py"):
        (tmp_path / folder / name).write_text(code)
    raw = json.loads(place.read_text()) if place.is_file() else {}
    mine = {
        "AutoConfig": "configuration_mine.Mine", "AutoModelForCausalLM": "modeling_mine.Mine",
        "AutoModel": "modeling_mine.Mine", "AutoTokenizer": ["tokenization_mine.Mine"] * 2,
    }  # fmt: skip
    place.write_text(json.dumps(raw | {"auto_map": mine}))
    engine = Engine(str(tmp_path / "target"), "cpu", str(tmp_path / "drafter"))
    asked = RunRequest("hi", method="ddtree", budget=4, max_new_tokens=2)
    try:
        assert list(engine.start(asked).rounds)
    except UserError as error:
        assert "\n" not in str(error)
    assert not mark.exists()


# ── the disk and the clock ───────────────────────────────────────────────────────────────────────


def test_work_on_a_disk_that_fills_keeps_what_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "work"
    with open_journal(folder, "grid", {"a": 1}) as journal:
        journal.add("first", [1])
        real = os.fsync

        def full(file: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match=r"cannot be written: No space left on device$"):
            journal.add("second", [2])
        assert "second" not in journal
        monkeypatch.setattr(os, "fsync", real)
    with (folder / "journal.jsonl").open("a") as file:
        file.write('{"key": "thi')  # as far as it came
    with open_journal(folder, "grid", {"a": 1}) as journal:
        assert journal.get("first") == [1] and "thi" not in journal


@pytest.mark.parametrize(
    ("new", "differs"),
    [
        ({"a": {"n_b": 2}, "c": [1]}, "its n-b is 1, not 2"),
        ({"a": {"n_b": 1}, "c": [2]}, "its c differs"),
        ({"a": {"n_b": 1}}, "its c differs"),
        ({"a": {"n_b": 1}, "c": [1], "d": None}, "its plan differs"),
        ({"a": {"n_b": 1}, "c": [1], "d": "x\x1b[2J"}, "its d is null, not "),
    ],
)
def test_other_work_is_refused_with_what_differs(tmp_path: Path, new: Any, differs: str):
    made_of = {"a": {"n_b": 1}, "c": [1]}
    with open_journal(tmp_path, "grid", made_of):
        pass
    with open_journal(tmp_path, "grid", made_of):
        pass
    with pytest.raises(UserError) as found, open_journal(tmp_path, "grid", new):
        pass
    assert f"holds another grid ({differs}" in str(found.value) and "\x1b" not in str(found.value)


WRITERS = (
    "report {} --out {out}/report",
    "trace export {} --to html --out {out}/t.html",
    "trace export {} --to site --out {out}/site",
    "trace export {} --to parquet --out {out}/t.parquet",
    "trace export {} --to svg --round 1 --out {out}/t.svg",
    "trace export {} --to perfetto --out {out}/t.json",
    "trace pack {} --out {out}/pack",
)


@pytest.mark.skipif(sys.platform == "win32", reason="limits are of POSIX")
def test_whatever_writes_a_file_says_in_a_sentence_that_there_is_no_room(tmp_path: Path):
    """A limit of 1,000 bytes a file, which a system tells as it tells a full disk."""
    trace = tmp_path / "t.jsonl"
    write_trace(trace, Trace(make_header(), tuple(make_run(6, 12)), {}))
    lines = [line.format(trace, out=tmp_path).split() for line in WRITERS]
    code = f"""
import contextlib, io, json, resource, signal
from app import cli
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
found = []
for words in {lines!r}:
    out = contextlib.redirect_stdout(io.StringIO())
    with contextlib.redirect_stderr(io.StringIO()) as said, out:
        found.append((cli.main(words), said.getvalue().splitlines()))
print(json.dumps(found))
"""
    # -B: compiled modules would be cut at the limit too, and no other program could import them
    command = [sys.executable, "-B", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words, (ended, said) in zip(WRITERS, json.loads(done.stdout), strict=True):
        assert ended == 2 and said, words
        assert re.fullmatch(r"draftscope: .* cannot be written: .*File too large", said[-1]), said


def test_a_clock_that_goes_back_changes_no_run_and_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Waiting, measuring and limiting ask a clock that never goes back."""
    pytest.importorskip("gradio")
    from app.studio.access import Access
    from app.studio.runs import Runs
    from tests.helpers.fakes import FakeEngine

    now = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    access, runs = Access.of("0.0.0.0"), Runs(FakeEngine())
    word = str(access.token)
    ended = threading.Event()
    runs.start()
    (ticket,) = runs.submit(RunRequest("hello", method="ddtree", budget=4, max_new_tokens=4))
    run = runs.get(ticket)
    assert run is not None
    for _ in range(2000):
        if run.state in ("done", "failed"):
            break
        ended.wait(0.01)
    runs.close()
    assert run.state == "done" and all(r.times.total >= 0 for r in run.rounds)
    assert str(access.token) == word and access.wait("1.2.3.4", True) == (0, False)
    assert read_trace(GOLDEN).rounds
