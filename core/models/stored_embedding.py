"""An input embedding that stays in its file: a text looks up a few hundred of its rows.

On a CPU the head is packed, so an embedding that is tied to it would be in memory twice, and in
float32 at twice the size of its file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class StoredEmbedding(nn.Module):
    """A matrix [V, h] of a file in a narrower type, looked up as ``dtype``: the same numbers.

    ids [...] → [..., h]
    """

    def __init__(self, file: Path, name: str, dtype: torch.dtype):
        super().__init__()
        self._file, self._name, self.dtype = file, name, dtype
        self._rows = mapped(file, name)  # not a parameter: a model's dtype is its parameters'

    @property
    def weight(self) -> Tensor:
        """All of it, read when asked for. (Through another mapping, or its pages would stay.)"""
        return mapped(self._file, self._name).to(self.dtype)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._rows).to(self.dtype)


def store_embedding(model: PreTrainedModel, folder: Path) -> None:
    """Replace a float32 model's embedding by its rows in the folder's safetensors files, if these
    are narrower and hold the same numbers."""
    own = model.get_input_embeddings()
    if type(own) is not nn.Embedding:
        return
    name = next(name for name, module in model.named_modules() if module is own) + ".weight"
    for file in sorted(folder.glob("*.safetensors")):
        if _holds(file, name) and _same(mapped(file, name), own.weight):
            model.set_input_embeddings(StoredEmbedding(file, name, own.weight.dtype))
            return


def mapped(file: Path, name: str) -> Tensor:
    """A tensor of a safetensors file whose pages are read when they are used."""
    with safe_open(file, "pt") as tensors:
        return tensors.get_tensor(name)


def _holds(file: Path, name: str) -> bool:
    with safe_open(file, "pt") as tensors:
        return name in tensors.keys()  # noqa: SIM118 (not a mapping)


def _same(rows: Tensor, weight: Tensor) -> bool:
    if rows.shape != weight.shape or rows.element_size() >= weight.element_size():
        return False
    parts = zip(rows.split(4096), weight.split(4096), strict=True)
    return all(torch.equal(a.to(b.dtype), b) for a, b in parts)
