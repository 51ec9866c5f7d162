"""The page with its tabs, and the server around it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio import themes
from gradio.events import api
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.page_files import LOGO, PLOTLY
from app.studio.access import Access, Token
from app.studio.api import decoding
from app.studio.components import EARLY_HEAD, HEAD, MODULES_JS, SCRIPT, SHEET, Studio, script, sheet
from app.studio.engine import LiveEngine, ModelChoice
from app.studio.events import Events
from app.studio.examples import Examples, TraceList, address_end
from app.studio.faults import UPLOAD, Faults, failed
from app.studio.files import MAX_UPLOAD, MAX_UPLOADS, UPLOAD_SECONDS
from app.studio.guard import Guard
from app.studio.methods import Methods
from app.studio.page import Page
from app.studio.routes import pdf_of_picture
from app.studio.runs import Runs
from app.studio.served import ServedPage, listening
from app.studio.tabs import TABS
from app.trace_files import TraceFiles
from core.methods.names import METHODS
from core.methods.registry import runnable
from core.models import presets

LAST_ROUND = 10.0  # seconds that a round may take to end when the studio stops
PATIENCE = 5.0  # seconds to wait for the first visitor before the model takes every core
LOOK_FOR_EVENTS = 0.05  # seconds; Gradio's own 0.001 takes 3 % of a core from the decoding

# Gradio's own are pixels: these follow the text size that somebody set in the browser.
TEXT = themes.sizes.Size(
    *(f"{part}rem" for part in (0.75, 0.75, 0.75, 0.8125, 1, 1.25, 1.5)), name="text_rem"
)
THEME_JS = f"() => {MODULES_JS}.then((all) => all['theme.js'].toggleTheme())"
PRESENT_JS = f"() => {MODULES_JS}.then((all) => all['present.js'].presentOnView())"

BRAND = f"""<div class="ds-brand">{LOGO}
<h1>Draftscope</h1></div>"""


def build(runs: Runs, methods: Methods, files: TraceFiles | None = None) -> gr.Blocks:
    """The page around the runs. Nothing is loaded here, and the listed files are not read."""
    cache = (UPLOAD_SECONDS, UPLOAD_SECONDS)
    with Page(
        title="Draftscope", fill_width=True, analytics_enabled=False, delete_cache=cache
    ) as page:
        with gr.Row(elem_id="ds-head"):
            gr.HTML(BRAND, apply_default_css=False)
        with gr.Tabs(elem_id="ds-views") as tabs:
            studio = Studio(runs, methods, tabs, Examples(files=TraceList(files)))
            for tab in TABS:
                with gr.Tab(tab.title, id=tab.name, elem_id=f"ds-view-{tab.name}"):
                    tab.build(studio)
        api(decoding(runs, methods), api_name="decode")
        with gr.Row(elem_id="ds-tools"):  # at the head, and for the Tab key behind the tabs
            present = gr.Button("Present", elem_id="ds-present", size="sm", min_width=36, scale=0)
            present.click(None, js=PRESENT_JS)
            theme = gr.Button("Dark or light", elem_id="ds-theme", size="sm", min_width=36, scale=0)
            theme.click(None, js=THEME_JS)
    return page


def launch(
    runs: Runs,
    host: str,
    port: int,
    methods: Methods | None = None,
    files: TraceFiles | None = None,
    access: Access | None = None,
) -> ServedPage:
    """Serve the page in the background to those whom ``access`` allows (None: by the address).

    Raises UserError when the address cannot be had.
    """
    listener = listening(host, port)
    page = build(runs, methods or Methods.of(), files)
    return ServedPage(page, listener, application(page, runs, access or Access.of(host)))


def application(page: gr.Blocks, runs: Runs, access: Access) -> Guard:
    """All that a server of the page answers, behind its guard."""
    page.queue(default_concurrency_limit=8, max_size=64, api_open=False)
    page._queue.sleep_when_free = page._queue.progress_update_sleep_when_free = LOOK_FOR_EVENTS
    outer: Any = Starlette(routes=own_routes(runs))
    gr.mount_gradio_app(
        outer,
        page,
        "/",
        theme=_theme(),
        head=HEAD,
        allowed_paths=[],
        max_file_size=MAX_UPLOAD,
        show_error=False,
        run_history=False,
        footer_links=[],
        enable_monitoring=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        app_kwargs={"exception_handlers": {Exception: failed, RequestValidationError: failed}},
    )
    page.app = outer.routes[-1].app  # whose streams end when the page is closed
    return Guard(Faults(FromTheStart(outer), {UPLOAD: MAX_UPLOADS}), access)


def own_routes(runs: Runs) -> list[BaseRoute]:
    """List the routes that the server answers beside Gradio: the page's files, news of runs, and
    PDF of pictures."""
    return [
        Route(f"/web/{PLOTLY.name}", plotly_script),
        Route(f"/{SCRIPT}", PageFile(partial(script, TABS), "text/javascript")),
        Route(f"/{SHEET}", PageFile(partial(sheet, TABS), "text/css")),
        Route("/events", Events(runs).answer),
        Route("/pdf", pdf_of_picture, methods=["POST"]),
    ]


async def plotly_script(_: Request) -> Response:
    """Plotly's own script, as its package has it. A page asks for it when it draws a figure."""
    return FileResponse(PLOTLY, headers={"Cache-Control": "no-cache"})


