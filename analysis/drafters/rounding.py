"""How finely the stored numbers of a checkpoint differ from each other, whatever type holds them.

Weights that were rounded to eight bits or fewer and written back as bf16 repeat within a group of
neighbours that shared a scale. Two numbers with the same power of two that have m random bits of
mantissa are equal once in 2^m pairs, so counting equal pairs measures m. A scale does not matter.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

GROUP = 32  # neighbours in a row: the smallest group with a scale of its own in common formats
GROUPS = 2048  # of a matrix, on evenly spread rows, that are looked at
PAIRS = 3000  # with the same power of two: at bf16's 7 bits some 23 of them are equal
COARSE = 5.5  # bits: bf16 shows 6.8 to 7 for any smooth spread of weights, eight bits at most 5.4


def mantissa_bits(matrix: Tensor) -> float | None:
    """Bits of mantissa that a matrix's numbers show; None where it has too few to tell.

    matrix  [n, m]. Zeros do not count. A matrix that repeats one number tells nothing.
    """
    each = matrix.shape[1] // GROUP
    rows = matrix[:: max(1, len(matrix) * each // GROUPS), : each * GROUP]
    groups = rows.reshape(-1, GROUP).abs().double()
    powers = torch.frexp(groups).exponent
    upper = torch.ones(GROUP, GROUP, dtype=torch.bool).triu(1)
    some = groups > 0
    alike = (powers[:, :, None] == powers[:, None]) & some[:, :, None] & some[:, None] & upper
    equal = alike & (groups[:, :, None] == groups[:, None])
    pairs, same = int(alike.sum()), int(equal.sum())
    if pairs < PAIRS or same == pairs:
        return None
    return math.log2(pairs / max(1, same))
