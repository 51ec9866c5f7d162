"""Two runs side by side in a real browser, and the pure functions that align them."""

from __future__ import annotations

import csv
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Browser, Locator, Page, expect

from analysis.charts.palette import PALETTES, series_colour
from app.studio.runs import Runs
from app.studio.shipped import RECORDED
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.browser.steps import (
    FRAMES,
    NODE,
    Open,
    at_round,
    compare,
    from_menu,
    open_file,
    run,
    serving,
    state,
    tab,
    title,
    with_modules,
)
from tests.helpers.fakes import FakeEngine, make_header, make_run
from tests.helpers.timing import usually

pytestmark = pytest.mark.browser

ALIGN = """const { beginnings, contrasts, extent, laid, nextOf, partsAt, roundAt, twin } =
  await import("/web/align.js");"""


# ── the alignment ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Page:
    return with_modules(browser.new_page())


def aligned(page: Page, expression: str, **rounds: list[str]) -> Any:
    """Evaluate over runs written as one word per round: "Pab" is prefill P, accepted a, bonus b."""

    def pieces(round_text: str, last: str) -> list[list[Any]]:
        came = ["p" if c == "P" else "b" if c == last else "a" for c in round_text]
        return [[c.lower(), k, 0] for c, k in zip(round_text, came, strict=True)]

    made = {
        name: [{"text": pieces(text, text[-1] if text else ""), "ids": [*text]} for text in texts]
        for name, texts in rounds.items()
    }
    names = "".join(f"const {name} = laid({json.dumps(value)});" for name, value in made.items())
    return page.evaluate(f"async () => {{ {ALIGN}\n{names} return {expression}; }}")


def test_a_place_is_covered_by_one_round(blank: Page):
    places = "[-1, 0, 1, 2, 3, 4, 5, 6].map((at) => roundAt(one, at))"
    assert aligned(blank, places, one=["Pab", "c", "", "de"]) == [-1, 0, 0, 0, 1, 3, 3, -1]
    assert aligned(blank, "roundAt(one, 0)", one=[]) == -1


def test_rounds_begin_where_either_run_begins_one(blank: Page):
    runs = {"one": ["Pab", "c", "de"], "other": ["Pa", "bcd", "e"]}
    assert aligned(blank, "beginnings([one, other], 6)", **runs) == [0, 2, 3, 4, 5]
    assert aligned(blank, "beginnings([one, other], 4)", **runs) == [0, 2, 3]
    for places, at, by, to in (
        ([0, 2, 3], 0, 1, 2),
        ([0, 2, 3], 3, 1, None),
        ([0, 2, 3], 3, -1, 2),
    ):
        assert aligned(blank, f"nextOf({places}, {at}, {by})") == to


def test_texts_part_at_the_first_other_token(blank: Page):
    same = {"one": ["Pab", "c"], "other": ["Pa", "b"]}
    assert aligned(blank, "[partsAt(one, other), extent(one, other)]", **same) == [None, 4]
    parted = {"one": ["Pab", "c"], "other": ["Pa", "xc"]}
    assert aligned(blank, "[partsAt(one, other), extent(one, other)]", **parted) == [2, 2]
    first = {"one": ["Pab"], "other": ["xab"]}
    assert aligned(blank, "[partsAt(one, other), extent(one, other)]", **first) == [0, 0]
    assert aligned(blank, "[partsAt(one, other), extent(one, other)]", one=[], other=["Pa"]) == [
        None,
        2,
    ]


def test_acceptance_differs_where_one_token_was_drafted_and_the_other_was_not(blank: Page):
    runs = {"one": ["Pab", "c", "de"], "other": ["Pa", "bcd", "e"]}
    # one:   P  a✓ b◇ c◇ d✓ e◇     other: P  a◇ b✓ c✓ d◇ e◇
    assert aligned(blank, "contrasts([one, other], 6)", **runs) == [1, 2, 3, 4]
    assert aligned(blank, "contrasts([one, other], 3)", **runs) == [1, 2]


def test_three_texts_part_at_the_first_other_token(blank: Page):
    runs = {"one": ["Pab", "cd"], "two": ["Pa"], "three": ["Pab", "ce"]}
    assert aligned(blank, "partsAt(one, two, three)", **runs) == 4
    assert aligned(blank, "contrasts([one, two, three], 3)", **runs) == [1]
    assert aligned(blank, "beginnings([one, two, three], 4)", **runs) == [0, 3]


