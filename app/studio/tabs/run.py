"""Run: one method on one prompt, live, or a trace replayed. Compare: two to four side by side by
the place in the text. Both are a form in a bar and the same view below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from app.studio.components import (
    QUIET,
    FormPlaces,
    Studio,
    connect_stop,
    connect_upload,
    form_above_view,
    open_traces,
    value_or_sentence,
    view,
)
from app.studio.forms import RunForm, compare_form, run_form
from app.studio.methods import Methods
from app.studio.refill import connect_refill

MakeForm = Callable[[Methods, FormPlaces], RunForm]


def build(studio: Studio) -> None:
    _build(studio, "run", "ds", run_form, shows="tickets")


def build_compare(studio: Studio) -> None:
    _build(studio, "compare", "ds-c", compare_form, shows="added")


def _build(
    studio: Studio,
    name: str,
    prefix: str,
    make_form: Callable[[Methods, FormPlaces], RunForm],
    *,
    shows: str,
) -> None:
    """``shows``: what uploaded traces are to the view."""
    with form_above_view(prefix) as places:
        form = make_form(studio.methods, places)
        with places.view:
            shown = view(name, f"{prefix}-scope", studio.routes.of_runs())

    def submit(values: dict[Any, Any]) -> Any:
        """Queue the runs; the view shows them by their tickets."""
        return value_or_sentence(
            lambda: {"tickets": studio.runs.submit(*form.requests(studio.methods, values))}
        )

    connect_refill(studio, form, shown, prefix)
    pressed: Any = [form.start.click, form.prompt.submit]
    gr.on(pressed, submit, form.components, shown, **QUIET)
    connect_upload(form.upload, shown, lambda files: {shows: open_traces(studio.runs, files)})
    connect_stop(shown, form.stop, prefix)
