"""A folder's tokenizer without transformers: what decoding asks of one, with the same answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import AddedToken, Tokenizer

from core.models.hub import Source


@dataclass(frozen=True)
class Encoded:
    input_ids: list[int]


class FolderTokenizer:
    """``tokenizer.json`` and ``chat_template.jinja``. Whatever else is asked for, transformers'
    tokenizer answers, which is loaded then."""

    special_tokens_map: ClassVar[Mapping[str, str]] = {}  # the template of this folder uses none

    def __init__(self, folder: Path):
        self._folder = folder
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.chat_template = (folder / "chat_template.jinja").read_text("utf-8")

    def __call__(
        self, text: str, add_special_tokens: bool = True, split_special_tokens: bool = False
    ) -> Encoded:
        self._tokenizer.encode_special_tokens = split_special_tokens
        found = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return Encoded(found.ids)

    def decode(self, ids: Sequence[int] | int, skip_special_tokens: bool = False) -> str:
        ids = [ids] if isinstance(ids, int) else list(ids)
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def convert_ids_to_tokens(self, token: int) -> str | None:
        return self._tokenizer.id_to_token(token)

    @cached_property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        return self._tokenizer.get_added_tokens_decoder()

    def get_vocab(self) -> dict[str, int]:
        return self._tokenizer.get_vocab(with_added_tokens=True)

    @cached_property
    def _whole(self) -> Any:
        from core.models.hugging_face import load_tokenizer

        return load_tokenizer(Source(str(self._folder)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._whole, name)
