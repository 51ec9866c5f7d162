"""Rounds over a text that is already known. Light: never torch.

A round that starts at some token of the target's own text accepts exactly the prefix of the drafted
tree that agrees with the text. So the rounds of a real run follow from what is drafted at every
token, without the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.rounds.draft import Draft
from core.rounds.round import Verdict
from core.verification.walk import walk


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
