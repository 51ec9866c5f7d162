"""Methods, builders and options in the panel; why a node was drafted; the tree as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Browser, Page, expect

from analysis.charts.palette import PALETTES
from core.rounds.draft import CHILDLESS
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.browser.steps import (
    COMPARED,
    NODE,
    PROMPT,
    Open,
    at_round,
    choose,
    compare,
    from_menu,
    open_file,
    open_form,
    pick,
    run,
    served,
    settle,
    tab,
    title,
    with_modules,
)
from tests.helpers.fakes import FakeEngine, make_header, make_round
from tests.helpers.users_files import OWN_FILE

pytestmark = pytest.mark.browser


# ── the panel ────────────────────────────────────────────────────────────────────────────────────


def open_options(page: Page) -> None:
    open_form(page)
    page.locator("#ds-options summary").click()


def options(page: Page) -> list[str]:
    return page.locator("#ds-options .ds-field:visible label").all_inner_texts()


def test_a_method_brings_its_own_options(visit: Open):
    page = visit()
    open_options(page)
    expect(page.get_by_label("temperature of q")).to_be_visible()
    expect(page.get_by_label("candidates per depth")).to_be_hidden()
    choose(page, "TreeFlash")
    candidates = page.get_by_label("candidates per depth")
    expect(candidates).to_have_value("16")
    candidates.fill("8")
    choose(page, "DART")
    expect(candidates).to_be_hidden()
    expect(page.get_by_label("n-gram term at depth 1")).to_be_checked()
    assert len(options(page)) == 9  # with the builder
    assert "ngram" not in options(page)  # a path is not asked for
    choose(page, "TreeFlash")
    expect(candidates).to_have_value("16")  # reset
    choose(page, "Plain")
    expect(page.locator("#ds-options")).to_be_hidden()


def test_options_are_labelled_and_explained_and_set_by_keys(visit: Open):
    page = visit()
    open_options(page)
    choose(page, "CaDDTree")
    field = page.get_by_label("temperature of q")
    expect(field).to_have_accessible_description(
        "the logits of q are divided by it · 0.001 to 1000"
    )
    field.focus()
    page.keyboard.press("ArrowUp")
    expect(field).to_have_value("1.05")
    page.locator("#ds-options summary").focus()
    page.keyboard.press("Enter")
    expect(field).to_be_hidden()
    page.keyboard.press(" ")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Builder", exact=True)).to_be_focused()
    page.keyboard.press("c")  # the first that begins with it
    expect(page.get_by_label("Builder", exact=True)).to_have_value("chain")
    expect(page.get_by_label("Builder", exact=True)).to_be_focused()
    expect(field).to_have_value("1")  # reset


def test_options_and_builder_reach_the_run(visit: Open, tmp_path: Path):
    page = visit()
    open_options(page)
    choose(page, "TreeFlash")
    page.get_by_label("Builder", exact=True).select_option("opt-tree")
    expect(page.get_by_label("gain a level must add")).to_be_visible()
    page.get_by_label("candidates per depth").fill("8")
    page.get_by_label("candidates per depth").blur()
    run(page, "hello")
    expect(page.locator(".ds-about")).to_contain_text("treeflash+opt-tree")
    with page.expect_download() as download:
        from_menu(page, "Save trace").click()
    path = tmp_path / "run.jsonl.gz"
    download.value.save_as(path)
    header = read_trace(path).header
    assert header.method == "treeflash+opt-tree"
    assert header.settings["options"]["candidates"] == 8


def test_an_emptied_option_is_complained_of(visit: Open):
    page = visit()
    open_options(page)
    choose(page, "TreeFlash")
    field = page.get_by_label("candidates per depth")
    expect(field).to_have_value("16")
    field.fill("")
    field.blur()
    page.locator(PROMPT).fill("hello")
    page.locator("#ds-start").click()
    expect(page.locator(".ds-banner")).to_contain_text("fill in the option candidates per depth")


def test_run_again_brings_back_each_column_s_builder_and_options(visit: Open):
    page = visit()
    tab(page, "compare")
    page.wait_for_function(COMPARED)
    open_form(page, "ds-c")
    pick(page, "#ds-slot-b", "DART")
    second = page.locator("#ds-slot-b-options")
    second.locator("summary").click()
    second.get_by_label("n-gram term at depth 1").uncheck()
    second.get_by_label("sequences kept per depth").fill("7")
    pick(page, "#ds-slot-a", "TreeFlash")
    first = page.locator("#ds-slot-a-options")
    first.locator("summary").click()
    first.get_by_label("Builder", exact=True).select_option("opt-tree")
    first.get_by_label("candidates per depth").fill("8")
    before = page.evaluate(COMPARED)
    page.locator("#ds-c-prompt textarea").fill("hello")
    page.locator("#ds-c-start").click()
    page.wait_for_function(f"(before) => {COMPARED} !== before", arg=before)
    about = page.locator("#ds-view-compare .ds-beside-prompt")
    expect(about.locator(".ds-chip.run[data-state=done]")).to_have_count(2)
    open_form(page, "ds-c")
    pick(page, "#ds-slot-a", "Plain")
    expect(first.locator("details")).to_be_hidden()
    expect(first.locator("p.ds-soft")).to_contain_text("Plain: one token per forward")
    pick(page, "#ds-slot-b", "none")
    expect(second.locator("details")).to_be_hidden()
    expect(second.locator("p.ds-soft")).to_have_text("")
    page.locator("#ds-c-open-settings").click()  # the settings lie over the menu
    from_menu(page.locator("#ds-view-compare"), "Run again").click()
    expect(first.get_by_label("Builder", exact=True)).to_have_value("opt-tree")
    expect(first.get_by_label("candidates per depth")).to_have_value("8")
    expect(second.get_by_label("sequences kept per depth")).to_have_value("7")
    expect(second.get_by_label("n-gram term at depth 1")).not_to_be_checked()


DRAWN = """async () => {
  const { mount } = await import("/web/options/view.js"),
    value = (method) => ({ method, builder: "own", options: { width: 3 } }),
    about = "<img src=x onerror='window.__pwned = 1'>",
    options = [{ name: "width", label: about, about, value: 1, step: 1 }],
    answers = [() => Promise.reject(), async () => ({ options, methods: { a: { own: [0] } } })],
    page = { element: document.querySelector("main"), props: { value: value("a") } },
    seen = () => page.element.innerText.replace(/\\s+/g, " ");
  let redraw;
  page.watch = (_, hear) => (redraw = hear);
  page.server = { described: () => answers.shift()() };
  await mount(page);
  document.querySelector("details").open = true;
  const told = seen();
  await redraw();
  const input = document.querySelector("input"),
    drawn = [input.value, input.labels[0].textContent === about];
  for (const typed of ["4", ""]) {
    input.value = typed;
    input.dispatchEvent(new Event("input"));
    drawn.push(page.props.value.options.width);
  }
  page.props.value = value("");
  await redraw();
  return { told, drawn, images: document.images.length, hidden: !seen() };
}"""


def test_options_that_did_not_come_are_asked_for_again_and_never_markup(browser: Browser):
    page = with_modules(browser.new_context().new_page())
    assert page.evaluate(DRAWN) == {
        "told": "Builder and options the server did not answer",
        "drawn": ["3", True, 4, None],
        "images": 0,
        "hidden": True,
    }
    page.context.close()


@pytest.fixture
def own_address(tmp_path: Path) -> Iterator[str]:
    from app.studio.methods import Methods

    path = tmp_path / "mine.py"
    path.write_text(OWN_FILE)
    with served(FakeEngine(), methods=Methods.of([str(path)])) as address:
        yield address


def test_a_method_of_one_s_own_stands_in_the_panel(browser: Browser, own_address: str):
    page = browser.new_context().new_page()
    page.goto(own_address)
    settle(page)
    open_options(page)
    choose(page, "Mine")
    expect(page.get_by_label("luck")).to_have_value("0.5")
    expect(page.get_by_label("Builder", exact=True)).to_have_count(0)
    expect(page.get_by_label("note")).to_have_count(0)
    run(page, "hello")
    expect(page.locator(".ds-about")).to_contain_text("mine")
    page.context.close()


# ── why it was drafted ───────────────────────────────────────────────────────────────────────────


def opened(page: Page, path: Path, method: str, row: int) -> Page:
    """A trace of one round of this method, with a row's inspector open."""
    record = make_round(4, 30, method=method)
    header = make_header("why?", method, options={"candidates": 8})
    write_trace(path, Trace(header, (record,), {}))
    open_file(page, path)
    expect(title(page)).to_have_text(at_round(1))
    page.locator(".ds-tree").focus()
    page.keyboard.press("f")
    page.locator(f"{NODE}[data-row='{row}']").click()
    expect(page.locator(".ds-inspector .ds-numbers")).to_be_visible()
    return page


