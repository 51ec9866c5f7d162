"""Every view is a function of the address: a link opens the same view in an empty profile, and Back
returns to what was on view."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")

from playwright.sync_api import Page, expect

from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.browser.steps import (
    PROMPT,
    Open,
    at_round,
    compare,
    open_file,
    run,
    state,
    tab,
    title,
)
from tests.fakes import make_header, make_run

pytestmark = pytest.mark.browser


def settled(page: Page, *said: str) -> str:
    """The address, once it says all of this."""
    for each in said:
        page.wait_for_function("(part) => location.hash.includes(part)", arg=each)
    return page.url


def about(page: Page):
    return page.locator(".ds-about:visible q")


def test_results_link_has_what_is_chosen_and_the_order(visit: Open):
    page = visit()
    tab(page, "results")
    place = page.locator("#ds-results")
    expect(place.locator("tbody tr").first).to_be_visible()
    place.get_by_label("temperature").select_option(label="T = 1")
    place.get_by_label("budget").select_option(label="each method's own budget")
    place.get_by_role("button", name="τ").click()
    url = settled(page, "temperature=1", "budget=own", "sort=tau")
    rows = place.locator("tbody tr").all_inner_texts()

    again = visit(url)
    place = again.locator("#ds-results")
    expect(place.locator("tbody tr")).to_have_count(len(rows))
    assert place.locator("tbody tr").all_inner_texts() == rows
    expect(place.locator("th[aria-sort=descending]")).to_contain_text("τ")
    again.go_back()  # what was chosen is one view: Back leaves it


def test_an_example_s_link_has_round_node_and_drawing(visit: Open, address: str):
    page = visit(f"{address}/#trace=chat-dart&round=4")
    expect(title(page)).to_have_text(at_round(4))
    page.get_by_role("button", name="Table", exact=True).locator("visible=true").click()
    page.locator("#ds-scope .ds-node-table tbody tr, #ds-scope table tbody tr").locator(
        "visible=true"
    ).nth(2).click()
    url = settled(page, "trace=chat-dart", "round=4", "nodes=table", "node=")
    again = visit(url)
    expect(title(again)).to_have_text(at_round(4))
    expect(again.get_by_role("button", name="Tree", exact=True).locator("visible=true")).to_have_count(2)
    expect(again.locator("#ds-scope .ds-inspector")).to_be_visible()


def test_a_live_run_s_link_runs_its_request_again(visit: Open):
    page = visit()
    run(page, "hello & goodbye = “all”", budget=16)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    url = settled(page, "round=2", "made=")
    assert "hello" in url and "budget" in url
    again = visit(url)
    expect(about(again)).to_have_text("hello & goodbye = “all”")
    expect(title(again)).to_have_text(at_round(2))
    expect(again.locator(PROMPT)).to_have_value("hello & goodbye = “all”")
    expect(again.locator("#ds-open-settings")).to_contain_text("16")


def test_a_file_s_link_says_that_the_file_is_needed(visit: Open, tmp_path: Path):
    path = tmp_path / "t.jsonl"
    write_trace(path, Trace(make_header(), tuple(make_run(6)), {}))
    page = visit()
    open_file(page, path)
    page.keyboard.press("End")
    url = settled(page, "round=6", "made=")
    again = visit(url)
    expect(again.locator(".ds-banner:visible")).to_contain_text("open that file here")
    expect(again.locator(".ds-node:visible")).to_have_count(0)
    again.locator("#ds-open-settings").click()
    with again.expect_file_chooser() as chosen:
        again.locator("#ds-open").click()
    chosen.value.set_files(path)
    expect(title(again)).to_have_text(at_round(6))


def test_a_comparison_s_link_has_its_place(visit: Open):
    page = visit()
    compare(page, "two of them", "DFlash", "DDTree")
    place = page.locator(".ds-place:visible")
    expect(place).to_contain_text("Token")
    page.locator("#ds-c-scope .ds-tree").first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(place).not_to_have_text(re.compile("^Token 1 of"))
    said = place.inner_text()
    url = settled(page, "view=compare", "place=", "made=")
    again = visit(url)
    expect(state(again)).to_have_count(2)
    expect(again.locator(".ds-place:visible")).to_have_text(said)
