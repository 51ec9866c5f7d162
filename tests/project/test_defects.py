"""The command that plants defects, on a tree of its own with one module and its tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.defects import __main__ as defects

LIST = """
[[module]]
file = "half.py"
tests = ["test_half.py"]
defects = [
  ["it doubles", 'return x  //  2', 'return x * 2'],
  ["it rounds up", 'x // 2', '(x + 1) // 2'],
  ["it ends never", 'return x // 2', 'while True: pass'],
  ["it is no Python", 'return x', 'return return'],
  ["it is not there", 'return y', 'return x'],
  ["it is there twice", 'x', 'y'],
]
[[module]]
file = "half.py"
tests = ["test_broken.py"]
defects = [["its tests fail anyway", 'x // 2', 'x']]
[[module]]
file = "half.js"
tests = ["half.test.js"]
defects = [["a script doubles", 'x / 2', 'x * 2']]
"""
FOUND = {
    "it doubles": "test_half.py::test_even",
    "it rounds up": defects.SURVIVED,
    "it ends never": "more than 3 s",
    "it is no Python": defects.GONE,
    "it is not there": defects.GONE,
    "it is there twice": defects.GONE,
    "its tests fail anyway": defects.UNFIT,
    "a script doubles": "four is halved",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "half.py").write_text("def half(x):\n    return x // 2\n")
    (root / "test_half.py").write_text(
        "from half import half\n\n\ndef test_even():\n    assert half(4) == 2\n"
    )
    (root / "test_broken.py").write_text("def test_it():\n    assert False\n")
    (root / "half.js").write_text("export const half = (x) => x / 2;\n")
    (root / "half.test.js").write_text(
        'import assert from "node:assert/strict";\nimport { test } from "node:test";\n'
        'import { half } from "./half.js";\n'
        'test("four is halved", () => assert.equal(half(4), 2));\n'
    )
    (root / "list.toml").write_text(LIST)
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


def test_each_defect_is_planted_alone_and_the_tree_stays_as_it_is(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(defects, "TOO_LONG", 3)
    monkeypatch.setattr(defects, "LARGE", ())
    before = (tree / "half.py").read_text()
    listing, record = tree / "list.toml", tmp_path / "caught.tsv"
    record.write_text("it rounds up\ttest_half.py::test_odd\nan old one\tsurvived\n")
    assert defects.main(tree, listing, record, ["--record"]) == 1
    tested = {k: v for k, v in FOUND.items() if v not in (defects.GONE, defects.UNFIT)}
    assert defects.read_record(record) == tested
    assert (tree / "half.py").read_text() == before
    assert "✗ half.py: it rounds up: survived" in (shown := capsys.readouterr().out)
    assert "3 of 8 caught" in shown
    # what survived before is not a loss
    assert defects.main(tree, listing, record, ["rounds"]) == 0
    assert defects.main(tree, listing, record, ["--check"]) == 1
    assert capsys.readouterr().out.count("half.py: it is") == 3
    assert defects.main(tree, listing, record, ["--new"]) == 1  # what could not be tested is new
    assert "0 of 4 caught" in capsys.readouterr().out


def test_the_list_can_be_read_and_its_record_is_of_it():
    every = defects.listed(defects.HERE / "list.toml")
    known = {each.name for each in every}
    assert len(every) >= 80 and len({each.file for each in every}) >= 10
    assert defects.read_record(defects.HERE / "caught.tsv").keys() <= known
    missing = {name for each in every for name in (each.file, *each.tests)}
    assert not [name for name in missing if not (defects.ROOT / name.partition("::")[0]).exists()]


def test_every_defect_still_applies(capsys: pytest.CaptureFixture[str]):
    """Whoever changes a line that a defect stands for says what the defect is now."""
    found = defects.main(
        defects.ROOT, defects.HERE / "list.toml", defects.HERE / "caught.tsv", ["--check"]
    )
    assert found == 0, capsys.readouterr().out
