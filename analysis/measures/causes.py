"""Why branches ended, as shares of the causes (``core.rounds.round``), and what follows the first
token that was not the drafter's best.

Two things end. A *node* (``cause``): accepted; outranked, a sibling was the target's token; not
accepted where the walk ended, for the reason it ended there; unreached, so unobserved. And the
*walk* of a round (``stop``), once. Runs that never draft (plain decoding) have no causes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis.frames import By, Frame, declared
from analysis.measures.acceptance import best_columns
from analysis.measures.parts import CAUSES
from analysis.measures.tables import Tables, grouped
from core.rounds.causes import Cause
from core.rounds.draft import NOT_KNOWN
from core.stats import wilson

Unit = Literal["nodes", "stops"]
Over = Literal["depth", "token_class"]
SPINE, SIBLING, LATER = "along the spine", "after another token", "further behind one"


@declared("cause_shares")
def cause_shares(
    tables: Tables, unit: Unit = "nodes", over: Over = "depth", by: By = "method"
) -> pd.DataFrame:
    """Shares of the causes per depth or per sort of token, each with an example.

    ``unit`` "nodes" counts every drafted node (its own depth and token), "stops" the end of every
    round's walk (the depth there, and the token the target wanted).
    """
    keys = [by, over, "cause"]
    parts = [_counted(part, keys) for part in _cases(tables, unit, [over])]
    groups = pd.concat(parts, ignore_index=True).groupby(keys, observed=True)
    firsts = {f"example_{name}": (name, "first") for name in ("run", "round", "row")}
    frame: Frame = groups.agg(count=("count", "sum"), **firsts).reset_index()
    place = frame.groupby([by, over], observed=True)["count"]
    frame["total"] = place.transform("sum")
    frame["share"] = frame["count"] / frame["total"]
    seen = frame["count"].where(frame["cause"] != Cause.UNREACHED)
    observed = seen.groupby([frame[by], frame[over]], observed=True).transform("sum")
    frame["observed_share"] = seen / observed
    return frame.assign(example_run=frame["example_run"].astype(object))


def _counted(part: Frame, keys: list[str]) -> Frame:
    """The first line of each group of a part, and how many there are."""
    places = part[keys].assign(at=np.arange(len(part)))
    found = places.groupby(keys, observed=True)["at"].agg(["size", "min"])
    return part.iloc[found["min"]].assign(count=found["size"].to_numpy())


def _cases(tables: Tables, unit: Unit, names: Sequence[str] | None = None) -> Iterator[Frame]:
    """Every node, or the end of every round's walk, part by part: run, method, round, row, cause
    and these columns, or all."""
    if unit == "nodes":
        wanted = None if names is None else ["round", "row", "cause", *names]
        yield from tables.each("nodes", wanted)
        return
    rounds = tables.rounds
    drafting = rounds.groupby("run", observed=True)["nodes"].transform("sum") > 0
    rounds = rounds[drafting].rename(columns={"stop": "cause", "stop_row": "row"})
    yield rounds.assign(depth=rounds["accepted"] + 1)


@declared("examples")
def examples(
    tables: Tables, cause: str, unit: Unit = "nodes", limit: int = 20, **where: Any
) -> pd.DataFrame:
    """List nodes or walks that ended by one cause, in the order of the text.

    ``where`` narrows by any column, such as depth=2, token_class="number", method="ddtree B=16".
    Raises ValueError for a cause or column that does not exist.
    """
    if cause not in CAUSES:
        raise ValueError(f"{cause!r} is not a cause")
    found, count = list[Frame](), 0
    for part in _cases(tables, unit):
        if unknown := set(where) - set(part.columns):
            raise ValueError(f"examples cannot be narrowed by {sorted(unknown)[0]!r}")
        keep = part["cause"] == cause
        for name, value in where.items():
            keep &= part[name] == value
        found.append(part[keep].head(limit - count))
        count += len(found[-1])
        if count == limit:
            break
    return pd.concat(found, ignore_index=True)


@declared("first_mismatches")
def first_mismatches(tables: Tables, by: By = "method") -> pd.DataFrame:
    """Which of the drafter's tokens the target took where it first left the spine.

    The spine is the chain of the drafter's best tokens. A round's first mismatch is the first
    observed position along it whose token was not the best; a round that drafted nothing, or whose
    spine ran out of depth or budget before that, has none. Rank 2 is the first sibling.
    """
    missed = off_spine(tables)
    ranks = missed["rank"].astype("Int64")
    keys = [missed[by], ranks, missed["outside"]]
    frame = missed.groupby(keys, observed=True, dropna=False)["accepted"].agg(["size", "sum"])
    frame = frame.rename(columns={"size": "count", "sum": "drafted"}).reset_index()
    frame["share"] = frame["count"] / frame.groupby(by, observed=True)["count"].transform("sum")
    return frame


def off_spine(tables: Tables) -> Frame:
    """The position of every round's first mismatch (see ``first_mismatches``)."""
    names = ["round", "drafting", "accepted", "rank", "outside", "best", "spine"]
    parts = tables.each("positions", names)
    missed = (part[part["drafting"] & part["spine"] & (part["best"] == 0)] for part in parts)
    return pd.concat(missed, ignore_index=True)


@declared("after_sibling")
def after_sibling(tables: Tables, by: By = "method", per_depth: bool = False) -> pd.DataFrame:
    """How well drafts do after a token that was not the drafter's best, a sibling or one that was
    drawn from q, compared with along the spine.

    Positions at depth ≥ 2, by the accepted nodes above them: all the drafter's best
    (along the spine); the parent is not (after another token); an earlier one is not (further
    behind one). Positions below a node of unknown rank are left out.
    """
    keys = [by, *(["depth"] if per_depth else []), "context"]
    frame = grouped(map(_with_context, _deep(tables)), keys, ["accepted"], ["best", "tvd"])
    frame = frame.rename(columns={"size": "observed"})
    best_columns(frame)
    frame["acceptance"] = frame["accepted"] / frame["observed"]
    frame["low"], frame["high"] = wilson(frame["accepted"], frame["observed"])
    return frame.reset_index()


def _deep(tables: Tables) -> Iterator[Frame]:
    """Positions at depth ≥ 2, part by part."""
    names = ["depth", "accepted", "best", "tvd", "spine", "parent_rank"]
    parts = tables.each("positions", names)
    return (part[(part["depth"] > 1) & (part["parent_rank"] != NOT_KNOWN)] for part in parts)


def _with_context(deep: Frame) -> Frame:
    context = np.where(deep["spine"], SPINE, np.where(deep["parent_rank"] > 1, SIBLING, LATER))
    names = pd.Index((SPINE, SIBLING, LATER), dtype=object)
    return deep.assign(context=pd.Categorical(context, names))
