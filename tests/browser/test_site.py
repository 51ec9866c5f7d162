"""A site and an embedded run, opened from disk: nothing goes wrong and nothing is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Browser, Page, expect

from analysis.measures.tables import Tables
from analysis.numbers import number
from app.export.packs import packed_run
from app.export.site import write_site
from app.trace_files import find_traces
from app.view.comparison import CAUTIONS, apart, comparison_view
from app.view.statistics import depth_records, numbers_only
from core.lines import LIMITS
from core.methods.registry import shown_title
from core.traces.schema import Trace, summary
from core.traces.writer import write_trace
from tests import ROOT
from tests.browser.axe_core import check
from tests.browser.steps import NODE, at_round, title, watch, with_modules
from tests.helpers.fakes import HOSTILE, make_header, make_run

pytestmark = pytest.mark.browser

Visit = Callable[..., Page]
NAMES = ("ddtree", "dart", "hydra", "other", "hostile")


def traces() -> dict[str, Trace]:
    made = {
        name: Trace(make_header("why?", name), tuple(make_run(6, 16 + 4 * at)), {})
        for at, name in enumerate(NAMES[:3])
    }
    warm = make_header("how?", "ddtree", sampling={"temperature": 0.7, "seed": 3})
    made["other"] = Trace(replace(warm, seed=3), tuple(make_run(4, 8)), None)
    made["hostile"] = Trace(make_header(HOSTILE[0]), tuple(make_run(3, 64, True)), {})
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of five runs, one with hostile texts and a hostile name."""
    runs = tmp_path_factory.mktemp("runs")
    for name, trace in traces().items():
        file = f"<b>{name}&'.jsonl.gz" if name == "hostile" else f"{name}.jsonl.gz"
        write_trace(runs / file, trace)
    written = write_site(runs / "site", find_traces([runs]).files, LIMITS)
    assert written.runs == len(NAMES) and not written.left_out
    return runs / "site"


@pytest.fixture
def visit(browser: Browser, folder: Path) -> Iterator[Visit]:
    """Opens a file of the folder from disk."""
    faults: list[str] = []
    contexts = []

    def open_page(file: str = "index.html", hash_: str = "", **options) -> Page:
        options.setdefault("viewport", {"width": 1400, "height": 900})
        context = browser.new_context(accept_downloads=True, offline=True, **options)
        contexts.append(context)
        inside = (folder.as_uri() + "/", "data:", "blob:", "about:srcdoc")
        page = watch(context.new_page(), faults, lambda url: url.startswith(inside))
        page.on("console", lambda said: faults.extend([said.text] * (said.type == "error")))
        page.goto((folder / file).as_uri() + hash_)
        return page

    yield open_page
    pwned = [f.evaluate("window.__pwned") for c in contexts for p in c.pages for f in p.frames]
    for context in contexts:
        context.close()
    assert not faults and not any(pwned)


def lines(page: Page):
    return page.locator(".ds-site-runs tbody tr:visible")


def go_to_list(page: Page) -> None:
    page.get_by_role("button", name="Runs", exact=True).click()


def test_from_the_list_to_a_run_and_to_a_comparison(visit: Visit):
    page = visit()
    expect(lines(page)).to_have_count(len(NAMES))
    cells = lines(page).filter(has_text="hydra.jsonl.gz").locator("td, th").all_inner_texts()
    numbers = summary(traces()["hydra"].rounds)
    shown = [number(numbers["tau"]), str(numbers["tokens"]), str(numbers["rounds"]), "why?"]
    shown.insert(-1, "")  # the bars of its rounds
    assert cells[3:] == ["–", *shown]  # its header tells no temperature
    assert cells[1].split() == ["Hydra", "hydra.jsonl.gz"]
    expect(lines(page).filter(has_text="other.jsonl.gz").locator("td").nth(2)).to_have_text("0.7")
    page.get_by_label("Filter the runs").fill("dart")
    expect(lines(page)).to_have_count(1)
    expect(page.get_by_role("status").filter(has_text="1 of 5 runs")).to_be_visible()
    lines(page).get_by_role("button").click()
    expect(title(page)).to_have_text(at_round(1))
    expect(page).to_have_url(re.compile(r"#trace=run-[0-9a-f]{16}"))
    page.keyboard.press("ArrowRight")
    expect(title(page)).to_have_text(at_round(2))
    page.locator(f"{NODE}.ghost:visible").click()
    expect(page.locator(".ds-inspector:visible .ds-top li")).to_have_count(20)

    go_to_list(page)
    expect(title(page)).to_have_count(0)
    page.get_by_label("Filter the runs").fill("")
    for name in ("ddtree", "dart", "hydra"):
        page.get_by_label(f"Tick {name}.jsonl.gz").check()
    page.get_by_role("button", name="Compare the 3 ticked").click()
    expect(page.locator(".ds-pane:visible")).to_have_count(3)
    expect(page.locator(".ds-place")).to_contain_text("Token 5 of")  # where round 2 begins
    page.go_back()
    expect(lines(page)).to_have_count(len(NAMES))
    page.go_forward()
    expect(page.locator(".ds-pane:visible")).to_have_count(3)


