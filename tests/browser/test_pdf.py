"""Every figure of every tab as PDF: as large as its SVG, its fonts embedded, its words as text."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import ElementHandle, Page, expect

from app.view.shapes import DENSE
from tests.browser.steps import Open
from tests.helpers.pdfs import whole

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("librsvg")]

TEXT = "{http://www.w3.org/2000/svg}text"
# A click that the page is told of: the button may be behind a "⋯".
PRESS = """(button, form) => [...button.parentElement.children]
  .find((each) => each.textContent === form).click()"""
PAUSE = 150  # ms: a browser drops what a page saves beyond ten files a second
CALIBRATED = "view=calibration&trace=chat-dart,chat-treeflash"
PLACES = {  # what an address shows, and how many figures at least
    CALIBRATED: (".ds-below figure .main-svg", 9),
    "view=denoise": (".dn-graph .ds-node", 3),
    "view=results": (".ds-scatter", 1),
    "view=whatif&text=fibonacci": (".ds-figure .main-svg", 3),
    "learn=4.6": (".ds-mask", 2),
}


def saved(page: Page, button: ElementHandle, form: str) -> bytes:
    """The file that the button of a form, in the same row, saves."""
    with page.expect_download() as made:
        button.evaluate(PRESS, form)
    page.wait_for_timeout(PAUSE)
    return Path(made.value.path()).read_bytes()


def letters(text: str) -> list[str]:
    """All that is to be seen of a text, in whatever order its lines are read."""
    return sorted("".join(text.split()))


def drawn(button: ElementHandle) -> bool:
    """Whether what a button saves is to be seen."""
    return button.evaluate(
        """button => Boolean(button.closest("figure, section, .ds-lesson-tree, .ds-card")
          ?.checkVisibility()) && !button.closest("details[hidden], .ds-menu[hidden]")"""
    )


@pytest.mark.parametrize("place", PLACES)
def test_every_figure_is_a_pdf(visit: Open, address: str, place: str):
    page = visit(f"{address}/#{place}")
    look, least = PLACES[place]
    expect(page.locator(look).first).to_be_visible()
    # Handles, for other tabs may get buttons of their own meanwhile: a place in a list would move.
    buttons = page.get_by_role("button", name="as PDF", include_hidden=True).element_handles()
    found = [button for button in buttons if drawn(button)]
    for button in found:
        root = ElementTree.fromstring(saved(page, button, "SVG"))
        words = "".join("".join(text.itertext()) for text in root.iter(TEXT))
        made = whole(saved(page, button, "PDF"))
        width, height = (float(root.attrib[name]) for name in ("width", "height"))
        assert made.mediabox[2:] == pytest.approx([0.75 * width, 0.75 * height], abs=0.1)
        assert letters(made.extract_text()) == letters(words)
    assert len(found) >= least


# The smallest type of an SVG in points, as it is printed.
SMALLEST = """text => {
  const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement,
    scale = svg.getAttribute("width") / svg.getAttribute("viewBox").split(/[ ,]+/)[2];
  const size = (e) => parseFloat(e.style.fontSize || e.getAttribute("font-size"));
  return Math.min(...[...svg.querySelectorAll("text")].map(size).filter(Boolean)) * scale * 0.75;
}"""


@pytest.mark.parametrize("place", [CALIBRATED, "view=results"])
def test_charts_of_a_column_have_type_that_is_read(visit: Open, address: str, place: str):
    page = visit(f"{address}/")
    page.evaluate(
        "localStorage['draftscope-paper'] = JSON.stringify({ground: 'white', inches: 3.25})"
    )
    page.goto(f"{address}/#{place}")
    page.reload()
    expect(page.locator(PLACES[place][0]).first).to_be_visible()
    buttons = page.get_by_role("button", name="as PDF", include_hidden=True).element_handles()
    for button in filter(drawn, buttons):
        text = saved(page, button, "SVG").decode()
        assert ElementTree.fromstring(text).attrib["width"] == "312"
        assert page.evaluate(SMALLEST, text) >= 7


@pytest.mark.parametrize(
    ("place", "menu", "calibrated"),
    [
        ("view=whatif&budget=64", "Save this draft", False),
        ("view=denoise&trace=code-spiffy-10,code-denoise&round=5", "Save the graph", False),
        ("view=denoise&trace=code-spiffy-10,code-denoise&round=5", "Save the graph", True),
    ],
)
def test_drafts_of_a_column_have_type_that_is_read(
    visit: Open, address: str, place: str, menu: str, calibrated: bool
):
    page = visit(f"{address}/")
    page.evaluate(
        "localStorage['draftscope-paper'] = JSON.stringify({ground: 'white', inches: 3.25})"
    )
    page.goto(f"{address}/#{place}")
    page.reload()
    around = page.locator(".ds-menu", has=page.locator(f"summary[aria-label='{menu}']"))
    if calibrated:
        page.get_by_role("button", name="Calibrated").click()
        expect(page.locator(".dn-graph.whole")).to_be_visible()
    around.locator("summary").click()
    with page.expect_download() as made:
        around.get_by_role("button", name="as SVG").click()
    root = ElementTree.fromstring(Path(made.value.path()).read_bytes())
    assert root.attrib["width"] == "312" and around.get_by_role("alert").count() == 0
    assert 234 / float(root.attrib["viewBox"].split()[2]) >= DENSE


def test_a_ring_of_the_page_is_in_no_file(visit: Open, address: str):
    """Nothing in a file would say what it marks."""
    page = visit(f"{address}/#view=whatif&text=fibonacci&budget=16")
    chart = page.locator(".ds-figure:has(.main-svg)").first
    expect(chart.locator(".point[style*='fill: none']")).to_be_visible()
    button = chart.get_by_role("button", name="as SVG", include_hidden=True)
    drawn = saved(page, button.element_handles()[0], "SVG")
    assert drawn.count(b'class="point"') == chart.locator(".point").count() - 1 > 0


def test_one_choice_of_ground_and_width_is_of_all_pictures(visit: Open, address: str):
    """Charts, trees and the server's figure are as wide as a column, and on nothing."""
    page = visit(f"{address}/#view=calibration&trace=chat-dart")
    chart = page.locator(".ds-figure:has(.main-svg)").first
    expect(chart).to_be_visible()

    def of(form: str) -> bytes:
        button = chart.get_by_role("button", name="as PDF", include_hidden=True)
        return saved(page, button.element_handles()[0], form)

    assert b'fill="white"' in of("SVG")
    chart.locator("summary").click()
    chart.get_by_role("button", name="Paper…").click()
    panel = page.get_by_role("dialog", name="Saved pictures")
    panel.get_by_label("Ground").select_option("none, transparent")
    for width in ("0.1", "3.25"):
        panel.get_by_label("Width in inches").fill(width)
        refused = panel.get_by_text("Not followed: a width is of 0.25 to 100 inches")
        expect(refused).to_have_count(int(width == "0.1"))
    panel.get_by_role("button", name="Close").click()
    drawn = of("SVG")
    assert ElementTree.fromstring(drawn).attrib["width"] == "312" and b'fill="white"' not in drawn
    assert whole(of("PDF")).mediabox[2] == pytest.approx(234, abs=0.1)
    page.goto(f"{address}/#trace=chat-dart")
    page.reload()  # the choice is kept
    expect(page.locator(".ds-tree:visible .ds-node").first).to_be_visible()
    page.keyboard.press("s")
    for line in ("Whole tree", "This round for a paper"):
        group = page.get_by_role("group", name=line)
        with page.expect_download() as made:
            group.get_by_role("button", name="SVG").click()
        text = Path(made.value.path()).read_bytes()
        assert ElementTree.fromstring(text).attrib["width"] == "312", line
        assert b'fill="white"' not in text, line
