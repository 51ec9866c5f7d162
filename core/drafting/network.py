"""Drafters that are a network between an embedding and a head.

Shapes: L drafted depths, C tokens that the head scores, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from core.drafting.best import scaled
from core.drafting.session import MIN_LISTED, Covered, Drafter, FactorisedSession
from core.errors import UserError
from core.models.checkpoint import WithHead
from core.models.fast_layers import use_fast_layers
from core.models.language import Language


class NetworkDrafter(Drafter):
    """``temperature`` divides the logits of q; the published methods use 1. ``covered``: the tokens
    that the head scores; None: all."""

    temperature: float = 1.0

    def log_softmax(self, logits: Tensor) -> Tensor:
        """log q [..., C] in float32, at the drafter's temperature."""
        return scaled(logits, self.temperature).log_softmax(-1)

    def whole(self, log_q: Tensor) -> Tensor:
        """log q [N, C] → [N, V]."""
        return log_q if self.covered is None else self.covered.whole(log_q)

    def by_depth(self, log_q: Tensor, width: int) -> FactorisedSession:
        """The session of log q [L, C] that depends on the depth alone."""
        part = None if self.covered is None else len(self.covered.ids)
        return FactorisedSession.of(self.whole(log_q), max(width, MIN_LISTED), part)


def own_head(
    found: WithHead[Any], language: Language, folder: Path
) -> tuple[nn.Module, Covered | None]:
    """The checkpoint's head or the target's rows of the same tokens, and these (None: all).

    Raises UserError for a part of a target's head that cannot be read off its embedding.
    """
    rows, config = found.head, language.model.config.get_text_config()
    covered = None if found.ids is None else Covered(found.ids, config.vocab_size)
    if rows is None and covered is None:
        return language.head, None
    if rows is None:
        if not config.tie_word_embeddings:
            raise UserError(f"{folder} has no head of its own, which its draft vocabulary needs")
        table: Any = language.embedding
        rows = table.weight.detach()[found.ids]
    module = nn.ModuleList([nn.Linear(*reversed(rows.shape), bias=False, device="meta")])
    module[0].weight = nn.Parameter(rows, requires_grad=False)
    use_fast_layers(module, language.model.dtype, language.device)
    return module[0], covered
