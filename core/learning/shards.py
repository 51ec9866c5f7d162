"""Training data on disk: texts with the target's features and top-K distribution at every token.

A shard is one safetensors file that holds some documents back to back:

    tokens    int32  [N]        token ids
    starts    int32  [D + 1]    where each document begins, and where the last ends
    answers   int32  [D]        index *within its document* where the answer begins
    features  fp16   [N, F·h]   the target's hidden states after ``layers``, concatenated
    top_ids   int32  [N, K]     the target's K most probable next tokens after this position
    top_logp  fp16   [N, K]     their log-probabilities (full-vocabulary softmax)

A file gets its final name only when it is complete, so a killed run resumes by counting files.
``made-of.json`` beside them records what they were made of; other text is refused.
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
from safetensors.torch import save
from torch import Tensor

from core.errors import UserError
from core.files import replacing

TOP_K = 16
RECORD = "made-of.json"
_RENAMED = {"asks": "tasks"}  # names in records of earlier versions


@dataclass(frozen=True)
class Document:
    """One text.

    tokens    int32 [T]
    answer    index of the answer's first token, at least 1
    features  fp16 [T, F·h], after ``layers``
    top_ids, top_logp  int32 and fp16 [T, K]
    """

    tokens: Tensor
    answer: int
    features: Tensor
    top_ids: Tensor
    top_logp: Tensor
    layers: tuple[int, ...]

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def features_after(self, layers: tuple[int, ...], count: int | None = None) -> Tensor:
        """The first ``count`` tokens' features after these layers (default: all tokens').

        Raises UserError for a layer whose features it does not hold.
        """
        if missing := set(layers) - set(self.layers):
            raise UserError(f"the training text holds no features of layer {min(missing)}")
        features = self.features[:count]
        if layers == self.layers:
            return features
        parts = features.chunk(len(self.layers), -1) if self.layers else ()
        return torch.cat([features[:, :0], *(parts[self.layers.index(i)] for i in layers)], -1)


def write_shard(path: Path, documents: list[Document]) -> None:
    """Write documents that hold the features of the same layers."""
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
    about = {"layers": ",".join(map(str, documents[0].layers))}
    with replacing(path) as partial:
        partial.write_bytes(save(tensors, metadata=about))


def read_shard(path: Path) -> Iterator[Document]:
    """The shard's documents; features stay memory-mapped until they are used."""
    layers = shard_layers(path)
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
            layers=layers,
        )


def shard_layers(path: Path) -> tuple[int, ...]:
    """The layers whose features a shard holds. Raises UserError for a file that is not a shard."""
    with safe_open(path, framework="pt") as file:
        named = (file.metadata() or {}).get("layers")
    if not named:
        raise UserError(f"{path} is not training text: it names no feature layers")
    return tuple(int(i) for i in named.split(","))


def shard_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def folder_layers(folder: Path) -> tuple[int, ...]:
    """The layers whose features all shards of a folder hold.

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
    """Record beside the shards to come what they are made of."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / RECORD) as partial:
        partial.write_text(json.dumps(made_of, indent=1))


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record of what the shards are made of; empty for shards older than such records."""
    path = folder / RECORD
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return {_RENAMED.get(name, name): value for name, value in record.items()}


def check_record(folder: Path, made_of: Mapping[str, Any]) -> None:
    """Raises UserError naming what differs from the record. Shards without a record pass."""
    record = read_record(folder)
    wanted = json.loads(json.dumps(made_of))  # as JSON: a tuple is a list
    differing = [name for name, value in wanted.items() if record and record.get(name) != value]
    if differing:
        names = ", ".join(name.replace("_", "-") for name in differing)
        raise UserError(
            f"the text in {folder} was made with other values of {names}: "
            "repeat those, or name another folder"
        )
