"""Where in a text and on which sort of token drafts fail: by place, token class, script and tag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis.frames import By, Frame, declared
from analysis.measures.acceptance import share_columns, tvd_columns
from analysis.measures.tables import Tables, grouped
from analysis.measures.units import mean_interval
from core.rounds.draft import Array
from core.stats import FEW_COMPARED, FEW_SEEN, FEW_UNITS

Over = Literal["token_class", "script", "tag"]
KINDS: tuple[Over, ...] = ("token_class", "script", "tag")
BINS = (0, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 1 << 31)
SURE = 4.5  # standard errors: a cliff is looked for at every place
MATTERS = 0.25  # of what is accepted elsewhere


@declared("by_place")
def by_place(tables: Tables, by: By = "method") -> pd.DataFrame:
    """Acceptance and TVD against the place in the text, the prompt included.

    Of several texts each place has those that reach it, so that places differ for that, too.
    Intervals are 95 %: of τ over the prompts or rounds of a place (``units``); of TVD as in
    ``per_depth``.
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
        frame.loc[key, ["low", "high"]] = mean_interval(tables, part, lengths)[:2]
    return frame.reset_index().astype({"rounds": int})


@declared("by_kind", kept=True)
def by_kind(tables: Tables, over: Over = "token_class", by: By = "method") -> pd.DataFrame:
    """Acceptance and TVD by the target's token at each observed position, or by the prompt's tag.

    A sort of token that mostly stands deep in drafts is accepted less for that alone.
    """
    return _shares(_of_a_sort(tables, over), [by, over]).reset_index()


def _of_a_sort(tables: Tables, over: Over, *names: str) -> Iterator[Frame]:
    """``placed`` positions that are of some sort: digits and signs are of no script."""
    parts = placed(tables, over, *names)
    return (part[part["script"] != ""] for part in parts) if over == "script" else parts


def beside_others(tables: Tables, over: Over, by: By = "method") -> list[dict[str, Any]]:
    """Acceptance of each sort and of all other positions at the same depths.

    A sort that mostly stands deep in drafts is accepted less for that alone, so the others are
    weighed: at each depth as the sort has positions there. A depth counts where ``FEW_SEEN`` others
    stand. ``observed`` and ``others`` are the positions at these depths.
    """
    own = grouped(_of_a_sort(tables, over, "depth"), [by, over, "depth"], ["accepted"])
    rest = own.groupby([by, "depth"], observed=True).transform("sum") - own
    own = own[rest["size"] >= FEW_SEEN]
    rest = rest.loc[own.index]
    sums = own.rename(columns={"size": "observed"}).assign(
        others=rest["size"], rest=own["size"] * rest["accepted"] / rest["size"]
    )
    found = sums.groupby([by, over], observed=True).sum()
    found["rest"] /= found["observed"]
    share_columns(found, "acceptance", found["accepted"], found["observed"])
    return found.reset_index().to_dict("records")


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
    """τ before and from a place on, over the ``rounds`` of the ``texts`` that have some on both
    sides. ``cliff``: a step fits better than a line."""

    place: int
    before: float
    after: float
    cliff: bool
    texts: int
    rounds: int


def step(places: Array, lengths: Array, texts: Array) -> TauStep | None:
    """The place at which acceptance lengths change most within texts; None when it may be chance.

    Texts differ in their length and in what is accepted of them, so that other texts stand at other
    places: each text is compared with itself (the within estimator of panels with fixed effects).
    A place counts where ``FEW_UNITS`` texts, or all of fewer, have rounds on both of its sides.

    places  [R] of the roots; ``lengths`` [R]: accepted + 1; ``texts`` [R]: numbers of their texts
    """
    order = np.argsort(places, kind="stable")
    x, count = places[order].astype(float), len(places)
    names, text = np.unique(texts[order], return_inverse=True)
    free = count - len(names) - 1
    if count < 2 * FEW_COMPARED or free < 1:
        return None
    sides = _Sides.of(text)
    y, along = _within(lengths[order].astype(float), text), _within(x, text)
    fit = np.minimum(sides.before, sides.after) >= FEW_COMPARED
    fit &= sides.texts >= min(FEW_UNITS, len(names))
    fit[:-1] &= x[:-1] < x[1:]  # rounds at one place stay together
    n = np.flatnonzero(fit)
    if not len(n):
        return None
    change = -y.cumsum()[n] / sides.weight[n]
    inside = (y * y).sum() - change**2 * sides.weight[n]  # Σ of squares around the means
    inside = np.maximum(inside, 1e-9)
    z = np.abs(change) / np.sqrt(inside / free / sides.weight[n])
    best = int(z.argmax())
    at = int(n[best])
    before = _before(lengths[order].astype(float), text, at)
    after = before + float(change[best])
    if z[best] < SURE or abs(after - before) < MATTERS * max(before, after):
        return None
    line = float((y * y).sum() - (along * y).sum() ** 2 / (along * along).sum())
    cliff = bool(inside[best] < line)
    rounds = int(sides.before[at] + sides.after[at])
    return TauStep(int(x[at + 1]), before, after, cliff, int(sides.texts[at]), rounds)


def _within(values: Array, text: Array) -> Array:
    """Values less the mean of their text."""
    found: Array = values - (np.bincount(text, values) / np.bincount(text))[text]
    return found


@dataclass(frozen=True)
class _Sides:
    """The rounds on both sides of the place behind each round, of texts that reach across it.

    before, after  rounds [R]; ``texts``: how many texts [R]
    weight         Σ over texts of before · after ÷ (before + after) [R]
    """

    before: Array
    after: Array
    texts: Array
    weight: Array

    @staticmethod
    def of(text: Array) -> _Sides:
        """``text`` [R]: each round's, in the order of places."""
        nth = pd.Series(text).groupby(text).cumcount().to_numpy() + 1  # of its text's rounds
        of = np.bincount(text)[text]
        last, first, single = nth == of, nth == 1, of == 1
        before = np.where(single, 0, np.where(last, 1 - of, 1)).cumsum()
        after = np.where(single, 0, np.where(first, of - 1, -1)).cumsum()
        across = (first.astype(int) - last).cumsum()
        return _Sides(before, after, across, ((of - 2 * nth + 1) / of).cumsum())


def _before(lengths: Array, text: Array, at: int) -> float:
    """τ as far as round ``at``: the mean of the texts that go on from there, with their weights."""
    count = text.max() + 1
    head, whole = text[: at + 1], np.bincount(text, minlength=count)
    seen = np.bincount(head, minlength=count)
    means = np.bincount(head, lengths[: at + 1], count) / np.maximum(seen, 1)
    return float(np.average(means, weights=seen * (whole - seen) / whole))
