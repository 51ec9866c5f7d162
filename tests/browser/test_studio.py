"""The studio in a real browser: start, run, step, click, save, reopen; several people; attacks.

The engine is a fake (tests/helpers/fakes.py), so a run takes no time; one test uses the embedded
model.
Assertions wait and retry; nothing here waits for the network.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Browser, Page, Route, expect

from app.export.offline import offline_page
from app.studio.runs import Runs
from app.view.rounds import round_view
from core.rounds.round import Times
from core.traces.reader import read_trace
from core.traces.schema import Trace, summary
from core.traces.writer import write_trace
from tests.browser.steps import (
    FRAMES,
    NODE,
    PROMPT,
    Open,
    at_round,
    choose,
    free_port,
    from_menu,
    holding,
    let_go,
    open_file,
    open_form,
    run,
    served,
    serving,
    settle,
    state,
    tab,
    title,
    with_modules,
)
from tests.helpers.fakes import HOSTILE, FakeEngine, make_header, make_run
from tests.helpers.processes import running

pytestmark = pytest.mark.browser

Put = Callable[..., Page]


def test_a_view_that_cannot_be_drawn_says_so_in_its_tab(visit: Open, address: str):
    page, logged = visit(), []
    broken = """;modules["results/view.js"] = {
      mount() { throw new Error("<b>no</b> rows"); } };"""

    def broke(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text() + broken)

    page.on("console", lambda said: logged.append(said.text))
    page.route("**/web/page.js", broke)
    page.goto(f"{address}/#view=results")
    page.reload()
    said = page.get_by_role("alert").filter(has_text="This view could not be drawn")
    expect(said).to_have_text("This view could not be drawn: <b>no</b> rows")
    assert any("rows" in each for each in logged)
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator(".ds-lesson-title")).to_be_visible()  # others are


# ── one person ───────────────────────────────────────────────────────────────────────────────────


def test_a_run_shows_text_tree_and_numbers(visit: Open):
    page = visit()
    expect(page.locator(".ds-chip").first).to_have_text("model ready")
    run(page, "hello")
    expect(page.locator(f"{NODE}.root")).to_have_count(1)
    expect(page.locator(f"{NODE}.ghost")).to_be_visible()
    expect(page.locator(".ds-strip .ds-token.prefill")).to_have_count(1)  # one of them in the key
    assert page.locator(".ds-token.bonus").count() > 10
    assert float(page.locator(".ds-tile b").first.inner_text()) > 1
    page.get_by_role("button", name="Stages").click()
    expect(page.locator(".ds-stage-key")).to_contain_text("verify 87 ms")


def test_stepping_by_keys_scrubber_and_token_and_playing(replay: Open):
    page = replay()
    page.keyboard.press("Home")
    expect(title(page)).to_have_text(at_round(1))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(title(page)).to_have_text(at_round(3))
    page.keyboard.press("ArrowLeft")
    expect(title(page)).to_have_text(at_round(2))
    page.locator(".ds-scrub").fill("6")
    expect(title(page)).to_have_text(at_round(7))
    page.locator(".ds-strip .ds-token").first.click()
    expect(title(page)).to_have_text(at_round(1))
    expect(page.locator(".ds-band.current")).to_have_count(1)
    page.locator(".ds-tree").focus()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(title(page)).to_have_text(at_round(2))
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    page.locator(".ds-lengths").click(position={"x": 200, "y": 20})
    expect(title(page)).not_to_have_text(at_round(2))


def test_a_click_opens_the_inspector_and_escape_closes_it(replay: Open):
    page = replay()
    page.keyboard.press("Home")
    page.locator(f"{NODE}.ghost").click()
    inspector = page.locator(".ds-inspector")
    expect(inspector).to_contain_text("the target's token, not drafted")
    expect(inspector.locator(".ds-top li")).to_have_count(20)
    page.keyboard.press("ArrowUp")
    expect(inspector).to_contain_text("rejected: the target's token here was not drafted")
    page.keyboard.press("Shift+ArrowLeft")
    expect(inspector).not_to_contain_text("rejected")
    expect(page.locator(f"{NODE}.selected")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(inspector).to_be_hidden()
    expect(page.locator(f"{NODE}.selected")).to_have_count(0)


def test_a_key_leads_to_the_prompt_and_back(visit: Open):
    page = visit()
    run(page, "hello")
    page.keyboard.press("i")
    expect(page.locator(PROMPT)).to_be_focused()
    page.keyboard.type("another one")
    expect(page.locator(PROMPT)).to_have_value("another one")
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    expect(title(page)).to_have_text(at_round(1))


def test_search_help_fit_and_zoom(replay: Open):
    page = replay()
    page.locator(".ds-tree").focus()
    page.keyboard.press("/")
    page.keyboard.type("t")
    expect(page.locator(".ds-found")).to_contain_text("match")
    page.keyboard.press("Enter")
    expect(page.locator(f"{NODE}.selected.hit")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys.get_by_text("bonus token", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    scene = page.locator(".ds-scene")
    page.keyboard.press("+")
    before = scene.get_attribute("transform")
    page.keyboard.press("f")
    expect(scene).not_to_have_attribute("transform", before or "")
    fitted = scene.get_attribute("transform")
    page.locator(".ds-tree").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    expect(scene).not_to_have_attribute("transform", fitted or "")


def test_what_is_folded_opens(visit: Open):
    page = visit()
    run(page, "hello")
    page.locator(".ds-tree").focus()
    page.keyboard.press("Home")
    chips, boxes = page.locator(".ds-chip-node"), page.locator(NODE)
    expect(chips.first).to_be_visible()
    few, parent = boxes.count(), chips.first.get_attribute("data-chip")
    hidden = int((chips.first.locator(".token").text_content() or "").split()[0])
    chips.first.click()
    expect(page.locator(f".ds-chip-node[data-chip='{parent}']")).to_have_count(0)
    page.keyboard.press("f")
    expect(boxes).to_have_count(few + hidden)
    page.keyboard.press("u")
    expect(chips).to_have_count(0)
    expect(page.get_by_role("button", name="All nodes", pressed=True)).to_be_visible()
    page.keyboard.press("u")
    expect(boxes).to_have_count(few)


def test_a_walk_s_end_is_explained(replay: Open):
    page = replay()
    page.locator(".ds-tree").focus()
    page.keyboard.press("Home")
    line = page.locator(".ds-why-line")
    expect(line).to_contain_text("the target wanted")
    line.click()
    expect(page.locator(f"{NODE}.ghost.selected")).to_have_count(1)


def test_settings_float_over_the_page_and_enter_starts(visit: Open):
    page = visit()
    settings, prompt = page.locator("#ds-settings"), page.locator(PROMPT)
    page.wait_for_function("location.hash.includes('round=2')")  # what a reload opens
    with holding(page, "why") as held:
        page.reload()
    settle(page)
    place = page.locator(".ds-canvas").bounding_box()
    let_go(page, held)  # a sentence that arrives moves nothing, nor do settings
    expect(page.locator(".ds-why-line")).to_contain_text("pruned by the budget")
    expect(settings).to_be_hidden()
    page.locator("#ds-open-settings").click()
    expect(settings).to_be_visible()
    assert page.locator(".ds-canvas").bounding_box() == place
    page.locator("#ds-budget label", has_text="256").click()
    expect(page.locator("#ds-open-settings")).to_contain_text("DDTree B 256")
    page.keyboard.press("Escape")
    expect(settings).to_be_hidden()
    expect(page.locator("#ds-open-settings")).to_be_focused()
    prompt.fill("two")
    prompt.press("Shift+Enter")
    prompt.press_sequentially("lines")
    expect(prompt).to_have_value("two\nlines")
    prompt.press("Enter")
    expect(page.locator(".ds-about q")).to_contain_text("lines")
    expect(state(page)).to_have_attribute("data-state", "done")
    page.keyboard.press("Home")  # keys are the picture's once it is asked
    page.keyboard.press("ArrowRight")
    expect(title(page)).to_have_text(at_round(2))
    expect(prompt).to_have_value("two\nlines")
    prompt.focus()
    prompt.press("Escape")
    expect(prompt).not_to_be_focused()


def test_the_page_opens_on_a_good_round_with_its_settings_in_the_form(visit: Open):
    page = visit()
    expect(title(page)).to_contain_text("3 of 64 nodes accepted")
    expect(page.locator(PROMPT)).to_have_value(re.compile("drink enough water"))
    expect(page.locator("#ds-open-settings")).to_contain_text("DDTree B 64")
    said = page.locator("#ds-panel .ds-about q")
    expect(said).to_be_hidden()
    page.locator(PROMPT).fill("another one")  # the run's own is nowhere else now
    expect(said).to_be_visible()


def test_a_second_start_says_that_it_stopped_the_first(visit: Open):
    page = visit()
    settle(page)
    start = page.locator("#ds-start").bounding_box()
    run(page, "slow", wait="running")
    expect(page.locator(".ds-band").nth(1)).to_be_visible()
    expect(page.locator("#ds-stop")).to_be_visible()
    assert page.locator("#ds-start").bounding_box() == start  # not Stop is under the pointer now
    run(page, "hello")
    expect(page.locator(".ds-banner.note")).to_contain_text("The run before was stopped")


# Whether the bars of the run's shape reach from one end of its window to the other, and no further.
IN_SIGHT = """() => {
  const shape = document.querySelector(".ds-spine.shape"), box = (e) => e.getBoundingClientRect();
  const room = box(shape.closest("svg")), bars = [...shape.querySelectorAll("path")].map(box);
  const left = Math.min(...bars.map((b) => b.left)), right = Math.max(...bars.map((b) => b.right));
  return left - room.left > 0 && left - room.left < 60 && right < room.right;
}"""


def test_the_run_is_one_picture(replay: Open):
    page = replay()
    page.locator(".ds-tree").focus()
    page.keyboard.press("Home")
    near = page.locator(".ds-spine .box")
    expect(near.first).to_be_attached()  # the rounds after this one go on at the right
    page.keyboard.press("w")
    expect(page.locator(".ds-tree.shape .ds-spine.shape .here")).to_be_visible()
    legend = page.locator(".ds-legend:visible")
    expect(legend.locator(".entry:visible").nth(2)).to_have_text("above: TVD")
    expect(legend.locator(".end").first).to_be_visible()  # what the colours of causes mean
    page.set_viewport_size({"width": 1000, "height": 800})
    page.wait_for_function(IN_SIGHT)  # still all of the run
    page.set_viewport_size({"width": 1400, "height": 900})
    page.wait_for_function(IN_SIGHT)
    tree = page.locator(".ds-tree").bounding_box()
    assert tree is not None
    tree_middle = {"x": tree["width"] * 0.5, "y": tree["height"] * 0.5}
    page.locator(".ds-tree").click(position=tree_middle)
    expect(title(page)).not_to_have_text(at_round(1))
    page.keyboard.press("f")
    expect(page.locator(".ds-tree.shape")).to_have_count(0)
    expect(page.locator(f"{NODE}.root")).to_be_visible()


def test_stages_fill_the_window_and_tools_of_a_hidden_tree_go(replay: Open):
    page = replay(viewport={"width": 1440, "height": 900})
    page.get_by_role("button", name="Stages").click()
    chart = page.locator(".ds-timeline").bounding_box()
    assert chart is not None and chart["height"] > 0.5 * 900
    tools = page.locator(".ds-tools > .ds-of-tree:visible")
    expect(tools).to_have_count(0)
    page.get_by_role("button", name="Rounds", exact=True).click()
    expect(page.locator(".ds-tree:visible")).to_have_count(1)
    expect(tools.first).to_be_visible()
    page.set_viewport_size({"width": 1100, "height": 800})
    expect(page.locator(".ds-tree:visible")).to_have_count(0)
    expect(tools).to_have_count(0)


def test_the_tree_has_most_of_the_window(visit: Open):
    page = visit(viewport={"width": 1280, "height": 720})
    run(page, "hello")
    page.keyboard.press("Home")
    picture, inspector = page.locator(".ds-picture:visible"), page.locator(".ds-inspector:visible")
    for wide, tall in ((1280, 720), (1440, 900), (1920, 1080)):
        page.set_viewport_size({"width": wide, "height": tall})
        page.evaluate(FRAMES)
        box = picture.bounding_box()
        assert box is not None and box["height"] >= 0.6 * tall and box["width"] >= 0.95 * wide
        page.locator(f"{NODE}.ghost").click()
        expect(inspector.locator(".ds-numbers")).to_be_visible()
        box = picture.bounding_box()
        assert box is not None and box["height"] >= 0.6 * tall and box["width"] >= 0.7 * wide
        assert page.evaluate("document.documentElement.scrollHeight") <= tall
        page.keyboard.press("Escape")
        expect(inspector).to_have_count(0)


COUNT_FRAMES = """const own = window.requestAnimationFrame;
window.asked = 0;
window.requestAnimationFrame = (hear) => { window.asked += 1; return own(hear); };"""
QUIET = "() => { const count = window.asked; window.asked = 0; return !count; }"


def test_a_page_at_rest_asks_for_no_frames(visit: Open):
    page = visit()
    page.add_init_script(COUNT_FRAMES)
    page.reload()
    settle(page)
    assert page.evaluate("window.asked")
    page.wait_for_function(QUIET, polling=500)


def test_a_long_prompt_leaves_room_for_what_can_be_done(visit: Open, address: str):
    wide = 1280
    page = visit(f"{address}/#trace=chat-eagle3", viewport={"width": wide, "height": 720})
    last = page.locator("#ds-panel").get_by_label("What to do with this run")
    expect(last).to_be_enabled()
    box = last.bounding_box()
    assert box is not None and box["x"] + box["width"] < wide


def test_the_theme_is_remembered(visit: Open):
    page = visit(color_scheme="light")
    expect(page.locator("body.dark")).to_have_count(0)
    page.locator("#ds-theme").click()
    expect(page.locator("body.dark")).to_have_count(1)
    page.reload()
    expect(page.locator("body.dark")).to_have_count(1)


def test_the_form_is_as_it_was_after_a_reload(visit: Open):
    page = visit()
    settle(page)
    choose(page, "TreeFlash")
    page.locator("#ds-budget label", has_text="256").click()
    page.locator("#ds-options summary").click()
    width = page.get_by_label("candidates per depth").locator("visible=true")
    expect(width).to_have_value("16")
    width.fill("5")
    width.press("Tab")
    page.locator(PROMPT).fill("half a sentence, never sta")
    expect(page.locator("#ds-open-settings")).to_contain_text("TreeFlash B 256")
    page.reload()
    expect(page.locator(PROMPT)).to_have_value("half a sentence, never sta")
    expect(page.locator("#ds-open-settings")).to_contain_text("TreeFlash B 256")
    open_form(page)
    page.locator("#ds-options summary").click()
    expect(page.get_by_label("candidates per depth").locator("visible=true")).to_have_value("5")


def test_a_run_is_started_again_with_changes(visit: Open):
    page = visit()
    run(page, "first", budget=16)
    page.locator(PROMPT).fill("another")
    from_menu(page, "Run again").click()
    expect(page.locator("#ds-settings")).to_be_visible()
    expect(page.locator(PROMPT)).to_have_value("first")
    expect(page.locator("#ds-budget input:checked")).to_have_value("16")


def test_a_page_that_is_closed_frees_the_engine(visit: Open, engine: FakeEngine):
    page, other, before = visit(), visit(), engine.closed
    run(page, "slow", wait="running")
    run(other, "hello", wait="waiting")
    page.goto("about:blank")
    expect(state(other)).to_have_attribute("data-state", "done", timeout=60_000)
    assert engine.closed > before


def test_keys_typed_into_the_prompt_stay_there(visit: Open):
    page = visit()
    run(page, "hello")
    before = title(page).inner_text()
    page.locator(PROMPT).fill("")
    page.locator(PROMPT).press_sequentially("f / ? a")
    page.keyboard.press("ArrowLeft")
    assert title(page).inner_text() == before
    expect(page.locator(PROMPT)).to_have_value("f / ? a")


def test_looking_back_while_it_runs_does_not_jump_away_and_stop_closes_the_generator(
    visit: Open, engine: FakeEngine
):
    page = visit()
    run(page, "slow", wait="running")
    bands = page.locator(".ds-band")
    expect(bands.nth(2)).to_be_visible()
    page.keyboard.press("Home")
    expect(title(page)).to_have_text(at_round(1))
    expect(bands.nth(bands.count() + 1)).to_be_attached()  # two rounds came meanwhile
    expect(title(page)).to_have_text(at_round(1))
    page.get_by_role("button", name="Live").click()
    expect(title(page)).not_to_have_text(at_round(1))
    closed = engine.closed
    page.locator("#ds-stop").click()
    expect(state(page)).to_have_attribute("data-state", "stopped")
    assert engine.closed == closed + 1
    expect(page.locator("#ds-stop")).to_be_disabled()
    expect(page.locator(".ds-strip .ds-token")).not_to_have_count(0)


FITS = """() => {
  const [tree, scene] = [".ds-tree", ".ds-scene"].map(
    (at) => document.querySelector(at).getBoundingClientRect());
  return tree.height > 400 && tree.top <= scene.top && scene.bottom <= tree.bottom
    && tree.left <= scene.left && scene.right <= tree.right;
}"""


def test_1024_nodes_stay_fluid(visit: Open):
    page = visit()
    run(page, "big", budget=1024)
    expect(title(page)).to_contain_text("1024 nodes")
    drawn, edges = page.locator(f"{NODE}:not(.out)"), page.locator(".ds-scene .ds-edge")
    expect(page.locator(f"{NODE}.root")).to_be_visible()
    assert page.locator(NODE).count() < 200  # only what is in sight is made
    assert page.locator(f"{NODE}:not(.out)").count() < 40  # folded
    page.keyboard.press("u")
    page.keyboard.press("f")
    expect(page.locator(".ds-tree.blocks")).to_be_visible()
    page.wait_for_function(FITS)  # the window moves there in several frames
    expect(drawn).to_have_count(0)  # far out one path per status stands for all
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(f"{NODE}.selected")).to_have_count(1)
    depth = int(page.locator(f"{NODE}.selected").get_attribute("aria-level") or 0)
    expect(drawn).to_have_count(depth)  # the node and its path
    assert edges.count() == 6  # one per status, the target's token's and the path's


def test_the_run_on_view_can_be_opened_again(visit: Open, engine: FakeEngine):
    page = visit()
    run(page, "slow", wait="running")
    bands, closed = page.locator(".ds-band"), engine.closed
    expect(bands.nth(1)).to_be_visible()
    page.locator(".ds-tree").focus()
    page.keyboard.press("e")
    shelf = page.get_by_role("dialog", name="Examples and runs")
    shelf.get_by_role("region", name="Opened in this tab").get_by_role("button").first.click()
    expect(shelf).to_be_hidden()
    expect(bands.nth(bands.count() + 1)).to_be_visible()
    expect(state(page)).to_have_attribute("data-state", "running")
    assert engine.closed == closed
    firsts = page.locator(".ds-band .ds-token:first-child").all()
    titles = [token.get_attribute("title") or "" for token in firsts]
    assert [t.split(":")[0] for t in titles] == [f"round {n + 1}" for n in range(len(titles))]
    page.locator("#ds-stop").click()
    expect(state(page)).to_have_attribute("data-state", "stopped")


def test_a_run_that_is_gone_is_said(browser: Browser):
    runs = Runs(FakeEngine())
    with serving(runs) as address:
        page = browser.new_context().new_page()
        page.goto(address + "/#run=" + "x" * 24)
        banner = page.locator(".ds-banner:visible")
        expect(banner).to_have_text("this run is no longer on the server")
        expect(page.locator(".ds-empty:visible p")).to_contain_text("what the drafter proposed")
        run(page, "hello")
        expect(banner).to_have_count(0)
        runs._runs.clear()
        from_menu(page, "Copy a link to this view").click()
        expect(banner).to_contain_text("no longer on the server")
        expect(page.get_by_role("button", name="Copy a link")).to_have_text("not copied")
        page.reload()
        expect(banner).to_have_text("this run is no longer on the server")
        page.goto(address + "/#trace=no-such-example")
        page.reload()
        expect(banner).to_have_text("there is no example called no-such-example")
        page.context.close()


SERVER = """
import sys
from app.studio.runs import Runs
from app.studio.server import launch
from tests.helpers.fakes import FakeEngine
runs = Runs(FakeEngine())
served = launch(runs, "127.0.0.1", int(sys.argv[1]))
runs.start()
print("it listens" if "torch" not in sys.modules else "it waited for torch", flush=True)
served.wait()
"""


@contextmanager
def another_process(port: int) -> Iterator[None]:
    """A studio in a process of its own, which began without torch and is killed at the end."""
    command = [sys.executable, "-c", SERVER, str(port)]
    with running(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and "listens" in server.stdout.readline()
        yield
        server.kill()


def test_a_server_that_was_killed_and_started_again(browser: Browser):
    """The page says what is lost and keeps the form; a Start that nobody heard, too."""
    port, page = free_port(), browser.new_context().new_page()
    page.set_default_navigation_timeout(120_000)
    with another_process(port):
        page.goto(f"http://127.0.0.1:{port}")
        run(page, "slow", wait="running")
        expect(page.locator(NODE).first).to_be_visible()
        page.locator(PROMPT).fill("half a thought")
    expect(page.locator(".ds-chip").first).to_have_text("the server does not answer")
    with another_process(port):
        banner = page.locator(".ds-banner:visible")
        expect(banner).to_contain_text(
            "no longer on the server: what is here can be looked at", timeout=60_000
        )
        expect(page.locator(PROMPT)).to_have_value("half a thought")
        page.locator("#ds-start").click()
        expect(state(page)).to_have_attribute("data-state", "done")
    page.locator(PROMPT).fill("said while it is away")
    page.locator("#ds-start").click()
    # Gradio loads the page when a server is back, before or after that has said that it listens
    with page.expect_event("load", timeout=120_000) as loaded, another_process(port):
        assert loaded.value
        expect(page.locator(PROMPT)).to_have_value("said while it is away", timeout=60_000)
    page.context.close()


def test_the_page_s_controls_have_names_and_places(replay: Open):
    page = replay()
    expect(page.get_by_role("button", name="Dark or light")).to_be_visible()
    strip = page.get_by_role("listbox", name="The text, token by token")
    current = page.locator(".ds-band.current .ds-token").first
    expect(strip).to_have_attribute("aria-activedescendant", current.get_attribute("id") or "–")
    page.locator(".ds-tree").focus()
    page.keyboard.press("t")
    pressed = page.get_by_role("button", name="Table", exact=True)
    expect(pressed).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="Zoom in (+)")).to_be_disabled()
    lines = page.get_by_role("grid", name="Nodes of this round").locator("tbody tr")
    expect(lines).to_have_count(66)  # the root, 64 nodes and the target's token
    stops = page.locator(".ds-nodes tr[tabindex='0']")
    expect(stops).to_have_count(1)
    stops.focus()
    page.keyboard.press("ArrowDown")
    expect(lines.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(lines.nth(1)).to_have_attribute("aria-selected", "true")
    lines.nth(1).focus()
    page.keyboard.press("End")
    expect(lines.last).to_be_focused()
    expect(stops).to_have_count(1)


def test_the_numbers_are_those_of_the_log(browser: Browser):
    rounds = [*make_run(6), replace(make_run(7)[6], committed=())]  # the last one added nothing
    views = [round_view(record, first=at == 0) for at, record in enumerate(rounds)]
    page = with_modules(browser.new_page())
    code = "async (rounds) => (await import('/web/charts.js')).summarise(rounds)"
    found = page.evaluate(code, views)
    page.close()
    said = summary(rounds)
    assert (found["tokens"], found["rounds"]) == (said["tokens"], said["rounds"]) == (
        1 + sum(len(r.committed) for r in rounds), 6,
    )  # fmt: skip
    assert found["tau"] == pytest.approx(said["tau"])
    pace = (said["tokens"] - 1) / sum(said["seconds"].values())  # prefill is timed nowhere here
    assert found["speed"] == pytest.approx(pace)
    assert found["drafted"] == sum(r.draft.nodes for r in rounds[:6])


# ── traces ───────────────────────────────────────────────────────────────────────────────────────


def test_a_reload_stays_at_the_round_of_a_trace(visit: Open, tmp_path: Path):
    path = tmp_path / "t.jsonl"
    write_trace(path, Trace(make_header(), tuple(make_run(6)), {}))
    page = visit()
    open_file(page, path)
    expect(title(page)).to_have_text(at_round(1))
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(r"#round=4&made=%5Bnull%5D$"))
    page.reload()
    expect(title(page)).to_have_text(at_round(4))


def test_times_that_were_not_recorded_are_unknown(put: Put):
    rounds = tuple(replace(record, times=Times()) for record in make_run(6))
    page = put(offline_page([Trace(make_header(), rounds, {})]))
    expect(title(page)).to_have_text(at_round(1))
    expect(page.locator(".ds-titles > :last-child")).to_have_text("–")
    page.get_by_role("button", name="Stages").click()
    expect(page.locator(".ds-stage-key")).to_have_text("times were not recorded")
    expect(page.locator(".ds-timeline-box")).to_be_hidden()


def test_the_address_is_that_of_the_tab_on_view(visit: Open):
    page = visit()
    tab(page, "learn")
    expect(page).to_have_url(re.compile("#learn=1.1$"))
    tab(page, "run")
    expect(page).not_to_have_url(re.compile("learn"))
    run(page, "hello")
    page.keyboard.press("Home")
    expect(page).to_have_url(re.compile("#round=1&made="))
    tab(page, "learn")
    expect(page).to_have_url(re.compile("#learn=1.1$"))
    tab(page, "run")
    expect(page).to_have_url(re.compile("#round=1&made="))


def test_back_leads_through_runs_and_tabs(visit: Open):
    page = visit()
    run(page, "the first")
    page.keyboard.press("Home")
    about = page.locator(".ds-about:visible q")
    expect(about).to_have_text("the first")
    expect(page).to_have_url(re.compile("#round=1&made="))
    run(page, "another one")
    expect(about).to_have_text("another one")
    page.keyboard.press("Home")
    expect(page).to_have_url(re.compile("#round=1&made="))
    tab(page, "whatif")
    expect(page).to_have_url(re.compile("view=whatif&text=fibonacci&method=ddtree&budget=16$"))
    page.go_back()
    expect(page.locator("#ds-view-run")).to_be_visible()
    expect(about).to_have_text("another one")
    page.go_back()
    expect(about).to_have_text("the first")
    expect(title(page)).to_have_text(at_round(1))
    page.go_forward()
    expect(about).to_have_text("another one")


def test_save_and_reopen_give_the_same_view(visit: Open, tmp_path: Path):
    page = visit()
    run(page, "hello")
    with page.expect_download() as download:
        from_menu(page, "Save trace").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name.startswith("draftscope-ddtree") and path.name.endswith(".jsonl.gz")
    trace = read_trace(path)
    assert trace.complete and trace.header.prompt_text == "hello"

    other = visit()
    open_file(other, path)
    expect(state(other)).to_have_text("recorded")
    expect(title(other)).to_have_text(at_round(1))
    for where in (".ds-strip", ".ds-tiles"):
        assert other.locator(where).inner_text() == page.locator(where).inner_text()
    other.locator(f"{NODE}.root").click()
    expect(other.locator(".ds-inspector")).to_contain_text("root")


def test_an_interrupted_trace_opens_and_says_so(visit: Open, tmp_path: Path):
    path = tmp_path / "cut.jsonl"
    write_trace(path, Trace(make_header(), tuple(make_run(3)), {}))
    path.write_bytes(path.read_bytes()[:-900])
    page = visit()
    open_file(page, path)
    expect(page.locator(".ds-banner")).to_contain_text("interrupted")
    expect(page.locator(f"{NODE}.root")).to_be_visible()


BROKEN = (
    (b"hello", "text of another kind"),
    (b'{"a": "<img src=x onerror=window.__pwned=1>"}\n', "JSON of another kind"),
    (b"\x1f\x8bgarbage", "gzipped"),
    (b"", "is empty"),
)


def test_a_broken_file_gets_a_sentence(visit: Open, tmp_path: Path):
    page = visit()
    run(page, "hello")
    for number, (content, sentence) in enumerate(BROKEN, 1):
        path = tmp_path / f"broken-{number}.jsonl"
        path.write_bytes(content)
        open_file(page, path)
        expect(page.locator(".ds-drop-said p")).to_contain_text(sentence)
        expect(page.locator(f"{NODE}.root")).to_be_visible()  # what was on view stays


def test_a_hostile_trace_stays_text(visit: Open, tmp_path: Path):
    attack = "<img src=x onerror=window.__pwned=1>${window.__pwned=1}{{x}}`\\x\x1b"
    header = make_header(attack, attack, **{attack: attack})
    path = tmp_path / "hostile.jsonl.gz"
    write_trace(path, Trace(header, tuple(make_run(4, hostile=True)), {}))
    page = visit()
    open_file(page, path)
    check_hostile(page)
    expect(page.locator(".ds-about")).to_contain_text("<img src=x onerror")


# ── hostile text ─────────────────────────────────────────────────────────────────────────────────


def test_hostile_prompt_and_tokens_stay_text(visit: Open):
    page = visit()
    run(
        page,
        "hostile <script>window.__pwned=1</script> ${window.__pwned=1} {{x}} ` \\x " + "B" * 9000,
    )
    check_hostile(page)
    page.reload()
    expect(page.locator(f"{NODE}.root")).to_be_visible()
    check_hostile(page)


def check_hostile(page: Page) -> None:
    """Rounds and nodes of every kind, looked at: the attacks are there to read, and only that."""
    expect(page.locator(f"{NODE}.root")).to_be_visible()
    strip = page.locator(".ds-strip")
    seen = strip.inner_text()
    page.keyboard.press("Home")
    for _ in range(4):
        page.locator(f"{NODE}.root").click()
        expect(page.locator(".ds-inspector .ds-numbers")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("a")  # the whole path in sight
        page.locator(f"{NODE}.ghost").click()
        expect(page.locator(".ds-inspector")).to_contain_text("not drafted")
        expect(page.locator(".ds-top li")).not_to_have_count(0)
        seen += page.locator(".ds-inspector").inner_text() + (
            page.locator(".ds-tree").text_content() or ""
        )
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    literal = [attack for attack in HOSTILE if attack.isascii() and attack.isprintable()]
    assert sum(attack[:12] in seen for attack in literal) >= 4
    assert (
        page.locator(".ds-scope img, .ds-scope script, .ds-scope [onerror], .ds-scope a").count()
        == 0
    )
    assert page.evaluate("window.__pwned") is None
    assert "\x1b" not in seen and "\u202e" not in seen


def test_what_goes_wrong_is_said_in_a_sentence(visit: Open):
    page = visit()
    settle(page)
    banner = page.locator(".ds-banner")
    page.locator(PROMPT).fill("   ")
    page.locator("#ds-start").click()
    expect(banner).to_have_text("write a prompt first")
    for prompt, sentence in (
        ("refuse", "the fake refuses this prompt"),
        ("fail", "the fake broke in round 2"),
        ("crash", "the run broke (RuntimeError)"),
    ):
        run(page, prompt, wait="failed")
        expect(banner).to_have_text(sentence)
        run(page, "hello again")
        expect(banner).to_be_hidden()


# ── several people, and sizes ────────────────────────────────────────────────────────────────────


def test_decoding_queues_and_viewing_does_not_wait(visit: Open):
    first, second = visit(), visit()
    run(second, "mine alone")
    text = second.locator(".ds-strip").inner_text()
    run(first, "slow first", wait="running")
    second.locator(PROMPT).fill("second")
    second.keyboard.press("Escape")
    second.locator(".ds-tree").focus()
    second.keyboard.press("Home")  # stepping goes on while the other decodes
    expect(title(second)).to_have_text(at_round(1))
    assert second.locator(".ds-strip").inner_text() == text
    second.locator("#ds-start").click()
    expect(state(second)).to_have_text("waiting: 1 run ahead")
    first.locator("#ds-stop").click()
    expect(state(second)).to_have_attribute("data-state", "done")
    expect(state(first)).to_have_attribute("data-state", "stopped")


def test_a_reload_keeps_the_run_of_this_tab_only(visit: Open):
    page = visit()
    run(page, "hello")
    text = page.locator(".ds-strip").inner_text()
    page.reload()
    expect(page.locator(f"{NODE}.root")).to_be_visible()
    expect(page.locator(".ds-strip")).to_have_text(text, use_inner_text=True)
    other = visit()
    settle(other)  # on its example
    assert other.locator(".ds-strip").inner_text() != text


def test_nothing_is_wider_than_the_window(visit: Open):
    page = visit()
    run(page, "hello")
    page.keyboard.press("Home")
    page.locator(f"{NODE}.root").click()
    expect(page.locator(".ds-inspector .ds-numbers")).to_be_visible()
    for wide, tall in ((1400, 900), (3840, 2160), (1024, 768), (820, 1100), (360, 740)):
        page.set_viewport_size({"width": wide, "height": tall})
        page.evaluate(FRAMES)
        assert page.evaluate("document.documentElement.scrollWidth") <= wide
        bar = page.locator("#ds-scope .ds-toolbar").bounding_box()
        assert bar is not None and (wide < 1024 or bar["height"] < 50)  # one row of tools


def test_the_page_is_there_before_the_model(browser: Browser):
    may_load = threading.Event()
    with served(FakeEngine(may_load=may_load)) as address:
        page = browser.new_context().new_page()
        page.goto(address)
        chip = page.locator(".ds-chip").first
        expect(chip).to_contain_text("pretending to load")
        run(page, "early bird", wait="waiting")
        expect(state(page)).to_have_text("waiting for the model")
        expect(page.locator(".ds-away:visible")).to_contain_text("pretending to load")
        expect(page.locator(".ds-empty:visible")).to_have_count(0)  # it stood under those words
        may_load.set()
        expect(chip).to_have_text("model ready")
        expect(state(page)).to_have_attribute("data-state", "done")


def test_a_model_that_cannot_be_loaded_is_said(browser: Browser):
    with served(FakeEngine(broken="no such model <b>")) as address:
        page = browser.new_context().new_page()
        page.goto(address)
        expect(page.locator(".ds-chip").first).to_have_text("model: no such model <b>")
        run(page, "anyway", wait="failed")
        expect(page.locator(".ds-banner")).to_contain_text("no such model <b>")


# ── the real thing ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.embedded
def test_the_embedded_model_in_the_browser(browser: Browser, tmp_path: Path):
    port = free_port()
    command = [sys.executable, "-m", "app", "studio", "--port", str(port)]
    with running(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert f":{port}" in server.stdout.readline()
            page = browser.new_context(accept_downloads=True).new_page()
            page.goto(f"http://127.0.0.1:{port}")
            expect(page.locator(".ds-scope").first).to_be_visible()
            choose(page, "DDTree")
            page.locator("#ds-length input[type=number]").fill("8")
            page.locator("#ds-start").click()
            # the example's state is "done", too, until the run has its place
            expect(page.locator(".ds-strip .ds-token")).to_have_count(8, timeout=240_000)
            expect(state(page)).to_have_attribute("data-state", "done")
            page.locator(f"{NODE}.ghost").click()
            expect(page.locator(".ds-top li")).to_have_count(20)  # ten of p, ten of q
            with page.expect_download() as download:
                from_menu(page, "Save trace").click()
            path = tmp_path / "run.jsonl.gz"
            download.value.save_as(path)
            trace = read_trace(path)
            assert trace.header.method == "ddtree" and 1 <= len(trace.rounds) <= 7
            assert all(r.draft.nodes == 64 and r.probe is not None for r in trace.rounds)
        finally:
            server.terminate()


def test_tau_stands_beside_its_bars_in_large_type(replay: Open):
    page = replay("ddtree")
    page.evaluate("document.documentElement.style.fontSize = '20px'")
    page.evaluate(FRAMES)
    gap = """() => document.querySelector(".ds-lengths-label").getBoundingClientRect().left -
      document.querySelector(".ds-lengths").getBoundingClientRect().right"""
    assert page.evaluate(gap) >= 0
