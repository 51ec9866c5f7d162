"""Means of what-if and calibration over several texts, with intervals, and the text that
differs most. Never torch.

A number is a ratio Σ sum ÷ Σ count over texts (tokens ÷ rounds, TVD ÷ anchors). Its 95 % interval
draws whole texts anew; differences draw the same texts for both sides (``comparison.paired``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analysis.collected.whatif import SimulatedRun
from analysis.frames import Frame, declared
from analysis.measures.comparison import paired
from analysis.numbers import UNKNOWN, number
from core.rounds.draft import Array
from core.stats import ratio_interval

MARGINAL, HELD_OUT = "marginal", "marginal, held out"  # series that are no drafter's


@declared("whatif_texts")
def whatif_texts(runs: Mapping[str, Sequence[SimulatedRun]]) -> pd.DataFrame:
    """Simulated runs of the same settings on several texts."""
    by: dict[tuple[str, int], dict[str, SimulatedRun]] = {}
    for text, some in runs.items():
        for run in some:
            by.setdefault((run.method, run.budget), {})[text] = run
    frames = {key: _frame(texts) for key, texts in by.items()}
    rows = []
    for key, own in frames.items():
        value, low, high = across(own)
        best = max(frames.values(), key=lambda f: f["sum"].sum() / max(1, f["count"].sum()))
        found = paired(own, best)
        rows.append(
            {"method": key[0], "budget": key[1], "texts": len(own), "tau": value}
            | {"low": low, "high": high, "difference": found["difference"]}
            | {"difference_low": found["low"], "difference_high": found["high"]}
            | dict(zip(("apart", "apart_tau", "others_tau"), departs(own), strict=True))
            | {"exact": all(run.exact for run in by[key].values())}
        )
    return pd.DataFrame(rows)


def _frame(runs: Mapping[str, SimulatedRun]) -> Frame:
    rows = {text: {"sum": sum(r.lengths), "count": r.rounds} for text, r in runs.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


@declared("calibration_texts")
def calibration_texts(table: pd.DataFrame) -> pd.DataFrame:
    """TVD of every series by depth over the prompts' texts. Anchors of one text count together."""
    if "prompt" not in table:
        return pd.DataFrame()
    sums = table.groupby(["series", "depth", "prompt"])["tvd"].agg(["sum", "count"])
    groups: Frame = {
        key: part.droplevel(["series", "depth"])
        for key, part in sums.groupby(level=["series", "depth"])
    }
    names = list(dict.fromkeys(table["series"]))
    first = next((name for name in names if name not in (MARGINAL, HELD_OUT)), names[0])
    rows = []
    for (series, depth), own in sorted(groups.items(), key=lambda g: names.index(g[0][0])):
        row = {"series": series, "depth": depth, "texts": len(own), "against": first}
        row |= dict(zip(("tvd", "low", "high"), across(own), strict=True))
        apart, mine, theirs = departs(own)
        row |= {"apart": int(apart) + 1, "apart_tvd": mine, "others_tvd": theirs}
        if (first, depth) in groups:
            found = paired(own, groups[first, depth])
            row |= {"difference": found["difference"]}
            row |= {"difference_low": found["low"], "difference_high": found["high"]}
        rows.append(row)
    return pd.DataFrame(rows)


def several_texts(table: pd.DataFrame) -> pd.DataFrame | None:
    """``calibration_texts``, or None where the table is of one text."""
    found: Frame = calibration_texts(table)
    return found if len(found) and found["texts"].max() > 1 else None


def departing(table: Frame, value: str, digits: int = 2, says: str = " differs most") -> list[str]:
    """Of each line of a table with ``apart``, ``apart_VALUE`` and ``others_VALUE``: the text that
    differs most, and by what; "" where there is one text only, or where none differs."""
    names = (name if isinstance(name, str) else f"prompt {name}" for name in table["apart"])
    each = [[number(x, digits) for x in table[f"{of}_{value}"]] for of in ("apart", "others")]
    return [
        f"{name}{says}: {own}, others {others}" if others not in (UNKNOWN, own) else ""
        for name, own, others in zip(names, *each, strict=True)
    ]


def across(texts: Frame) -> tuple[float, float, float]:
    """A ratio over all texts with its interval; each text has a sum and a count."""
    low, high = ratio_interval(texts["sum"], texts["count"])
    return float(texts["sum"].sum() / max(1, texts["count"].sum())), low, high


def departs(texts: Frame) -> tuple[str | int, float, float]:
    """The text whose ratio is furthest from that of all others together, its ratio and theirs.
    NaN for the only text."""
    sums, counts = (texts[name].to_numpy(float) for name in ("sum", "count"))
    own, others = _ratio(sums, counts), _ratio(sums.sum() - sums, counts.sum() - counts)
    far = np.nan_to_num(np.abs(own - others), nan=-1.0)
    at = int(far.argmax())
    name = texts.index[at]
    return name if isinstance(name, str) else int(name), float(own[at]), float(others[at])


def _ratio(sums: Array, counts: Array) -> Array:
    return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
