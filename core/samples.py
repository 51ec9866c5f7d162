"""Files of prompts, some of them with answers. Light: never torch."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.chat import ASSISTANT, is_chat, read_chat
from core.errors import UserError
from core.json_input import parse_json, read_json
from core.readers import csv_rows, read_lines

PROMPT = "prompt"
QUESTION_FIELDS = (
    "question", "instruction", "user", "problem", "question_content", "query", "text"
)  # fmt: skip
MORE_FIELDS = ("input", "context")  # what a question or an instruction is about
CHAT_FIELDS = ("messages", "conversations", "conversation", PROMPT)
TURNS = (PROMPT, "turns")  # of MT-Bench and Spec-Bench: a list of what the user asks
ANSWER_FIELDS = ("assistant", "solution", "answer", "response", "completion", "output")
SOURCE_FIELDS = ("source", "category")
FIELDS = (*QUESTION_FIELDS, *MORE_FIELDS, *CHAT_FIELDS, "turns", *ANSWER_FIELDS, *SOURCE_FIELDS)
PARQUET = ".parquet"
SEPARATORS = {".csv": ",", ".tsv": "\t"}
NO_PROMPT = 'holds no prompt: it needs a field "prompt", "question", "messages" or "turns"'


@dataclass(frozen=True)
class Sample:
    """A prompt, its answer if the file has one, and the source that the file names.

    more  what the user asks in further turns, each after the answer to the one before
    """

    user: str
    answer: str | None = None
    source: str = ""
    more: tuple[str, ...] = ()


def read_samples(path: Path, most: float = math.inf) -> list[Sample]:
    """The samples of a file: of .txt a prompt a line, of .jsonl an object a line, of .json an
    object or a list of them, of .csv and .tsv a row each. Blank lines are left out.

    Raises UserError as ``samples_of``, and for a file that cannot be read.
    """
    return samples_of(_rows(path, most), path)


def samples_of(rows: Iterable[tuple[Any, str]], path: Path) -> list[Sample]:
    """The samples of rows, each with what to call it.

    A row holds a whole prompt, the user's turns (``TURNS``), a chat (``CHAT_FIELDS``), or a
    question (``QUESTION_FIELDS``, with ``MORE_FIELDS`` below it), in this order; and perhaps an
    answer and its source. A chat's last message is its answer where it is the assistant's.

    Raises UserError where there are none, and for one without a prompt, which it names.
    """
    told = list(rows)
    if not told:
        raise UserError(f"{path} holds no prompt")
    return [_sample(row, where) for row, where in told]


def _rows(path: Path, most: float) -> Iterator[tuple[Any, str]]:
    """Each sample of a file: its value, and how to call it."""
    if path.suffix == ".json":
        value = read_json(path)
        found = value if isinstance(value, list) and not is_chat(value) else [value]
        yield from ((row, f"{path}, item {n}") for n, row in enumerate(found, 1))
    elif path.suffix in SEPARATORS:
        found = csv_rows(path, most, SEPARATORS[path.suffix])
        yield from ((row, f"{path}, row {n}") for n, row in enumerate(found, 1))
    elif path.suffix == PARQUET:
        raise UserError(f"{path} is a Parquet table: here prompts are .jsonl, .json, .csv or .txt")
    else:
        for n, line in read_lines(path, most):
            where = f"{path}, line {n}"
            yield parse_json(line, where) if path.suffix == ".jsonl" else line, where


def _sample(row: Any, where: str) -> Sample:
    if isinstance(row, str):
        return Sample(checked(row, where))
    row = {"messages": row} if is_chat(row) else row
    if isinstance(row, dict) and isinstance(row.get("body"), dict):  # of a batch of requests
        row = row["body"]
    if not isinstance(row, dict):
        raise UserError(f"{where} {NO_PROMPT}")
    source = (_first(row, SOURCE_FIELDS) or "").encode("utf-8", "replace").decode()
    if turns := _turns(row):
        first, *more = (checked(turn, where) for turn in turns)
        return Sample(first, None, source, tuple(more))
    prompt, answer = _asked(row, where)
    return Sample(checked(prompt, where), answer and without_marks(answer), source)


def _asked(row: dict[str, Any], where: str) -> tuple[str, str | None]:
    """The prompt of a row, and its answer."""
    answer = _first(row, ANSWER_FIELDS)
    if (whole := _first(row, (PROMPT,))) is not None:
        return whole, answer
    # before other fields: a request names its user, and a chat's row may have its rendered text
    if name := next((name for name in CHAT_FIELDS if is_chat(row.get(name))), None):
        chat = read_chat({**row, "messages": row[name]}, where)
        *before, last = chat.messages
        if before and last["role"] == ASSISTANT:
            return replace(chat, messages=before).prompt, last["content"] or None
        return chat.prompt, answer
    if (question := _first(row, QUESTION_FIELDS)) is not None:
        more = [_first(row, (name,)) for name in MORE_FIELDS]
        return "\n\n".join([question, *filter(None, more)]), answer
    raise UserError(f"{where} {NO_PROMPT}")


def _turns(row: dict[str, Any]) -> list[str]:
    """The user's turns, where a row has no more of a conversation. Blank ones ask nothing."""
    found = next((turns for name in TURNS if isinstance(turns := row.get(name), (str, list))), ())
    if isinstance(found, str) or not all(isinstance(turn, str) for turn in found):
        return []
    return [turn for turn in found if turn.strip()]


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
    """A hash of what is trained on of the samples, wherever their file lies."""
    content = json.dumps([(sample.user, sample.answer, sample.source) for sample in samples])
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def without_marks(answer: str) -> str:
    """An answer without GSM8K's calculator marks, <<1+1=2>>."""
    return re.sub(r"<<[^>]*>>", "", answer)
