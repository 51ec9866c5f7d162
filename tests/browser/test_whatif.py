"""The tab What-if in a real browser: sliders over the collected text that ships, and bad files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")

from playwright.sync_api import Browser, Page, expect

from app.studio.tabs.whatif_answers import curve_figures, lengths_figure
from app.view.rounds import round_view
from core.traces.record import Recorder
from tests.browser.steps import (
    NODE,
    Open,
    from_menu,
    holding,
    let_go,
    open_file,
    run,
    tab,
    with_modules,
)
from tests.helpers.fakes import make_round

SCOPE = "#ds-w-scope"


@pytest.fixture
def shown(visit: Open, address: str) -> Page:
    page = visit(f"{address}/#view=whatif")  # Run, which is not seen, opens no example
    begin(page)
    expect(page.locator(f"{SCOPE} .ds-best")).to_contain_text("Best budget")  # all is drawn
    return page


def begin(page: Page) -> None:
    tab(page, "whatif")
    expect(page.locator(f"{SCOPE} .ds-tile b").first).to_be_visible(timeout=60_000)


def tiles(page: Page):
    return page.locator(f"{SCOPE} .ds-tile b")


def test_a_text_is_open_at_once_and_sliders_answer(shown: Page):
    expect(shown.locator(f"{SCOPE} .ds-exact")).to_contain_text("exact for this text")
    expect(shown.locator(f"{SCOPE} {NODE}.root")).to_have_count(1)
    texts = shown.get_by_label("Collected text", exact=True).and_(shown.locator("select"))
    expect(texts.locator("option")).to_have_text(["fibonacci", "train journey", "walk in the rain"])
    budget = shown.get_by_role("slider", name="draft budget B")
    before = tiles(shown).first.inner_text()
    budget.focus()
    shown.keyboard.press("End")
    expect(tiles(shown).first).not_to_have_text(before)
    expect(budget).to_have_attribute("aria-valuetext", "1024")
    expect(tiles(shown).nth(2)).to_have_text("96")


def test_a_run_on_view_is_asked_about(visit: Open):
    page = visit()
    begin(page)  # of a text that ships; what is said of it is not said of the run
    tab(page, "run")
    run(page, "a patient prompt", budget=16)
    page.locator(".ds-tree:visible").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    from_menu(page, "What if").click()
    scope = page.locator(SCOPE)
    expect(scope.get_by_role("status").first).to_contain_text("Collecting this run's text")
    expect(scope.locator(".ds-exact")).to_be_hidden()
    chosen = scope.get_by_label("Collected text", exact=True).and_(page.locator("select"))
    expect(chosen.locator("option:checked")).to_have_text("a patient prompt", timeout=30_000)
    expect(page.get_by_role("slider", name="draft budget B")).to_have_attribute(
        "aria-valuetext", "16"
    )
    expect(scope.locator(".ds-background")).to_be_hidden()
    expect(scope.locator(".ds-exact")).to_contain_text("✓ exact")
    expect(scope).to_contain_text("The text written here leaves the run's")
    expect(scope).to_contain_text(re.compile(r"Round [2-9]\d* of"))  # at the round that was on view


def test_a_link_to_a_run_that_is_decoded_again_says_so(shown: Page):
    made = json.dumps([{"prompt": "a linked prompt", "budget": 16, "max_new_tokens": 64}])
    waits = shown.locator(SCOPE).get_by_text("The run that the link names is decoded first")
    with holding(shown, "runs") as held:
        shown.evaluate("made => (location.hash = `view=whatif&made=${made}`)", quote(made))
    expect(waits).to_be_visible()
    let_go(shown, held)
    expect(waits).to_have_count(0)


def test_a_trace_that_does_not_name_its_target_is_refused(visit: Open, tmp_path: Path):
    file = tmp_path / "mine.jsonl"
    with Recorder(file, "my method", [5, 17, 3], budget=3, text=str) as record:
        record.round([9, 4, 6, 4], [-1, 0, 0, 1], path=[0, 1, 3], bonus=8)
    page = visit()
    open_file(page, file)
    expect(page.locator(".ds-about:visible")).to_contain_text("my method")
    from_menu(page, "What if").click()
    scope = page.locator(SCOPE)
    expect(scope.get_by_role("alert").first).to_contain_text("which target wrote it")
    expect(scope.locator(".ds-exact")).to_be_visible()  # of the text that is named above it
    expect(scope.get_by_role("alert").first).to_be_visible()


def test_each_method_has_its_own_knobs_and_curves_can_be_kept(shown: Page):
    scope = shown.locator(SCOPE)
    scope.get_by_label("Method").select_option("treeflash")
    expect(scope.locator(".ds-knob")).to_have_count(3)
    scope.get_by_label("Method").select_option("dart")
    expect(shown.get_by_role("slider", name="n-gram weight")).to_be_visible()
    tau = scope.locator("figure", has=shown.get_by_role("img", name="τ by budget"))
    lines = tau.locator(".scatterlayer .lines .js-line")
    expect(tau.locator("thead")).to_contain_text("DART")  # its answer moves the buttons
    expect(lines).to_have_count(1)
    scope.get_by_role("button", name="All methods").click()
    expect(lines).to_have_count(5)  # DFlash, DDTree, CaDDTree, TreeFlash, DART
    labels = tau.locator(".annotation-text")
    expect(labels).to_have_count(5)  # they are placed when the curves are drawn
    names = sorted(labels.all_text_contents())
    assert names == ["CaDDTree", "DART", "DDTree", "DFlash", "TreeFlash"]
    ring = tau.locator(".scatterlayer .trace").last.locator(".points path")
    expect(ring).to_have_count(1)
    scope.get_by_role("button", name="Forget kept curves").click()
    expect(lines).to_have_count(1)


def test_a_curve_can_be_drawn_over_several_texts(shown: Page):
    scope = shown.locator(SCOPE)
    tau = scope.locator("figure", has=shown.get_by_role("img", name="τ by budget"))
    bands = tau.locator(".scatterlayer .js-fill")
    expect(tau.locator(".scatterlayer .lines .js-line")).to_have_count(1)
    expect(bands).to_have_count(0)
    scope.get_by_text("Curve of τ over more texts…").click()
    scope.get_by_label("train journey").check()
    expect(tau).to_contain_text("over 2 texts")
    scope.get_by_label("walk in the rain").check()
    expect(tau).to_contain_text("over 3 texts")
    expect(tau).to_contain_text("Fewer than 5 texts give no interval")
    expect(bands).to_have_count(0)
    scope.get_by_role("button", name="All methods").click()
    expect(tau.locator(".scatterlayer .lines .js-line")).to_have_count(5)
    assert from_menu(tau, "CSV")  # its numbers are there as those of any figure
    # the text on view is always among them, so it is not in the list
    files = scope.get_by_label("Collected text", exact=True).and_(shown.locator("select"))
    files.select_option("train-journey")
    expect(scope.get_by_label("fibonacci")).to_be_visible()
    expect(scope.get_by_label("train journey")).to_have_count(0)
    expect(tau).to_contain_text("over 2 texts")
    scope.get_by_label("walk in the rain").uncheck()
    expect(scope.get_by_text("Curve of τ over more texts…")).to_be_visible()


def test_a_number_takes_the_whole_range_and_no_answer_leaves_nothing_behind(shown: Page):
    scope = shown.locator(SCOPE)
    scope.get_by_label("Method").select_option("dart")
    decay, slider = (shown.get_by_label(f"decay of the q term{end}", exact=True)
                     for end in (", as a number", ""))  # fmt: skip
    expect(slider).to_have_attribute("step", "0.05")
    knob = scope.locator(".ds-knob", has=slider)
    expect(knob.locator(".ds-bounds")).to_have_text("0 to 100, by 0.05")
    decay.fill("50")
    decay.press("Enter")
    taus = scope.locator("figure", has=shown.get_by_role("img", name="τ by budget"))
    expect(taus.locator("thead")).to_contain_text("logit_decay 50")
    expect(scope.locator(".ds-exact")).to_contain_text("✓ exact")
    decay.fill("101")
    decay.press("Enter")
    expect(scope.get_by_role("alert")).to_contain_text("logit_decay must be 0 to 100, not 101")
    expect(scope.locator(".ds-exact")).to_have_text("no answer")
    expect(tiles(shown)).to_have_count(0)
    slider.press("Home")
    expect(tiles(shown).first).to_be_visible()
    expect(decay).to_have_value("0")
    expect(scope.get_by_role("alert")).to_be_hidden()


def test_the_text_leads_from_round_to_round_and_nodes_can_be_read(shown: Page):
    scope = shown.locator(SCOPE)
    heading = scope.get_by_role("heading", name="Round")
    expect(heading).to_contain_text("Round 1 of")
    scope.get_by_role("listbox").focus()
    shown.keyboard.press("ArrowRight")
    expect(heading).to_contain_text("Round 2 of")
    scope.locator(".ds-token").last.click()
    rounds = tiles(shown).nth(1).inner_text()
    expect(heading).to_have_text(f"Round {rounds} of {rounds}")
    note = scope.locator("p[role=status]").last
    told = []
    for key in ("ArrowDown", "Shift+ArrowLeft"):
        scope.locator(".ds-tree").press(key)
        expect(note).to_contain_text(re.compile("accepted|rejected|unreached|root"))
        told.append(note.inner_text())
    assert told[0] != told[1]
    scope.get_by_role("button", name="Table", exact=True).click()
    lines = scope.locator(".ds-nodes tbody tr")
    lines.nth(1).press("Enter")
    expect(lines.nth(1)).to_have_attribute("aria-selected", "true")
    said = re.compile(r"q \d.*(accepted|rejected|unreached)")
    note = scope.locator("p[role=status]", has_text=said)
    expect(note).to_have_attribute("aria-live", "off")  # the line in hand is spoken by itself


def test_another_file_gets_one_sentence(shown: Page, tmp_path: Path):
    file = tmp_path / "<b>x.safetensors"
    file.write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    open_file(shown, file, f"{SCOPE} .ds-opens")
    alert = shown.locator(f"{SCOPE} [role=alert]")
    expect(alert).to_contain_text("this file")
    expect(tiles(shown).first).to_be_visible()


@pytest.mark.parametrize("width", [360, 3840])
def test_what_if_is_no_wider_than_the_window(visit: Open, width: int):
    page = visit(viewport={"width": width, "height": 800})
    begin(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_result_of_cost_takes_the_estimate_s_place(shown: Page, tmp_path: Path):
    from analysis.experiments.cost import Cost, ForwardTime, Stage, fit

    law = fit([ForwardTime(n, *[0.05 + 0.25 * n] * 3) for n in (1, 2, 3, 5, 9, 17, 33)])
    made = Cost("here", "ddtree", law, (Stage(16, 0.01, 0.01, 0.01, 17),))
    scope, path = shown.locator(SCOPE), tmp_path / "cost.json"
    best = scope.locator(".ds-best")
    expect(best).to_contain_text("Best budget by this estimate")
    path.write_text(json.dumps(made.to_json()))
    open_file(shown, path, f"{SCOPE} .ds-opens-cost")
    expect(best).to_contain_text(
        "Best budget by these times: 1,"
    )  # rows cost far more than they save
    expect(best).to_contain_text("plain decoding 3.33")
    expect(scope).to_contain_text("the times that cost measured: DDTree on here")
    scope.get_by_label("Method").select_option("dart")
    expect(best).to_contain_text("not timed in the result that is open")
    for text in ('{"format": "draftscope-cost"}', json.dumps(made.to_json() | {"method": "a.py"})):
        path.write_text(text)
        open_file(shown, path, f"{SCOPE} .ds-opens-cost")
        expect(scope.get_by_role("alert")).to_contain_text("this")
        expect(scope.get_by_role("alert")).to_contain_text("result")


def test_what_comes_later_moves_no_button(visit: Open):
    page = visit()
    saves = page.locator(SCOPE).get_by_role("button", name="Fit the whole tree")
    best = page.locator(f"{SCOPE} .ds-best")
    with holding(page, "curve") as held:
        begin(page)
    before = saves.bounding_box()
    assert before and best.inner_text() == ""
    let_go(page, held)
    expect(best).to_contain_text("Best budget")
    assert saves.bounding_box() == before


FAKE = """async ({ round, figures }) => {
  const texts = { one: "the first text", two: "the second text" }, held = (window.held = []);
  const methods = [{ name: "ddtree", title: "DDTree", budget: 16, knobs: [] }];
  const told = (budget) => ({ budget, tau: 2, rounds: 2, lengths: [2, 2], tokens: 5, exact: true, note: "", figures });
  const late = (name, answer) => (window.late === name ? new Promise((done) => held.push(() => done(answer))) : answer);
  (await import("/web/whatif/view.js")).mount({
    element: document.querySelector("main"), props: {}, watch: () => {},
    server: {
      files: async () => ({ files: Object.keys(texts).map((name) => ({ name, title: name })) }),
      about: async ({ file }) => late(file, { model: "fake", prompt: texts[file], text: ["a", "b", "c", "d", "e"], methods, figures }),
      simulate: async ({ budget }) => late("simulate", { ...told(budget), round, starts: [0, 2] }),
      curve: async () => ({ figures, cost: null }),
      collect: async () => ({ ticket: "work", file: "three", setting: { method: "ddtree", budget: 8 }, made: "hello" }),
      updates: async () => ({ model: {}, run: { ticket: "work", state: "done", first: 0, rounds: [] } }),
      collected: async () => late("collected", { file: "three", title: "the run's text", apart: "" }),
    },
  });
}"""  # noqa: E501


ANSWERS = {
    "round": round_view(make_round(), first=True),
    "figures": curve_figures({}, None) | {"lengths": lengths_figure("DDTree, B = 16", (2, 2))},
}


def test_an_opened_text_takes_the_other_s_curves_away(browser: Browser):
    page = with_modules(browser.new_page())
    page.evaluate(FAKE, ANSWERS)
    forget = page.get_by_role("button", name="Forget kept curves")
    page.get_by_role("button", name="Keep this curve").click()
    expect(forget).to_be_visible()
    files = page.get_by_label("Collected text", exact=True).and_(page.locator("select"))
    files.select_option("two")
    expect(page.get_by_text("fake: the second text")).to_be_visible()
    expect(forget).to_be_hidden()
    page.evaluate("window.late = 'one'")  # asked for first, and answered last
    files.select_option("one")
    files.select_option("two")
    page.wait_for_function("window.held.length === 1")
    page.evaluate("window.held[0]()")
    expect(page.get_by_text("fake: the second text")).to_be_visible()
    expect(files).to_have_value("two")
    page.close()


def test_a_text_that_is_collected_late_takes_no_view(browser: Browser):
    page = with_modules(browser.new_page())
    page.evaluate(FAKE, ANSWERS)
    expect(page.get_by_text("fake: the first text")).to_be_visible()
    page.evaluate("window.late = 'collected'")
    page.evaluate("import('/web/goto.js').then((to) => to.goTo({ view: 'whatif', ticket: 't' }))")
    page.wait_for_function("window.held.length === 1")
    expect(page.get_by_text("fake: the first text")).to_be_hidden()
    question = "#trace=hello&view=whatif&method=ddtree&budget=8"  # a reload asks it again
    page.wait_for_function(f"window.location.hash === '{question}'")
    assert page.evaluate("window.history.state.draftscope.runs") == ["three"]
    files = page.get_by_label("Collected text", exact=True).and_(page.locator("select"))
    files.select_option("two")
    expect(page.get_by_text("fake: the second text")).to_be_visible()
    page.evaluate("window.held[0]()")
    expect(files.locator("option")).to_have_text(["one", "two", "the run's text"])
    expect(files).to_have_value("two")
    expect(page.get_by_text("fake: the second text")).to_be_visible()
    page.close()


def test_an_old_answer_is_dim_until_the_new_one_is_there(browser: Browser):
    page = with_modules(browser.new_page())
    page.evaluate(FAKE, ANSWERS)
    body, stale = page.locator(".ds-below[aria-busy]"), re.compile("ds-stale")
    expect(page.locator(".ds-exact")).to_contain_text("✓ exact")
    expect(body).not_to_have_class(stale)
    page.evaluate("window.late = 'simulate'")
    page.get_by_role("slider", name="draft budget B").press("ArrowRight")
    page.wait_for_function("window.held.length === 1")
    expect(body).to_have_class(stale)
    expect(body).to_have_attribute("aria-busy", "true")
    page.evaluate("window.late = null; window.held[0]()")
    expect(body).not_to_have_class(stale)
    expect(body).to_have_attribute("aria-busy", "false")
    page.close()


def test_the_simulated_draft_is_a_picture_and_a_graph(shown: Page):
    for form, sign in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with shown.expect_download() as saved:
            from_menu(shown.locator(SCOPE), f"Save this tree as {form}").click()
        assert Path(saved.value.path()).read_bytes().startswith(sign)
    for form, sign in (("dot", "digraph"), ("graphml", "graphml")):
        with shown.expect_download() as saved:
            from_menu(shown.locator(SCOPE), f"Save this draft as {form}").click()
        assert saved.value.suggested_filename == f"draftscope-ddtree-round-1.{form}"
        assert sign in Path(saved.value.path()).read_text()
    shown.route("**/component_server/**", lambda route: route.abort())
    from_menu(shown.locator(SCOPE), "Save this draft as dot").click()
    beside = shown.locator(f"{SCOPE} header [role=alert]")
    expect(beside).to_have_text("not saved: the server did not answer")
