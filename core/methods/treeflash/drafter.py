"""The TreeFlash drafter at work: DFlash's pass, then q′ after candidates as a builder asks for it.

Shapes: L drafted depths, M candidates per depth, S siblings kept, h hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from core.drafting.best import top
from core.drafting.session import MIN_LISTED, NO_STATE, ROOT_STATE, Children, DraftSession
from core.drafting.work import DraftWork
from core.methods.dflash.drafter import DFlashDrafter
from core.methods.loading import check_fits, drafter_folder
from core.methods.treeflash import BEHIND, TreeFlashOptions
from core.methods.treeflash.model import FORM, TreeFlashModel
from core.models.fast_layers import use_fast_layers
from core.models.language import Language
from core.rounds.draft import MARGINAL, Array, Candidates


def load(language: Language, folder: Path | None, options: TreeFlashOptions) -> TreeFlashDrafter:
    """The TreeFlash drafter in ``folder`` (None: the one that ships) on the target's device.

    Raises UserError when there is none or it was made for another target.
    """
    folder = drafter_folder("treeflash", language, folder)
    model = FORM.load_model(folder, language.model.dtype, language.device)
    check_fits(folder, language, model.config)
    model.ar_approximation.halve()
    use_fast_layers(model, language.model.dtype, language.device)
    return TreeFlashDrafter(model, language.embedding, language.head, options)


class TreeFlashDrafter(DFlashDrafter):
    """DFlash's pass, then q′ given the token before."""

    def __init__(
        self,
        model: TreeFlashModel,
        embedding: nn.Module,
        head: nn.Module,
        options: TreeFlashOptions = TreeFlashOptions(),  # noqa: B008 (frozen)
    ):
        super().__init__(model.model, embedding, head, options.temperature)
        self.conditioner = Conditioner(model, embedding, head, options)

    @property
    def work(self) -> DraftWork:
        return replace(super().work, state=self.conditioner.model.ar_approximation)

    def logits(self, hidden: Tensor, paths: Tensor) -> Tensor:
        before = paths[:, 1 : 1 + hidden.shape[1]]
        found = self.conditioner.conditioned(hidden.flatten(0, 1), before.flatten())
        return found.unflatten(0, before.shape)

    def log_softmax(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)  # they are over the temperature

    def session(self, hidden: Tensor, ends: tuple[int, int], width: int) -> TreeFlashSession:
        return TreeFlashSession(self.conditioner, hidden, ends[1], width)


@dataclass(frozen=True, eq=False)
class Conditioner:
    """The head at work: from residual rows to q and q′.

    embed  token ids [...] → the target's embeddings [..., h]
    head   rows [N, h] → logits [N, V], the target's
    """

    model: TreeFlashModel
    embed: Callable[[Tensor], Tensor]
    head: Callable[[Tensor], Tensor]
    options: TreeFlashOptions = TreeFlashOptions()  # noqa: RUF009 (frozen)

    def plain(self, hidden: Tensor) -> Tensor:
        """Plain log q [L, V] of residual rows [L, h], for any prefix."""
        return self._scaled(self.head(self.model.model.norm(hidden))).log_softmax(-1)

    def conditioned(self, hidden: Tensor, before: Tensor) -> Tensor:
        """The logits of q′ [N, V] over the temperature, from residual rows [N, h] and the tokens
        before them [N] (Equation 1)."""
        rows = self.model.conditioned(hidden, self.embed(before).to(hidden.dtype))
        return self._scaled(self.head(rows))

    def _scaled(self, logits: Tensor) -> Tensor:
        logits, temperature = logits.float(), self.options.temperature
        return logits if temperature == 1 else logits / temperature


class TreeFlashSession(DraftSession):
    """States are the root (0) and, at each depth d < L, the M candidates that stand there.

    A row of the target's head is what q′ costs. A GPU answers everything at once. A CPU answers
    what was asked and the states that plain q makes most probable, so that few answers are needed.
    """

    by_depth: Candidates

    def __init__(self, conditioner: Conditioner, hidden: Tensor, root: int, width: int):
        self._conditioner, self._hidden = conditioner, hidden
        options = conditioner.options
        plain = conditioner.plain(hidden)
        kept = min(max(width, MIN_LISTED, options.candidates), plain.shape[-1])
        best = top(plain, kept)
        self.by_depth = Candidates(_array(best.indices), _array(best.values))
        self._plain, self._width = plain, width
        self._candidates = best.indices[:, : options.candidates]  # [L, M]
        before = self._candidates[:-1].flatten()
        first = torch.tensor([root], device=before.device)
        self._before = torch.cat([first, before])  # of every state
        self._known = np.zeros(len(self._before), np.bool_)

    @property
    def max_depth(self) -> int:
        return len(self._hidden)

    @property
    def state_count(self) -> int:
        """1 + (L − 1)·M."""
        return len(self._before)

    @torch.inference_mode()
    def expand(self, states: Array) -> Children:
        if self._hidden.device.type != "cpu":
            states = np.arange(self.state_count, dtype=np.int32)
        elif not self._known.any():
            states = np.union1d(states, self._probable()).astype(np.int32)
        self._known[states] = True
        return self._children(states)

    @torch.inference_mode()
    def log_q(self, path: Sequence[int]) -> Tensor:
        """log q′ [d, V] along a path, each row given its token before."""
        before = torch.tensor(path, device=self._hidden.device)
        return self._conditioner.conditioned(self._hidden[: len(path)], before).log_softmax(-1)

    def _children(self, states: Array) -> Children:
        """q′ after these states (Figure 8, part 1)."""
        where = torch.from_numpy(states).long().to(self._hidden.device)
        count = self._candidates.shape[1]
        depth = (where + count - 1) // count  # 0 after the root
        logits = self._conditioner.conditioned(self._hidden[depth], self._before[where])
        best = top(logits, min(self._conditioner.options.siblings, logits.shape[-1]))
        same = best.indices[..., None] == self._candidates[depth][:, None]
        place = torch.where(same.any(-1), same.int().argmax(-1), NO_STATE)
        inner = (place >= 0) & (depth < self.max_depth - 1)[:, None]
        leads = torch.where(inner, 1 + depth[:, None] * count + place, NO_STATE)
        rank_before = np.where(states > ROOT_STATE, (states - 1) % count + 1.0, np.nan)
        ids, marginal = _array(best.indices), self._plain[depth[:, None], best.indices]
        return Children(
            states=states,
            ids=ids,
            log_q=_array(best.values - logits.logsumexp(-1, keepdim=True)),
            next=_array(leads.int()),
            notes={
                MARGINAL: _array(marginal),
                BEHIND: np.broadcast_to(rank_before[:, None], ids.shape).astype(np.float32),
            },
        )

    def _probable(self) -> Array:
        """The states that the best paths under plain q reach: about as many as nodes are wanted."""
        log_q = self.by_depth.log_q
        above = np.concatenate([[0.0], log_q[:-1, 0].cumsum()[:-1]])  # of the best path before
        reach = (above[:, None] + log_q[:-1, : self._candidates.shape[1]]).ravel()
        return 1 + np.argsort(-reach, kind="stable")[: self._width]


def _array(tensor: Tensor) -> Array:
    return tensor.cpu().numpy()
