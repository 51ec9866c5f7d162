"""Figures as plain data for the page: trees, lists of tokens, the run's text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from app.learn.words import Json, Wording
from core.methods.names import METHODS
from core.methods.registry import find_method
from core.rounds.draft import Candidates
from core.traces.schema import Trace
from core.visible import visible

SEEN, CHOSEN, HOT, NEW = "seen", "chosen", "hot", "new"
WAITING, DIM, LOST = "waiting", "dim", "lost"

NAMES = {name: find_method(name).title for name in METHODS} | {"mtp": "MTP head"}
Marks = Mapping[int, str]


def marks_of(**rows: Iterable[int]) -> dict[int, str]:
    """Rows by mark, as marks by row; the last mark of a row counts."""
    return {row: mark for mark, each in rows.items() for row in each}


def tree(
    name: str,
    rows: Iterable[int] | None = None,
    *,
    marks: Marks | None = None,
    select: int | None = None,
    title: str = "",
    labels: Mapping[int, str] | None = None,
) -> Json:
    """One of the course's trees: the rows shown (None: all), their marks, one picked; ``labels``
    stand in the boxes in place of q."""
    return {
        "name": name,
        "rows": None if rows is None else sorted(rows),
        "marks": {str(row): mark for row, mark in (marks or {}).items()},
        "select": select,
        "title": title,
        "labels": labels and {str(row): label for row, label in labels.items()},
    }


def pairs(
    listed: Candidates | None, count: int, depth: int | None = None
) -> list[tuple[int, float]]:
    """The best tokens of a list (of one depth's list) with their log-probabilities."""
    if listed is None:
        return []
    ids, logs = (
        (listed.ids, listed.log_q) if depth is None else (listed.ids[depth], listed.log_q[depth])
    )
    return list(zip(ids[:count].tolist(), logs[:count].tolist(), strict=True))


def bars(
    title: str, words: Wording, listed: Iterable[tuple[int, float]], marks: Marks | None = None,
    note: str = "", usual: str = SEEN,
) -> Json:  # fmt: skip
    """Tokens with bars of their probabilities; ``marks`` by token."""
    items = [
        {"label": words.label(t), "odds": math.exp(log), "mark": (marks or {}).get(t, usual)}
        for t, log in listed
    ]
    return {"title": title, "items": items, "note": note}


def columns(*lists: Json, product: Sequence[str] = ()) -> Json:
    """Lists side by side; below them a product written out."""
    return {"kind": "columns", "lists": list(lists), "product": list(product)}


def _groups(run: Trace) -> list[list[str]]:
    return [[visible(r.text(token)) for token in r.committed] for r in run.rounds]


def lanes(run: Trace, rounds: int = 0, weights: int = 0) -> Json:
    """The run's text, one box per pass of plain decoding, and below one box per round.

    ``weights``: bytes that a pass loads; the passes are then shown one after the other.
    """
    groups = _groups(run)
    pieces = [piece for group in groups for piece in group]
    return {"kind": "lanes", "plain": pieces, "rounds": groups[:rounds], "weights": weights}


def race(runs: Mapping[str, Trace]) -> Json:
    """Every method's text with its rounds."""
    rows = [{"name": NAMES[name], "groups": _groups(run)} for name, run in runs.items()]
    return {"kind": "race", "rows": rows}


def clock(runs: Mapping[str, Trace]) -> Json:
    """Runs side by side in their recorded time: the rounds of each, and when each ends, in seconds
    after the prompt's pass."""
    rows = [
        {
            "name": name,
            "groups": _groups(run),
            "ends": [round(end, 4) for end in accumulate(r.times.total for r in run.rounds)],
        }
        for name, run in runs.items()
    ]
    return {"kind": "clock", "rows": rows}
