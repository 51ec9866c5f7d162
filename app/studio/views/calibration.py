"""Calibration: TVD, coverage, reliability and causes of death of runs on view, with examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from app.studio.answers import Answers
from app.studio.context import Context
from app.studio.numbers import calibrate_result
from app.studio.panel import QUIET
from app.studio.scope import component
from app.studio.workbench import sentence
from core.errors import UserError

TITLE = "Calibration"


def build(context: Context) -> None:
    answers = Answers(context.desk, context.gallery)
    # Not displayed: a button in the card presses it, so that it stands where it belongs.
    opened = gr.UploadButton(
        "Open a calibrate result…", elem_id="ds-k-open", elem_classes="ds-file", size="sm",
        file_count="single",
    )  # fmt: skip
    functions = [*answers.functions(), *answers.calibrations()]
    view = component("calibration", "ds-k-scope", functions)
    opened.upload(result, opened, view, **QUIET)


def result(path: str | None) -> Any:
    """The curves of an uploaded result; the upload itself is not kept."""
    if path is None:
        return gr.skip()
    file = Path(path)
    try:
        return calibrate_result(file)
    except UserError as error:
        return sentence(str(error))
    finally:
        file.unlink(missing_ok=True)
