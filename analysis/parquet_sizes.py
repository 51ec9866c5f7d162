"""How large the columns of a Parquet file are, by its footer: before any value of them is read.

A small file may unpack to any number of values. pyarrow tells the sizes, too, but where a column's
description is damaged it ends the process: what it throws there passes through code that catches
nothing. So these few fields are read here, in Thrift's compact protocol, as Parquet's format has it
(https://github.com/apache/parquet-format). Light: never torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.lines import open_regular

MARK, MOST, DEEPEST = b"PAR1", 2 << 20, 16  # of a footer: its end, its bytes, its levels
ROW_GROUPS, COLUMNS, ABOUT, PATH, VALUES, UNPACKED = 4, 1, 3, 3, 5, 6  # numbers of fields
TRUE, FALSE, BYTE, SHORT, WHOLE, LONG, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


@dataclass(frozen=True)
class ColumnPart:
    """The part of a column in one group of rows: its first name, how many values, those of lists
    one by one, and how many bytes they unpack to."""

    column: str
    values: int
    size: int


def column_parts(path: Path) -> list[ColumnPart]:
    """Raises OSError for a file that cannot be read, and ValueError for one that is damaged."""
    with open_regular(path) as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - 8))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MARK or not 0 < length <= min(MOST, end - 8):
            raise ValueError("no Parquet file, or one of very many parts")
        file.seek(end - 8 - length)
        footer = file.read(length)
    try:
        return list(_parts(_Thrift(footer).value(STRUCT)))
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("a damaged footer") from error


def _parts(footer: Any) -> Iterator[ColumnPart]:
    for group in footer[ROW_GROUPS]:
        for column in group[COLUMNS]:
            about = column[ABOUT]
            found = ColumnPart(about[PATH][0].decode(), about[VALUES], about[UNPACKED])
            if found.values < 0 or found.size < 0:
                raise ValueError("a size below zero")
            yield found


class _Thrift:
    """Values of the compact protocol; a struct is a mapping of its fields' numbers.

    Raises IndexError at the end of the data, and ValueError for what is none.
    """

    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def value(self, kind: int, depth: int = 0) -> Any:
        if depth > DEEPEST:
            raise ValueError("nested too deep")
        if kind in (SHORT, WHOLE, LONG):
            found = self._varint()
            return found >> 1 ^ -(found & 1)
        if kind in (DOUBLE, BINARY):
            return self._bytes(8 if kind == DOUBLE else self._varint())
        if kind in (LIST, SET):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._varint()
            return [self.value(head & 15, depth + 1) for _ in range(size)]
        if kind == MAP:
            size = self._varint()
            kinds = self._byte() if size else 0
            pair = (kinds >> 4, kinds & 15)
            return [tuple(self.value(each, depth + 1) for each in pair) for _ in range(size)]
        if kind == STRUCT:
            return self._struct(depth)
        if kind in (TRUE, FALSE, BYTE):
            return self._byte()
        raise ValueError(f"no type {kind}")

    def _struct(self, depth: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self.value(SHORT)
            kind = head & 15
            found[number] = kind == TRUE if kind in (TRUE, FALSE) else self.value(kind, depth + 1)
        return found

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise IndexError
        self._at += size
        return found

    def _varint(self) -> int:
        found = shift = 0
        while shift < 70:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
        raise ValueError("a number of more than 64 bits")
