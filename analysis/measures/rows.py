"""A trace's record as two plain tables: a line per round and a line per node. Never torch.

``round`` counts from 1, as people are shown rounds; ``index`` is what the trace holds, from 0.

They hold what the log holds, text included, and every draft, graphs too. Measures computed from
them (path probabilities, shares, intervals) are in ``analysis.measures.tables``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from analysis.frames import declared
from core.rounds.draft import Draft
from core.rounds.round import Round
from core.traces.schema import Trace


@declared("rounds_of_a_trace")
def rounds_table(trace: Trace) -> pd.DataFrame:
    """One line per round."""
    return pd.DataFrame([dict(_round(record)) for record in trace.rounds])


def _round(record: Round) -> Iterator[tuple[str, Any]]:
    yield "round", record.number
    yield "index", record.index
    yield "position", record.position
    yield "nodes", record.draft.nodes
    yield "accepted", record.accepted
    yield "committed", len(record.committed)
    yield "bonus", record.verdict.bonus
    yield "stop", record.stop_reason.value
    yield "text", _text(record, record.committed)
    timed = record.times.recorded is not None
    yield from ((stage, s if timed else np.nan) for stage, s in asdict(record.times).items())
    probe = record.probe
    yield "tvd_1", float(probe.tvd[0]) if probe is not None and len(probe.tvd) else np.nan


def nodes_table(rounds: Iterable[Round]) -> pd.DataFrame:
    """``_nodes_table``; notes of the drafter or the builder follow as "note: NAME"."""
    rounds = list(rounds)
    table, notes = _nodes_table(rounds), [_notes(record) for record in rounds]
    named = pd.concat(notes, ignore_index=True) if notes else pd.DataFrame()
    found = pd.concat([table, named], axis=1)
    found.attrs = table.attrs
    return found


@declared("nodes_of_a_trace")
def _nodes_table(rounds: Iterable[Round]) -> pd.DataFrame:
    """One line per row of the draft, roots (row 0) included. NaN: not recorded, or without meaning
    for a root.
    """
    tables = [_nodes(record) for record in rounds]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _nodes(record: Round) -> pd.DataFrame:
    draft, nodes, count = record.draft, record.nodes(), len(record.draft)
    choices = record.verdict.target_tokens.tolist()
    return pd.DataFrame({
        "round": np.full(count, record.number),
        "index": np.full(count, record.index),
        "row": np.arange(count),
        "parents": [" ".join(map(str, parents)) for parents in draft.sources],
        "depth": draft.depths,
        "token": draft.tokens,
        "text": [_text(record, [token]) for token in draft.tokens.tolist()],
        "rank": nodes.rank,
        "q": nodes.q,
        "score": nodes.score,
        "p": nodes.p,
        "rank_p": nodes.rank_p,
        "status": record.status,
        "cause": [record.why(row).value for row in range(count)],
        "choice": choices,
        "choice_text": [_text(record, [t]) if t >= 0 else None for t in choices],
    })  # fmt: skip


def _notes(record: Round) -> pd.DataFrame:
    draft = record.draft
    notes = draft.notes if isinstance(draft, Draft) else {}
    columns = {f"note: {name}": values for name, values in notes.items()}
    return pd.DataFrame(columns, index=range(len(draft)))


def _text(record: Round, tokens: Iterable[int]) -> str:
    """Text as it is, but of Unicode that files can hold: no lone surrogates."""
    text = "".join(record.text(token) for token in tokens)
    return text.encode("utf-8", "replace").decode("utf-8")
