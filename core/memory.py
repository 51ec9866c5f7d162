"""Memory of this process: how much it has, and what the C library holds after it was freed."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any


def release() -> None:
    """Hand freed memory back to the system, where the C library can: glibc keeps blocks of up to
    32 MB for later, which after a model's weights were converted is hundreds of megabytes."""
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library
        return None


def resident() -> int | None:
    """Bytes of memory that this process has now; None where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    import resource

    return pages * resource.getpagesize()
