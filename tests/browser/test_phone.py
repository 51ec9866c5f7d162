"""The page on a phone: something to see at once, everything within reach of a thumb."""

from __future__ import annotations

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Page, expect

from app.studio.tabs import TABS
from tests.browser.steps import Open

pytestmark = pytest.mark.browser

WIDTH, HEIGHT = 390, 844


@pytest.fixture
def phone(visit: Open) -> Page:
    page = visit(viewport={"width": WIDTH, "height": HEIGHT}, has_touch=True)
    expect(page.locator("#ds-scope .ds-node").first).to_be_visible()
    return page


def fits(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth") <= WIDTH


def test_it_opens_on_an_example_with_the_form_closed(phone: Page):
    expect(phone.locator("#ds-scope .ds-band").first).to_be_visible()
    expect(phone.locator("#ds-settings")).to_be_hidden()
    for name in (each.name for each in TABS):
        at = phone.locator(f"#ds-views [role=tab][data-tab-id={name}]").locator("visible=true")
        box = at.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= WIDTH + 1, name
        assert at.evaluate("(tab) => tab.scrollWidth <= tab.clientWidth + 1"), name
    assert fits(phone)
    expect(phone.locator("#ds-scope .ds-tree.far")).to_have_count(0)  # q and p are read
    phone.set_viewport_size({"width": 844, "height": 390})  # held across: the same, and the tree
    root = phone.locator("#ds-scope .ds-node.root").bounding_box()
    assert root is not None and root["y"] + root["height"] < 390
    expect(phone.locator("#ds-views [role=tab]").locator("visible=true")).to_have_count(len(TABS))


def test_steps_stay_at_the_bottom_and_the_inspector_is_a_sheet_above_them(phone: Page):
    steps = phone.locator("#ds-scope .ds-transport")
    box = steps.bounding_box()
    assert box is not None and abs(box["y"] + box["height"] - HEIGHT) < 2
    steps.get_by_role("button", name="Round after").tap()
    expect(phone.locator("#ds-scope .ds-round-title")).to_contain_text(
        "Round 3"
    )  # it opened on the second
    phone.locator("#ds-scope .ds-node.accepted").first.tap()
    sheet = phone.locator("#ds-scope .ds-inspector")
    expect(sheet.locator("dl")).to_be_visible()
    place = sheet.bounding_box()
    assert place is not None
    assert place["width"] == WIDTH
    assert abs(place["y"] + place["height"] - box["y"]) < 3
    assert place["height"] < 0.6 * HEIGHT
    assert fits(phone)
    sheet.get_by_role("button", name="Close").tap()
    expect(sheet).to_be_hidden()
    below = phone.locator("#ds-scope .ds-stage > .ds-below")
    for name in ("Stages", "Stats"):  # as high as what they hold
        phone.locator("#ds-scope .ds-switch button", has_text=name).tap()
        expect(below).to_be_visible()
        assert below.evaluate("e => e.clientHeight > 200 && e.scrollHeight <= e.clientHeight"), name


def test_a_link_is_not_replaced_by_the_example(visit: Open, address: str):
    url = f"{address}/#trace=chat-dart&round=2"
    page = visit(url, viewport={"width": WIDTH, "height": HEIGHT})
    expect(page.locator(".ds-about:visible")).to_contain_text("dart")
    page.goto(f"{address}/#run=doesnotexist")
    page.reload()
    expect(page.locator(".ds-banner:visible")).to_be_visible()
