"""Methods against each other on the same texts: what can be compared, and the paired difference.

Two runs are a pair when all that decides the text is the same (``analysis.labels.text_key``):
decoding is lossless, so they write one text, and they differ only in drafting. An interrupted run
wrote only a part of its text and is in no pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.frames import Frame, declared
from analysis.measures.tables import INTERRUPTED, Tables
from core.stats import difference


@declared("compare")
def compare(
    tables: Tables, chosen: Sequence[tuple[str, str]] | None = None, draws: int = 2000
) -> pd.DataFrame:
    """τ of every two methods (or the ``chosen`` pairs) on the texts both have, and its difference.

    Texts are resampled, the same for both; fewer than 5 give a difference but no interval. Several
    runs of one method on one text count together.
    """
    sums = _by_text(tables)
    names = list(dict.fromkeys(tables.labels.values()))
    rows = []
    for one, other in combinations(names, 2) if chosen is None else chosen:
        if one not in sums or other not in sums:
            continue
        found = paired(sums[one], sums[other], draws)
        if not found["texts"]:
            continue
        values = {"tau": found.pop("value"), "other_tau": found.pop("other_value")}
        rows.append({"method": one, "other": other, **values, **found})
    return pd.DataFrame(rows)


def paired(one: Frame, other: Frame, draws: int = 2000) -> dict[str, float]:
    """A ratio Σ sum ÷ Σ count less another, on the texts that both have: the one definition of a
    paired difference in tables. Each frame has a line per text, with the columns sum and count,
    which is above 0.

    Gives texts (how many both have), and over these value, other_value, difference, low and high
    (95 %, texts drawn alike for both; NaN for fewer than ``FEW``), and better: the share of the
    texts where ``one`` is higher.
    """
    common = one.index.intersection(other.index)
    a, b = one.loc[common], other.loc[common]
    with np.errstate(invalid="ignore"):
        value, other_value = (np.divide(x["sum"].sum(), x["count"].sum()) for x in (a, b))
    better = (a["sum"] / a["count"] > b["sum"] / b["count"]).mean()
    low, high = difference(a["sum"], a["count"], b["sum"], b["count"], draws)
    found = {"texts": len(common), "value": float(value), "other_value": float(other_value)}
    found |= {"difference": float(value - other_value), "low": low, "high": high}
    return found | {"better": float(better)}


def whole_runs(tables: Tables) -> Frame:
    """The runs that may be in a pair."""
    return tables.runs[(tables.runs["rounds"] > 0) & (tables.runs["ended"] != INTERRUPTED)]


def _by_text(tables: Tables) -> dict[str, Frame]:
    """By method: Σ (accepted + 1) and rounds of every whole text, in the order of their keys."""
    runs = whole_runs(tables)
    runs = runs.assign(sum=runs["accepted"] + runs["rounds"], count=runs["rounds"])
    return {
        str(name): part.groupby("text")[["sum", "count"]].sum()
        for name, part in runs.groupby("method", observed=True)
    }


def incomparable(tables: Tables) -> list[tuple[str, str]]:
    """Pairs of methods that share no text: nothing can be said of their difference."""
    sums = _by_text(tables)
    names = [n for n in dict.fromkeys(tables.labels.values()) if n in sums]
    pairs = combinations(names, 2)
    return [(a, b) for a, b in pairs if sums[a].index.intersection(sums[b].index).empty]
