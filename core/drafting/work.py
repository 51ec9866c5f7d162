"""The work of a drafter's network in one round, from which bytes and FLOPs are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False)
class DraftWork:
    """A drafter's modules by what passes through them. A drafter gives it as ``work``.

    network  all its own modules; their weights are read once a round
    context  what the feature of every newly committed token passes through, its keys and values
             aside
    block    what each of the block's ``rows`` rows passes through; ``pairs`` of these rows see
             each other
    head     scores ``scored`` rows of the block
    state    what every state that the builder expands passes through after the block, and then the
             head; None where expanding costs nothing
    in_turn  whether the states of a depth can only be scored after those of the depth before
    """

    network: nn.Module
    context: nn.Module
    block: nn.Module
    head: nn.Module
    rows: int
    pairs: float
    scored: int
    state: nn.Module | None = None
    in_turn: bool = False
