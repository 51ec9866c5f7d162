"""Figures: what they draw against the tables, what they may never draw, and that nothing leaves the
plot."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.charts import figures
from analysis.charts.chart import as_json, chart
from analysis.charts.figures import FIGURES, PAGE, Style
from analysis.charts.palette import PALETTES
from analysis.charts.parts import About, Axis, Point, Series
from analysis.measures import acceptance, causes, reliability
from analysis.measures.tables import Tables
from core.stats import FEW_SEEN
from core.traces.schema import Trace
from tests.helpers import fakes

EVIL = "<img src=x onerror=alert(1)> %{x} var(--ds-ink) @ink"
PAGE_RUN = Style("page", "run")
ABOUT = About("a title", "what it means", Axis("x"), Axis("y"))


def run(method: str, seed: int = 0, rounds: int = 30) -> Trace:
    found = tuple(islice(fakes.rounds_of(24, False, seed, "ddtree"), rounds))
    return Trace(fakes.make_header("why?", method, budget=24), found, {})


TRACES = {"A": run("ddtree"), "B": run("dart", 3), "C": run("treeflash", 5, 6), "D": run(EVIL, 7)}


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables.of(TRACES)


def drawn_texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """All texts of a figure that Plotly may draw, with the attribute each is of."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key != "meta":
                yield from drawn_texts(each, key)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from drawn_texts(each, name)
    elif isinstance(value, str):
        yield name, value


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("theme", PALETTES)
def test_no_name_becomes_markup_or_a_colour(tables: Tables, name: str, theme: Any):
    by_run = theme == "page"  # runs and methods have the same colours in the other themes
    style = Style(theme, "run", {"D": EVIL}) if by_run else Style(theme)
    drawn = as_json(FIGURES[name](tables, style))
    assert drawn["data"], "nothing was drawn"
    for key, text in drawn_texts(drawn):
        assert "<" not in text.replace("<br>", ""), text
        if key.endswith(("color", "fgcolor")):
            assert text in PALETTES[theme].values(), key


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("runs", ["A", "ABCD", "C"])
def test_nothing_leaves_the_plot(name: str, runs: str):
    drawn = as_json(FIGURES[name](Tables.of({r: TRACES[r] for r in runs}), PAGE_RUN))
    layout = drawn["layout"]
    (left, right), (low, high) = layout["xaxis"]["range"], layout["yaxis"]["range"]
    log = layout["xaxis"].get("type") == "log"
    points = 0
    stacks: dict[tuple[Any, float], float] = {}
    for trace in drawn["data"]:
        known = [at for at, y in enumerate(trace["y"]) if y is not None]
        bars = trace.get("error_y", {"array": [0] * len(trace["y"])})
        for at in known:
            x, y = trace["x"][at], trace["y"][at]
            assert left <= (math.log10(x) if log else x) <= right
            assert low <= y - bars.get("arrayminus", bars["array"])[at]
            assert y + bars["array"][at] <= high
            points += 1
            if layout["barmode"] == "stack":
                where = trace["meta"].get("choice"), x
                stacks[where] = stacks.get(where, 0) + y
    assert points
    assert all(total == pytest.approx(1) for total in stacks.values())
    for label in layout.get("annotations", ()):
        assert low <= label["y"] <= high


# a figure of runs: its table, and the columns of a point
POINTS = {
    "acceptance-by-depth": (acceptance.per_depth, "depth", "acceptance", "acceptance_", "observed"),
    "tvd-by-depth": (acceptance.per_depth, "depth", "tvd", "tvd_", "probed"),
    "reliability-path": (reliability.reliability, "mean_q", "share", "share_", "nodes"),
    "reliability-step": (partial(reliability.reliability, event="step"), "mean_q", "share",
                         "share_", "nodes"),
    "expected-accepted": (reliability.surrogate_curve, "expected", "accepted", "", "rounds"),
}  # fmt: skip


@pytest.mark.parametrize("name", POINTS)
def test_points_are_the_table_s(tables: Tables, name: str):
    measure, x, y, stem, n = POINTS[name]
    table = measure(tables, by="run")
    drawn = as_json(FIGURES[name](tables, PAGE_RUN))
    lines = [each for each in drawn["data"] if (each.get("meta") or {}).get("points")]
    assert len(lines) == len(TRACES)
    for trace in lines:
        own = table[(table["run"] == trace["meta"]["name"]) & table[y].notna() & (table[x] > 0)]
        points = trace["meta"]["points"]
        columns = {"x": x, "y": y, "low": f"{stem}low", "high": f"{stem}high", "n": n}
        for key, column in columns.items():
            found = [point.get(key, math.nan) for point in points]
            assert found == pytest.approx(own[column].tolist(), nan_ok=True), column
        shown = [y for y in trace["y"] if y is not None]
        assert shown == pytest.approx(own.loc[own[n] >= FEW_SEEN, y].tolist())


