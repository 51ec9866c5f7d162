"""Training data on disk: texts with the target's features and top-K distribution at every token.

A shard is one safetensors file holding some documents back to back:

    tokens    int32  [N]        token ids, documents concatenated
    starts    int32  [D + 1]    where each document begins (and the last ends)
    answers   int32  [D]        index *within its document* where the answer begins
    features  fp16   [N, F·h]   target hidden states after `layers`, concatenated
    top_ids   int32  [N, K]     the target's K most probable next tokens after this position
    top_logp  fp16   [N, K]     their log-probabilities (full-vocabulary softmax)

Files appear under their final name only when complete, so a killed run resumes by counting them.
``made-of.json`` beside them says what they were made of: going on with anything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from core.errors import UserError
from core.files import replacing

TOP_K = 16
RECORD = "made-of.json"


@dataclass(frozen=True)
class Document:
    """One text. ``answer`` is the index of the first token the target answered with (or 1)."""

    tokens: torch.Tensor  # int32 [T]
    answer: int
    features: torch.Tensor  # fp16 [T, F·h]
    top_ids: torch.Tensor  # int32 [T, K]
    top_logp: torch.Tensor  # fp16 [T, K]

    def __len__(self) -> int:
        return self.tokens.shape[0]


def write_shard(path: Path, documents: list[Document], layers: tuple[int, ...]) -> None:
    lengths = torch.tensor([0] + [len(d) for d in documents])
    tensors = {
        "tokens": torch.cat([d.tokens for d in documents]).int(),
        "starts": lengths.cumsum(0).int(),
        "answers": torch.tensor([d.answer for d in documents]).int(),
        "features": torch.cat([d.features for d in documents]),
        "top_ids": torch.cat([d.top_ids for d in documents]).int(),
        "top_logp": torch.cat([d.top_logp for d in documents]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        save_file(tensors, partial, metadata={"layers": ",".join(map(str, layers))})


def read_shard(path: Path) -> Iterator[Document]:
    """The shard's documents; features stay memory-mapped until they are touched."""
    with safe_open(path, framework="pt") as file:
        whole = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    starts = whole["starts"].tolist()
    for index, (low, high) in enumerate(pairwise(starts)):
        yield Document(
            tokens=whole["tokens"][low:high],
            answer=int(whole["answers"][index]),
            features=whole["features"][low:high],
            top_ids=whole["top_ids"][low:high],
            top_logp=whole["top_logp"][low:high],
        )


def shard_layers(path: Path) -> tuple[int, ...]:
    """The layers its features stand after. Raises UserError for a file that is no shard."""
    with safe_open(path, framework="pt") as file:
        named = (file.metadata() or {}).get("layers")
    if not named:
        raise UserError(f"{path} is not training text: it names no feature layers")
    return tuple(int(i) for i in named.split(","))


def shard_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def folder_layers(folder: Path) -> tuple[int, ...]:
    """The layers that the features of all its shards stand after.

    Raises UserError for a folder without shards, and for one whose shards differ.
    """
    found = {shard_layers(path): path.name for path in shard_paths(folder)}
    if not found:
        raise UserError(f"{folder} holds no training text: name the shards of a run")
    if len(found) > 1:
        one, other, *_ = found.values()
        raise UserError(f"{folder}: {one} and {other} hold the features of different layers")
    return next(iter(found))


def write_record(folder: Path, made_of: Mapping[str, Any]) -> None:
    """Say beside the shards to come what they are made of."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / RECORD) as partial:
        partial.write_text(json.dumps(made_of, indent=1))


def read_record(folder: Path) -> dict[str, Any]:
    """What its shards are made of; empty where they are older than such records."""
    path = folder / RECORD
    return json.loads(path.read_text()) if path.exists() else {}


def check_record(folder: Path, made_of: Mapping[str, Any]) -> None:
    """Raises UserError naming what differs from the record. Shards older than such records are
    taken as they are."""
    kept = read_record(folder)
    asked = json.loads(json.dumps(made_of))  # as a record holds it: a tuple is a list there
    other = [name for name, value in asked.items() if kept and kept.get(name) != value]
    if other:
        said = ", ".join(name.replace("_", "-") for name in other)
        raise UserError(
            f"the text in {folder} was made with other values of {said}: "
            "repeat those, or name another folder"
        )
