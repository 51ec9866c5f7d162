"""Files that are written whole: by one process at a time, whatever a killed one left."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from analysis.collected import collection
from analysis.collected.collection import Collection
from app.cli import main
from app.trace_log import TraceLog
from core import ASSETS
from core.errors import UserError, unwritable, writing
from core.files import check_place, held, replacing
from core.learning.shards import TOP_K, Document, write_shard
from core.models import checkpoint
from core.models.checkpoint import read_state
from core.models.gguf import making
from core.ngram import build_store
from core.tensor_files import open_tensors, read_arrays
from core.traces.reader import read_trace
from tests.helpers.fakes import make_header, make_run


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


def test_a_disk_that_is_full_is_told_by_the_name_of_the_file(tmp_path: Path):
    """pyarrow says it among words of its own; a stream does not know what it writes."""
    words = "Error writing bytes to file. Detail: [errno 28] No space left on device"
    with pytest.raises(OSError) as found, replacing(tmp_path / "x"):
        raise OSError(errno.ENOSPC, words)
    said = f"{tmp_path / 'x'} cannot be written: No space left on device"
    assert unwritable(found.value) == said
    with pytest.raises(UserError) as told, writing(tmp_path / "x"):
        raise found.value
    assert str(told.value) == said


def test_a_place_where_nothing_can_be_written_is_told_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "file"
    file.write_text("a file")
    for fine in (file, tmp_path, tmp_path / "new" / "below", Path(os.devnull), Path("relative")):
        check_place(fine)
    with pytest.raises(UserError, match=f"{file} is not a folder$"):
        check_place(file / "below" / "x")
    monkeypatch.setattr(os, "access", lambda place, _: place != tmp_path)
    for closed in (file, tmp_path, tmp_path / "new" / "below"):
        with pytest.raises(UserError, match=f"no permission to write in {tmp_path}$"):
            check_place(closed)
    assert main(["report", "missing.jsonl", "--out", str(tmp_path / "tables")]) == 2
    assert f"no permission to write in {tmp_path}" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot replace another there")
def test_two_that_write_one_file_do_not_mix(tmp_path: Path):
    path = tmp_path / "x"
    with replacing(path) as unfinished:
        unfinished.write_text("first")
        with pytest.raises(UserError, match="another process is writing"), replacing(path):
            pass
    assert path.read_text() == "first"


BUSY = UserError("busy")


def write_collection(path: Path) -> None:
    header = SimpleNamespace(to_json=lambda: "{}")
    collection.write(path, header, {"x": np.zeros(3, np.float32)})  # type: ignore[arg-type]


def write_text(path: Path) -> None:
    top = torch.zeros(4, TOP_K)
    write_shard(path, [Document(torch.arange(4), 1, torch.zeros(4, 2), top.int(), top, (0,))])


def write_weights(path: Path) -> None:
    checkpoint.write(path.parent, {}, {"x": torch.zeros(3)}, small=False, name=path.name)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock there")
@pytest.mark.parametrize("write", [write_collection, write_text, write_weights])
def test_arrays_are_locked_until_they_are_in_place(tmp_path: Path, write, monkeypatch):
    """Until a file is on disk no other process may begin to write it; and all may read it then."""
    path, real, asked = tmp_path / "x.safetensors", os.fsync, []

    def sync(file: int) -> None:
        if not path.exists():
            with pytest.raises(UserError, match="another process is writing"), replacing(path):
                pass
            asked.append(sorted(f.name for f in tmp_path.iterdir()))
        real(file)

    monkeypatch.setattr(os, "fsync", sync)
    write(path)
    assert asked and not any(name.startswith(".tmp") for name in asked[0])
    with safe_open(path, "np") as file:
        assert file.keys()
    plain = tmp_path / "plain"
    plain.write_text("")
    assert path.stat().st_mode == plain.stat().st_mode


def test_after_the_rename_the_path_is_anothers(tmp_path: Path, monkeypatch):
    path, real = tmp_path / "x", Path.replace

    def then_another_begins(self: Path, target: Path) -> None:
        real(self, target)
        self.write_text("another's")

    monkeypatch.setattr(Path, "replace", then_another_begins)
    with replacing(path) as unfinished:
        unfinished.write_text("whole")
    assert path.read_text() == "whole" and unfinished.read_text() == "another's"


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


@pytest.mark.skipif(sys.platform == "win32", reason="the locks of a system that has them")
def test_without_locks_a_model_is_made_and_nothing_is_cleared(tmp_path: Path, monkeypatch):
    """Whether another process works in a folder cannot be told there."""
    import fcntl

    def none(_file: object, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with making(tmp_path / "first") as first:
        first.mkdir()
        with making(tmp_path / "second") as second:
            second.mkdir()
            assert first.is_dir()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["first", "second"]


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is held cannot be removed there")
def test_a_new_folder_that_another_process_holds_is_one_sentence(tmp_path: Path, monkeypatch):
    import fcntl

    def busy(_file: object, _how: int) -> None:
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "flock", busy)
    with pytest.raises(UserError, match="is tidying") as error, making(tmp_path / "x"):
        pass
    assert str(tmp_path) in str(error.value) and not any(tmp_path.iterdir())


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


def cut(path: Path) -> None:
    """As a copy over a file begins: in place, and not beside it."""
    path.open("wb").close()


def test_a_file_that_is_cut_while_it_is_read_is_one_sentence(tmp_path: Path):
    path = tmp_path / "t.safetensors"
    save_file({name: np.ones((300, 1000), np.float32) for name in "ab"}, path)
    with open_tensors(path, "a file") as opened:
        assert opened.array("a").sum() == 300_000
        cut(path)
        with pytest.raises(UserError, match=r"t\.safetensors was cut while it was read$"):
            opened.array("b")
    with pytest.raises(UserError, match="is not a file, or is damaged"):
        read_arrays(path, "a file")


CUT_STORE = """
import sys
from pathlib import Path
from core.ngram import NgramStore
file = Path(sys.argv[1])
store = NgramStore.open(file)
before = store.probabilities([1, 2], [0, 1, 2, 3])
file.open("wb").close()
assert (store.probabilities([1, 2], [0, 1, 2, 3]) == before).all() and before.sum() > 0
"""


def test_an_n_gram_store_stays_when_its_file_is_cut(tmp_path: Path):
    """In a process of its own: a mapped file would end it by SIGBUS."""
    file = tmp_path / "grams.safetensors"
    build_store([[1, 2, 3, 1, 2, 3, 4]], file, 9)
    command = [sys.executable, "-c", CUT_STORE, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_was_read_stays_when_its_file_is_cut(tmp_path: Path):
    """A mapped file would end the process here, by SIGBUS."""
    text = tmp_path / "text.safetensors"
    shutil.copy(ASSETS / "collected" / "fibonacci.safetensors", text)
    collected = Collection.load(text)
    weights = tmp_path / "drafter" / "model.safetensors"
    weights.parent.mkdir()
    save_file({"w": np.ones((300, 1000), np.float32)}, weights)
    state = read_state(weights.parent)
    cut(text)
    cut(weights)
    sums = [int(np.asarray(each, np.float64).sum() != 0) for each in collected.arrays.values()]
    assert sum(sums) > 3 and state["w"].sum() == 300_000
