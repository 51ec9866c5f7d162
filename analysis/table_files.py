"""Any table as a file: CSV for people and spreadsheets, Parquet for programs. And what all readers
of tables share."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.parquet_sizes import column_parts
from core.errors import UserError, WrongKind, reading
from core.lines import check_regular, open_regular
from core.visible import flowing

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

CSV, PARQUET = "csv", "parquet"
TYPES = {CSV: "text/csv", PARQUET: "application/vnd.apache.parquet"}
MAX_ROWS = 1 << 16  # of a table whose rows are read
MAX_UNPACKED = 512 << 20  # bytes of a Parquet file's columns
MAX_VALUES = 1 << 24  # in them, those of lists one by one
BATCH, BATCH_BYTES = 256, 64 << 20  # rows that are read at once, and what they may unpack to
_FORMULA = re.compile(r"^[=+\-@\t\r]")  # what a spreadsheet would evaluate


def table_csv(frame: pd.DataFrame) -> bytes:
    """UTF-8, one header line. Text has its control characters shown, and a "'" before what a
    spreadsheet would take for a formula: a token may be "=cmd()". Parquet keeps text exactly."""
    shown = frame.rename(columns=lambda name: _plain(str(name)))
    for column in shown.columns:
        if not pd.api.types.is_numeric_dtype(shown[column]):
            values = shown[column].tolist()
            # tokens repeat: each text is made once
            texts = {v: _plain(v) for v in {v for v in values if isinstance(v, str)}}
            shown[column] = [texts[v] if isinstance(v, str) else v for v in values]
    return shown.to_csv(index=False, lineterminator="\n").encode("utf-8", "replace")


def _plain(text: str) -> str:
    shown = flowing(text)
    return "'" + shown if _FORMULA.match(shown) else shown


def table_parquet(frame: pd.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.to_parquet(out, index=False)
    return out.getvalue()


def table_bytes(frame: pd.DataFrame, form: str) -> bytes:
    """``form`` is "csv" or "parquet"."""
    return {CSV: table_csv, PARQUET: table_parquet}[form](frame)


def download_table(frame: pd.DataFrame, name: str, form: str) -> dict[str, str]:
    """A table as a file for the browser: its name, its type, and its bytes in base64."""
    data = base64.b64encode(table_bytes(frame, form)).decode("ascii")
    return {"name": f"{name}.{form}", "type": TYPES[form], "data": data}


@contextmanager
def reading_table(path: Path) -> Iterator[None]:
    """Raises UserError for a file that cannot be read, and for one that is damaged or no table:
    pandas and pyarrow raise anything there."""
    try:
        with reading(path):
            check_regular(path)
            yield
    except UserError:
        raise
    except Exception as error:
        raise WrongKind(f"{path} cannot be read as a table: {type(error).__name__}", path) from None


@contextmanager
def open_parquet(path: Path) -> Iterator[ParquetFile]:
    """A Parquet file for reading. pyarrow itself opens no path that is not UTF-8."""
    from pyarrow.parquet import ParquetFile

    with open_regular(path) as file, ParquetFile(file) as found:
        yield found


def parquet_rows(path: Path, wanted: Set[str], what: str) -> Iterator[dict[str, Any]]:
    """The rows' ``wanted`` columns, few at a time; ``what`` it is for.

    Sizes are looked at before any value is read: a small file may unpack to any number. A value may
    stand there once for all rows, so that the bytes of a column bound one row, and not all of them.

    Raises UserError for a file that is too large.
    """
    with open_parquet(path) as found:
        parts = [each for each in column_parts(path) if each.column in wanted]
        size = sum(each.size for each in parts)
        values = sum(each.values for each in parts)
        large = UserError(f"{path} is too large for {what}")
        if found.metadata.num_rows > MAX_ROWS or size > MAX_UNPACKED or values > MAX_VALUES:
            raise large
        names, unpacked = [name for name in found.schema_arrow.names if name in wanted], 0
        rows = min(max(BATCH_BYTES // max(size, 1), 1), BATCH)
        for batch in found.iter_batches(rows, columns=names):
            unpacked += batch.nbytes
            if unpacked > MAX_UNPACKED:
                raise large
            yield from batch.to_pylist()


def check_columns(path: Path, found: Iterable[object], needed: Iterable[str], what: str) -> None:
    """Raises UserError for a file that is not ``what``: it lacks one of its columns, or names it
    twice."""
    names = list(map(str, found))
    if missing := [name for name in needed if names.count(name) != 1]:
        raise WrongKind(f"{path} is not {what}: it lacks {', '.join(missing)}", path)
