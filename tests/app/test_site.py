"""A site of many runs: what is written, what it can never do, and which folders it leaves alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.cli import main
from app.export import site
from app.export.site import BARS, _shape, element_script, write_site
from app.trace_files import find_traces
from app.view.comparison import CAUTIONS, cautions, comparison_view, facts
from core import files
from core.errors import UserError
from core.journal import alone
from core.lines import LIMITS
from core.traces.schema import Trace, summary
from core.traces.writer import write_trace
from tests.helpers.fakes import HOSTILE, make_header
from tests.helpers.pages import Page, block, unpacked
from tests.helpers.small_traces import made


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder of three runs, one of them hostile, one empty, and one file that is not a trace."""
    folder = tmp_path / "runs"
    (folder / "deep").mkdir(parents=True)
    write_trace(folder / "one.jsonl.gz", made(3, 8, method="ddtree"))
    write_trace(folder / "deep" / "<img src=x>&.jsonl", made(3, 16, hostile=True, method="dart"))
    write_trace(folder / "three.jsonl", Trace(make_header("other"), made(2, 4).rounds, None))
    write_trace(folder / "empty.jsonl", Trace(make_header(), (), {}))
    (folder / "broken.jsonl").write_text("no trace\n")
    return folder


def export(*words: object) -> int:
    return main(["trace", "export", *map(str, words), "--to", "site"])


def data_of(file: Path) -> str:
    """Return what a data file hands over."""
    call = re.fullmatch(r'draftscopeData\((".*")\);\n', file.read_text("ascii"))
    assert call
    return json.loads(call[1])


def test_a_folder_of_runs_becomes_a_site(runs: Path, tmp_path: Path, capsys):
    out = tmp_path / "site"
    assert export(runs, "--out", out) == 1  # of two files that are left out
    said = capsys.readouterr()
    assert f"{out}/index.html: 3 runs" in said.out
    assert "left out: broken.jsonl: " in said.err and "left out: empty.jsonl: " in said.err
    assert {file.name for file in out.iterdir()} == {
        "index.html", "runs", "learn.js", "draftscope-run.js",
    }  # fmt: skip
    told = block(Page((out / "index.html").read_text("utf-8")), "ds-site")
    files = {file.stem for file in (out / "runs").iterdir()}
    assert {line["name"] for line in told["runs"]} == files and len(files) == 3
    line = next(line for line in told["runs"] if line["label"] == "one.jsonl.gz")
    trace, numbers = made(3, 8, method="ddtree"), summary(made(3, 8).rounds)
    assert (line["method"], line["budget"]) == ("DDTree", trace.header.settings["budget"])
    assert (line["tau"], line["tokens"], line["rounds"]) == (
        numbers["tau"], numbers["tokens"], numbers["rounds"],
    )  # fmt: skip
    lengths = [length - 1 for length in numbers["acceptance_lengths"]]
    assert line["shape"] == {"each": 1, "accepted": lengths}
    held = unpacked(json.loads(data_of(out / "runs" / f"{line['name']}.js"))["run"])
    assert len(held["rounds"]) == 3 and held["header"]["method"] == "DDTree"
    assert len(json.loads(data_of(out / "learn.js"))["chapters"]) == 11


