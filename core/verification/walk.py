"""The verifier's walk: lossless acceptance, whatever the draft holds. Light: never torch.

A round that starts at some token of the target's own text accepts exactly the prefix of the drafted
tree that agrees with the text. So the rounds of a real run follow from what is drafted at every
token, without the target (``verdict``, ``lengths``).
"""

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


def verdict(draft: Draft, text: Sequence[int]) -> Verdict:
    """The verifier's own walk, the target's tokens being the ``text`` after the root."""
    wanted = [*text, -1]  # where the text ends, no token is wanted
    return walk(draft, lambda row: int(wanted[min(int(draft.depths[row]), len(text))]))


def lengths(length_at: Callable[[int], int], last: int) -> tuple[int, ...]:
    """Acceptance lengths (accepted + 1) of the rounds of one run.

    ``length_at`` tells it for a round whose root is the new text's n-th token (from 0); the run
    ends as soon as the next root would be token ``last`` or later.
    """
    taken, at = [], 0
    while at < last:
        taken.append(length_at(at))
        at += taken[-1]
    return tuple(taken)


def until_stop(tokens: Sequence[int], stop_ids: frozenset[int]) -> list[int]:
    """The tokens up to the first end-of-text, which is included."""
    ends = (at + 1 for at, token in enumerate(tokens) if token in stop_ids)
    return list(tokens[: next(ends, len(tokens))])
