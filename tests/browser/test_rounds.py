"""The table of rounds in Run and Compare: sort, filter, step, select, copy; thousands of rows."""

from __future__ import annotations

import csv
import io

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Browser, Locator, Page, expect

from analysis.numbers import tau
from app.page_files import css
from tests.browser.steps import Open, at_round, run, title, with_modules

pytestmark = pytest.mark.browser

RUN = "/#trace=chat-ddtree-16&round=3"
THIRD = "#round=3"
COMPARE = "/#view=compare&trace=code-ddtree-16,code-dart&round=2"


def opened(page: Page) -> Page:
    """The same page with its table of rounds, with the table's rows."""
    part = page.get_by_role("button", name="Rounds", exact=True).locator("visible=true")
    expect(part).to_be_enabled()
    part.click()
    expect(rows(page).first).to_be_visible()
    return page


def grid(page: Page) -> Locator:
    return page.get_by_role("grid", name="Rounds").locator("visible=true")


def rows(page: Page) -> Locator:
    return grid(page).locator("tbody tr")


def column(page: Page, name: str) -> list[str]:
    return grid(page).locator(f"tbody .of-{name}").all_inner_texts()


def filtered(page: Page, text: str) -> Locator:
    box = page.get_by_label("Filter the rounds").locator("visible=true")
    box.fill(text)
    return box


def head(page: Page, name: str) -> Locator:
    return grid(page).locator(f"thead .of-{name}")


def test_rows_are_filtered_sorted_and_lead_to_their_rounds(replay: Open):
    page = opened(replay(budget=16, hash_=THIRD))
    count = int(grid(page).get_attribute("aria-rowcount") or 0) - 1
    assert count > 10 and column(page, "round")[:3] == ["1", "2", "3"]
    expect(rows(page).nth(2)).to_have_class("here in-hand")

    rows(page).nth(4).click()
    expect(title(page)).to_have_text(at_round(5))
    page.keyboard.press("ArrowDown")
    expect(title(page)).to_have_text(at_round(6))
    expect(grid(page)).to_be_focused()
    line = grid(page).get_attribute("aria-activedescendant")
    expect(page.locator(f"#{line}")).to_have_attribute("aria-rowindex", "7")

    head(page, "tvd").get_by_role("button").click()
    expect(head(page, "tvd")).to_have_attribute("aria-sort", "ascending")
    head(page, "tvd").get_by_role("button").click()
    expect(head(page, "tvd")).to_have_attribute("aria-sort", "descending")
    tvd = [float(value) for value in column(page, "tvd")]
    assert tvd == sorted(tvd, reverse=True) and tvd[0] > tvd[-1]
    head(page, "tvd").get_by_role("button").click()
    expect(head(page, "tvd")).to_have_attribute("aria-sort", "none")

    filtered(page, "accepted == 0")
    found = int(grid(page).get_attribute("aria-rowcount") or 0) - 1
    assert 1 < found < count and set(column(page, "accepted")) == {"0"}
    sums = page.locator(".ds-rounds-sums").locator("visible=true")
    expect(sums).to_contain_text(f"{found} rounds shown")
    expect(sums).to_contain_text("τ 1.00")
    numbers = column(page, "round")

    box = filtered(page, "acepted == 0")
    expect(box).to_have_attribute("aria-invalid", "true")
    said = page.locator(".ds-rounds-said").locator("visible=true")
    expect(said).to_contain_text("“acepted” is not a column; a filter knows round, text, accepted")
    assert column(page, "round") == numbers  # those of the filter before
    filtered(page, "accepted == 0").press("Escape")
    expect(said).to_have_count(0)
    expect(grid(page)).to_be_focused()
    expect(grid(page)).to_have_attribute("aria-rowcount", str(count + 1))


def test_matches_are_stepped_through_in_the_tree_too(replay: Open):
    page = opened(replay(budget=16, hash_=THIRD))
    filtered(page, "accepted == 0")
    numbers = [int(each) for each in column(page, "round")]
    after = next(each for each in numbers if each > 3)
    page.get_by_role("button", name="Match after").locator("visible=true").click()
    expect(title(page)).to_have_text(at_round(after))
    page.get_by_role("button", name="Tree", exact=True).click()
    page.locator(".ds-tree").press("n")
    later = numbers[(numbers.index(after) + 1) % len(numbers)]
    expect(title(page)).to_have_text(at_round(later))
    page.locator(".ds-tree").press("N")
    expect(title(page)).to_have_text(at_round(after))


