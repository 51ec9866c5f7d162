"""The JSON that the inspector shows of a node.

Most of it holds for a place, whatever token stands there: the path to it, the lists of both models.
A pack has every node of a run, and each place once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.view.explanation import Explainer
from app.view.rounds import GHOST, PLAIN, drawable, has_stop
from app.view.values import finite, probabilities, probability
from core.rounds.causes import Cause
from core.rounds.draft import NOT_ASKED, Array
from core.rounds.node import Node
from core.rounds.round import REJECTED, Round
from core.traces.possible import NEAR
from core.visible import visible

TOP = 10
ROUNDED = 0.01  # of a probability: more than its logarithm loses in half precision


def node_view(record: Round, row: int, explainer: Explainer = PLAIN) -> dict[str, Any]:
    """Return the inspector's view of a row, or of the target's token at the stop (GHOST).

    The target's list is p after the *parent*: what this node competed with. Raises IndexError.
    """
    places = _Places(drawable(record))
    if row == GHOST and has_stop(record):
        place, own = places.after(places.end), _ghost_view(places)
    elif 0 <= row < len(places.above):
        place, own = places.after(places.above[row]), _row_view(places, row, explainer)
    else:
        raise IndexError(f"round {record.number} has no row {row}")
    lists = ((name, enumerate(place.view[name])) for name in ("target", "drafter"))
    marked = {name: [own[name].get(at, each) for at, each in entries] for name, entries in lists}
    return place.view | own | marked


def node_parts(record: Round, explainer: Explainer = PLAIN) -> dict[str, Any]:
    """The views of all rows and, last, of the target's token at the stop, in parts that
    app/web/offline/packs.js joins as ``node_view`` does: ``places`` and, each with the number of
    its place, ``nodes``."""
    places = _Places(drawable(record))
    nodes = [_row_view(places, row, explainer) for row in range(len(places.above))]
    above = list(places.above)
    if has_stop(record):
        nodes.append(_ghost_view(places))
        above.append(places.end)
    number = {row: at for at, row in enumerate(dict.fromkeys(above))}
    return {
        "places": [places.after(row).view for row in number],
        "nodes": [own | {"place": number[row]} for own, row in zip(nodes, above, strict=True)],
    }


# ── a place ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Listed:
    """Tokens that a model listed, and their log-probabilities; ``shown``: the best, as JSON."""

    ids: Sequence[int] = ()
    logs: Sequence[float] = ()
    shown: Sequence[dict[str, Any]] = ()

    @staticmethod
    def of(record: Round, ids: Array, logs: Array, chosen: int | None = None) -> _Listed:
        """``chosen``: the target's own token there."""
        shown = [
            {"label": visible(record.text(t)), "odds": p, "own": False, "chosen": t == chosen}
            for t, p in zip(ids[:TOP].tolist(), probabilities(logs[:TOP]), strict=True)
        ]
        return _Listed(ids.tolist(), logs.tolist(), shown)

    def marked(self, own: int, odds: float | None) -> dict[int, dict[str, Any]]:
        """One token as it is shown instead, by its place in the list. It has the node's own
        probability where that is near: a trace may keep a list with fewer decimals."""
        found = zip(self.ids, enumerate(self.shown), strict=False)
        return {at: _own(each, odds) for token, (at, each) in found if token == own}

    def log(self, token: int) -> float:
        """NaN where it is not listed."""
        return self.logs[self.ids.index(token)] if token in self.ids else math.nan


def _own(entry: dict[str, Any], odds: float | None) -> dict[str, Any]:
    if odds is None or not math.isclose(odds, entry["odds"] or 0.0, rel_tol=ROUNDED):
        odds = entry["odds"]
    return entry | {"odds": odds, "own": True}


@dataclass(frozen=True)
class _Spot:
    """A place in the tree. ``view``: what is shown there of any token."""

    view: dict[str, Any]
    target: _Listed = _Listed()
    drafter: _Listed = _Listed()


