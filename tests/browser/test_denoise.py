"""The tab Denoise in a real browser: examples, live runs, the grid, the graph, the exports."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Browser, Download, Locator, Page, expect

from analysis.numbers import ratio
from app.studio.runs import Runs
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.browser.steps import (
    FRAMES,
    Open,
    from_menu,
    open_file,
    open_form,
    serving,
    settle,
    state,
    tab,
)
from tests.helpers.denoise_fakes import DenoiseEngine, traces
from tests.helpers.fakes import make_header, make_run

pytestmark = pytest.mark.browser

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def engine() -> DenoiseEngine:
    return DenoiseEngine()


@pytest.fixture
def page(visit: Open, address: str) -> Page:
    made = visit(f"{address}/#view=denoise")  # Run, which is not seen, opens no example
    expect(heading(made)).to_contain_text("by an accepted draft")  # it opens on an example
    return made


def example(page: Page, title: str = "Plain and Spiffy, side by side") -> None:
    # The page's own example goes on to the call that saved most, from a first step of its own.
    expect(heading(page)).to_contain_text(re.compile(r"Step (?!1 )\d+ of 64"))
    shelf(page).filter(has_text=title).first.click()
    expect(heading(page)).to_contain_text("Step 1 of 64")


def shelf(page: Page) -> Locator:
    """The examples, opened as a dialog; the page itself opens the first of them."""
    expect(heading(page)).to_contain_text("of 64")
    page.locator("#ds-d-panel").get_by_role("button", name="Examples").click()
    return page.locator(".dn-scope dialog .ds-example")


def run(page: Page, prompt: str, graph: str = "10") -> None:
    page.locator("#ds-d-prompt textarea").fill(prompt)
    open_form(page, "ds-d")
    page.locator("#ds-d-graph label", has_text=re.compile(rf"^\s*{graph}\s*$")).click()
    page.locator("#ds-d-start").click()


def done(page: Page, runs: int = 2) -> None:
    expect(state(page)).to_have_count(runs)
    for chip in range(runs):
        expect(state(page).nth(chip)).to_have_attribute("data-state", "done")


def heading(page: Page) -> Locator:
    return page.locator(".dn-place")


def named(page: Page, name: str) -> Locator:
    return page.locator(".dn-scope").get_by_role("button", name=name, exact=True)


def taken(page: Page, button: Locator) -> Download:
    with page.expect_download() as made:
        button.click()
    return made.value


def tiles(page: Page) -> list[str]:
    return page.locator(".dn-tiles b").all_inner_texts()


def shown(page: Page, grid: int) -> list[str]:
    """The tokens a grid reveals, row by row."""
    rows = page.locator(".dn-card:visible").nth(grid).locator(".row:not(.later) .chip")
    return [text or "" for text in rows.locator("text").all_text_contents()]


# ── the examples ─────────────────────────────────────────────────────────────────────────────────


def test_it_opens_at_the_call_that_saved_most_and_an_example_opens_both_runs_at_the_same_step(
    page: Page,
):
    expect(heading(page)).to_contain_text("by an accepted draft")
    expect(page.locator(".dn-card:visible")).to_have_count(2)
    asked = page.locator(".dn-asked").inner_text().removeprefix("Prompt: ")
    expect(page.locator("#ds-d-prompt textarea")).to_have_value(asked)
    example(page)
    expect(page.locator(".dn-card:visible")).to_have_count(2)
    expect(page.locator(".dn-same")).to_have_text(
        "✓ both runs unmask the same tokens at the same steps"
    )
    page.keyboard.press("End")
    expect(heading(page)).to_contain_text("Step 64 of 64")
    plain, calls, saved, speedup = tiles(page)
    assert int(plain) == 64 and int(calls) + int(saved) == 64
    assert speedup == ratio(64 / int(calls))
    assert shown(page, 0) == shown(page, 1)
    expect(page.locator(".dn-strip")).to_contain_text("return num % 2 == 0")
    expect(page.locator(".dn-masked")).to_have_count(0)


def test_denoising_runs_are_on_this_tab_s_shelf_alone(visit: Open):
    page = visit()
    settle(page)
    page.get_by_role("button", name="Examples", exact=True).locator("visible=true").click()
    expect(page.locator(".ds-example:visible").first).to_be_visible()
    assert not page.locator(".ds-example:visible", has_text="denoising").count()
    page.keyboard.press("Escape")
    tab(page, "denoise")
    expect(shelf(page)).to_have_count(6)
    page.keyboard.press("Escape")
    example(page, "Plain denoising")
    expect(page.locator(".dn-card:visible")).to_have_count(1)
    expect(page.locator(".dn-graph")).to_be_hidden()
    expect(page.locator(".dn-told")).to_contain_text("Plain denoising pays one call for every step")
    page.locator("#ds-d-panel").get_by_role("button", name="Examples").click()
    page.locator(".dn-scope dialog .ds-example", has_text="Spiffy, D = 10").first.click()
    expect(page.locator(".dn-graph")).to_be_visible()
    expect(page.locator(".dn-scope dialog")).to_be_hidden()


# ── steps ────────────────────────────────────────────────────────────────────────────────────────


def test_steps_calls_cells_and_the_scrubber_move_through_the_text(page: Page):
    example(page)
    page.keyboard.press("ArrowRight")
    expect(heading(page)).to_contain_text("Step 2 of 64 block 1 · call 2")
    expect(page.locator(".dn-strip .ds-token")).to_have_count(2)
    page.keyboard.press("Shift+ArrowRight")
    expect(heading(page)).to_contain_text("call 3")
    page.locator(".dn-card:visible").nth(1).locator("[data-step='10'] .hit").click()
    expect(heading(page)).to_contain_text("Step 11 of 64")
    page.locator(".dn-strip .ds-token").first.click()
    expect(heading(page)).to_contain_text("Step 1 of 64")
    page.get_by_role("slider", name="Denoising step").fill("20")
    expect(heading(page)).to_contain_text("Step 21 of 64 block 2")
    assert len(shown(page, 0)) == 5  # of the second block
    page.get_by_role("slider", name="Denoising step").fill("62")
    named(page, "Play").click()
    expect(heading(page)).to_contain_text("Step 64 of 64")
    expect(named(page, "Play")).to_be_visible()


def test_a_step_is_told_in_words_and_a_draft_with_its_pathways(page: Page):
    example(page)
    expect(page.locator(".dn-graph .ds-away")).to_contain_text("drafts nothing")
    expect(page.locator(".dn-told")).to_contain_text("The first call of a block carries no drafts")
    free = page.locator(".dn-card:visible").nth(1).locator(".row.free").first
    free.locator(".hit").click(force=True)
    expect(page.locator(".dn-told")).to_contain_text("No call: the state before this step was one")
    expect(heading(page)).to_contain_text("✓ by an accepted draft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".dn-told")).to_contain_text("no call")
    free.locator(".hit").click(force=True)
    boxes = page.locator(".dn-graph .ds-node")
    expect(boxes).to_have_count(12)  # the block, ten drafts, and where the model went on
    page.locator(".dn-graph .ds-node.accepted").first.click()
    card = page.locator(".dn-draft")
    expect(card).to_contain_text("accepted: the model's own step led to exactly this state")
    expect(page.locator(".dn-ranking .marked")).not_to_have_count(0)
    expect(page.locator(".dn-side h2")).to_have_text("Ranking before the call")
    card.locator(".dn-way").first.click()
    expect(card).to_contain_text("the block as it stood")
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()


def test_the_calibrated_graph_and_a_call_s_and_the_grids_are_files(page: Page):
    example(page)
    named(page, "Calibrated").click()
    expect(page.locator(".dn-graph h2")).to_have_text("k1-d10 10 formulas")
    boxes = page.locator(".dn-graph .ds-node")
    expect(boxes).to_have_count(11)
    page.locator("#dn-graph-node-4").click()
    expect(page.locator(".dn-draft")).to_contain_text("Drafted in")
    made = taken(page, from_menu(page, "Save the draft graph as DOT"))
    assert made.suggested_filename == "draftscope-calibrated-graph.dot"
    text = Path(made.path()).read_text()
    assert text.startswith('digraph "calibrated graph"') and text.count("->") >= 10
    svg = ElementTree.fromstring(
        Path(taken(page, from_menu(page, "Save the draft graph as SVG")).path()).read_bytes()
    )
    assert svg.tag == SVG + "svg" and "c₁₁ c₂₁" in "".join(svg.itertext())
    named(page, "Drafts").click()
    expect(page.locator(".dn-graph h2")).to_contain_text("Call 1")
    page.keyboard.press("ArrowRight")  # the last call of a text drafts nothing
    made = taken(page, from_menu(page, "Save the draft graph as DOT"))
    assert made.suggested_filename.endswith(".dot") and "digraph" in Path(made.path()).read_text()
    made = taken(page, from_menu(page, "Save the draft graph as SVG"))
    assert ElementTree.fromstring(Path(made.path()).read_bytes()).tag == SVG + "svg"
    for grid, name in enumerate(("plain", "spiffy")):
        made = taken(page, from_menu(page, "Save this grid as SVG", grid))
        assert made.suggested_filename == f"draftscope-block-{name}.svg"
        drawn = Path(made.path()).read_text("utf-8")  # the whole block, whatever step is on view
        shown = page.locator(".dn-grid:visible").nth(grid)
        assert drawn.count("%</text>") >= shown.locator(".row").count() > 9
        made = taken(page, from_menu(page, "Save this grid as PNG", grid))
        assert Path(made.path()).read_bytes().startswith(b"\x89PNG")
    made = taken(page, from_menu(page, "Save the draft graph as PNG"))
    assert Path(made.path()).read_bytes().startswith(b"\x89PNG")
    made = taken(page, from_menu(page.locator("#ds-d-panel"), "Save Spiffy trace"))
    lines = gzip.decompress(Path(made.path()).read_bytes()).splitlines()
    assert json.loads(lines[0])["method"] == "spiffy"


def test_the_ranking_is_a_table_to_take_away(page: Page):
    example(page)
    made = taken(page, named(page, "Save the numbers: Ranking, CSV"))
    rows = pd.read_csv(made.path())
    assert set(rows["step"]) == {1} and set(rows["position_rank"]) >= {0}
    assert bool(rows["p"].between(0, 1).all())
    assert sum(rows["unmasked"]) == max(rows["token_rank"])
    made = taken(page, named(page, "Save the numbers as Parquet: Ranking, Parquet"))
    assert len(pd.read_parquet(io.BytesIO(Path(made.path()).read_bytes()))) == len(rows)


# ── live runs and traces ─────────────────────────────────────────────────────────────────────────


def test_live_runs_are_followed_stopped_and_fail_with_a_sentence(page: Page):
    run(page, "How many are left?")
    expect(page.locator(".dn-asked")).to_have_text("Prompt: How many are left?")
    done(page)
    expect(page.locator(".dn-same")).to_contain_text("same tokens at the same steps")
    expect(heading(page)).to_contain_text("Step 64 of 64")
    expect(page.locator(".dn-tiles b").first).to_have_text("64")
    plain, calls, _, _ = tiles(page)
    assert int(calls) < int(plain) == 64
    run(page, "slow waits")  # plain denoising waits for its turn: what it would cost is not said
    expect(page.locator(".dn-asked")).to_have_text("Prompt: slow waits")
    expect(page.locator(".dn-tiles b")).to_have_text(["–", re.compile(r"\d+"), "–", "–"])
    page.locator("#ds-d-stop").click()
    expect(state(page).first).to_have_attribute("data-state", "stopped")
    run(page, "And now plainly", "none")
    done(page, 1)
    expect(page.locator(".dn-card:visible")).to_have_count(1)
    run(page, "slow")
    expect(page.locator(".dn-asked")).to_have_text("Prompt: slow")
    page.locator("#ds-d-stop").click()
    expect(state(page).first).to_have_attribute("data-state", "stopped")
    run(page, "fail", "none")
    expect(page.locator(".dn-scope .ds-banner")).to_contain_text("no denoiser ships")
    expect(page.locator(".dn-scope .dn-empty h2")).to_be_visible()  # nothing is awaited any more


def test_space_opens_the_words_and_plays_nothing(page: Page):
    example(page)
    words = page.locator(".ds-explained")
    words.locator("summary").focus()
    page.keyboard.press("Space")
    expect(words).to_have_attribute("open", "")
    expect(named(page, "Play")).to_be_visible()
    page.wait_for_function(  # the strip may be drawn anew meanwhile, and its parts with it
        """() => {
          const strips = [...document.querySelectorAll(".dn-strip")];
          const strip = strips.find((each) => each.offsetParent);
          const here = strip && strip.querySelector(".here");
          return !!here && !!here.id && strip.getAttribute("aria-activedescendant") === here.id;
        }"""
    )


def test_a_run_that_is_gone_is_said_and_can_no_longer_be_stopped(browser: Browser):
    runs = Runs(DenoiseEngine())
    with serving(runs) as address:
        page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        page.goto(address)
        expect(page.locator(".ds-scope").first).to_be_visible()
        tab(page, "denoise")
        expect(heading(page)).to_contain_text("of 64")
        run(page, "slow", "none")
        expect(page.locator(".dn-asked")).to_contain_text("slow")  # not the example any more
        expect(page.locator("#ds-d-stop")).to_be_enabled()
        runs._runs.clear()
        expect(page.locator(".dn-scope .ds-banner")).to_have_text(
            "this run is no longer on the server"
        )
        expect(page.locator("#ds-d-stop")).to_be_disabled()
        page.context.close()


def test_traces_open_and_others_open_where_they_belong(page: Page, tmp_path: Path):
    for name, trace in zip(("spiffy", "plain"), traces(block=16), strict=True):
        write_trace(tmp_path / f"{name}.jsonl.gz", trace)
    open_file(page, tmp_path / "spiffy.jsonl.gz")
    expect(heading(page)).to_contain_text("Step 1 of 32")
    write_trace(tmp_path / "ar.jsonl", Trace(make_header(), tuple(make_run()), {}))
    open_file(page, tmp_path / "ar.jsonl")
    expect(page.locator(".ds-drop-said p")).to_have_text("ar.jsonl: opened in Run")
    expect(page.locator("#ds-panel .ds-about")).to_contain_text("why?")


def test_hostile_text_stays_text(page: Page):
    run(page, "hostile <img src=x onerror='window.__pwned=1'>")
    done(page)
    page.keyboard.press("Home")
    expect(page.locator(".dn-asked")).to_contain_text("<img src=x")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    named(page, "Calibrated").click()
    expect(page.locator(".dn-graph h2")).to_contain_text("8 formulas")
    assert not page.locator(".dn-scope img, .dn-scope script, .dn-scope a").count()


def test_nothing_runs_off_the_page(page: Page):
    off = "Math.max(...[...document.querySelectorAll('.dn-scope *')].filter((e) => !e.closest('svg, .ds-table, .dn-scroll, .ds-canvas')).map((e) => e.getBoundingClientRect().right)) - innerWidth"  # noqa: E501
    example(page)
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate(FRAMES)
        page.keyboard.press("Home")
        expect(heading(page)).to_contain_text("Step 1 of")
        assert page.evaluate(off) <= 0
        page.keyboard.press("End")
        expect(heading(page)).to_contain_text("Step 64")
        assert page.evaluate(off) <= 0


@pytest.mark.parametrize("width", [960, 1024])
def test_a_narrow_window_says_all_settings(visit: Open, address: str, width: int):
    page = visit(f"{address}/#view=denoise", viewport={"width": width, "height": 720})
    said = page.locator("#ds-d-open-settings")
    expect(said).to_contain_text("tokens")
    assert said.evaluate("e => e.scrollWidth <= e.clientWidth")
    expect(page.locator("#ds-d-panel .ds-chip", has_text="recorded").first).to_be_visible()


WHOLE = """() => {
  const tree = document.querySelector(".dn-graph .ds-tree"), room = tree.getBoundingClientRect();
  return [...tree.querySelectorAll(".ds-node .box")].map((each) => each.getBoundingClientRect())
    .every((box) => box.top >= room.top && box.bottom <= room.bottom && box.right <= room.right);
}"""


def test_the_draft_graph_is_whole_in_a_small_window(visit: Open, address: str):
    size = {"width": 1280, "height": 720}
    names = "trace=code-denoise,code-spiffy-10"
    page = visit(
        f"{address}/#view=denoise&{names}&round=10", viewport=size, reduced_motion="reduce"
    )
    expect(page.locator(".dn-place")).to_contain_text("Step 10 of")
    page.wait_for_function(WHOLE)
    page.locator(".dn-graph .ds-tree").focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
        page.wait_for_function(WHOLE)
