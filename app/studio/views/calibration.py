"""Calibration: TVD, coverage, reliability and causes of death of runs on view, with examples."""

from __future__ import annotations

import gradio as gr

from app.studio.answers import Answers
from app.studio.context import Context
from app.studio.numbers import calibrate_result
from app.studio.scope import component
from app.studio.workbench import opens

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
    opens(opened, view, lambda files: calibrate_result(files[0]))