def test_the_same_node_in_another_tree(blank: Page):
    """Tokens a, b, c … are 1, 2, 3 …; one run's root stands two tokens before the other's."""

    def made(parents: list[int], tokens: list[int], ghost: list[int], text: list[Any]) -> Any:
        return {"parents": parents, "tokens": tokens, "text": text,
                "ids": [ghost[1] if row < 0 else tokens[row] for _, _, row in text],
                "ghost": {"parent": ghost[0], "token": ghost[1]}}  # fmt: skip

    first = made([-1, 0, 1, 2, 1, 3], [0, 1, 2, 3, 9, 4], [5, 5], [["P", "p", 0], ["a", "a", 1], ["b", "a", 2], ["c", "a", 3], ["d", "a", 5], ["e", "b", -1]])  # fmt: skip # noqa: E501
    early = made([-1, 0], [0, 1], [1, 2], [["P", "p", 0], ["a", "a", 1], ["b", "b", -1]])
    late = made([-1, 0, 0, 1], [2, 3, 8, 4], [3, 7], [["c", "a", 1], ["d", "a", 3], ["g", "b", -1]])
    code = f"""async () => {{ {ALIGN}
      const side = (rounds, at) => ({{ rounds, at, tokens: laid(rounds) }});
      const A = side([{json.dumps(first)}], 0), B = side({json.dumps([early, late])}, 1);
      return [[0, 1, 2, 3, 4, 5, -1].map((row) => twin(A, row, B)),
              [0, 1, 2, 3, -1].map((row) => twin(B, row, A))]; }}"""
    there, back = blank.evaluate(code)
    # A's a and the root lie before B's root b; 9 is a sibling of b; B's stop is not a node of A.
    assert there == [None, None, 0, 1, None, 3, None]
    assert back == [2, 3, None, 5, None]


# ── two methods on one prompt ────────────────────────────────────────────────────────────────────


def trees(page: Page) -> Locator:
    return page.locator(".ds-tree:visible")


def place(page: Page) -> int:
    found = re.match(r"Token (\d+) of", page.locator(".ds-place").inner_text())
    assert found is not None
    return int(found.group(1))


def shown(page: Page) -> list[str]:
    return [heading.split("\n")[0][:9] for heading in title(page).all_inner_texts()]


def test_it_opens_on_two_runs_where_one_accepts_much(visit: Open):
    page = visit()
    tab(page, "compare")
    expect(page.locator("#ds-c-scope .ds-pane:visible")).to_have_count(2)
    expect(page.locator("#ds-c-scope .ds-run-name:visible")).to_have_text(
        ["DDTree B 16", "TreeFlash B 16"]
    )
    expect(page.locator(".ds-place")).not_to_contain_text("Token 1 of")
    expect(page.locator("#ds-c-prompt textarea")).to_have_value(RECORDED["code"])
    assert page.locator("#ds-c-scope .ds-tree:visible .odds:visible").count()  # q and p are told
    assert len({each["left"] for each in columns(page)}) == 1  # under sentences of any length


def test_two_methods_step_together(replay: Open):
    page = replay("treeflash", "dart", budget=16)
    expect(page.locator(".ds-pane:visible")).to_have_count(2)
    expect(page.locator(".ds-run-name:visible")).to_have_text(["TreeFlash B 16", "DART B 16"])
    expect(page.locator(".ds-cautions")).to_be_hidden()
    expect(page.locator(".ds-parted")).to_have_count(0)  # lossless: one text
    trees(page).first.focus()
    page.keyboard.press("Home")
    assert place(page) == 1
    expect(title(page)).to_have_text([at_round(1), at_round(1)])
    seen = [shown(page)]
    for _ in range(6):
        before = place(page)
        page.keyboard.press("ArrowRight")
        assert place(page) > before
        seen.append(shown(page))
    assert all(a != b for a, b in pairwise(seen))  # each step shows something new
    page.keyboard.press("ArrowLeft")
    assert shown(page) == seen[-2]
    page.keyboard.press("End")
    assert place(page) == 64
    expect(page.locator(".ds-scrub")).to_have_value("63")


