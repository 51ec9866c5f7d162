"""Sizes off a Parquet file's footer are those that pyarrow tells of a sound one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from analysis.parquet_sizes import ColumnPart, column_parts

TABLE = pa.table(
    {
        "n": pa.array([*range(1000)], pa.int32()),
        "lists": pa.array([[1, 2, 3], [], *[[7]] * 998]),
        "word": pa.array(["a", None] * 500).dictionary_encode(),
        "is": pa.array([True, False] * 500),
        "x": pa.array([0.5] * 1000),
        "deep": pa.array([{"a": [1.0], "b": None}] * 1000),
        "time": pa.array([0] * 1000, pa.timestamp("ms")),
    }
)


def told_by_pyarrow(path: Path) -> list[ColumnPart]:
    about = parquet.ParquetFile(path).metadata
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    parts = [group.column(n) for group in groups for n in range(about.num_columns)]
    return [
        ColumnPart(p.path_in_schema.split(".")[0], p.num_values, p.total_uncompressed_size)
        for p in parts
    ]


@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("rows", [2000, 37])
def test_the_sizes_are_those_of_the_library(tmp_path: Path, version: str, rows: int):
    path = tmp_path / "t.parquet"
    parquet.write_table(
        TABLE, path, row_group_size=rows, version=version, store_decimal_as_integer=True,
        write_page_index=rows == 37, write_page_checksum=True, compression="zstd",
    )  # fmt: skip
    found = column_parts(path)
    assert found == told_by_pyarrow(path) and len(found) >= 8
    assert sum(part.values for part in found if part.column == "lists") == 1002


def test_an_empty_table_has_no_values(tmp_path: Path):
    path = tmp_path / "t.parquet"
    parquet.write_table(TABLE.slice(0, 0), path)
    assert column_parts(path) == told_by_pyarrow(path)
    assert not any(part.values for part in column_parts(path))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1\xff\xff\xff\xff" + b"PAR1", b"x" * 99])
def test_what_is_no_parquet_is_a_value_error(tmp_path: Path, data: bytes):
    path = tmp_path / "t.parquet"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="Parquet"):
        column_parts(path)


@pytest.mark.parametrize(
    "footer", [b"\x49" + b"\xfc" * 40, b"\x1c" * 400, b"\x15", b"\x00", b"\x1f"]
)
def test_a_damaged_footer_is_a_value_error(tmp_path: Path, footer: bytes):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ValueError, match=r"footer|deep|bits|type"):
        column_parts(path)
