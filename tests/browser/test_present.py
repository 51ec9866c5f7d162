"""Presenting: any view fills the screen with its picture and the sentence, in large type."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")

from playwright.sync_api import Page, expect

from tests.browser.steps import PROMPT, Open, at_round, run, settle, tab, title

pytestmark = pytest.mark.browser

FULL = "() => !!document.fullscreenElement"
SIZES = """() => [...document.querySelectorAll(
    ".ds-presenting .ds-node:not(.out) :is(.token, .odds)")]
  .filter((token) => token.getClientRects().length)
  .map((token) => parseFloat(getComputedStyle(token).fontSize) * token.getScreenCTM().a)"""
# All words at the axes of charts are as large as 1 % of the screen's width.
READ = """() => {
  const words = [...document.querySelectorAll(".ds-presenting :is(.xtick, .ytick) text")];
  return words.length && words.every((e) => parseFloat(getComputedStyle(e).fontSize) > 19);
}"""
SCREEN = {"width": 1920, "height": 1080}


def seen(page: Page) -> set[str]:
    """The buttons that are in sight."""
    found = page.locator(".ds-presenting button").locator("visible=true")
    return {(each.get_attribute("class") or "none").split()[0] for each in found.all()}


# Whether what is presented is drawn, and stood where it stands in twenty frames before: the window
# has its new size.
STILL = """() => {
  const places = [...document.querySelectorAll(".ds-presenting :is(svg, .ds-node .box)")]
    .map((part) => Object.values(part.getBoundingClientRect().toJSON())).join();
  window.still = places && places === window.places ? window.still + 1 : 0;
  window.places = places;
  return window.still > 20;
}"""


def test_a_run_is_presented_and_stepped_through(visit: Open):
    page = visit(viewport=SCREEN)
    run(page, "hello")
    page.locator(".ds-tree:visible").focus()
    page.keyboard.press("Home")
    page.keyboard.press("p")
    page.wait_for_function(FULL)
    page.wait_for_function(STILL)
    sizes = page.evaluate(SIZES)
    assert len(sizes) > 3 and min(sizes) >= 19.99
    assert seen(page) == {"ds-why-line"}
    places = []
    for said in ("…", "a word " * 30):  # while it is asked for, and a long one
        page.locator(".ds-why-line").evaluate("(line, said) => (line.textContent = said)", said)
        places.append(page.locator(".ds-presenting .ds-tree").bounding_box())
    assert places[0] == places[1]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.fullscreenElement")
    expect(page.locator(".ds-presenting")).to_have_count(0)
    expect(title(page)).to_have_text(at_round(2))


def test_a_low_tree_grows_to_its_room(visit: Open, address: str):
    page = visit(f"{address}/#trace=chat-caddtree&round=3", viewport=SCREEN)
    page.locator("#ds-present").click()
    page.wait_for_function(FULL)
    expect(page.locator(".ds-presenting .ds-node .box").first).to_be_visible()
    page.wait_for_function(STILL)
    boxes = [box.bounding_box() for box in page.locator(".ds-presenting .ds-node .box").all()]
    places = [box for box in boxes if box]
    top, bottom = min(b["y"] for b in places), max(b["y"] + b["height"] for b in places)
    assert bottom - top > 0.55 * SCREEN["height"]


def test_a_live_run_is_presented(visit: Open):
    page = visit(viewport=SCREEN)
    run(page, "slow", wait="running")
    page.locator("#ds-present").click()
    page.wait_for_function(FULL)
    expect(page.locator(".ds-presenting .ds-node").first).to_be_visible()
    number = page.locator(".ds-presenting .ds-round-title")  # hidden, and still told
    expect(number).not_to_have_text(number.text_content() or "")  # it goes on
    # between two rounds no box may be drawn yet
    page.wait_for_function(f"() => Math.min(...({SIZES})(), 1e9) >= 19.99 && ({SIZES})().length")
    page.keyboard.press("Escape")
    page.locator("#ds-stop").click()


@pytest.mark.parametrize(
    ("end", "picture"),
    [
        ("#view=compare&trace=chat-ddtree-64,chat-dart", ".ds-tree"),
        ("#view=whatif", ".ds-tree"),
        ("#view=results", ".ds-scatter"),
        ("#view=denoise&trace=code-spiffy-10,code-denoise&round=9", ".ds-tree"),
        ("#view=calibration&trace=chat-dart", ".ds-plot"),
        ("#learn=1.2", ".ds-lesson"),
    ],
)
def test_every_view_is_presented(visit: Open, address: str, end: str, picture: str):
    page = visit(f"{address}/{end}", viewport=SCREEN)
    expect(page.locator(picture).locator("visible=true").first).to_be_visible()
    page.locator("#ds-present").click()
    page.wait_for_function(FULL)
    shown = page.locator(f".ds-presenting {picture}").locator("visible=true").first
    expect(shown).to_be_visible()
    box = shown.bounding_box()
    assert box is not None and box["width"] > 300
    if picture == ".ds-plot":
        page.wait_for_function(READ)
    expect(page.locator(".ds-presenting .ds-top-line:visible")).to_have_count(0)
    for letter in page.locator(".ds-presenting .dn-grid .head").all()[:1]:
        assert letter.evaluate("e => 12 * e.getScreenCTM().d") > 19
    page.keyboard.press("Escape")
    expect(page.locator(".ds-presenting")).to_have_count(0)


def test_a_long_accepted_path_is_whole_where_it_nearly_has_the_room(visit: Open, address: str):
    size = {"width": 1280, "height": 720}
    url = f"{address}/#view=compare&trace=code-ddtree-16,code-treeflash&place=8"
    page = visit(url, viewport=size)
    pane = page.locator("#ds-c-scope .ds-pane").nth(1)
    expect(pane.locator(".ds-node.accepted")).to_have_count(7)
    page.locator("#ds-present").click()
    expect(page.locator(".ds-presenting")).to_be_visible()
    for box in pane.locator(".ds-node:is(.root, .accepted, .ghost) .box").all():
        expect(box).to_be_in_viewport(ratio=0.99)


# Words of the picture that are not wholly in it, and those on the dashed line.
CUT = """() => {
  const picture = document.querySelector(".ds-scatter"),
    box = (part) => part.getBoundingClientRect(),
    all = box(picture),
    line = box(picture.querySelector(".plain")),
    texts = [...picture.querySelectorAll("text")],
    out = ({left, top, right, bottom}) => left < all.left - 1 || right > all.right + 1 ||
      top < all.top - 1 || bottom > all.bottom + 1,
    crossed = (text) => text.matches(".says") &&
      box(text).top < line.top - 1 && box(text).bottom - 4 > line.top + 1;
  return texts.filter((text) => out(box(text)) || crossed(text)).map((e) => e.textContent);
}"""


def test_no_word_of_the_presented_results_is_cut(visit: Open, address: str):
    page = visit(f"{address}/#view=results", viewport=SCREEN)
    expect(page.locator(".ds-scatter")).to_be_visible()
    page.locator("#ds-present").click()
    page.wait_for_function(FULL)
    page.wait_for_function(STILL)
    assert page.evaluate(CUT) == []
    picture = page.locator(".ds-scatter")
    expect(picture).to_be_in_viewport(ratio=1)
    box = picture.bounding_box()
    assert box and box["height"] > 0.7 * SCREEN["height"]
    letters = "e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a"
    assert picture.locator("text").first.evaluate(letters) > 18


def test_curves_and_the_simulated_round_are_presented_on_one_screen(visit: Open, address: str):
    page = visit(f"{address}/#view=whatif", viewport=SCREEN)
    expect(page.locator(".ds-whatif-tree .ds-node").first).to_be_visible()
    page.locator("#ds-present").click()
    page.wait_for_function(FULL)
    page.wait_for_function(STILL)
    plots = page.locator(".ds-presenting .ds-plot:visible").all()
    assert len(plots) == 3
    strip = page.locator(".ds-presenting .ds-strip:visible")
    for part in (*plots, strip, page.locator(".ds-presenting .ds-whatif-tree")):
        expect(part).to_be_in_viewport(ratio=1)
    for token in (strip.locator(".ds-token").first, strip.locator(".ds-token").last):
        expect(token).to_be_in_viewport(ratio=1)
    expect(page.locator(".ds-presenting .ds-node").first).to_be_in_viewport(ratio=1)  # the root


@pytest.mark.parametrize("runs", ["code-spiffy-10,code-denoise", "code-spiffy-10"])
def test_the_graph_of_a_denoising_step_is_presented_beside_the_grids(
    visit: Open, address: str, runs: str
):
    page = visit(f"{address}/#view=denoise&trace={runs}&round=9", viewport=SCREEN)
    expect(page.locator(".dn-graph .ds-tree")).to_be_visible()
    page.locator("#ds-present").click()
    page.wait_for_function(FULL)
    page.wait_for_function(STILL)
    parts = [page.locator(".dn-graph .ds-picture"), *page.locator(".dn-grid:visible").all()]
    assert len(parts) == 2 + runs.count(",")
    for part in parts:
        expect(part).to_be_in_viewport(ratio=1)
    boxes = page.locator(".dn-graph .ds-node .box")
    assert boxes.count() > 10
    for box in boxes.all():  # the whole graph
        expect(box).to_be_in_viewport(ratio=1)
    for card in page.locator(":is(.dn-card, .dn-graph):visible").all():  # down to the edge
        place = card.bounding_box()
        assert place and place["y"] + place["height"] > SCREEN["height"] - 12
    letters = "e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a"
    for token in page.locator(".dn-grid:visible text").all()[:3]:
        assert token.evaluate(letters) >= 19.99
    edits = page.locator(".dn-graph .edit").all()
    assert min(edit.evaluate(letters) for edit in edits) >= 20


def test_the_whole_draft_graph_is_presented_on_a_small_screen(visit: Open, address: str):
    url = f"{address}/#view=denoise&trace=code-spiffy-10,code-denoise&round=5"
    page = visit(url, viewport={"width": 1280, "height": 720})
    expect(page.locator(".dn-graph .ds-tree")).to_be_visible()
    page.locator("#ds-present").click()
    page.wait_for_function(FULL)
    page.wait_for_function(STILL)
    around = page.locator(".dn-graph .ds-tree").bounding_box()
    boxes = [each.bounding_box() for each in page.locator(".dn-graph .ds-node .box").all()]
    assert around and len(boxes) > 8
    for box in boxes:
        assert box and around["x"] <= box["x"] and around["y"] <= box["y"]
        assert box["x"] + box["width"] <= around["x"] + around["width"]
        assert box["y"] + box["height"] <= around["y"] + around["height"]
    letters = "e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a"
    assert page.locator(".dn-graph .odds").first.is_visible()
    assert page.locator(".dn-graph .edit").first.evaluate(letters) >= 13


def test_names_of_curves_do_not_touch_on_a_small_screen(visit: Open, address: str):
    page = visit(f"{address}/#view=whatif", viewport={"width": 1280, "height": 720})
    expect(page.locator(".ds-whatif-tree .ds-node").first).to_be_visible()
    page.locator("#ds-present").click()
    page.wait_for_function(FULL)
    page.wait_for_function(STILL)
    names = page.locator(".ds-presenting .annotation-text:visible")
    expect(names).not_to_have_count(0)
    boxes = [box for name in names.all() if (box := name.bounding_box())]
    boxes.sort(key=lambda box: (box["x"] // 50, box["y"]))
    for above, below in pairwise(boxes):
        assert above["y"] + above["height"] <= below["y"] + 1 or above["x"] < below["x"] - 50


def test_the_last_token_of_a_denoised_text_stays_in_sight(visit: Open, address: str):
    page = visit(f"{address}/#view=denoise&trace=code-spiffy-10&round=40", viewport=SCREEN)
    expect(page.locator(".dn-strip .here")).to_be_in_viewport(ratio=1)
    page.locator("#ds-present").click()
    page.wait_for_function(FULL)
    expect(page.locator(".dn-strip .here")).to_be_in_viewport(ratio=1)


def test_p_that_is_typed_presents_nothing(visit: Open):
    page = visit()
    settle(page)
    page.locator(PROMPT).fill("u")
    page.keyboard.type("p")
    expect(page.locator(PROMPT)).to_have_value("up")
    expect(page.locator(".ds-presenting")).to_have_count(0)


def test_presenting_ends_with_its_tab(visit: Open):
    page = visit(viewport=SCREEN)
    settle(page)
    tab(page, "results")
    page.wait_for_function("() => location.hash.includes('view=results')")
    page.locator("#ds-present").click()
    page.wait_for_function(FULL)
    expect(page.locator(".ds-presenting")).to_have_count(1)
    page.go_back()
    expect(page.locator(".ds-presenting, .ds-projecting")).to_have_count(0)
    page.wait_for_function("() => !document.fullscreenElement")
    expect(title(page)).to_be_visible()


def test_the_page_is_in_reach_when_what_was_presented_is_gone(visit: Open):
    page = visit(viewport=SCREEN)
    settle(page)
    page.keyboard.press("p")
    page.wait_for_function(FULL)
    page.locator(".ds-presenting").evaluate("(element) => element.remove()")
    expect(page.locator(".ds-projecting, [inert]")).to_have_count(0)


def test_keys_present_help_and_leave(visit: Open):
    page = visit(viewport=SCREEN)
    settle(page)
    page.locator("#ds-present").press("Enter")
    page.wait_for_function(FULL)
    page.keyboard.press("?")
    expect(
        page.get_by_role("dialog", name="Keys").get_by_text("Words are searched")
    ).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.fullscreenElement")
    expect(page.locator("#ds-present")).to_be_focused()


def test_calibration_is_presented_with_its_figures_first(visit: Open, address: str):
    size = {"width": 1280, "height": 720}
    page = visit(f"{address}/#view=calibration&trace=chat-dart", viewport=size)
    expect(page.locator(".ds-findings li").first).to_be_visible()
    page.keyboard.press("p")
    page.wait_for_function(FULL)
    plots = page.get_by_role("region", name="Per depth").locator(".ds-plot")
    expect(plots).to_have_count(5)
    for plot in plots.all():
        expect(plot).to_be_in_viewport(ratio=1)


def test_keys_stay_in_what_is_presented(visit: Open, address: str):
    page = visit(f"{address}/#view=calibration&trace=chat-dart")
    expect(page.locator(".ds-findings li").first).to_be_visible()
    page.locator("#ds-present").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(FULL)
    shown = page.locator(".ds-presenting")
    expect(shown).to_be_focused()
    page.wait_for_function(STILL)
    page.keyboard.press("PageDown")  # it is what the keys scroll
    page.wait_for_function("() => document.querySelector('.ds-presenting').scrollTop > 50")
    for _ in range(6):
        page.keyboard.press("Tab")
        inside = (
            "(e) => e.contains(document.activeElement) || document.activeElement.matches('body')"
        )
        assert shown.evaluate(inside)
    page.keyboard.press("Escape")
    expect(page.locator("#ds-present")).to_be_focused()
    expect(page.locator("[inert]")).to_have_count(0)
