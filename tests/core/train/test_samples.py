"""Prompt files, and which texts overlap with held-out ones."""

from __future__ import annotations

import csv
import json

import pytest

from core.errors import UserError
from core.readers import read_lines
from core.samples import Sample, digest, read_samples
from core.train.sources import Overlap

TWELVE = "one two three four five six seven eight nine ten eleven twelve"


def test_only_a_newline_ends_a_line(tmp_path):
    path = tmp_path / "a.jsonl"
    odd = ["a\u2028b", "c\u0085d\x0be", "f"]
    rows = [json.dumps({"prompt": text}, ensure_ascii=False) for text in odd]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n\n".join(rows).encode())
    assert [sample.user for sample in read_samples(path)] == odd
    assert [number for number, _ in read_lines(path)] == [1, 3, 5]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"\n \n", "holds no prompt"),
        (b'{"prompt": "x"}\n\n[1]', 'a.jsonl, line 3 holds no prompt: it needs a field "prompt"'),
        (b'{"prompt": 1}', "a.jsonl, line 1 holds no prompt"),
        (b'{"turns": [1]}', "a.jsonl, line 1 holds no prompt"),
        (b'{"turns": []}', "a.jsonl, line 1 holds no prompt"),
        (b'{"messages": []}', "a.jsonl, line 1 holds no prompt"),
        (b'{"body": 1}', "a.jsonl, line 1 holds no prompt"),
        (b'{"body": {}}', "a.jsonl, line 1 holds no prompt"),
        (b'{"prompt": " "}', "a.jsonl, line 1 is empty"),
        (b"[" * 100_000, "a.jsonl, line 1"),
    ],
)
def test_a_file_without_prompts_is_one_sentence(tmp_path, content, why):
    path = tmp_path / "a.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=why):
        read_samples(path)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        (
            "a.json",
            b'[{"prompt": "x"}, {"a": 1}]',
            "a.json, item 2 holds no prompt",
        ),
        ("a.json", b"{", "a.json"),
        ("a.csv", b"text of mine\nx\n", "a.csv, row 1 holds no prompt"),
        ("a.csv", b"prompt\n", "a.csv holds no prompt"),
        ("a.parquet", b"PAR1", "a.parquet is a Parquet table"),
    ],
)
def test_a_file_of_another_form_is_not_read_as_a_prompt_a_line(tmp_path, name, content, why):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=why):
        read_samples(tmp_path / name)
    (tmp_path / "list.json").write_text('[\n{"prompt": "x"},\n{"question": "y"}\n]')
    assert [sample.user for sample in read_samples(tmp_path / "list.json")] == ["x", "y"]


USER, BOT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
SYSTEM = {"role": "system", "content": "s"}


@pytest.mark.parametrize(
    ("row", "sample"),
    [
        ({"task_id": "HumanEval/0", "prompt": "def f():", "input": "x"}, Sample("def f():")),
        ({"question": "2+3?", "answer": "<<2+3=5>>5"}, Sample("2+3?", "5")),  # GSM8K
        ({"problem": "x", "solution": "because 1", "answer": "1"}, Sample("x", "because 1")),
        ({"question_content": "q", "platform": "p"}, Sample("q")),  # LiveCodeBench
        ({"text": "Write f.", "code": "def f():", "test_list": []}, Sample("Write f.")),  # MBPP
        ({"instruction": "Sum up.", "input": "Text.", "output": "T."},
         Sample("Sum up.\n\nText.", "T.")),
        ({"instruction": "Sum up.", "input": "", "output": "T."}, Sample("Sum up.", "T.")),
        ({"instruction": "Who?", "context": "Text.", "response": "I", "category": "qa"},
         Sample("Who?\n\nText.", "I", "qa")),  # Dolly
        ({"question_id": 1, "category": "math", "turns": ["q", "r"], "reference": ["a"]},
         Sample("q", None, "math", ("r",))),  # MT-Bench, Spec-Bench
        ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
         Sample("q", "a")),  # ShareGPT
        ({"conversation": [USER, BOT]}, Sample("q", "a")),
        ({"prompt": [USER], "completion": "a"}, Sample("q", "a")),
        ([USER, BOT], Sample("q", "a")),
        ("q", Sample("q")),
        ({"messages": [SYSTEM, USER, BOT]}, Sample(json.dumps([SYSTEM, USER]), "a")),
        ({"messages": [USER, BOT, USER]}, Sample(json.dumps([USER, BOT, USER]))),
        ({"custom_id": "1", "body": {"model": "m", "messages": [USER], "tools": [{"a": 1}]}},
         Sample(json.dumps({"messages": [USER], "tools": [{"a": 1}]}))),
        ({"prompt": "q", "messages": [SYSTEM, USER, BOT]}, Sample("q")),  # UltraChat
        ({"body": {"user": "u-1", "messages": [USER]}}, Sample("q")),
        ({"text": "<s>q</s>a", "conversations": [USER, BOT]}, Sample("q", "a")),
    ],
)  # fmt: skip
def test_rows_of_published_sets_are_read(tmp_path, row, sample):
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "a.json").write_text(json.dumps(row if isinstance(row, list) else [row]))
    assert read_samples(tmp_path / "a.jsonl") == read_samples(tmp_path / "a.json") == [sample]


