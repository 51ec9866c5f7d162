"""Packs of rounds: the same numbers as the traces, brought up to date, stopped, damaged."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from analysis.measures import metrics, packed, packing
from analysis.measures.checkpoints import pairs
from analysis.measures.packed import parts_of
from analysis.measures.packing import Done, pack
from analysis.measures.tables import Tables
from app.trace_files import read_tables
from core.journal import alone
from core.lines import LIMITS
from core.progress import silent
from core.stats import MANY, middle_interval, ratio_interval, resample
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests import ROOT
from tests.helpers import fakes
from tests.helpers.sentences import is_one_sentence
from tests.helpers.small_traces import METHODS, NOTHING, fake_trace
from tests.helpers.small_traces import two_drafters as checkpoints

SHIPPED = ROOT / "assets" / "traces"
LINES = ("rounds", "nodes", "positions")  # what every other table of a report is made of


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Parts of few rounds: a folder of some traces has several."""
    monkeypatch.setattr(packing, "BATCH", 5)
    monkeypatch.setattr(packing, "PART", 40)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Some methods, two checkpoints of one drafter on texts, and what has nothing to count."""
    made = tmp_path_factory.mktemp("made") / "runs"
    for n, method in enumerate(METHODS):
        trace = fake_trace(method, 10 * n, 6, prompt=str(n % 3))
        write_trace(made / f"{method}.jsonl.gz", replace(trace, footer={"wall_seconds": 2.0}))
    for name, trace in checkpoints((1, 2)).items():
        write_trace(made / f"{name}.jsonl", trace)
    write_trace(made / "plain.jsonl", NOTHING["plain decoding"]["a"])
    write_trace(made / "empty.jsonl", Trace(fakes.make_header("nothing"), (), None))
    denoised = SHIPPED / "code-denoise.jsonl.gz"
    (made / denoised.name).write_bytes(denoised.read_bytes())
    return made


@pytest.fixture
def folder(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs"))


def tables(*paths: Path) -> Tables:
    return read_tables(paths, silent, LIMITS, [])


def update(folder: Path, into: Path) -> Done:
    return pack(sorted(folder.iterdir()), into, read_trace)


def same(found: Tables, expected: Tables, names: Sequence[str] = tuple(metrics.TABLES)) -> None:
    """These tables of a report, exactly but for the last digits of sums."""
    ours, theirs = metrics.Report(found), metrics.Report(expected)
    for name in names:
        pd.testing.assert_frame_equal(ours[name], theirs[name], rtol=1e-12, atol=1e-15)


def test_every_table_of_a_pack_is_that_of_the_traces(folder, tmp_path):
    done = update(folder, tmp_path / "pack")
    assert done.added == len(list(folder.iterdir())) and not done.refused
    found, expected = tables(tmp_path / "pack"), tables(folder)
    assert len(found.parts) > 3 and pairs(expected) and found.names == expected.names
    same(found, expected)


def test_a_pack_is_brought_up_to_date(folder, tmp_path):
    into = tmp_path / "pack"
    update(folder, into)
    before = {part.path("nodes") for part in parts_of(into)}
    more = folder / "more.jsonl"
    write_trace(more, fake_trace("dart", 77, 9, prompt="new"))
    done = update(folder, into)
    assert (done.added, done.kept) == (1, len(list(folder.iterdir())) - 1)
    assert before < {part.path("nodes") for part in parts_of(into)}
    write_trace(more, fake_trace("dart", 78, 11, prompt="new"))
    (folder / "plain.jsonl").unlink()
    gone = next(part for part in parts_of(into) if "plain" in str(part.sources))
    done = update(folder, into)
    assert done.added == 1 + len(gone.sources) - 1  # what shared a part with the one that is gone
    found, expected = tables(into), tables(folder)
    assert sorted(found.names) == sorted(expected.names)
    assert len(found.rounds) == len(expected.rounds)
    assert found.nodes["q"].sum() == pytest.approx(expected.nodes["q"].sum(), rel=1e-12)
    assert update(folder, into) == Done(kept=len(expected.names))


def test_a_trace_that_changed_stays_in_the_pack_though_others_are_named(folder, tmp_path):
    into, files = tmp_path / "pack", sorted(folder.iterdir())
    pack(files, into, read_trace)
    changed = folder / "ddtree.jsonl.gz"
    write_trace(changed, fake_trace("ddtree", 91, 7))
    more = tmp_path / "more.jsonl"
    write_trace(more, fake_trace("dart", 92, 3, prompt="new"))
    done = pack([more], into, read_trace)
    found, expected = tables(into), tables(*files, more)
    assert sorted(found.names) == sorted(expected.names)
    assert len(found.rounds) == len(expected.rounds)
    assert done.added + done.kept == len(files) + 1 and not done.gone


def test_a_trace_that_is_written_on_is_packed_anew(call, tmp_path):
    file, into = tmp_path / "grows.jsonl", tmp_path / "pack"
    trace = fake_trace("dart", 5, 8)
    write_trace(file, Trace(trace.header, trace.rounds[:3], None))
    pack([file], into, read_trace)
    assert len(tables(into).rounds) == 3 and not packed.changed_traces(into)
    write_trace(file, trace)
    assert packed.changed_traces(into) == 1
    said = call("report", into)[2]
    assert "1 trace changed since" in said
    pack([file], into, read_trace)
    assert len(tables(into).rounds) == 8 and len(tables(into).parts) == 1


@pytest.mark.parametrize("at", [2, -2])
def test_a_stopped_packing_goes_on_where_it_was(folder, tmp_path, at):
    files, into, seen = sorted(folder.iterdir()), tmp_path / "pack", []

    def read(file: Path) -> Trace:
        if file == files[at]:
            raise KeyboardInterrupt
        return read_trace(file)

    def again(file: Path) -> Trace:
        seen.append(file)
        return read_trace(file)

    with pytest.raises(KeyboardInterrupt):
        pack(files, into, read)
    kept = sum(len(part.sources) for part in parts_of(into))
    assert kept <= at % len(files) and (kept or at == 2)
    pack(files, into, again)
    assert len(seen) == len(files) - kept
    assert len(tables(into).rounds) == len(tables(folder).rounds)


def stop(file: Path) -> Trace:
    raise KeyboardInterrupt


def test_a_stopped_update_loses_nothing(call, folder, tmp_path):
    into, changed = tmp_path / "pack", folder / "dart.jsonl.gz"
    update(folder, into)
    before, whole = sorted(into.iterdir()), len(tables(into).rounds)
    write_trace(changed, fake_trace("dart", 78, 11, prompt="new"))
    with pytest.raises(KeyboardInterrupt):
        pack([changed], into, stop)
    assert sorted(into.iterdir()) == before and len(tables(into).rounds) == whole
    old = {part.number for part in parts_of(into) if "dart.jsonl.gz" in str(part.sources)}
    assert call("trace", "pack", folder, "--out", into)[0] == 0
    assert not old & {int(path.name[:5]) for path in into.glob("*.parquet")}
    assert len(tables(into).rounds) == len(tables(folder).rounds) != whole


def test_old_parts_that_a_stopped_update_left_go(call, folder, tmp_path, monkeypatch):
    """It was stopped when the new parts were written, and before the old ones went."""
    into = tmp_path / "pack"
    update(folder, into)
    write_trace(folder / "dart.jsonl.gz", fake_trace("dart", 78, 11, prompt="new"))
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    update(folder, into)
    monkeypatch.undo()
    code, _, err = call("report", into)
    assert code == 2 and is_one_sentence(err) and "pack again" in err
    assert update(folder, into).added == 0
    assert len(tables(into).rounds) == len(tables(folder).rounds)


def test_a_pack_of_an_older_version_says_so_and_is_packed_again(call, folder, tmp_path):
    into = tmp_path / "pack"
    with pytest.MonkeyPatch.context() as older:
        older.setattr(packed, "VERSION", packed.VERSION - 1)
        update(folder, into)
    code, _, err = call("report", into)
    assert code == 2 and is_one_sentence(err) and "pack again" in err
    assert update(folder, into).kept == 0
    assert len(tables(into).rounds) == len(tables(folder).rounds)


def test_what_a_stopped_packing_left_is_cleared(call, folder, tmp_path):
    into = tmp_path / "pack"
    into.mkdir()
    for name in ("00003.rounds.parquet", "00003.nodes.parquet.tmp", "lock"):
        (into / name).write_bytes(b"")
    assert call("trace", "pack", folder / "dart.jsonl.gz", "--out", into)[0] == 0
    assert {path.name[:5] for path in into.iterdir()} == {"00001"}


def test_two_packings_into_one_folder_do_not_mix(call, folder, tmp_path):
    with alone(tmp_path / "pack", "packing"):
        code, _, err = call("trace", "pack", folder, "--out", tmp_path / "pack")
    assert code == 2 and is_one_sentence(err) and "another packing is at work" in err


def test_traces_that_are_gone_are_told(call, folder, tmp_path):
    into = tmp_path / "pack"
    update(folder, into)
    (folder / "plain.jsonl").unlink()
    said = "gone, and no longer in the pack: 1 trace"
    assert said in call("trace", "pack", folder, "--out", into)[2]
    assert "gone, and" not in call("trace", "pack", folder, "--out", into)[2]
    moved = tmp_path / "elsewhere" / "pack"
    moved.parent.mkdir()
    into.rename(moved)
    before = sorted(moved.iterdir())
    code, _, err = call("trace", "pack", folder / "dart.jsonl.gz", "--out", moved)
    assert code == 2 and is_one_sentence(err) and "move them with it" in err
    assert sorted(moved.iterdir()) == before


def test_a_pack_behind_a_link_knows_its_traces(folder, tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    for into in (tmp_path / "link" / "pack", tmp_path / "deep" / "er" / "pack"):
        done = update(folder, into)
        assert not done.gone and not packed.changed_traces(into)
    assert done.added == 0 and done.kept == len(list(folder.iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode")
def test_a_name_that_is_not_utf8_is_left_out_and_reported_by_itself(call, folder, tmp_path):
    odd = folder / os.fsdecode(b"a\xff.jsonl.gz")
    (folder / "dart.jsonl.gz").rename(odd)
    code, _, err = call("trace", "pack", folder, "--out", tmp_path / "pack")
    assert code == 1 and "not UTF-8" in err
    assert len(tables(tmp_path / "pack").names) == len(list(folder.iterdir())) - 1
    code, out, _ = call("report", odd, folder / "ddtree.jsonl.gz", "--json")
    assert code == 0 and out.encode() and json.loads(out)["rounds"]


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode")
def test_a_pack_lies_in_a_folder_whose_name_is_not_utf8(call, folder, tmp_path):
    into = tmp_path / os.fsdecode(b"a\xff")
    assert call("trace", "pack", folder, "--out", into)[0] == 0
    code, _, err = call("trace", "pack", folder, "--out", into)
    assert code == 0 and "0 traces packed" in err
    assert len(tables(into).names) == len(list(folder.iterdir()))


def test_what_is_no_trace_is_left_out_and_named(call, folder, tmp_path):
    (folder / "bad.jsonl").write_text('{"kind": "header"}\n')
    code, out, err = call("trace", "pack", folder, "--out", tmp_path / "pack")
    assert code == 1 and out == ""
    assert "left out: bad.jsonl is not a Draftscope trace" in err
    assert "bad.jsonl" not in tables(tmp_path / "pack").names


def test_the_commands_say_of_a_pack_what_they_say_of_traces(call, folder, tmp_path):
    into = tmp_path / "pack"
    assert call("trace", "pack", folder, "--out", into)[0] == 0
    assert call("trace", "pack", folder, "--out", into)[2].startswith("0 traces packed (0 rounds)")
    from_traces, from_pack = (call("report", path, "--gate", "tau>=9") for path in (folder, into))
    assert from_pack[:2] == from_traces[:2] and from_pack[0] == 1
    log = tmp_path / "log.json"
    log.write_text(json.dumps([{"acc_0": 0.7, "acc_1": 0.5}]))
    one, other = (call("report", path, "--trained", log, "--json") for path in (folder, into))
    assert one[:2] == other[:2]
    found, expected = (json.loads(call("report", path, "--json")[1]) for path in (into, folder))
    assert list(found) == list(metrics.TABLES) == list(expected)
    for name in ("rounds", "nodes", "positions", "tau", "paired", "oracle-by-round"):
        assert found[name] == expected[name] and len(found[name])
    assert call("report", into, "--out", tmp_path / "out", "--html")[0] == 0
    assert (tmp_path / "out" / "report.html").exists()


def test_traces_and_packs_are_reported_together(folder, tmp_path):
    files, into = sorted(folder.iterdir()), tmp_path / "pack"
    pack(files[3:], into, read_trace)
    same(tables(*files[:3], into), tables(folder))


def test_a_trace_counts_once(call, folder, tmp_path):
    files, into = sorted(folder.iterdir()), tmp_path / "pack"
    pack(files[3:5], into, read_trace)
    code, _, err = call("report", folder, into)
    assert code == 2 and is_one_sentence(err) and "would count twice" in err


def test_a_link_to_a_trace_beside_it_counts_once(call, folder, tmp_path):
    expected, into = tables(*sorted(folder.iterdir())), tmp_path / "pack"
    link = folder / "link.jsonl.gz"
    shutil.copy2(folder / "dart.jsonl.gz", link)
    update(folder, into)
    link.unlink()
    link.symlink_to(folder / "dart.jsonl.gz")
    assert "would count twice" in call("report", into)[2]
    assert tables(folder).names == expected.names
    update(folder, into)
    found = tables(into)
    assert len(found.names) == len(expected.names)
    assert found.rounds["accepted"].sum() == expected.rounds["accepted"].sum()
    update(folder, tmp_path / "new")
    same(tables(tmp_path / "new"), expected, LINES)


def test_other_commands_say_that_it_is_a_pack(call, folder, tmp_path):
    pack([folder / "dart.jsonl.gz"], tmp_path / "pack", read_trace)
    code, _, err = call("trace", "export", tmp_path / "pack", "--to", "profile")
    assert code == 2 and is_one_sentence(err) and "a pack of traces, which `report` reads" in err


def test_a_folder_of_other_files_is_no_place_for_a_pack(call, folder):
    code, _, err = call("trace", "pack", folder, "--out", folder)
    assert code == 2 and "holds other files" in err
    code, _, err = call("trace", "pack", folder / "none", "--out", folder / "pack")
    assert code == 2 and is_one_sentence(err) and "there is no file or folder" in err


@pytest.mark.parametrize(
    ("table", "how"),
    [
        *product(("runs", "rounds", "nodes"), ("cut", "empty", "other", "null")),
        ("rounds", "missing"),  # without its runs a part does not count
    ],
)
def test_a_damaged_pack_is_one_sentence(call, folder, tmp_path, table, how):
    into = tmp_path / "pack"
    pack([folder / "dart.jsonl.gz"], into, read_trace)
    (file,) = into.glob(f"*.{table}.parquet")
    data, whole = file.read_bytes(), parquet.read_table(file)
    if how in ("cut", "empty"):
        file.write_bytes({"cut": data[:-40], "empty": b""}[how])
    elif how == "other":
        parquet.write_table(pa.table({"weather": [1]}), file)
    elif how == "missing":
        file.unlink()
    else:
        nothing = pa.nulls(whole.num_rows, whole.schema.field(0).type)
        parquet.write_table(whole.set_column(0, whole.schema.field(0), nothing), file)
    code, _, err = call("report", into)
    assert code == 2 and is_one_sentence(err) and file.name in err


def test_a_missing_table_and_a_null_in_a_text_are_said(call, folder, tmp_path, monkeypatch):
    into = tmp_path / "pack"
    pack([folder / "dart.jsonl.gz"], into, read_trace)
    (file,) = into.glob("*.runs.parquet")
    whole = parquet.read_table(file)
    at = whole.schema.get_field_index("text")
    text = pa.array([[None, 1]] * whole.num_rows, pa.list_(pa.int64()))
    parquet.write_table(whole.set_column(at, whole.schema.field(at), text), file)
    assert "lacks values" in call("report", into)[2]
    parquet.write_table(whole, file)
    monkeypatch.setattr(packed, "MAX_VALUES", 5)
    code, _, err = call("report", into)
    assert code == 2 and is_one_sentence(err) and "too large for a part" in err
    monkeypatch.undo()
    next(into.glob("*.rounds.parquet")).unlink()
    assert "cannot be read: No such file or directory" in call("report", into)[2]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.runs.parquet").write_bytes(b"")
    assert not packed.is_pack(tmp_path / "other")
    words = pa.chunked_array([pa.array(["pruned", "of another version"]).dictionary_encode()])
    assert packed._values("stop", words).isna().tolist() == [False, True]


def test_a_run_that_the_part_does_not_have_is_refused(call, folder, tmp_path):
    into = tmp_path / "pack"
    pack([folder / "dart.jsonl.gz"], into, read_trace)
    (file,) = into.glob("*.nodes.parquet")
    whole = parquet.read_table(file)
    for run in (1, -1):
        wrong = pa.array(np.full(whole.num_rows, run, np.int32))
        parquet.write_table(whole.set_column(0, whole.schema.field(0), wrong), file)
        code, _, err = call("report", into)
        assert code == 2 and is_one_sentence(err) and "not of the same pack" in err


def test_files_are_named_from_the_pack(folder, tmp_path):
    """A folder that is moved with its pack is still known; the pack tells no path above it."""
    into = tmp_path / "runs.pack"
    update(folder, into)
    assert str(tmp_path) not in str([part.sources for part in parts_of(into)])
    there = tmp_path / "there"
    there.mkdir()
    os.rename(folder, there / "runs")
    os.rename(into, there / "runs.pack")
    assert update(there / "runs", there / "runs.pack").added == 0


def test_the_interval_of_many_units_is_that_of_the_bootstrap():
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 9, MANY + 1)
    sums = counts * rng.normal(2.5, 0.8, len(counts))
    low, high = ratio_interval(sums, counts)
    drawn_low, drawn_high = middle_interval(resample(sums, counts))
    assert (low + high) / 2 == pytest.approx(sums.sum() / counts.sum())
    assert high - low == pytest.approx(drawn_high - drawn_low, rel=0.05)
    assert (low, high) == pytest.approx((drawn_low, drawn_high), abs=0.05 * (high - low))


# ── made by other processes ──────────────────────────────────────────────────────────────────────


def copied(value):
    """As it comes out of another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301


