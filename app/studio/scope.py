"""The one custom component: strip, charts, tree and inspector, drawn by ``app/web``.

Gradio evaluates templates as code, so this one is constant: no text of a model, a file or a person
ever stands in it. What changes comes through ``value`` (a ticket, or a sentence to show) and
through the server functions, and the scripts write it as text nodes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

WEB = Path(__file__).resolve().parent.parent / "web"
SCRIPTS = (
    "dom.js", "tree.js", "strip.js", "charts.js", "drafted.js", "inspector.js",
    "align.js", "feed.js", "pane.js", "alone.js", "together.js", "studio.js", "mount.js",
)  # fmt: skip


def stylesheet() -> str:
    """A style element for the page's head: Gradio rewrites what passes through ``css``, and loses
    container queries."""
    return f"<style>{(WEB / 'studio.css').read_text(encoding='utf-8')}</style>"


def script() -> str:
    """All of the view's JavaScript; nothing is fetched from anywhere."""
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in SCRIPTS)


def scope(server_functions: Sequence[Callable[..., Any]]) -> gr.HTML:
    """``value``: {"ticket": …} to show a run, with {"other": …} two; {"other": …} alone puts a run
    beside what is shown; {"error": …} says a sentence.

    Not a subclass: Gradio writes a .pyi file beside the source of every component class.
    """
    return gr.HTML(
        value={},
        html_template='<div class="ds-mount"></div>',
        js_on_load=script(),
        apply_default_css=False,
        server_functions=list(server_functions),
        elem_id="ds-scope",
    )
