"""The page's views, a module each: ``TITLE``, and ``build(context)``, which adds its components.

A tab's components are mounted in the browser when it is first opened; building them here must stay
light, so what needs torch, pandas or a model is imported inside the functions that need it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

NAMES = ("run", "compare", "calibration", "whatif", "denoise", "learn")  # as the tabs stand


def views() -> dict[str, ModuleType]:
    """The views there are, by name."""
    found = {name: f"{__name__}.{name}" for name in NAMES}
    return {name: import_module(path) for name, path in found.items() if find_spec(path)}
