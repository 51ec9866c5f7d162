"""Arrays of a safetensors file, mapped and not read: opening costs the header alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from core.errors import UserError
from core.types import Array

TYPES = {
    name: np.dtype(kind)
    for name, kind in {
        "F32": "<f4", "U8": "u1", "U16": "<u2", "U32": "<u4", "I32": "<i4", "I64": "<i8",
    }.items()
}  # fmt: skip


def read_mapped(path: Path, kind: str) -> tuple[dict[str, str], dict[str, Array]]:
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