class FromTheStart:
    """Puts the page's own script at the head of its HTML: what Gradio is given for the head comes
    when its scripts have run."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/":
            return await self.app(scope, receive, send)
        parts: list[bytes] = []
        begun: Message = {}

        async def take(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = message
                return
            if message["type"] != "http.response.body":
                return await send(message)
            parts.append(message.get("body", b""))
            if message.get("more_body"):
                return
            body = b"".join(parts).replace(b"<head>", b"<head>" + EARLY_HEAD.encode(), 1)
            if "content-length" in (headers := MutableHeaders(raw=begun["headers"])):
                headers["content-length"] = str(len(body))
            await send(begun)
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, take)


class PageFile:
    """A text of ``app/web``. A browser keeps it and asks whether it is still the same, so that a
    newer version of Draftscope is never half an older one."""

    def __init__(self, text: Callable[[], str], kind: str):
        self.text, self.kind = text, kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await run_in_threadpool(self.text)).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {"Cache-Control": "no-cache", "ETag": tag}
        known = tag in Headers(scope=scope).get("if-none-match", "")  # or one of a list, or weak
        answer = Response(status_code=304) if known else Response(body, media_type=self.kind)
        answer.headers.update(headers)
        await answer(scope, receive, send)


def serve(
    host: str,
    port: int,
    model: ModelChoice,
    methods: Sequence[str],
    files: TraceFiles,
    access: Access,
) -> None:
    """Open the studio and stay until it is interrupted. The page is there before the model is.

    ``methods`` are offered beside the listed ones, ``files`` above the examples. Raises UserError
    for a model's folder or presets file that is not there, a name that is not a method's, or an
    address that cannot be had.
    """
    # whatever ships is shown for every model: the tabs' choices begin with it
    known = {*runnable(ModelChoice.model), *runnable(model.model, model.drafter)}
    budgets, listed = presets.preset_of(model.model).budgets, [n for n in METHODS if n in known]
    offered = Methods.of(methods, budgets, listed)
    runs = Runs(LiveEngine(model), PATIENCE)
    served = launch(runs, host, port, offered, files, access)
    tell = AddressTold(served.address, address_end(files).removeprefix("/"), access.token)
    tell()
    runs.start()
    try:
        served.wait(tell)
    finally:
        runs.close()
        served.close()
        runs.wait(LAST_ROUND)


@dataclass
class AddressTold:
    """Prints the address, and each one with a new token when that of the last has expired."""

    server: str
    end: str
    token: Token | None
    told: str = ""

    def __call__(self) -> None:
        word = f"?token={self.token}" if self.token else ""
        address = f"{self.server}/{word}{self.end}"
        if address != self.told:
            said = "the token has expired; the address is now " if self.told else ""
            print(f"Draftscope: {said}{address}  (Ctrl-C stops it)", flush=True)
            self.told = address


def _theme() -> themes.Base:
    """Gradio's inputs in the studio's colours; fonts of the system, nothing fetched."""
    return themes.Base(
        primary_hue="sky",
        neutral_hue="slate",
        font=["ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "sans-serif"],
        font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"],
        radius_size="md",
        spacing_size="sm",
        text_size=TEXT,
    )