def test_a_range_has_its_own_numbers_and_is_copied(replay: Open):
    page = opened(replay(budget=16, hash_=THIRD, permissions=["clipboard-read", "clipboard-write"]))
    rows(page).nth(1).click()
    rows(page).nth(3).click(modifiers=["Shift"])
    expect(title(page)).to_have_text(at_round(2))  # a selection leads nowhere
    expect(grid(page).locator("[aria-selected=true]")).to_have_count(3)
    sums = page.locator(".ds-rounds-sums").locator("visible=true")
    expect(sums).to_contain_text("3 rounds selected")
    accepted = [int(value) for value in column(page, "accepted")[1:4]]
    expect(sums).to_contain_text(f"τ {tau(1 + sum(accepted) / 3)}")

    copied = {}
    for form in ("CSV", "Markdown", "LaTeX"):
        page.get_by_role("button", name=form, exact=True).locator("visible=true").click()
        expect(page.locator(".ds-rounds").locator("visible=true")).to_contain_text(
            f"3 rows copied as {form}"
        )
        copied[form] = page.evaluate("navigator.clipboard.readText()")
    names, *lines = csv.reader(io.StringIO(copied["CSV"], newline=""))
    wanted = "round,text,accepted,nodes,depth,cause,token,tvd,tvd_path,c1,c4,c16,ms"
    assert names == wanted.split(",") and [line[0] for line in lines] == ["2", "3", "4"]
    assert copied["Markdown"].count("\n") == 5 and copied["Markdown"].startswith("| round | text |")
    assert copied["LaTeX"].startswith("\\begin{tabular}{rlrrrllrrrrrr}")

    grid(page).focus()
    page.keyboard.press("Escape")
    expect(sums).to_contain_text("rounds shown")
    page.keyboard.press("Shift+ArrowDown")
    expect(grid(page).locator("[aria-selected=true]")).to_have_count(2)


def test_enter_leads_to_the_tree_where_it_is_not_beside_the_table(replay: Open):
    page = opened(replay(budget=16, hash_=THIRD, viewport={"width": 1000, "height": 800}))
    expect(page.locator(".ds-tree")).to_be_hidden()
    rows(page).nth(4).click()
    expect(grid(page)).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator(".ds-tree")).to_be_focused()
    expect(title(page)).to_have_text(at_round(5))


def test_rows_come_while_a_run_goes_on_and_a_chosen_one_stays(visit: Open):
    page = visit()
    run(page, "slow", wait="running")
    page.locator("#ds-scope").get_by_role("button", name="Rounds", exact=True).click()
    expect(rows(page).first).to_be_visible()
    rows(page).first.click()  # which may be the newest so far
    expect(title(page)).to_have_text(at_round(1))
    seen = int(grid(page).get_attribute("aria-rowcount") or 0)
    more = f"n => Number(document.querySelector('.ds-rounds table').ariaRowCount) > {seen + 2}"
    page.wait_for_function(more)
    expect(title(page)).to_have_text(at_round(1))
    expect(rows(page).first).to_have_class("here in-hand")
    page.get_by_role("button", name="Stop").locator("visible=true").click()


def test_a_comparison_has_the_rounds_of_every_run(visit: Open, address: str):
    page = opened(visit(address + COMPARE))
    filtered(page, "run == B and round <= 4")
    expect(rows(page)).to_have_count(4)
    assert set(column(page, "run")) == {"B"}
    rows(page).nth(2).click()
    heading = page.get_by_role("region", name="Draft tree B").locator(".ds-round-title")
    page.locator("#ds-c-scope").get_by_role("button", name="Tree", exact=True).click()
    expect(heading).to_have_text(at_round(3))
    page.locator("#ds-c-scope").get_by_role("button", name="Rounds", exact=True).click()
    filtered(page, "round == 1")
    expect(page.locator(".ds-rounds-sums p").locator("visible=true")).to_have_count(2)


