"""Files dropped anywhere on the page, or chosen: each opens in its tab, or the page says what it
seems to be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")

from playwright.sync_api import Locator, Page, expect

from analysis.collected.calibration import TABLE
from analysis.table_files import CSV, PARQUET, table_bytes
from app.page_files import WEB
from app.studio.files import MAX_UPLOAD
from core import ASSETS
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.browser.steps import NODE, PROMPT, Open, drag, from_menu, settle, tab, title
from tests.helpers.collected_toys import table
from tests.helpers.engine_answers import VLLM
from tests.helpers.engine_logs import LOGS
from tests.helpers.fakes import make_header

pytestmark = pytest.mark.browser

TRACES = ASSETS / "traces"


def said(page: Page) -> Locator:
    return page.locator(".ds-drop-said p")


def test_step_times_say_which_draft_of_the_run_pays_with_flags_to_paste(visit: Open):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    tab(page, "compare")  # Run keeps the example that the page opened
    settle(page)
    drag(page, "drop", TRACES / "chat-dflash.jsonl.gz")
    expect(said(page)).to_have_text("chat-dflash.jsonl.gz: opened in Compare")
    drag(page, "drop", ("steps.csv", "text/csv", b"tokens,ms\n1,10\n4,10.5\n8,11\n"))
    report = page.get_by_role("region", name="An opened file")
    words = "pays at which batch, of dflash: the rounds of chat-dflash.jsonl.gz, with"
    expect(report).to_contain_text(words)
    expect(report).to_contain_text("Batch 1: K = ")
    flags = report.locator("code").filter(has_text="--speculative-config")
    report.get_by_role("button", name="Copy the flags of vLLM").click()
    expect(report.get_by_role("button", name="Copy the flags of vLLM")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == flags.text_content()


def test_step_times_are_of_the_counts_that_results_shows(visit: Open):
    page = visit()
    settle(page)
    drag(page, "drop", ("vllm.json", "application/json", json.dumps(VLLM).encode()))
    report = page.get_by_role("region", name="An opened file")
    expect(report).to_contain_text("vllm.json")
    steps = ("steps.csv", "text/csv", b"tokens,ms\n1,10\n4,10.5\n8,11\n")
    drag(page, "drop", steps)
    expect(report).to_contain_text("the counts that were open here, with")
    tab(page, "run")  # whose run is looked at from now on
    page.wait_for_function("sessionStorage.getItem('draftscope-looked') === 'run'")
    drag(page, "drop", steps)
    expect(report).not_to_contain_text("the counts that were open here")


def test_a_trace_opens_in_run_and_focus_stays(visit: Open):
    page = visit()
    settle(page)
    tab(page, "results")
    page.locator("#ds-theme").focus()
    drag(page, "dragenter", TRACES / "code-dart.jsonl.gz")
    expect(page.locator(".ds-drop")).to_be_visible()
    drag(page, "drop", TRACES / "code-dart.jsonl.gz")
    expect(page.locator(".ds-drop")).to_be_hidden()
    expect(said(page)).to_have_text("code-dart.jsonl.gz: opened in Run")
    expect(page.locator("#ds-panel .ds-about")).to_contain_text("DART B 16 · smollm2-135m")
    expect(page.locator(f"{NODE}.root:visible").first).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "ds-theme"
    heard = page.locator(".ds-dropping [role=status]")
    expect(heard).to_have_text("code-dart.jsonl.gz: opened in Run")


def test_several_traces_open_side_by_side_and_one_more_beside_them(visit: Open):
    page = visit()
    settle(page)
    drag(page, "drop", *(TRACES / f"chat-{name}.jsonl.gz" for name in ("dart", "hydra")))
    expect(said(page)).to_have_text("2 traces: opened in Compare")
    panes = page.locator("#ds-view-compare .ds-pane")
    expect(panes).to_have_count(2)
    expect(panes.first.locator(f"{NODE}.root")).to_be_visible()
    drag(page, "drop", TRACES / "chat-dflash.jsonl.gz")  # Compare is on view
    words = "chat-dflash.jsonl.gz: opened in Compare"
    expect(said(page)).to_have_text(words, timeout=60_000)  # two trees were just drawn
    expect(panes).to_have_count(3)


def test_a_trace_without_rounds_is_said_to_have_none(visit: Open, tmp_path: Path):
    trace = Trace(make_header("Say nothing."), (), {"text": "<b>Ok."})
    write_trace(tmp_path / "t.jsonl", trace)
    page = visit()
    settle(page)
    drag(page, "drop", tmp_path / "t.jsonl")
    words = "This run has no rounds: it ended before the first one; its text is “<b>Ok.”."
    expect(page.locator("#ds-view-run .ds-away")).to_have_text(words)
    expect(page.locator("#ds-view-run .ds-empty")).to_be_hidden()
    expect(page.locator(PROMPT)).to_have_value("Say nothing.")
    tab(page, "calibration")
    said_there = page.locator("#ds-view-calibration .ds-banner:visible")
    expect(said_there).to_have_text("without rounds so far, and left out: t.jsonl")
    tab(page, "compare")
    settle(page)
    drag(page, "drop", tmp_path / "t.jsonl", TRACES / "chat-dflash.jsonl.gz")
    expect(page.locator("#ds-view-compare .ds-away").first).to_have_text(words)


def test_files_that_one_tab_does_not_take_are_named(visit: Open):
    page = visit()
    settle(page)
    dart, log = TRACES / "chat-dart.jsonl.gz", LOGS["vLLM, 2025"].encode()
    drag(page, "drop", dart, ("a.log", "", log), ("b.log", "", log))
    words = "chat-dart.jsonl.gz: opened in Run; 2 more are not opened: drop them by themselves"
    expect(said(page)).to_have_text(words)
    drag(page, "drop", ("a.log", "", log), ("b.log", "", log))
    words = "a.log: sent to Results; 1 more is not opened: drop it by itself"
    expect(said(page)).to_have_text(words)


def test_more_traces_than_are_listed_are_measured_together(visit: Open):
    page = visit()
    settle(page)
    trace = (TRACES / "chat-dflash.jsonl.gz").read_bytes()
    drag(page, "drop", ("notes.txt", "", b""), *((f"{n}.jsonl.gz", "", trace) for n in range(26)))
    words = "26 traces: together in Results; 24 are listed under Examples; 1 file left out"
    expect(said(page)).to_have_text(words)
    report = page.get_by_role("region", name="An opened file")
    expect(report).to_contain_text("The rounds of 26 traces together")
    expect(report.get_by_role("row", name="acceptance at 6")).to_contain_text("≥ 7 ÷ drafts")


def test_traces_that_do_not_stand_side_by_side_are_measured_together(visit: Open):
    page = visit()
    settle(page)
    names = ("dart", "hydra", "medusa", "pld", "dflash")
    drag(page, "drop", *(TRACES / f"chat-{name}.jsonl.gz" for name in names))
    expect(said(page)).to_have_text("5 traces: listed in Compare, under Examples", timeout=60_000)
    page.get_by_role("button", name="Measure them together").click()
    report = page.get_by_role("region", name="An opened file")
    expect(report).to_contain_text("The rounds of 5 traces together")
    for name in names:
        expect(report.get_by_role("row", name=name).first).to_be_visible()
    expect(page.get_by_role("dialog", name="Examples and runs")).to_have_count(0)


def test_a_fifth_run_is_listed_where_compare_has_four(visit: Open):
    page = visit()
    settle(page)
    names = ("dart", "hydra", "medusa", "pld")
    drag(page, "drop", *(TRACES / f"chat-{name}.jsonl.gz" for name in names))
    expect(page.locator("#ds-view-compare .ds-pane")).to_have_count(4)
    expect(said(page)).to_have_text("4 traces: opened in Compare")
    drag(page, "drop", TRACES / "chat-dflash.jsonl.gz")
    words = "chat-dflash.jsonl.gz: listed in Compare, under Examples"
    expect(said(page)).to_have_text(words, timeout=60_000)


def test_why_a_table_is_refused_stays_to_be_read_until_a_good_one_and_a_log_open(visit: Open):
    page = visit()
    settle(page)
    head = table_bytes(table(), CSV).splitlines()[0]
    drag(page, "drop", (f"{TABLE}.csv", "text/csv", head + b"\n"))
    expect(said(page)).to_have_text(f"{TABLE}.csv: sent to Calibration")
    shown = page.locator("#ds-view-calibration")
    expect(shown.get_by_role("region", name="Findings of A")).to_be_visible()
    expect(shown.locator(".ds-banner:visible")).to_contain_text("it lacks rows")
    name = f"{TABLE}.parquet"
    drag(page, "drop", (name, "", table_bytes(table(), PARQUET)))
    expect(said(page)).to_have_text(f"{name}: sent to Calibration")
    expect(page.get_by_label("A calibrate result")).to_contain_text("anchors, seeds 0, 1")
    expect(shown.locator(".ds-banner:visible")).to_have_count(0)
    drag(page, "drop", ("vllm.log", "text/plain", LOGS["vLLM, 2025"].encode()))
    expect(said(page)).to_have_text("vllm.log: sent to Results")
    report = page.get_by_role("region", name="An opened file")
    expect(report).to_contain_text("[0.46, 0.63]")
    expect(report).to_contain_text("45.7% of 129 drafts end at place 1")


def test_a_collected_text_opens_in_what_if(visit: Open):
    page = visit()
    settle(page)
    drag(page, "drop", ASSETS / "collected" / "fibonacci.safetensors")
    expect(said(page)).to_have_text("fibonacci.safetensors: sent to What-if")
    listed = page.locator("#ds-view-whatif").get_by_label("Collected text").locator("visible=true")
    expect(listed.locator("option:checked").first).to_have_text("fibonacci.safetensors")


def test_collected_texts_that_are_dropped_together_are_one_curve(visit: Open):
    page = visit()
    settle(page)
    files = sorted((ASSETS / "collected").glob("*.safetensors"))[:3]
    drag(page, "drop", *files)
    expect(said(page)).to_have_text("3 collected texts: sent to What-if")
    view = page.locator("#ds-view-whatif")
    expect(view).to_contain_text("Curve of τ over 3 texts, with a band")
    listed = view.get_by_label("Collected text").locator("visible=true")
    expect(listed.locator("option:checked").first).to_have_text(files[0].name)
    expect(view.locator(".ds-more-texts input:checked")).to_have_count(2)


def test_what_opens_nowhere_is_named_and_what_was_on_view_stays(visit: Open):
    page = visit()
    settle(page)
    before = title(page).inner_text()
    for name, kind, data, sentence in (
        ("a.pdf", "application/pdf", b"%PDF-1.7\n", "a.pdf seems to be a PDF"),
        ("<b>x.html", "text/html", b"<!doctype html><p>", "seems to be a web page"),
        ("m.bin", "", b"\x80\x04\x95K.", "seems to be a pickle"),
        ("empty.jsonl", "", b"\n", "empty.jsonl is empty"),
        ("cut.jsonl", "", b'{"format": "draftscope-trace"}\n', "cut.jsonl"),
    ):
        drag(page, "drop", (name, kind, data))
        expect(said(page)).to_contain_text(sentence)
        expect(page.locator(".ds-drop-said")).to_have_class(re.compile("wrong"))
        assert title(page).inner_text() == before
        page.get_by_role("button", name="Close this message").click()
        expect(said(page)).to_be_hidden()


def test_the_menu_opens_files_and_a_folder_by_the_keyboard(visit: Open, tmp_path: Path):
    page = visit()
    settle(page)
    with page.expect_file_chooser() as chosen:
        from_menu(page.locator("#ds-view-run"), "Open a file…").press("Enter")
    chosen.value.set_files(TRACES / "chat-dart.jsonl.gz")
    expect(said(page)).to_have_text("chat-dart.jsonl.gz: opened in Run")
    expect(page.locator("#ds-view-run details.ds-menu[open]")).to_have_count(0)
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "notes.txt").write_text("hello")
    names = ("dart", "dflash", "hydra", "medusa", "pld")
    for each in names:
        (folder / f"{each}.jsonl.gz").write_bytes((TRACES / f"chat-{each}.jsonl.gz").read_bytes())
    with page.expect_file_chooser() as chosen:
        from_menu(page.locator("#ds-view-run"), "Open a folder…").press("Enter")
    chosen.value.set_files(folder)
    expect(said(page)).to_have_text("5 traces: listed in Compare, under Examples")
    shelf = page.get_by_role("dialog", name="Examples and runs").locator("visible=true")
    listed = shelf.get_by_label("Opened in this tab").locator("button")
    expect(listed).to_have_count(7)  # with the example and the trace before
    expect(listed.filter(has_text="medusa.jsonl.gz")).to_contain_text("round")
    expect(shelf.locator(".ds-drop-said")).to_be_visible()  # over the list
    name = "story-dart.jsonl.gz"
    drag(page, "drop", (name, "application/gzip", (TRACES / name).read_bytes()))
    expect(said(page)).to_contain_text(f"{name}: opened in Compare")
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_the_page_says_the_servers_limit_and_what_a_drag_may_be(visit: Open):
    assert f"const LARGEST = {MAX_UPLOAD >> 20};" in (WEB / "drop.js").read_text()
    page = visit()
    settle(page)
    drag(page, "dragenter", ("a.png", "image/png", b"x"))
    expect(page.locator(".ds-drop.foreign")).to_be_visible()
    drag(page, "dragenter", ("a.csv", "text/csv", b"x"))
    expect(page.locator(".ds-drop.foreign")).to_have_count(0)
    likely = page.locator(".ds-drop li.likely b")
    expect(likely).to_have_text(["Calibration", "Results", "Results"])
    page.evaluate("window.dispatchEvent(new DragEvent('dragleave'))")
    expect(page.locator(".ds-drop")).to_be_hidden()
    data = json.dumps({"prompt": "text that is dragged is not a file"})
    page.evaluate(
        """(text) => {
          const data = new DataTransfer();
          data.setData("text/plain", text);
          window.dispatchEvent(new DragEvent("dragenter", { dataTransfer: data }));
        }""",
        data,
    )
    expect(page.locator(".ds-drop")).to_be_hidden()
