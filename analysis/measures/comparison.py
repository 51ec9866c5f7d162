"""Methods against each other on the same texts: what can be compared, and the paired difference.

Two runs are a pair when all that decides the text is the same (``analysis.labels.text_key``). Where
drafting is lossless token for token they write one text and differ only in drafting; ``same``
counts where they did. An interrupted run wrote only a part of its text and is in no pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

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

    Prompts are resampled with all their texts, the same for both; fewer than 5 give a difference
    but no interval. Several runs of one method on one text count together.
    """
    sums, prompts, written = _by_text(tables), prompts_of_texts(tables), _written(tables)
    names = list(dict.fromkeys(tables.labels.values()))
    rows = []
    for one, other in combinations(names, 2) if chosen is None else chosen:
        if one not in sums or other not in sums:
            continue
        found = paired(sums[one], sums[other], draws, prompts)
        if not found["texts"]:
            continue
        mine, theirs = written[one], written[other]
        found["same"] = sum(len(mine[text] | theirs[text]) == 1 for text in mine if text in theirs)
        values = {"tau": found.pop("value"), "other_tau": found.pop("other_value")}
        rows.append({"method": one, "other": other, **values, **found})
    return pd.DataFrame(rows)


def paired(
    one: Frame, other: Frame, draws: int = 2000, prompts: Mapping[Any, Any] | None = None
) -> dict[str, float]:
    """A ratio Σ sum ÷ Σ count less another, on the texts that both have: the one definition of a
    paired difference in tables. Each frame has a line per text, with the columns sum and count,
    which is above 0. ``prompts`` tells the prompt of each text; None: each has its own.

    Gives texts (how many both have) and prompts, and over these value, other_value, difference, low
    and high (95 %, prompts drawn alike for both; NaN for fewer than ``FEW``), and better: the share
    of the texts where ``one`` is higher.
    """
    common = one.index.intersection(other.index)
    a, b = one.loc[common], other.loc[common]
    with np.errstate(invalid="ignore"):
        value, other_value = (np.divide(x["sum"].sum(), x["count"].sum()) for x in (a, b))
    better = (a["sum"] / a["count"] > b["sum"] / b["count"]).mean()
    key = common if prompts is None else [prompts[text] for text in common]
    mine, theirs = (x.groupby(key, sort=False)[["sum", "count"]].sum() for x in (a, b))
    low, high = difference(mine["sum"], mine["count"], theirs["sum"], theirs["count"], draws)
    found = {"texts": len(common), "prompts": len(mine)}
    found |= {"value": float(value), "other_value": float(other_value)}
    found |= {"difference": float(value - other_value), "low": low, "high": high}
    return found | {"better": float(better)}


def prompts_of_texts(tables: Tables) -> dict[str, int]:
    """The number of the prompt of each text, by its key."""
    return dict(zip(tables.runs["text"], tables.prompt_numbers.tolist(), strict=True))


def _written(tables: Tables) -> dict[str, dict[str, set[bytes]]]:
    """By method and key of a text: the texts that whole runs wrote."""
    found: dict[str, dict[str, set[bytes]]] = {}
    for row in whole_runs(tables)[["run", "method", "text"]].itertuples(index=False):
        own = found.setdefault(str(row.method), {}).setdefault(row.text, set())
        own.add(tables.about[row.run].text.tobytes())
    return found


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
