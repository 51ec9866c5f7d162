"""Files that are whole or not there, and arrays that are mapped and not read. Light: never torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from core.errors import UserError
from core.rounds.draft import Array

TYPES = {
    name: np.dtype(kind)
    for name, kind in {
        "F32": "<f4", "U8": "u1", "U16": "<u2", "U32": "<u4", "I32": "<i4", "I64": "<i8",
    }.items()
}  # fmt: skip


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; the file replaces ``path`` when the block is done and all of it is on
    disk. A kill leaves the old file or the new one, never half of it."""
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_arrays(path: Path, kind: str) -> tuple[dict[str, str], dict[str, Array]]:
    """Metadata and read-only arrays; those of other types than ``TYPES`` are left out.

    An array is not aligned where the file's is not. Raises UserError, naming the ``kind`` of file
    that was wanted, when it is no safetensors file, is damaged or cannot be read.
    """
    try:
        with safe_open(str(path), framework="numpy") as file:  # checks sizes and offsets
            metadata = dict(file.metadata() or {})
        raw = np.memmap(path, np.uint8, "r")
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (SafetensorError, ValueError):
        raise UserError(f"{path} is no {kind}, or is damaged") from None
    begin = 8 + int.from_bytes(raw[:8].tobytes(), "little")
    arrays = {}
    for name, entry in json.loads(raw[8:begin].tobytes()).items():
        if name != "__metadata__" and entry["dtype"] in TYPES:
            low, high = entry["data_offsets"]
            flat = np.frombuffer(raw[begin + low : begin + high], TYPES[entry["dtype"]])
            arrays[name] = flat.reshape(entry["shape"])
    return metadata, arrays
