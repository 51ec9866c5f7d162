"""Safetensors files, read by file reads: a mapped file that is cut in place ends the process.

What others may write while it is open is never mapped: collected texts, checkpoints of drafters,
kept hidden states. Mapped are large n-gram stores, training text and a target's weights, which are
too large to copy; whoever writes those writes beside them and renames, as ``core.files.replacing``
does. Light: never torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from core.declared import BadField, read
from core.errors import UserError, WrongKind, reading
from core.json_input import parse_json
from core.lines import open_regular
from core.rounds.draft import Array

# Types of the arrays that numpy reads, by their name in a safetensors header.
TYPES = {"F32": "<f4", "U8": "u1", "U16": "<u2", "U32": "<u4", "I32": "<i4", "I64": "<i8"}
_BITS = re.compile(r"(?:F|BF|C|I|U)([1-9][0-9]?)(?:_|$)")  # F8_E4M3 has 8, BF16 has 16
MOST = 100_000_000  # bytes of a header, as safetensors has it

Place = Annotated[int, Meta(ge=0, lt=1 << 60)]


class TensorPlace(msgspec.Struct, frozen=True):
    """A tensor's type by its name in the header, its shape, and where its bytes are."""

    dtype: str
    shape: list[Place]
    data_offsets: tuple[Place, Place]

    @property
    def size(self) -> int:
        return self.data_offsets[1] - self.data_offsets[0]

    @property
    def fits(self) -> bool:
        """Whether its bytes are as many as its numbers take. Of a type that is not known nobody
        can tell; the other tensors of such a file are read."""
        told = _BITS.match(self.dtype)
        if told is None and self.dtype != "BOOL":
            return True
        bits = 8 if told is None else int(told[1])
        return math.prod(self.shape) * bits == 8 * self.size


@dataclass(frozen=True, eq=False)
class TensorFile:
    """An open file; ``begin``: where the tensors' bytes begin."""

    path: Path
    file: IO[bytes]
    metadata: Mapping[str, str]
    entries: Mapping[str, TensorPlace]
    begin: int

    def read_into(self, name: str, buffer: Any) -> None:
        """Fill a buffer of the tensor's size with its bytes. Raises UserError for a file that was
        cut since it was opened."""
        entry = self.entries[name]
        with reading(self.path):
            self.file.seek(self.begin + entry.data_offsets[0])
            whole = self.file.readinto(buffer) == entry.size  # type: ignore[attr-defined]
        if not whole:
            raise UserError(f"{self.path} was cut while it was read")

    def array(self, name: str) -> Array:
        """A tensor of one of ``TYPES``, read-only."""
        entry = self.entries[name]
        flat = np.empty(entry.size // np.dtype(TYPES[entry.dtype]).itemsize, TYPES[entry.dtype])
        self.read_into(name, flat.view(np.uint8))
        flat.flags.writeable = False
        return flat.reshape(entry.shape)


@contextmanager
def open_tensors(path: Path, kind: str) -> Iterator[TensorFile]:
    """Open a file for a while. ``kind`` names what is expected, with its article.

    Raises UserError when the file is not a safetensors file, is damaged or cannot be read.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    with file:
        try:
            head = _head(path, file)
        except (ValueError, BadField, UserError, OSError):
            raise WrongKind(f"{path} is not {kind}, or is damaged", path) from None
        yield head


def _head(path: Path, file: IO[bytes]) -> TensorFile:
    """Read the header. Its tensors lie one after the other, from its end to the file's.

    Raises ValueError, BadField or UserError where they do not, or it is not a header.
    """
    length = int.from_bytes(file.read(8), "little")
    end = file.seek(0, 2) - 8 - length
    if not 2 <= length <= MOST or end < 0:
        raise ValueError("the header is cut off")
    file.seek(8)
    header = read(parse_json(file.read(length), str(path)), dict[str, Any])
    metadata = read(header.pop("__metadata__", None) or {}, dict[str, str])
    entries = {name: read(entry, TensorPlace) for name, entry in header.items()}
    at = 0
    for entry in sorted(entries.values(), key=lambda entry: entry.data_offsets):
        if entry.data_offsets[0] != at or entry.size < 0 or not entry.fits:
            raise ValueError("the tensors overlap, leave a hole or have other sizes")
        at = entry.data_offsets[1]
    if at != end:
        raise ValueError("the tensors do not fill the file")
    return TensorFile(path, file, metadata, entries, 8 + length)


def read_arrays(
    path: Path, kind: str, mapped: bool = False
) -> tuple[Mapping[str, str], dict[str, Array]]:
    """Metadata and read-only arrays of a safetensors file; those of other types than ``TYPES`` are
    left out. ``mapped``: they stay in the file, and may be unaligned as they are there.

    Raises UserError as ``open_tensors`` does, and for a file that is cut meanwhile.
    """
    with open_tensors(path, kind) as opened:
        known = [name for name, entry in opened.entries.items() if entry.dtype in TYPES]
        if not mapped:
            return opened.metadata, {name: opened.array(name) for name in known}
        raw = np.memmap(opened.file, np.uint8, "r", opened.begin) if known else np.empty(0)
    found = dict[str, Array]()
    for name in known:
        entry = opened.entries[name]
        flat = np.frombuffer(raw[slice(*entry.data_offsets)], TYPES[entry.dtype])
        found[name] = flat.reshape(entry.shape)
    return opened.metadata, found
