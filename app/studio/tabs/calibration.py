"""Calibration: TVD, coverage, reliability and causes of runs on view, with examples."""

from __future__ import annotations

from app.studio.components import Studio, connect_upload, hidden_upload, view
from app.studio.diagnosing import Diagnosing
from app.studio.records import calibrate_result


def build(studio: Studio) -> None:
    upload = hidden_upload("Open a calibrate result…", "ds-k-open")
    diagnosing = Diagnosing(studio.runs, studio.methods)
    routes = studio.routes.of_calibration() | diagnosing.routes()
    shown = view("calibration", "ds-k-scope", routes)
    connect_upload(upload, shown, lambda files: calibrate_result(files[0]))
