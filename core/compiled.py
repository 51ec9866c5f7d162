"""Functions that numba compiles. It keeps what it made beside the source or in the user's cache.

A plain number in a call, as 0, is a type of its own to numba, and the function called is compiled
for it beside int64: calls pass ``np.int64(0)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function of arrays at its first call; where nothing can be kept, at every start."""
    try:
        return numba.njit(cache=True)(function)
    except RuntimeError:  # neither folder can be written: a read-only home
        return numba.njit(function)
