"""The page: Gradio's own inputs on one side, the scope on the other, and the server around them."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app.compare import cautions
from app.drafted import candidate_width
from app.render import svg_tree
from app.studio.choices import Choices
from app.studio.desk import Desk, Run
from app.studio.engine import LiveEngine
from app.studio.panel import QUIET, Panel, build_panel
from app.studio.scope import scope, stylesheet
from app.studio.upload import UPLOAD, download, download_svg, open_upload
from app.view import node_view
from app.visible import flowing
from core.errors import UserError
from core.types import Round

GONE = {"error": "this run is no longer on the server"}
STOP_JS = "() => { window.dispatchEvent(new CustomEvent('draftscope-stop')); }"

# ── what the scope asks the server ───────────────────────────────────────────────────────────────


class Answers:
    """The scope's server functions. They only read: no model work happens in them.

    Everything that comes in was written by a browser, so nothing about it is believed.
    """

    def __init__(self, desk: Desk):
        self._desk = desk

    def functions(self) -> list[Any]:
        desk = self._desk

        def news(asked: dict[str, Any]) -> dict[str, Any]:
            return desk.news(_get(asked, "ticket"), _whole(_get(asked, "since")) or 0)

        def inspect(asked: dict[str, Any]) -> dict[str, Any]:
            return self._inspect(asked)

        def save(asked: dict[str, Any]) -> dict[str, Any]:
            return self._save(asked)

        def draw(asked: dict[str, Any]) -> dict[str, Any]:
            return self._draw(asked)

        def compare(asked: dict[str, Any]) -> dict[str, Any]:
            return self._compare(asked)

        def halt(asked: dict[str, Any]) -> dict[str, Any]:
            desk.halt(_get(asked, "ticket"))
            return {}

        return [news, inspect, save, draw, compare, halt]

    def _round(self, asked: dict[str, Any]) -> tuple[Run, Round] | None:
        run, at = self._desk.run(_get(asked, "ticket")), _whole(_get(asked, "round"))
        if run is None or at is None or not 0 <= at < len(run.rounds):
            return None
        return run, run.rounds[at]

    def _inspect(self, asked: dict[str, Any]) -> dict[str, Any]:
        found, row = self._round(asked), _whole(_get(asked, "row"))
        if found is None or row is None:
            return GONE
        run, record = found
        try:
            return node_view(record, row, candidate_width(run.header))
        except IndexError:
            return {"error": "there is no such node"}

    def _save(self, asked: dict[str, Any]) -> dict[str, Any]:
        run = self._desk.run(_get(asked, "ticket"))
        if run is None:
            return GONE
        try:
            return dict(download(run.trace()))
        except UserError as error:
            return {"error": flowing(str(error), 1000)}

    def _draw(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The shown tree as an SVG file, light or dark as the page is."""
        found = self._round(asked)
        if found is None or found[0].header is None:
            return GONE
        run, record = found
        svg = svg_tree(record, dark=_get(asked, "dark") is True)
        return dict(download_svg(svg, run.header.method, record.index))

    def _compare(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the headers of two runs do not share."""
        runs = [self._desk.run(_get(asked, name)) for name in ("ticket", "other")]
        headers = [run.header for run in runs if run is not None and run.header is not None]
        return {"cautions": cautions(*headers) if len(headers) == 2 else []}


def _get(asked: object, name: str) -> object:
    return asked.get(name) if isinstance(asked, dict) else None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


# ── the page ─────────────────────────────────────────────────────────────────────────────────────


def build(desk: Desk, choices: Choices) -> gr.Blocks:
    """The page around a desk. Nothing is loaded here; runs live in the desk, by ticket."""
    with gr.Blocks(
        title="Draftscope", fill_width=True, analytics_enabled=False, delete_cache=(600, 600)
    ) as page:
        with gr.Row(elem_id="ds-page", equal_height=False):
            with gr.Column(elem_id="ds-panel", scale=0, min_width=280):
                panel = build_panel(choices)
            with gr.Column(elem_id="ds-main", scale=1, min_width=280):
                view = scope(Answers(desk).functions())

        def submit(values: dict[Any, Any]) -> Any:
            return _submit(desk, panel, choices, values)

        asked = [panel.start.click, panel.inputs["prompt"].submit]  # type: ignore[attr-defined]
        gr.on(asked, submit, panel.components, view, **QUIET)
        panel.opened.upload(lambda path: _open(desk, path), panel.opened, view, **QUIET)
        panel.beside.upload(lambda path: _open(desk, path, "other"), panel.beside, view, **QUIET)
        panel.stop.click(None, js=STOP_JS)
        view.running(lambda: gr.update(interactive=True), None, panel.stop, **QUIET)
        view.settled(lambda: gr.update(interactive=False), None, panel.stop, **QUIET)
    return page


def _submit(desk: Desk, panel: Panel, choices: Choices, values: dict[Any, Any]) -> Any:
    """Queue one run or two; what the scope shows is their tickets."""
    try:
        tickets = [desk.submit(ask) for ask in panel.asks(choices, values)]
    except UserError as error:
        return _sentence(str(error))
    return dict(zip(("ticket", "other"), tickets, strict=False))


def _open(desk: Desk, path: str | None, place: str = "ticket") -> Any:
    """Put an uploaded trace on view, alone or beside ("other"); the upload itself is not kept."""
    if path is None:
        return gr.skip()
    file = Path(path)
    try:
        return {place: desk.show(open_upload(file))}
    except UserError as error:
        return _sentence(str(error))
    finally:
        file.unlink(missing_ok=True)


def _sentence(text: str) -> dict[str, str]:
    return {
        "error": flowing(text, 1000),
        "again": secrets.token_hex(4),
    }  # said anew when it happens again


# ── the server ───────────────────────────────────────────────────────────────────────────────────


def launch(desk: Desk, host: str, port: int, block: bool, methods: Sequence[str] = ()) -> gr.Blocks:
    """Serve the page of a desk, with methods beyond the listed ones.

    Raises UserError when the address cannot be had, or for a name that is no method.
    """
    page = build(desk, Choices.of(methods))
    page.queue(default_concurrency_limit=8, max_size=64, api_open=False)
    try:
        page.launch(
            server_name=host,
            server_port=port or _free_port(host),
            prevent_thread_lock=not block,
            theme=_theme(),
            head=stylesheet(),
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
        raise UserError(f"the studio cannot listen on {host}:{port}: {error}") from None
    return page


def serve(
    host: str = "127.0.0.1",
    port: int = 7860,
    model: str = "smollm2-135m",
    device: str = "auto",
    drafter: Path | None = None,
    *,
    methods: Sequence[str] = (),
) -> None:
    """Open the studio and stay until Ctrl-C. The page is there before the model is."""
    desk = Desk(LiveEngine(model, device, drafter))
    port = port or _free_port(host)
    page = launch(desk, host, port, block=False, methods=methods)
    shown = "127.0.0.1" if host == "0.0.0.0" else host
    print(f"Draftscope: http://{shown}:{port}  (Ctrl-C stops it)", flush=True)
    desk.open()
    try:
        page.block_thread()
    finally:
        desk.close()


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


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