def test_scrubber_strip_and_table_follow_the_place(replay: Open):
    page = replay("ddtree", "treeflash", budget=16)
    page.locator(".ds-scrub").fill("10")
    assert place(page) == 11
    expect(page.locator(".ds-two.here")).to_have_attribute("data-place", "10")
    page.locator(".ds-two").nth(20).click()
    assert place(page) == 21
    rows = page.locator(".ds-compare .ds-table tbody tr")
    expect(rows).to_have_count(2)
    for name, row in (("DDTree", 0), ("TreeFlash", 1)):
        expect(rows.nth(row)).to_contain_text(name)
        assert float(rows.nth(row).locator("td").first.inner_text()) > 1
    expect(page.locator(".ds-two > i.begins")).not_to_have_count(0)


def test_the_next_place_where_acceptance_differs(replay: Open):
    page = replay("ddtree", "ar", budget=16)
    trees(page).first.focus()
    page.keyboard.press("Home")
    cells = page.locator(".ds-compare .ds-table td:last-child")
    for _ in range(3):
        page.keyboard.press("d")
        expect(cells.nth(0)).to_have_text("✓ accepted")
        expect(cells.nth(1)).to_have_text("◇ bonus")
    third = place(page)
    page.get_by_role("button", name="Next place where the acceptance differs").click()
    assert place(page) > third
    trees(page).first.focus()
    page.keyboard.press("Shift+D")
    assert place(page) == third


COLUMNS = """() => [
  ...document.querySelectorAll(":is(#ds-c-scope, #ds-offline) .ds-tree"),
].map((tree) => {
  const box = tree.getBoundingClientRect();
  const at = tree.querySelector(".ds-column-here").getBoundingClientRect();
  return {
    word: tree.querySelector(".ds-axis .here").textContent.split(" ")[0],
    left: Math.round(at.left - box.left),
    seen: at.left >= box.left && at.right <= box.right + 1,
  };
})"""


def columns(page: Page) -> list[dict[str, Any]]:
    """Of each tree: its marked column's word, where it stands, and whether it is in sight."""
    return page.evaluate(COLUMNS)


def test_trees_stand_in_the_same_columns_of_the_text(replay: Open):
    page = replay("ddtree", "treeflash", budget=16)
    trees(page).first.focus()
    page.keyboard.press("Home")
    for _ in range(8):
        page.keyboard.press("ArrowRight")
        found = columns(page)
        assert [each["word"] for each in found] == [str(place(page))] * 2
        assert found[0]["left"] == found[1]["left"]
        assert all(each["seen"] for each in found)
    box = trees(page).first.bounding_box()
    assert box is not None

    def drag(left: int) -> None:
        page.mouse.move(box["x"] + 640, box["y"] + 150)
        page.mouse.down()
        page.mouse.move(box["x"] + 640 - left, box["y"] + 150, steps=4)
        page.mouse.up()

    outside = page.locator(".ds-axis text", has_text="‹ root").locator("visible=true")
    expect(outside).to_have_count(0)
    drag(80)
    moved = columns(page)
    assert moved[0]["left"] == moved[1]["left"] == found[0]["left"] - 80
    drag(600)
    expect(outside).to_have_count(2)


def test_one_inspector_shows_p_beside_every_q(replay: Open):
    page = replay("ddtree", "treeflash", budget=16)
    trees(page).first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    boxes = page.locator(".ds-inspector:visible")
    expect(boxes).to_have_count(1)
    expect(boxes.locator("h2 .ds-letter")).to_have_text("A")
    rows = boxes.locator(".ds-beside tbody tr")
    expect(rows.locator("th").first).to_be_visible()
    expect(boxes.locator(".ds-beside-notes li")).to_have_count(2)
    page.keyboard.press("o")
    expect(page.locator(".ds-pane.active")).to_have_attribute("aria-label", "Draft tree B")
    page.keyboard.press("Enter")
    expect(boxes.locator("h2 .ds-letter")).to_have_text("B")
    expect(boxes).to_have_count(1)
    expect(page.locator(f"{NODE}.selected")).to_have_count(1)
    before = boxes.locator("h2").inner_text()
    page.keyboard.press("ArrowRight")  # it stays open and follows the place in the text
    expect(boxes.locator("h2")).not_to_have_text(before)
    ids = page.evaluate("[...document.querySelectorAll('.ds-scope [id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    page.keyboard.press("Escape")
    expect(boxes).to_have_count(0)


def test_a_run_has_one_colour_everywhere_and_its_numbers_can_be_taken_away(visit: Open):
    page = visit()
    compare(page, "hello", "DDTree", "DART")
    page.locator("#ds-c-scope").get_by_role("button", name="Stats").click()
    expect(page.locator("#ds-c-scope .ds-measures tbody .ds-letter").nth(1)).to_be_visible()
    found = page.evaluate("""() => {
      const seen = (sign) => [...document.querySelectorAll("#ds-c-scope .ds-letter")]
        .filter((each) => each.textContent === sign)
        .map((each) => getComputedStyle(each).backgroundColor);
      return ["A", "B"].map((sign) => [...new Set(seen(sign))]);
    }""")
    rgb = [
        tuple(int(PALETTES["light"][series_colour(at)][i : i + 2], 16) for i in (1, 3, 5))
        for at in (0, 1)
    ]
    assert found == [[f"rgb({r}, {g}, {b})"] for r, g, b in rgb]
    from_menu(page.locator(".ds-sums"), "Save the numbers: Runs on one text, CSV")
    for name in ("Runs on one text", "The runs"):
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save the numbers: {name}, CSV", exact=True).click()
        with Path(saved.value.path()).open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["method"][:4] for row in rows] == ["DDTr", "DART"]
        assert all(float(row["tau"]) >= 1 for row in rows)


