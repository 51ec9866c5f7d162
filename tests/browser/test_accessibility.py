"""Every tab through axe-core: names, roles, order, and contrast in light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Page, expect

from tests.browser.axe_core import check
from tests.browser.steps import Open, open_form

pytestmark = pytest.mark.browser

STATES = {
    "opened": "",
    "run": "#trace=chat-ddtree-64&round=3&node=1",
    "compare": "#view=compare&trace=chat-ddtree-16,chat-dart&round=2&node=1",
    "calibration": "#view=calibration",
    "whatif": "#view=whatif",
    "results": "#view=results",
    "denoise": "#view=denoise",
    "learn": "#learn=3.2",
}
FORMS = {"opened": "ds", "compare": "ds-c", "denoise": "ds-d"}  # the forms' prefixes
SEEN = {
    "opened": "#ds-scope .ds-node",
    "run": "#ds-scope .ds-inspector dl",
    "compare": "#ds-c-scope .ds-beside table",
    "calibration": ".ds-findings li",
    "whatif": "#ds-w-scope .ds-node, .ds-whatif-tree .ds-node",
    "results": "#ds-results .ds-scope",
    "denoise": ".dn-card .chip",
    "learn": ".ds-learn h2",
}


def opened(visit: Open, address: str, name: str) -> Page:
    """A tab with something to see."""
    page = visit(f"{address}/{STATES[name]}", color_scheme="light", bypass_csp=True)
    shown = page.locator(SEEN[name]).locator("visible=true").first
    expect(shown).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)  # Gradio's own word, outside of landmarks
    return page


def rounds_are_sound(page: Page, axe: Path) -> None:
    """The table of rounds, filtered."""
    page.get_by_role("button", name="Rounds", exact=True).locator("visible=true").click()
    expect(page.get_by_role("grid", name="Rounds").locator("tbody tr").nth(5)).to_be_visible()
    page.get_by_label("Filter the rounds").locator("visible=true").fill("tvd > 0.2")
    expect(page.locator(".ds-rounds tr.in-hand, .ds-rounds tbody tr").first).to_be_visible()
    check(page, axe)


def the_open_form_is_sound(page: Page, axe: Path, prefix: str) -> None:
    open_form(page, prefix)
    expect(page.get_by_role("textbox", name="Prompt").locator("visible=true")).to_be_visible()
    settings = page.get_by_role("dialog", name="Settings").locator("visible=true")
    expect(settings).to_be_focused()
    bounds = page.locator(".min_value, .max_value").locator("visible=true")
    expect(bounds.first).to_be_visible()  # the small numbers beside a slider
    for fold in page.locator(f"#{prefix}-settings summary:visible").all():
        fold.click()
    check(page, axe)


@pytest.mark.parametrize("name", [name for name in STATES if name not in ("run", "compare")])
def test_axe_finds_no_fault(visit: Open, address: str, axe: Path, name: str):
    page = opened(visit, address, name)
    expect(page.locator("body.dark")).to_have_count(0)
    menus = page.locator("select:visible")
    assert "none" not in menus.evaluate_all("all => all.map(x => getComputedStyle(x).appearance)")
    check(page, axe)
    if name in FORMS:
        the_open_form_is_sound(page, axe, FORMS[name])


@pytest.mark.parametrize("name", ["calibration", "whatif", "results"])
def test_axe_finds_no_fault_in_what_is_presented(visit: Open, address: str, axe: Path, name: str):
    page = opened(visit, address, name)
    page.locator("#ds-present").click()
    expect(page.locator(".ds-presenting")).to_be_visible()
    check(page, axe)


def test_axe_finds_no_fault_in_a_run_its_help_and_its_table_and_keys_reach_all(
    visit: Open, address: str, axe: Path
):
    page = opened(visit, address, "run")
    the_first_stop_leads_to_the_tree(page)
    the_inspector_is_scrolled(page)
    its_nodes_are_items_of_a_tree(page)
    check(page, axe)
    the_focus_follows_to_the_table_of_nodes_and_back(page)
    page.locator("#ds-scope .ds-tree").press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    check(page, axe)
    page.keyboard.press("Escape")
    rounds_are_sound(page, axe)


def the_focus_follows_to_the_table_of_nodes_and_back(page: Page) -> None:
    tree = page.locator("#ds-scope .ds-tree")
    tree.press("t")
    row = page.locator("#ds-scope .ds-nodes tr[tabindex='0']")
    expect(row).to_be_focused()
    row.press("ArrowRight")  # another round has other lines
    expect(row).to_be_focused()
    row.press("t")
    expect(tree).to_be_focused()


def the_first_stop_leads_to_the_tree(page: Page) -> None:
    """The first stop of the Tab key."""
    page.evaluate("document.body.focus(); window.getSelection().removeAllRanges()")
    page.locator("body").press("Tab")
    skip = page.get_by_role("button", name="Skip to the tree")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.classList.contains('ds-tree')")


def its_nodes_are_items_of_a_tree(page: Page) -> None:
    """As the browser tells a screen reader: an element between tree and items would part them."""
    told = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    roles = [each["role"]["value"] for each in told if not each["ignored"]]
    assert roles.count("tree") == 1
    assert roles.count("treeitem") >= page.locator("#ds-scope .ds-node:not(.out)").count() > 3


def the_inspector_is_scrolled(page: Page) -> None:
    body = page.locator("#ds-scope .ds-inspector-body")
    expect(body).to_contain_text("token id")
    body.focus()
    body.press("End")
    page.wait_for_function("document.querySelector('#ds-scope .ds-inspector-body').scrollTop > 50")


def test_axe_finds_no_fault_in_a_comparison_and_its_table_and_tokens_have_names(
    visit: Open, address: str, axe: Path
):
    page = opened(visit, address, "compare")
    names = "options => options.map((each) => each.getAttribute('aria-label') || each.textContent)"
    for words in page.locator("#ds-c-scope [role=option]").evaluate_all(names):
        assert words.strip()
    check(page, axe)
    rounds_are_sound(page, axe)
    the_open_form_is_sound(page, axe, FORMS["compare"])


def test_arrows_go_along_the_choices_of_a_group(visit: Open, address: str):
    page = visit(address)
    open_form(page)
    budgets = page.get_by_role("group", name="Draft budget B")
    budgets.get_by_role("radio", name="64", exact=True).focus()
    page.keyboard.press("ArrowRight")
    expect(budgets.get_by_role("radio", name="256")).to_be_focused()
    expect(page.locator("#ds-open-settings")).to_contain_text("DDTree B 256")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#ds-open-settings")).to_contain_text("DDTree B 1024")
    expect(page.get_by_role("group", name="Method").get_by_role("radio")).not_to_have_count(0)


def test_the_legend_is_beside_the_inspector(visit: Open, address: str):
    page = visit(f"{address}/{STATES['run']}", viewport={"width": 960, "height": 600})
    expect(page.locator(SEEN["run"])).to_be_visible()
    legend = page.locator("#ds-scope .ds-legend").bounding_box()
    inspector = page.locator("#ds-scope .ds-inspector").bounding_box()
    assert legend is not None and inspector is not None
    assert legend["x"] + legend["width"] <= inspector["x"] + 1
