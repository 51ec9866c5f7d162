"""Traces in an object store: commands read them as those of a folder, and copy each once."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from app.object_stores import here
from core.errors import UserError
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.helpers.fakes import make_header, make_run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Bucket:
    """A store in memory, and which of its files were copied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.files, self.copied = fsspec.filesystem("memory"), list[str]()
        real = type(self.files).get_file

        def get_file(system, address, *more, **options):
            self.copied.append(address)
            return real(system, address, *more, **options)

        monkeypatch.setattr(type(self.files), "get_file", get_file)

    def put(self, name: str, data: bytes) -> None:
        self.files.pipe(f"/bucket/{name}", data)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    made = Bucket(monkeypatch)
    yield made
    made.files.store.clear()
    made.files.pseudo_dirs[:] = [""]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three traces, one of them deeper."""
    for number, name in enumerate(("a.jsonl", "b.jsonl", "deep/c.jsonl")):
        path = tmp_path / "traces" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_trace(path, Trace(make_header(f"why {number}?"), tuple(make_run(3 + number)), {}))
    return tmp_path / "traces"


def upload(folder: Path, bucket: Bucket) -> None:
    for file in sorted(folder.rglob("*.jsonl")):
        bucket.put(f"runs/{file.relative_to(folder).as_posix()}", file.read_bytes())


@pytest.mark.parametrize("words", ["report", "trace export --to profile --out -", "advise"])
def test_a_store_is_read_as_a_folder(words, folder, bucket, call, tmp_path):
    upload(folder, bucket)
    cost = tmp_path / "cost.csv"
    cost.write_text("tokens,ms\n" + "".join(f"{n},{9 + n}\n" for n in range(1, 70)))
    more = ["--cost", str(cost)] if words == "advise" else []
    local = call(*words.split(), str(folder), *more)
    stored = call(*words.split(), "memory://bucket/runs", *more)
    assert local[0] in (0, 1) and stored[0] == local[0]
    assert stored[1].replace(str(folder), "") == local[1].replace(str(folder), "")


def test_one_file_of_a_store_and_a_pack_of_one(folder, bucket, call, tmp_path):
    upload(folder, bucket)
    whole = call("trace", "show", str(folder / "a.jsonl"))
    assert call("trace", "show", "memory://bucket/runs/a.jsonl")[1] == whole[1]
    assert call("trace", "check", "memory://bucket/runs/deep/c.jsonl")[0] == 0
    assert call("trace", "pack", "memory://bucket/runs", "--out", str(tmp_path / "pack"))[0] == 0
    for file in (tmp_path / "pack").iterdir():
        bucket.put(f"packs/one/{file.name}", file.read_bytes())
    packed = call("report", "memory://bucket/packs/one")
    assert packed[0] == 0 and packed[1] == call("report", str(tmp_path / "pack"))[1]


def test_a_file_is_copied_once_and_again_when_it_has_changed(folder, bucket):
    upload(folder, bucket)
    copy = here("memory://bucket/runs")
    assert len(bucket.copied) == 3
    assert here("memory://bucket/runs") == copy and len(bucket.copied) == 3
    one = (folder / "b.jsonl").read_bytes()
    bucket.put("runs/a.jsonl", one)
    bucket.put("runs/new.jsonl.gz", gzip.compress(one))
    bucket.files.rm("/bucket/runs/deep/c.jsonl")
    here("memory://bucket/runs")
    assert [Path(name).name for name in bucket.copied[3:]] == ["a.jsonl", "new.jsonl.gz"]
    assert (copy / "a.jsonl").read_bytes() == one
    assert not (copy / "deep/c.jsonl").exists() and (copy / "b.jsonl").is_file()


def test_what_was_copied_before_a_store_failed_is_kept(folder, bucket, monkeypatch):
    upload(folder, bucket)
    real = type(bucket.files).get_file

    def fails(system, address, *more, **options):
        if address.endswith("c.jsonl"):
            raise ConnectionResetError("the line is dead\nand more")
        return real(system, address, *more, **options)

    with monkeypatch.context() as patched:
        patched.setattr(type(bucket.files), "get_file", fails)
        with pytest.raises(UserError, match=r"^memory://bucket/runs cannot be read: the line is"):
            here("memory://bucket/runs")
    assert len(bucket.copied) == 2
    copy = here("memory://bucket/runs")
    assert len(bucket.copied) == 3 and (copy / "deep/c.jsonl").is_file()
    assert not list(copy.rglob("*.tmp"))


def test_a_damaged_note_of_what_was_copied_costs_a_copy(folder, bucket):
    upload(folder, bucket)
    copy = here("memory://bucket/runs")
    for text in ("{", "[]", "null"):
        copy.with_name(f"{copy.name}.json").write_text(text)
        assert here("memory://bucket/runs") == copy
    assert len(bucket.copied) == 12 and len([*copy.rglob("*.jsonl")]) == 3


def test_other_files_of_a_store_stay_there(folder, bucket):
    upload(folder, bucket)
    bucket.put("runs/weights.bin", b"x" * 99)
    copy = here("memory://bucket/runs")
    assert len(bucket.copied) == 3 and not list(copy.rglob("*.bin"))


@pytest.mark.parametrize("name", ["../../../evil.jsonl", "a/../../evil.jsonl", "a\\evil.jsonl"])
def test_a_name_cannot_leave_the_copy(name, bucket, cache, monkeypatch):
    listed = {f"/bucket/runs/{name}": {"name": name, "size": 1, "type": "file"}}
    monkeypatch.setattr(type(bucket.files), "find", lambda *_, **__: listed)
    with pytest.raises(UserError, match="a name that no file here can have"):
        here("memory://bucket/runs")
    assert bucket.copied == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nowhere://bucket/x", "Protocol not known: nowhere"),
        ("memory://bucket/nothing", "holds no file that is read here"),
        ("zip://x.jsonl::memory://bucket/x.zip", "is a chain of addresses"),
    ],
)
def test_an_address_that_names_nothing_is_one_sentence(address, said, call):
    code, out, err = call("report", address)
    assert code == 2 and not out and len(err.splitlines()) == 1 and said in err


def test_a_package_that_a_store_needs_is_named(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    code, out, err = call("report", "s3://bucket/runs")
    assert code == 2 and not out and "Install s3fs" in err


def test_what_is_made_of_a_stores_trace_needs_a_place(folder, bucket, call, cache, tmp_path):
    upload(folder, bucket)
    words = ("trace", "export", "memory://bucket/runs/a.jsonl", "--to", "csv")
    code, _, err = call(*words)
    assert code == 2 and "--out" in err
    assert call(*words, "--out", str(tmp_path / "a.csv"))[0] == 0
    assert not list(cache.rglob("*.csv"))


def test_a_path_is_a_path(tmp_path):
    for text in ("runs", "C:\\runs", "a://", "./x://y", str(tmp_path)):
        assert here(text) == Path(text)
    assert here(f"file://{tmp_path}") == tmp_path
