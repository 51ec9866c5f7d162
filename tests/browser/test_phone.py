"""The page on a phone: something to see at once, everything within reach of a thumb."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Locator, Page, expect

from app.studio.tabs import TABS
from tests.browser.steps import (
    FRAMES,
    NODE,
    PROMPT,
    Open,
    at_round,
    open_form,
    settle,
    state,
    tab,
    title,
)

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
    steps = phone.locator("#ds-scope .ds-transport").bounding_box()
    assert root is not None and steps is not None
    assert root["y"] + root["height"] < steps["y"] and steps["y"] + steps["height"] <= 390
    expect(phone.locator("#ds-views [role=tab]").locator("visible=true")).to_have_count(len(TABS))


def test_a_lesson_s_steps_stay_in_sight_on_a_phone_on_its_side(visit: Open, address: str):
    page = visit(viewport={"width": 844, "height": 390}, has_touch=True)
    page.goto(address + "#learn=5.10")
    page.reload()
    text = page.locator(".ds-lesson-text").bounding_box
    for name in ("Step before", "Step after", "Present"):
        button = page.locator(".ds-lesson-controls").get_by_role("button", name=name)
        expect(button).to_be_in_viewport(ratio=1)
        box, around = button.bounding_box(), text()
        assert box is not None and around is not None
        assert box["height"] >= 44 and box["x"] + box["width"] <= around["x"] + around["width"]
    page.get_by_role("button", name="Step after").tap()
    expect(page.locator(".ds-count")).to_have_text("11 / 12")


def test_settings_on_a_phone_on_its_side_are_scrolled_down_and_not_across(
    visit: Open, address: str
):
    page = visit(f"{address}/#view=compare", viewport={"width": 844, "height": 390}, has_touch=True)
    open_form(page, "ds-c")
    settings = page.locator("#ds-c-settings")
    assert settings.evaluate("(e) => e.scrollWidth <= e.clientWidth")
    page.mouse.move(400, 300)
    page.mouse.wheel(0, 2000)
    expect(settings.locator(".ds-more > *").last).to_be_in_viewport()


def test_a_node_of_a_comparison_stands_above_the_sheet_that_tells_of_it(visit: Open, address: str):
    url = f"{address}/#view=compare&trace=code-ddtree-16,code-dart,code-treeflash,code-ar"
    page = visit(url, viewport={"width": WIDTH, "height": HEIGHT}, has_touch=True)
    place = lambda at: page.locator(at).locator("visible=true").last.bounding_box()  # noqa: E731
    page.locator("#ds-c-scope .ds-pane").nth(1).locator(".ds-node.accepted:not(.out)").first.tap()
    expect(page.locator("#ds-c-scope .ds-inspector dl")).to_be_visible()
    page.evaluate(FRAMES)
    sheet, steps = place("#ds-c-scope .ds-inspector"), place("#ds-c-scope .ds-transport")
    node = place("#ds-c-scope .ds-node.selected .box")
    assert sheet is not None and steps is not None and node is not None
    assert abs(sheet["y"] + sheet["height"] - steps["y"]) < 3
    assert node["y"] >= 0 and node["y"] + node["height"] <= sheet["y"] + 1
    page.locator("#ds-c-scope").get_by_role("button", name="Close the inspector").tap()
    page.evaluate("scrollTo(0, 0)")  # the states of all runs are in sight above
    chip, examples = (
        place("#ds-c-panel .ds-chip.run"),
        place("#ds-c-panel .ds-beside-prompt button"),
    )
    assert chip is not None and examples is not None
    assert chip["x"] + chip["width"] <= examples["x"]


# Where parts of the page stand in each frame, from the first in which they are seen.
PLACES = """window.places = new Map();
const look = () => {
  const seen = { visibilityProperty: true };
  for (const part of document.querySelectorAll(%r)) {
    const { x, y, width } = part.getBoundingClientRect();
    if (!width || !part.checkVisibility(seen)) continue;
    const place = `${Math.round(x)} ${Math.round(y + scrollY)}`, all = places.get(part) ?? [];
    if (!all.includes(place)) places.set(part, [...all, place]);
  }
  requestAnimationFrame(look);
};
requestAnimationFrame(look);"""
MOVED = """() => [...places].filter(([, all]) => all.length > 1).map(([part, all]) =>
  [part.outerHTML.slice(0, 60), part.textContent.slice(0, 20), ...all])"""
PARTS = (
    "[role=tab]:not(.visually-hidden *), :is(.ds-go, .ds-bar) button, .ds-card, .ds-figure, "
    ".ds-tree, .dn-grid, .ds-scope :is(h2, button, summary, select, input):not(.ds-round-title), "
    ".ds-chip.run, .ds-node.root .box"
)
FOUR = "compare&trace=code-dflash,code-ddtree-16,code-treeflash,code-dart"
THERE = {  # what the view shows last
    "run": ".ds-node.root .box",
    FOUR: "#ds-c-scope .ds-pane:nth-child(4) .ds-node.root .box",
    "compare": "#ds-c-scope .ds-pane:nth-child(2) .ds-node.root .box",
    "calibration": ".ds-findings li",
    "whatif": ".ds-whatif-tree .ds-node",
    "results": ".ds-results tbody tr",
    "denoise": ".dn-place",
    "learn": ".ds-learn h2",
}


@pytest.mark.parametrize(
    "size", [(390, 844, 16), (768, 1024, 16), (1440, 900, 16), (1440, 900, 24)]
)
@pytest.mark.parametrize("view", list(THERE))
def test_nothing_moves_once_it_is_seen_while_the_page_opens(
    visit: Open, address: str, view: str, size: tuple[int, int, int]
):
    """Windows of a phone, a tablet and a desk; and one with letters of 24 pixels."""
    viewport = {"width": size[0], "height": size[1]}
    page = visit(f"{address}/#view={view}", viewport=viewport, has_touch=size[0] < 500)
    hand = page.context.new_cdp_session(page)
    hand.send("Page.setFontSizes", {"fontSizes": {"standard": size[2]}})
    hand.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    page.add_init_script(PLACES % PARTS)
    page.evaluate("sessionStorage.clear()")
    page.reload()
    page.locator(THERE[view]).locator("visible=true").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.evaluate(FRAMES)
    assert page.evaluate("places.size") > 10
    assert page.evaluate(MOVED) == []


def test_a_longer_sentence_does_not_move_the_tree_in_a_small_window(visit: Open, address: str):
    """Of the rounds 2 and 6 the sentence has three lines."""
    size = {"width": 601, "height": 900}
    page = visit(f"{address}/#trace=code-ddtree-16&round=1", viewport=size)
    tops = set()
    for number in range(1, 8):
        expect(title(page)).to_have_text(at_round(number))
        tops.add(
            page.evaluate(
                "document.querySelector('#ds-scope .ds-tree').getBoundingClientRect().top"
            )
        )
        page.keyboard.press("ArrowRight")
    assert len(tops) == 1


def test_the_course_begins_with_its_figure_on_the_first_screen(visit: Open, address: str):
    page = visit(f"{address}/#learn=1.1", viewport={"width": 390, "height": 844}, has_touch=True)
    lane, steps = page.locator(".ds-lane .ds-boxes").first, page.locator(".ds-lesson-controls")
    expect(lane).to_be_visible()
    boxes = [each.bounding_box() for each in (lane, steps)]
    assert boxes[0] is not None and boxes[1] is not None and boxes[0]["y"] < boxes[1]["y"]
    assert page.evaluate("document.documentElement.scrollHeight") < 1550


@pytest.mark.parametrize("step", ["3.4", "10.8"])
def test_words_below_a_token_of_a_lesson_can_be_read(visit: Open, address: str, step: str):
    page = visit(f"{address}/#learn={step}", viewport={"width": 390, "height": 844}, has_touch=True)
    expect(page.locator(".ds-learn .ds-node .note").first).to_be_visible()
    assert min(page.evaluate(TEXT))[0] > 10.99


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


# [pixels on the screen, words] of all text in sight: a picture's has the scale of its picture.
TEXT = """() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  for (let text; (text = walk.nextNode()); ) {
    const at = text.parentElement, range = document.createRange();
    range.selectNodeContents(text);
    if (range.getBoundingClientRect().width < 2 || !text.data.trim()) continue;
    if (!at.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (at.closest(".ds-unseen, .visually-hidden, script, style, option")) continue;
    const { b, d } = at.getScreenCTM?.() ?? { b: 0, d: 1 };
    found.push([parseFloat(getComputedStyle(at).fontSize) * Math.hypot(b, d), text.data]);
  }
  return found;
}"""
SEEN = {  # what a tab's view is drawn with
    "run": ".ds-node",
    "compare": "#ds-c-scope .ds-node",
    "calibration": ".ds-findings li",
    "whatif": ".ds-whatif-tree .ds-node",
    "results": ".ds-scatter text",
    "denoise": ".dn-grid text",
    "learn": ".ds-lesson-title",
}


def text_of(page: Page, name: str) -> list[tuple[float, str]]:
    """[pixels, words] of what a tab shows."""
    tab(page, name)
    expect(page.locator(SEEN[name]).locator("visible=true").first).to_be_visible()
    page.evaluate(FRAMES)
    return page.evaluate(TEXT)


@pytest.mark.parametrize("size", [(360, 740), (768, 1024), (844, 390)])
def test_all_text_can_be_read_and_nothing_is_wider_than_the_window(
    visit: Open, size: tuple[int, int]
):
    page = visit(viewport={"width": size[0], "height": size[1]}, has_touch=True)
    settle(page)
    for name in (each.name for each in TABS):
        found = text_of(page, name)
        assert len(found) > 20
        small = [each for each in found if each[0] < 10.99]
        assert not small, (name, small)
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], name
        tabs = page.locator("#ds-views [role=tab]").locator("visible=true")
        assert all(each["height"] >= 32 for each in map(Locator.bounding_box, tabs.all()) if each)


def test_results_show_the_first_columns_without_scrolling_and_the_rest_when_asked(visit: Open):
    page = visit(viewport={"width": 360, "height": 740}, has_touch=True)
    tab(page, "results")
    around = page.locator(".ds-wide:has(> .ds-results)")
    shown = page.locator(".ds-results thead th").locator("visible=true")
    expect(shown).to_have_count(3)
    assert around.evaluate("box => box.scrollWidth <= box.clientWidth")
    page.get_by_role("button", name="All columns").tap()
    expect(shown).to_have_count(page.locator(".ds-results thead th").count())


def test_sizes_follow_the_text_size_of_the_browser(visit: Open):
    page = visit(viewport={"width": 360, "height": 740}, has_touch=True)
    settle(page)
    usual = {name: min(text_of(page, name))[0] for name in SEEN}
    browser = page.context.new_cdp_session(page)
    browser.send("Page.setFontSizes", {"fontSizes": {"standard": 24}})
    tab(page, "run")
    page.reload()
    settle(page)
    size = "(e) => parseFloat(getComputedStyle(e).fontSize)"
    for at, least in ((PROMPT, 13), ("#ds-open-settings", 12), (".ds-strip", 14)):
        assert page.locator(at).first.evaluate(size) >= 1.5 * least, at
    for name in SEEN:  # 16 positions beside each other, Denoise's, have room for less
        least = 1.3 if name == "denoise" else 1.45
        assert min(text_of(page, name))[0] >= least * usual[name], name
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
    tabs = page.locator("#ds-views [role=tab]").locator("visible=true")
    expect(tabs).to_have_count(len(TABS))
    tops = tabs.evaluate_all("(all) => all.map((e) => e.getBoundingClientRect().top)")
    assert len(set(tops)) == 1  # in one row, which shows where one is
    expect(page.locator("#ds-views [role=tab].selected")).to_be_in_viewport(ratio=1)


def test_names_in_the_picture_of_results_touch_no_point_where_letters_are_large(
    visit: Open, address: str
):
    page = visit(viewport={"width": 390, "height": 844}, has_touch=True)
    browser = page.context.new_cdp_session(page)
    browser.send("Page.setFontSizes", {"fontSizes": {"standard": 24}})
    page.goto(f"{address}/#view=results")
    page.reload()
    expect(page.locator(".ds-scatter .name").first).to_be_visible()
    assert page.evaluate(
        """() => {
          const boxes = (at) => [...document.querySelectorAll(`.ds-scatter ${at}`)]
            .map((each) => each.getBoundingClientRect());
          const svg = boxes("").concat(boxes("text")), points = boxes("circle");
          const touch = (a, b) => a.left < b.right && b.left < a.right
            && a.top + 4 < b.bottom && b.top < a.bottom - 4;
          const names = boxes(".name").filter((name) => points.some((each) => touch(name, each)));
          return [names.length, svg.some(({ right }) => right > innerWidth)];
        }"""
    ) == [0, False]


def test_large_text_leaves_the_tools_in_sight_and_makes_the_nodes_larger(visit: Open, address: str):
    url, viewport = f"{address}/#trace=chat-dart&round=2", {"width": 1440, "height": 900}
    page = visit(url, viewport=viewport)
    letters = "e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a"
    token = page.locator(".ds-tree:visible .ds-node .token").first
    expect(token).to_be_visible()
    browser = page.context.new_cdp_session(page)
    browser.send("Page.setFontSizes", {"fontSizes": {"standard": 24}})
    page.reload()
    expect(page.locator(".ds-toolbar:visible")).to_be_in_viewport(ratio=1)
    assert token.evaluate(letters) >= 1.5 * 12
    page.get_by_role("button", name="Rounds", exact=True).locator("visible=true").click()
    heads = page.locator(".ds-rounds thead button:visible")
    expect(heads).not_to_have_count(0)
    assert heads.evaluate_all("(all) => all.every((e) => e.scrollWidth <= e.clientWidth + 1)")


def test_large_text_leaves_two_lines_of_the_compared_text_whole(visit: Open, address: str):
    url = f"{address}/#view=compare&trace=code-ddtree-16,code-treeflash"
    page = visit(url, viewport={"width": 1440, "height": 900})
    browser = page.context.new_cdp_session(page)
    browser.send("Page.setFontSizes", {"fontSizes": {"standard": 24}})
    page.reload()
    tokens = page.locator(".ds-pair-strip:visible .ds-two")
    expect(tokens.nth(3)).to_be_visible()
    strip, second = page.locator(".ds-pair-strip:visible").bounding_box(), tokens.nth(3)
    token = second.bounding_box()  # behind the first line break
    assert strip is not None and token is not None and token["y"] > strip["y"] + 20
    assert token["y"] + token["height"] <= strip["y"] + strip["height"]


def test_large_text_on_a_phone_leaves_the_tree_on_the_first_screen(visit: Open, address: str):
    viewport = {"width": 390, "height": 844}
    page = visit(f"{address}/#trace=chat-ddtree-64&round=2", viewport=viewport, has_touch=True)
    browser = page.context.new_cdp_session(page)
    browser.send("Page.setFontSizes", {"fontSizes": {"standard": 24}})
    page.reload()
    root = page.locator(f"{NODE}.root:visible").first
    expect(root).to_be_visible()
    node, steps = root.bounding_box(), page.locator(".ds-transport:visible").bounding_box()
    assert node is not None and steps is not None
    assert node["y"] + node["height"] <= steps["y"]


def test_large_text_keeps_legend_map_and_boxes_apart(visit: Open, address: str):
    url, viewport = f"{address}/#trace=chat-ddtree-64&round=2", {"width": 1440, "height": 900}
    page = visit(url, viewport=viewport)
    browser = page.context.new_cdp_session(page)
    browser.send("Page.setFontSizes", {"fontSizes": {"standard": 24}})
    page.reload()
    page.locator(f"{NODE}.accepted:visible").first.click()
    expect(page.locator(".ds-inspector:visible")).to_be_visible()
    map_, legend = page.locator(".ds-map:visible"), page.locator(".ds-legend:visible")
    expect(map_).to_be_visible()
    small, words = map_.bounding_box(), legend.bounding_box()
    assert small is not None and words is not None
    assert small["y"] + small["height"] <= words["y"]
    assert words["height"] <= 2 * 24  # one line


def test_large_text_leaves_the_menu_of_compared_runs_beside_their_letters(
    visit: Open, address: str
):
    url = f"{address}/#view=compare&trace=code-ddtree-16,code-treeflash"
    page = visit(url, viewport={"width": 1440, "height": 900})
    browser = page.context.new_cdp_session(page)
    browser.send("Page.setFontSizes", {"fontSizes": {"standard": 24}})
    page.reload()
    expect(page.locator(f"{NODE}.root:visible")).to_have_count(2)
    menu, letter = page.locator(".ds-sums:visible").evaluate(
        """(sums) => [sums.querySelector("summary").getBoundingClientRect().bottom,
          sums.querySelector(".ds-letter").getBoundingClientRect().top]"""
    )
    assert menu <= letter + 3  # its border


@pytest.mark.parametrize("size", [(390, 844), (1024, 768)])
def test_large_text_cuts_no_method_and_no_key(visit: Open, size: tuple[int, int]):
    page = visit(viewport=dict(zip(("width", "height"), size, strict=True)))
    browser = page.context.new_cdp_session(page)
    browser.send("Page.setFontSizes", {"fontSizes": {"standard": 24}})
    page.reload()
    open_form(page)
    names = page.locator(".ds-choices label:visible")
    expect(names.first).to_be_visible()
    cut = """(all) => all.filter((e) => e.getBoundingClientRect().right
      > e.closest("fieldset, .block").getBoundingClientRect().right + 1)
      .map((e) => e.textContent)"""
    assert names.evaluate_all(cut) == []
    page.keyboard.press("Escape")
    page.locator("#ds-theme").focus()
    page.keyboard.press("?")
    keys = page.locator("dialog[open] kbd")
    expect(keys.first).to_be_visible()
    over = """(all) => all.filter((e) => e.getBoundingClientRect().right
      > e.closest("div").querySelector("dd").getBoundingClientRect().left)
      .map((e) => e.textContent)"""
    assert keys.evaluate_all(over) == []


def test_a_link_is_not_replaced_by_the_example(visit: Open, address: str):
    url = f"{address}/#trace=chat-dart&round=2"
    page = visit(url, viewport={"width": WIDTH, "height": HEIGHT})
    expect(page.locator(".ds-about:visible")).to_contain_text("DART")
    page.goto(f"{address}/#run=doesnotexist")
    page.reload()
    expect(page.locator(".ds-banner:visible")).to_be_visible()


def test_a_menu_at_the_left_edge_opens_within_the_window(visit: Open, address: str):
    page = visit(f"{address}/#view=denoise", viewport={"width": WIDTH, "height": HEIGHT})
    page.locator(".dn-graph h2").click()
    page.get_by_label("Save the graph", exact=True).locator("visible=true").click()
    entries = page.locator(".ds-menu[open] button")
    expect(entries.first).to_be_visible()
    page.evaluate(FRAMES)
    assert all(each["x"] >= 8 for each in map(Locator.bounding_box, entries.all()) if each)


@pytest.mark.parametrize("size", [(390, 844), (360, 740)])
def test_after_each_step_the_accepted_path_is_in_sight(
    visit: Open, address: str, size: tuple[int, int]
):
    url = f"{address}/#trace=chat-ddtree-16&round=2"
    page = visit(url, viewport={"width": size[0], "height": size[1]}, has_touch=True)
    for number in range(3, 12):
        page.get_by_role("button", name="Round after").locator("visible=true").tap()
        expect(title(page)).to_have_text(at_round(number))
        expect(page.locator(".ds-why-line:visible")).not_to_have_class(re.compile("stale"))
        page.wait_for_timeout(300)  # it glides
        steps = page.locator(".ds-transport:visible").bounding_box()
        path = page.locator(".ds-node:is(.root, .accepted) .box:visible").all()
        boxes = [box for each in path if (box := each.bounding_box())]
        assert boxes and steps and page.evaluate("scrollY") == 0
        assert max(box["y"] + box["height"] for box in boxes) <= steps["y"], number


# Of each tree that is compared: whether its accepted path is whole above the steps, and whether
# the column on view is in sight.
COMPARED = """() => {
  const place = (e) => e.getBoundingClientRect();
  const steps = place(document.querySelector("#ds-c-scope .ds-transport")).top;
  return [...document.querySelectorAll("#ds-c-scope .ds-tree")].map((tree) => {
    const around = place(tree), here = place(tree.querySelector(".ds-column-here"));
    const boxes = tree.querySelectorAll(".ds-node:is(.root, .accepted):not(.out) .box");
    const path = [...boxes].map(place);
    const low = Math.min(steps, around.bottom);
    const isWhole = path.every(({ top, bottom }) => top > around.top + 19 && bottom < low + 1);
    return [path.length > 0 && isWhole, here.left >= around.left && here.right <= around.right];
  });
}"""


@pytest.mark.parametrize("size", [(390, 844), (360, 740)])
def test_after_each_step_the_accepted_paths_of_all_runs_are_in_sight(
    visit: Open, address: str, size: tuple[int, int]
):
    at = f"{address}/#view=compare&trace="
    page = visit(at, viewport={"width": size[0], "height": size[1]}, has_touch=True)
    names = ["code-ddtree-16", "code-treeflash", "code-dart", "code-ar"]
    for count in (2, 3, 4):
        page.goto(at + ",".join(names[:count]))
        page.reload()
        expect(page.locator("#ds-c-scope .ds-why-line:not(.stale)")).to_have_count(count)
        for step in range(6):
            page.get_by_role("button", name="Round after").locator("visible=true").tap()
            page.evaluate(FRAMES)
            assert page.evaluate(COMPARED) == [[True, True]] * count, (count, step)
        assert page.evaluate("scrollY") == 0


@pytest.mark.parametrize(
    "runs",
    [
        "code-ddtree-16,code-treeflash",
        "code-ddtree-16,code-treeflash,code-ar",
        "code-ddtree-16," * 4,
    ],
)
def test_of_several_runs_the_sentence_of_the_one_in_hand_is_whole_on_the_first_screen(
    visit: Open, address: str, runs: str
):
    url = f"{address}/#view=compare&trace={runs.strip(',')}"
    page = visit(url, viewport={"width": 360, "height": 740}, has_touch=True)
    said = page.locator("#ds-c-scope .ds-why-line:visible")
    expect(page.locator("#ds-c-scope .ds-why-line:not(.stale)")).to_have_count(runs.count("code"))
    expect(said).to_have_count(1)
    pane = page.locator("#ds-c-scope .ds-pane").nth(1)
    before = pane.bounding_box()
    pane.locator(".ds-run-name").tap()
    expect(pane.locator(".ds-why-line")).to_be_visible()
    expect(said).to_have_count(1)
    assert pane.bounding_box() == before
    line, steps = (each.bounding_box() for each in (said, page.locator(".ds-transport:visible")))
    assert line is not None and steps is not None and page.evaluate("scrollY") == 0
    assert line["y"] + line["height"] <= steps["y"] + 1
    assert all(
        each.evaluate("e => e.scrollHeight <= e.clientHeight")
        for each in (said, said.locator(".."))
    )


def test_the_sentence_stands_below_the_four_paths_of_the_first_screen(visit: Open, address: str):
    url = f"{address}/#view={FOUR}"
    page = visit(url, viewport={"width": 360, "height": 740}, has_touch=True)
    said = page.locator("#ds-c-scope .ds-why-place:visible")
    path = page.locator("#ds-c-scope .ds-pane").nth(3).locator(".ds-node.root .box")
    expect(path).to_be_visible()
    heights = set()
    for _ in range(8):
        box, line = path.bounding_box(), said.bounding_box()
        assert box is not None and line is not None and box["y"] + box["height"] <= line["y"] + 1
        heights.add(round(line["height"]))
        page.locator("#ds-c-scope .ds-transport").get_by_label("after").tap()
        page.evaluate(FRAMES)
    assert max(heights) > 50  # three lines


FOLDED = [
    ("denoise", 1600, ".dn-graph", ".ds-node .box"),
    ("results", 1450, "#ds-results .ds-folding", ".ds-tell"),
    ("calibration", 2700, "figure.ds-folding:has-text('TVD by depth')", ".ds-plot .main-svg"),
]


@pytest.mark.parametrize(("view", "most", "place", "picture"), FOLDED)
def test_a_long_view_is_short_and_its_pictures_are_behind_their_heads(
    visit: Open, address: str, view: str, most: int, place: str, picture: str
):
    page = visit(f"{address}/#view={view}", viewport={"width": 390, "height": 844})
    folded = page.locator(place)
    expect(folded.locator("small:visible").first).to_contain_text(re.compile(r"\d"))
    assert page.evaluate("document.documentElement.scrollHeight") < most
    expect(folded.locator(picture).first).to_be_hidden()
    unfold = folded.get_by_role("button", name="Unfold")
    expect(unfold).to_have_attribute("aria-expanded", "false")
    unfold.click()
    expect(folded.locator(picture).first).to_be_visible()
    page.set_viewport_size({"width": 1200, "height": 844})
    expect(unfold).to_be_hidden()


def rest(page: Page, place: Locator, across: float = 50) -> None:
    """A finger that comes down on a thing, so many pixels from its left, and stays for a moment."""
    place.evaluate("(e) => e.scrollIntoView({ block: 'center' })")
    box, hand = place.bounding_box(), page.context.new_cdp_session(page)
    assert box is not None
    point = {"x": box["x"] + min(box["width"] / 2, across), "y": box["y"] + box["height"] / 2}
    hand.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
    page.wait_for_timeout(700)
    hand.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_finger_that_rests_selects_rounds_from_the_one_on_view(visit: Open, address: str):
    url = f"{address}/#trace=chat-ddtree-16&round=3"
    page = visit(url, viewport={"width": WIDTH, "height": HEIGHT}, has_touch=True)
    expect(title(page)).to_have_text(at_round(3))
    rest(page, page.locator(".ds-band").nth(5).locator(".ds-token").first)
    sums = page.locator(".ds-range")
    expect(sums).to_contain_text("4 rounds selected")
    expect(title(page)).to_have_text(at_round(3))
    sums.get_by_role("button", name="Let go of these rounds").tap()
    expect(sums).to_be_hidden()
    bars = page.locator(".ds-lengths:visible")
    wide = bars.evaluate("(e) => e.clientWidth / e.viewBox.baseVal.width")  # of a bar
    rest(page, bars, 6.5 * wide)
    expect(sums).to_contain_text("5 rounds selected")
    expect(title(page)).to_have_text(at_round(3))
    bars.tap(position={"x": 3.5 * wide, "y": 9})  # a short press shows its round, as ever
    expect(title(page)).to_have_text(at_round(4))
    sums.get_by_role("button", name="Let go of these rounds").tap()
    page.get_by_role("button", name="Rounds", exact=True).locator("visible=true").tap()
    lines = page.locator(".ds-rounds tbody tr")
    lines.nth(4).tap()
    expect(title(page)).to_have_text(at_round(5))
    rest(page, lines.nth(6))
    expect(page.locator(".ds-rounds tr.chosen")).to_have_count(3)
    expect(title(page)).to_have_text(at_round(5))


@pytest.mark.parametrize("size", [(390, 844), (360, 740)])
def test_the_first_screen_of_denoise_has_the_step_and_its_whole_grid(
    visit: Open, address: str, size: tuple[int, int]
):
    viewport = {"width": size[0], "height": size[1]}
    page = visit(f"{address}/#view=denoise", viewport=viewport, has_touch=True)
    grid = page.locator(".dn-grid:visible").last  # of Spiffy: below it that of plain denoising
    expect(grid.locator(".row.now")).to_be_visible()
    page.get_by_role("button", name="Step after").locator("visible=true").tap()
    page.evaluate(FRAMES)
    step, shown = page.locator(".dn-place").bounding_box(), grid.bounding_box()
    moves = page.locator(".ds-transport:visible").bounding_box()
    assert step is not None and shown is not None and moves is not None
    assert page.evaluate("scrollY") == 0 and 0 < step["y"] < shown["y"]
    assert shown["y"] + shown["height"] <= moves["y"]
    expect(page.locator(".dn-keys")).to_be_hidden()


def test_the_search_box_has_a_row_beside_the_help(phone: Page):
    box = phone.get_by_label("Find a token in this tree").bounding_box()
    help_ = phone.get_by_role("button", name="Words and keys").locator("visible=true")
    beside = help_.bounding_box()
    assert box is not None and beside is not None
    assert box["width"] > 0.6 * WIDTH and abs(box["y"] - beside["y"]) < 3


LONG = "Why does a prompt of several lines not lie over the button that starts it? " * 2


def test_start_can_be_pressed_below_a_prompt_of_several_lines(phone: Page):
    settle(phone)
    phone.locator(PROMPT).tap()
    phone.locator(PROMPT).fill(LONG)
    box, start = (phone.locator(at).bounding_box() for at in (PROMPT, "#ds-start"))
    assert box is not None and start is not None
    assert box["height"] > 60 and box["y"] + box["height"] <= start["y"]
    phone.locator("#ds-start").tap()
    expect(phone.locator(".ds-about q")).to_contain_text("several lines")
    expect(state(phone)).to_have_attribute("data-state", "done")


def test_menu_and_settings_lie_above_a_node_s_sheet_and_one_closes_the_other(phone: Page):
    settle(phone)
    phone.locator("#ds-scope .ds-node.accepted").first.tap()
    expect(phone.locator("#ds-scope .ds-inspector")).to_be_visible()
    settings, menu = phone.locator("#ds-settings"), phone.locator("#ds-panel .ds-menu")
    phone.locator("#ds-open-settings").tap()
    budget = settings.locator("#ds-budget label", has_text="1024")
    budget.tap()  # fails where something lies over it
    expect(phone.locator("#ds-open-settings")).to_contain_text("1024")
    menu.locator("summary").tap()
    expect(settings).to_be_hidden()
    for entry in menu.locator("button:enabled").locator("visible=true").all():
        entry.tap(trial=True)
    phone.locator("#ds-open-settings").tap()
    expect(settings).to_be_visible()
    expect(menu).not_to_have_attribute("open", "")
    phone.locator("#ds-head h1").tap()
    expect(settings).to_be_hidden()


def test_a_presentation_is_stepped_and_left_by_touch(phone: Page):
    settle(phone)
    phone.evaluate("Element.prototype.requestFullscreen = undefined")  # the window stays as it is
    phone.locator("#ds-present").tap()
    picture = phone.locator(".ds-presenting .ds-picture").bounding_box()
    assert picture is not None and picture["height"] > 0.6 * HEIGHT
    title = phone.locator(".ds-presenting .ds-round-title")
    phone.get_by_role("button", name="Round after").locator("visible=true").tap()
    expect(title).to_contain_text("Round 3")
    leave = phone.get_by_role("button", name="Leave the presentation")
    box = leave.bounding_box()
    assert box is not None and min(box["width"], box["height"]) >= 40
    leave.tap()
    expect(phone.locator(".ds-presenting")).to_have_count(0)
