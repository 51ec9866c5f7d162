"""Tokenizers that would make a text very long are refused; published ones are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, normalizers, processors
from transformers import PreTrainedTokenizerFast

from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.models.tokenizer_limits import check_tokenizer
from tests.helpers import toys
from tests.helpers.toys_on_disk import save_toys


def special(name: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": 0}}


def template(single: list[Any], ids: int = 1) -> dict[str, Any]:
    tokens = {"<s>": {"id": "<s>", "ids": [1] * ids, "tokens": ["<s>"] * ids}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [text if each is None else each for each in single],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": tokens,
    }


def replace(content: str, times: int = 1, **pattern: str) -> dict[str, Any]:
    one = {"type": "Replace", "pattern": pattern, "content": content}
    return {"type": "Sequence", "normalizers": [one] * times}


BOMBS = {
    "replaced": ("normalizer", replace("aa", 40, String="a")),
    "between all letters": ("normalizer", replace("a" * 99, Regex="")),
    "before": ("normalizer", {"type": "Prepend", "prepend": "a" * 10**6}),
    "before and replaced": (
        "normalizer",
        {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a" * 500}]
         + replace("a" * 8, 2, String="a")["normalizers"]},
    ),
    "special tokens": ("post_processor", template([special("<s>")] * 10**4 + [None])),
    "ids of one": ("post_processor", template([special("<s>"), None], ids=10**5)),
    "the text again": ("post_processor", template([None] * 1000)),
    "decoded": (
        "decoder",
        {"type": "Sequence", "decoders": replace("a" * 9, 9, String="a")["normalizers"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_tokenizer_that_explodes_is_one_sentence(name: str, tmp_path: Path):
    """Before it has read a word: it would take all memory."""
    part, value = BOMBS[name]
    save_toys(tmp_path)
    file = tmp_path / "target" / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {part: value}))
    with pytest.raises(UserError, match=f"may make a text too long: its {part}") as error:
        list(Engine(str(tmp_path / "target"), "cpu").start(RunRequest("a", method="ar")).rounds)
    assert "\n" not in str(error.value)


PUBLISHED = {  # as the files of Qwen, Llama 2, 3 and 4, Gemma, DeepSeek, Mistral, BERT and T5 have
    "NFC": ("normalizer", normalizers.NFC()),
    "Llama 2": (
        "normalizer",
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    ),
    "Gemma": ("normalizer", normalizers.Replace(" ", "▁")),
    "DeepSeek": ("normalizer", normalizers.Sequence([])),
    "BERT": ("normalizer", normalizers.BertNormalizer()),
    "byte level": ("normalizer", normalizers.ByteLevel()),
    "Llama 2's decoder": (
        "decoder",
        decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        ),
    ),
    "Llama 3": (
        "post_processor",
        processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)]),
            ]
        ),
    ),
    "T5": ("post_processor", processors.TemplateProcessing("$A <s>", "$A $B <s>", [("<s>", 1)])),
    "GLM": ("post_processor", processors.TemplateProcessing("<s> <s> $A", None, [("<s>", 1)])),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_part_is_let_pass(name: str):
    part, value = PUBLISHED[name]
    made = Tokenizer.from_str(toys.tokenizer().backend_tokenizer.to_str())
    setattr(made, part, value)
    check_tokenizer(PreTrainedTokenizerFast(tokenizer_object=made), "x")
