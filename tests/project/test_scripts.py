"""Scripts: each module short, and no line wider than the 100 columns that Biome formats to (it
leaves comments and strings as they are)."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.page_files import WEB
from tests import TESTS

WIDEST, LONGEST = 100, 320  # columns, lines
PROOFS = TESTS / "web"
SCRIPTS = sorted(WEB.rglob("*.js"))
TEXTS = [*SCRIPTS, *sorted(WEB.rglob("*.css")), *sorted(PROOFS.rglob("*.js"))]


def too_wide(text: str) -> list[int]:
    """The numbers of the lines, from 1."""
    lines = text.splitlines()
    return [number for number, line in enumerate(lines, 1) if len(line) > WIDEST]


def is_short(text: str) -> bool:
    return len(text.splitlines()) <= LONGEST


def test_no_line_is_too_wide():
    assert PROOFS.is_dir() and SCRIPTS
    wide = {file.name: found for file in TEXTS if (found := too_wide(file.read_text("utf-8")))}
    assert not wide


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(WEB)))
def test_a_module_is_short(script: Path):
    assert is_short(script.read_text("utf-8"))


def test_the_rules_themselves_can_fail():
    wide = "─" * (WIDEST + 1)  # characters, not bytes
    assert too_wide(f"{wide[1:]}\n{wide}\n\n{wide}\n") == [2, 4]
    assert is_short("x\n" * LONGEST) and not is_short("x\n" * (LONGEST + 1))
