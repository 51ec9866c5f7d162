"""Memory of this process: how much it has, what is kept for another use, and what the C library
holds after it was freed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

# Of glibc's malloc.h. A block above the threshold is handed back when it is freed.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
LARGE = 8 << 20  # above a layer's rows of 1,024 nodes, below the logits of 48 over 50,000 tokens


T = TypeVar("T")


def use_one_heap() -> None:
    """Have the C library keep all smaller blocks in one heap, and none of the larger ones.

    By default each thread has heaps of its own in pieces of 64 MiB, and blocks of up to 32 MiB are
    kept for later: a worker that frees and makes logits then holds several times their size.
    To be called before other threads begin.
    """
    if (option := _function("mallopt")) is not None:
        option(_ARENA_MAX, 1)
        option(_MMAP_THRESHOLD, LARGE)
        option(_TRIM_THRESHOLD, 2 * LARGE)  # below it, blocks that come and go are kept


def release() -> None:
    """Hand freed memory back to the system, where the C library can: glibc keeps blocks of up to
    32 MB for later, which after a model's weights were converted is hundreds of megabytes."""
    if (trim := _function("malloc_trim")) is not None:
        trim(0)


@cache
def _function(name: str) -> Any:
    """A function of glibc; None with another C library."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
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


def restart_peak() -> bool:
    """Forget how much memory this process once had; whether the system can."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return False
    return True


def peak() -> int | None:
    """Most bytes of memory since ``restart_peak``; None where the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            found = next(line for line in file if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return None
    return int(found.split()[1]) << 10


class Recent(Generic[T]):
    """The ``size`` values that were used last, by key; the least recently used goes first."""

    def __init__(self, size: int):
        self._size, self._made = size, dict[Any, T]()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """Return the value of ``key``, which ``make`` makes where it is not kept."""
        self._made[key] = self._made.pop(key) if key in self._made else make()
        while len(self._made) > self._size:
            del self._made[next(iter(self._made))]
        return self._made[key]
