"""Is q a probability? Reliability curves, their calibration error, and Σq against what came true.

Two events. *path*: the target's own text runs through a node, against the product of q along the
node's path; every drafted node counts, for a node that was never reached is off the text. *step*: a
node is accepted given that its parent was, against its q; only nodes whose parent was accepted
count. q is always the drafter's log q along the path, never the builder's score, which may be no
probability. Nodes with an unknown q on their path are left out and counted.

A token that was drawn from q promises nothing by its q: it is accepted with min(1, p ÷ q), or where
the target's noise is its own. Methods that draw are left out of all (``drawn_methods``).

The nodes are those a builder chose, so the curves judge q where it was used, not everywhere. The
curve's intervals take nodes as independent. Those of one round are not: in a chain one that fails
fails all below it, which makes these intervals too narrow, and siblings exclude each other, which
makes them too wide. Whether q is off on the whole is judged over rounds or prompts (``surrogate``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from analysis.frames import By, Frame, declared
from analysis.measures.tables import Tables
from analysis.measures.units import mean_interval
from core.rounds.draft import Array
from core.stats import Z, wilson

Event = Literal["path", "step"]
Bins = Literal["mass", "width"]
EVENTS: tuple[Event, ...] = ("path", "step")
LEAST_IN_BIN = 5  # rounds of a bin of the surrogate's curve, on the average


@declared("reliability")
def reliability(
    tables: Tables,
    event: Event = "path",
    spacing: Bins = "mass",
    bins: int = 10,
    by: By = "method",
) -> pd.DataFrame:
    """Reliability curve: how often what q gave a chance came true, bin by bin.

    ``spacing`` "mass" puts about as many nodes in every bin (``_edges``); "width" cuts [0, 1]
    evenly. Empty bins have no line.
    """
    frames = [
        _curve(cases.chance, cases.hit, spacing, bins).assign(**{by: name}, event=event)
        for (name,), cases in _cases(tables, event, [by]).items()
        if len(cases.chance)
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


@declared("calibration_error", kept=True)
def calibration_error(
    tables: Tables, by: By = "method", bins: int = 10, per_depth: bool = False
) -> pd.DataFrame:
    """Expected calibration error of both events: Σ_b n_b ÷ n · |share_b − mean q_b|."""
    keys, rows = [by, *(["depth"] if per_depth else [])], []
    for event in EVENTS:
        for key, cases in _cases(tables, event, keys).items():
            row = {"event": event, "nodes": len(cases.chance), "unknown": cases.unknown}
            errors = _errors(cases.chance, cases.hit, bins)
            rows.append(dict(zip(keys, key, strict=True)) | row | errors)
    return pd.DataFrame(rows)


def _errors(chance: Array, hit: Array, bins: int) -> dict[str, float]:
    if not len(chance):
        names = ("mean_q", "share", "bias", "ece_mass", "ece_width", "brier")
        return dict.fromkeys(names, np.nan)
    mean, share = float(chance.mean()), float(hit.mean())
    errors = {"mean_q": mean, "share": share, "bias": mean - share}
    errors |= {f"ece_{spacing}": _ece(chance, hit, spacing, bins) for spacing in get_args(Bins)}
    return errors | {"brier": float(np.square(chance - hit).mean())}


def _ece(chance: Array, hit: Array, spacing: Bins, bins: int) -> float:
    curve = _curve(chance, hit, spacing, bins)
    return float((curve["nodes"] * curve["gap"].abs()).sum() / len(chance))


@dataclass(frozen=True, eq=False)
class Cases:
    """The nodes of one group that answer whether an event came true.

    chance   float [n], its probability; ``hit``: bool [n], whether it did
    unknown  nodes left out, whose probability is not known
    """

    chance: Array
    hit: Array
    unknown: int


def _cases(tables: Tables, event: Event, keys: list[str]) -> dict[tuple[Any, ...], Cases]:
    """The cases of each group, in the order of the groups' keys."""
    chance = "path_q" if event == "path" else "q"
    names = [chance, "accepted", *(["reached"] if event == "step" else []), "depth"]
    found: dict[tuple[Any, ...], list[Frame]] = {}
    left_out = drawn_methods(tables)
    for part in tables.each("nodes", names):
        nodes = part if event == "path" else part[part["reached"]]
        nodes = nodes[~nodes["method"].isin(left_out)] if left_out else nodes
        for key, some in nodes.groupby(keys, observed=True):
            found.setdefault(key, []).append(some[[chance, "accepted"]])
    return {key: _together(found.pop(key), chance) for key in _in_order(found, tables, keys)}


def _together(parts: list[Frame], chance: str) -> Cases:
    values = np.concatenate([part[chance].to_numpy() for part in parts])
    hit = np.concatenate([part["accepted"].to_numpy() for part in parts])
    known = ~np.isnan(values)
    unknown = len(values) - int(known.sum())
    return Cases(values[known], hit[known], unknown) if unknown else Cases(values, hit, 0)