def test_a_prefix_says_rank_q_and_path(visit: Open, tmp_path: Path):
    page = opened(visit(), tmp_path / "a.jsonl", "ddtree", 1)
    section = page.locator(".ds-drafted.path")
    expect(section).to_contain_text("The drafter's best token at depth 1")
    expect(section).to_contain_text("1st most probable path of this draft's 30 nodes")
    expect(page.locator(".cue")).to_have_count(0)


def test_a_conditioned_node_shows_q_given_the_parent_beside_q(visit: Open, tmp_path: Path):
    record = make_round(4, 30, method="treeflash")
    assert record.proposal is not None
    deep = [r for r in range(1, 31) if record.draft.depths[r] > 1]
    leaf = next(r for r in deep if record.proposal.after[r] == CHILDLESS)
    page = opened(visit(), tmp_path / "a.jsonl", "treeflash", leaf)
    section = page.locator(".ds-drafted.versus")
    expect(section.locator(".ds-chance")).to_have_count(2)
    expect(section).to_contain_text("of M = 8 at its depth")
    expect(section).to_contain_text("can have no children: its token is not among the M = 8")
    expect(section).to_contain_text("× q")
    expect(page.locator("span.ds-cue-key:visible")).to_contain_text(
        "q after this parent is at least twice q at its depth"
    )
    marks = [m for m in page.locator(".cue").all_text_contents() if m]
    assert marks and set(marks) <= {"▲", "▼"}


