"""Run: one method on one prompt, live, or a trace replayed; the same view for both."""

from __future__ import annotations

from app.studio.context import Context
from app.studio.panel import run_panel
from app.studio.workbench import workbench

TITLE = "Run"


def build(context: Context) -> None:
    workbench(context, run_panel, "ds", "run")
