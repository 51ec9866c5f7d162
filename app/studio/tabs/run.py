"""Run: one method on one prompt, live, or a trace replayed. Compare: two to four side by side by
the place in the text. Both are a form at the left and the same view beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from app.studio.components import (
    QUIET,
    Studio,
    connect_stop,
    connect_upload,
    form_beside_view,
    open_traces,
    value_or_sentence,
    view,
)
from app.studio.forms import RunForm, compare_form, run_form
from app.studio.methods import Methods


def build(studio: Studio) -> None:
    _build(studio, "run", "ds", run_form, shows="tickets")


def build_compare(studio: Studio) -> None:
    _build(studio, "compare", "ds-c", compare_form, shows="added")


def _build(
    studio: Studio, name: str, prefix: str, make_form: Callable[[Methods], RunForm], *, shows: str
) -> None:
    """``shows``: what uploaded traces are to the view."""
    with form_beside_view(prefix) as (left, right):
        with left:
            form = make_form(studio.methods)
        with right:
            shown = view(name, f"{prefix}-scope", studio.routes.of_runs())

    def submit(values: dict[Any, Any]) -> Any:
        """Queue the runs; the view shows them by their tickets."""
        return value_or_sentence(
            lambda: {"tickets": studio.runs.submit(*form.requests(studio.methods, values))}
        )

    pressed: Any = [form.start.click, form.prompt.submit]
    gr.on(pressed, submit, form.components, shown, **QUIET)
    connect_upload(form.upload, shown, lambda files: {shows: open_traces(studio.runs, files)})
    connect_stop(shown, form.stop, prefix)
