"""The tab Calibration in a real browser: it opens with numbers, and causes lead to their rounds."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")
pytest.importorskip("pandas")

import pandas as pd
from playwright.sync_api import Browser, Locator, Page, expect

from analysis.charts.palette import PALETTES, SERIES, series_colour
from analysis.frames import COVERAGE
from analysis.measures.acceptance import per_depth
from analysis.measures.tables import Tables
from analysis.numbers import tau
from app.studio.runs import Runs
from app.studio.shipped import FIRST
from core import ASSETS
from core.rounds.causes import Cause
from core.stats import FEW_SEEN
from core.traces.reader import read_trace
from tests.browser.steps import (
    FRAMES,
    Open,
    at_round,
    drag,
    from_menu,
    holding,
    let_go,
    open_file,
    serving,
    settle,
    tab,
    title,
)
from tests.helpers.fakes import FakeEngine

SCOPE = "#ds-k-scope"
HERE = "/#view=calibration"  # Run, which is not seen, opens no example
CAUSE = re.compile(r"^pruned by budget, depth [1-9]: [1-9]")


# Texts and marks of figures that stand outside their pictures.
INSIDE = """() => [...document.querySelectorAll(".ds-plot .main-svg")].flatMap((svg) => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text, .points path, .errorbar path")].filter((each) => {
    const own = each.getBoundingClientRect();
    return own.width && (own.left < box.left - 1 || own.right > box.right + 1 ||
      own.top < box.top - 1 || own.bottom > box.bottom + 1);
  }).map((each) => each.textContent || each.getAttribute("d"));
})"""


def begin(page: Page) -> None:
    tab(page, "calibration")
    expect(runs(page)).to_have_count(1, timeout=60_000)


def runs(page: Page):
    return page.get_by_role("table", name="The runs in numbers").locator("tbody tr")


def figure(page: Page, name: str) -> Locator:
    """A figure of the runs; those of an opened result stand before them."""
    made = page.locator(f"{SCOPE} .ds-below figure", has=page.get_by_role("img", name=name))
    made.scroll_into_view_if_needed()
    return made


def marks(made: Locator) -> Locator:
    """The points of whole series; faint ones are series of their own."""
    return made.locator(".scatterlayer .trace:not([style*='opacity: 0.3']) .points path")


def choose_four(page: Page) -> None:
    """All four methods of an example, from the shelf, which is closed at first."""
    page.locator(f"{SCOPE} .ds-fold-runs > summary").click()
    page.locator(f"{SCOPE} .ds-shelf").nth(1).get_by_text("All 4").first.click()


def test_it_opens_with_an_example_s_numbers(visit: Open):
    page = visit()
    begin(page)
    trace = read_trace(ASSETS / "traces" / f"{FIRST}.jsonl.gz")
    depths = per_depth(Tables.of({"A": trace}), by="run")
    many = depths[depths["probed"] >= FEW_SEEN]
    assert trace.footer is not None and 1 < len(many) < len(depths)
    expect(runs(page)).to_contain_text("DDTree B 64")
    expect(runs(page)).to_contain_text(f"{tau(trace.footer['tau'])} [")
    expect(marks(figure(page, "TVD by depth"))).to_have_count(len(many))  # the others are faint
    expect(figure(page, "TVD by depth").locator("tbody tr")).to_have_count(len(depths))
    expect(marks(figure(page, "Top-K coverage by K"))).to_have_count(len(many) * len(COVERAGE))
    findings = page.locator(f"{SCOPE} .ds-findings li")
    ends = [record.stop_reason for record in trace.rounds]
    budget = ends.count(Cause.PRUNED)
    expect(findings.first).to_contain_text(f"{budget} of {len(ends)} walks ended by budget")
    assert all(re.search(r"\d", words) for words in findings.all_inner_texts())
    for made in page.locator(f"{SCOPE} .ds-below figure").all():
        expect(made.locator(".ds-says")).not_to_be_empty()


def test_other_runs_take_the_example_s_place(visit: Open):
    page = visit()
    begin(page)
    choose_four(page)
    expect(runs(page)).to_have_count(4)
    labels = figure(page, "TVD by depth").locator(".annotation-text")
    expect(labels).to_have_count(4)
    assert sorted(each[0] for each in labels.all_text_contents()) == ["A", "B", "C", "D"]
    assert page.evaluate(INSIDE) == []
    page.get_by_role("button", name="Leave D out").click()
    expect(runs(page)).to_have_count(3)


def test_a_run_keeps_the_letter_and_colour_that_it_has_in_compare(visit: Open, address: str):
    page = visit(f"{address}/#view=compare&trace=chat-ddtree-64,chat-dart,chat-treeflash")
    expect(page.locator("#ds-c-scope .ds-run-name:visible")).to_have_count(3)
    tab(page, "calibration")
    letters = page.locator(f"{SCOPE} .ds-chosen .ds-letter")
    expect(letters).to_have_text(["A", "B", "C"])
    expect(runs(page)).to_have_count(3)
    page.get_by_role("button", name="Leave A out").click()
    expect(letters).to_have_text(["B", "C"])
    expect(page.locator(f"{SCOPE} .ds-chosen > span").first).to_contain_text("DART")
    expect(runs(page).first.locator(".ds-letter")).to_have_text("B")
    labels = figure(page, "TVD by depth").locator(".annotation-text")
    expect(labels).to_have_count(2)
    look = "each => [each.textContent[0], getComputedStyle(each).fill]"
    drawn = dict(labels.evaluate_all(f"all => all.map({look})"))
    rgb = [
        tuple(int(PALETTES["light"][series_colour(at)][i : i + 2], 16) for i in (1, 3, 5))
        for at in (1, 2)
    ]
    assert drawn == {
        letter: f"rgb({r}, {g}, {b})" for letter, (r, g, b) in zip("BC", rgb, strict=True)
    }


def test_checkpoints_of_one_drafter_are_told_apart_in_words_and_numbers(visit: Open):
    page = visit()
    settle(page)
    lines = gzip.decompress((ASSETS / "traces" / "chat-dflash.jsonl.gz").read_bytes()).splitlines()
    files = []
    for name in ("before", "after"):
        header = json.loads(lines[0]) | {"drafter": {"kind": "dflash", "checkpoint": f"me/{name}"}}
        text = b"\n".join([json.dumps(header).encode(), *lines[1:]])
        files.append((f"{name}.jsonl", "", text))
    drag(page, "drop", *files)
    expect(page.locator("#ds-c-scope .ds-run-name:visible")).to_have_count(2)
    tab(page, "calibration")
    findings = page.locator(f"{SCOPE} .ds-findings h3")
    for named in (runs(page), findings, page.locator(f"{SCOPE} .ds-chosen > span")):
        expect(named).to_have_count(2)
        for each, name in zip(named.all(), ("before", "after"), strict=True):
            expect(each).to_contain_text(f"drafter={name}")


def test_a_late_answer_is_no_other_run_s(visit: Open):
    page = visit()
    begin(page)
    with holding(page, "calibrate") as held:  # the numbers of the first four come last
        choose_four(page)
    page.get_by_role("button", name="Leave A out").click()
    expect(runs(page)).to_have_count(3)
    right = runs(page).all_inner_texts()
    let_go(page, held)
    from_menu(figure(page, "Acceptance by depth"), "As a table").click()
    assert runs(page).all_inner_texts() == right
    expect(page.locator(f"{SCOPE} [role=status]", has_text="measuring")).to_be_hidden()


def test_a_run_that_is_gone_leaves_the_others_their_numbers(browser: Browser):
    served = Runs(FakeEngine())
    with serving(served) as address:
        page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        page.goto(address)
        expect(page.locator(".ds-scope").first).to_be_visible()
        begin(page)
        choose_four(page)
        expect(runs(page)).to_have_count(4)
        names = [row.split()[1] for row in runs(page).all_inner_texts()]
        tickets = list(served._runs)  # the example, then the four
        del served._runs[tickets[2]]
        page.get_by_role("button", name="Leave D out").click()
        expect(runs(page)).to_have_count(2)
        assert [row.split()[1] for row in runs(page).all_inner_texts()] == [names[0], names[2]]
        expect(page.locator(f"{SCOPE} [role=alert]:visible")).to_contain_text("no longer on the")
        page.context.close()


def test_a_cause_of_death_leads_to_its_round(visit: Open, address: str):
    page = visit(address + HERE)
    begin(page)
    ended = page.locator(f"{SCOPE} figure", has_text="Why the walk ended").first
    ended.scroll_into_view_if_needed()
    # a group: an image's parts would be hidden from screen readers
    expect(page.get_by_role("group", name="Why the walk ended", exact=True)).to_be_visible()
    box = ended.locator(".barlayer .point").first.bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(f"{SCOPE} .ds-sub")).to_contain_text(CAUSE)
    drafted = page.locator(f"{SCOPE} figure", has_text="What became of drafted nodes")
    expect(drafted.locator(".legendtext", has_text="rejected (budget)")).to_have_count(1)
    expect(drafted.locator(".legendtext", has_text="not drafted")).to_have_count(0)
    from_menu(drafted, "As a table").click()
    drafted.get_by_role("button", name="accepted, depth 1").press("Enter")  # by the keyboard
    expect(page.locator(f"{SCOPE} .ds-sub")).to_contain_text("accepted, depth 1")
    example = page.locator(f"{SCOPE} .ds-finds button").first
    number = int(example.inner_text().split()[1])
    example.press("Enter")
    expect(title(page)).to_have_text(at_round(number))


def test_the_numbers_can_be_taken_away_and_what_could_not_be_saved_is_said_beside_its_button(
    visit: Open,
    address: str,
):
    page = visit(address + HERE)
    begin(page)
    made = figure(page, "Acceptance by depth")
    with page.expect_download() as saved:
        from_menu(made, "Save the numbers as Parquet").click()
    table = pd.read_parquet(io.BytesIO(Path(saved.value.path()).read_bytes()))
    assert list(table.columns) == ["series", "depth", "accepted", "low", "high", "n"]
    assert table["accepted"].between(table["low"], table["high"]).all()
    with page.expect_download() as saved:
        from_menu(made, "Save the numbers:").click()
    assert len(pd.read_csv(saved.value.path())) == len(table)
    for name, column in (
        ("The runs in numbers", "tau"),
        ("Calibration errors", "ece_mass"),
        ("After another than the best token", "acceptance"),
    ):
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save the numbers: {name}").click()
        small = pd.read_csv(saved.value.path())
        assert set(small["method"]) == {"DDTree B 64"} and bool(small[column].notna().any())
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save the numbers as Parquet: {name}").click()
        data = io.BytesIO(Path(saved.value.path()).read_bytes())
        assert len(pd.read_parquet(data)) == len(small)

    png = from_menu(made, "Save the figure Acceptance by depth as PNG")
    page.evaluate(
        "() => { window.toBlob = HTMLCanvasElement.prototype.toBlob;"
        " HTMLCanvasElement.prototype.toBlob = (done) => done(null); }"
    )
    png.click()
    expect(made.get_by_role("alert")).to_have_text("not saved: no picture")
    page.route("**/*", lambda route: route.abort())
    from_menu(made, "Save the numbers as Parquet").click()
    silent = made.get_by_role("alert").filter(has_text="the server did not answer")
    expect(silent).to_have_text("not saved: the server did not answer")
    page.evaluate("() => { HTMLCanvasElement.prototype.toBlob = window.toBlob; }")
    with page.expect_download() as saved:
        from_menu(made, "Save the figure Acceptance by depth as PNG").click()
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
    expect(made.locator(".ds-menu[open]")).to_have_count(0)
    expect(made.locator(".ds-menu > summary")).to_be_focused()
    expect(made.get_by_role("alert")).to_have_count(1)


def test_a_result_of_calibrate_is_drawn_with_its_bands(visit: Open, address: str, tmp_path: Path):
    lines = [
        {"number": n, "seed": seed, "prompt": n, "position": n, "series": series, "depth": depth,
         "continuations": 4, "tvd": 0.1 * depth + 0.01 * n + 0.02 * seed}
        | dict.fromkeys(COVERAGE, 0.5)
        for n in range(5) for seed in (0, 1) for series in ("dflash", "<b>x") for depth in (1, 2, 3)
    ]  # fmt: skip
    file = tmp_path / "calibration.csv"
    pd.DataFrame(lines).to_csv(file, index=False)
    page = visit(address + HERE)
    begin(page)
    open_file(page, file, f"{SCOPE} .ds-opens")
    opened = page.get_by_role("region", name="A calibrate result")
    made = opened.locator("figure", has=page.get_by_role("img", name="TVD by depth"))
    expect(made.locator(".scatterlayer .js-fill")).to_have_count(2)
    expect(made.locator(".annotation-text", has_text="<b>x")).to_have_count(1)
    expect(opened).to_contain_text("10 anchors, seeds 0, 1, 5 texts")
    expect(made).to_contain_text("across 5 texts")
    file.write_text("a,b\n1,2\n")
    open_file(page, file, f"{SCOPE} .ds-opens")
    said = page.locator(f"{SCOPE} [role=alert]:visible")
    expect(said).to_contain_text("not a calibration table")


def test_calibration_is_no_wider_than_the_window(visit: Open, address: str):
    page = visit(address + HERE, viewport={"width": 3840, "height": 800})
    begin(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 3840
    page.set_viewport_size({"width": 360, "height": 800})
    page.evaluate(FRAMES)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_script_that_draws_comes_with_the_first_figure_and_follows_the_theme(visit: Open):
    asked: list[str] = []
    page = visit(color_scheme="light")
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.reload()
    expect(page.locator(".ds-scope").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert "plotly.min.js" not in asked
    begin(page)
    plot = figure(page, "Acceptance lengths").locator(".ds-plot")
    expect(plot.locator(".barlayer .point")).not_to_have_count(0)
    assert asked.count("plotly.min.js") == 1
    ground = plot.locator("svg.main-svg").first
    before = ground.evaluate("(svg) => svg.style.background")
    page.locator("#ds-theme").click()
    expect(ground).not_to_have_attribute("style", re.compile(re.escape(before)))
    fill = plot.locator(".barlayer .point path").first
    code = SERIES["dark"][0]
    red, green, blue = (int(code[at : at + 2], 16) for at in (1, 3, 5))
    expect(fill).to_have_css("fill", f"rgb({red}, {green}, {blue})")


def test_a_drafter_is_diagnosed_or_stopped(visit: Open, address: str):
    page = visit(address + HERE)
    begin(page)
    made = page.get_by_role("region", name="Diagnosis", exact=True)
    start, status = made.get_by_role("button", name="Diagnose"), made.get_by_role("status")
    drafter = made.get_by_label("Drafter to diagnose")
    drafter.select_option("treeflash")  # goes on until it is stopped
    start.click()
    expect(status).to_contain_text("Diagnosing the drafter: layers + 1")
    made.get_by_role("button", name="Stop").click()
    expect(status).to_contain_text("Diagnosing the drafter: stopped")
    expect(made.get_by_role("button", name="Begin again")).to_be_visible()
    drafter.select_option("dart")
    start.click()
    rows = made.get_by_role("table", name="Signatures of mistakes").locator("tbody tr")
    expect(rows).to_have_count(9, timeout=30_000)
    expect(made.get_by_role("alert")).to_be_hidden()
    expect(rows.nth(1)).to_contain_text("layers + 1")
    cells = rows.nth(1).locator("td").all_inner_texts()
    assert cells == ["2.50", "3.00×", "0.400", "0.25", "–", "80", "fits better"]
    made.get_by_role("button", name="All 10 mistakes").click()
    expect(rows).to_have_count(11)
    assert rows.last.locator("th").inner_text() == "rope 8"
    expect(made.get_by_role("listitem").nth(1)).to_have_text("features help little")
    expect(made.get_by_role("listitem").nth(2)).to_contain_text("<img src=x onerror")
    assert page.evaluate("window.__pwned") is None
