"""Rounds and traces → the plain JSON that the tree view draws, live and from a file alike.

A round's payload is lean (about 40 KB at 1,024 nodes): positions, token, q, p and status per node.
What the inspector tells about one node (two top-10 lists among it) is asked for when it is opened.
All token text leaves through ``app.view.text``; numbers that are not finite leave as null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from app.view.explanation import cues, drafted_view, finite, odds, own_notes
from app.view.layout import tidy
from app.view.text import PIECE, fitting, flowing, visible
from core.rounds.draft import Array, Draft
from core.rounds.round import ACCEPTED, REJECTED, UNREACHED, Round, TargetProbs, Verdict
from core.traces.schema import Header

GHOST = -1  # the row that stands for the target's token where the walk stopped
DRAWN = 4096  # nodes a view draws; real rounds have at most 1,025
TOP = 10
CELLS = 12  # monospace cells of a label that fit in a node's box
_LETTER = {ACCEPTED: "a", REJECTED: "r", UNREACHED: "u"}
PREFILL, DRAFTED, BONUS = "p", "a", "b"


# ── the run ──────────────────────────────────────────────────────────────────────────────────────


def header_view(header: Header) -> dict[str, Any]:
    """What the page says about a run; the prompt as running text."""
    settings = {k: v for k, v in header.settings.items() if k != "sampling"}
    sampling = header.settings.get("sampling")
    settings |= sampling if isinstance(sampling, dict) else {}
    return {
        "method": visible(method_name(header.method)),
        "settings": [[visible(str(k)), visible(str(v))] for k, v in settings.items()],
        "model": visible(str(header.model.get("name", "")), 120),
        "device": visible(" ".join(filter(None, (header.device, header.dtype)))),
        "created": visible(header.created) if header.created else "",
        "prompt": flowing(header.prompt_text, 20_000),
        "prompt_tokens": len(header.prompt_ids),
    }


def method_name(method: object) -> str:
    """A method of one's own is named by its file, without the folders before it."""
    name = str(method)
    return PurePath(name).name if name.endswith(".py") else name


# ── one round ────────────────────────────────────────────────────────────────────────────────────


def round_view(record: Round, first: bool = False) -> dict[str, Any]:
    """Everything the page draws of one round. ``first``: the run's first text token is its root."""
    record = drawable(record)
    draft, verdict = record.draft, record.verdict
    end, has_ghost = verdict.path[-1], has_stop(record)
    layout, marked = tidy(draft, verdict.path, has_ghost), cues(record)
    payload: dict[str, Any] = {
        "index": record.index,
        "position": record.position,
        "accepted": record.accepted,
        "parents": draft.parents.tolist(),
        "depths": draft.depths.tolist(),
        "y": [round(v, 2) for v in layout.y.tolist()],
        "tokens": draft.tokens.tolist(),
        "labels": _labels(record),
        "short": _short(record),
        "q": _odds(draft.log_q),
        "p": None if record.target_probs is None else _odds(record.target_probs.log_p),
        "status": "".join(_LETTER[s] for s in record.status),
        "path": list(verdict.path),
        "text": _pieces(record, first),
        "times": asdict(record.times),
        "tvd": [] if record.probe is None else _numbers(record.probe.tvd),
    }
    if marked.marks:
        payload |= {"cues": list(marked.marks), "cue_words": dict(marked.words)}
    if has_ghost:
        payload["ghost"] = {
            "parent": end,
            "token": verdict.bonus,
            "y": round(layout.ghost or 0.0, 2),
            "label": visible(record.text(verdict.bonus)),
            "short": fitting(visible(record.text(verdict.bonus)), CELLS - 1),
            "p": target_odds(record, end, verdict.bonus),
            "why": record.stop_reason,
        }
    return payload


def has_stop(record: Round) -> bool:
    """Whether the round says which token the target wanted where the walk stopped."""
    return record.verdict.bonus >= 0


