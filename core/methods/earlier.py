"""Texts that were written before, for drafters that look things up: traces and text files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError
from core.traces.reader import is_trace, new_text, read_trace

if TYPE_CHECKING:
    from core.models.language import Language


def read_earlier(named: str, language: Language) -> Iterator[Sequence[int]]:
    """The token ids of the texts at a path: of a trace the new text, of everything else what
    ``core.ngram.documents`` reads there. Nothing for "".

    Raises UserError for what cannot be read, or is of another tokenizer.
    """
    if not named:
        return
    from core.ngram.documents import read_documents, text_files

    def encode(texts: list[str]) -> list[list[int]]:
        return [language.encode(text) for text in texts]

    for file in text_files([Path(named).expanduser()]):
        found = [_of_trace(file, language)] if is_trace(file) else read_documents([file], encode)
        for text in found:
            tokens = [int(token) for token in text]
            if not all(0 <= token < language.vocabulary for token in tokens):
                raise UserError(f"{file} holds token ids outside the model's vocabulary")
            yield tokens


def _of_trace(path: Path, language: Language) -> list[int]:
    trace = read_trace(path)
    if trace.header.tokenizer_hash not in ("", language.tokenizer_hash):
        raise UserError(f"the trace {path} holds another tokenizer's tokens")
    return new_text(trace, str(path))
