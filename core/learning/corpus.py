"""The documents of a shard folder, and the places in them that a training step learns at."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from core.learning.shards import Document, folder_layers, read_shard, shard_paths

SHORTEST = 16  # answer tokens a document needs


@dataclass(frozen=True)
class Blocks:
    """A anchors of one document: the indices of the blocks' roots, int64 [A], ascending."""

    document: Document
    anchors: Tensor

    def target_probs(self, depths: int, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
        """The target's top ids and p at each depth [A, L, K], and which depths exist [A, L].

        ``top_k`` 0: the text's own next token instead, with p = 1.
        """
        index = self.anchors[:, None] + torch.arange(depths)
        last = len(self.document) - 1
        if top_k == 0:
            tokens = self.document.tokens[(index + 1).clamp(max=last)].long()[..., None]
            return tokens, torch.ones(tokens.shape), index < last
        exists, index = index <= last, index.clamp(max=last)
        ids = self.document.top_ids[index][..., :top_k].long()
        return ids, self.document.top_logp[index][..., :top_k].float().exp(), exists


class Corpus:
    """The documents of a shard folder. Some prompts are held out with all their answers.

    ``test`` has one document of each held-out prompt (the first: the greedy one, if there is one).
    ``train`` has none of them, since a prompt's answers resemble each other.
    """

    def __init__(self, folder: Path, held_out: int):
        """``held_out``: how many prompts, but at most a twelfth of all."""
        self.folder, self._count = folder, held_out
        self._read: set[Path] = set()
        self._held_out: dict[bytes, Document] = {}
        self.train: list[Document] = []
        self.refresh()

    @property
    def layers(self) -> tuple[int, ...]:
        """The feature layers of its shards."""
        return folder_layers(self.folder)

    @property
    def test(self) -> list[Document]:
        return list(self._held_out.values())

    @property
    def tokens(self) -> int:
        """Answer tokens to train on."""
        return sum(len(d) - d.answer for d in self.train)

    def refresh(self) -> None:
        """Read shards that appeared since: collecting and fitting may run side by side."""
        fresh = [path for path in shard_paths(self.folder) if path not in self._read]
        self._read.update(fresh)
        documents = [d for path in fresh for d in read_shard(path) if len(d) - d.answer >= SHORTEST]
        keyed = [(_prompt_key(d), d) for d in documents]
        if not self._held_out:  # only once: later shards must not hold out what was trained on
            self._held_out = _hold_out(keyed, self._count)
        self.train += [d for key, d in keyed if key not in self._held_out]

    def holds_out(self, document: Document) -> bool:
        """Whether the document answers a held-out prompt."""
        return _prompt_key(document) in self._held_out


def _hold_out(documents: list[tuple[bytes, Document]], count: int) -> dict[bytes, Document]:
    """The first document of the prompts with the least keys: a fair sample of all shards, and the
    same in every run."""
    first: dict[bytes, Document] = {}
    for key, document in documents:
        first.setdefault(key, document)
    count = min(count, math.ceil(len(first) / 12))
    return {key: first[key] for key in sorted(first)[:count]}


def _prompt_key(document: Document) -> bytes:
    prompt = document.tokens.numpy()[: document.answer].tobytes()
    return hashlib.blake2b(prompt, digest_size=8).digest()


def frequent_tokens(documents: list[Document], size: int) -> Tensor:
    """All token ids int64 [size], those first that most often are among the target's best four."""
    counts = torch.zeros(size, dtype=torch.long)
    for document in documents:
        counts += torch.bincount(document.top_ids[:, :4].flatten().long(), minlength=size)
    return counts.sort(descending=True, stable=True).indices


def draw_blocks(
    documents: list[Document], sequences: int, anchors: int, rng: torch.Generator
) -> list[Blocks]:
    """Documents in proportion to their answers' lengths, and anchors in each answer."""
    lengths = torch.tensor([float(len(d) - d.answer) for d in documents])
    chosen = torch.multinomial(lengths, sequences, replacement=True, generator=rng)
    batch = []
    for document in (documents[i] for i in chosen.tolist()):
        room = len(document) - document.answer - 1
        picks = torch.randperm(room, generator=rng)[:anchors].sort().values
        batch.append(Blocks(document, picks + document.answer))
    return batch