def test_both_runs_survive_a_reload_and_the_comparison_can_be_ended(visit: Open):
    page = visit()
    compare(page, "hello", "DDTree", "DART")
    page.reload()
    tab(page, "compare")
    expect(state(page)).to_have_text(["A: done", "B: done"])
    from_menu(page, "Take run A out").click()
    expect(page.locator(".ds-pane:visible")).to_have_count(1)
    expect(state(page)).to_have_text("done")
    expect(page.locator("#ds-c-scope .ds-strip .ds-token")).to_have_count(64)
    page.keyboard.press("Home")
    expect(title(page)).to_have_text(at_round(1))


def test_a_run_goes_on_as_long_as_a_tab_shows_it(visit: Open, engine: FakeEngine, tmp_path: Path):
    page = visit()
    run(page, "slow", wait="running")
    expect(page.locator("#ds-scope .ds-band").nth(1)).to_be_visible()
    from_menu(page, "Compare…").click()
    expect(state(page)).to_have_attribute("data-state", "running")
    open_file(page, trace(tmp_path / "a.jsonl", 1))
    expect(state(page)).to_have_count(2)
    from_menu(page, "Take run A out").click()
    expect(state(page)).to_have_text("recorded")
    tab(page, "run")
    bands = page.locator("#ds-scope .ds-band")
    expect(bands.nth(bands.count() + 1)).to_be_visible()
    expect(state(page)).to_have_attribute("data-state", "running")
    closed = engine.closed
    open_file(page, trace(tmp_path / "b.jsonl", 2))  # now no tab shows it
    expect(state(page)).to_have_text("recorded")
    run(page, "hello")  # which the worker only comes to when that one has stopped
    expect(state(page)).to_have_text("done")
    assert engine.closed == closed + 2


def test_numbers_of_a_run_that_is_gone_are_no_other_s(browser: Browser):
    runs = Runs(FakeEngine())
    with serving(runs) as address:
        page = browser.new_context().new_page()
        page.goto(address)
        expect(page.locator(".ds-scope").first).to_be_visible()
        compare(page, "hello", "DDTree", "DART")
        runs._runs.popitem()  # not the example that Run opened on
        page.locator("#ds-c-scope").get_by_role("button", name="Stats").click()
        said = page.locator("#ds-c-scope .ds-measures [role=status]")
        expect(said).to_have_text("this run is no longer on the server")
        expect(page.locator("#ds-c-scope .ds-measures tbody tr")).to_have_count(0)
        page.context.close()


def test_stop_stops_both(visit: Open):
    page = visit()
    compare(page, "slow", "DDTree", "DART", wait="")
    expect(state(page).first).to_have_attribute("data-state", "running")
    expect(state(page).nth(1)).to_have_attribute("data-state", "waiting")
    expect(state(page).nth(1)).to_have_text("B: 1 run ahead")
    expect(page.locator(".ds-run-name:visible").last).to_have_text("DART")
    expect(page.locator(".ds-round-title:visible").last).to_have_text("No round yet")
    expect(page.locator(".ds-away:visible").last).to_have_text("This run waits for its turn.")
    page.locator("#ds-c-stop").click()
    expect(state(page)).to_have_text(["A: stopped", "B: stopped"])
    expect(page.locator("#ds-c-stop")).to_be_disabled()


