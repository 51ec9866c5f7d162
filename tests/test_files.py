"""Files that are written whole: by one process at a time, whatever a killed one left."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.trace_log import TraceLog
from core.errors import UserError
from core.files import held, replacing
from core.models.gguf import making
from core.traces.reader import read_trace
from tests.fakes import make_header, make_run


def test_what_a_killed_process_left_is_written_over(tmp_path: Path):
    path = tmp_path / "x"
    (tmp_path / "x.tmp").write_text("a part that is longer")
    with replacing(path) as unfinished:
        unfinished.write_text("whole")
    assert path.read_text() == "whole" and [f.name for f in tmp_path.iterdir()] == ["x"]


def test_an_error_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(ValueError, match="stop"), replacing(path) as unfinished:
        unfinished.write_text("a part")
        raise ValueError("stop")
    assert path.read_text() == "old" and [f.name for f in tmp_path.iterdir()] == ["x"]


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot replace another there")
def test_two_that_write_one_file_do_not_mix(tmp_path: Path):
    path = tmp_path / "x"
    with replacing(path) as unfinished:
        unfinished.write_text("first")
        with pytest.raises(UserError, match="another process is writing"), replacing(path):
            pass
    assert path.read_text() == "first"


BUSY = UserError("busy")


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is held cannot be removed there")
def test_a_lock_that_its_holder_removed_meanwhile_is_made_anew(tmp_path: Path):
    """Else the next one and the one after it would hold two files, and both work."""
    path = tmp_path / "lock"
    real, opened = Path.open, []

    def late(self: Path, mode: str = "r"):
        file = real(self, mode)
        if not opened.append(self) and len(opened) == 1:
            path.unlink()  # between opening and locking
        return file

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "open", late)
        with held(path, BUSY):
            assert len(opened) == 2 and path.exists()
            with pytest.raises(UserError, match="busy"), held(path, BUSY):
                pass


def test_a_model_that_is_made_clears_what_killed_processes_left(tmp_path: Path):
    killed = tmp_path / ".making-old"
    killed.mkdir()
    for name in ("lock", "weights"):
        (killed / name).write_text("x")
    with making(tmp_path / "first") as first:
        first.mkdir()
        assert not killed.exists()
        with making(tmp_path / "second") as second:  # it leaves the first alone: that is at work
            second.mkdir()
            assert first.is_dir()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["first", "second"]


@pytest.mark.skipif(sys.platform == "win32", reason="a trace that is held cannot be read there")
def test_two_runs_do_not_write_one_trace(tmp_path: Path):
    path, rounds = tmp_path / "run.jsonl.gz", make_run(3)
    run = SimpleNamespace(header=make_header(), with_texts=lambda record: record)
    with TraceLog(path, run) as first, TraceLog(path, run) as second:
        first.write(rounds[0])
        with pytest.raises(UserError, match="another run is writing"):
            second.write(rounds[0])
        for record in rounds[1:]:
            first.write(record)
        first.finish("text", 1.0)
    assert read_trace(path).complete and len(read_trace(path).rounds) == 3
    with TraceLog(path, run) as third:
        third.write(rounds[0])
    assert len(read_trace(path).rounds) == 1
