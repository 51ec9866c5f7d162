"""Methods, and checkpoints of one drafter, on the same texts: what is paired and what is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from app.report.columns import CHECKPOINTS, MAX_DEPTHS, PAIRED, Body, Row, if_any, table_of
from app.terminal import one_line
from app.view.comparison import cautions
from core.stats import FEW

if TYPE_CHECKING:
    from analysis.measures.tables import Tables


def compared(tables: Tables) -> Body:
    """Each method against each, and who cannot be compared."""
    from analysis.measures.comparison import compare, incomparable

    found: Any = compare(tables)
    body: Body = [paired_table(found)] if len(found) else []
    if (found["texts"] < FEW).any():
        body.append(
            f"Fewer than {FEW} texts give a difference but no interval: run both on more prompts."
        )
    for one, other in incomparable(tables):
        body.append(f"{one} and {other} cannot be compared: {_why_not(tables, one, other)}.")
    return body


def paired_table(found: Any) -> Any:
    """What ``analysis.measures.comparison.compare`` found."""
    return table_of(found, PAIRED)


def checkpoint_sections(
    tables: Tables, chosen: Sequence[tuple[str, str]] | None = None
) -> Iterator[tuple[str, Body]]:
    """Two checkpoints of one drafter, paired by text; all pairs of them where none are chosen."""
    from analysis.measures.checkpoints import by_depth, pairs, stretches

    for one, other in pairs(tables) if chosen is None else chosen:
        some: Any = by_depth(tables, [(one, other)])
        if some.empty:
            continue
        title = one_line(f"{one} against {other}", 120)
        parts = some.groupby("measure", sort=False)
        tops = [part.head(MAX_DEPTHS) for _, part in parts]
        body: Body = [part for each in tops for part in ("", table_of(each, CHECKPOINTS))]
        yield f"By depth, paired by text: {title}", body[1:]
        found = stretches(tables, [(one, other)])
        yield from if_any(
            f"Where one lives and the other dies: {title}",
            [_lives(row) for row in found.to_dict("records")],
        )


def _lives(row: Row) -> str:
    return (
        f"{row['method']} takes the {row['tokens']} tokens from {row['position']} in one round "
        f"({row['run']}, round {row['round']}); {row['other']} needs {row['other_rounds']} "
        f"({row['other_run']}, from round {row['other_round']})."
    )


def _why_not(tables: Tables, one: str, other: str) -> str:
    """What the first runs of two methods do not share."""
    first = {label: tables.traces[run].header for run, label in reversed(tables.labels.items())}
    found = cautions(first[one], first[other])
    return found[0] if found else "they share no text (token limits, dtypes or devices may differ)"
