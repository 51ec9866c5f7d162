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

from analysis.frames import documented
from core.rounds.draft import Draft
from core.rounds.round import Round
from core.traces.schema import Trace


@documented
def rounds_table(trace: Trace) -> pd.DataFrame:
    """One line per round.

    round         its number, from 1
    index         the same from 0, as in the trace
    position      absolute position of the root token, prompt included
    nodes         drafted nodes, without the root and rows that are never accepted
    accepted      accepted drafted nodes
    committed     tokens that the round added to the text
    bonus         token id of the bonus token, the next round's root
    stop          why the walk ended: the codes of core.rounds.causes
    text          of the committed tokens
    draft, build, verify, commit  s in that stage
    tvd_1         ½ Σ_v |q − p| at depth 1; NaN without probe
    """
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
    yield from asdict(record.times).items()
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


@documented
def _nodes_table(rounds: Iterable[Round]) -> pd.DataFrame:
    """One line per row of the draft, roots (row 0) included. NaN: not recorded, or without meaning
    for a root.

    round        the round's number, from 1
    index        the same from 0, as in the trace
    row          of the draft, 0 … B
    parents      its parent's row; of a draft graph all of them, as "0 3"
    depth        0 for the root
    token        token id
    text         the token's text
    rank         the drafter's rank of the token at that place, 1 = best
    q            the drafter's probability of the token, given what the drafter conditions on
    score        what the builder ranked by
    p            the target's probability of the token, given its path
    rank_p       the target's rank of the token there
    status       accepted, rejected, unreached or side
    cause        why its branch lived or died: the codes of core.rounds.causes
    choice       token id of the target's own token after the row; −1: not computed
    choice_text  its text
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
