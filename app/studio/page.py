"""Gradio's page, whose failures are a sentence for who asked and a line in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from app.studio.faults import MALFORMED, Malformed, note_bug, refuse
from core.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(str(ROOT / room) + "/" for room in ("app", "analysis", "core"))


class Page(gr.Blocks):
    """Gradio answers what an event raises with status 500, a traceback and no sentence."""

    async def process_api(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return await super().process_api(*args, **kwargs)
        except Exception as error:
            sentence = refuse(_read(error))
            raise gr.Error(sentence, print_exception=False) from None


def _read(error: Exception) -> Exception:
    """As what it is answered: only what our own code raises is a fault of ours."""
    if isinstance(error, UserError):
        return Malformed(error)
    if isinstance(error, gr.Error):  # of a component: a value that it cannot have
        return Malformed(str(error.message)[:200])
    if _passed_our_code(error):
        note_bug("an event failed", error)
        return error
    return Malformed(MALFORMED)


def _passed_our_code(error: Exception) -> bool:
    at = error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if file.startswith(OURS) and file != __file__:
            return True
        at = at.tb_next
    return False
