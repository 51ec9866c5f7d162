"""Where in a text and on which sort of token drafts fail: by place, token class, script and tag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from analysis.frames import By, Frame, declared
from analysis.measures.acceptance import share_columns, tvd_columns
from analysis.measures.tables import Tables, grouped, kept
from core.rounds.draft import Array
from core.stats import ratio

Over = Literal["token_class", "script", "tag"]
KINDS: tuple[Over, ...] = ("token_class", "script", "tag")
BINS = (0, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 1 << 31)
SURE = 4.5  # standard errors: a cliff is looked for at every place
LEAST = 30  # rounds on each side of a cliff, positions of a sort of token
MATTERS = 0.25  # of what is accepted elsewhere


@declared("by_place")
def by_place(tables: Tables, by: By = "method") -> pd.DataFrame:
    """Acceptance and TVD against the place in the text, the prompt included.

    Intervals are 95 %: of τ by drawing rounds anew, as if they were independent (NaN for fewer than
    5); of TVD as in ``per_depth``.
    """
    rounds = drafting(tables)
    if rounds.empty:
        return pd.DataFrame()

    def binned(places: Frame) -> Frame:
        found: Frame = pd.cut(places, list(BINS), right=False, labels=list(BINS[:-1]))
        return found.astype(int).rename("place")

    positions = (part.assign(place=binned(part["root"])) for part in placed(tables, "root"))
    bins, frame = binned(rounds["position"]), _shares(positions, [by, "place"])
    for key, part in rounds.groupby([by, bins], observed=True):
        lengths = (part["accepted"] + 1).to_numpy()
        frame.loc[key, ["rounds", "tau"]] = len(part), lengths.mean()
        frame.loc[key, ["low", "high"]] = ratio(lengths, np.ones(len(lengths)))
    return frame.reset_index().astype({"rounds": int})


@kept
@declared("by_kind")
def by_kind(tables: Tables, over: Over = "token_class", by: By = "method") -> pd.DataFrame:
    """Acceptance and TVD by the target's token at each observed position, or by the prompt's tag.

    A sort of token that mostly stands deep in drafts is accepted less for that alone.
    """
    positions = placed(tables, over)
    if over == "script":
        positions = (part[part["script"] != ""] for part in positions)
    return _shares(positions, [by, over]).reset_index()


def _shares(positions: Iterable[Frame], keys: list[str]) -> Frame:
    """Acceptance and TVD of the positions of each group."""
    frame = grouped(positions, keys, ["accepted"], errors=["tvd"])
    frame = frame.rename(columns={"size": "observed", "tvd_count": "probed"})
    share_columns(frame, "acceptance", frame["accepted"], frame["observed"])
    tvd_columns(frame)
    return frame


def drafting(tables: Tables) -> Frame:
    """The rounds that drafted something."""
    return tables.rounds[tables.rounds["nodes"] > 0]


def placed(tables: Tables, *names: str) -> Iterator[Frame]:
    """Observed positions of rounds that drafted, part by part, with these columns, acceptance and
    TVD. ``root`` is their root's place, ``tag`` the prompt's."""
    wanted = ["round", "drafting", "accepted", "tvd", *(name for name in names if name != "tag")]
    tags = pd.Series({name: run.tag for name, run in tables.about.items()}, dtype=object)
    for part in tables.each("positions", wanted):
        found = part[part["drafting"]]
        if "tag" in names:
            found = found.assign(tag=tags.to_numpy()[found["run"].cat.codes])
        yield found


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
