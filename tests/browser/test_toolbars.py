"""One Tab stop for each row of tools, and arrows along it: by the keyboard alone."""

from __future__ import annotations

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Locator, Page, expect

from tests.browser.steps import Open, at_round, title

pytestmark = pytest.mark.browser

RUN = "/#trace=code-ddtree-16&round=3"
THIRD = "#round=3"
COMPARE = "/#view=compare&trace=code-ddtree-16,code-dart&round=2"
IN_HAND = "document.activeElement"


def tools_of(bar: Locator) -> list[Locator]:
    """The buttons that can be pressed, as they stand on the page."""
    return bar.locator("button:enabled").locator("visible=true").all()


def tab_into(page: Page, bar: Locator, back: bool = False) -> None:
    """Press Tab until the focus is in a toolbar."""
    for _ in range(60):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        if bar.evaluate(f"bar => bar.contains({IN_HAND})"):
            return
    raise AssertionError("the Tab key does not lead there")


def walked(page: Page, bar: Locator, key: str) -> None:
    """A key leads to each tool in its order, and then to the first one again."""
    tools = tools_of(bar)
    ordered = tools if key == "ArrowRight" else tools[::-1]
    assert len(tools) > 2
    page.keyboard.press("Home" if key == "ArrowRight" else "End")
    for tool in (*ordered, ordered[0]):
        expect(tool).to_be_focused()
        expect(bar.locator("button[tabindex='0']")).to_have_count(1)
        page.keyboard.press(key)


def test_the_tab_key_comes_to_the_tabs_first(visit: Open):
    page = visit()
    first = page.get_by_role("tab", name="Run")
    page.locator(".ds-skip").focus()
    page.keyboard.press("Tab")
    expect(first).to_be_focused()
    follows = "(tool, tab) => !!(tab.compareDocumentPosition(tool) & 4)"
    for name in ("Present", "Dark or light"):
        tool = page.get_by_role("button", name=name, exact=True).and_(page.locator("#ds-tools *"))
        assert tool.evaluate(follows, first.element_handle())


def test_the_tabs_are_one_stop_with_arrows_and_enter_opens_one(visit: Open):
    page = visit()
    tabs = page.locator("#ds-views [role=tablist]")
    stop = tabs.locator("[role=tab][tabindex='0']")
    page.locator(".ds-skip").focus()
    page.keyboard.press("Tab")
    expect(stop).to_have_text("Run")
    page.keyboard.press("ArrowLeft")
    expect(tabs.get_by_role("tab", name="Learn")).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(tabs.locator("[aria-selected=true]")).to_have_text("Compare")
    page.keyboard.press("Tab")
    assert not tabs.evaluate(f"tabs => tabs.contains({IN_HAND})")
    expect(stop).to_have_text("Compare")


def test_arrows_go_along_a_toolbar_and_leave_the_round_alone(replay: Open):
    page = replay(budget=16, hash_=THIRD)
    expect(title(page)).to_have_text(at_round(3))
    bar = page.get_by_role("toolbar", name="Steps and tools")
    page.locator(".ds-tree").focus()
    tab_into(page, bar)
    walked(page, bar, "ArrowRight")
    walked(page, bar, "ArrowLeft")
    expect(title(page)).to_have_text(at_round(3))


def test_a_toolbar_is_left_with_one_press_and_entered_where_it_was_left(replay: Open):
    page = replay(budget=16, hash_=THIRD)
    expect(title(page)).to_have_text(at_round(3))
    bar = page.get_by_role("toolbar", name="Steps and tools")
    page.locator(".ds-tree").focus()
    tab_into(page, bar)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("button", name="Play").locator("visible=true")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    assert not bar.evaluate(f"bar => bar.contains({IN_HAND})")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Play").locator("visible=true")).to_be_focused()
    page.keyboard.press("Tab")  # what is typed into has a stop of its own
    expect(bar.get_by_label("Find a token in this tree")).to_be_focused()
    page.keyboard.type("ab")
    page.keyboard.press("ArrowLeft")
    expect(bar.get_by_label("Find a token in this tree")).to_be_focused()


