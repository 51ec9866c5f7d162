"""The attention mask of a draft tree."""

from __future__ import annotations

import numpy as np

from core.compiled import compiled
from core.rounds.draft import Array, Draft


def ancestor_mask(draft: Draft) -> Array:
    """bool [N, N]: row i sees row j when j is i itself or an ancestor of i."""
    return _ancestors(draft.parents)


@compiled
def _ancestors(parents):
    count = len(parents)
    allowed = np.zeros((count, count), np.bool_)
    allowed[0, 0] = True
    for row in range(1, count):
        above = parents[row]
        for column in range(above + 1):
            allowed[row, column] = allowed[above, column]
        allowed[row, row] = True
    return allowed
