"""The studio's speed in a real browser, what a person waits for; with the fake engine, but
for what watching costs a real decode.

    python -m tests.bench.browser [PART …]

Prints one line a measure with its limit: medians of several tries, timed
in the page from the key press to the painted frame. Exit code 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from app.export.offline import offline_page
from app.studio.engine import LiveEngine, ModelChoice
from app.studio.run import DONE, ENDED
from app.studio.runs import Runs
from core.decoding.request import RunRequest
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.browser.conftest import FLAGS
from tests.browser.steps import (
    TICKETS,
    free_port,
    open_file,
    run,
    served,
    serving,
    settle,
    state,
)
from tests.helpers.fakes import FakeEngine, make_header, make_round, make_run, rounds_of
from tests.helpers.needs import CHROMIUM
from tests.helpers.processes import running

# From a key to the second frame after it: the first one has been painted then.
STEP = """(key) => new Promise((done) => {
  const start = performance.now();
  document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""
# How often the text grows; the frames of a tree that glides are no news.
UPDATES = """() => { window.updates = 0; new MutationObserver((seen) => {
    window.updates += seen.some(({ target }) => target.matches(".ds-strip"));
  }).observe(document.querySelector("#ds-scope"), { childList: true, subtree: true }); }"""
# When the first tree was painted, from the page's last byte on.
PICTURE = """(() => {
  const look = new MutationObserver(() => {
    if (!document.querySelector(".ds-node.root")) return;
    look.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const [page] = performance.getEntriesByType("navigation");
      window.picture = (performance.now() - page.responseEnd) / 1000;
    }));
  });
  look.observe(document, { childList: true, subtree: true });
})()"""
# From a word in the filter to the second frame after it.
FILTER = """(words) => new Promise((done) => {
  const boxes = [...document.querySelectorAll("[aria-label='Filter the rounds']")];
  const box = boxes.find((each) => each.offsetParent);
  const start = performance.now();
  box.value = words;
  box.dispatchEvent(new InputEvent("input", { bubbles: true }));
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""
# Whether the tree of another run than that of these tickets is drawn, and whether the table on view
# has so many rows; playwright's own locators would keep a page of 20,000 tokens busy for seconds.
DRAWN = f"(before) => {TICKETS} !== before && !!document.querySelector('.ds-node.root')"
ROWS = """(count) => [...document.querySelectorAll(".ds-rounds [role=grid]")].some(
  (grid) => grid.offsetParent && grid.getAttribute("aria-rowcount") === String(count))"""
# Frames a second while a pointer drags the tree to and fro for so many frames.
PAN = """(frames) => new Promise((done) => {
  const root = document.querySelector(".ds-node.root"), svg = root.closest("svg");
  const box = svg.getBoundingClientRect(), from = root.getBoundingClientRect().x;
  const [x, y] = [box.left + box.width / 2, box.top + 8];
  svg.setPointerCapture = () => {};
  const send = (type, clientX) => svg.dispatchEvent(new PointerEvent(type, {
    bubbles: true, pointerId: 1, buttons: type === "pointerup" ? 0 : 1, clientX, clientY: y,
  }));
  send("pointerdown", x);
  let count = 0, moved = false;
  const start = performance.now();
  const step = () => {
    const now = document.querySelector(".ds-node.root").getBoundingClientRect().x;
    moved ||= Math.abs(now - from) > 9;
    send("pointermove", x + 200 * Math.sin(count / 9));
    if (++count < frames) return requestAnimationFrame(step);
    send("pointerup", x);
    done(moved ? (1000 * count) / (performance.now() - start) : 0);
  };
  requestAnimationFrame(step);
})"""


# What a page does while a run is on, without drawing: it reads the stream of its news. It is there
# before the first run, as a page is.
LISTENER = """
import sys, urllib.request
for address in sys.stdin:
    for line in urllib.request.urlopen(address): pass
    print(flush=True)
"""
TALE, PAIRS = "Explain how a rainbow is made.", 5
STARTS = 5


@dataclass(frozen=True)
class Measure:
    name: str
    value: float
    limit: float
    unit: str
    least: bool = False  # the limit is the lowest value, not the highest

    @property
    def kept(self) -> bool:
        return self.value >= self.limit if self.least else self.value <= self.limit

    def __str__(self) -> str:
        sign = "ok" if self.kept else "MISSED"
        return f"{self.name:<46} {self.value:>9.1f} {self.unit:<3} limit {self.limit:g}  {sign}"


def opened(browser: Browser, address: str) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.add_init_script(PICTURE)
    page.goto(address)
    page.locator(".ds-scope").first.wait_for()
    return page


def starting(browser: Browser) -> Iterator[Measure]:
    """Seconds from the command to its address, to the first tree's place on the page that is opened
    then, and to a model that is ready, and those of the page opened once more, from its last byte
    to the first tree painted too; of the whole program, in processes of their own."""
    took: list[tuple[float, ...]] = []
    for _ in range(STARTS):
        start, port = time.monotonic(), free_port()
        order = [sys.executable, "-m", "app", "studio", "--port", str(port)]
        with running(order, stdout=subprocess.PIPE) as program:
            try:
                assert program.stdout is not None
                program.stdout.readline()
                address = time.monotonic() - start
                page = opened(browser, f"http://127.0.0.1:{port}")
                drawn = time.monotonic() - start
                chip = page.locator(".ds-chip").first
                expect(chip).to_have_text("model ready", timeout=240_000)
                ready, again = time.monotonic() - start, time.monotonic()
                page.reload()
                page.locator(".ds-scope").first.wait_for()
                reloaded = time.monotonic() - again
                page.wait_for_function("window.picture")
                took.append((address, drawn, ready, reloaded, page.evaluate("picture")))
                page.close()
            finally:
                program.terminate()
    columns = zip(*took, strict=True)
    address, drawn, ready, again, picture = (statistics.median(column) for column in columns)
    yield Measure("from the command to its address", address, math.inf, "s")
    yield Measure("from the command to the page drawn", drawn, 5, "s")
    yield Measure("from the command to the model ready", ready, math.inf, "s")
    yield Measure("the page once more", again, 1.5, "s")
    yield Measure("a recorded run painted after the page's HTML", picture, 1, "s")


def stepping(browser: Browser, folder: Path) -> Iterator[Measure]:
    """Trees of 1,024 nodes, and of 64, in the offline file: the view is the studio's."""
    for budget, limit, name in ((1024, 60, "1,024-node tree after its round is chosen"),
                                (64, 30, "one step at 64 nodes")):  # fmt: skip
        rounds = tuple(make_run(6, budget))
        path = folder / f"{budget}.html"
        path.write_text(offline_page([Trace(make_header(), rounds, {})]), encoding="utf-8")
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(path.as_uri())
        page.locator(".ds-node.root").wait_for()
        took = [page.evaluate(STEP, key) for key in ["ArrowRight", "ArrowLeft"] * 5]
        yield Measure(name, statistics.median(took), limit, "ms")
        page.close()


def panning(browser: Browser, folder: Path) -> Iterator[Measure]:
    """A tree of 1,024 nodes, among 500 rounds, dragged to and fro."""
    path = folder / "wide.html"
    rounds, root, position = list[Round](), 3, 12
    for index in range(500):
        budget = 1024 if index < 6 else 16
        made = make_round(index, budget, index, position, root, False, "ddtree", ())
        root, position = made.verdict.bonus, position + len(made.committed)
        rounds.append(made)
    path.write_text(offline_page([Trace(make_header(), tuple(rounds), {})]), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(path.as_uri())
    page.locator(".ds-node.root").wait_for()
    took = [page.evaluate(PAN, 120) for _ in range(5)]
    yield Measure("frames while a tree is dragged", statistics.median(took), 55, "/s", least=True)
    page.close()


def written(path: Path) -> float:
    """Write a trace of 5,000 rounds; seconds to read it again."""
    write_trace(path, Trace(make_header(), tuple(islice(rounds_of(16, False, 0), 5000)), {}))
    return _timed(lambda: read_trace(path))


def long_trace(browser: Browser, address: str, folder: Path) -> Iterator[Measure]:
    path = folder / "long.jsonl"
    with ProcessPoolExecutor(1, get_context("spawn")) as other:  # whose rounds are not the studio's
        took = other.submit(written, path).result()
    yield Measure("5,000 rounds read and checked", took, math.inf, "s")
    page = opened(browser, address)
    settle(page)  # on its example
    before = page.evaluate(TICKETS)
    start = time.monotonic()
    open_file(page, path)
    page.wait_for_function(DRAWN, arg=before, timeout=120_000)
    yield Measure("5,000 rounds opened: first tree on view", time.monotonic() - start, 1, "s")
    page.locator(".ds-switch:visible button", has_text="Rounds").click()
    page.wait_for_function(ROWS, arg=5001, timeout=120_000)
    yield Measure("5,000 rounds opened: all of them in the table", time.monotonic() - start, 4, "s")
    words = [f"accepted == {count} and depth > 1" for count in range(5)]
    took = [page.evaluate(FILTER, each) for each in words]
    yield Measure("a filter of 5,000 rounds", statistics.median(took), 100, "ms")
    page.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Measure("this process, engine and server included", memory, 500, "MB")


def streaming(browser: Browser, address: str) -> Iterator[Measure]:
    page = opened(browser, address)
    page.evaluate(UPDATES)
    start = time.monotonic()
    run(page, "a patient tale")
    seconds = time.monotonic() - start
    updates = page.evaluate("updates")
    assert updates, "nothing was seen: the page has other parts now"
    yield Measure("updates a second while streaming", updates / seconds, 10, "/s")
    page.close()


def eight_viewers(browser: Browser, address: str) -> Iterator[Measure]:
    """Eight pages at once: a slow run of the first, a run of each other one."""
    pages = [opened(browser, address) for _ in range(8)]
    took = [_timed(lambda: run(pages[0], "a patient tale")) for _ in range(2)]
    link = pages[0].evaluate("sessionStorage.getItem('draftscope-tickets-run')")
    yield Measure("one slow run with eight pages open", min(took), 60, "s")
    for page in pages[1:]:
        run(page, "hello")
    done = sum(state(page).first.get_attribute("data-state") == "done" for page in pages)
    yield Measure("pages of eight that did not get their run", 8 - done, 0, "")
    assert link
    for page in pages:
        page.close()


def cost_of_watching(browser: Browser) -> Iterator[Measure]:
    """Decoding seconds of a run of the embedded model that is watched, beside the same run with
    nobody looking; turn about, so that what else the machine does falls on both.

    The limit is for the streaming: somebody reads the news as a page does. The page that draws is
    another program, and where it draws on the cores that decode, it costs more.
    """
    runs = Runs(LiveEngine(ModelChoice(device="cpu")))
    order = [sys.executable, "-c", LISTENER]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with serving(runs) as address, subprocess.Popen(order, **pipes) as listener:
        page = opened(browser, address)
        expect(page.locator(".ds-chip").first).to_have_text("model ready", timeout=240_000)
        run(page, TALE)
        page.close()

        def heard() -> float:
            (ticket,) = runs.submit(RunRequest(TALE, max_new_tokens=64))
            assert listener.stdin is not None and listener.stdout is not None
            listener.stdin.write(f"{address}/events?of=rounds&run={ticket}.0\n")
            listener.stdin.flush()
            took = _decoding(runs, ticket)
            assert listener.stdout.readline(), "the stream of a run ends with it"
            return took

        def drawn() -> float:
            page = opened(browser, address)
            run(page, TALE, wait="running")
            tickets = page.evaluate("sessionStorage.getItem('draftscope-tickets-run')")
            took = _decoding(runs, tickets.split()[0])
            page.close()
            return took

        for name, watched, limit in (
            ("streaming a run", heard, 2),
            ("a page drawing it on the same cores", drawn, math.inf),
        ):
            ratios = []
            for _ in range(PAIRS):
                (ticket,) = runs.submit(RunRequest(TALE, max_new_tokens=64))
                alone = _decoding(runs, ticket)
                ratios.append(watched() / alone)
            cost = 100 * (statistics.median(ratios) - 1)
            yield Measure(f"{name}, of the decoding time", cost, limit, "%")


def _decoding(runs: Runs, ticket: str) -> float:
    """Seconds of all stages of a run, once it has ended."""
    watched = runs.get(ticket)
    assert watched is not None
    with runs.watching([ticket]):  # though nobody looks, it is not abandoned
        while watched.state not in ENDED:
            time.sleep(0.2)
    assert watched.state == DONE, watched.message
    return sum(record.times.total for record in watched.rounds)


def _timed(act: Callable[[], object]) -> float:
    start = time.monotonic()
    act()
    return time.monotonic() - start


# What can be measured of a browser, a studio's address and a folder for a while.
PARTS: dict[str, Callable[[Browser, str, Path], Iterator[Measure]]] = {
    "starting": lambda browser, _, __: starting(browser),
    "stepping": lambda browser, _, folder: stepping(browser, folder),
    "panning": lambda browser, _, folder: panning(browser, folder),
    "opening": long_trace,
    "streaming": lambda browser, address, _: streaming(browser, address),
    "viewers": lambda browser, address, _: eight_viewers(browser, address),
    "watching": lambda browser, _, __: cost_of_watching(browser),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.browser")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parts = parser.parse_args().parts or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {min(unknown)}; there are {', '.join(PARTS)}")
    found: list[Measure] = []
    engine: Any = FakeEngine()  # it speaks like a live one
    gc.set_threshold(50_000, 20, 50)  # as the studio has it, which runs in this process
    with (
        sync_playwright() as playwright,
        TemporaryDirectory() as folder,
        served(engine) as address,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for part in parts:
            for measure in PARTS[part](browser, address, Path(folder)):
                found.append(measure)
                print(measure, flush=True)
        browser.close()
    return int(not all(measure.kept for measure in found))


if __name__ == "__main__":
    sys.exit(main())
