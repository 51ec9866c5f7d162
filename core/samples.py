"""Files of prompts, some of them with answers. Light: never torch."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from core.errors import UserError, reading
from core.json_input import parse_json
from core.lines import open_regular

QUESTION_FIELDS = ("user", "prompt", "question", "instruction")
ANSWER_FIELDS = ("assistant", "answer", "response", "output")


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
        with reading(path), open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > most:
                raise UserError(f"{path} is larger than {most / 2**20:.0f} MiB")
            text = io.TextIOWrapper(file, "utf-8-sig").read()
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text") from None
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    return [(number, line) for number, line in lines if line]


def read_samples(path: Path) -> list[Sample]:
    """Samples from a ``.jsonl`` file: {user|prompt|question…, assistant|answer…?} a line.

    Raises UserError for a file that cannot be read or is empty, and for a line without a user turn.
    """
    samples = []
    for number, line in read_lines(path):
        try:
            row = parse_json(line, "the line")
            user = next(row[f] for f in QUESTION_FIELDS if isinstance(row.get(f), str))
        except (UserError, AttributeError, StopIteration):
            raise UserError(f"{path}:{number} is not a JSON object with a prompt") from None
        answer = next((row[f] for f in ANSWER_FIELDS if isinstance(row.get(f), str)), None)
        if answer is not None:
            answer = without_marks(answer)
        samples.append(Sample(user, answer, str(row.get("source", ""))))
    if not samples:
        raise UserError(f"{path} holds no prompt")
    return samples


def digest(samples: Iterable[Sample]) -> str:
    """A hash of what the samples say, wherever their file lies."""
    content = json.dumps([astuple(sample) for sample in samples])
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def without_marks(answer: str) -> str:
    """An answer without GSM8K's calculator marks, <<1+1=2>>."""
    return re.sub(r"<<[^>]*>>", "", answer)
