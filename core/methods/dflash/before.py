"""Drafters on DFlash's block that correct its logits by the tokens before.

A correction turns what is known at a place of the block into a small vector (``latents``) and that
into what is added to the logits (``read_out``). Some know only the token before (DSpark's first
heads), some the whole path (a recurrent head, Domino, XPress).

A path begins with the token before the root, then the root, then what is drafted.

Shapes: A blocks, b rows of a block that are read, L drafted depths, R nodes, S tokens listed after
a node, h hidden width, r width of a latent, C tokens of the head, V vocabulary.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from core.drafting.session import MIN_LISTED, Children, Covered, PathSession
from core.drafting.work import DraftWork
from core.methods.dflash import CONFIDENCE
from core.methods.dflash.drafter import DFlashDrafter
from core.models.layers import Embed
from core.rounds.draft import MARGINAL, Array

After = Callable[[Tensor, Tensor], Tensor]  # 0-based depths [R], paths [R, 1 + L] → [R, …]


class Correction(nn.Module):
    """Logits to add to those of a block's places, by the path to each.

    along  whether it reads the whole path; else only the token before
    """

    along = True

    @abstractmethod
    def latents(self, rows: Tensor, paths: Tensor, embed: Embed) -> Tensor:
        """Normed rows [A, b, h] and paths [A, 1 + L] → [A, L, r]. A place sees no token after it:
        paths that end sooner, at n ≤ L, give [A, n, r]."""

    @abstractmethod
    def read_out(self, latents: Tensor, depths: Tensor) -> Tensor:
        """[..., r] at 0-based depths [...] → [..., C]."""

    def forward(self, rows: Tensor, paths: Tensor, embed: Embed) -> Tensor:
        """Normed rows [A, b, h] and paths [A, 1 + L] → [A, L, C]."""
        latents = self.latents(rows, paths, embed)
        depths = torch.arange(latents.shape[1], device=latents.device)
        return self.read_out(latents, depths.expand(latents.shape[:2]))

    def at(self, rows: Tensor, depths: Tensor, paths: Tensor, embed: Embed) -> Tensor:
        """One block's normed rows [b, h]: what is added after R paths [R, 1 + L] → [R, C]."""
        if self.along:
            whole = rows.expand(len(depths), -1, -1)
            latents = self.latents(whole, paths[:, : 2 + int(depths.max())], embed)
            here = latents[torch.arange(len(depths), device=latents.device), depths]
        else:
            two = torch.stack([before(depths, paths)] * 2, 1)
            here = self.latents(rows[depths][:, None], two, embed)[:, 0]
        return self.read_out(here, depths)


def before(depths: Tensor, paths: Tensor) -> Tensor:
    """The tokens before places at ``depths`` [R], of their paths [R, 1 + L]."""
    return paths.gather(1, depths[:, None] + 1)[:, 0]


class CorrectedDrafter(DFlashDrafter):
    """DFlash's pass, then a correction after each path that a builder asks about.

    Its network has ``correction``, and may have ``confidence(rows, before)`` → log-probabilities.
    ``least``: where the confidence is below this probability nothing is drafted.
    """

    least: float = 0.0

    @property
    def network(self) -> Any:
        return self.model

    @property
    def work(self) -> DraftWork:
        return replace(super().work, state=self.network.correction)

    def logits(self, hidden: Tensor, paths: Tensor) -> Tensor:
        rows = self.model.norm(hidden)
        own = self.head(rows[:, -self.max_depth :])
        return own + self.network.correction(rows, paths, self.embedding)

    def session(self, hidden: Tensor, ends: tuple[int, int], width: int) -> BeforeSession:
        network, rows = self.network, self.model.norm(hidden)
        logits = self.head(rows[-self.max_depth :])

        def after(depths: Tensor, paths: Tensor) -> Tensor:
            own = network.correction.at(rows, depths, paths, self.embedding)
            return self.log_softmax(logits[depths] + own)

        def confidence(depths: Tensor, paths: Tensor) -> Tensor:
            found = network.confidence(rows[-self.max_depth :][depths], before(depths, paths))
            return rows.new_full(depths.shape, torch.nan) if found is None else found

        tells = confidence if hasattr(network, "confidence") else None
        block = BlockOutput(self.whole(self.log_softmax(logits)), after, tells)
        return BeforeSession(block, ends, width, self.covered, self.least)


@dataclass(frozen=True, eq=False)
class BlockOutput:
    """The distributions that one pass of the network gives for a block.

    plain       log q [L, V] at each depth, for any token before
    after       log q [R, C] after paths
    confidence  log-probability [R] that what is drafted there will be accepted; None: not told
    """

    plain: Tensor
    after: After
    confidence: After | None = None


class BeforeSession(PathSession):
    """Any token may stand before: there is no list of candidates to stay in.

    ends   the last committed token and the root
    least  where the confidence is below this probability nothing is drafted
    """

    def __init__(
        self,
        block: BlockOutput,
        ends: tuple[int, int],
        width: int,
        covered: Covered | None = None,
        least: float = 0.0,
    ):
        super().__init__(ends[1], len(block.plain), max(width, MIN_LISTED), covered)
        self._block, self._ends, self._least = block, ends, least

    @torch.inference_mode()
    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        return self._block.after(*self._places(tokens, parents))

    @torch.inference_mode()
    def expand(self, states: Array) -> Children:
        """Note the plain q beside every token, and the confidence where there is one."""
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

    @torch.inference_mode()
    def stops(self, path: Sequence[int]) -> bool:
        """Whether the confidence after a path is below the least."""
        if self._block.confidence is None or not self._least:
            return False
        (sure,) = self._block.confidence(*self._places_of([[*path]]))
        return bool(sure.exp() < self._least)

    def _places(self, tokens: list[int], parents: list[int]) -> tuple[Tensor, Tensor]:
        """Depths [R] of nodes and their paths [R, 1 + L], whose ends mean nothing."""
        return self._places_of(list(map(self.path, tokens, parents)))

    def _places_of(self, paths: list[list[int]]) -> tuple[Tensor, Tensor]:
        where, size = self._block.plain.device, self.max_depth
        whole = [[self._ends[0], *path, *[0] * (size - len(path))] for path in paths]
        depths = torch.tensor([len(path) - 1 for path in paths], device=where)
        return depths, torch.tensor(whole, device=where)
