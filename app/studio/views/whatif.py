"""What-if: sliders over a collected text; every setting is simulated, no model runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from app.studio.context import Context
from app.studio.panel import QUIET
from app.studio.scope import component
from app.studio.whatif import WhatIfs
from app.studio.workbench import sentence
from core.errors import UserError

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
    opened.upload(lambda path: added(path, lambda file: {"file": whatifs.add(file)}), opened, view,
                  **QUIET)  # fmt: skip
    cost.upload(lambda path: added(path, whatifs.add_cost), cost, view, **QUIET)


def added(path: str | None, add: Callable[[Path], dict[str, str]]) -> Any:
    """Open an uploaded file; on the disk it is not kept."""
    if path is None:
        return gr.skip()
    file = Path(path)
    try:
        return add(file)
    except UserError as error:
        return sentence(str(error))
    finally:
        file.unlink(missing_ok=True)
