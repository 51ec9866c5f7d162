"""Drafters on DFlash's block whose q depends on the depth and the token before.

Shapes: R nodes, L drafted depths, S tokens listed after a node, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from core.drafting.session import MIN_LISTED, Children, PathSession
from core.methods.dflash import CONFIDENCE
from core.rounds.draft import MARGINAL, Array

After = Callable[[Tensor, Tensor], Tensor]  # 0-based depths [R], tokens before them [R] → [R, …]


@dataclass(frozen=True, eq=False)
class Block:
    """What one pass tells.

    plain       log q [L, V] at each depth, for any token before
    after       log q [R, V] after tokens
    confidence  log-probability [R] that what is drafted there will be accepted; None: not told
    """

    plain: Tensor
    after: After
    confidence: After | None = None


class BeforeSession(PathSession):
    """Any token may stand before: there is no list of candidates to stay in.

    least  where the confidence is below this probability nothing is drafted
    """

    def __init__(self, block: Block, root: int, width: int, least: float = 0.0):
        super().__init__(root, len(block.plain), max(width, MIN_LISTED))
        self._block, self._least = block, least

    @torch.inference_mode()
    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        return self._block.after(*self._places(tokens, parents))

    @torch.inference_mode()
    def expand(self, states: Array) -> Children:
        """With plain q, and the confidence where there is one, beside every token."""
        nodes, found = [self._node(state) for state in states.tolist()], super().expand(states)
        places = self._places([token for _, token in nodes], [parent for parent, _ in nodes])
        ids = torch.from_numpy(found.ids).to(self._block.plain.device)
        notes = {MARGINAL: self._block.plain[places[0][:, None], ids].cpu().numpy()}
        if self._block.confidence is None:
            return replace(found, notes=notes)
        sure = self._block.confidence(*places)[:, None].float().cpu().numpy()
        odds = np.where(np.exp(sure) < self._least, -np.inf, found.log_q).astype(np.float32)
        notes[CONFIDENCE] = np.broadcast_to(sure, odds.shape)
        return replace(found, log_q=odds, notes=notes)

    def _places(self, tokens: list[int], parents: list[int]) -> tuple[Tensor, Tensor]:
        """Depths and tokens of nodes, int64 [R] each."""
        depths = [self._depths[parent] + 1 if parent >= 0 else 0 for parent in parents]
        where = self._block.plain.device
        return torch.tensor(depths, device=where), torch.tensor(tokens, device=where)
