"""docs/trace.md and docs/trace.schema.json say what the reader does."""

import gzip
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from core.declared import END
from core.json_input import MAX_BYTES, MAX_DEPTH, MAX_VALUES
from core.traces.reader import read_trace
from core.traces.schema import FORMAT, MAX_BLOCK, MAX_ROWS, MAX_STATES, VERSION, Header
from tests import ROOT
from tests.helpers.mutants import HOLE, NASTY, opened, placed, places, sound

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with ray")

CONTRACT = (ROOT / "docs" / "trace.md").read_text("utf-8")
SCHEMA = json.loads((ROOT / "docs" / "trace.schema.json").read_text("utf-8"))
SHIPPED = [
    *sorted((ROOT / "assets").glob("traces/*.jsonl.gz")),
    *sorted((ROOT / "assets").glob("learn/*.jsonl.gz")),
    *sorted((ROOT / "tests" / "golden").glob("*.jsonl")),
]


ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def without_derived(schema: Any) -> Any:
    """The schema without fields that follow from others: the reader derives them again."""
    if isinstance(schema, list):
        return [without_derived(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {k: v for k, v in schema.items() if not (isinstance(v, dict) and v.get("readOnly"))}
    return {key: without_derived(value) for key, value in kept.items()}


VALID = jsonschema.Draft202012Validator(SCHEMA)
CHECKED = jsonschema.Draft202012Validator(without_derived(SCHEMA))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_trace_is_valid(path):
    """Header, footer, the longest round and a few others: all of them take a while."""
    raw = path.read_bytes()
    lines = (gzip.decompress(raw) if path.suffix == ".gz" else raw).splitlines()
    longest = max(lines, key=len)
    for line in (*lines[:: max(1, len(lines) // 4)], longest, lines[-1]):
        VALID.validate(json.loads(line))


SMALL = [data for data in sound() if len(data) < 8000]
LINES = [(data, at) for data in SMALL for at in range(min(3, data.count(b"\n")))]


@pytest.mark.parametrize(("data", "number"), LINES, ids=range(len(LINES)))
def test_the_reader_refuses_what_the_schema_refuses(data, number):
    """In other words: every line with a nasty value that the reader opens is valid."""
    refused, rng = 0, random.Random(number)
    for text in with_nasty_values(data.splitlines()[number], rng):
        lines = data.splitlines()
        lines[number] = text.encode()
        if opened(b"\n".join(lines) + b"\n") is not None:
            CHECKED.validate(json.loads(text))
        refused += not CHECKED.is_valid(json.loads(text)) if rng.random() < 0.1 else 0
    assert refused  # the schema does refuse


def with_nasty_values(line: bytes, rng: random.Random) -> Iterator[str]:
    value = json.loads(line)
    for place in places(value):
        hole = json.dumps(placed(value, place, HOLE))
        for nasty in rng.sample([n for n in NASTY if len(n) < 1000], 10):
            yield hole.replace(json.dumps(HOLE), nasty)
        if place and isinstance(place[-1], str):
            yield json.dumps(placed(value, place))


def test_the_contract_names_every_field():
    def names(schema: Any) -> Iterator[str]:
        for key, value in schema.items() if isinstance(schema, dict) else ():
            yield from value if key == "properties" else ()
            yield from names(value)

    written = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", CONTRACT))))
    assert set(names(SCHEMA)) | {f.name for f in fields(Header)} <= written


def test_contract_and_schema_state_the_limits():
    limits = SCHEMA["$defs"]
    assert limits["header"]["properties"]["format"] == {"const": FORMAT}
    assert limits["header"]["properties"]["version"] == {"const": VERSION}
    assert limits["nodes"]["properties"]["parents"]["maxItems"] == MAX_ROWS
    assert limits["graphNodes"]["properties"]["parents"]["maxItems"] == MAX_STATES
    assert limits["block"]["properties"]["state"]["maxItems"] == MAX_BLOCK
    assert limits["whole"]["maximum"] == END - 1
    assert MAX_VALUES == 1 << 22 and END == 1 << 31
    for limit in (
        f"{MAX_BYTES >> 20} MB per line", "2²² values", f"{MAX_DEPTH} levels", f"{MAX_ROWS:,} rows",
        f"{MAX_BLOCK:,} positions", f"{MAX_STATES} rows", "below 2³¹",
    ):  # fmt: skip
        assert limit in " ".join(CONTRACT.split()), limit


def test_the_contract_s_example_writes_a_trace(tmp_path):
    """In ten lines or so, and with numpy alone."""
    (code,) = re.findall(r"```python\n(.*?)```", CONTRACT, re.DOTALL)
    assert len(code.splitlines()) <= 20
    alone = "import sys\nsys.modules.update(torch=None, msgspec=None, orjson=None)\n"
    subprocess.run([sys.executable, "-c", alone + code], cwd=tmp_path, check=True, env=ENVIRONMENT)
    for line in (tmp_path / "mine.jsonl").read_text().splitlines():
        VALID.validate(json.loads(line))
    trace = read_trace(tmp_path / "mine.jsonl")
    assert trace.complete and trace.rounds[0].status == ("accepted", "accepted", "rejected")
