"""Where the target left the draft, and why branches ended there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.numbers import number
from app.report.columns import MAX_DEPTHS, SIBLINGS, Body, by_method, table_of
from app.terminal import one_line, table
from core.rounds.causes import Cause

if TYPE_CHECKING:
    from analysis.measures.tables import Tables

MAX_CLASSES, MAX_RANK = 6, 8  # that the terminal shows


def causes(tables: Tables) -> Body:
    """Of drafted nodes, and of the walks that ended."""
    from analysis.measures.causes import cause_shares

    nodes, ends = cause_shares(tables), cause_shares(tables, "stops")
    if nodes.empty and ends.empty:
        return []
    return [
        "What became of drafted nodes whose parent was accepted; the others are unreached. "
        "Of a rejected node the reason says why the wanted token was not there.",
        _shares(nodes, "depth"),
        "",
        "Why the walks ended, by the depth of the target's token, which was not drafted there.",
        _shares(ends, "depth"),
        "",
        "Why the walks ended, by the sort of token that the target wanted there.",
        _shares(cause_shares(tables, "stops", "token_class"), "token_class"),
    ]


def _shares(causes: Any, over: str) -> Any:
    """A line per method and place that was observed, a column per cause."""
    from analysis.measures.tables import CAUSES

    causes = causes[causes["observed_share"].notna()]
    names = [c for c in CAUSES if c in set(causes["cause"])]
    rows = []
    for method, part in by_method(causes):
        counts = part.groupby(over, observed=True)["count"].sum()
        by_depth = over == "depth"
        shown = counts.index[:MAX_DEPTHS] if by_depth else counts.nlargest(MAX_CLASSES).index
        for n, place in enumerate(shown):
            some = part[part[over] == place].set_index("cause")
            shares, at = some["observed_share"].to_dict(), some.loc[some["count"].idxmax()]
            where = f"{at['example_run']}, round {at['example_round']}, row {at['example_row']}"
            rows.append((
                method if n == 0 else "", str(place), str(counts[place]),
                *(number(shares.get(c, 0.0)) for c in names), one_line(where, 60),
            ))  # fmt: skip
    titles = [Cause(name).short for name in names]
    last = "an example of the commonest"
    columns = ("", "depth" if over == "depth" else "token", "observed", *titles, last)
    return table(columns, rows, left=("", "token", last))


def mismatches(tables: Tables) -> Body:
    """Where the target's token stood in the drafter's list."""
    from analysis.measures.causes import after_sibling, first_mismatches

    found = first_mismatches(tables)
    if found.empty:
        return []
    rows, ranks = [], range(2, MAX_RANK + 1)
    for method, part in by_method(found):
        total, ranked = part["count"].sum(), part[part["rank"].notna()]
        near = ranked.groupby("rank")["count"].sum() / total
        outside = part.loc[part["outside"], "count"].sum() / total
        unknown = part.loc[part["rank"].isna() & ~part["outside"], "count"].sum() / total
        drafted = part["drafted"].sum() / total
        shares = [*(near.get(rank, 0.0) for rank in ranks), outside, unknown, drafted]
        rows.append((method, str(total), *map(number, shares)))
    columns = (
        "",
        "rounds",
        *(f"rank {rank}" for rank in ranks),
        "outside",
        "not recorded",
        "was drafted",
    )
    body: Body = [table(columns, rows, left=("",))]
    after = after_sibling(tables)
    return [*body, "", table_of(after, SIBLINGS)] if len(after) else body
