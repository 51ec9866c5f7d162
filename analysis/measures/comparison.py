"""Methods against each other on the same texts: what can be compared, and the paired difference.

Two runs are a pair when all that decides the text is the same (``analysis.labels.text_key``). Where
drafting is lossless token for token they write one text and differ only in drafting; ``same``
counts where they did, and ``beginnings`` where one goes on behind the other's end. Before and after
a change of the target (quantised, in another precision, by another version of its engine) the texts
may part: such runs are a pair where they were asked the same (``asked_key``). An interrupted run
wrote only a part of its text and is in no pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from analysis.frames import Frame, declared
from analysis.labels import OF_TARGETS, asked_key, settings_of
from analysis.measures.tables import INTERRUPTED, Tables
from core.stats import difference_interval

Key = Literal["text", "asked"]
KEYS: tuple[Key, ...] = get_args(Key)


@declared("compare")
def compare(tables: Tables, chosen: Sequence[tuple[str, str]] | None = None) -> pd.DataFrame:
    """τ of every two methods (or the ``chosen`` pairs) on the texts both have, and its difference.

    Prompts are resampled with all their texts, the same for both; fewer than 5 give a difference
    but no interval. Several runs of one method on one text count together.
    """
    prompts, key_of = prompts_of_texts(tables), pairing(tables)
    sums = {key: _by_text(tables, key) for key in KEYS}
    written = {key: _written(tables, key) for key in KEYS}
    names = list(dict.fromkeys(tables.labels.values()))
    rows = []
    for one, other in combinations(names, 2) if chosen is None else chosen:
        key = key_of(one, other)
        if one not in sums[key] or other not in sums[key]:
            continue
        found = paired(sums[key][one], sums[key][other], prompts)
        if not found["texts"]:
            continue
        mine, theirs = written[key][one], written[key][other]
        both = [mine[text] | theirs[text] for text in mine if text in theirs]
        found["same"] = sum(len(texts) == 1 for texts in both)
        found["beginnings"] = sum(map(_go_on, both)) - found["same"]
        values = {"tau": found.pop("value"), "other_tau": found.pop("other_value")}
        rows.append({"method": one, "other": other, **values, **found})
    return pd.DataFrame(rows)


def paired(one: Frame, other: Frame, prompts: Mapping[Any, Any] | None = None) -> dict[str, float]:
    """A ratio Σ sum ÷ Σ count less another, on the texts that both have: the one definition of a
    paired difference in tables. Each frame has a line per text, with the columns sum and count,
    which is above 0. ``prompts`` tells the prompt of each text; None: each has its own.

    Gives texts (how many both have) and prompts, and over these count, other_count (how many values
    they are means of), value, other_value, difference, low and high (95 %, prompts drawn alike for
    both; NaN for fewer than ``FEW_UNITS``), and better: the share of the texts where ``one`` is
    higher.
    """
    common = one.index.intersection(other.index)
    a, b = one.loc[common], other.loc[common]
    with np.errstate(invalid="ignore"):
        value, other_value = (np.divide(x["sum"].sum(), x["count"].sum()) for x in (a, b))
    better = (a["sum"] / a["count"] > b["sum"] / b["count"]).mean()
    key = common if prompts is None else [prompts[text] for text in common]
    mine, theirs = (x.groupby(key, sort=False)[["sum", "count"]].sum() for x in (a, b))
    low, high = difference_interval(mine["sum"], mine["count"], theirs["sum"], theirs["count"])
    found = {"texts": len(common), "prompts": len(mine)}
    found |= {"count": int(a["count"].sum()), "other_count": int(b["count"].sum())}
    found |= {"value": float(value), "other_value": float(other_value)}
    found |= {"difference": float(value - other_value), "low": low, "high": high}
    return found | {"better": float(better)}


def prompts_of_texts(tables: Tables) -> dict[str, int]:
    """The number of the prompt of each text, by its key of either kind."""
    numbers = tables.prompt_numbers.tolist()
    asked = (asked_key(run.header) for run in tables.about.values())
    return dict(zip((*tables.runs["text"], *asked), (*numbers, *numbers), strict=True))


def pairs(tables: Tables, apart: Sequence[str]) -> list[tuple[str, str]]:
    """Labels whose settings differ in some of ``apart`` and in nothing else, in the order of the
    runs."""
    headers = {run: tables.about[run].header for run in tables.labels}
    settings, first = settings_of(headers), dict[str, dict[str, str]]()
    for run, label in tables.labels.items():
        own, drafter = settings[run], headers[run].drafter
        weights = drafter.get("sha256") or own["drafter"]  # the same under two names are the same
        first.setdefault(label, own | {"drafter": str(weights), "weights": ""})
    return [
        (one, other)
        for (one, a), (other, b) in combinations(first.items(), 2)
        if (found := {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)})
        and found.issubset(apart)
    ]


def pairing(tables: Tables) -> Callable[[str, str], Key]:
    """Which key pairs the texts of two labels."""
    moved = set(pairs(tables, OF_TARGETS))
    return lambda one, other: "asked" if {(one, other), (other, one)} & moved else "text"


def _written(tables: Tables, key: Key) -> dict[str, dict[str, set[bytes]]]:
    """The texts that whole runs wrote, by method and key of a text."""
    found: dict[str, dict[str, set[bytes]]] = {}
    runs = whole_runs(tables)
    for run, method, text in zip(runs["run"], runs["method"], runs[key], strict=True):
        own = found.setdefault(str(method), {}).setdefault(text, set())
        own.add(tables.about[run].text.tobytes())
    return found


def _go_on(texts: set[bytes]) -> bool:
    """Whether each of these texts is the beginning of the longest."""
    longest = max(texts, key=len)
    return all(longest.startswith(text) for text in texts)


def whole_runs(tables: Tables) -> Frame:
    """The runs that may be in a pair, with a column for each of ``KEYS``."""
    runs = tables.runs[(tables.runs["rounds"] > 0) & (tables.runs["ended"] != INTERRUPTED)]
    asked = [asked_key(tables.about[run].header) for run in runs["run"]]
    return runs.assign(asked=pd.Series(asked, runs.index, dtype=object))


def _by_text(tables: Tables, key: Key) -> dict[str, Frame]:
    """Σ (accepted + 1) by method, and rounds of every whole text, in the order of their keys."""
    runs = whole_runs(tables)
    runs = runs.assign(sum=runs["accepted"] + runs["rounds"], count=runs["rounds"])
    return {
        str(name): part.groupby(key)[["sum", "count"]].sum()
        for name, part in runs.groupby("method", observed=True)
    }


def incomparable(tables: Tables) -> list[tuple[str, str]]:
    """Pairs of methods that share no text: nothing can be said of their difference."""
    sums, key_of = {key: _by_text(tables, key) for key in KEYS}, pairing(tables)
    names = [n for n in dict.fromkeys(tables.labels.values()) if n in sums["text"]]
    return [
        (a, b)
        for a, b in combinations(names, 2)
        if not set(sums[key := key_of(a, b)][a].index) & set(sums[key][b].index)
    ]
