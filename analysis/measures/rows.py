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

from core.rounds.draft import Array, Draft
from core.rounds.round import Round
from core.traces.schema import Trace

ROUND = (
    "round", "index", "position", "nodes", "accepted", "committed", "bonus", "why_stopped", "text",
    "draft_s", "build_s", "verify_s", "commit_s", "tvd_1",
)  # fmt: skip
NODE = (
    "round", "index", "row", "parents", "depth", "token", "text", "rank_q", "q", "score", "p",
    "rank_p", "status", "why", "target_next",
)  # fmt: skip


def rounds_table(trace: Trace) -> pd.DataFrame:
    """One line per round. Seconds per stage; ``tvd_1`` is the TVD at depth 1, NaN without probe."""
    return pd.DataFrame([dict(_round(record)) for record in trace.rounds], columns=list(ROUND))


def _round(record: Round) -> Iterator[tuple[str, Any]]:
    yield "round", record.number
    yield "index", record.index
    yield "position", record.position
    yield "nodes", record.draft.nodes
    yield "accepted", record.accepted
    yield "committed", len(record.committed)
    yield "bonus", record.verdict.bonus
    yield "why_stopped", record.stop_reason
    yield "text", _text(record, record.committed)
    for stage, seconds in asdict(record.times).items():
        yield f"{stage}_s", seconds
    probe = record.probe
    yield "tvd_1", float(probe.tvd[0]) if probe is not None and len(probe.tvd) else np.nan


def nodes_table(rounds: Iterable[Round]) -> pd.DataFrame:
    """One line per node, roots (row 0) included: parents as "0 3", q and p as probabilities.

    NaN: not recorded, or without meaning for a root. Notes of the builder follow as "note: NAME".
    """
    tables = [_nodes(record) for record in rounds]
    if not tables:
        return pd.DataFrame(columns=list(NODE))
    return pd.concat(tables, ignore_index=True)


def _nodes(record: Round) -> pd.DataFrame:
    draft, probs, count = record.draft, record.target_probs, len(record.draft)
    choices = record.verdict.target_tokens.tolist()
    columns: dict[str, Any] = {
        "round": np.full(count, record.number),
        "index": np.full(count, record.index),
        "row": np.arange(count),
        "parents": [" ".join(map(str, parents)) for parents in draft.sources],
        "depth": draft.depths,
        "token": draft.tokens,
        "text": [_text(record, [token]) for token in draft.tokens.tolist()],
        "rank_q": _beyond_root(draft.ranks),
        "q": np.exp(_beyond_root(np.minimum(draft.log_q, 0))),
        "score": _beyond_root(draft.scores),
        "p": np.full(count, np.nan) if probs is None else _chance(probs.log_p),
        "rank_p": np.full(count, np.nan) if probs is None else _beyond_root(probs.rank),
        "status": record.status,
        "why": [record.why(row) for row in range(count)],
        "target_next": [_text(record, [t]) if t >= 0 else None for t in choices],
    }
    notes = draft.notes if isinstance(draft, Draft) else {}
    columns |= {f"note: {name}": values for name, values in notes.items()}
    return pd.DataFrame(columns)


def _chance(logs: Array) -> Array:
    return np.exp(_beyond_root(np.minimum(logs, 0)))


def _beyond_root(values: Array) -> Array:
    """As float64, without a value for the root, which was not drafted."""
    numbers = values.astype(np.float64)
    numbers[0] = np.nan
    return numbers


def _text(record: Round, tokens: Iterable[int]) -> str:
    """Text as it is, but of Unicode that files can hold: no lone surrogates."""
    text = "".join(record.text(token) for token in tokens)
    return text.encode("utf-8", "replace").decode("utf-8")
