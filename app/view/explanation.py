"""Why a node was drafted: what its builder knew of it, as the inspector and the tree tell it.

Three kinds of drafts explain themselves: prefixes by Π q (DDTree and its like), q′ given the token
before (TreeFlash) and a score of two terms (DART). They are told apart by the notes that a draft
carries, never by a method's name, so that a trace and a method of one's own are explained too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.view.text import visible
from core.rounds.draft import Array, Draft
from core.rounds.round import Round
from core.traces.schema import Header

# The names that core.drafting.builders and core.methods.dart.search write: importing them would import numba.
MARGINAL, BEHIND = "log q (marginal)", "behind candidate"
TERM_Q, TERM_NGRAM = "score: q term", "score: n-gram term"
CONTEXT, COUNT = "n-gram context", "n-gram count"
TOLD = frozenset((MARGINAL, BEHIND, TERM_Q, TERM_NGRAM, CONTEXT, COUNT))

PREFIX, CONDITIONED, WEIGHED = "prefix", "conditioned", "weighed"
STRONG = math.log(2)  # q′ and q differ strongly from this on
MORE, LESS, NEVER = "▲", "▼", "n–"


# ── one node ─────────────────────────────────────────────────────────────────────────────────────


def kind(draft: Draft) -> str:
    """Which of the three explanations a draft's notes allow."""
    if MARGINAL in draft.notes:
        return CONDITIONED
    return WEIGHED if TERM_Q in draft.notes and TERM_NGRAM in draft.notes else PREFIX


def drafted_view(record: Round, row: int, width: int | None = None) -> dict[str, Any] | None:
    """The inspector's section for a drafted row; None for the root. ``width`` is the method's M."""
    draft = record.draft
    if row == 0:
        return None
    path = list(draft.path(row))[1:]
    scores = draft.scores[1:]
    told: dict[str, Any] = {
        "kind": kind(draft),
        "factors": [odds(float(v)) for v in draft.log_q[path]],
        "place": int((scores > draft.scores[row]).sum()) + 1,
        "nodes": draft.nodes,
        "by_path": math.isclose(
            float(draft.scores[row]), float(draft.log_q[path].sum()), rel_tol=1e-3, abs_tol=1e-3
        ),
        "score": finite(float(draft.scores[row])),
    }
    if told["kind"] == CONDITIONED:
        told |= _conditioned(record, row, width)
    elif told["kind"] == WEIGHED:
        told |= _weighed(draft, row)
    return told


def _conditioned(record: Round, row: int, width: int | None) -> dict[str, Any]:
    """q′ beside q, and what the token before has to do with it."""
    draft, parent = record.draft, int(record.draft.parents[row])
    return {
        "given": visible(record.text(int(draft.tokens[parent]))),
        "q": odds(float(draft.log_q[row])),
        "marginal": odds(float(draft.notes[MARGINAL][row])),
        "cue": _against_marginal(draft)[row],
        "behind": _note(draft, BEHIND, row),
        "width": width,
        "leaf": _leaf(record, row),
    }


def _leaf(record: Round, row: int) -> str:
    """Why a row of a conditioned draft can have no children: "last", "outside" or "" (it can)."""
    offers = record.draft.offers
    if offers is None or offers.after[row] >= 0:
        return ""
    depths = 0 if record.candidates is None else len(record.candidates.ids)
    return "last" if record.draft.depths[row] >= depths else "outside"


def _weighed(draft: Draft, row: int) -> dict[str, Any]:
    """The score as a sum: the parent's, the drafter's term and the n-gram model's."""
    parent = int(draft.parents[row])
    return {
        "above": finite(float(draft.scores[parent])) if parent else None,
        "term_q": _note(draft, TERM_Q, row),
        "term_ngram": _note(draft, TERM_NGRAM, row),
        "context": _note(draft, CONTEXT, row),
        "count": _note(draft, COUNT, row),
    }


def own_notes(record: Round, row: int) -> list[list[Any]]:
    """[name, number, whether it is a probability] of what no section tells: a builder's own."""
    found = []
    for name, values in record.draft.notes.items():
        value = float(values[row])
        if name in TOLD or math.isnan(value):
            continue
        chance = name.startswith("log ")
        shown = odds(value) if chance else finite(value)
        found.append([visible(name.removeprefix("log ")), shown, chance])
    return found


def candidate_width(header: Header | None) -> int | None:
    """M, the candidates per depth that a conditioned method kept, if the header says."""
    options = header.settings.get("options") if header is not None else None
    width = options.get("candidates") if isinstance(options, dict) else None
    return width if type(width) is int else None


# ── every node of a tree ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Cues:
    """A quiet mark in a node's box. ``marks`` has one per row ("" for none), ``words`` says what
    each of them means; both are empty where there is nothing to mark."""

    marks: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    def told(self, row: int) -> str:
        """The words of a row's mark."""
        return self.words.get(self.marks[row], "") if self.marks else ""


CUE_WORDS = {
    MORE: "q′ is at least twice q: likelier after this parent",
    LESS: "q′ is at most half of q: less likely after this parent",
    "n2": "the n-gram model knows it behind the 2 tokens before",
    "n1": "the n-gram model knows it behind the token before",
    "n0": "the n-gram model knows it behind no context",
    NEVER: "the n-gram model never saw it here",
}


def cues(record: Round) -> Cues:
    """Where q′ differs strongly from q, or how much context the n-gram model knew."""
    sort = kind(record.draft)
    if sort == PREFIX or (sort == WEIGHED and CONTEXT not in record.draft.notes):
        return Cues()
    marks = _against_marginal(record.draft) if sort == CONDITIONED else _contexts(record.draft)
    return Cues(tuple(marks), {m: CUE_WORDS[m] for m in sorted({*marks} - {""})})


def _against_marginal(draft: Draft) -> list[str]:
    with np.errstate(invalid="ignore"):
        gain = draft.log_q - draft.notes[MARGINAL]  # NaN for the root, which compares as false
    return np.where(gain >= STRONG, MORE, np.where(gain <= -STRONG, LESS, "")).tolist()


def _contexts(draft: Draft) -> list[str]:
    """No mark where there was no n-gram term, which the search writes as NaN."""
    counts = draft.notes.get(COUNT, np.ones(len(draft)))
    return list(map(_context, draft.notes[CONTEXT].tolist(), counts.tolist()))


def _context(length: float, count: float) -> str:
    if math.isnan(length):
        return ""
    return f"n{int(min(2.0, max(0.0, length)))}" if count > 0 else NEVER


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────


def odds(log: float) -> float | None:
    """The probability of a log-probability, four digits; a trace may hold anything."""
    return None if math.isnan(log) else float(f"{math.exp(min(log, 0.0)):.4g}")


def finite(value: float) -> float | None:
    """Four digits, or None: JSON knows no infinity."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _note(draft: Draft, name: str, row: int) -> float | None:
    values: Array | None = draft.notes.get(name)
    return None if values is None else finite(float(values[row]))
