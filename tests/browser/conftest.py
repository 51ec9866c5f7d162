"""A browser, a served studio with the fake engine, and pages in which nothing may go wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests import ROOT
from tests.helpers import needs
from tests.helpers.fakes import FakeEngine

if TYPE_CHECKING:  # where gradio is missing, the tests are skipped and nothing else is imported
    from playwright.sync_api import Browser, BrowserContext, Page

    from tests.browser.steps import Open

    Profiles = defaultdict[str, list[BrowserContext]]
    Put = Callable[..., Page]

pytest.register_assert_rewrite("tests.browser.axe_core")  # a fault is said, and not only counted

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

LOADING = 120_000  # ms for a page to load: seconds on a quiet machine, and not what is tested


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = needs.chromium()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def axe() -> Path:
    """axe-core's script, which finds faults of accessibility in a page."""
    path = ROOT / "node_modules" / "axe-core" / "axe.min.js"
    return path if path.is_file() else needs.missing("no axe-core here: run `make web`")


@pytest.fixture(scope="module")
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(scope="module")
def address(engine: FakeEngine) -> Iterator[str]:
    from tests.browser.steps import served

    with served(engine) as found:
        yield found


@pytest.fixture(scope="module")
def profiles(browser: Browser) -> Iterator[Profiles]:
    """Profiles of the browser that no test uses, by their options: what the server of this module
    has sent stays in their caches, which a page loads a fifth cheaper."""
    kept: Profiles = defaultdict(list)
    yield kept
    for context in chain(*kept.values()):
        context.close()


@pytest.fixture
def visit(browser: Browser, address: str, profiles: Profiles) -> Iterator[Open]:
    """Opens pages, each in a profile of its own in which nothing is stored; afterwards nothing may
    have gone wrong in them."""
    from playwright.sync_api import expect

    from tests.browser.steps import watch

    faults: list[str] = []
    pages: list[tuple[Page, list[BrowserContext]]] = []

    def open_page(url: str = address, **options) -> Page:
        options.setdefault("viewport", {"width": 1400, "height": 900})
        unused = profiles[repr(sorted(options.items()))]
        context = unused.pop() if unused else browser.new_context(accept_downloads=True, **options)
        page = context.new_page()
        pages.append((page, unused))
        stored = {"origin": "{0.scheme}://{0.netloc}".format(urlsplit(url)), "storageTypes": "all"}
        context.new_cdp_session(page).send("Storage.clearDataForOrigin", stored)
        page.set_default_navigation_timeout(LOADING)
        own = (url.partition("#")[0], "data:", "blob:")
        watch(page, faults, lambda asked: asked.startswith(own)).goto(url)
        expect(page.locator(".ds-scope").first).to_be_attached()
        return page

    yield open_page
    pwned = [page.evaluate("window.__pwned") for page, _ in pages]
    for page, unused in pages:
        page.context.clear_permissions()
        for each in page.context.pages:
            each.close()
        unused.append(page.context)
    assert not faults
    assert not any(pwned)


@pytest.fixture
def put(browser: Browser, tmp_path: Path) -> Iterator[Put]:
    """Opens a text as a page from disk; nothing may go wrong in it and nothing may be fetched."""
    from tests.browser.steps import watch

    faults: list[str] = []
    contexts: list[BrowserContext] = []

    def open_text(text: str, hash_: str = "", **options) -> Page:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        options.setdefault("viewport", {"width": 1400, "height": 900})
        context = browser.new_context(accept_downloads=True, offline=True, **options)
        contexts.append(context)
        page = watch(context.new_page(), faults, _from_disk)
        page.on("console", lambda said: faults.extend([said.text] * (said.type == "error")))
        page.goto(path.as_uri() + hash_)
        return page

    yield open_text
    pwned = [
        frame.evaluate("window.__pwned") for c in contexts for p in c.pages for frame in p.frames
    ]
    for context in contexts:
        context.close()
    assert not faults and not any(pwned)


def _from_disk(url: str) -> bool:
    return url.startswith(("file:///", "data:", "blob:", "about:")) and "favicon" not in url


@pytest.fixture
def replay(put: Put) -> Open:
    """Opens runs of the fake engine as an offline file has them: the same view as in the studio,
    without Gradio and a server, for a sixth of the processor time. For what a view does by itself.
    """
    from playwright.sync_api import expect

    def open_runs(
        *methods: str, budget: int = 64, prompt: str = "hello", hash_: str = "", **options
    ) -> Page:
        page = put(replayed(methods or ("ddtree",), budget, prompt), hash_, **options)
        expect(page.locator(".ds-round-title:visible")).to_have_count(len(methods) or 1)
        return page

    return open_runs


@cache
def replayed(methods: tuple[str, ...], budget: int, prompt: str) -> str:
    """The offline file of these methods' runs."""
    from app.export.offline import offline_page
    from core.decoding.request import RunRequest
    from core.traces.schema import Trace

    asked = [RunRequest(prompt, method, budget, max_new_tokens=64) for method in methods]
    runs = map(FakeEngine().start, asked)
    return offline_page([Trace(run.header, tuple(run.rounds), {}) for run in runs])