def test_a_link_opens_its_round_and_one_to_nothing_says_so(visit: Visit):
    page = visit()
    lines(page).filter(has_text="hydra.jsonl.gz").get_by_role("button").click()
    expect(title(page)).to_have_text(at_round(1))
    hash_ = page.evaluate("location.hash").split("&")[0]
    other = visit(hash_=f"{hash_}&round=3&node=2")
    expect(title(other)).to_have_text(at_round(3))
    expect(other.locator(f"{NODE}.selected")).to_have_attribute("data-row", "2")
    for wrong in (
        "#trace=run-0123456789abcdef",
        "#trace=../../x",
        "#view=constructor",
        "#view=run",
    ):
        lost = visit(hash_=wrong)
        expect(lines(lost)).to_have_count(len(NAMES))
        says = lost.get_by_role("alert").filter(has_text="names a run that is not here")
        expect(says).to_have_count(1 if "run-" in wrong else 0)


def test_runs_are_sorted_by_a_number(visit: Visit):
    page = visit()
    tokens = page.locator(".ds-site-runs tbody td:nth-child(6)")
    before = tokens.all_inner_texts()
    for order in (True, False):
        page.get_by_role("button", name="tokens").click()
        values = [int(text) for text in tokens.all_inner_texts()]
        assert values == sorted(values, reverse=order)
    page.get_by_role("button", name="tokens").click()
    assert tokens.all_inner_texts() == before


def test_a_bar_opens_its_round_and_a_prompt_is_shown_once(visit: Visit):
    page = visit()
    prompts = lines(page).locator(".ds-site-prompt")
    shown = lines(page).locator(".ds-site-prompt:not(.same)")
    texts = prompts.all_inner_texts()
    begin = [text for at, text in enumerate(texts) if not at or text != texts[at - 1]]
    assert shown.all_inner_texts() == begin and len(begin) < len(texts)
    page.get_by_label("Filter the runs").fill("hydra")
    expect(shown).to_have_text("why?")
    line = lines(page)
    width = line.locator("svg").bounding_box()["width"]
    line.locator("svg").click(position={"x": width * 2.5 / 24, "y": 10})
    expect(title(page)).to_have_text(at_round(3))


def test_a_bar_of_a_long_run_opens_the_first_of_its_rounds(browser: Browser, tmp_path: Path):
    write_trace(tmp_path / "long.jsonl.gz", Trace(make_header(), tuple(make_run(200, 4)), None))
    write_site(tmp_path / "site", find_traces([tmp_path]).files, LIMITS)
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto((tmp_path / "site" / "index.html").as_uri())
    cell = page.get_by_title("a bar is the mean of 3 rounds")
    bars = cell.locator("svg")
    width = bars.bounding_box()["width"]
    bars.click(position={"x": width * 2.5 / 67, "y": 10})
    expect(title(page)).to_have_text(at_round(7))
    page.close()


def test_hostile_runs_stay_text(visit: Visit):
    page = visit()
    expect(page.locator(".ds-site-run", has_text="<b>hostile&'")).to_be_visible()
    page.locator(".ds-site-run", has_text="hostile").click()
    expect(page.locator(f"{NODE}.root:visible")).to_have_count(1)
    page.locator(f"{NODE}.root:visible").click()
    for _ in range(6):
        page.keyboard.press("ArrowDown")
    expect(page.locator("main script, main img, main iframe, main b b")).to_have_count(0)


def test_the_course_is_there_and_a_step_has_a_link(visit: Visit):
    page = visit()
    page.get_by_role("button", name="Learn", exact=True).click()
    expect(page.locator(".ds-kicker")).to_contain_text("Chapter 1 of 11")
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(r"#learn=1\.2$"))
    expect(visit(hash_="#learn=3.2").locator(".ds-kicker")).to_contain_text("Chapter 3 of 11")


