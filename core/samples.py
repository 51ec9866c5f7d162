"""Files of prompts, some of them with answers. Light: never torch."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from core.errors import UserError, WrongKind, reading
from core.json_input import MAX_BYTES, parse_json, read_json
from core.lines import open_regular

QUESTION_FIELDS = ("prompt", "question", "instruction", "user")
ANSWER_FIELDS = ("assistant", "answer", "response", "output")
Cut = Callable[[str], object]  # hears a sentence on a last line that was cut off


@dataclass(frozen=True)
class Sample:
    """A user turn, its answer if the file has one, and the source that the file names."""

    user: str
    answer: str | None = None
    source: str = ""


def read_lines(path: Path, most: float = math.inf) -> list[tuple[int, str]]:
    """The lines of a text file that are not blank, each with its number, from 1.

    Only a newline ends a line, since a prompt may hold U+2028. A byte-order mark is dropped.
    Raises UserError for a file that is missing, not readable, not UTF-8 or of more than ``most``
    bytes.
    """
    try:
        text = io.TextIOWrapper(io.BytesIO(_data(path, most)), "utf-8-sig").read()
    except UnicodeDecodeError:
        raise WrongKind(f"{path} is not UTF-8 text", path) from None
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    return [(number, line) for number, line in lines if line]


def _data(path: Path, most: float) -> bytes:
    with reading(path), open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise UserError(f"{path} is larger than {most / 2**20:.0f} MiB")
        return file.read()


def csv_rows(path: Path, most: float) -> list[dict[str, Any]]:
    """The rows of a CSV table with a header. A cell that is left empty is not told; those beyond
    the header's are a list under "more".

    Raises UserError as ``read_lines`` does, and for anything but a table.
    """
    text = "\n".join(line for _, line in read_lines(path, most))
    try:
        rows = list(csv.DictReader(io.StringIO(text), strict=True, restkey="more"))
    except csv.Error as error:
        raise UserError(f"{path} is not a CSV table: {error}") from None
    return [{k.strip(): v.strip() for k, v in row.items() if v and v.strip()} if "more" not in row
            else row for row in rows]  # fmt: skip


def json_values(path: Path, cut: Cut | None = None) -> Iterator[tuple[Any, str]]:
    """Every value in a JSON file or its list, or one a line, and what to call it.

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
                yield each, f"{path}, response {n}" if isinstance(value, list) else str(path)
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
        yield value, place


def read_samples(path: Path, most: float = math.inf) -> list[Sample]:
    """Samples of a .jsonl file, an object a line with a prompt (``QUESTION_FIELDS``) and perhaps an
    answer and its source, of a .json file with such an object or a list of them, or of a text file,
    a prompt a line; blank lines are left out.

    Raises UserError for a file that is empty or that ``read_lines`` refuses, for a table, and for a
    line without a prompt, which it names.
    """
    if path.suffix in (".csv", ".tsv"):  # else its header would be a prompt
        raise UserError(f'{path} is a table: prompts are .jsonl with a field "prompt", or .txt')
    if path.suffix == ".json":
        value = read_json(path)
        rows = value if isinstance(value, list) else [value]
        found = [_sample(row, f"{path}, item {n}") for n, row in enumerate(rows, 1)]
    else:
        told = [(line, f"{path}, line {n}") for n, line in read_lines(path, most)]
        if path.suffix == ".jsonl":
            found = [_sample(parse_json(line, where), where) for line, where in told]
        else:
            found = [Sample(checked(line, where)) for line, where in told]
    if not found:
        raise UserError(f"{path} holds no prompt")
    return found


def _sample(row: Any, where: str) -> Sample:
    if not isinstance(row, dict) or (prompt := _first(row, QUESTION_FIELDS)) is None:
        raise UserError(f'{where} has no text in a field "prompt"')
    answer, source = _first(row, ANSWER_FIELDS), row.get("source")
    source = source.encode("utf-8", "replace").decode() if isinstance(source, str) else ""
    return Sample(checked(prompt, where), answer and without_marks(answer), source)


def _first(row: dict[str, Any], names: Iterable[str]) -> str | None:
    return next((row[name] for name in names if isinstance(row.get(name), str)), None)


def checked(prompt: str, where: str) -> str:
    """Raises UserError for a prompt that is empty or holds bytes that are not text."""
    if not prompt.strip():
        raise UserError(f"{where} is empty")
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{where} is not valid Unicode text") from None
    return prompt


def digest(samples: Iterable[Sample]) -> str:
    """A hash of what the samples say, wherever their file lies."""
    content = json.dumps([astuple(sample) for sample in samples])
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def without_marks(answer: str) -> str:
    """An answer without GSM8K's calculator marks, <<1+1=2>>."""
    return re.sub(r"<<[^>]*>>", "", answer)
