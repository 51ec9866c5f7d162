"""The page's tabs, a module each.

A tab's components are mounted in the browser when it is first opened; building them here must stay
light, so what needs torch, pandas or a model is imported inside the functions that need it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.studio.components import Studio
from app.studio.tabs import calibration, denoise, learn, results, run, whatif


@dataclass(frozen=True)
class Tab:
    """One tab. ``name`` is what addresses and app/web know it by; ``build`` adds its components."""

    name: str
    title: str
    build: Callable[[Studio], None]


TABS = (
    Tab("run", "Run", run.build),
    Tab("compare", "Compare", run.build_compare),
    Tab("calibration", "Calibration", calibration.build),
    Tab("whatif", "What-if", whatif.build),
    Tab("results", "Results", results.build),
    Tab("denoise", "Denoise", denoise.build),
    Tab("learn", "Learn", learn.build),
)
