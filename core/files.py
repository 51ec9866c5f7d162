"""Files that are whole or not there. Light: never torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what shall stand at ``path``: it takes that place when the block is done and
    all of it is on disk, so that a kill leaves the old file or the new one, never half of it."""
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
