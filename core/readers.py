"""Files of other programs: lines of text, tables in CSV, values in JSON. Light."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core.errors import UserError, WrongKind, reading
from core.json_input import MAX_BYTES, parse_json, read_json
from core.lines import open_regular

Item = tuple[Any, str]  # a value of JSON, and what to call its place
Say = Callable[[str], object]  # hears a sentence on what was left out


def read_lines(path: Path, most: float = math.inf) -> list[tuple[int, str]]:
    """The lines of a text file that are not blank, each with its number, from 1.

    Only a newline ends a line, since a prompt may hold U+2028. A byte-order mark is dropped.
    Raises UserError for a file that is missing, not readable, not UTF-8 or of more than ``most``
    bytes.
    """
    text = _text(path, most)
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    return [(number, line) for number, line in lines if line]


def _text(path: Path, most: float) -> str:
    try:
        return _data(path, most).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WrongKind(f"{path} is not UTF-8 text", path) from None


def _data(path: Path, most: float) -> bytes:
    with reading(path), open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise UserError(f"{path} is larger than {most / 2**20:.0f} MiB")
        return file.read()


def csv_rows(path: Path, most: float, separator: str = ",") -> list[dict[str, Any]]:
    """The rows of a CSV table with a header. Blanks around a cell are left out, and an empty cell
    is not told; those beyond the header's are a list under "more".

    Raises UserError as ``read_lines`` does, and for anything but a table.
    """
    lines = io.StringIO(_text(path, most).strip(), newline="")
    try:
        rows = list(csv.DictReader(lines, strict=True, restkey="more", delimiter=separator))
    except csv.Error as error:
        raise UserError(f"{path} is not a CSV table: {error}") from None
    told = ({k.strip(): v.strip() for k, v in row.items() if v and v.strip()} if "more" not in row
            else row for row in rows)  # fmt: skip
    return [row for row in told if row]


def json_values(path: Path, cut: Say | None = None) -> Iterator[Item]:
    """Every value in a JSON file or its list, or one a line, and what to call it. A line of a
    batch's output is the response in it.

    cut  hears of a last line that was cut off, as of a program that was killed, and is left out;
         None: it is refused

    Raises UserError, one sentence, for what is not JSON.
    """
    if path.suffix != ".jsonl":
        try:
            value = read_json(path)
        except WrongKind:
            if path.suffix == ".json":
                raise
        else:
            for n, each in enumerate(value if isinstance(value, list) else [value], 1):
                where = f"{path}, response {n}" if isinstance(value, list) else str(path)
                yield response_of(each), where
            return
    data = _data(path, MAX_BYTES)
    lines = [(n, line) for n, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    for n, line in lines:
        place = f"{path}, line {n}"
        try:
            value = parse_json(line, place)
        except WrongKind:
            if cut is None or n == lines[0][0] or data.endswith(b"\n") or n < lines[-1][0]:
                raise
            cut(f"Line {n}, the last, is cut off: it is left out.")
            return
        yield response_of(value), place


def response_of(value: Any) -> Any:
    """The response in a line of a batch's output, as OpenAI and vLLM write it; any other value as
    it is."""
    response = value.get("response") if isinstance(value, dict) else None
    body = response.get("body") if isinstance(response, dict) else None
    return body if isinstance(body, dict) else value
