"""Where in a text and on which sort of token drafts fail: by place, token class, script and tag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from analysis.frames import By, Frame, declared
from analysis.measures.acceptance import share_columns, tvd_columns
from analysis.measures.tables import Tables
from core.rounds.draft import Array
from core.stats import ratio
from core.traces.schema import Trace

Over = Literal["token_class", "script", "tag"]
KINDS: tuple[Over, ...] = ("token_class", "script", "tag")
BINS = (0, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 1 << 31)
SURE = 4.5  # standard errors: a cliff is looked for at every place
LEAST = 30  # rounds on each side of a cliff, positions of a sort of token
MATTERS = 0.25  # of what is accepted elsewhere
UNTAGGED = "untagged"


@declared("by_place")
def by_place(tables: Tables, by: By = "method") -> pd.DataFrame:
    """Acceptance and TVD against the place in the text, the prompt included.

    Intervals are 95 %: of τ by drawing rounds anew, as if they were independent (NaN for fewer than
    5); of TVD as in ``per_depth``.
    """
    rounds, positions = drafting(tables), placed(tables)
    if rounds.empty:
        return pd.DataFrame()

    def binned(places: Frame) -> Frame:
        found: Frame = pd.cut(places, list(BINS), right=False, labels=list(BINS[:-1]))
        return found.astype(int).rename("place")

    bins, frame = binned(rounds["position"]), _shares(positions, [by, binned(positions["root"])])
    for key, part in rounds.groupby([by, bins], observed=True):
        lengths = (part["accepted"] + 1).to_numpy()
        frame.loc[key, ["rounds", "tau"]] = len(part), lengths.mean()
        frame.loc[key, ["low", "high"]] = ratio(lengths, np.ones(len(lengths)))
    return frame.reset_index().astype({"rounds": int})


@declared("by_kind")
def by_kind(tables: Tables, over: Over = "token_class", by: By = "method") -> pd.DataFrame:
    """Acceptance and TVD by the target's token at each observed position, or by the prompt's tag.

    A sort of token that mostly stands deep in drafts is accepted less for that alone.
    """
    positions = placed(tables)
    if over == "script":
        positions = positions[positions["script"] != ""]
    return _shares(positions, [by, over]).reset_index()


def _shares(positions: Frame, keys: list[Frame]) -> Frame:
    """Acceptance and TVD of the positions of each group."""
    grouped = positions.groupby(keys, observed=True)
    sums = {"observed": ("accepted", "size"), "accepted": ("accepted", "sum")}
    frame = grouped.agg(**sums, probed=("tvd", "count"))
    share_columns(frame, "acceptance", frame["accepted"], frame["observed"])
    tvd_columns(frame, grouped)
    return frame


def drafting(tables: Tables) -> Frame:
    """The rounds that drafted something."""
    return tables.rounds[tables.rounds["nodes"] > 0]


def placed(tables: Tables) -> Frame:
    """Observed positions of rounds that drafted, with their root's place and the prompt's tag."""
    roots = drafting(tables)[["run", "round", "position"]].rename(columns={"position": "root"})
    found = tables.positions.merge(roots, on=["run", "round"])
    tags = {run: _tag(trace) for run, trace in tables.traces.items()}
    return found.assign(tag=found["run"].astype(object).map(tags))


def _tag(trace: Trace) -> str:
    """The source that the prompt's file named, which a sweep keeps; or a recorder's setting."""
    for holder in (trace.footer or {}, trace.header.settings):
        if isinstance(found := holder.get("source"), str) and found:
            return found[:60]
    return UNTAGGED


# ── what stands out ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class TauStep:
    """τ before and from a place on. ``cliff``: a step fits better than a line."""

    place: int
    before: float
    after: float
    cliff: bool


def step(places: Array, lengths: Array) -> TauStep | None:
    """The place at which acceptance lengths change most; None when it may be chance.

    places   [R] of the roots; ``lengths`` [R]: accepted + 1
    """
    order = np.argsort(places, kind="stable")
    x, y = places[order].astype(float), lengths[order].astype(float)
    count = len(y)
    if count < 2 * LEAST:
        return None
    n = np.arange(LEAST, count - LEAST + 1)
    n = n[x[n - 1] < x[np.minimum(n, count - 1)]]  # rounds at one place stay together
    if not len(n):
        return None
    sums, squares = y.cumsum(), (y * y).cumsum()
    before, after = sums[n - 1] / n, (sums[-1] - sums[n - 1]) / (count - n)
    inside = squares[-1] - n * before**2 - (count - n) * after**2  # Σ of squares around the means
    inside = np.maximum(inside, 1e-9)
    z = np.abs(after - before) / np.sqrt(inside / (count - 2) * (1 / n + 1 / (count - n)))
    at = int(z.argmax())
    if z[at] < SURE or abs(after[at] - before[at]) < MATTERS * max(before[at], after[at]):
        return None
    slope = np.polyval(np.polyfit(x, y, 1), x)
    line = float(((y - slope) ** 2).sum())
    return TauStep(int(x[n[at]]), float(before[at]), float(after[at]), bool(inside[at] < line))
