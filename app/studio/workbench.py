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
from app.studio.upload import open_upload
from app.visible import flowing
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
            return {"tickets": [desk.submit(ask) for ask in panel.asks(choices, values)]}
        except UserError as error:
            return sentence(str(error))

    asked = [panel.start.click, panel.prompt.submit]
    gr.on(asked, submit, panel.components, view, **QUIET)  # type: ignore[arg-type]
    panel.opened.upload(lambda paths: opened(desk, paths), panel.opened, view, **QUIET)
    panel.stop.click(None, js=STOP_JS.format(prefix))
    view.running(lambda: gr.update(interactive=True), None, panel.stop, **QUIET)
    view.settled(lambda: gr.update(interactive=False), None, panel.stop, **QUIET)


def opened(desk: Desk, paths: str | list[str] | None) -> Any:
    """Put uploaded traces on view: one alone, several ("added") beside what is there."""
    if not paths:
        return gr.skip()
    several = isinstance(paths, list)
    files = [Path(path) for path in (paths if several else [paths])]
    try:
        tickets = [desk.show(open_upload(file)) for file in files]
        return {"added" if several else "tickets": tickets}
    except UserError as error:
        return sentence(str(error))
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def sentence(text: str) -> dict[str, str]:
    """A value that says what is amiss, anew when it happens again."""
    return {"error": flowing(text, 1000), "again": secrets.token_hex(4)}
