"""The page: a tab for every view, and the server around them."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping, Sequence

import gradio as gr

from app.studio.choices import Choices
from app.studio.context import Context
from app.studio.desk import Desk
from app.studio.engine import LiveEngine, ModelChoice
from app.studio.gallery import Gallery
from app.studio.listing import Listing, address_end
from app.studio.scope import head
from app.studio.upload import LEFT, UPLOAD
from app.studio.views import views
from app.trace_files import TraceFiles
from core.errors import UserError, first_line
from core.models import presets

PATIENCE = 5.0  # seconds the first visitor is waited for before the model takes every core

THEME_JS = "() => { document.body.classList.toggle('dark'); }"

BRAND = """<div class="ds-brand"><svg viewBox="0 0 34 34" aria-hidden="true">
<path class="t" d="M6 17C14 17 14 7 22 7M6 17H28M6 17C14 17 14 27 22 27"/>
<circle class="n" cx="6" cy="17" r="4"/><circle class="o" cx="23" cy="7" r="3.4"/>
<circle class="n" cx="27" cy="17" r="4"/><circle class="g" cx="23" cy="27" r="3.4"/></svg>
<div><h1>Draftscope</h1><p>speculative decoding, tree by tree</p></div></div>"""


def build(desk: Desk, choices: Choices, given: TraceFiles | None = None) -> gr.Blocks:
    """The page around a desk. Nothing is loaded here, nor are the given files read."""
    context = Context(desk, choices, Gallery(listing=Listing(given)))
    with gr.Blocks(
        title="Draftscope", fill_width=True, analytics_enabled=False, delete_cache=(LEFT, LEFT)
    ) as page:
        with gr.Row(elem_id="ds-head"):
            gr.HTML(BRAND, apply_default_css=False)
            theme = gr.Button("Dark or light", elem_id="ds-theme", size="sm", min_width=36, scale=0)
            theme.click(None, js=THEME_JS)
        with gr.Tabs(elem_id="ds-views"):
            for name, view in views().items():
                with gr.Tab(view.TITLE, id=name, elem_id=f"ds-view-{name}"):
                    view.build(context)
    return page


# ── the server ───────────────────────────────────────────────────────────────────────────────────


def launch(
    desk: Desk,
    host: str,
    port: int,
    block: bool,
    methods: Sequence[str] = (),
    budgets: Mapping[str, int] | None = None,
    given: TraceFiles | None = None,
) -> gr.Blocks:
    """Serve the page of a desk, with methods beyond the listed ones, a preset's budgets and files
    for its shelf.

    Raises UserError when the address cannot be had, or for a name that is no method.
    """
    page = build(desk, Choices.of(methods, budgets), given)
    page.queue(default_concurrency_limit=8, max_size=64, api_open=False)
    try:
        page.launch(
            server_name=host,
            server_port=_port(host, port),
            prevent_thread_lock=not block,
            theme=_theme(),
            head=head(),
            quiet=True,
            share=False,
            allowed_paths=[],
            max_file_size=UPLOAD,
            run_history=False,
            footer_links=[],
            enable_monitoring=False,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
        )
    except OSError as error:
        why = first_line(error)
        raise UserError(f"the studio cannot listen on {host}:{port}: {why}") from None
    return page


def serve(
    host: str = "127.0.0.1",
    port: int = 7860,
    model: ModelChoice | None = None,
    *,
    methods: Sequence[str] = (),
    given: TraceFiles | None = None,
) -> None:
    """Open the studio and stay until Ctrl-C. The page is there before the model is.

    Raises UserError for a model's folder or presets file that is not there.
    """
    model = model or ModelChoice()
    budgets = presets.find(model.model).budgets
    desk = Desk(LiveEngine(model), PATIENCE)
    port = _port(host, port)
    page = launch(desk, host, port, block=False, methods=methods, budgets=budgets, given=given)
    shown = "127.0.0.1" if host == "0.0.0.0" else host
    print(f"Draftscope: http://{shown}:{port}{address_end(given)}  (Ctrl-C stops it)", flush=True)
    desk.open()
    try:
        page.block_thread()
    finally:
        desk.close()


def _port(host: str, port: int) -> int:
    """The port, or one that is free for 0.

    Raises UserError for an address that cannot be had: the server behind would say so in many
    lines, and Gradio in its own variables.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            if os.name == "posix":  # as servers do: what a studio left a minute ago is not taken
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host.strip("[]"), port))
            return probe.getsockname()[1]
    except (OSError, UnicodeError) as error:
        known = isinstance(error, OSError)
        if known and error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is taken: choose another with --port") from None
        why = (known and error.strerror) or first_line(error)
        raise UserError(f"the studio cannot listen on {host}: {why}") from None


def _theme() -> gr.themes.Base:
    """Gradio's inputs in the studio's colours; fonts of the system, nothing fetched."""
    return gr.themes.Base(
        primary_hue="sky",
        neutral_hue="slate",
        font=["ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "sans-serif"],
        font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"],
        radius_size="md",
        spacing_size="sm",
        text_size="sm",
    )
