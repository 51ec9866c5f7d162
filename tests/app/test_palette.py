"""Colours of runs: readable on their grounds and told apart, by formulas of WCAG and of Machado."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from analysis.charts import palette
from analysis.charts.palette import (
    CAUSE_COLOURS,
    LETTERS,
    PALETTES,
    SERIES,
    Theme,
    causes,
    letter,
    series_colour,
)
from analysis.measures.parts import CAUSES
from app.page_files import WEB, css
from core import ASSETS
from core.rounds.causes import Cause

ROOT = ASSETS.parent

# Machado, Oliveira, Fernandes 2009, severity 1.0, for linear RGB
MACHADO = {
    "none": np.eye(3),
    "protan": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                        [-0.003882, -0.048116, 1.051998]]),
    "deutan": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                        [-0.011820, 0.042940, 0.968881]]),
    "tritan": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                        [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip


def linear(code: str) -> np.ndarray:
    c = np.array([int(code[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


LMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
       [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
LAB = [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099],
       [0.0259040371, 0.7827717662, -0.8086757660]]  # fmt: skip


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Ottosson 2020."""
    return np.array(LAB) @ np.cbrt(np.array(LMS) @ np.clip(rgb, 0, 1))


def apart(colours: tuple[str, ...], sight: str) -> float:
    seen = [oklab(MACHADO[sight] @ linear(code)) for code in colours]
    return min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))


@pytest.mark.parametrize("sight", MACHADO)
@pytest.mark.parametrize("theme", SERIES)
def test_four_runs_are_told_apart_by_colour(theme: str, sight: str):
    assert apart(SERIES[theme][: len(LETTERS)], sight) > (0.1 if theme != "auto" else 0.02)
    assert theme == "auto" or apart(SERIES[theme], sight) > 0.03


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_stand_out_from_every_ground(theme: Theme):
    for ground in ("ground", "card", "sunk", "band", "accepted-box"):
        for code in SERIES[theme]:
            assert contrast(code, PALETTES[theme][ground]) >= 3


def test_colours_of_no_theme_are_read_on_white_and_on_black():
    for code in SERIES["auto"]:
        assert contrast(code, "#ffffff") >= 3
        assert contrast(code, "#000000") >= 3


def test_no_other_file_has_a_colour_of_the_palette_and_every_named_one_is_defined():
    codes = {code for theme in ("light", "dark") for code in PALETTES[theme].values()}
    sheets = {file: file.read_text("utf-8") for file in WEB.rglob("*.css")}
    others = [*(ROOT / "app").rglob("*.py"), *(ROOT / "analysis").rglob("*.py"), *WEB.rglob("*.js")]
    texts = sheets | {file: file.read_text("utf-8") for file in others}
    del texts[Path(palette.__file__)]
    assert not {(file.name, code) for file, text in texts.items() for code in codes if code in text}
    named = set(re.findall(r"var\((--ds-[\w-]+)", "".join(texts.values())))
    whole = css() + "".join(texts.values())
    assert [name for name in named if not re.search(rf"{name}\d*['\"]?\s*[:,]", whole)] == []
    assert f'LETTERS = "{LETTERS}"' in (WEB / "parts.js").read_text("utf-8")


def test_letters_go_on_and_colours_begin_again():
    names = [letter(at) for at in (0, 3, 25, 26, 51, 52, 701)]
    assert names == ["A", "D", "Z", "AA", "AZ", "BA", "ZZ"]
    assert series_colour(6) == series_colour(0) != series_colour(1)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_causes_of_the_budget_are_told_apart_without_colours(theme: Theme):
    colours = PALETTES[theme]
    assert contrast(colours["cause-pruned"], colours["cause-short"]) > 1.5


def test_every_cause_of_a_figure_has_its_colour_in_the_page_too():
    rules = causes()
    for cause in CAUSES:
        name = CAUSE_COLOURS[Cause(cause)]
        assert f".end.{cause}{{--ds-end:var(--ds-{name})}}" in rules and name in PALETTES["light"]