def test_the_address_has_filter_and_order(visit: Open, address: str):
    page = opened(visit(address + RUN))
    filtered(page, 'accepted <= 1 and not token ~ "x y"')
    head(page, "tvd").get_by_role("button").click()
    page.wait_for_function("location.hash.includes('sort=tvd')")
    url, numbers = page.url, column(page, "round")
    assert "show=rounds" in url and len(numbers) > 2 and numbers != sorted(numbers, key=int)

    again = visit(url)
    expect(rows(again)).to_have_count(len(numbers))
    assert column(again, "round") == numbers
    expect(head(again, "tvd")).to_have_attribute("aria-sort", "ascending")
    expect(title(again)).to_have_text(at_round(3))
    again.locator("#ds-scope").get_by_role("button", name="Tree", exact=True).click()
    again.wait_for_function("!location.hash.includes('show=')")
    assert "filter=" in again.url  # n and N still go by it


def test_on_a_phone_only_the_table_scrolls_sideways(visit: Open, address: str):
    page = opened(visit(address + RUN, viewport={"width": 390, "height": 844}, has_touch=True))
    box = page.locator(".ds-rounds-box").locator("visible=true")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    tools = page.get_by_role("toolbar", name="Steps and tools").locator("visible=true")
    place, below = box.bounding_box(), tools.bounding_box()
    assert place and below and place["y"] + place["height"] <= below["y"] + 1


MANY = """async () => {
  const { RoundsTable } = await import("/web/rounds/view.js");
  const times = { draft: 0.01, build: 0, verify: 0.1, commit: 0 };
  const evil = "<img src=x onerror='window.__pwned=1'>";
  const rounds = Array.from({ length: 5000 }, (_, at) => ({
    accepted: at % 3, status: "aaaa", depths: [0, 1, 2, 3], y: [0, 0, 0, 0], path: [0],
    text: [[at % 7 ? ` word${at}` : evil, "b", -1]], ghost: { label: evil }, cause: evil,
    tvd: [(at % 89) / 89], coverage: { 1: 0.5 }, times,
  }));
  const pane = { letter: "A", at: 0, rounds, feed: { header: { causes: { [evil]: evil } } } };
  const table = new RoundsTable("test", {
    panes: () => [pane], active: () => pane, say() {}, changed() {}, tree() {},
    reach: (_, at) => { pane.at = at; return true; },
  });
  const place = document.querySelector("main");
  place.className = "ds-scope";
  place.dataset.show = "rounds";
  place.style = "display: flex; height: 500px";
  place.append(table.element);
  window.table = table;
  table.refresh();
}"""


def test_of_thousands_of_rows_only_those_in_sight_are_on_the_page(browser: Browser):
    page = with_modules(browser.new_page(viewport={"width": 1300, "height": 600}), style=css())
    page.evaluate(MANY)
    expect(grid(page)).to_have_attribute("aria-rowcount", "5001")
    assert 10 < rows(page).count() < 60
    grid(page).focus()
    page.keyboard.press("End")
    expect(rows(page).last).to_have_attribute("aria-rowindex", "5001")
    expect(rows(page).last).to_be_in_viewport()
    assert rows(page).count() < 60
    page.locator(".ds-rounds-box").evaluate("box => { box.scrollTop = box.scrollHeight / 2 }")
    expect(grid(page).locator("[aria-rowindex='2501']")).to_be_in_viewport()
    assert head(page, "text").bounding_box()["y"] == pytest.approx(
        page.locator(".ds-rounds-box").bounding_box()["y"] + 1, abs=1.5
    )  # the heads stay
    page.evaluate(
        """() => {
          table.box.value = 'accepted == 0 and text ~ "word"';
          table.box.dispatchEvent(new Event('input'));
        }"""
    )
    assert 500 < int(grid(page).get_attribute("aria-rowcount") or 0) < 5000
    filtered(page, "onerror")
    expect(rows(page).first).to_contain_text("<img src=x")
    assert page.evaluate("window.__pwned") is None
    page.close()
