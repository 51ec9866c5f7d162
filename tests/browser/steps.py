"""Steps of the browser tests on a page, and the places of its parts."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

from playwright.sync_api import Dialog, Locator, Page, Request, Route, expect

from app.page_files import PLOTLY, WEB

if TYPE_CHECKING:
    from app.studio.engine import LiveEngine
    from app.studio.runs import Runs

PROMPT, NODE = "#ds-prompt textarea", ".ds-node"
expect.set_options(timeout=30_000)  # ms: a slow machine measures runs for twenty seconds

Open = Callable[..., Page]


class Modules(BaseHTTPRequestHandler):
    """Answers with the view's modules below ``/web/``, and with pages that it was given."""

    protocol_version = "HTTP/1.1"
    pages: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        folder, _, name = self.path.removeprefix("/").partition("/")
        if folder == "web":
            file = PLOTLY if name == PLOTLY.name else WEB / name
            body, kind = file.read_bytes(), "text/javascript"
        else:
            body, kind = self.pages[int(folder)].encode(), "text/html; charset=utf-8"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        with suppress(ConnectionError):  # a page may close while it is answered
            super().handle()

    def log_message(self, *_: object) -> None:
        pass


@cache
def modules_at() -> str:
    """The address of this process's server of modules."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Modules)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def with_modules(page: Page, at: str = "", style: str = "", more: str = "") -> Page:
    """An empty page that can import the view's modules from ``/web/``, without any studio."""
    Modules.pages.append(f"<style>{style}</style>{more}<main></main>")
    page.goto(f"{modules_at()}{len(Modules.pages) - 1}{at}")
    return page


def frames(rest: int) -> str:
    """A wait in script for two frames and ``rest`` milliseconds.

    A browser without a screen seldom stops drawing frames; nothing else ends this wait then.
    """
    return f"""() => new Promise((done) => {{
      requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, {rest})));
      setTimeout(done, 10000);
    }})"""


FRAMES = frames(50)  # everything that follows from a new size of the window has been drawn


def asks(request: Request, name: str) -> bool:
    """Whether a request is a question to this route of the server, or has this field of an event's
    data."""
    asked = "/component_server/" in request.url or "/run/predict" in request.url
    return asked and f'"{name}"' in (request.post_data or "")


@contextmanager
def holding(page: Page, name: str) -> Iterator[list[Route]]:
    """Within, this route of the server is asked; the first question is answered by ``let_go``."""
    held: list[Route] = []

    def asked(route: Route) -> None:
        if not held and asks(route.request, name):
            held.append(route)
        else:
            route.continue_()

    with page.expect_request(lambda request: asks(request, name)):
        page.route("**/gradio_api/**", asked)
        yield held


def let_go(page: Page, held: list[Route], answer: object = None) -> None:
    """Answer a question that was held: as the server does, or with ``answer``."""
    (route,) = held
    with page.expect_response(lambda told: told.request == route.request) as told:
        route.continue_() if answer is None else route.fulfill(json=answer)
    told.value.finished()


def from_menu(place: Page | Locator, name: str, at: int = 0) -> Locator:
    """A button behind a "⋯", which is opened if it is not."""
    made = place.get_by_role("button", name=name, include_hidden=True).nth(at)
    menu = made.locator("xpath=ancestor::details[1]")
    if menu.get_attribute("open") is None:
        menu.locator("summary").click()
    return made


def watch(page: Page, faults: list[str], is_own: Callable[[str], bool]) -> Page:
    """Note what must not happen in a page: an error, a dialog, a request that leaves it."""

    def dismiss(dialog: Dialog) -> None:
        faults.append("a dialog")
        dialog.dismiss()

    def check(request: Request) -> None:
        if not is_own(request.url):
            faults.append(request.url)

    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", dismiss)
    page.on("request", check)
    return page


@contextmanager
def served(engine: LiveEngine, **options: Any) -> Iterator[str]:
    """A studio with this engine; its address."""
    from app.studio.runs import Runs

    with serving(Runs(engine), **options) as address:
        yield address


@contextmanager
def serving(runs: Runs, **options: Any) -> Iterator[str]:
    """A studio around these runs; its address."""
    from app.studio.server import launch

    server = launch(runs, "127.0.0.1", 0, **options)
    runs.start()
    try:
        yield server.address
    finally:
        runs.close()
        server.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def open_form(page: Page, prefix: str = "ds") -> None:
    """All settings of a form, below its bar."""
    if prefix == "ds":
        settle(page)  # the form takes the settings of the example on view once
    panel = page.locator(f"#{prefix}-panel")
    if "open" not in (panel.get_attribute("class") or "").split():
        page.locator(f"#{prefix}-open-settings").click()
    expect(page.locator(f"#{prefix}-settings")).to_be_visible()


