"""Hands on a tree and its run: what is pointed at, the wheel, and the tools of what is on view."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Locator, Page, expect

from tests.bench.browser import STEP
from tests.browser.steps import FRAMES, Open, at_round, title

pytestmark = pytest.mark.browser


def point(page: Page) -> Locator:
    """Point at a node of the tree; gives the words beside it."""
    page.locator(".ds-tree .ds-node .box").nth(2).hover(force=True)
    tip = page.locator(".ds-tip:visible")
    expect(tip).to_be_visible()
    return tip


@pytest.mark.parametrize("act", ["ArrowRight", "w", "wheel"])
def test_words_on_a_node_go_when_it_is_not_there_any_more(replay: Open, act: str):
    page = replay(budget=16, hash_="#round=3")
    tip = point(page)
    if act == "wheel":
        page.keyboard.down("Control")
        page.mouse.wheel(0, 60)
        page.keyboard.up("Control")
    else:
        page.keyboard.press(act)
    if act == "ArrowRight":
        expect(title(page)).to_have_text(at_round(4))
    expect(tip).to_be_hidden()


def test_tools_of_the_tree_are_there_where_it_is(replay: Open):
    page = replay(budget=16, hash_="#round=3")
    tools = page.locator(".ds-toolbar .ds-of-tree")
    expect(tools.first).to_be_visible()
    page.get_by_role("button", name="Stages", exact=True).click()
    expect(tools.locator("visible=true")).to_have_count(0)
    page.get_by_role("button", name="Tree", exact=True).click()
    expect(tools.first).to_be_visible()


@pytest.mark.parametrize(("methods", "most"), [(("ddtree",), 2), (("ddtree", "dflash"), 4)])
def test_a_step_lays_the_page_out_with_its_frames_and_not_in_between(
    replay: Open, methods: tuple[str, ...], most: int
):
    page = replay(*methods, reduced_motion="reduce")
    told = page.context.new_cdp_session(page)
    told.send("Performance.enable")

    def layouts() -> float:
        every = told.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in every if each["name"] == "LayoutCount")

    for _ in range(3):
        page.evaluate(FRAMES)
        before = layouts()
        page.evaluate(STEP, "ArrowRight")
        assert layouts() - before <= most


KEPT = "document.querySelectorAll('.ds-tree:not(.shape) .ds-spine > g').values()"


def test_a_step_draws_the_columns_of_the_run_anew_that_have_changed(replay: Open):
    page = replay("ddtree", reduced_motion="reduce")
    page.evaluate(FRAMES)
    page.evaluate(f"() => {{ for (const each of {KEPT}) each.isOld = true; }}")
    page.evaluate(STEP, "ArrowRight")
    old = page.evaluate(f"() => [...{KEPT}].map((each) => !!each.isOld)")
    assert True in old and False in old


WINDOW = """() => {
  const boxes = [...document.querySelectorAll(".ds-tree .ds-node")].map((e) => e.getCTM());
  return boxes.length ? [boxes[0].a, boxes[0].e, boxes[0].f] : null;
}"""


def test_the_wheel_moves_and_zooms_a_tree_where_the_page_cannot_be_scrolled(replay: Open):
    page = replay(budget=16, hash_="#round=3")
    page.locator(".ds-tree .ds-node .box").first.hover(force=True)
    fits = "() => document.scrollingElement.scrollHeight <= innerHeight"
    assert page.evaluate(fits)
    scale, left, _ = page.evaluate(WINDOW)
    page.mouse.wheel(80, 0)
    page.wait_for_function(f"(before) => ({WINDOW})()[1] < before - 40", arg=left)
    assert page.evaluate(WINDOW)[0] == pytest.approx(scale)
    page.mouse.wheel(0, -60)
    page.wait_for_function(f"(before) => ({WINDOW})()[0] > 1.1 * before", arg=scale)
    page.evaluate("document.body.style.minHeight = '3000px'")  # now the wheel is the page's
    scale = page.evaluate(WINDOW)[0]
    page.mouse.wheel(0, 120)
    page.wait_for_function("() => scrollY > 0")
    assert page.evaluate(WINDOW)[0] == pytest.approx(scale)


def test_zooming_out_ends_at_the_whole_run(replay: Open):
    page = replay(budget=16, hash_="#round=3")
    page.locator(".ds-tree .ds-node .box").first.hover(force=True)
    canvas = page.locator(".ds-tree").bounding_box()
    page.keyboard.down("Control")
    for _ in range(14):
        page.mouse.wheel(0, 60)
    page.keyboard.up("Control")
    shape = page.locator(".ds-spine.shape")
    expect(shape).to_be_visible()
    box = shape.bounding_box()
    assert box and canvas and box["width"] > 0.9 * canvas["width"]
    assert box["height"] > 0.7 * min(canvas["height"], 660)


def test_words_of_the_text_are_found_in_other_rounds(replay: Open):
    page = replay(budget=16, hash_="#round=1")
    texts = page.locator(".ds-strip .ds-band").all_inner_texts()
    shown = {each.strip().lower() for each in texts[0].split()}
    words = [w for text in texts[3:] for w in text.split() if len(w) > 3]
    word = next(w for w in words if not any(w.lower() in each for each in shown))
    box = page.get_by_label("Find a token in this tree")
    box.fill(word)
    found = page.locator(".ds-found")
    expect(found).to_contain_text("in the run")
    for _ in range(40):  # behind the matches of this round
        if page.locator(".ds-round-title").inner_text().split()[1] != "1":
            break
        box.press("Enter")
        page.wait_for_timeout(100)
    number = int(page.locator(".ds-round-title").inner_text().split()[1])
    assert number > 1
    expect(box).to_be_focused()


def test_shift_over_the_text_or_its_bars_selects_rounds(replay: Open):
    page = replay(budget=16, hash_="#round=3")
    bands = page.locator(".ds-strip .ds-band")
    bands.nth(5).locator(".ds-token").first.click(modifiers=["Shift"])
    expect(page.locator(".ds-band.chosen")).to_have_count(4)
    expect(title(page)).to_have_text(at_round(3))
    sums = page.locator(".ds-range")
    expect(sums).to_contain_text("4 rounds selected")
    expect(sums).to_contain_text("τ")
    page.wait_for_function("() => location.hash.includes('rows=3-6')")
    bars = page.locator(".ds-lengths").bounding_box()
    slots = int((page.locator(".ds-lengths").get_attribute("viewBox") or "").split()[2])
    assert bars
    middle = bars["y"] + bars["height"] / 2
    at = lambda number: bars["x"] + bars["width"] * (number - 0.5) / slots  # noqa: E731
    page.keyboard.down("Shift")
    page.mouse.move(at(2), middle)
    page.mouse.down()
    page.mouse.move(at(8), middle, steps=6)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(sums).to_contain_text("7 rounds selected")
    page.wait_for_function("() => location.hash.includes('rows=2-8')")
    page.get_by_role("button", name="Rounds", exact=True).click()
    expect(page.locator(".ds-rounds tr.chosen")).to_have_count(7)
    page.get_by_role("button", name="Tree", exact=True).click()
    page.locator(".ds-tree").press("Escape")
    expect(sums).to_be_hidden()


def test_an_address_selects_rounds_beside_the_tree(replay: Open):
    page = replay(budget=16, hash_="#round=3&rows=3-10")
    expect(page.locator(".ds-range")).to_contain_text("8 rounds selected")
    expect(page.locator(".ds-unmet")).to_have_count(0)