def test_four_methods_with_linked_nodes(visit: Open):
    page = visit()
    compare(page, "hello", "DDTree", "TreeFlash", "DART", "Plain")
    expect(page.locator(".ds-pane:visible")).to_have_count(4)
    expect(page.locator(".ds-compare .ds-table tbody tr")).to_have_count(4)
    trees(page).first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("a")
    page.locator("#ds-c-scope .ds-pane").first.locator(f"{NODE}.root").click()
    expect(page.locator(f"{NODE}.twin")).to_have_count(3)  # the first rounds begin at one root
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("o")
    page.keyboard.press("o")
    active = page.locator("#ds-c-scope .ds-pane.active")
    expect(active).to_have_attribute("aria-label", "Draft tree C")
    from_menu(page, "Take run B out").click()
    expect(page.locator("#ds-c-scope .ds-letter").first).to_have_text("A")
    names = page.locator(".ds-run-name:visible")
    expect(names).to_have_text(["DDTree B 16", "DART B 16", "Plain"])
    shared = page.locator("#ds-c-scope .ds-shared")
    expect(shared.first).to_have_text(re.compile(r"^\d+ nodes? also in B, \d+ also in C$"))
    expect(page.locator("#ds-c-scope .ds-legend")).not_to_contain_text("q′")


@pytest.mark.parametrize("place", [4, 6, 7])
def test_two_trees_share_as_many_nodes_as_each_other(visit: Open, address: str, place: int):
    """Where one's root is a node that the other drafted, too."""
    page = visit(f"{address}/#view=compare&trace=chat-ddtree-64,chat-dart&place={place}")
    shared = page.locator("#ds-c-scope .ds-shared")
    expect(shared.first).to_have_text(re.compile(r"^\d+ nodes? also in B$"))
    one, other = (re.sub(r"\D", "", said) for said in shared.all_text_contents())
    assert one == other


SHOWN = """all => all.map((said) => {
  const range = document.createRange();
  range.selectNodeContents(said);
  const words = range.getBoundingClientRect(), box = said.getBoundingClientRect();
  if (words.top >= box.bottom - 1) return "none";
  return words.right <= box.right + 1 && words.bottom <= box.bottom + 1 ? "whole" : "cut";
})"""


@pytest.mark.parametrize(("wide", "seen"), [(960, 0), (1440, 2)])
def test_a_pane_says_how_many_nodes_are_shared_in_whole_or_not(
    visit: Open, address: str, wide: int, seen: int
):
    size = {"width": wide, "height": 600}
    page = visit(f"{address}/#view=compare&trace=code-ddtree-16,code-treeflash", viewport=size)
    expect(page.locator("#ds-c-scope .ds-shared").first).to_contain_text("also in")
    said = page.locator("#ds-c-scope .ds-shared").evaluate_all(SHOWN)
    assert sorted(said) == ["none"] * (2 - seen) + ["whole"] * seen
    for head in page.locator("#ds-c-scope .ds-round-title").all():
        assert head.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_at_150_percent_trees_fill_the_window_and_the_steps_stay(visit: Open, address: str):
    size = {"width": 960, "height": 600}  # of 1440 × 900
    page = visit(f"{address}/#view=compare&trace=code-ddtree-16,code-treeflash", viewport=size)
    pictures = page.locator("#ds-c-scope .ds-picture:visible")
    expect(pictures).to_have_count(2)
    for picture in pictures.all():
        box = picture.bounding_box()
        assert box and box["height"] >= 0.75 * size["height"]
    pictures.first.scroll_into_view_if_needed()
    expect(page.locator("#ds-c-scope .ds-toolbar")).to_be_in_viewport(ratio=1)


# ── traces ───────────────────────────────────────────────────────────────────────────────────────


def trace(
    path: Path, seed: int, prompt: str = "hello", method: str = "ddtree", **settings: object
) -> Path:
    header = make_header(prompt, method, **settings)
    write_trace(path, Trace(header, tuple(make_run(5, seed=seed)), {}))
    return path