@pytest.mark.parametrize(
    ("row", "sample"),
    [
        ({"turns": ["q", "and?"], "category": "writing"}, Sample("q", None, "writing", ("and?",))),
        ({"prompt": ["q", "and?"], "reference": []}, Sample("q", more=("and?",))),  # MT-Bench, hub
        ({"turns": ["q", " ", "and?"]}, Sample("q", more=("and?",))),
        ({"turns": ["q"], "answer": "a"}, Sample("q")),
        ({"turns": ["x"], "prompt": "q"}, Sample("q")),
        ({"turns": "several", "question": "q"}, Sample("q")),
        ({"turns": [], "question": "q"}, Sample("q")),
    ],
)
def test_turns_are_read_in_order(tmp_path, row, sample):
    (path := tmp_path / "a.json").write_text(json.dumps([row]))
    assert read_samples(path) == [sample]


def test_what_is_trained_on_has_the_digest_it_had():
    told = digest([Sample("q", "a", "s"), Sample("q")])
    assert told == digest([Sample("q", "a", "s", ("more",)), Sample("q")])
    assert told == "e4806dfcc4b4b04a7b92803c0562c9df"


@pytest.mark.parametrize(("name", "cut"), [("a.csv", ","), ("a.tsv", "\t")])
def test_a_table_has_a_prompt_a_row(tmp_path, name, cut):
    code = 'def f():\n\n    return "a,\tb"'
    lines = [("prompt", "source"), (code, "code"), ("q", "")]
    with (tmp_path / name).open("w", newline="") as file:
        csv.writer(file, delimiter=cut).writerows(lines)
    assert read_samples(tmp_path / name) == [Sample(code, None, "code"), Sample("q")]


def test_a_file_may_be_too_large(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a" * 2**21)
    assert read_lines(path, 2**21) == [(1, "a" * 2**21)]
    with pytest.raises(UserError, match="is larger than 1 MiB"):
        read_lines(path, 2**20)


def test_a_digest_is_of_what_the_samples_say():
    some = [Sample("a", "b"), Sample("c")]
    assert digest(some) == digest(list(some)) != digest(some[:1])
    assert len({digest([s]) for s in (Sample("a"), Sample("a", ""), Sample("a", None, "x"))}) == 3


# ── what is held out ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("held_out", "text", "expected"),
    [
        (f"{TWELVE} thirteen fourteen", f"Say {TWELVE} thirteen!", True),
        (f"{TWELVE} thirteen fourteen", f"Say {TWELVE} 13!", False),
        (TWELVE, f"Say {TWELVE}, please, and then say it again.", True),  # a short one, inside
        ("What is the capital of Peru?", "Q: what is the capital of peru? A: Lima.", True),
        ("What is the capital of Peru?", "What is the capital of Chile?", False),
        ("the capital of Peru", "What is the capital of Peru?", False),  # a phrase
        ("the capital of Peru", "The capital of Peru?", True),
        ("Hello!", "hello", True),
        ("Hello!", "Hello there", False),
        (TWELVE, "one two three four five", False),
        ("???", "", False),  # without words there is nothing to find
    ],
)
def test_what_overlaps(held_out, text, expected):
    assert (text in Overlap([held_out])) is expected


def test_held_out_texts_of_all_lengths_are_looked_for_together():
    overlap = Overlap(["Who are you now, friend?", "Hi", f"{TWELVE} thirteen fourteen"])
    found = [t in overlap for t in ("who are you now friend of mine", "hi", "hi you", "", TWELVE)]
    assert found == [True, True, False, False, False]
