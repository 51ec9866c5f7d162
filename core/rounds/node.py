"""One reading of a draft's rows: every view, export and table takes a node's numbers from here.

Probabilities are 0 to 1: float32 logs may round above 0, and are cut there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .causes import Cause
from .draft import Array


@dataclass(frozen=True, kw_only=True)
class Node:
    """A row of a draft. None: not recorded, or without meaning for the root.

    rank    the drafter's rank of the token at its place, 1 = best; 0: it has none
    q, p    the drafter's and the target's probability of the token
    path_q, path_p  their products along the path; 1 for the root
    score   what the builder ranked by
    rank_p  the target's rank of the token, 1 = the most probable; equals that are not listed after
            its parent share one
    choice  the target's own token after the row; None: not computed
    """

    row: int
    depth: int
    token: int
    text: str
    status: str
    cause: Cause
    rank: int | None
    q: float | None
    path_q: float | None
    score: float | None
    p: float | None
    path_p: float | None
    rank_p: int | None
    choice: int | None


@dataclass(frozen=True, eq=False)
class Nodes:
    """The numbers of all rows of a draft: float64 [N]. NaN: not recorded, or the root's."""

    rank: Array
    q: Array
    score: Array
    p: Array
    rank_p: Array


def chances(logs: Array) -> Array:
    """Probabilities of a column of logs; the root, which was not drafted, has none."""
    return np.exp(np.minimum(beyond_root(logs), 0.0))


def beyond_root(values: Array) -> Array:
    """Values as float64, without a value for the root."""
    numbers = values.astype(np.float64)
    numbers[0] = np.nan
    return numbers


def ranks_of(values: Array) -> Array:
    """Ranks of a column; none for the root, nor where it is not known."""
    numbers = beyond_root(values)
    numbers[numbers < 0] = np.nan
    return numbers


def known(value: float | None) -> float | None:
    """The number; None where it is NaN or infinite: not known."""
    return None if value is None or not math.isfinite(value) else float(value)


def whole(value: float) -> int | None:
    return int(value) if math.isfinite(value) else None