def test_a_weighed_node_shows_its_terms_and_that_a_score_is_no_probability(
    visit: Open, tmp_path: Path
):
    page = opened(visit(), tmp_path / "a.jsonl", "dart", 2)
    section = page.locator(".ds-drafted.terms")
    expect(section.locator(".ds-term.term-1, .ds-term.term-2, .ds-term.total")).to_have_count(3)
    expect(section).to_contain_text("It is not a probability")
    expect(section).to_contain_text("n-gram model")
    marks = set(page.locator(".cue").all_text_contents())
    assert marks and marks <= {"n0", "n1", "n2", "n–"}


# ── the tree as a file ───────────────────────────────────────────────────────────────────────────


def test_the_tree_shown_is_saved_as_svg(visit: Open, tmp_path: Path):
    page = visit(color_scheme="dark")
    settle(page)  # the form takes the example's settings once
    choose(page, "TreeFlash")
    run(page, "hostile ${window.__pwned=1}")
    page.locator(".ds-tree").focus()
    page.keyboard.press("Home")
    with page.expect_download() as download:
        from_menu(page, "Save the tree as SVG").click()
    assert download.value.suggested_filename == "draftscope-treeflash-round-1.svg"
    path = tmp_path / "tree.svg"
    download.value.save_as(path)
    text = path.read_text("utf-8")
    root = ElementTree.fromstring(text)
    boxes = root.findall(".//{http://www.w3.org/2000/svg}g")
    assert 5 < len(boxes) < 40 and "64 nodes" in text and "Σq" in text  # folded, as it is shown
    assert "<script" not in text
    assert PALETTES["light"]["ink"] in text and PALETTES["dark"]["ink"] not in text


def test_each_pane_saves_its_own_tree(visit: Open):
    page = visit()
    compare(page, "hello", "DDTree", "DART")
    panes = page.locator("#ds-c-scope")
    for pane, method in ((0, "ddtree"), (1, "dart")):
        with page.expect_download() as download:
            from_menu(panes, "Save the tree as SVG", pane).click()
        assert f"-{method}-round-" in download.value.suggested_filename
