"""The shelf with traces from the command line: one opens, two are compared, by hand or by link."""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")

from playwright.sync_api import Browser, Page, expect

from analysis.numbers import number
from app.trace_files import TraceFiles, find_traces
from core import ASSETS
from core.files import by_name
from core.traces.reader import read_ends, read_trace
from core.traces.writer import TraceWriter
from tests.browser.steps import Open, at_round, served, state, tab, title
from tests.helpers.fakes import FakeEngine, make_header, make_run

HOSTILE = "<img src=x onerror=window.__pwned=1>.jsonl.gz"
GROUP = "From the command line"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TraceFiles:
    """A sweep's folder with two traces, one of them under a hostile name, and two broken files."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "traces").mkdir()
    for name, to in (("chat-ar", HOSTILE), ("chat-dart", "dart.jsonl.gz")):
        shutil.copy(ASSETS / "traces" / f"{name}.jsonl.gz", folder / "traces" / to)
    (folder / "prompts.jsonl").write_text('{"prompt": "x"}\n')
    with gzip.open(ASSETS / "traces" / "chat-ar.jsonl.gz") as whole:
        (folder / "broken.jsonl").write_bytes(whole.readline() + b'{"kind":"round","index":0}\n')
    os.utime(folder / "broken.jsonl", (0, 0))  # nobody writes to it any more
    return find_traces([folder])


@pytest.fixture(scope="module")
def address(files: TraceFiles) -> Iterator[str]:
    with served(FakeEngine(), files=files) as found:
        yield found


def test_one_opens_and_two_are_compared(visit: Open, files: TraceFiles):
    page = visit()
    group = page.get_by_role("region", name=GROUP).locator("visible=true")
    names = ["broken.jsonl", "prompts.jsonl", f"traces/{HOSTILE}", "traces/dart.jsonl.gz"]
    expect(group.locator(".ds-example b")).to_have_text(names)
    expect(page.locator(".ds-shelf:visible h3").first).to_have_text(GROUP)  # above what ships
    legend = page.locator("#ds-scope .ds-legend")
    expect(legend).to_be_hidden()  # there is no tree, and it would lie over the list
    other, broken = group.locator(".ds-example").nth(1), group.locator(".ds-example").first
    expect(other).to_be_disabled()
    expect(other).to_contain_text("not a Draftscope trace")
    expect(broken).to_contain_text("Plain · interrupted")
    broken.click()
    expect(broken).to_contain_text("broken.jsonl, line 2")  # and the shelf stays
    footer = read_trace(ASSETS / "traces" / "chat-dart.jsonl.gz").footer or {}
    tau = f"τ {number(footer['tau'])}"  # it comes when the file is read
    expect(group).to_contain_text(f"DART B 16 · {tau}")
    group.get_by_role("button", name="onerror").click()
    expect(state(page)).to_have_text("recorded")
    expect(legend).to_be_visible()
    expect(page.locator(".ds-about:visible")).to_contain_text("Plain")
    opened = next(file.name for file in files.files if HOSTILE in file.label)
    expect(page).to_have_url(f"{page.url.split('#')[0]}#trace={opened}&round=1")
    _compare(page)
    expect(page).to_have_url(re.compile(r"#trace=file-\w+,file-\w+&.*view=compare"))
    page.reload()  # the address names both
    expect(state(page)).to_have_text(["A: recorded", "B: recorded"])


def _compare(page: Page) -> None:
    """Both from the dialog of the tab Compare, which gives ticks."""
    tab(page, "compare")
    page.get_by_role("button", name="Examples", exact=True).locator("visible=true").click()
    shelf = page.get_by_role("dialog", name="Examples and runs")
    ticks = shelf.get_by_role("checkbox")
    expect(ticks).to_have_count(3)
    together = shelf.get_by_role("button", name="Compare the")
    ticks.nth(1).check()
    expect(together).to_have_count(0)
    ticks.last.check()
    together.click()
    expect(shelf).to_be_hidden()
    expect(state(page)).to_have_text(["A: recorded", "B: recorded"])


def test_the_address_of_one_file_opens_it(visit: Open, address: str, files: TraceFiles):
    page = visit(f"{address}/#trace={files.files[-1].name}")
    expect(state(page)).to_have_text("recorded")
    expect(page.locator(".ds-about:visible")).to_contain_text("DART")


def test_a_run_that_a_server_writes_is_listed_and_followed_as_it_comes(
    browser: Browser, tmp_path: Path
):
    rounds = make_run(3)
    shutil.copy(ASSETS / "traces" / "chat-ar.jsonl.gz", tmp_path / "before.jsonl.gz")
    with served(FakeEngine(), files=find_traces([tmp_path])) as address:
        page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        page.goto(address)
        group = page.get_by_role("region", name=GROUP).locator("visible=true")
        expect(group.locator(".ds-example")).to_have_count(1)
        asked = make_header("<|im_start|>user\nnow?<|im_end|>\n", "ddtree")
        writer = TraceWriter(tmp_path / "now.jsonl.gz", asked)
        writer.write(rounds[0])
        new = group.get_by_role("button", name="now.jsonl.gz")
        expect(new).to_contain_text("being written")
        expect(new.locator("span").last).to_have_text("now?")
        new.click()
        expect(title(page)).to_have_text(at_round(1))
        expect(state(page)).to_have_text("being written")
        writer.write(rounds[1])
        expect(title(page)).to_have_text(at_round(2))  # the newest round is on view
        writer.write(rounds[2])
        writer.finish()
        expect(title(page)).to_have_text(at_round(3))
        expect(state(page)).to_have_text("recorded")


def test_the_files_that_accepted_least_come_first_where_that_is_asked(
    browser: Browser, tmp_path: Path
):
    for path in sorted((ASSETS / "traces").glob("chat-*.jsonl.gz"))[:13]:
        shutil.copy(path, tmp_path)
    taus = {path.name: read_ends(path).footer["tau"] for path in tmp_path.iterdir()}
    with served(FakeEngine(), files=find_traces([tmp_path])) as address:
        page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        page.goto(address)
        group = page.get_by_role("region", name=GROUP).locator("visible=true")
        group.get_by_role("button", name="Lowest τ first").click()
        names = group.locator(".ds-example b")
        expect(names).to_have_text(sorted(sorted(taus), key=taus.__getitem__))
        group.get_by_role("button", name="Lowest τ first").click()
        expect(names).to_have_text(sorted(taus, key=by_name))
