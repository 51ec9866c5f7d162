"""Run: one method on one prompt, live, or a trace replayed; the same view for both."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import gradio as gr

from app.studio.answers import Answers
from app.studio.context import Context
from app.studio.desk import Desk
from app.studio.panel import QUIET, build_panel
from app.studio.scope import scope
from app.studio.upload import open_upload
from app.visible import flowing
from core.errors import UserError

TITLE = "Run"
STOP_JS = "() => { window.dispatchEvent(new CustomEvent('draftscope-stop')); }"


def build(context: Context) -> None:
    """The inputs at the left, the scope beside them; runs live in the desk, by ticket."""
    desk, choices = context.desk, context.choices
    with gr.Row(elem_id="ds-page", equal_height=False):
        with gr.Column(elem_id="ds-panel", scale=0, min_width=280):
            panel = build_panel(choices)
        with gr.Column(elem_id="ds-main", scale=1, min_width=280):
            view = scope(Answers(desk).functions())

    def submit(values: dict[Any, Any]) -> Any:
        """Queue one run or two; what the scope shows is their tickets."""
        try:
            tickets = [desk.submit(ask) for ask in panel.asks(choices, values)]
        except UserError as error:
            return sentence(str(error))
        return dict(zip(("ticket", "other"), tickets, strict=False))

    asked = [panel.start.click, panel.inputs["prompt"].submit]  # type: ignore[attr-defined]
    gr.on(asked, submit, panel.components, view, **QUIET)
    panel.opened.upload(lambda path: opened(desk, path), panel.opened, view, **QUIET)
    panel.beside.upload(lambda path: opened(desk, path, "other"), panel.beside, view, **QUIET)
    panel.stop.click(None, js=STOP_JS)
    view.running(lambda: gr.update(interactive=True), None, panel.stop, **QUIET)
    view.settled(lambda: gr.update(interactive=False), None, panel.stop, **QUIET)


def opened(desk: Desk, path: str | None, place: str = "ticket") -> Any:
    """Put an uploaded trace on view, alone or beside ("other"); the upload itself is not kept."""
    if path is None:
        return gr.skip()
    file = Path(path)
    try:
        return {place: desk.show(open_upload(file))}
    except UserError as error:
        return sentence(str(error))
    finally:
        file.unlink(missing_ok=True)


def sentence(text: str) -> dict[str, str]:
    """A value that says what is amiss, anew when it happens again."""
    return {"error": flowing(text, 1000), "again": secrets.token_hex(4)}
