"""Files as users have them: published configs, files of other programs, a method of their own."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from pathlib import Path

from tests import GOLDEN

PUBLISHED = json.loads((GOLDEN / "published-configs.json").read_text("utf-8"))
SAVED = {"output_ids": [1, 2], "num_input_tokens": 1, "round_trees": []}


def write(folder: Path, name: str, data: object) -> Path:
    """Bytes and text as they are, anything else as JSON, a value a line in .jsonl."""
    if name.endswith(".jsonl") and isinstance(data, list):
        data = "".join(json.dumps(each) + "\n" for each in data)
    elif not isinstance(data, (bytes, str)):
        data = json.dumps(data)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return folder / name


class Trap:
    """Unpickling it would write a file."""

    def __reduce__(self):
        return Path.touch, (Path("pickled-code-ran"),)


def zipped(*names: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in names:
            archive.writestr(name, b"x" * 40)
    return made.getvalue()


FOREIGN = {
    "a PDF": b"%PDF-1.7\n%\xe2\xe3", "a picture": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "a web page": "<!doctype html><title>x</title>", "a pickle": pickle.dumps(Trap()),
    "a zip file": zipped("a.txt"), "gzipped": gzip.compress(b"hello\n"),
    "an office program": zipped("[Content_Types].xml", "word/document.xml"),
    "NumPy": zipped("a.npy"), "GGUF": b"GGUF\3\0\0\0", "a program": b"\x7fELF\2\1\1\0",
    "a notebook": {"nbformat": 4, "cells": []}, "JSON of another kind": {"a": 1},
    "a table of another kind": "name,age\nx,3\n", "text of another kind": "hello\nthere",
    "a binary file": b"\1\0\2\0\3" * 9, "without counts": {"choices": [{"text": "hi"}]},
}  # fmt: skip
OWN_FILE = """
from dataclasses import dataclass

from core.methods.method import DrafterInfo, Method, Range, option

@dataclass(frozen=True)
class Options:
    luck: float = option(0.5, "how lucky", Range(0, 1, step=0.1))
    tries: int = option(3, "how often", Range(1, 9))
    note: str = option("x", "a word")

def drafter(language, folder, options):
    raise NotImplementedError

METHOD = Method("Mine", DrafterInfo("mine", "a guess", drafter, Options), "chain")
"""
