"""Compare: two to four runs on one text, side by side by the place in it."""

from __future__ import annotations

from app.studio.context import Context
from app.studio.panel import compare_panel
from app.studio.workbench import workbench

TITLE = "Compare"


def build(context: Context) -> None:
    workbench(context, compare_panel, "ds-c", "compare")
