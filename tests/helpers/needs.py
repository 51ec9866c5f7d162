"""The needs of some tests beside Python packages. Without them tests are skipped, saying how to
get them.

With ``DRAFTSCOPE_REQUIRE_ALL=1``, as in ``.ci/run``, they fail instead: nothing is left out
unnoticed. Skips for hardware (a GPU) and for the system (``/dev/full``) are plain pytest skips.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from typing import NoReturn

import pytest

from app.export.figure import pdf
from app.maintainers import BROWSERS
from core.errors import UserError

REQUIRE_ALL = os.environ.get("DRAFTSCOPE_REQUIRE_ALL") == "1"
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
DOT = shutil.which("dot")


def chromium() -> str:
    """The browser's path; the test that calls this ends here where there is none."""
    return CHROMIUM or missing(
        "no chromium here: install chromium-headless-shell (apt), or chromium (apt, brew)"
    )


def dot() -> str:
    """The path of graphviz's program; the test that calls this ends here where there is none."""
    return DOT or missing("no dot here: install the package graphviz (apt, brew)")


@cache
def has_librsvg() -> bool:
    """Whether PDF can be drawn here."""
    try:
        return bool(pdf(b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'))
    except UserError:
        return False


def librsvg() -> None:
    """The test that calls this ends here where PDF cannot be drawn."""
    if not has_librsvg():
        missing("no librsvg here: install the package librsvg2-2 (apt) or librsvg (brew)")


def missing(reason: str) -> NoReturn:
    """Skip the test that runs; fail it where all tests must run."""
    if REQUIRE_ALL:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
