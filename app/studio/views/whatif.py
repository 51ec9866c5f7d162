"""What-if: sliders over a collected text; every setting is simulated, no model runs."""

from __future__ import annotations

import gradio as gr

from app.studio.context import Context
from app.studio.scope import component
from app.studio.whatif import WhatIfs
from app.studio.workbench import opens

TITLE = "What-if"


def build(context: Context) -> None:
    whatifs = WhatIfs()
    # Not displayed: a button in the card presses it, so that it stands where it belongs.
    opened = gr.UploadButton(
        "Open a collected text…", elem_id="ds-w-open", elem_classes="ds-file", size="sm",
        file_count="single",
    )  # fmt: skip
    cost = gr.UploadButton(
        "Open a result of cost…", elem_id="ds-w-cost", elem_classes="ds-file", size="sm",
        file_count="single",
    )  # fmt: skip
    view = component("whatif", "ds-w-scope", whatifs.functions())
    opens(opened, view, lambda files: {"file": whatifs.add(files[0])})
    opens(cost, view, lambda files: whatifs.add_cost(files[0]))
