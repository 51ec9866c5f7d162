"""Stylesheets: short, all of them loaded, and no rule for things that have gone."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from app.page_files import STYLES, WEB
from app.studio.tabs import TABS

LONGEST = 325  # lines
SHEETS = sorted(WEB.rglob("*.css"))
OFFLINE = ("offline.css", "offline/site.css")  # of an offline file, of an offline site


@cache
def words_of_code() -> tuple[set[str], tuple[str, ...]]:
    """Names in the code, and the beginnings of those that end in a number."""
    files = [*WEB.rglob("*.js"), *WEB.parent.rglob("*.py")]
    code = "\n".join(file.read_text("utf-8") for file in files)
    return set(re.findall(r"[\w-]+", code)), tuple(set(re.findall(r"\b(d[sn]-[\w-]*-)\$?\{", code)))


def test_only_what_is_against_gradio_is_important():
    found = [sheet.name for sheet in SHEETS if "!important" in sheet.read_text("utf-8")]
    assert found == ["gradio.css"]


def test_every_stylesheet_is_loaded_once():
    loaded = [*STYLES, *(sheet for tab in TABS for sheet in tab.sheets), *OFFLINE]
    assert sorted(loaded) == sorted(str(sheet.relative_to(WEB)) for sheet in SHEETS)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: str(sheet.relative_to(WEB)))
def test_it_is_short_and_names_only_what_is_there(sheet: Path):
    text = re.sub(r"/\*.*?\*/", "", sheet.read_text("utf-8"), flags=re.DOTALL)
    assert text.count("\n") <= LONGEST
    written, made = words_of_code()
    for name in set(re.findall(r"[.#](d[sn]-[\w-]+)", text)):
        assert name in written or name.startswith(made), f"nothing is called {name}"


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: str(sheet.relative_to(WEB)))
def test_no_rule_asks_what_the_holder_of_the_rounds_has(sheet: Path):
    """Each row that comes or goes below ``.ds-below`` would ask anew: a filter of 5,000 rounds took
    four times as long."""
    assert not re.search(r"\.ds-below[^ ,{]*:has\((?!>)", sheet.read_text("utf-8"))


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: str(sheet.relative_to(WEB)))
def test_a_window_s_width_is_measured_in_letters(sheet: Path):
    """A window has room for fewer of them where somebody has set larger ones in the browser."""
    asked = re.findall(r"@(?:media|container)[^{]*", sheet.read_text("utf-8"))
    assert not [each for each in asked if re.search(r"\bwidth\b[^)]*px|px[^(]*\bwidth\b", each)]