class _Places:
    """The places of a round's tree; each is made once."""

    def __init__(self, record: Round):
        self.record = record
        self.above: Sequence[int] = record.draft.parents.tolist()
        self.end = record.verdict.path[-1]
        self._labels = [visible(record.text(token)) for token in record.draft.tokens.tolist()]
        self._made: dict[int, _Spot] = {}

    def after(self, row: int) -> _Spot:
        """The place after a row; −1: the root's own."""
        if row not in self._made:
            self._made[row] = self._place(row)
        return self._made[row]

    def _place(self, row: int) -> _Spot:
        record, draft = self.record, self.record.draft
        above = draft.path(row) if row >= 0 else ()
        depth, observed = len(above), row in record.verdict.path
        probe = record.probe if observed else None
        probs, proposal = record.target_probs if above else None, record.proposal
        target, drafter = _Listed(), _Listed()
        if (listed := record.candidates_after(row) if above else None) is not None:
            drafter = _Listed.of(record, listed.ids, listed.log_q)
        if probs is not None:
            chosen = int(record.verdict.target_tokens[row])
            target = _Listed.of(record, probs.top_ids[row], probs.top_log_p[row], chosen)
        view = {
            "depth": depth,
            "position": record.position + depth,
            "path": [self._labels[each] for each in above],
            "observed": observed,
            "tvd": _at(probe and probe.tvd, depth - 1),
            "entropy_q": _at(probe and probe.entropy_q, depth - 1),
            "conditioned": proposal is not None and not proposal.factorised_lists,
            "entropy_p": None if probs is None else finite(float(probs.entropy[row])),
            "target": target.shown,
            "drafter": drafter.shown,
            "unlisted": _unlisted(record, row) if above and not drafter.shown else "",
        }
        return _Spot(view, target, drafter)


def _at(values: Array | None, at: int) -> float | None:
    return None if values is None or at >= len(values) else finite(float(values[at]))


def _unlisted(record: Round, parent: int) -> str:
    """Why no tokens of the drafter are shown after a row."""
    if record.proposal is None:
        drafted = "The trace keeps no lists of the drafter."
        return drafted if record.draft.nodes else "Nothing was drafted in this round."
    if record.proposal.after[parent] == NOT_ASKED:
        return "The builder did not ask the drafter here."
    return "The drafter lists nothing here."


# ── a node there ─────────────────────────────────────────────────────────────────────────────────


def _row_view(places: _Places, row: int, explainer: Explainer) -> dict[str, Any]:
    """A row, without what holds for its place."""
    record, node, place = places.record, places.record.node(row), places.after(places.above[row])
    q, p = finite(node.q), finite(node.p)
    return _token_view(record, place, node.token, q, p) | {
        "row": row,
        "status": node.status,
        "why": _why(node),
        "rank_q": node.rank or None,
        "rank_p": node.rank_p or None,
        "path_q": finite(node.path_q) if row else None,
        "path_p": finite(node.path_p) if row else None,
        "score": finite(node.score),
        "explanation": explainer.view(record, row),
        "fewer": "" if row else explainer.fewer(record),
        "notes": [*explainer.other_notes(record, row), *_contradicted(record, node, place)],
        "next": None if node.choice is None else visible(record.text(node.choice)),
    }


def _token_view(
    record: Round, place: _Spot, token: int, q: float | None, p: float | None
) -> dict[str, Any]:
    """A token with its probabilities, and where it stands in the lists of its place."""
    return {
        "label": visible(record.text(token)),
        "token": token,
        "q": q,
        "p": p,
        "target": place.target.marked(token, p),
        "drafter": place.drafter.marked(token, q),
    }


def _contradicted(record: Round, node: Node, place: _Spot) -> list[list[Any]]:
    """A note where the list at its place has another q for the node's token."""
    listed = place.drafter.log(node.token)
    if not abs(listed - float(record.draft.log_q[node.row])) > NEAR:  # nor where it is not known
        return []
    return [["q in its list", probability(listed), "probability", "the two contradict each other"]]


_WHY = {
    Cause.OUTRANKED: "outranked: a sibling was the target's token",
    Cause.REFUSED: "rejected: refused by speculative sampling",
    Cause.NOT_TAKEN: "rejected: drafted, and not taken",
    Cause.UNREACHED: "unreached: its parent was not accepted, so it is unobserved",
    Cause.SIDE: "side: scored for the drafter, never accepted",
}


def _why(node: Node) -> str:
    """Why a drafted row lived or died, as the inspector says it."""
    if node.row == 0:
        return "root: the bonus token of the round before"
    if node.status == REJECTED and node.cause not in _WHY:
        return f"rejected: the target's token here was {node.cause.words}"
    return _WHY.get(node.cause, node.cause.words)


def _ghost_view(places: _Places) -> dict[str, Any]:
    """The target's token where the walk stopped, without what holds for its place."""
    record, bonus = places.record, places.record.verdict.bonus
    above, place = record.node(places.end), places.after(places.end)
    q, p = probability(place.drafter.log(bonus)), probability(place.target.log(bonus))
    view = _token_view(record, place, bonus, q, p)
    return view | {
        "row": GHOST,
        "status": "bonus",
        "why": f"the target's token, {record.stop_reason.words}",
        "rank_q": record.wanted_rank or None,
        "rank_p": next((at + 1 for at in view["target"]), None),
        "path_q": _times(finite(above.path_q), q),
        "path_p": _times(finite(above.path_p), p),
        "score": None,
        "explanation": None,
        "notes": [],
        "next": None,
    }


def _times(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other
