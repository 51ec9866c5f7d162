"""Drafters are put in place together, whole, or not at all."""

from __future__ import annotations

import shutil

import pytest

from app.maintainers import ship


@pytest.fixture
def folders(tmp_path):
    """Trained drafters, and those they are to replace beside one that stays."""
    for where in ("made", "into"):
        for kind in ("dflash", "treeflash"):
            (tmp_path / where / kind).mkdir(parents=True)
            for name in ("config.json", "model.safetensors"):
                (tmp_path / where / kind / name).write_text(f"{where} {kind} {name}")
    (tmp_path / "into" / "dart").mkdir()
    (tmp_path / "into" / "dart" / "config.json").write_text("stays")
    return tmp_path / "made", tmp_path / "into"


def contents(folder):
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_all_files_are_replaced_and_no_other(folders):
    made, into = folders
    before = contents(into)
    ship.replace_together(["dflash", "treeflash"], made, into)
    assert contents(into) == before | contents(made)
    ship.replace_together(["dflash"], made, into / "new")
    assert set(contents(into / "new")) == {"dflash/config.json", "dflash/model.safetensors"}


def test_a_kill_while_copying_leaves_the_old_ones(folders, monkeypatch):
    made, into = folders
    before, copy = contents(into), shutil.copyfile

    def killed_at_the_last(source, place):
        if len(list(into.rglob("*.tmp"))) == 3:
            raise KeyboardInterrupt
        copy(source, place)

    monkeypatch.setattr(ship.shutil, "copyfile", killed_at_the_last)
    with pytest.raises(KeyboardInterrupt):
        ship.replace_together(["dflash", "treeflash"], made, into)
    assert contents(into) == before