@pytest.mark.parametrize(("count", "each"), [(1, 1), (BARS, 1), (BARS + 1, 2), (5 * BARS, 5)])
def test_a_long_run_has_means_of_its_rounds_as_bars(count: int, each: int):
    accepted = [at % 7 for at in range(count)]
    shape = _shape(accepted)
    assert shape["each"] == each and len(shape["accepted"]) == -(-count // each) <= BARS
    last = accepted[(count - 1) // each * each :]
    assert shape["accepted"][-1] == pytest.approx(sum(last) / len(last), abs=0.006)


@pytest.mark.parametrize("plain", [False, True])
def test_no_text_of_a_trace_or_a_name_becomes_code(runs: Path, tmp_path: Path, plain: bool):
    write_site(tmp_path / "site", find_traces([runs]).files, LIMITS, plain)
    text = (tmp_path / "site" / "index.html").read_text("utf-8")
    page = Page(text)
    assert text.count("</script") == len(page.all("script")) == 2
    for attack in (*HOSTILE, "<img src=x>"):
        assert "<" not in attack or attack not in text
    for file in (tmp_path / "site" / "runs").iterdir():
        assert re.fullmatch(r"run-[0-9a-f]{16}\.js", file.name)
        inner = data_of(file)  # one call with one string, whatever the run holds
        assert not set("<>") & set(inner) and inner.isascii()


def test_only_its_own_scripts_run_and_only_its_own_folder_is_read(runs: Path, tmp_path: Path):
    write_site(tmp_path / "site", find_traces([runs]).files, LIMITS)
    page = Page((tmp_path / "site" / "index.html").read_text("utf-8"))
    metas = [attrs for attrs, _ in page.all("meta")]
    policy = next(m["content"] for m in metas if m.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none';") and "unsafe" not in policy
    sources = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert re.fullmatch(r"script-src 'sha256-[\w+/=]+' 'self' file:", sources)
    for _, attrs in page.tags:
        assert not {"src", "href", "style"} & attrs.keys()


def test_a_site_is_replaced_and_keeps_the_links_of_runs_that_stay(runs: Path, tmp_path: Path):
    out = tmp_path / "site"
    write_site(out, find_traces([runs]).files, LIMITS)
    before = {file.name for file in (out / "runs").iterdir()}
    (runs / "three.jsonl").unlink()
    (out / "unfinished" / "runs").mkdir(parents=True)  # of a call that was killed
    (out / "unfinished" / "runs" / "half.js").write_text("draftscopeData(")
    written = write_site(out, find_traces([runs]).files, LIMITS)
    after = {file.name for file in (out / "runs").iterdir()}
    assert written.runs == 2 and after < before and not (out / "unfinished").exists()


def test_what_is_removed_is_removed_before_another_export_may_begin(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made, removed = tmp_path / "site" / "unfinished", list[Path]()

    def remove(path: Path) -> None:
        with pytest.raises(UserError, match="at work"), alone(made, "export"):
            pass
        removed.append(path)
        files.remove(path)

    monkeypatch.setattr(site, "remove", remove)
    write_site(tmp_path / "site", find_traces([runs]).files, LIMITS)
    assert removed[-1] == made and not made.exists()


def test_a_stopped_call_leaves_the_site_that_was_there(runs: Path, tmp_path: Path, monkeypatch):
    out = tmp_path / "site"
    write_site(out, find_traces([runs]).files, LIMITS)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}

    def stop(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(site, "element_script", stop)
    with pytest.raises(KeyboardInterrupt):
        write_site(out, find_traces([runs / "one.jsonl.gz"]).files, LIMITS)
    assert all(file.read_bytes() == data for file, data in before.items())
    monkeypatch.undo()
    assert write_site(out, find_traces([runs / "one.jsonl.gz"]).files, LIMITS).runs == 1
    assert len(list((out / "runs").iterdir())) == 1 and not (out / "unfinished").exists()


@pytest.mark.parametrize("other", ["notes.txt", "runs/mine.js", "index.html", ".git/config"])
def test_a_folder_with_other_things_is_left_alone(runs: Path, tmp_path: Path, capsys, other: str):
    file = tmp_path / "site" / other
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    assert export(runs, "--out", tmp_path / "site") == 2
    assert "holds other things than a site" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert [f for f in (tmp_path / "site").rglob("*") if f.is_file()] == [file]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name it with --out"),
        (["--out", "-"], "name it with --out"),
        (["--out", "x", "--round", "2"], "leave --round out"),
    ],
)
def test_what_is_amiss_is_one_sentence(runs: Path, capsys, words: list[str], sentence: str):
    assert export(runs, *words) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1


def test_without_a_round_there_is_no_site(runs: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"nothing to show: empty\.jsonl"):
        write_site(tmp_path / "site", find_traces([runs / "empty.jsonl"]).files, LIMITS)


def test_the_same_run_twice_is_said(runs: Path, tmp_path: Path):
    (runs / "copy.jsonl.gz").write_bytes((runs / "one.jsonl.gz").read_bytes())
    written = write_site(tmp_path / "site", find_traces([runs]).files, LIMITS)
    assert written.runs == 3 and len(written.left_out) == 2
    assert written.copies == ("one.jsonl.gz is the same file as copy.jsonl.gz",)


def test_the_element_s_script_ends_in_no_page():
    code = element_script()
    assert "</script" not in code.lower() and "customElements.define" in code


def test_facts_say_what_cautions_say():
    """The page compares hashes of facts, the server headers: both by one table."""
    one, other = make_header("a"), make_header("b")
    assert set(facts(one)) == {name for names in CAUTIONS.values() for name in names}
    assert cautions(one, other) and cautions(one, one) == []
    assert comparison_view([one, one, other])["prompts"] == [0, 0, 2]
