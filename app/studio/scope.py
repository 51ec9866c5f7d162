"""The custom components, each drawn by ``app/web``: trees, curves, grids, the course.

Gradio evaluates templates as code, so theirs is constant: no text of a model, a file or a person
ever stands in it. What changes comes through ``value`` (a ticket, or a sentence to show) and
through the server functions, and the scripts write it as text nodes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from app.page_files import STUDIO, css, script
from app.studio.answers import said

TABS = ("learn.css", "denoise.css")  # stylesheets of the page's other views

# Constant, but for the name. Gradio knows a component's events by these calls of `trigger`.
MOUNT = """window.draftscope.{name}({{
  element, props, server, watch,
  running: () => trigger('running'), settled: () => trigger('settled'),
}});"""


def head() -> str:
    """The style and the script of all components, once, for the page's head: Gradio rewrites what
    passes through ``css``, and loses container queries."""
    return f"<style>{css(TABS)}</style><script>{script(STUDIO)}</script>"


def component(name: str, elem_id: str, functions: Sequence[Callable[..., Any]] = ()) -> gr.HTML:
    """The custom component that app/web/mounts.js has under this name. A function that fails
    answers {"error": a sentence}. ``value`` of the tabs with runs: {"tickets": […]} to show them,
    {"added": […]} to put some beside what is shown, {"error": …} to say a sentence.

    Not a subclass: Gradio writes a .pyi file beside the source of every component class.
    """
    return gr.HTML(
        value={},
        html_template='<div class="ds-mount"></div>',
        js_on_load=MOUNT.format(name=name),
        apply_default_css=False,
        server_functions=[said(answer) for answer in functions],
        elem_id=elem_id,
    )