def test_a_tool_that_can_no_longer_be_pressed_hands_the_focus_on(replay: Open):
    page = replay(budget=16, hash_="#round=2")
    expect(title(page)).to_have_text(at_round(2))
    bar = page.get_by_role("toolbar", name="Steps and tools")
    page.locator(".ds-tree").focus()
    tab_into(page, bar)
    page.keyboard.press("Home")
    expect(bar.get_by_label("Round before")).to_be_focused()
    page.keyboard.press("Enter")
    expect(title(page)).to_have_text(at_round(1))
    expect(bar.get_by_label("Round before")).to_be_disabled()
    expect(bar.get_by_label("Play")).to_be_focused()


def test_arrows_step_rounds_after_a_press_on_a_tool(replay: Open):
    page = replay(budget=16, hash_=THIRD)
    expect(title(page)).to_have_text(at_round(3))
    page.get_by_label("Round after").click()
    expect(title(page)).to_have_text(at_round(4))
    page.keyboard.press("ArrowRight")
    expect(title(page)).to_have_text(at_round(5))
    page.keyboard.press("Home")
    expect(title(page)).to_have_text(at_round(1))


def test_a_text_is_one_stop_and_arrows_step_along_it(replay: Open):
    page = replay(budget=16, hash_=THIRD)
    expect(title(page)).to_have_text(at_round(3))
    text = page.get_by_role("listbox", name="The text, token by token")
    expect(text.locator("[tabindex='0']")).to_have_count(0)
    text.focus()
    page.keyboard.press("ArrowRight")
    expect(title(page)).to_have_text(at_round(4))
    page.keyboard.press("Home")
    expect(title(page)).to_have_text(at_round(1))
    expect(text).to_be_focused()


def test_each_run_of_a_comparison_has_a_toolbar(visit: Open, address: str):
    page = visit(address + COMPARE)
    scope = page.locator("#ds-c-scope")
    expect(scope.locator(".ds-node").locator("visible=true").first).to_be_visible()
    bars = [scope.get_by_role("toolbar", name=f"Run {letter}", exact=True) for letter in "AB"]
    scope.locator(".ds-compare .ds-strip").focus()
    for bar in bars:
        tab_into(page, bar)
        expect(bar.locator("summary")).to_be_focused()
        page.keyboard.press("Enter")  # its files, and the way out
        page.keyboard.press("ArrowDown")
        expect(bar.get_by_role("button", name="Save the tree as SVG")).to_be_focused()
        page.keyboard.press("ArrowUp")
        expect(bar.get_by_role("button", name="out of the comparison")).to_be_focused()
        page.keyboard.press("Escape")


def test_chapters_and_steps_of_the_course_are_one_stop_each(visit: Open, address: str):
    page = visit(address + "/#learn=2.3")
    chapters = page.get_by_role("toolbar", name="Chapters")
    steps = page.get_by_role("toolbar", name="Steps", exact=True)
    expect(page.locator(".ds-count")).to_have_text("3 / 9")
    expect(chapters.locator("button[tabindex='0']")).to_have_attribute("aria-current", "true")
    expect(steps.locator("button[tabindex='0']")).to_have_accessible_name("Step 3")
    page.locator(".ds-learn .ds-tree:visible").first.focus()
    tab_into(page, steps, back=True)
    page.keyboard.press("ArrowRight")
    expect(steps.get_by_role("button", name="Step 4")).to_be_focused()
    expect(page.locator(".ds-count")).to_have_text("3 / 9")
    page.keyboard.press("Enter")
    expect(page.locator(".ds-count")).to_have_text("4 / 9")
    expect(steps.get_by_role("button", name="Step 4")).to_be_focused()
    tab_into(page, chapters, back=True)
    walked(page, chapters, "ArrowRight")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator(".ds-chapter").last).to_have_attribute("aria-current", "true")
    expect(page.locator(".ds-chapter").last).to_be_focused()


def test_down_and_tab_enter_a_menu_and_arrows_go_along_it(visit: Open, address: str):
    page = visit(address + RUN)
    expect(title(page)).to_have_text(at_round(3))
    menu = page.locator("#ds-panel .ds-menu")
    entries = menu.locator("button:enabled")
    menu.locator("summary").press("ArrowDown")
    expect(entries.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(entries.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(entries.last).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu.locator("summary")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(entries.first).to_be_focused()
