"""The tab Results in a real browser: the shipped table, its choices and its order."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")

from playwright.sync_api import Page, expect

from app.studio.tabs.results import SHIPPED, table
from core.methods.names import METHODS
from tests.browser.steps import Open, drag, tab
from tests.helpers.engine_logs import LOGS

pytestmark = pytest.mark.browser


def speeds(page: Page) -> list[float]:
    said = page.locator(".ds-results tbody td:nth-child(3)").all_inner_texts()
    return [float(each.rstrip("×")) for each in said if each != "–"]  # not measured, at the end


def test_the_table_is_sorted_and_filtered(visit: Open):
    page = visit()
    tab(page, "results")
    rows = page.locator(".ds-results tbody tr")
    shipped = json.loads(SHIPPED.read_text())["rows"]
    expect(rows.first).to_be_visible()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("speed")
    assert speeds(page) == sorted(speeds(page), reverse=True) and speeds(page)[0] > 1
    expect(page.locator(".ds-scatter .dot")).to_have_count(len(speeds(page)))
    place = page.locator("#ds-results")
    place.get_by_role("button", name="τ").click()
    first = [float(each) for each in page.locator(".ds-tau > span:first-child").all_inner_texts()]
    best = max(r["tau"] for r in shipped if (r["temperature"], r["source"]) == (0, "all"))
    assert first == sorted(first, reverse=True) and first[0] == pytest.approx(best, abs=0.006)
    place.get_by_label("temperature").select_option(label="T = 1")
    place.get_by_label("budget").select_option(label="budget 16")
    place.get_by_role("button", name="speed").click()
    some = [r for r in shipped if (r["temperature"], r["source"]) == (1, "all")]
    with_it = {r["method"] for r in some if r["budget"] == 16}
    shown = [r for r in some if r["budget"] == 16 or (r["own"] and r["method"] not in with_it)]
    expected = sorted((r["speed"] for r in shown if r["speed"]), reverse=True)
    said = speeds(page)
    assert said[0] == pytest.approx(expected[0], abs=0.006) and said == sorted(said, reverse=True)
    expect(page).to_have_url(re.compile("view=results"))
    texts, timed = (max(r[name] for r in shipped) for name in ("texts", "timed"))
    expect(place).to_contain_text(f"{texts} prompts")
    expect(place).to_contain_text(f"times of {timed}, on one machine")
    expect(place).to_contain_text(re.compile("not timed: (UNO, MTP|MTP, UNO)"))
    page.keyboard.press("p")
    expect(place).to_contain_text("T = 1 · all prompts · budget 16")


def test_rows_without_an_interval_have_their_bars_and_dots(visit: Open):
    page = visit()
    tab(page, "results")
    expect(page.locator(".ds-scatter .dot").first).to_be_visible()
    expect(page.locator(".ds-scatter")).to_contain_text("with its 95 % interval")
    whole = json.loads(SHIPPED.read_text())
    rows = [row | {"low": None, "high": None} for row in whole["rows"]]
    drag(page, "drop", ("few.json", "", json.dumps(whole | {"rows": rows}).encode()))
    place = page.locator("#ds-results")
    expect(place.locator("h2 + span").last).to_have_text("few.json")
    expect(page.locator(".ds-scatter")).not_to_contain_text("95 %")
    told = place.locator(".ds-tau").evaluate_all(
        "all => all.map((each) => [Number(each.firstChild.textContent), ...['bar', 'whisker'].map("
        "(name) => each.querySelector(`.ds-tau-${name}`).getBoundingClientRect().width)])"
    )
    most = max(told)
    for tau, bar, whisker in told:
        assert bar == pytest.approx(most[1] * tau / most[0], rel=0.02) and bar > 0 == whisker
    lines = place.locator(".ds-scatter .whisker")
    paths = lines.evaluate_all("all => all.map((each) => each.getAttribute('d'))")
    assert paths and all(re.fullmatch(r"M([\d.]+) [\d.]+H\1", path) for path in paths)


def test_what_ships_is_lossless_and_of_methods_that_exist():
    rows = table()["rows"]
    assert {row["method"].partition("+")[0] for row in rows} <= set(METHODS)
    assert all(row["same"] == row["timed"] <= row["texts"] for row in rows)
    assert all(row["agree"] in (None, row["timed"]) for row in rows)
    assert all(row["low"] <= row["tau"] <= row["high"] for row in rows)
    assert {row["temperature"] for row in rows} == {0, 1}


def test_an_opened_file_is_there_again_after_a_reload_and_goes_on_the_way_back(visit: Open):
    page = visit()
    tab(page, "results")
    place = page.locator("#ds-results")
    rows = place.locator(".ds-results tbody tr")
    expect(rows.first).to_be_visible()
    page.wait_for_function("() => history.state?.draftscope?.view === 'results'")
    drag(page, "drop", ("a.log", "", LOGS["vLLM, 2025"].encode()))
    card = place.get_by_label("An opened file")
    expect(card).to_contain_text("a.log")
    expect(card.get_by_role("table").first).to_be_visible()
    page.wait_for_function("() => history.state.draftscope.runs[1] === 'a.log'")
    page.reload()
    expect(card.get_by_role("table").first).to_be_visible()
    expect(card).to_contain_text("a.log")
    page.go_back()
    expect(card).to_be_hidden()
    expect(rows.first).to_be_visible()
