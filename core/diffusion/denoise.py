"""Block-wise denoising of a masked-diffusion model, plain and with Spiffy's drafts.

S counts the block states of one call (row 0 is the current block, the others are drafts),
L the positions of a block, V the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from core.types import Array


class DiffusionTarget(Protocol):
    """The only owner of the model and of its context. One text at a time.

    exact     whether the scores of a draft equal what its state, run alone, would get
    forwards  model calls so far (NFE): one per ``score``, whatever the number of states
    """

    mask_id: int
    stop_ids: frozenset[int]
    vocabulary: int
    device: torch.device
    exact: bool
    forwards: int

    def begin(self, prompt: Sequence[int], length: int, block: int) -> None:
        """Start a text: ``length`` new positions after the prompt, in blocks of ``block``."""
        ...

    def score(self, states: Array, wanted: Sequence[Array]) -> Sequence[Tensor]:
        """Float logits [len(wanted[s]), V] of every state, in ONE model call.

        ``states`` int64 [S, L] holds ``mask_id`` where a position is masked; ``wanted[s]`` are the
        block positions (0 … L − 1) of state s whose distribution is needed, in the order wanted.
        Only the states that are reached are read afterwards, row 0 first and each at most once, so
        the sequence may apply the output head when an entry is read.
        """
        ...

    def advance(self, block: Sequence[int]) -> None:
        """The finished current block becomes context; the next block is current."""
        ...