FILLED = """() => {
  const said = document.querySelector("#ds-panel .ds-about q");
  const typed = localStorage.getItem("draftscope-typed-ds") === "yes";
  return typed || !said || document.querySelector("#ds-prompt textarea").value === said.textContent;
}"""
TICKETS = "sessionStorage.getItem('draftscope-tickets-run')"
COMPARED = "sessionStorage.getItem('draftscope-tickets-compare')"


def run(page: Page, prompt: str, budget: int = 64, wait: str = "done") -> None:
    settle(page)
    before = page.evaluate(TICKETS)
    page.locator(PROMPT).fill(prompt)
    open_form(page)
    page.locator("#ds-budget label", has_text=re.compile(rf"^\s*{budget}\s*$")).click()
    page.locator("#ds-start").click()
    page.wait_for_function(f"(before) => {TICKETS} !== before", arg=before)
    expect(state(page)).to_have_attribute("data-state", wait)


def settle(page: Page) -> None:
    """The page has opened on its example, or says why it shows nothing."""
    seen = ".ds-banner:visible, .ds-node:not(.out):visible, .ds-chip.run:visible"
    expect(page.locator(seen).first).to_be_visible()
    page.wait_for_function(FILLED)


def choose(page: Page, title: str) -> None:
    """A method by its title; its options have come when the inputs are there."""
    open_form(page)
    page.locator("#ds-method label", has_text=re.compile(rf"^\s*{title}\s*$")).click()


def pick(page: Page, box: str, option: str) -> None:
    """An entry of a dropdown."""
    page.locator(f"{box} input").first.click()
    page.get_by_role("option", name=option, exact=True).last.click()
    expect(page.locator("[role=option][data-testid=dropdown-option]")).to_have_count(0)


def tab(page: Page, name: str) -> None:
    page.locator(f"#ds-views [role=tab][data-tab-id={name}]").click()


def compare(page: Page, prompt: str, *titles: str, wait: str = "done") -> None:
    """Methods on one prompt, in the tab Compare, until all are done."""
    tab(page, "compare")
    page.wait_for_function(COMPARED)  # it opens on an example
    open_form(page, "ds-c")
    for letter, title in zip("abcd", (*titles, "none", "none")[:4], strict=False):
        if page.locator(f"#ds-slot-{letter} input").first.input_value() != title:
            pick(page, f"#ds-slot-{letter}", title)
    before = page.evaluate(COMPARED)
    page.locator("#ds-c-prompt textarea").fill(prompt)
    page.locator("#ds-c-start").click()
    page.wait_for_function(f"(before) => {COMPARED} !== before", arg=before)
    expect(state(page)).to_have_count(len(titles))
    if wait == "done":
        for chip in range(len(titles)):
            expect(state(page).nth(chip)).to_have_attribute("data-state", "done")


def state(page: Page) -> Locator:
    """The runs' chips in the tab that is open."""
    return page.locator(".ds-chip.run:visible")


def title(page: Page) -> Locator:
    return page.locator(".ds-round-title:visible")


def at_round(number: int) -> re.Pattern[str]:
    return re.compile(rf"^Round {number} ")


def open_file(page: Page, path: Path, button: str = "") -> None:
    """By a button, or by the menu beside the prompt."""
    opens = page.locator(button) if button else None
    with page.expect_file_chooser() as chosen:
        (opens or from_menu(page.locator(".ds-status:visible"), "Open a file…")).click()
    chosen.value.set_files(path)


DRAGGED = """([type, files]) => {
  const data = new DataTransfer();
  for (const [name, kind, bytes] of files) {
    const unpacked = Uint8Array.from(atob(bytes), (each) => each.charCodeAt(0));
    data.items.add(new File([unpacked], name, { type: kind }));
  }
  const init = { bubbles: true, cancelable: true, dataTransfer: data };
  document.querySelector("#ds-views").dispatchEvent(new DragEvent(type, init));
}"""


def drag(page: Page, event: str, *files: Path | tuple[str, str, bytes]) -> None:
    """An event of dragging files: paths, or (name, type, bytes)."""
    told = [(f.name, "", f.read_bytes()) if isinstance(f, Path) else f for f in files]
    packed = [(name, kind, base64.b64encode(data).decode()) for name, kind, data in told]
    page.evaluate(DRAGGED, [event, packed])
