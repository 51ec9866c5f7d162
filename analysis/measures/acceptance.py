"""Tables of how runs did: acceptance, TVD and coverage by depth, τ, and time.

Only observed positions count (see ``tables``). Every function takes ``Tables`` and returns
a new DataFrame; ``by`` puts runs of one method together, or keeps every run by itself.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.frames import COVERAGE, By, Frame, declared
from analysis.measures.tables import Tables, grouped, timed
from analysis.measures.units import mean_interval
from core.stats import FEW_SEEN, Z, wilson
from core.traces.schema import STAGES


@declared("per_depth", kept=True)
def per_depth(tables: Tables, by: By = "method") -> pd.DataFrame:
    """Acceptance, TVD and coverage by depth, observed positions only.

    Intervals are 95 %: Wilson's for shares; for TVD the mean ± 1.96 standard errors, within
    [0, 1], positions taken as independent; NaN of fewer than ``FEW_SEEN``.
    """
    counted, known = ["tested", "accepted", "best"], ["entropy_q", *COVERAGE]
    positions = tables.each("positions", ["depth", "tvd", *counted, *known])
    frame = grouped(positions, [by, "depth"], counted[:2], [*known, "best"], ["tvd"])
    frame = frame.rename(columns={"size": "observed", "tvd_count": "probed"})
    drafted = _drafted_this_deep(tables, by, frame.index.get_level_values("depth"))
    frame["rounds"] = drafted.reindex(frame.index).fillna(0).astype(int)
    share_columns(frame, "acceptance", frame["accepted"], frame["observed"])
    share_columns(frame, "tested", frame["accepted"], frame["tested"], "tested_acceptance")
    share_columns(frame, "marginal", frame["accepted"], frame["rounds"])
    best_columns(frame)
    nodes = grouped(tables.each("nodes", ["depth"]), [by, "depth"])["size"]
    frame["nodes"] = nodes.reindex(frame.index, fill_value=0) / frame["rounds"]
    tvd_columns(frame)
    return frame.reset_index()


def share_columns(frame: Frame, stem: str, hits: Frame, of: Frame, name: str | None = None) -> None:
    """A share and its Wilson interval as columns ``name``, ``stem``_low and ``stem``_high."""
    frame[name or stem] = hits / of.where(of > 0)
    frame[f"{stem}_low"], frame[f"{stem}_high"] = wilson(hits.to_numpy(), of.to_numpy())


def best_columns(frame: Frame) -> None:
    """How often the drafter's best token was right in each group of positions, over all of them
    (``observed``), from the mean ``best`` of the ``best_count`` that tell it.

    Left out where the record does not tell it of some: those that it tells are not a fair sample.
    """
    told = frame["told"] = frame.pop("best_count")
    whole = told.where(told == frame["observed"], 0)
    right = (frame.pop("best") * told).round().where(whole > 0, 0)
    share_columns(frame, "top1", right, whole)


def tvd_columns(frame: Frame) -> None:
    """± 1.96 standard errors (``tvd_sem``) of each group's mean TVD, within [0, 1]; NaN of a few,
    whose own spread tells little of the error."""
    error = Z * frame.pop("tvd_sem").where(frame["probed"] >= FEW_SEEN)
    frame["tvd_low"] = (frame["tvd"] - error).clip(0, 1)
    frame["tvd_high"] = (frame["tvd"] + error).clip(0, 1)


def _drafted_this_deep(tables: Tables, by: By, depths: Frame) -> Frame:
    """Rounds with L ≥ depth, by method and depth, as far as the deepest of some depths."""
    last = tables.rounds["depths"].clip(upper=max(depths, default=0))  # a trace may say any L
    wide = tables.rounds.groupby([by, last], observed=True).size().unstack(fill_value=0)
    wide = wide.reindex(columns=range(1, max(wide.columns, default=0) + 1), fill_value=0)
    return wide.loc[:, ::-1].cumsum(axis=1).stack().rename_axis([by, "depth"])


@declared("acceptance_histogram")
def acceptance_histogram(tables: Tables, by: By = "method") -> pd.DataFrame:
    """How many rounds accepted how much. What a text's end cut off counts as in τ."""
    lengths = (tables.rounds["accepted"] + 1).rename("length")
    frame = lengths.groupby([tables.rounds[by], lengths], observed=True).size().rename("rounds")
    frame = frame.reset_index()
    frame["share"] = frame["rounds"] / frame.groupby(by, observed=True)["rounds"].transform("sum")
    return frame


@declared("tau")
def tau(tables: Tables, by: By = "method") -> pd.DataFrame:
    """Block efficiency τ with its 95 % bootstrap interval, and speed.

    ``units`` tells what is resampled: whole prompts when there are several, else single rounds.
    Fewer than 5 of them give no interval.
    """
    rows, paced = [], timed(tables.rounds, by)
    for name, runs in tables.runs.groupby(by, observed=True):
        own = tables.rounds[tables.rounds[by] == name]
        rounds, clocked = len(own), runs[runs["wall_seconds"].notna()]
        found = mean_interval(tables, own, (own["accepted"] + 1).to_numpy())
        row = {
            by: name,
            "runs": len(runs),
            "prompts": len(set(tables.prompt_numbers[runs.index])),
            "texts": runs["text"].nunique(),
            "rounds": rounds,
            "tokens": int(runs["tokens"].sum()),
            "tau": _ratio(own["accepted"].sum() + rounds, rounds),
            **found._asdict(),
            "committed_per_round": _ratio(own["committed"].sum(), rounds),
            "cut": int(own["cut"].sum()),
            "nodes_per_round": _ratio(own["nodes"].sum(), rounds),
            "tokens_per_second": _ratio(clocked["tokens"].sum(), clocked["wall_seconds"].sum()),
            "timed": int(paced.loc[name, "timed"]),
            "round_pace": paced.loc[name, "round_pace"],
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below > 0 else np.nan


@declared("stages")
def stages(tables: Tables, by: By = "method") -> pd.DataFrame:
    """Where the time of the rounds went. Prefill and observing are in no stage."""
    grouped = tables.rounds.groupby(by, observed=True)
    frame = grouped[list(STAGES)].sum().stack().rename("seconds").rename_axis([by, "stage"])
    frame = frame.reset_index()
    frame["timed"] = timed(tables.rounds, by)["timed"].reindex(frame[by]).to_numpy()
    frame["seconds"] = frame["seconds"].where(frame["timed"] > 0)
    frame["ms_per_round"] = 1e3 * frame["seconds"] / frame["timed"]
    frame["share"] = frame["seconds"] / frame.groupby(by, observed=True)["seconds"].transform("sum")
    return frame
