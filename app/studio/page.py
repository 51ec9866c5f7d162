"""The page: Gradio's own inputs on one side, the scope on the other, and the server around them."""

from __future__ import annotations

import json
import math
import secrets
import socket
from pathlib import Path
from typing import Any

import gradio as gr

from app.studio.desk import Desk
from app.studio.engine import Ask, LiveEngine
from app.studio.prompts import EXAMPLES
from app.studio.scope import scope, stylesheet
from app.studio.upload import UPLOAD, download, open_upload
from app.view import node_view
from app.visible import flowing
from core.errors import UserError
from core.methods import RECIPES

BUDGETS = (1, 4, 16, 64, 256, 1024)
LONGEST_PROMPT = 40_000  # characters
QUIET: dict[str, Any] = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}

STOP_JS = "() => { window.dispatchEvent(new CustomEvent('draftscope-stop')); }"
THEME_JS = "() => { document.body.classList.toggle('dark'); }"

BRAND = """<div class="ds-brand"><svg viewBox="0 0 34 34" aria-hidden="true">
<path class="t" d="M6 17C14 17 14 7 22 7M6 17H28M6 17C14 17 14 27 22 27"/>
<circle class="n" cx="6" cy="17" r="4"/><circle class="o" cx="23" cy="7" r="3.4"/>
<circle class="n" cx="27" cy="17" r="4"/><circle class="g" cx="23" cy="27" r="3.4"/></svg>
<div><h1>Draftscope</h1><p>speculative decoding, tree by tree</p></div></div>"""


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

        def halt(asked: dict[str, Any]) -> dict[str, Any]:
            desk.halt(_get(asked, "ticket"))
            return {}

        return [news, inspect, save, halt]

    def _inspect(self, asked: dict[str, Any]) -> dict[str, Any]:
        run = self._desk.run(_get(asked, "ticket"))
        at, row = _whole(_get(asked, "round")), _whole(_get(asked, "row"))
        if run is None or at is None or row is None or not 0 <= at < len(run.rounds):
            return {"error": "this run is no longer on the server"}
        try:
            return node_view(run.rounds[at], row)
        except IndexError:
            return {"error": "there is no such node"}

    def _save(self, asked: dict[str, Any]) -> dict[str, Any]:
        run = self._desk.run(_get(asked, "ticket"))
        if run is None:
            return {"error": "this run is no longer on the server"}
        try:
            return dict(download(run.trace()))
        except UserError as error:
            return {"error": flowing(str(error), 1000)}


def _get(asked: object, name: str) -> object:
    return asked.get(name) if isinstance(asked, dict) else None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


# ── the page ─────────────────────────────────────────────────────────────────────────────────────


def build(desk: Desk) -> gr.Blocks:
    """The page around a desk. Nothing is loaded here; runs live in the desk, by ticket."""
    with gr.Blocks(
        title="Draftscope", fill_width=True, analytics_enabled=False, delete_cache=(600, 600)
    ) as page:
        with gr.Row(elem_id="ds-page", equal_height=False):
            with gr.Column(elem_id="ds-panel", scale=0, min_width=280):
                inputs, start, stop, opened = _panel()
            with gr.Column(elem_id="ds-main", scale=1, min_width=280):
                view = scope(Answers(desk).functions())
        gr.on([start.click, inputs[0].submit], lambda *v: _submit(desk, *v), inputs, view, **QUIET)
        opened.upload(lambda path: _open(desk, path), opened, view, **QUIET)
        stop.click(None, js=STOP_JS)
        view.running(lambda: gr.update(interactive=True), None, stop, **QUIET)
        view.settled(lambda: gr.update(interactive=False), None, stop, **QUIET)
    return page


def _panel() -> tuple[list[Any], gr.Button, gr.Button, gr.UploadButton]:
    with gr.Row(elem_id="ds-head"):
        gr.HTML(BRAND, apply_default_css=False)
        theme = gr.Button("◐", elem_id="ds-theme", size="sm", min_width=36, scale=0)
        theme.click(None, js=THEME_JS)
    prompt = gr.Textbox(
        EXAMPLES[0][1],
        label="Prompt",
        lines=4,
        max_lines=12,
        max_length=LONGEST_PROMPT,
        elem_id="ds-prompt",
        placeholder="Ask the target something",
    )
    with gr.Row(elem_id="ds-examples"):
        for name, text in EXAMPLES:
            example = gr.Button(name, size="sm", min_width=40, scale=0)
            example.click(
                None, outputs=prompt, js=f"() => {json.dumps(text)}", show_progress="hidden"
            )
    choices = [(recipe.title, name) for name, recipe in RECIPES.items()]
    method = gr.Radio(choices, value="ddtree", label="Method", elem_id="ds-method")
    budget = gr.Radio(list(BUDGETS), value=64, label="Draft budget B", elem_id="ds-budget")
    length = gr.Slider(1, 512, 64, step=1, label="Max new tokens", elem_id="ds-length")
    temperature = gr.Slider(
        0, 2, 0, step=0.05, label="Temperature (0 = greedy)", elem_id="ds-temperature"
    )
    with gr.Accordion("Sampling", open=False, elem_id="ds-more"):
        seed = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=2**31 - 1)
        top_k = gr.Number(0, label="Top-k (0 = off)", precision=0, minimum=0, maximum=1 << 20)
        top_p = gr.Slider(0.05, 1, 1, step=0.01, label="Top-p (1 = off)")
    with gr.Row(elem_id="ds-go"):
        start = gr.Button("Start", variant="primary", elem_id="ds-start", min_width=90)
        stop = gr.Button("Stop", interactive=False, elem_id="ds-stop", min_width=70)
    opened = gr.UploadButton("Open a trace…", elem_id="ds-open", size="sm", file_count="single")
    return [prompt, method, budget, length, temperature, top_k, top_p, seed], start, stop, opened


def _submit(desk: Desk, prompt: str, method: str, budget: int, *numbers: float | None) -> Any:
    """Queue a run; what the scope shows is its ticket."""
    if not (prompt or "").strip():
        return _sentence("write a prompt first")
    if any(n is None or not math.isfinite(n) for n in numbers):
        return _sentence("fill in every number of the settings")
    length, temperature, top_k, top_p, seed = (float(n) for n in numbers if n is not None)
    ask = Ask(
        prompt=prompt,
        method=method,
        budget=int(budget),
        max_new_tokens=int(length),
        temperature=temperature,
        top_k=int(top_k),
        top_p=top_p,
        seed=int(seed),
    )
    return {"ticket": desk.submit(ask)}


def _open(desk: Desk, path: str | None) -> Any:
    """Put an uploaded trace on view; the upload itself is not kept."""
    if path is None:
        return gr.skip()
    file = Path(path)
    try:
        return {"ticket": desk.show(open_upload(file))}
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


def launch(desk: Desk, host: str, port: int, block: bool) -> gr.Blocks:
    """Serve the page of a desk. Raises UserError when the address cannot be had."""
    page = build(desk)
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
) -> None:
    """Open the studio and stay until Ctrl-C. The page is there before the model is."""
    desk = Desk(LiveEngine(model, device, drafter))
    port = port or _free_port(host)
    page = launch(desk, host, port, block=False)
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
