"""Calibration tables from others: mutants end in one sentence, and large files are not unpacked."""

import resource

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from analysis.collected import calibration
from analysis.frames import COVERAGE
from core.errors import UserError
from tests.helpers.collected_toys import table

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.floats(), st.text(max_size=5),
    st.lists(st.integers(), max_size=2), st.binary(max_size=4),
)  # fmt: skip


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_columns_of_other_types_end_in_one_sentence(data, tmp_path):
    """A column of anything, a missing one, one more: a table or a UserError, never a traceback."""
    whole = table()
    name = data.draw(st.sampled_from(list(whole.columns)))
    kind = data.draw(st.sampled_from(["value", "column", "missing", "more", "type"]))
    if kind == "value":
        whole[name] = whole[name].astype(object)
        whole.at[2, name] = data.draw(VALUES)
    elif kind == "column":
        whole[name] = [data.draw(VALUES) for _ in range(len(whole))]
    elif kind == "missing":
        whole = whole.drop(columns=[name])
    elif kind == "more":
        whole[data.draw(st.text(max_size=4)) or "x"] = "y"
    else:
        made = data.draw(st.sampled_from(["datetime64[ns]", "complex128", "category", "string"]))
        try:
            whole[name] = whole[name].astype(made)
        except (TypeError, ValueError):
            return
    path = tmp_path / ("t.csv" if data.draw(st.booleans()) else "t.parquet")
    try:
        if path.suffix == ".csv":
            whole.to_csv(path, index=False)
        else:
            whole.to_parquet(path, index=False)
    except Exception:  # pandas itself cannot write it
        return
    try:
        found = calibration.read_table(path)
    except UserError as error:
        assert "\n" not in str(error)
        return
    drawn = calibration.curves(found)
    assert len(drawn) and drawn["depth"].dtype.kind == "i"


def test_a_depth_between_two_is_refused(tmp_path):
    table().assign(depth=1.5).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match="the column depth holds values of another kind"):
        calibration.read_table(tmp_path / "t.csv")


def test_a_small_file_that_unpacks_to_millions_of_rows_is_refused_unread(tmp_path):
    rows = 4_000_000
    path = tmp_path / "calibration.parquet"
    schema = pa.schema([(name, pa.int64()) for name in ("seed", "depth", "continuations")]
                       + [("series", pa.string()), ("tvd", pa.float64())]
                       + [(name, pa.float64()) for name in COVERAGE])  # fmt: skip
    with parquet.ParquetWriter(path, schema) as writer:
        part = 1_000_000
        columns = [
            pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(part, np.int32)), pa.array(["a"])
            ).cast(pa.string())
            if field.type == pa.string()
            else pa.array(np.zeros(part), field.type)
            for field in schema
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        for _ in range(rows // part):
            writer.write_batch(batch)
    del columns, batch
    assert path.stat().st_size < 8 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="rows"):
        calibration.read_table(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_a_long_name_is_cut(tmp_path):
    name = "x" * 5000
    with pytest.raises(UserError) as error:
        raise UserError(f"there is no method {name!r}; and {tmp_path} is short")
    assert len(str(error.value)) < 600 and "…" in str(error.value)
    assert len(str(UserError("a b " * 5000))) <= 2000