def test_of_one_run_acceptance_and_coverage_have_their_own_columns(tables: Tables):
    one = Tables.of({"A": TRACES["A"]})
    depths = acceptance.per_depth(one, by="run")

    def drawn(name: str, of: Tables) -> dict[tuple[str, str], list[dict[str, float]]]:
        told = [each.get("meta") or {} for each in as_json(FIGURES[name](of, PAGE_RUN))["data"]]
        return {(m["name"], m.get("choice", "")): m["points"] for m in told if m.get("points")}

    lines = drawn("acceptance-by-depth", one)
    for name, y, n in (("best token right", "top1", "observed"),
                       ("from the root on", "marginal", "rounds")):  # fmt: skip
        known = depths[depths[y].notna()]
        assert [p["y"] for p in lines[name, ""]] == pytest.approx(known[y].tolist())
        assert [p["n"] for p in lines[name, ""]] == known[n].tolist()
    several = drawn("coverage-by-depth", tables) | drawn("coverage-by-width", tables)
    whole = acceptance.per_depth(tables, by="run").set_index(["run", "depth"])
    for (run, choice), points in several.items():
        by, at = choice.split()[0], int(choice.split()[-1])
        for point in points:
            k, depth = (at, point["x"]) if by == "K" else (point["x"], at)
            assert point["y"] == pytest.approx(whole.loc[(run, depth), f"coverage_{k}"])
            assert point["n"] == whole.loc[(run, depth), "probed"]
    chosen = as_json(FIGURES["coverage-by-depth"](tables, PAGE_RUN))["layout"]["meta"]["chosen"]
    assert chosen == "K = 8"


def test_rounds_stand_at_their_length_by_their_share():
    drawn = as_json(figures.lengths_of("mine", [1, 3, 3, 4]))
    (trace,) = drawn["data"]
    places = drawn["layout"]["meta"]["places"]
    found = {places[int(p["x"])]: (p["y"], p["words"]) for p in trace["meta"]["points"]}
    assert found == {1: (0.25, "1 round"), 3: (0.5, "2 rounds"), 4: (0.25, "1 round")}


def test_a_chance_of_zero_has_no_place_on_an_axis_of_logarithms():
    row = {"share": 0.5, "share_low": 0.25, "share_high": 0.75, "nodes": 9}
    curve = pd.DataFrame([{"method": "m", "mean_q": q} | row for q in (0.0, 0.25)])
    for draw, expected in ((figures.reliability_of_paths, [0.25]),
                           (figures.reliability_of_steps, [0.0, 0.25])):  # fmt: skip
        (line,) = (t for t in as_json(draw(curve))["data"] if (t.get("meta") or {}).get("points"))
        assert [point["x"] for point in line["meta"]["points"]] == expected


def test_causes_are_pressed_by_their_own_names(tables: Tables):
    shares = causes.cause_shares(tables, "nodes", by="run")
    drawn = as_json(figures.node_causes(shares, PAGE_RUN))
    places = drawn["layout"]["meta"]["places"]
    found = {
        (each["meta"]["choice"], each["meta"]["key"], places[p["x"]]): p["y"]
        for each in drawn["data"] for p in each["meta"]["points"]
    }  # fmt: skip
    said = {p["words"] for each in drawn["data"] for p in each["meta"]["points"]}
    assert said == {f"{a} of {b}" for a, b in zip(shares["count"], shares["total"], strict=True)}
    assert places == sorted(places)
    wanted = zip(shares["run"], shares["cause"], shares["depth"], strict=True)
    assert found == pytest.approx(dict(zip(wanted, shares["share"], strict=True)))
    assert not any(each["name"].startswith("not drafted") for each in drawn["data"])


def test_a_run_has_its_colour_in_figures_without_the_others(tables: Tables):
    names = {letter: f"{letter} run" for letter in TRACES}
    drawn = as_json(FIGURES["tvd-by-depth"](Tables.of({"C": TRACES["C"], "B": TRACES["B"]}),
                                            Style("page", "run", names)))  # fmt: skip
    colours = {trace["meta"]["name"]: trace["marker"]["color"] for trace in drawn["data"]}
    assert colours["C run"] == "var(--ds-series-3)" and colours["B run"] == "var(--ds-series-2)"


def test_points_of_few_observations_are_faint():
    points = [Point(x, x / 10, n=n) for x, n in enumerate((9, 7, 4, 6, 1))]
    whole, faint = as_json(chart(ABOUT, [Series("one", points)]))["data"]
    assert [y for y in whole["y"] if y is not None] == [0.0, 0.1, 0.3]
    at = whole["y"].index(0.3)
    assert whole["y"][at - 1] is None  # no whole line leads to it
    assert faint["opacity"] < 0.5
    marked = zip(faint["y"], faint["marker"]["size"], strict=True)
    assert {y for y, size in marked if y is not None and size} == {0.2, 0.4}