def test_traces_are_put_beside_what_is_shown_and_what_cannot_be_compared_is_said(
    visit: Open, tmp_path: Path
):
    page = visit()
    tab(page, "compare")
    scope, notes = page.locator("#ds-c-scope"), page.locator("#ds-c-scope .ds-cautions")
    first = trace(tmp_path / "a.jsonl", 1, temperature=0.0)
    open_file(page, first)  # nothing there: shown alone
    expect(page.locator(".ds-pane:visible")).to_have_count(1)
    expect(state(page)).to_have_text(["recorded"])
    open_file(page, trace(tmp_path / "b.jsonl", 1, temperature=0.0))
    expect(state(page)).to_have_text(["A: recorded", "B: recorded"])
    assert place(page) == 1
    expect(notes).to_be_hidden()
    expect(page.locator(".ds-parted")).to_have_count(0)
    expect(scope.locator(".ds-titles > .ds-soft")).to_have_text("≠ at 0 tokens")

    from_menu(page, "Take run B out").click()
    expect(state(page)).to_have_text(["recorded"])
    hot = trace(tmp_path / "c.jsonl", 2, "<b>another</b>", temperature=1.0)
    open_file(page, hot)
    expect(state(page)).to_have_text(["A: recorded", "B: recorded"])
    expect(page.locator("#ds-c-panel .ds-about")).to_contain_text("these runs: T 0 and 1")
    expect(notes).to_contain_text("the prompts differ")
    expect(notes).to_contain_text("the texts differ from token")
    expect(page.locator(".ds-parted")).to_be_visible()
    trees(page).first.focus()
    page.keyboard.press("End")
    found = re.search(r"from token (\d+) on", notes.inner_text())
    assert found is not None and place(page) == int(found.group(1)) - 1
    page.keyboard.press("Home")
    scope.locator(".ds-pane").first.locator(f"{NODE}:not(.root)").first.click()
    expect(page.locator(".ds-beside-notes li").nth(1)).to_contain_text("another prompt")
    # numbers after other texts are not put beside each other
    expect(page.locator(".ds-beside tbody tr").first.locator("td").nth(2)).to_have_text("≠")


def test_a_hostile_trace_beside_another_stays_text(visit: Open, tmp_path: Path):
    attack = "<img src=x onerror=window.__pwned=1>${window.__pwned=1}{{x}}`\\x\x1b"
    path = tmp_path / "hostile.jsonl.gz"
    header = make_header(attack, attack, **{attack: attack})
    write_trace(path, Trace(header, tuple(make_run(4, hostile=True)), {}))
    page = visit()
    run(page, "hostile hello")
    from_menu(page, "Compare…").click()
    expect(state(page)).to_have_count(1)
    open_file(page, path)
    expect(state(page)).to_have_count(2)
    trees(page).nth(1).focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.locator(".ds-inspector:visible .ds-numbers")).to_be_visible()
    bad = ".ds-scope img, .ds-scope script, .ds-scope [onerror], .ds-scope a"
    assert page.locator(bad).count() == 0
    expect(page.locator(".ds-compare .ds-table")).to_contain_text("<img src=x onerror")


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────


TREES = """() => [...document.querySelectorAll("#ds-c-scope .ds-picture")].map((each) => {
  const box = each.getBoundingClientRect();
  const roots = [...each.querySelectorAll(".ds-node.root")].map((r) => r.getBoundingClientRect());
  return {
    top: box.top, bottom: box.bottom, height: box.height,
    rooted: roots.every((root) => root.top > box.top && root.bottom < box.bottom),
  };
})"""
HEADS = """() => [...document.querySelectorAll("#ds-c-scope .ds-pane-head")].map((each) =>
  [each.scrollWidth <= each.clientWidth, each.getBoundingClientRect().height])"""


