"""A checkpoint's head at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from core.drafting.session import Covered
from core.errors import UserError
from core.models.checkpoint import WithHead
from core.models.fast_layers import use_fast_layers
from core.models.language import Language


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
