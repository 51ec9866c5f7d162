"""Another site, open in the same browser, can neither start, read nor frame the studio."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")

from playwright.sync_api import expect

from app.studio.access import Access, RequestLimit, Token
from app.studio.runs import Runs
from tests.browser.conftest import FLAGS, LOADING
from tests.browser.steps import PROMPT, run, serving
from tests.helpers import needs
from tests.helpers.fakes import FakeEngine

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# What a hostile page does: it sends what a browser sends without asking first, and frames.
HOSTILE = """
const send = (path, options) => fetch(studio + path, {credentials: "include", ...options})
  .then((answer) => answer.text(), (error) => `refused: ${error}`);
const body = JSON.stringify({data: [], fn_index: 0, session_hash: "x"});
const form = new FormData();
form.append("files", new Blob(["{}"]), "a.jsonl");
const texts = [];
const headers = {"content-type": "text/plain"};
for (const name of ["queue/join", "run/predict", "component_server"])
  for (const mode of ["cors", "no-cors"])
    texts.push(await send(`/gradio_api/${name}`, {method: "POST", mode, body, headers}));
texts.push(await send("/gradio_api/upload", {method: "POST", mode: "no-cors", body: form}));
for (const path of ["/", "/config", "/gradio_api/info"]) texts.push(await send(path, {}));
return texts;
"""


class Hostile(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another site</title><body>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other_site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()


@pytest.fixture
def page(browser: Browser, other_site: str) -> Iterator[Page]:
    made = browser.new_page()
    made.set_default_navigation_timeout(LOADING)
    made.goto(other_site)
    yield made
    made.close()


def test_another_origin_is_refused_whatever_it_sends(
    page: Page, address: str, caplog: pytest.LogCaptureFixture
):
    """Nor can it read the refusal."""
    statuses = []
    page.on("response", lambda r: statuses.append(r.status) if r.url.startswith(address) else None)
    texts = page.evaluate(f"async (studio) => {{{HOSTILE}}}", address)
    assert set(statuses) == {403}
    assert sum(": 403, " in record.getMessage() for record in caplog.records) == len(texts) == 10
    assert all(text == "" or text.startswith("refused: ") for text in texts)


def test_another_origin_cannot_frame_the_page(page: Page, address: str):
    make = "document.body.append(Object.assign(document.createElement('iframe'), {src: url}))"
    with page.expect_event("requestfailed") as failed:
        page.evaluate(f"(url) => {make}", address)
    assert failed.value.url.startswith(address)
    assert "BLOCKED_BY_RESPONSE" in (failed.value.failure or "")


def test_a_form_of_another_origin_is_refused(page: Page, address: str):
    with page.expect_response(lambda r: r.request.method == "POST") as answer:
        page.evaluate(
            "(url) => { const form = document.createElement('form'); form.method = 'post'; "
            "form.enctype = 'text/plain'; form.action = url + '/gradio_api/queue/join'; "
            "document.body.append(form); form.submit(); }",
            address,
        )
    assert answer.value.status == 403


def test_a_link_from_another_site_opens_the_page(page: Page, address: str):
    page.set_content(f'<a href="{address}">open</a>')
    page.get_by_text("open").click()
    page.locator(".ds-scope").first.wait_for()


def test_a_name_that_was_bound_to_this_machine_is_refused(browser: Browser, address: str):
    """DNS rebinding: evil.example resolves to 127.0.0.1 here."""
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    bound = browser.browser_type.launch(executable_path=needs.chromium(), args=[*FLAGS, rules])
    answer = bound.new_page().goto(f"http://evil.example:{urlsplit(address).port}/")
    assert answer is not None and answer.status == 403
    bound.close()


def test_a_page_says_that_its_token_has_expired_and_goes_on_with_the_next(browser: Browser):
    now, engine = [0.0], FakeEngine()
    access = Access(token=Token.of(1, lambda: now[0]))
    context = browser.new_context()
    page = context.new_page()
    page.set_default_navigation_timeout(LOADING)
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    with serving(Runs(engine), access=access) as address:
        page.goto(f"{address}/?token={access.token}")
        run(page, "hello")
        assert 20 < len(asked) < RequestLimit().most / 40, "pages never come near the limit"
        now[0] = 3600.0
        page.locator(PROMPT).fill("once more")
        page.locator("#ds-start").click()
        said = "this token has expired: open the address that the server printed last"
        expect(page.locator(".ds-banner:visible")).to_have_text(said)
        context.new_page().goto(f"{address}/?token={access.token}")
        run(page, "once more")
        expect(page.locator(".ds-banner:visible")).to_have_count(0)
    context.close()