def test_dark_and_a_phone(visit: Visit):
    page = visit(color_scheme="dark", viewport={"width": 390, "height": 800})
    expect(page.locator("body.dark")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".ds-site-run").first.click()
    expect(page.locator(f"{NODE}.root:visible")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("wide, letters", [(360, 16), (390, 16), (360, 24), (600, 16)])
def test_all_numbers_of_the_list_are_in_a_narrow_window(visit: Visit, wide: int, letters: int):
    page = visit(viewport={"width": wide, "height": 740}, has_touch=True)
    browser = page.context.new_cdp_session(page)
    browser.send("Page.setFontSizes", {"fontSizes": {"standard": letters}})
    page.reload()
    expect(page.locator(".ds-site-run").first).to_be_visible()
    table = page.locator(".ds-site-list .ds-table")
    assert table.evaluate("(box) => box.scrollWidth <= box.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    heads, numbers = (
        [cell.bounding_box() for cell in page.locator(f".ds-site-runs {at}").all()]
        for at in ("thead th[aria-sort]", "tbody tr:first-child > td:not(:first-child)")
    )
    for head, number_ in zip(heads, numbers, strict=False):
        assert head and number_ and abs(head["x"] - number_["x"]) < 1
        assert number_["x"] + number_["width"] <= wide


def test_axe_finds_no_fault_in_the_list(visit: Visit, axe: Path):
    page = visit(bypass_csp=True, color_scheme="light")
    for name in ("ddtree", "dart"):
        page.get_by_label(f"Tick {name}.jsonl.gz").check()
    page.get_by_role("button", name="tokens").click()
    expect(page.get_by_role("button", name="Compare the 2 ticked")).to_be_visible()
    check(page, axe)


# ── an embedded run ──────────────────────────────────────────────────────────────────────────────


def test_the_example_of_the_document_shows_a_run(visit: Visit, folder: Path):
    """docs/share.md's page, with the name of a run that is there."""
    text = (ROOT / "docs" / "share.md").read_text("utf-8")
    (example,) = re.findall(r"```html\n(.*?)```", text, re.S)
    name = next((folder / "runs").iterdir()).name
    shown = re.sub(r"runs/run-[0-9a-f]{16}\.js", f"runs/{name}", example)
    assert shown.count(name) == 1
    (folder / "article.html").write_text(shown, "utf-8")
    page = visit("article.html")
    frame = page.frame_locator("draftscope-run iframe")
    expect(frame.locator(".ds-round-title")).to_have_text(at_round(2))
    frame.locator(f"{NODE}.root").click()
    expect(frame.locator(".ds-inspector")).to_be_visible()
    assert page.locator("draftscope-run iframe").get_attribute("sandbox") == (
        "allow-scripts allow-downloads"
    )
    page.evaluate(
        """src => document.body.insertAdjacentHTML(
          "beforeend", `<draftscope-run src="${src}"></draftscope-run>`)""",
        f"runs/{name}",
    )
    second = page.frame_locator("draftscope-run >> nth=1 >> iframe")
    expect(second.locator(".ds-round-title")).to_have_text(at_round(1))
    page.locator("draftscope-run").first.evaluate("element => element.removeAttribute('src')")
    expect(page.locator("draftscope-run p")).to_contain_text("needs src")


# ── what the page puts together ──────────────────────────────────────────────────────────────────

SEVERAL = """async ([packs, cautions, apart]) => {
  const { Pack } = await import("/web/offline/packs.js");
  const { comparisonOf, measuredOf } = await import("/web/offline/several.js");
  const runs = await Promise.all(packs.map((text) => new Pack(text).about()));
  const named = runs.map(({ header, measured }) => ({ method: header.method, measured }));
  return {
    compared: comparisonOf(runs.map((run) => run.facts), Object.entries(cautions), apart),
    measured: measuredOf(named, apart),
  };
}"""


@pytest.mark.parametrize("names", [NAMES[:1], NAMES[:2], NAMES[:4], ("other", "ddtree", "other")])
def test_several_packs_say_what_the_server_would(browser: Browser, names: tuple[str, ...]):
    runs = [traces()[name] for name in names]
    headers = [run.header for run in runs]
    context = browser.new_context()
    page = with_modules(context.new_page())
    words = apart(headers)
    told = page.evaluate(SEVERAL, [[packed_run(run) for run in runs], dict(CAUTIONS), words])
    context.close()
    assert told["compared"] == comparison_view(headers)
    lettered = dict(zip("ABCD", runs, strict=False))
    called = {
        at: f"{at} {shown_title(run.header.method)} {more}".rstrip()
        for (at, run), more in zip(lettered.items(), words, strict=True)
    }
    server = json.loads(json.dumps(depth_records(Tables.of(lettered), called)))
    assert told["measured"]["tau"] == server["tau"]
    assert told["measured"]["depths"] == server["depths"]
    for name, figure in server["figures"].items():
        assert shown(told["measured"]["figures"][name]) == shown(numbers_only(figure))


def shown(figure: dict) -> list:
    """Return what a figure's table shows: its words, and the points of each series."""
    series = [each["meta"] for each in figure["data"] if each["meta"].get("points")]
    return [figure["layout"], sorted(series, key=lambda meta: meta.get("choice", ""))]