def _in_order(found: Iterable[tuple[Any, ...]], tables: Tables, keys: list[str]) -> list[Any]:
    """Groups as pandas orders them: runs and methods by their first run, then by depth."""
    names = tables.names if keys[0] == "run" else dict.fromkeys(tables.labels.values())
    place = {name: number for number, name in enumerate(names)}
    return sorted(found, key=lambda key: (place[key[0]], *key[1:]))


def _curve(chance: Array, hit: Array, spacing: Bins, bins: int) -> Frame:
    edges = _edges(chance, bins) if spacing == "mass" else np.linspace(0, 1, bins + 1)
    place = np.searchsorted(edges[1:-1], chance, side="left" if spacing == "mass" else "right")
    count = np.bincount(place, minlength=max(1, len(edges) - 1))
    used = np.flatnonzero(count)
    nodes = count[used]
    mean = np.bincount(place, chance, len(count))[used] / nodes
    accepted = np.bincount(place, hit, len(count))[used].astype(np.int64)
    low, high = wilson(accepted, nodes)
    curve: Frame = pd.DataFrame({"bin": used, "nodes": nodes, "mean_q": mean, "accepted": accepted})
    curve["low"], curve["high"] = edges[used], edges[np.minimum(used + 1, len(edges) - 1)]
    curve["share"], curve["share_low"], curve["share_high"] = accepted / nodes, low, high
    return curve.assign(gap=curve["share"] - mean)


def _edges(values: Array, bins: int) -> Array:
    """Edges of bins of about equal mass, float [bins + 1] or so; a bin has its upper edge.

    Equal values stay together. A value has a bin of its own where it fills one, and every value has
    one where there are no more of them than bins: beside others its error would cancel theirs.
    """
    ordered = np.sort(values)
    upper = ordered[np.diff(ordered, append=np.inf) > 0]
    if len(upper) > bins:
        cuts = np.quantile(ordered, np.linspace(0, 1, bins + 1))
        alone = cuts[1:][cuts[1:] == cuts[:-1]]
        upper = np.unique([*cuts[1:], *alone, *np.nextafter(alone, -np.inf)])
    return np.append(ordered[0], upper)


# ── Σq against the length that came true ─────────────────────────────────────────────────────────


@declared("surrogate", kept=True)
def surrogate(tables: Tables, by: By = "method") -> pd.DataFrame:
    """Σ_u q(u) over a round's nodes, what q expected to be accepted, against what was.

    Rounds that drafted nothing, or have a node of unknown q, are left out.
    """
    rows = []
    for name, part in _drafting(tables).groupby(by, observed=True):
        expected, accepted = part["surrogate"].to_numpy(), part["accepted"].to_numpy(float)
        gap = expected - accepted
        found = mean_interval(tables, part, gap, each=-1.0)
        varied = len(gap) > 1 and expected.std() > 1e-12 and accepted.std() > 0
        row = {
            by: name,
            "rounds": len(gap),
            "expected": float(expected.mean()),
            "accepted": float(accepted.mean()),
            "bias": float(gap.mean()),
            "bias_low": found.low,
            "bias_high": found.high,
            "over": found.over,
            "correlation": float(np.corrcoef(expected, accepted)[0, 1]) if varied else np.nan,
            "rmse": float(np.sqrt(np.square(gap).mean())),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _drafting(tables: Tables) -> Frame:
    """Rounds that drafted something, all of known q, which promises something."""
    rounds = tables.rounds[(tables.rounds["nodes"] > 0) & tables.rounds["surrogate"].notna()]
    return rounds[~rounds["method"].isin(drawn_methods(tables))]


def drawn_methods(tables: Tables) -> frozenset[str]:
    """Labels of methods that draw their drafts from q, or accept by p and q. One round that shows
    it is enough: those of a method in which nothing was refused would be a choice."""
    rounds = tables.rounds
    return frozenset(rounds.loc[rounds["drawn"], "method"].unique())


@declared("surrogate_curve")
def surrogate_curve(tables: Tables, bins: int = 10, by: By = "method") -> pd.DataFrame:
    """Mean accepted nodes by Σq, rounds in bins of equal mass (``_edges``); calibrated is the
    diagonal. Of fewer than ``bins`` · ``LEAST_IN_BIN`` rounds there are fewer bins.
    """
    rows = []
    for name, part in _drafting(tables).groupby(by, observed=True):
        many = max(1, min(bins, len(part) // LEAST_IN_BIN))
        edges = _edges(part["surrogate"].to_numpy(), many)
        place = np.searchsorted(edges[1:-1], part["surrogate"], side="left")
        for number, some in part.groupby(place):
            mean, error = some["accepted"].mean(), Z * some["accepted"].sem()
            row = {by: name, "bin": number, "rounds": len(some)}
            row |= {"expected": some["surrogate"].mean(), "accepted": mean}
            rows.append(row | {"low": mean - error, "high": mean + error})
    return pd.DataFrame(rows)
