"""Inputs at the left and the scope beside them: what the views Run and Compare are made of."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from app.studio.choices import Choices
from app.studio.context import Context
from app.studio.desk import Desk
from app.studio.panel import QUIET, Panel
from app.studio.saving import Saving
from app.studio.scope import component
from app.studio.upload import open_upload, tidy
from app.view.text import flowing
from core.errors import UserError

STOP_JS = "() => {{ window.dispatchEvent(new CustomEvent('draftscope-stop', {{detail: '{0}'}})); }}"


def workbench(context: Context, make: Callable[[Choices], Panel], prefix: str, name: str) -> None:
    """Runs live in the desk, by ticket; ``name`` is that of the view's component."""
    desk, choices = context.desk, context.choices
    with gr.Row(elem_classes="ds-page", equal_height=False):
        with gr.Column(elem_classes="ds-panel", elem_id=f"{prefix}-panel", scale=0, min_width=280):
            panel = make(choices)
        with gr.Column(elem_classes="ds-main", scale=1, min_width=280):
            functions = Saving(desk, context.gallery).functions()
            view = component(name, f"{prefix}-scope", functions)

    def submit(values: dict[Any, Any]) -> Any:
        """Queue the runs; what the scope shows is their tickets."""
        try:
            return {"tickets": desk.submit(*panel.asks(choices, values))}
        except UserError as error:
            return sentence(str(error))

    asked = [panel.start.click, panel.prompt.submit]
    gr.on(asked, submit, panel.components, view, **QUIET)  # type: ignore[arg-type]
    opens(panel.opened, view, lambda files: shown(desk, files, panel.opened))
    panel.stop.click(None, js=STOP_JS.format(prefix))
    stoppable(view, panel.stop)


def stoppable(view: gr.HTML, stop: gr.Button) -> None:
    """Stop can be pressed while the view says that it works. Within the page: of two requests to
    the server the second might be answered first."""
    for event, on in ((view.running, "true"), (view.settled, "false")):
        event(None, None, stop, js=f"() => ({{__type__: 'update', interactive: {on}}})", **QUIET)


def shown(desk: Desk, files: list[Path], button: gr.UploadButton) -> dict[str, Any]:
    """Put uploaded traces on view: of a button for several ("added") beside what is there."""
    name = "tickets" if button.file_count == "single" else "added"
    return {name: [desk.show(open_upload(file)) for file in files]}


def opens(button: gr.UploadButton, view: gr.HTML, show: Callable[[list[Path]], Any]) -> None:
    """What is uploaded there becomes the view's value by ``show``, or the sentence it raises."""

    def opened(paths: str | list[str] | None) -> Any:
        if not paths:
            return gr.skip()
        tidy(Path(button.GRADIO_CACHE))
        try:
            return show([Path(path) for path in ([paths] if isinstance(paths, str) else paths)])
        except UserError as error:
            return sentence(str(error))

    button.upload(opened, button, view, **QUIET)


def sentence(text: str) -> dict[str, str]:
    """A value that says what is amiss, anew when it happens again."""
    return {"error": flowing(text, 1000), "again": secrets.token_hex(4)}
