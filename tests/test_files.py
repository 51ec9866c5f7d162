"""Files that are written whole: by one process at a time, whatever a killed one left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from core.errors import UserError
from core.files import replacing


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
