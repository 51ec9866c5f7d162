"""The best drafts in hindsight, by method: see ``analysis.measures.hindsight``."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.frames import By, declared
from analysis.measures.tables import Tables


@declared("oracle_rounds")
def oracle_rounds(tables: Tables) -> pd.DataFrame:
    """One line per round that recorded lists: nodes of the text's path."""
    found = tables.whole("hindsight")
    return found.assign(run=found["run"].astype(object))


@declared("oracle")
def oracle(tables: Tables, by: By = "method") -> pd.DataFrame:
    """The best drafts in hindsight within the budget, and where the difference is lost.

    Tokens are accepted drafted nodes per round. Where a drafter's lists depend on the path, those
    after nodes that were never asked are not recorded: the round counts as far as they are.
    """
    rows = []
    for name, some in tables.whole("hindsight").groupby(by, observed=True, sort=False):
        names = ("accepted", "listed", "possible")
        accepted, listed, possible = (float(some[name].mean()) for name in names)
        marginal = float(some["marginal"].mean(skipna=False))
        gap = possible - accepted
        rows.append({
            by: name, "rounds": len(some), "accepted": accepted, "marginal": marginal,
            "listed": listed, "possible": possible, "builder_loses": marginal - accepted,
            "order_loses": listed - marginal, "tree_loses": listed - accepted,
            "lists_lose": possible - listed,
            "tree_share": (listed - accepted) / gap if gap else np.nan,
            "lists_share": (possible - listed) / gap if gap else np.nan,
        })  # fmt: skip
    return pd.DataFrame(rows)
