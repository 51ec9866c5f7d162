"""Answers of the server that come when something else is on view: they change nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")

from playwright.sync_api import Page, expect

from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.browser.steps import (
    FRAMES,
    NODE,
    PROMPT,
    Open,
    asks,
    at_round,
    holding,
    let_go,
    open_file,
    run,
    settle,
    state,
    tab,
    title,
)
from tests.helpers.fakes import make_header, make_run

pytestmark = pytest.mark.browser


def go_to(page: Page, address: str) -> None:
    """Follow a link within the page."""
    page.evaluate("(address) => { location.hash = address; }", address)


def named(page: Page, part: str) -> None:
    page.wait_for_function("(part) => location.hash.includes(part)", arg=part)


def test_a_node_has_its_own_run_s_numbers(visit: Open, address: str):
    page = visit(f"{address}/#trace=chat-dart&round=4")
    expect(title(page)).to_have_text(at_round(4))
    node = page.locator(f"#ds-scope {NODE}.ghost")
    with holding(page, "inspect") as held:
        node.click()
    go_to(page, "trace=chat-treeflash&round=4")
    expect(page.locator("#ds-view-run .ds-about")).to_contain_text("TreeFlash")
    expect(title(page)).to_have_text(at_round(4))
    let_go(page, held)
    with page.expect_request(lambda request: asks(request, "inspect")):
        node.click()
    expect(page.locator("#ds-scope .ds-inspector")).to_contain_text("the target's token")


def test_an_example_that_is_answered_after_start_is_not_opened(visit: Open):
    page = visit()
    settle(page)
    page.locator("#ds-scope .ds-tree").press("e")
    shelf = page.get_by_role("dialog", name="Examples and runs").locator("visible=true")
    with holding(page, "example") as held:
        shelf.locator("[aria-label=Chat] .ds-example").first.click()
    page.keyboard.press("Escape")
    run(page, "started meanwhile")
    let_go(page, held)
    page.locator("#ds-scope .ds-tree").focus()
    page.keyboard.press("Home")
    named(page, "round=1")
    expect(page.locator(".ds-about:visible q")).to_have_text("started meanwhile")
    page.locator("#ds-scope .ds-tree").press("e")
    shelf.locator("[aria-label=Chat] .ds-example").first.press("Enter")
    expect(page.locator(".ds-about:visible q")).not_to_have_text("started meanwhile")
    expect(page.locator("#ds-scope .ds-tree")).to_be_focused()  # who came by keys goes on by keys


def test_a_form_is_filled_by_the_last_question(visit: Open, tmp_path: Path):
    path = tmp_path / "t.jsonl"
    write_trace(path, Trace(make_header("a file's own prompt"), tuple(make_run(6)), {}))
    page = visit()
    settle(page)
    with holding(page, "quietly") as held:
        go_to(page, "trace=chat-dart&round=4")
    open_file(page, path)
    expect(page.locator(PROMPT)).to_have_value("a file's own prompt")
    let_go(page, held)
    settle(page)
    expect(page.locator(PROMPT)).to_have_value("a file's own prompt")


def test_an_address_that_is_answered_late_replaces_no_run(visit: Open):
    page = visit()
    settle(page)
    with holding(page, "example") as held:
        go_to(page, "trace=chat-dart&round=4")
    run(page, "started meanwhile")
    let_go(page, held)
    page.locator("#ds-scope .ds-tree").focus()
    page.keyboard.press("Home")
    named(page, "round=1")
    expect(page.locator(".ds-about:visible q")).to_have_text("started meanwhile")
    expect(title(page)).to_have_text(at_round(1))


def test_a_round_of_an_address_is_not_gone_to_in_another_run(visit: Open):
    page = visit()
    run(page, "slow", wait="running")
    named(page, "made=")
    made = page.evaluate("location.hash.split('&').find((part) => /made=/.test(part))")
    page.locator("#ds-stop").click()
    expect(state(page)).to_have_attribute("data-state", "stopped")
    go_to(page, f"{made.removeprefix('#')}&round=40")
    expect(state(page)).to_have_attribute("data-state", "running")
    expect(page.locator(".ds-band").nth(1)).to_be_attached()  # its first rounds are there
    page.get_by_role("button", name="Examples").locator("visible=true").click()
    page.locator("dialog[open] .ds-shelf", has_text="Story").locator(".ds-example").first.click()
    expect(state(page)).to_have_attribute("data-state", "done")
    named(page, "trace=story")
    expect(page.locator(".ds-band").nth(45)).to_be_attached()  # it has that round
    expect(title(page)).to_have_text(at_round(1))


def test_what_two_runs_do_not_share_is_said_of_no_other_two(visit: Open):
    page = visit()
    tab(page, "denoise")
    place = page.locator("#ds-d-scope")
    examples = page.locator("#ds-d-panel").get_by_role("button", name="Examples")
    expect(place.locator(".dn-card:visible")).to_have_count(2)
    pairs = place.locator("dialog .ds-example", has_text="side by side")
    with holding(page, "compare") as held:
        examples.click()
        pairs.first.click()
    asked, same = place.locator(".dn-asked"), place.locator(".dn-same")
    before = asked.inner_text()
    examples.click()
    pairs.last.click()
    expect(asked).not_to_have_text(before)
    expect(same).to_contain_text("the same tokens")
    let_go(page, held, {"cautions": ["of two other runs"]})
    page.keyboard.press("ArrowRight")
    expect(place.locator(".dn-place")).to_contain_text("Step 2 of")
    expect(place).not_to_contain_text("of two other runs")
    expect(same).to_contain_text("the same tokens")


def test_of_two_saved_runs_neither_is_drawn_without_the_other(visit: Open):
    page = visit()
    tab(page, "denoise")
    cards = page.locator("#ds-d-scope .dn-card:visible")
    expect(cards).to_have_count(2)
    examples = page.locator("#ds-d-panel").get_by_role("button", name="Examples")
    with holding(page, "since") as held:
        examples.click()
        pair = page.locator("#ds-d-scope dialog .ds-example", has_text="side by side")
        pair.first.click()
    page.evaluate(FRAMES)
    expect(cards).to_have_count(0)
    let_go(page, held)
    expect(cards).to_have_count(2)
