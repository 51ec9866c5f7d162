"""Documents of token ids, read lazily from text and JSON lines.

.jsonl          one object per line: token ids ("tokens", "ids"), or every text of a known field as
                a document
anything else   UTF-8 text, one document per file
"""

from __future__ import annotations

import io
import os
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from core.errors import UserError, reading
from core.json_input import parse_json
from core.lines import UNLIMITED, lines, open_regular
from core.rounds.draft import Array
from core.samples import ANSWER_FIELDS, PROMPT, QUESTION_FIELDS, without_marks

Document = Sequence[int] | Array
Encode = Callable[[list[str]], Sequence[Sequence[int]]]  # texts → their token ids
BytesRead = Callable[[int], None]  # how many more bytes have been read

TEXT_FIELDS = (PROMPT, *QUESTION_FIELDS, *ANSWER_FIELDS, "content")
ID_FIELDS = ("tokens", "ids", "input_ids")
_PIECE = 1 << 18  # characters of a text tokenised at once; more is slower
_BATCH = 256  # short texts tokenised together


def text_files(paths: Iterable[Path]) -> list[Path]:
    """The files that are named, and all text files below folders, without hidden ones.

    Raises UserError for a path that does not exist and for a folder without text.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = [file for file in _below(path) if _is_text(file)]
            if not below:
                raise UserError(f"there is no text file in {path}")
            files += below
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"there is no file {path}")
    return files


def _below(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(where) / name for name in sorted(names) if not name.startswith("."))


def _is_text(file: Path) -> bool:
    """Whether the whole file is UTF-8 without zero bytes."""
    decoder = getincrementaldecoder("utf-8")()
    try:
        with open_regular(file) as stream:
            while block := stream.read(_PIECE):
                if b"\0" in block:
                    return False
                decoder.decode(block)
            decoder.decode(b"", final=True)
    except (OSError, UnicodeDecodeError):
        return False
    return True


def read_documents(
    files: Iterable[Path], encode: Encode, bytes_read: BytesRead = lambda _: None
) -> Iterator[Document]:
    """Every document of the files. Raises UserError naming the file, and the line of a .jsonl."""
    for file in files:
        read = _json_lines if file.suffix.lower() == ".jsonl" else _text
        try:
            with reading(file):
                yield from read(file, encode, bytes_read)
        except UnicodeDecodeError:
            raise UserError(f"{file} is not UTF-8 text") from None


def _text(file: Path, encode: Encode, bytes_read: BytesRead) -> Iterator[Document]:
    """The whole file as one document, tokenised in pieces of whole lines to bound the memory."""
    pieces = [np.empty(0, np.int32)]
    with io.TextIOWrapper(open_regular(file), "utf-8-sig") as stream:
        while some := stream.readlines(_PIECE):
            (ids,) = encode(["".join(some)])
            pieces.append(np.asarray(ids, np.int32))
            bytes_read(sum(len(line.encode()) for line in some))
    yield np.concatenate(pieces)


def _json_lines(file: Path, encode: Encode, bytes_read: BytesRead) -> Iterator[Document]:
    waiting: list[str] = []
    with open_regular(file) as stream:
        for number, line in enumerate(lines(stream, str(file), UNLIMITED), 1):
            row = _row(line, f"{file}, line {number}") if line.strip() else []
            if row and isinstance(row[0], str):
                waiting += row
            elif row:
                yield row
            if len(waiting) >= _BATCH or sum(map(len, waiting)) >= _PIECE:
                yield from encode(waiting)
                waiting = []
            bytes_read(len(line))
    if waiting:
        yield from encode(waiting)


def _row(line: bytes, where: str) -> list:
    """One line's token ids, or its texts."""
    row = parse_json(line, where)
    if not isinstance(row, dict):
        raise UserError(f"{where} is not a JSON object")
    for name in ID_FIELDS:
        ids = row.get(name)
        if isinstance(ids, list) and all(type(token) is int for token in ids):
            return ids
    texts = {name: row[name] for name in TEXT_FIELDS if isinstance(row.get(name), str)}
    if not texts:
        raise UserError(f"{where} has no token ids and no text ({', '.join(TEXT_FIELDS)})")
    return [without_marks(t) if name in ANSWER_FIELDS else t for name, t in texts.items()]
