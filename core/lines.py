"""Files from outside: which may be opened, and their lines, gzipped or not. Light: never torch.

A pipe, a socket or a device may keep its reader waiting for ever, and a small gzip file may unpack
without end. Whatever somebody else may have written is opened and unpacked here.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO

from core.errors import UserError

AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer opens at once, to be refused
BLOCK = 1 << 17  # bytes that are read or unpacked at once
MAX_BYTES = 64 << 20  # of a line, or of a JSON file
FREE = 16 << 20  # bytes that any file may unpack to, however small it is


@dataclass(frozen=True)
class Limits:
    """Upper bounds on the contents of a file. None: any number.

    unpacked  bytes
    ratio     bytes unpacked for each byte of a gzip file, where that is more than ``FREE`` in all.
              Real runs have 3 to 30; the most that gzip can do is 1,032.
    skipped   lines of unknown kinds, beyond one for each line of a known kind
    """

    unpacked: int | None = 2 << 30
    ratio: int | None = 100
    skipped: int | None = 10_000


LIMITS = Limits()
UNLIMITED = Limits(None, None, None)


def open_regular(path: Path | str) -> BufferedReader:
    """The file, to read bytes from. Raises OSError, also for a pipe, a socket or a device."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | AT_ONCE))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is a pipe or a device, and no regular file", str(path))
    return file


def check_regular(path: Path | str) -> None:
    """Raises OSError for what ``open_regular`` does not open; for libraries that take a path."""
    open_regular(path).close()


def lines(
    file: IO[bytes], name: str, limits: Limits = LIMITS, more: Callable[[], bool] = lambda: False
) -> Iterator[bytes]:
    """The lines of an open file, gzipped or not; of one that is too long its beginning.

    more  asked at the end of what is there: whether to look again, for a file that is being
          written. A line without its end is kept until then

    A gzip file that was cut ends there. Raises UserError, one sentence, for a damaged one and for
    a file beyond the limits.
    """
    zipped = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    stream = io.BufferedReader(_Unzipped(file), BLOCK) if zipped else file
    most, why = _most(size_of(file), zipped, limits)
    begun, used = b"", 0
    try:
        while True:
            line = begun + stream.readline(MAX_BYTES + 1 - len(begun))
            if not line.endswith(b"\n") and len(line) <= MAX_BYTES and more():
                begun, (most, why) = line, _most(size_of(file), zipped, limits)
                continue
            if not line:
                return
            begun, used = b"", used + len(line)
            if used > most:
                raise UserError(f"{name} unpacks to more than {why}")
            yield line
    except zlib.error:
        raise UserError(f"{name} is not a readable gzip file") from None


def size_of(file: IO[bytes]) -> int:
    """Return the size of a file now; where it is read from stays."""
    at = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(at)
    return size


class _Unzipped(io.RawIOBase):
    """The contents of a gzip file of one or several members. They end where it was cut, after all
    that came before: gzip's own reader drops what it has read ahead there."""

    def __init__(self, file: IO[bytes]):
        self._file, self._packed = file, b""
        self._member = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Raises zlib.error for a file that is not gzip."""
        found = b""
        while not found:
            self._packed = self._packed or self._file.read(BLOCK)
            if self._member is None:  # zeros may fill up a file
                self._packed = self._packed.lstrip(b"\0")
                self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            if not self._packed:
                return 0
            found = self._member.decompress(self._packed, len(buffer))
            self._packed = self._member.unconsumed_tail
            if self._member.eof:
                self._packed, self._member = self._member.unused_data, None
        buffer[: len(found)] = found
        return len(found)


def _most(size: int, zipped: bool, limits: Limits) -> tuple[float, str]:
    """How many bytes a file of this size may unpack to, and that limit in words."""
    found = [(float("inf"), "")]
    if limits.unpacked is not None:
        found.append((limits.unpacked, f"{limits.unpacked >> 20:,} MB"))
    if zipped and limits.ratio is not None:
        least = max(FREE, limits.ratio * size)
        found.append((least, f"{least >> 20} MB, {limits.ratio} times its size"))
    return min(found)
