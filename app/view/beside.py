"""One place of the text as several runs saw it: the target's p beside every drafter's q.

All stand after the same text, so their numbers answer one question. What a record does not hold is
None: an older trace keeps no beliefs, a block drafter lists a number of tokens per depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.view.rounds import drafter_probability, drawable, target_probability
from app.view.values import LETTERS, finite
from core.rounds.round import Round
from core.visible import visible

OF_TARGET, OF_DRAFTER = 5, 3  # the best tokens that are listed
MOST = 12  # tokens listed

Place = tuple[Round, int]  # a round, and the row after which the place is


def beside_view(places: Sequence[Place | None], token: int) -> dict[str, Any]:
    """The tokens that matter at a place: ``token``, the target's choice, the best of p and each q.

    places  each run's round and row, None where its prefix differs
    -> tokens  [{token, label, own, chosen, p, q, rank, drafted}]: the last four per run;
               ``drafted`` is a node's status letter, "" where the run's tree has no such node
       listed  whether a run's record says what its drafter proposed here
    """
    found = [None if place is None else _Here(*place) for place in places]
    known = [here for here in found if here is not None]
    tokens = dict.fromkeys([token])
    for here in known:
        tokens |= dict.fromkeys(
            [*here.chosen, *here.target[:OF_TARGET], *here.drafter[:OF_DRAFTER]]
        )
    chosen = {choice for here in known for choice in here.chosen}
    lines = [
        {
            "token": each,
            "label": visible(_text(known, each)),
            "own": each == token,
            "chosen": each in chosen,
            "p": [here and here.p(each) for here in found],
            "q": [here and here.q(each) for here in found],
            "rank": [here and here.rank(each) for here in found],
            "drafted": [here.drafted(each) if here else "" for here in found],
        }
        for each in tokens
    ]
    lines.sort(key=_weight, reverse=True)
    kept = [line for at, line in enumerate(lines) if at < MOST or line["own"] or line["chosen"]]
    return {"tokens": kept, "listed": [here is not None and here.listed for here in found]}


def _text(known: Sequence[_Here], token: int) -> str:
    """A record names the tokens of its own round: take it from one that has it."""
    records = [here.record for here in known]
    named = next((each for each in records if token in each.texts), records[0] if records else None)
    return named.text(token) if named else str(token)


def _weight(line: dict[str, Any]) -> tuple[float, float]:
    return max((p or 0.0 for p in line["p"]), default=0.0), max(
        (q or 0.0 for q in line["q"]), default=0.0
    )


class _Here:
    """A place of one run."""

    def __init__(self, record: Round, row: int):
        self.record, self.row = drawable(record), row
        draft, probs = self.record.draft, self.record.target_probs
        listed = self.record.candidates_after(row)
        self.listed = listed is not None
        self.drafter = [] if listed is None else listed.ids.tolist()
        self.target = [] if probs is None else probs.top_ids[row].tolist()
        self._children = {
            int(draft.tokens[child]): child
            for child in (draft.parents == row).nonzero()[0].tolist()
        }
        self._nodes, choice = self.record.nodes(), self.record.node(row).choice
        self.chosen = [] if choice is None else [choice]

    def p(self, token: int) -> float | None:
        child = self._children.get(token)
        own = None if child is None else finite(float(self._nodes.p[child]))
        return target_probability(self.record, self.row, token) if own is None else own

    def q(self, token: int) -> float | None:
        if token in self.drafter:
            return drafter_probability(self.record, self.row, token)
        child = self._children.get(token)
        return None if child is None else finite(float(self._nodes.q[child]))

    def rank(self, token: int) -> int | None:
        return self.drafter.index(token) + 1 if token in self.drafter else None

    def drafted(self, token: int) -> str:
        child = self._children.get(token)
        return "" if child is None else LETTERS[self.record.status[child]]
