"""The units that an interval over rounds draws anew: one rule for all of them. Never torch.

Rounds of one text are alike, and so are the texts that several seeds write to one prompt. So whole
prompts are drawn where there are several. Rounds of a single prompt are drawn one by one, as if
they were independent: such an interval holds for this prompt only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.frames import Frame
from analysis.measures.tables import Tables
from core.rounds.draft import Array
from core.stats import ratio_interval, too_few

UNSEEN = 0.025
TOO_FEW = too_few("prompts, or rounds of one prompt,")


class MeanInterval(NamedTuple):
    """The 95 % interval of a mean, NaN for fewer than ``FEW_UNITS``; ``over``: of what."""

    low: float
    high: float
    over: str


def mean_interval(
    tables: Tables,
    rounds: Frame,
    values: Array,
    each: float = 1.0,
) -> MeanInterval:
    """The interval of a number [R] of each of these lines of the table of rounds.

    Drawing anew cannot show what no round showed. Where all accepted as many, so many units may
    have one token more or fewer as go unseen with 2.5 %. ``each``: what a token adds to the number.
    """
    numbers = tables.prompt_numbers[rounds["run"].cat.codes.to_numpy()]
    names, place = np.unique(numbers, return_inverse=True)
    if len(names) < 2:
        units, (low, high) = len(values), ratio_interval(values, np.ones(len(values)))
    else:
        sums, counts = np.bincount(place, values), np.bincount(place)
        units, (low, high) = len(names), ratio_interval(sums, counts)
    accepted = rounds["accepted"].to_numpy()
    if rounds["nodes"].any() and (accepted == accepted[0]).all():
        more = each * (1 - UNSEEN ** (1 / units))
        fewer = -more if accepted[0] else 0.0
        low, high = low + min(more, fewer), high + max(more, fewer)
    return MeanInterval(low, high, "rounds" if len(names) < 2 else "prompts")
