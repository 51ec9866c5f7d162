"""Training data on disk: texts with the target's features and top-K distribution at every token.

A shard is one safetensors file holding some documents back to back:

    tokens    int32  [N]        token ids, documents concatenated
    starts    int32  [D + 1]    where each document begins (and the last ends)
    answers   int32  [D]        index *within its document* where the answer begins
    features  fp16   [N, F·h]   target hidden states after `layers`, concatenated
    top_ids   int32  [N, K]     the target's K most probable next tokens after this position
    top_logp  fp16   [N, K]     their log-probabilities (full-vocabulary softmax)

Files appear under their final name only when complete, so a killed run resumes by counting them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from core.errors import UserError

TOP_K = 16


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
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={"layers": ",".join(map(str, layers))})
    os.replace(partial, path)


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
