"""Every view is a function of the address: a link opens the same view in an empty profile, and Back
returns to what was on view."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")

from playwright.sync_api import Page, Route, expect

from app.studio import runs
from core.decoding.request import RunRequest
from core.rounds.round import Round
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.browser.steps import (
    FRAMES,
    PROMPT,
    Open,
    at_round,
    compare,
    from_menu,
    open_file,
    run,
    state,
    tab,
    title,
)
from tests.helpers.fakes import FakeEngine, make_header, make_run

pytestmark = pytest.mark.browser


def settled(page: Page, *said: str) -> str:
    """The address, once it says all of this: regular expressions."""
    for each in said:
        page.wait_for_function("(part) => new RegExp(part).test(location.hash)", arg=each)
    return page.url


def about(page: Page):
    return page.locator(".ds-about:visible q")


def test_results_link_has_what_is_chosen_and_the_order(visit: Open):
    page = visit()
    tab(page, "results")
    place = page.locator("#ds-results")
    expect(place.locator("tbody tr").first).to_be_visible()
    place.get_by_label("temperature").select_option(label="T = 1")
    place.get_by_label("budget").select_option(label="each method's own budget")
    place.get_by_role("button", name="τ").click()
    url = settled(page, "temperature=1", "budget=own", "sort=tau")
    rows = place.locator("tbody tr").all_inner_texts()

    again = visit(url)
    place = again.locator("#ds-results")
    expect(place.locator("tbody tr")).to_have_count(len(rows))
    assert place.locator("tbody tr").all_inner_texts() == rows
    expect(place.locator("th[aria-sort=descending]")).to_contain_text("τ")


TITLES = """window.titles = new Set();
const look = () => {
  const title = document.querySelector("#ds-scope .ds-round-title");
  const [round] = title?.textContent.match(/^Round \\d+/) ?? [];
  if (round) titles.add(round);
};
new MutationObserver(look).observe(document, { childList: true, subtree: true });"""


@pytest.mark.parametrize("named", ["trace=chat-dart&round=4", "view=run"])
def test_the_round_to_be_seen_is_the_first_that_is_drawn(
    visit: Open, address: str, named: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runs, "ROWS_AT_ONCE", 400)  # the rest comes once a tree has been drawn
    page = visit(f"{address}/#view=learn")
    page.add_init_script(TITLES)
    page.goto("about:blank")
    page.goto(f"{address}/#{named}")
    page.locator(".ds-node.root").locator("visible=true").first.wait_for()
    page.wait_for_load_state("networkidle")
    seen = page.evaluate("[...titles]")
    assert len(seen) == 1
    assert seen != ["Round 1"]


def test_an_example_s_link_has_round_node_and_drawing(visit: Open, address: str):
    page = visit(f"{address}/#trace=chat-dart&round=4")
    expect(title(page)).to_have_text(at_round(4))
    page.get_by_role("button", name="Table", exact=True).locator("visible=true").click()
    page.locator("#ds-scope .ds-nodes tbody tr").nth(2).click()
    url = settled(page, "trace=chat-dart", "round=4", "nodes=table", "node=")
    again = visit(url)
    expect(title(again)).to_have_text(at_round(4))
    expect(again.locator("#ds-scope .ds-nodes tbody tr[aria-selected=true]")).to_be_visible()
    expect(again.locator("#ds-scope .ds-inspector")).to_be_visible()


def test_a_link_without_a_part_shows_the_tree_in_an_open_page_too(visit: Open, address: str):
    page = visit(f"{address}/#trace=chat-dart&round=4&show=stats")
    shown = page.locator("#ds-scope .ds-scope")
    expect(shown).to_have_attribute("data-show", "stats")
    page.evaluate("location.hash = '#trace=chat-dart&round=5'")
    expect(title(page)).to_have_text(at_round(5))
    expect(shown).to_have_attribute("data-show", "tree")


def test_a_live_run_s_link_runs_its_request_again(visit: Open):
    page = visit()
    run(page, "hello & goodbye = “all”", budget=16)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    url = settled(page, "round=2", "made=")
    assert "hello" in url and "budget" in url
    again = visit(url)
    expect(about(again)).to_have_text("hello & goodbye = “all”")
    expect(title(again)).to_have_text(at_round(2))
    expect(again.locator(PROMPT)).to_have_value("hello & goodbye = “all”")
    expect(again.locator("#ds-open-settings")).to_contain_text("16")


def test_a_link_s_round_stays_on_view_when_it_was_the_newest_of_a_run_that_goes_on(
    visit: Open, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
):
    page = visit()
    run(page, "two rounds and a rest", budget=16)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    url = settled(page, "round=2", "made=")
    seen, rounds = threading.Event(), engine._rounds

    def resting(request: RunRequest) -> Generator[Round, None, None]:
        for record in rounds(request):
            if record.index == 2:
                seen.wait(60)
            yield record

    monkeypatch.setattr(engine, "_rounds", resting)
    again = visit(url)
    expect(title(again)).to_have_text(at_round(2))
    seen.set()
    expect(state(again)).to_have_attribute("data-state", "done")
    again.evaluate(FRAMES)
    expect(title(again)).to_have_text(at_round(2))


def test_a_file_s_link_says_that_the_file_is_needed(visit: Open, tmp_path: Path):
    path = tmp_path / "t.jsonl"
    write_trace(path, Trace(make_header(), tuple(make_run(6)), {}))
    page = visit()
    open_file(page, path)
    expect(title(page)).to_have_text(at_round(1))
    page.keyboard.press("End")
    url = settled(page, "round=6", "made=")
    again = visit(url)
    expect(again.locator(".ds-banner:visible")).to_contain_text("open that file here")
    expect(again.locator(".ds-node:visible")).to_have_count(0)
    open_file(again, path)
    expect(title(again)).to_have_text(at_round(6))


SCALE = """() =>
  document.querySelector("#ds-scope .ds-scene").getCTM().a.toFixed(2)"""


def test_a_link_shows_the_same_zoom_and_the_words_of_a_whole_run(visit: Open, address: str):
    page = visit(f"{address}/#trace=chat-ddtree-64&round=5")
    expect(title(page)).to_have_text(at_round(5))
    page.locator("#ds-scope .ds-tree").focus()
    page.keyboard.press("w")
    again = visit(settled(page, "round=5", "zoom=run"))
    shape = again.locator("#ds-scope .ds-spine.shape")
    expect(shape.locator(".word").nth(1)).to_have_text("␣enough")
    page.keyboard.press("+")
    url = settled(page, "round=5", "zoom=0.")
    again = visit(url)
    expect(title(again)).to_have_text(at_round(5))
    expect(again.locator("#ds-scope .ds-spine.shape")).to_have_count(
        page.locator("#ds-scope .ds-spine.shape").count()
    )
    assert page.evaluate(SCALE) == again.evaluate(SCALE)
    again.set_viewport_size({"width": 500, "height": 800})  # columns without room for words
    again.keyboard.press("w")
    expect(again.locator("#ds-scope .ds-spine.shape .here")).to_be_attached()
    expect(again.locator("#ds-scope .ds-spine.shape .word")).to_have_count(0)


PROMPTS_SEEN = """() => {
  window.__seen = new Set();
  const look = () => {
    const box = document.querySelector("#ds-prompt textarea");
    const isSeen = box && getComputedStyle(box).color !== "rgba(0, 0, 0, 0)";
    if (isSeen) window.__seen.add(box.value);
    setTimeout(look, 10);
  };
  look();
}"""


def test_a_reload_shows_no_other_prompt_than_that_of_the_run(visit: Open, tmp_path: Path):
    path = tmp_path / "t.jsonl"
    write_trace(path, Trace(make_header("a file's own prompt"), tuple(make_run(6)), {}))
    page = visit()
    page.add_init_script(f"({PROMPTS_SEEN})()")
    open_file(page, path)
    expect(page.locator(PROMPT)).to_have_value("a file's own prompt")
    page.keyboard.press("End")
    settled(page, "round=6")
    page.reload()
    expect(title(page)).to_have_text(at_round(6))
    expect(page.locator(PROMPT)).to_have_value("a file's own prompt")
    assert page.evaluate("[...window.__seen]") == ["a file's own prompt"]


def test_a_comparison_s_link_has_its_place(visit: Open):
    page = visit()
    compare(page, "two of them", "DFlash", "DDTree")
    place = page.locator(".ds-place:visible")
    expect(place).to_contain_text("Token")
    page.locator("#ds-c-scope .ds-tree").first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(place).not_to_have_text(re.compile("^Token 1 of"))
    said = place.inner_text().partition(" of ")[0]
    at = said.removeprefix("Token ")
    url = settled(page, "view=compare", f"place={at}(&|$)", "made=")
    again = visit(url)
    expect(state(again)).to_have_count(2)
    expect(again.locator(".ds-place:visible")).to_contain_text(f"{said} of")


def test_names_of_several_runs_alone_open_them_side_by_side(visit: Open, address: str):
    page = visit(f"{address}/#trace=chat-dart,chat-treeflash")
    expect(page.locator("#ds-c-scope .ds-pane:visible")).to_have_count(2)
    settled(page, "trace=chat-dart,chat-treeflash", "view=compare")
    tab(page, "run")
    page.evaluate("location.hash = '#trace=code-dart,code-ar,code-treeflash'")  # in an open page
    expect(page.locator("#ds-c-scope .ds-pane:visible")).to_have_count(3)


def test_a_calibration_link_has_runs_figures_and_examples(visit: Open, address: str):
    page = visit(f"{address}/#view=calibration&trace=chat-dart,chat-treeflash")
    place = page.locator("#ds-k-scope")
    who = place.get_by_label("Run whose causes are shown")
    who.select_option(index=1)
    figure = place.locator(
        ".ds-figure", has=page.get_by_role("heading", name="Why the walk ended", exact=True)
    )
    from_menu(figure, "As a table").click()
    figure.locator(".ds-table button").first.click()
    found = place.locator(".ds-found-box h4")
    expect(found).to_be_visible()
    said = found.inner_text()
    chosen = place.locator(".ds-figure select:visible").first
    chosen.select_option(index=1)
    entry = chosen.input_value()
    url = settled(page, "trace=chat-dart,chat-treeflash", "who=B", "find=", "figures=")
    place.locator(".ds-finds button").first.click()  # a finding is one entry
    expect(page.locator("#ds-view-run")).to_be_visible()
    expect(title(page)).to_be_visible()
    settled(page, "round=")
    page.go_back()
    expect(place).to_be_visible()
    expect(found).to_have_text(said)
    assert page.url == url

    place = visit(url).locator("#ds-k-scope")
    expect(place.locator(".ds-found-box h4")).to_have_text(said)
    expect(place.locator(".ds-figure select:visible").first).to_have_value(entry)
    expect(place.locator(".ds-chosen > span")).to_have_count(2)


def test_a_denoise_link_has_step_draft_and_graph(visit: Open):
    page = visit()
    tab(page, "denoise")
    place = page.locator("#ds-d-scope")
    heading = place.locator(".dn-place")
    expect(heading).to_contain_text("of 64")
    settled(page, "view=denoise", "round=", "trace=")  # it is where it opens, and an entry
    first = heading.inner_text()
    page.locator("#ds-d-panel").get_by_role("button", name="Examples").click()
    place.locator("dialog .ds-example", has_text="side by side").last.click()
    expect(heading).to_contain_text("Step 1 of")
    expect(place.locator(".dn-same")).to_contain_text("the same tokens")  # both are there
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    draft = place.locator(".dn-draft h3")
    expect(draft).to_be_visible()
    said, where = draft.inner_text(), heading.inner_text()
    url = settled(page, "view=denoise", "round=7", "node=2", "trace=")
    page.go_back()  # to what the page opened with
    expect(heading).to_have_text(first)
    page.go_forward()
    expect(heading).to_have_text(where)

    place = visit(url).locator("#ds-d-scope")
    expect(place.locator(".dn-place")).to_have_text(where)
    expect(place.locator(".dn-draft h3")).to_have_text(said)


def test_a_what_if_link_has_knobs_place_and_kept_curves(visit: Open):
    page = visit()
    tab(page, "whatif")
    place = page.locator("#ds-w-scope")
    expect(place.locator(".ds-token").nth(9)).to_be_visible()
    expect(place.locator(".ds-tile").first).to_be_visible()  # the setting has its answer
    place.get_by_role("button", name="Keep this curve").click()
    place.get_by_label("Method", exact=True).select_option("dart")
    number = place.locator(".ds-knob input[type=number]").first
    number.fill("3")
    number.press("Tab")
    settled(page, "text=", "method=dart", "options=", "kept=")
    expect(place.locator(".ds-stale")).to_have_count(0)  # else the tokens are drawn anew meanwhile
    place.locator(".ds-token").nth(9).click()
    heading = place.get_by_role("heading", name=re.compile("^Round [0-9]+ of"))
    url = settled(page, "place=10")
    expect(place.locator(".ds-stale")).to_have_count(0)  # the setting has its answer
    said = heading.inner_text()

    place = visit(url).locator("#ds-w-scope")
    heading = place.get_by_role("heading", name=re.compile("^Round [0-9]+ of"))
    expect(heading).to_have_text(said)
    expect(place.locator(".ds-knob input[type=number]").first).to_have_value("3")
    expect(place.get_by_role("button", name="Forget kept curves")).to_be_visible()


def test_what_somebody_chose_stays_when_the_example_s_settings_come(visit: Open):
    page = visit()
    late: list[Route] = []

    def hold(route: Route) -> None:
        body = route.request.post_data or ""
        late.append(route) if "quietly" in body else route.continue_()

    page.route("**/gradio_api/**", hold)
    page.reload()
    expect(page.locator("#ds-scope .ds-node").first).to_be_visible()
    page.locator("#ds-open-settings").click()
    page.locator("#ds-budget label", has_text="256").click()
    page.locator(PROMPT).fill("a prompt of one's own")
    for _ in range(100):
        if late:
            break
        page.wait_for_timeout(100)
    with page.expect_response("**/gradio_api/run/**"):
        late.pop().continue_()
    page.wait_for_timeout(500)  # nothing is to happen
    expect(page.locator(PROMPT)).to_have_value("a prompt of one's own")
    expect(page.locator("#ds-open-settings")).to_contain_text("DDTree B 256")
    page.locator(PROMPT).fill("the newest prompt")
    page.reload()
    expect(page.locator("#ds-open-settings")).to_contain_text("DDTree B 256")
    expect(page.locator("#ds-scope .ds-node").first).to_be_visible()
    expect(page.locator(PROMPT)).to_have_value("the newest prompt")


def test_an_address_of_another_kind_of_value_leaves_the_tab_alive(visit: Open, address: str):
    page = visit(f"{address}/#view=whatif&text=fibonacci&kept=%7B%7D&figures=%5B1%5D")
    expect(page.locator("#ds-view-whatif .ds-tiles").first).to_contain_text("rounds")
    settled(page, "view=whatif", "text=fibonacci", "method=")


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("trace=chat-dart&round=9999&rond=1", "round 9999, rond=1; shown instead: round 1"),
        ("learn=3.99", "step 3.99; shown instead: step 3.15"),
        ("view=whatif&text=zzz", "text zzz; shown instead: text fibonacci"),
        ("trace=chat-dart&show=rounds&rows=30-95", "rows 30-95"),
    ],
)
def test_what_an_address_names_in_vain_is_said_until_somebody_acts(
    visit: Open, address: str, end: str, said: str
):
    page = visit(f"{address}/#{end}")
    line = page.locator("[role=status].ds-unmet:visible")
    expect(line).to_have_text(f"Not found: {said}.")
    page.keyboard.press("Shift")
    expect(line).to_have_count(0)


def test_what_if_says_that_a_link_needs_its_file_until_another_text_is_chosen(
    visit: Open, address: str
):
    page = visit(f"{address}/#view=whatif&method=ddtree&budget=32&made=%5Bnull%5D")
    place = page.locator("#ds-w-scope")
    for _ in range(2):
        settled(page, "made=%5Bnull%5D", "method=ddtree", "budget=32")
        expect(place.locator(".ds-tile").first).to_be_visible()  # every answer has come
        expect(place.get_by_role("alert")).to_contain_text("open that file here")
        page.reload()  # the address has kept the file and the setting
    place.get_by_role("combobox", name="Collected text").select_option(index=1)
    settled(page, "text=(?!fibonacci)")
    expect(place.locator(".ds-banner:visible")).to_have_count(0)


def test_a_node_of_the_second_of_two_runs_is_still_there_once_both_have_come(
    visit: Open, address: str
):
    end = "trace=chat-dart,chat-treeflash&place=9&who=B&node=2&view=compare"
    page = visit(f"{address}/#{end}")
    expect(page.locator("#ds-c-scope .ds-node.selected[data-row='2']")).to_have_count(1)
    expect(state(page)).to_have_count(2)
    settled(page, "node=2")
    expect(page.locator(".ds-unmet")).to_have_count(0)


def test_a_tab_first_opened_by_a_click_says_nothing_about_another_tabs_address(
    visit: Open, address: str
):
    page = visit(f"{address}/#trace=chat-dart")
    expect(page.locator("#ds-view-run .ds-about")).to_contain_text("DART")
    tab(page, "calibration")
    shown = page.locator("#ds-view-calibration")
    expect(shown.locator(".ds-findings-box")).to_be_visible()
    settled(page, "view=calibration")
    expect(shown.locator(".ds-banner:visible")).to_have_count(0)
