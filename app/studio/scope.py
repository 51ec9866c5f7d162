"""The one custom component: strip, charts, tree and inspector, drawn by ``app/web``.

Gradio evaluates templates as code, so this one is constant: no text of a model, a file or a person
ever stands in it. What changes comes through ``value`` (a ticket, or a sentence to show) and
through the server functions, and the scripts write it as text nodes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from app.scripts import VIEW, css
from app.scripts import script as joined
from app.studio.answers import said

TABS = ("learn.css", "denoise.css")  # stylesheets of the page's other views


def stylesheet() -> str:
    """A style element for the page's head: Gradio rewrites what passes through ``css``, and loses
    container queries."""
    return f"<style>{css(TABS)}</style>"


def scope(functions: Sequence[Callable[..., Any]], elem_id: str, mount: str) -> gr.HTML:
    """The strip, the charts, the trees. ``value``: {"tickets": […]} to show runs, {"added": […]} to
    put some beside what is shown, {"error": …} to say a sentence.
    """
    return component(elem_id, (*VIEW[1:], "mount.js", mount), functions)


def component(
    elem_id: str, scripts: Sequence[str], functions: Sequence[Callable[..., Any]] = ()
) -> gr.HTML:
    """A custom component: ``scripts`` name files of app/web, dom.js before them; the last one is
    run when the component is mounted. A function that fails answers {"error": a sentence}.

    Not a subclass: Gradio writes a .pyi file beside the source of every component class.
    """
    return gr.HTML(
        value={},
        html_template='<div class="ds-mount"></div>',
        js_on_load=joined(("dom.js", *scripts)),
        apply_default_css=False,
        server_functions=[said(answer) for answer in functions],
        elem_id=elem_id,
    )
