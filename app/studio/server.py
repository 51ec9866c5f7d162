"""The page with its tabs, and the server around it."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any

import gradio as gr
from gradio import themes
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from app.page_files import PLOTLY, WEB
from app.studio.components import Studio, head
from app.studio.engine import LiveEngine, ModelChoice
from app.studio.examples import Examples, TraceList, address_end
from app.studio.files import MAX_UPLOAD, UPLOAD_SECONDS
from app.studio.guard import Access, Guard
from app.studio.methods import Methods
from app.studio.routes import Events
from app.studio.runs import Runs
from app.studio.tabs import TABS
from app.studio.tabs.denoise import call_updates
from app.trace_files import TraceFiles
from core.errors import UserError, first_line
from core.methods.names import METHODS
from core.methods.registry import runnable
from core.models import presets

LAST_ROUND = 10.0  # seconds that a round may take to end when the studio stops
PATIENCE = 5.0  # seconds to wait for the first visitor before the model takes every core

THEME_JS = "() => import(new URL('web/theme.js', document.baseURI)).then((m) => m.toggleTheme())"

BRAND = """<div class="ds-brand"><svg viewBox="0 0 34 34" aria-hidden="true">
<path class="t" d="M6 17C14 17 14 7 22 7M6 17H28M6 17C14 17 14 27 22 27"/>
<circle class="n" cx="6" cy="17" r="4"/><circle class="o" cx="23" cy="7" r="3.4"/>
<circle class="n" cx="27" cy="17" r="4"/><circle class="g" cx="23" cy="27" r="3.4"/></svg>
<div><h1>Draftscope</h1><p>speculative decoding, tree by tree</p></div></div>"""


def build(runs: Runs, methods: Methods, files: TraceFiles | None = None) -> gr.Blocks:
    """The page around the runs. Nothing is loaded here, and the listed files are not read."""
    cache = (UPLOAD_SECONDS, UPLOAD_SECONDS)
    with gr.Blocks(
        title="Draftscope", fill_width=True, analytics_enabled=False, delete_cache=cache
    ) as page:
        with gr.Row(elem_id="ds-head"):
            gr.HTML(BRAND, apply_default_css=False)
            theme = gr.Button("Dark or light", elem_id="ds-theme", size="sm", min_width=36, scale=0)
            theme.click(None, js=THEME_JS)
        with gr.Tabs(elem_id="ds-views") as tabs:
            studio = Studio(runs, methods, tabs, Examples(files=TraceList(files)))
            for tab in TABS:
                with gr.Tab(tab.title, id=tab.name, elem_id=f"ds-view-{tab.name}"):
                    tab.build(studio)
    return page


def launch(
    runs: Runs,
    host: str,
    port: int,
    methods: Methods | None = None,
    files: TraceFiles | None = None,
    access: Access | None = None,
) -> gr.Blocks:
    """Serve the page in the background to those whom ``access`` allows (None: by the address).

    Raises UserError when the address cannot be had.
    """
    page = build(runs, methods or Methods.of(), files)
    page.queue(default_concurrency_limit=8, max_size=64, api_open=False)
    try:
        page.launch(
            server_name=host,
            server_port=_port(host, port),
            prevent_thread_lock=True,
            theme=_theme(),
            head=head(TABS),
            quiet=True,
            share=False,
            allowed_paths=[],
            max_file_size=MAX_UPLOAD,
            run_history=False,
            footer_links=[],
            enable_monitoring=False,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            app_kwargs={
                "middleware": [Middleware(Guard, access=access or Access.of(host))],
                "routes": own_routes(runs),
            },
        )
    except OSError as error:
        why = first_line(error)
        raise UserError(f"the studio cannot listen on {host}:{port}: {why}") from None
    return page


def own_routes(runs: Runs) -> list[BaseRoute]:
    """What the server answers beside Gradio: the page's files, and news of runs."""
    calls = partial(call_updates, runs)
    return [
        Route(f"/web/{PLOTLY.name}", plotly_script),
        Mount("/web", PageFiles(directory=WEB)),
        Route("/events", Events(runs, {"rounds": runs.updates, "calls": calls}).answer),
    ]


async def plotly_script(_: Request) -> Response:
    """Plotly's own script, as its package has it. A page asks for it when it draws a figure."""
    return FileResponse(PLOTLY, headers={"Cache-Control": "no-cache"})


class PageFiles(StaticFiles):
    """``app/web``. A browser keeps the files and asks whether they are still the same, so that a
    newer version of Draftscope is never half an older one."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


def serve(
    host: str = "127.0.0.1",
    port: int = 7860,
    model: ModelChoice | None = None,
    *,
    methods: Sequence[str] = (),
    files: TraceFiles | None = None,
    allow_hosts: Sequence[str] = (),
) -> None:
    """Open the studio and stay until Ctrl-C. The page is there before the model is.

    ``methods`` are offered beside the listed ones, ``files`` above the examples. ``allow_hosts``
    are further names by which the server may be reached. Raises UserError
    for a model's folder or presets file that is not there, a name that is no method, or an address
    that cannot be had.
    """
    model = model or ModelChoice()
    # whatever ships is shown for every model: the tabs' choices begin with it
    known = {*runnable(ModelChoice.model), *runnable(model.model, model.drafter)}
    budgets, listed = presets.find(model.model).budgets, [n for n in METHODS if n in known]
    offered = Methods.of(methods, budgets, listed)
    runs = Runs(LiveEngine(model), PATIENCE)
    port = _port(host, port)
    access = Access.of(host, allow_hosts)
    page = launch(runs, host, port, offered, files, access)
    shown = "127.0.0.1" if host == "0.0.0.0" else host
    token = f"?token={access.token}" if access.token else ""
    address = f"http://{shown}:{port}/{token}{address_end(files).removeprefix('/')}"
    print(f"Draftscope: {address}  (Ctrl-C stops it)", flush=True)
    runs.start()
    try:
        page.block_thread()
    finally:
        runs.close()
        runs.wait(LAST_ROUND)


def _port(host: str, port: int) -> int:
    """The port, or one that is free for 0.

    Raises UserError for an address that cannot be had: the server itself would say so in many
    lines, and Gradio by its own variables.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            if os.name == "posix":  # as servers do: a port that was just left is free
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host.strip("[]"), port))
            return probe.getsockname()[1]
    except (OSError, UnicodeError) as error:
        known = isinstance(error, OSError)
        if known and error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is taken: choose another with --port") from None
        why = (known and error.strerror) or first_line(error)
        raise UserError(f"the studio cannot listen on {host}: {why}") from None


def _theme() -> themes.Base:
    """Gradio's inputs in the studio's colours; fonts of the system, nothing fetched."""
    return themes.Base(
        primary_hue="sky",
        neutral_hue="slate",
        font=["ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "sans-serif"],
        font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"],
        radius_size="md",
        spacing_size="sm",
        text_size="sm",
    )
