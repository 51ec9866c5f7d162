"""Two draft lengths, or before and after, at the places of a text where rounds of both begin.

Rounds of a longer draft begin at other tokens: behind more accepted ones, and so before those that
its drafter finds harder. Then the same drafter accepts another share of its first places (83 % as a
chain of one, 76 % as one of eight) though it says the same after the same text. Where rounds of
both begin in one text, that is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from analysis.frames import Frame, declared
from analysis.measures import checkpoints, comparison
from analysis.measures.tables import Tables
from core.rounds.draft import Array

MOST = 16  # places of a draft
LENGTH = ("B", "depth", "num_steps")  # settings that say how long a draft is


def pairs(tables: Tables) -> list[tuple[str, str]]:
    """Labels that differ in the drafts' length alone, and those that are before and after."""
    return [*comparison.pairs(tables, LENGTH), *checkpoints.pairs(tables)]


@declared("begins")
def begins(tables: Tables, chosen: Sequence[tuple[str, str]] | None = None) -> pd.DataFrame:
    """The share of drafts that accept each place: of all, and of those that begin alike."""
    prompts, key_of, rows = comparison.prompts_of_texts(tables), comparison.pairing(tables), []
    for one, other in pairs(tables) if chosen is None else chosen:
        found = list(_alike(tables, one, other, key_of(one, other)))
        for depth in range(1, min(_deepest(tables, one), _deepest(tables, other), MOST) + 1):
            sums = [_frame((key, accepted[n] >= depth) for key, *accepted in found)
                    for n in range(4)]  # fmt: skip
            both = comparison.paired(sums[2], sums[3], prompts)
            if not both["texts"]:
                break
            row = {"method": one, "other": other, "depth": depth}
            for name, frame in zip(("own", "others"), sums, strict=False):
                row |= {f"{name}_rounds": frame["count"].sum(),
                        f"{name}_share": frame["sum"].sum() / frame["count"].sum()}  # fmt: skip
            rows.append(row | both | {"rounds": sums[2]["count"].sum()})
    return pd.DataFrame(rows)


def _deepest(tables: Tables, label: str) -> int:
    """L of its drafts; 0 where it has none."""
    return max(tables.rounds.loc[tables.rounds["method"] == label, "depths"], default=0)


def _frame(texts: Iterator[tuple[str, Array]]) -> Frame:
    """How many drafts of each text accept a place, of how many; texts without a draft are none."""
    lines = [(key, int(held.sum()), len(held)) for key, held in texts if len(held)]
    return pd.DataFrame(lines, columns=["text", "sum", "count"]).set_index("text")


def _alike(
    tables: Tables, one: str, other: str, key: comparison.Key
) -> Iterator[tuple[str, Array, Array, Array, Array]]:
    """Yield what drafts accepted in the first run of each text that both labels have, then what
    those accepted that begin at one place of the same text. int64 [rounds] each."""
    for text, *runs in checkpoints.runs_of_both(tables, one, other, key):
        mine, theirs = (checkpoints.written(tables, run) for run in runs)
        if not len(mine.text) or not len(theirs.text) or mine.start != theirs.start:
            continue
        end = mine.start + checkpoints.common_length(mine.text, theirs.text)
        every = [np.flatnonzero(x.nodes) for x in (mine, theirs)]
        mine_at, theirs_at = mine.positions[every[0]], theirs.positions[every[1]]
        both, at, its = np.intersect1d(mine_at, theirs_at, return_indices=True)
        at, its = (found[both < end] for found in (at, its))
        own, others = mine.accepted[every[0]], theirs.accepted[every[1]]
        yield text, own, others, own[at], others[its]
