"""Is q a probability? Reliability curves, their calibration error, and Σq against what came true.

Two events are asked about. *path*: the target's own text runs through a node, against the product
of q along the node's path; every drafted node has an answer, for a node that was never reached lies
off the text. *step*: a node is accepted given that its parent was, against its q; only nodes whose
parent was accepted answer. q is always the drafter's log q along the path (TreeFlash's q′), never
the builder's score, which for DART is no probability. Nodes with an unknown q on their path are
left out and counted.

The nodes are those a builder chose, so the curves judge q where it was used, not everywhere. Nodes
of one round exclude each other, which makes the intervals of the curve a little too narrow.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from analysis.frames import By, Frame, documented
from analysis.tables import Tables
from core.rounds.draft import Array
from core.stats import Z, interval, resample, wilson

Event = Literal["path", "step"]
Bins = Literal["mass", "width"]
EVENTS: tuple[Event, ...] = ("path", "step")


@documented
def reliability(
    tables: Tables, event: Event = "path", spacing: Bins = "mass", bins: int = 10,
    by: By = "method",
) -> pd.DataFrame:  # fmt: skip
    """Reliability curve: how often what q gave a chance came true, bin by bin.

    ``spacing`` "mass" puts about as many nodes in every bin, equal q never apart; "width" cuts
    [0, 1] evenly. Empty bins have no line.

    method     the label
    event      path or step (see the module)
    bin        number from 0, by rising q
    low, high  the bin's bounds
    nodes      nodes in it
    mean_q     mean probability they were given
    accepted   nodes that were accepted
    share, share_low, share_high  accepted ÷ nodes, Wilson's 95 % interval
    gap        share − mean_q; below 0 the drafter was overconfident
    """
    frames = [_curve(chance, hit, spacing, bins).assign(**{by: name})
              for name, chance, hit in _events(tables, event, by)]  # fmt: skip
    columns = [by, "event", "bin", "low", "high", "nodes", "mean_q", "accepted", "share",
               "share_low", "share_high", "gap"]  # fmt: skip
    if not frames:
        return pd.DataFrame(columns=columns)
    found: Frame = pd.concat(frames, ignore_index=True).assign(event=event)
    return found[columns]


@documented
def calibration_error(
    tables: Tables, by: By = "method", bins: int = 10, per_depth: bool = False
) -> pd.DataFrame:
    """Expected calibration error of both events: Σ_b n_b ÷ n · |share_b − mean q_b|.

    method     the label
    depth      of the nodes; only with ``per_depth``
    event      path or step (see the module)
    nodes      nodes asked
    unknown    nodes left out, a q on their path being unknown
    mean_q     mean probability they were given
    share      of them that was accepted
    bias       mean_q − share; above 0 the drafter is overconfident
    ece_mass   error over bins of equal mass
    ece_width  error over bins of equal width on [0, 1]
    brier      mean (q − accepted)²
    """
    columns = [by, "event", "nodes", "unknown", "mean_q", "share", "bias", "ece_mass",
               "ece_width", "brier"]  # fmt: skip
    columns[1:1] = ["depth"] if per_depth else []
    rows = []
    for event in EVENTS:
        nodes = _asked(tables, event)
        for key, part in nodes.groupby([by, "depth"] if per_depth else [by], observed=True):
            known = part["chance"].notna()
            chance = part.loc[known, "chance"].to_numpy()
            hit = part.loc[known, "accepted"].to_numpy()
            told = {"event": event, "nodes": len(chance), "unknown": int((~known).sum())}
            rows.append(dict(zip(columns, key, strict=False)) | told | _errors(chance, hit, bins))
    return pd.DataFrame(rows, columns=columns)


def _errors(chance: Array, hit: Array, bins: int) -> dict[str, float]:
    if not len(chance):
        return {}
    mean, share = float(chance.mean()), float(hit.mean())
    return {
        "mean_q": mean, "share": share, "bias": mean - share,
        "ece_mass": _ece(chance, hit, "mass", bins), "ece_width": _ece(chance, hit, "width", bins),
        "brier": float(np.square(chance - hit).mean()),
    }  # fmt: skip


def _ece(chance: Array, hit: Array, spacing: Bins, bins: int) -> float:
    curve = _curve(chance, hit, spacing, bins)
    return float((curve["nodes"] * curve["gap"].abs()).sum() / len(chance))


def _asked(tables: Tables, event: Event) -> Frame:
    """The nodes an event is asked of, with the column ``chance``."""
    nodes = tables.nodes
    if event == "path":
        return nodes.assign(chance=nodes["path_q"])
    reached = nodes[nodes["reached"]]
    return reached.assign(chance=reached["q"])


def _events(tables: Tables, event: Event, by: By) -> list[tuple[str, Array, Array]]:
    found = []
    for name, part in _asked(tables, event).groupby(by, observed=True):
        known = part[part["chance"].notna()]
        if len(known):
            found.append((name, known["chance"].to_numpy(), known["accepted"].to_numpy()))
    return found


def _curve(chance: Array, hit: Array, spacing: Bins, bins: int) -> Frame:
    edges = np.linspace(0, 1, bins + 1)
    if spacing == "mass":
        edges = np.unique(np.quantile(chance, edges))
    place = np.searchsorted(edges[1:-1], chance, side="left" if spacing == "mass" else "right")
    count = np.bincount(place, minlength=max(1, len(edges) - 1))
    used = np.flatnonzero(count)
    nodes = count[used]
    mean = np.bincount(place, chance, len(count))[used] / nodes
    accepted = np.bincount(place, hit, len(count))[used].astype(np.int64)
    low, high = wilson(accepted, nodes)
    return pd.DataFrame({
        "bin": used, "low": edges[used], "high": edges[np.minimum(used + 1, len(edges) - 1)],
        "nodes": nodes, "mean_q": mean, "accepted": accepted, "share": accepted / nodes,
        "share_low": low, "share_high": high, "gap": accepted / nodes - mean,
    })  # fmt: skip


# ── Σq against the length that came true ─────────────────────────────────────────────────────────


@documented
def surrogate(tables: Tables, by: By = "method", seed: int = 0) -> pd.DataFrame:
    """Σ_u q(u) over a round's nodes, what q expected to be accepted, against what was.

    Rounds that drafted nothing, or have a node of unknown q, are left out.

    method       the label
    rounds       rounds
    expected     mean Σ of path probabilities, nodes
    accepted     mean accepted nodes
    bias, bias_low, bias_high  expected − accepted; 95 % bootstrap interval over rounds
    correlation  Pearson's, over rounds; NaN when either does not vary
    rmse         root of the mean squared difference, nodes
    """
    rows = []
    rounds = tables.rounds[(tables.rounds["nodes"] > 0) & tables.rounds["surrogate"].notna()]
    for name, part in rounds.groupby(by, observed=True):
        expected, accepted = part["surrogate"].to_numpy(), part["accepted"].to_numpy(float)
        gap = expected - accepted
        low, high = interval(resample(gap, np.ones(len(gap)), seed=seed))
        varied = len(gap) > 1 and expected.std() > 1e-12 and accepted.std() > 0
        rows.append({
            by: name, "rounds": len(gap), "expected": float(expected.mean()),
            "accepted": float(accepted.mean()), "bias": float(gap.mean()), "bias_low": low,
            "bias_high": high, "rmse": float(np.sqrt(np.square(gap).mean())),
            "correlation": float(np.corrcoef(expected, accepted)[0, 1]) if varied else np.nan,
        })  # fmt: skip
    columns = [by, "rounds", "expected", "accepted", "bias", "bias_low", "bias_high",
               "correlation", "rmse"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


@documented
def surrogate_curve(tables: Tables, bins: int = 10, by: By = "method") -> pd.DataFrame:
    """Mean accepted nodes by Σq, rounds in bins of equal mass; calibrated is the diagonal.

    method    the label
    bin       number from 0, by rising Σq
    rounds    rounds in it
    expected  mean Σ of path probabilities, nodes
    accepted, low, high  mean accepted nodes ± 1.96 standard errors
    """
    rounds = tables.rounds[(tables.rounds["nodes"] > 0) & tables.rounds["surrogate"].notna()]
    columns = [by, "bin", "rounds", "expected", "accepted", "low", "high"]
    rows = []
    for name, part in rounds.groupby(by, observed=True):
        edges = np.unique(np.quantile(part["surrogate"], np.linspace(0, 1, bins + 1)))
        place = np.searchsorted(edges[1:-1], part["surrogate"], side="left")
        for number, some in part.groupby(place):
            mean, error = some["accepted"].mean(), Z * some["accepted"].sem()
            rows.append({by: name, "bin": number, "rounds": len(some),
                         "expected": some["surrogate"].mean(), "accepted": mean,
                         "low": mean - error, "high": mean + error})  # fmt: skip
    return pd.DataFrame(rows, columns=columns)