def test_a_list_shows_one_entry_at_a_time():
    series = [
        Series(name, [Point(1, at), Point(2, at)], choice=choice)
        for choice in ("K = 1", "K = 8") for at, name in enumerate(("one", "two"))
    ]  # fmt: skip
    drawn = as_json(chart(replace(ABOUT, chosen="K = 8"), series))
    (menu,) = drawn["layout"]["updatemenus"]
    assert [trace["visible"] for trace in drawn["data"]] == [False, False, True, True]
    assert menu["active"] == 1 and [each["label"] for each in menu["buttons"]] == ["K = 1", "K = 8"]
    for button in menu["buttons"]:
        shown = zip(drawn["data"], button["args"][0]["visible"], strict=True)
        assert {t["meta"]["choice"] for t, on in shown if on} == {button["label"]}
        assert [each["text"] for each in button["args"][1]["annotations"]] == ["one", "two"]
    colours = [trace["marker"]["color"] for trace in drawn["data"]]
    assert colours[:2] == colours[2:] and colours[0] != colours[1]


@pytest.mark.parametrize(
    ("names", "labelled"),
    [(["a", "b"], True), (list("abcdefg"), False), (["a", "w" * 40], False), (["alone"], False)],
)
def test_a_few_lines_carry_their_names(names: list[str], labelled: bool):
    lines = [Series(name, [Point(0, at), Point(1, at)]) for at, name in enumerate(names)]
    layout = as_json(chart(ABOUT, lines))["layout"]
    assert bool(layout.get("annotations")) == labelled
    assert layout["showlegend"] == (not labelled and len(names) > 1)


def test_where_both_are_the_same_is_a_curve_on_an_axis_of_logarithms():
    about = replace(ABOUT, x=Axis("x", (0.001, 1), log=True), guides=("diagonal",))
    guide, _ = as_json(chart(about, [Series("one", [Point(0.01, 0.5)])]))["data"]
    assert guide["x"] == guide["y"] and np.all(np.diff(np.log(guide["x"])) > 0)
    ticks = as_json(chart(about, [Series("one", [Point(0.01, 0.5)])]))["layout"]["xaxis"]
    assert list(ticks["ticktext"]) == ["0.001", "0.01", "0.1", "1"]
    about = replace(ABOUT, x=Axis("x", (0.015, 0.6), log=True))
    ticks = as_json(chart(about, [Series("one", [Point(0.1, 0.5)])]))["layout"]["xaxis"]
    assert list(ticks["ticktext"]) == ["0.02", "0.05", "0.1", "0.2", "0.5"]


def test_a_file_says_what_was_chosen_and_of_how_many_each_point_is():
    few, many = Point(1, 0.5, n=2), Point(2, 0.5, 0.4, 0.6, n=31)
    series = [
        Series("one", [few, many], choice="K = 1"),
        Series("one", [many], choice="K = 8"),
        Series("one", [Point(1, 0.5)], "bars", choice="<b>", total="9 rounds"),
        Series("one", [Point(1, 0.5, doubt="not exact")] * 2, choice="K = 9"),
    ]
    layout = as_json(chart(replace(ABOUT, chosen="K = 8"), series))["layout"]
    shown = [button["args"][1]["title"] for button in layout["updatemenus"][0]["buttons"]]
    assert layout["title"] == shown[1] and {title["text"] for title in shown} == {ABOUT.title}
    assert [title["subtitle"]["text"] for title in shown] == [
        f"K = 1, n = 2 to 31, 95 % intervals, faint: n &lt; {FEW_SEEN}",
        "K = 8, n = 31, 95 % intervals",
        "&lt;b&gt;, 9 rounds",
        "K = 9, hollow: not exact",
    ]


def test_bars_are_told_apart_without_their_colours(tables: Tables):
    bars = as_json(FIGURES["lengths"](tables, PAGE_RUN))["data"]
    hatches = [trace["marker"]["pattern"]["shape"] for trace in bars]
    assert len(hatches) > 1 and len(set(hatches)) == len(hatches)


def test_no_point_is_said_so():
    drawn = as_json(chart(ABOUT, [Series("one", ())], "page"))
    assert not drawn["data"] and drawn["layout"]["annotations"][0]["text"] == "not recorded"


def test_the_page_s_figures_are_plain_json(tables: Tables):
    for draw in FIGURES.values():
        assert json.dumps(as_json(draw(tables, PAGE)), allow_nan=False)
