"""The verifier's walk: lossless acceptance, whatever the draft holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from core.rounds.draft import ROOT, Draft
from core.rounds.round import Verdict


def walk(draft: Draft, choose: Callable[[int], int]) -> Verdict:
    """From the root, step to the child that carries the target's own token, until none does.

    ``choose(row)`` is the target's token after ``row``. No rejection sampling is needed: that
    token is emitted whether it was drafted or not. Rows that the walk never reaches keep −1.
    """
    target_tokens = np.full(len(draft), -1, np.int64)
    path, row = [ROOT], ROOT
    while True:
        target_tokens[row] = choose(row)
        step = draft.child(row, int(target_tokens[row]))
        if step is None:
            return Verdict(tuple(path), target_tokens)
        path.append(step)
        row = step


def until_stop(tokens: Sequence[int], stop_ids: frozenset[int]) -> list[int]:
    """The tokens up to the first end-of-text, which is included."""
    ends = (at + 1 for at, token in enumerate(tokens) if token in stop_ids)
    return list(tokens[: next(ends, len(tokens))])