def here_and_elsewhere(folder: Path, tmp_path: Path, elsewhere) -> tuple[Done, Done]:
    """Pack in this process into "one", and by others into "two"."""
    files = sorted(folder.iterdir())
    return (
        pack(files, tmp_path / "one", read_trace),
        pack(files, tmp_path / "two", read_trace, elsewhere=elsewhere),
    )


def test_parts_that_others_make_in_any_order_are_those_of_one_process(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(packing, "SHARE_BYTES", 20_000)
    (folder / "bad.jsonl").write_text("{}\n")
    shares = []

    def elsewhere(given):
        shares.extend(given)
        for share in copied(given[::-1]):
            yield share, copied(share.make(read_trace))

    one, two = here_and_elsewhere(folder, tmp_path, elsewhere)
    assert len(shares) > 2 and one == two and two.added > 5 and len(two.refused) == 1
    found, expected = (metrics.Report(tables(tmp_path / name)) for name in ("two", "one"))
    for name in LINES:
        pd.testing.assert_frame_equal(found[name], expected[name])
    order = [[f for p in parts_of(tmp_path / name) for f in p.sources] for name in ("one", "two")]
    assert order[0] == order[1]
    again = pack(sorted(folder.iterdir()), tmp_path / "two", read_trace, elsewhere=elsewhere)
    assert (again.added, again.kept) == (0, two.added)


def test_a_share_that_failed_is_named_by_its_files_and_packed_the_next_time(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(packing, "SHARE_BYTES", 20_000)

    def elsewhere(given):
        for share in given:
            yield share, "its worker died" if share.number == 1 else share.make(read_trace)

    one, two = here_and_elsewhere(folder, tmp_path, elsewhere)
    lost = one.added - two.added
    assert lost == len(two.refused) > 0 and all("its worker died" in why for why in two.refused)
    again = pack(sorted(folder.iterdir()), tmp_path / "two", read_trace)
    assert (again.added, again.kept) == (lost, two.added)


def test_a_cluster_s_cores_pack_what_this_process_does(folder, tmp_path, ray_home, monkeypatch):
    monkeypatch.undo()  # parts of the usual size: the command's process has no other
    words = ["-m", "app", "trace", "pack", folder, "--out", tmp_path / "two"]
    shown = subprocess.run(
        [sys.executable, *words, "--ray", "local", "--workers", "2"],
        env=os.environ | ray_home, cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert shown.returncode == 0 and "Traceback" not in shown.stderr, shown.stderr
    pack(sorted(folder.iterdir()), tmp_path / "one", read_trace)
    same(tables(tmp_path / "two"), tables(tmp_path / "one"), LINES)
