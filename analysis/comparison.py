"""Methods against each other on the same texts: what can be compared, and the paired difference.

Two runs are a pair when all that decides the text is the same (``analysis.labels.text_key``):
decoding is lossless, so they write one text, and they differ only in drafting. An interrupted run
wrote only a part of its text and is in no pair.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from analysis.frames import Frame, documented
from analysis.tables import INTERRUPTED, Tables
from core.stats import difference


@documented
def compare(tables: Tables, draws: int = 2000) -> pd.DataFrame:
    """τ of every two methods on the texts both have, and its difference.

    Texts are resampled, the same for both; one text gives a difference but no interval. Several
    runs of one method on one text count together.

    method, other      the two labels
    texts              texts both have
    tau, other_tau     Σ (accepted + 1) ÷ rounds over these texts, tokens per round
    difference         tau − other_tau
    low, high          its 95 % paired bootstrap interval; NaN for one text
    better             share of the texts where ``method`` has the higher τ
    """
    sums = _by_text(tables)
    names = list(dict.fromkeys(tables.labels.values()))
    rows = []
    for one, other in combinations([n for n in names if n in sums], 2):
        common = sums[one].index.intersection(sums[other].index)
        if not len(common):
            continue
        a, b = sums[one].loc[common], sums[other].loc[common]
        tau, other_tau = (x["length"].sum() / x["rounds"].sum() for x in (a, b))
        low, high = np.nan, np.nan
        if len(common) > 1:
            low, high = difference(a["length"], a["rounds"], b["length"], b["rounds"], draws)
        better = (a["length"] / a["rounds"] > b["length"] / b["rounds"]).mean()
        row = {"method": one, "other": other, "texts": len(common), "tau": tau}
        row |= {"other_tau": other_tau, "difference": tau - other_tau}
        rows.append(row | {"low": low, "high": high, "better": better})
    return pd.DataFrame(rows)


def _by_text(tables: Tables) -> dict[str, Frame]:
    """By method: Σ (accepted + 1) and rounds of every whole text, in the order of their keys."""
    whole = (tables.runs["rounds"] > 0) & (tables.runs["ended"] != INTERRUPTED)
    runs = tables.runs[whole]
    length = runs["accepted"] + runs["rounds"]
    found = {}
    for name, part in runs.assign(length=length).groupby("method", observed=True):
        found[str(name)] = part.groupby("text")[["length", "rounds"]].sum()
    return found


def incomparable(tables: Tables) -> list[tuple[str, str]]:
    """Pairs of methods that share no text: nothing can be said of their difference."""
    sums = _by_text(tables)
    names = [n for n in dict.fromkeys(tables.labels.values()) if n in sums]
    pairs = combinations(names, 2)
    return [(a, b) for a, b in pairs if sums[a].index.intersection(sums[b].index).empty]