def test_the_trees_of_a_comparison_have_most_of_the_window_and_are_no_wider(visit: Open):
    page = visit(viewport={"width": 1280, "height": 720})
    compare(page, "hello", "DDTree", "TreeFlash", "DART", "Plain")
    for count in (4, 3, 2):
        expect(page.locator(".ds-pane:visible")).to_have_count(count)
        trees(page).first.focus()
        page.keyboard.press("Home")
        expect(page.locator(".ds-place")).to_contain_text("Token 1 of")
        for wide, tall in ((1280, 720), (1366, 768), (1440, 900), (1920, 1080)):
            page.set_viewport_size({"width": wide, "height": tall})
            rooted = "all => all.length === count && all.every((each) => each.rooted)"
            page.wait_for_function(f"(count) => ({rooted})(({TREES})())", arg=count)
            found = page.evaluate(TREES)
            heads = page.locator("#ds-c-scope .ds-panes").bounding_box()
            assert heads is not None and heads["height"] >= 0.55 * tall
            scrolls = page.evaluate("document.documentElement.scrollHeight") > tall
            assert scrolls == (count == 4 and tall < 800)  # two rows of trees
            assert all(each["height"] >= 230 for each in found), found
            assert all(fits and height < 40 for fits, height in page.evaluate(HEADS))
        if count > 2:
            from_menu(page, f"Take run {'ABCD'[count - 1]} out").click()
    page.keyboard.press("Enter")
    expect(page.locator(".ds-inspector:visible .ds-numbers")).to_be_visible()
    for wide, tall in ((3840, 2160), (820, 1100), (360, 740)):
        page.set_viewport_size({"width": wide, "height": tall})
        page.evaluate(FRAMES)
        assert page.evaluate("document.documentElement.scrollWidth") <= wide
        panes = [pane.bounding_box() for pane in page.locator(".ds-pane:visible").all()]
        tops = [box["y"] for box in panes if box]
        assert (tops[0] == tops[1]) == (wide > 1000)  # beside each other, or one below the other


STANDING = """() => [...document.querySelectorAll("#ds-c-scope .ds-tree")].every((tree) => {
  const box = tree.getBoundingClientRect();
  const [root, here] = [".ds-node.root", ".ds-column-here"].map((name) =>
    tree.querySelector(name)?.getBoundingClientRect());
  const across = (at) => at && at.left >= box.left && at.right <= box.right;
  return across(root) && across(here) && root.top >= box.top && root.bottom <= box.bottom;
})"""


def test_roots_and_the_token_s_column_stay_in_a_window_that_gets_smaller(visit: Open, address: str):
    page = visit(f"{address}/#view=compare&trace={CHATS}")
    expect(page.locator(".ds-why-line:visible")).to_have_count(3)
    for place in (27, 30, 31, 34, 37):  # small trees in a large window, wide ones in a narrow one
        page.set_viewport_size({"width": 1920, "height": 1080})
        page.locator("#ds-c-scope .ds-two").nth(place - 1).click()
        expect(page.locator(".ds-place")).to_contain_text(f"Token {place} of")
        page.evaluate(FRAMES)
        assert page.evaluate(STANDING), place
        page.set_viewport_size({"width": 1280, "height": 720})
        page.wait_for_function(STANDING, timeout=5000)


CHATS = "chat-dflash,chat-ddtree-16,chat-treeflash"
TOPS = """() => [...document.querySelectorAll("#ds-c-scope .ds-pane .ds-picture")]
  .map((each) => Math.round(each.getBoundingClientRect().top))"""


@pytest.mark.parametrize(
    "names, width",
    usually(
        [("code-ddtree-16,code-treeflash", 1024), (CHATS, 1024)],
        [("code-ddtree-16,code-treeflash", 1280), (CHATS, 1280), (f"{CHATS},chat-dart", 1024)],
    ),
)
def test_trees_beside_each_other_stay_level_while_one_steps(
    visit: Open, address: str, names: str, width: int
):
    """Sentences of one to four lines stand above them."""
    page = visit(f"{address}/#view=compare&trace={names}",
                 viewport={"width": width, "height": 768})  # fmt: skip
    expect(page.locator(".ds-why-line:visible")).to_have_count(names.count(",") + 1)
    trees(page).first.focus()
    beside = 3 if width > 1200 and "dflash" in names else 2  # in the first row
    for keys in (["ArrowRight"] * 12, ["p", *["ArrowRight"] * 6]):
        tops = set()
        for key in keys:
            page.keyboard.press(key)
            page.evaluate(FRAMES)
            if key != "p":
                tops.update(page.evaluate(TOPS)[:beside])
        assert len(tops) == 1