def drawable(record: Round, limit: int = DRAWN) -> Round:
    """The round, or of an absurdly large one its accepted path and first rows."""
    draft, path = record.draft, record.verdict.path
    if len(draft) <= limit:
        return record
    rows = sorted({*path[:limit], *range(max(1, limit - len(path)))})
    place = {row: i for i, row in enumerate(rows)}
    take = np.array(rows)
    parents = [place.get(int(p), -1) for p in draft.parents[take]]
    small = Draft(
        draft.tokens[take], np.array(parents, np.int32), draft.depths[take],
        draft.ranks[take], draft.log_q[take], draft.scores[take],
        {name: values[take] for name, values in draft.notes.items()},
        draft.offers and replace(draft.offers, after=draft.offers.after[take]),
    )  # fmt: skip
    verdict = Verdict(tuple(place[r] for r in path[:limit]), record.verdict.target_tokens[take])
    beliefs = record.target_probs and _taken(record.target_probs, take)
    return replace(record, draft=small, verdict=verdict, target_probs=beliefs)


def _taken(beliefs: TargetProbs, rows: Array) -> TargetProbs:
    return TargetProbs(
        beliefs.log_p[rows], beliefs.rank[rows], beliefs.top_ids[rows],
        beliefs.top_log_p[rows], beliefs.entropy[rows],
    )  # fmt: skip


def _labels(record: Round) -> dict[str, str]:
    return {str(t): visible(record.text(t)) for t in sorted(set(record.draft.tokens.tolist()))}


def _short(record: Round) -> dict[str, str]:
    """Labels that do not fit in a node's box, cut to it."""
    cut = {t: fitting(label, CELLS) for t, label in _labels(record).items()}
    return {t: short for t, short in cut.items() if short.endswith("…")}


def _pieces(record: Round, first: bool) -> list[list[Any]]:
    """The text this round added: [running text, how it came, row or GHOST] per token."""
    path, draft = record.verdict.path, record.draft
    pieces: list[list[Any]] = []
    if first:
        pieces.append([flowing(record.text(int(draft.tokens[0])), PIECE), PREFILL, 0])
    for place, token in enumerate(record.committed, 1):
        drafted = place < len(path)
        row = path[place] if drafted else GHOST
        pieces.append([flowing(record.text(token), PIECE), DRAFTED if drafted else BONUS, row])
    return pieces


# ── one node ─────────────────────────────────────────────────────────────────────────────────────


def node_view(record: Round, row: int, width: int | None = None) -> dict[str, Any]:
    """What the inspector tells about a row, or about the target's token at the stop (GHOST).

    The target's list is p after the *parent*: what this node competed with. ``width`` is M, the
    candidates per depth, which a round does not hold (``app.view.explanation.candidate_width``).
    """
    record = drawable(record)
    if row == GHOST and has_stop(record):
        return _ghost_view(record)
    if not 0 <= row < len(record.draft):
        raise IndexError(f"round {record.index} has no row {row}")
    draft, beliefs = record.draft, record.target_probs
    path = draft.path(row)
    view = _place_view(record, path[:-1], int(draft.tokens[row]))
    known = beliefs is not None and row > 0
    view |= {
        "row": row,
        "status": record.status[row],
        "why": record.why(row),
        "q": _odds(draft.log_q[row : row + 1])[0] if row else None,
        "p": _odds(beliefs.log_p[row : row + 1])[0] if known else None,
        "rank_q": int(draft.ranks[row]) or None,
        "rank_p": int(beliefs.rank[row]) or None if known else None,
        "path_q": _product(draft.log_q[list(path[1:])]) if row else None,
        "path_p": _product(beliefs.log_p[list(path[1:])]) if known else None,
        "score": finite(float(draft.scores[row])) if row else None,
        "drafted": drafted_view(record, row, width),
        "notes": own_notes(record, row),
        "next": _choice_label(record, row),
    }
    return view


def _ghost_view(record: Round) -> dict[str, Any]:
    """The target's token that was not drafted."""
    end, bonus = record.verdict.path[-1], record.verdict.bonus
    path, beliefs, depth = (
        record.draft.path(end),
        record.target_probs,
        int(record.draft.depths[end]),
    )
    view = _place_view(record, path, bonus)
    p = target_odds(record, end, bonus)
    above_q = _product(record.draft.log_q[list(path[1:])])
    above_p = _product(beliefs.log_p[list(path[1:])]) if beliefs is not None else None
    q = next((c["odds"] for c in _offered(record, end, bonus, None) if c["own"]), None)
    probe = record.probe
    view |= {
        "row": GHOST,
        "status": "bonus",
        "why": record.stop_reason,
        "q": q,
        "p": p,
        "rank_q": int(probe.rank_q[depth]) if probe and depth < len(probe.rank_q) else None,
        "rank_p": next((i for i, c in enumerate(view["target"], 1) if c["own"]), None),
        "path_q": above_q * q if above_q is not None and q is not None else None,
        "path_p": above_p * p if above_p is not None and p is not None else None,
        "score": None,
        "drafted": None,
        "notes": [],
        "next": None,
    }
    return view


def _place_view(record: Round, above: Sequence[int], token: int) -> dict[str, Any]:
    """What is true of a place in the tree, whichever token stands there."""
    depth, probe, beliefs = len(above), record.probe, record.target_probs
    parent = above[-1] if above else None
    observed = parent is not None and parent in record.verdict.path
    measured = observed and probe is not None and depth <= len(probe.tvd)
    return {
        "label": visible(record.text(token)),
        "token": token,
        "depth": depth,
        "position": record.position + depth,
        "path": [visible(record.text(int(record.draft.tokens[r]))) for r in above],
        "tvd": finite(float(probe.tvd[depth - 1])) if measured and probe is not None else None,
        "observed": observed,
        "entropy_q": finite(float(probe.entropy_q[depth - 1]))
        if measured and probe is not None and depth <= len(probe.entropy_q) else None,
        "entropy_p": finite(float(beliefs.entropy[parent]))
        if beliefs is not None and parent is not None else None,
        "target": _target_list(record, parent, token),
        "drafter": _offered(record, parent, token) if parent is not None else [],
        "conditioned": record.draft.offers is not None,
    }  # fmt: skip


def _target_list(record: Round, parent: int | None, own: int) -> list[dict[str, Any]]:
    if record.target_probs is None or parent is None:
        return []
    ids = record.target_probs.top_ids[parent][:TOP].tolist()
    chances = _odds(record.target_probs.top_log_p[parent][:TOP])
    chosen = int(record.verdict.target_tokens[parent])
    return [_entry(record, t, o, own, chosen) for t, o in zip(ids, chances, strict=True)]


def _offered(record: Round, parent: int, own: int, limit: int | None = TOP) -> list[dict[str, Any]]:
    """The drafter's best tokens behind a row."""
    offered = record.offered(parent)
    if offered is None:
        return []
    chances = _odds(offered.log_q[:limit])
    ids = offered.ids[:limit].tolist()
    return [_entry(record, t, o, own, None) for t, o in zip(ids, chances, strict=True)]


def _entry(record: Round, token: int, chance: float | None, own: int, chosen: int | None) -> dict:
    return {
        "label": visible(record.text(token)),
        "odds": chance,
        "own": token == own,
        "chosen": token == chosen,
    }


def _choice_label(record: Round, row: int) -> str | None:
    choice = int(record.verdict.target_tokens[row])
    return visible(record.text(choice)) if choice >= 0 else None


def target_odds(record: Round, row: int, token: int) -> float | None:
    """p of a token after a row, where the record keeps it."""
    if record.target_probs is None:
        return None
    at = np.flatnonzero(record.target_probs.top_ids[row] == token)
    return _odds(record.target_probs.top_log_p[row][at[:1]])[0] if len(at) else None


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────


def _odds(logs: Array) -> list[float | None]:
    """Probabilities of log-probabilities, four significant digits; a trace may hold anything."""
    return list(map(odds, logs.tolist()))


def _product(logs: Array) -> float | None:
    return _odds(np.array([logs.astype(np.float64).sum()]))[0]


def _numbers(values: Array) -> list[float | None]:
    return list(map(finite, values.tolist()))