STEPS = """() => {
  const box = document.querySelector("#ds-c-scope .ds-transport").getBoundingClientRect();
  return [box.top, box.bottom, document.documentElement.scrollTop];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("names", ["chat-dflash,story-ddtree-16", "chat-dflash,chat-ddtree-16"])
def test_four_trees_can_be_read_on_a_laptop_and_their_steps_stay_in_the_window(
    visit: Open, address: str, names: str, scheme: str
):
    opened = f"{address}/#view=compare&trace={names},chat-treeflash,chat-dart"
    page = visit(opened, viewport={"width": 1366, "height": 768}, color_scheme=scheme)
    expect(page.locator(".ds-why-line:visible")).to_have_count(4)
    # The last: as 150 % zoom makes it.
    for wide, tall in ((1366, 768), (1280, 720), (1024, 768), (960, 600)):
        page.set_viewport_size({"width": wide, "height": tall})
        for scrolled in (0, 60, 5000):
            page.evaluate("(to) => window.scrollTo(0, to)", scrolled)
            page.evaluate(FRAMES)
            top, bottom, stood = page.evaluate(STEPS)
            assert 0 < top < bottom <= tall
            page.keyboard.press("ArrowRight")
            page.evaluate(FRAMES)
            assert page.evaluate(STEPS) == [top, bottom, stood]
        assert all(each["rooted"] and each["height"] >= 230 for each in page.evaluate(TREES))


def test_all_four_q_are_in_sight_beside_p(visit: Open, address: str):
    names = "chat-dflash,chat-ddtree-16,chat-treeflash,chat-dart"
    opened = f"{address}/#view=compare&trace={names}&place=9&who=C&node=ghost"
    page = visit(opened, viewport={"width": 1366, "height": 768})
    table = page.locator(".ds-beside .ds-table")
    expect(table.locator("tbody tr").first).to_be_visible()
    assert table.evaluate("(e) => e.scrollWidth <= e.clientWidth")


@pytest.mark.parametrize("count", [2, 3, 4])
def test_trees_are_compared_on_a_phone_on_its_side(visit: Open, address: str, count: int):
    names = ["chat-dflash", "chat-ddtree-16", "chat-treeflash", "chat-dart"][:count]
    page = visit(
        f"{address}/#view=compare&trace={','.join(names)}&place=9",
        viewport={"width": 844, "height": 390},
        has_touch=True,
    )
    expect(page.locator(".ds-why-line:visible")).to_have_count(count)
    scope = page.locator("#ds-c-scope")
    bar = scope.locator(".ds-toolbar").bounding_box()
    assert bar is not None and bar["height"] < 50 and bar["y"] + bar["height"] <= 390
    panes = [pane.bounding_box() for pane in scope.locator(".ds-pane").all()]
    assert panes[0] and panes[1] and panes[0]["y"] == panes[1]["y"]
    scope.locator(".ds-panes").evaluate("(panes) => panes.scrollIntoView()")
    # Above the bar, once all that the address names has come.
    seen = f"(y) => ({TREES})().slice(0, 2).every((each) => each.rooted && each.bottom <= y)"
    page.wait_for_function(seen, arg=bar["y"])
    scope.get_by_role("button", name="Round after").tap()
    expect(scope.locator(".ds-place")).not_to_contain_text("Token 9 of")
    assert page.evaluate("document.documentElement.scrollWidth") <= 844


GROWING = """async () => {
  const { BandStrip } = await import("/web/compare/text.js");
  const { laid } = await import("/web/align.js");
  const round = (kinds) => ({ text: kinds.map((came) => ["", came, 0]), ids: kinds });
  const named = (token, at) => ({ ...token, text: `${at}` });
  const same = (rounds) => laid(rounds.map(round)).map(named);
  const a = Array(40).fill(["a", "b"]), b = Array(20).fill(["a", "a", "a", "b"]);
  const upTo = (many, few) => [same(a.slice(0, many)), same(b.slice(0, few))];
  const strip = new BandStrip(2, () => {}), once = new BandStrip(2, () => {});
  document.body.append(strip.element, once.element);
  for (const [many, few, place] of [[1, 0, 0], [30, 3, 7], [39, 20, 30], [39, 20, 9]]) {
    strip.draw(upTo(many, few), null, []);
    strip.mark(place, upTo(many, few));
  }
  const options = { subtree: true, childList: true, attributes: true };
  const watch = new MutationObserver(() => {});
  watch.observe(strip.element, options);
  strip.draw(upTo(40, 20), null, []);
  const touched = watch.takeRecords().length;
  strip.mark(9, upTo(40, 20));
  once.draw(upTo(40, 20), null, []);
  once.mark(9, upTo(40, 20));
  const html = ({ element }) => element.innerHTML.replaceAll(/ id="[^"]*"/g, "");
  return [touched, html(strip) === html(once)];
}"""


def test_the_shared_text_grows_by_what_is_new(browser: Browser):
    page = with_modules(browser.new_page())
    touched, same = page.evaluate(GROWING)
    page.close()
    assert same and touched <= 8  # two lines of the new round's two places, not of all eighty
