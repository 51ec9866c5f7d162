"""Chapter 9: DART's two scores."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import numpy as np

from app.learn.figures import HOT, NEW, bars, columns, pairs, tree
from app.learn.material import Material
from app.learn.steps import level_weight, tree_of
from app.learn.words import ChapterStep, Json, Wording, chapter, plain, scene, series
from core.methods.dart import CONTEXT, COUNT, TERM_NGRAM, TERM_Q
from core.rounds.draft import Candidates
from core.rounds.round import Round

MISSED = 3  # of the best guesses that are not in the draft, how many are named


def two_scores(m: Material) -> Json:
    record, lists = m.rivals, m.rivals.by_depth
    assert lists is not None, "a shipped trace holds what was proposed"
    draft, words = tree_of(record), Wording.of(record)
    options = m.traces["dart"].header.settings["options"]
    top, nodes = draft.children[0][0], range(1, len(draft))
    rows = [
        [r for r in nodes if draft.depths[r] == depth]
        for depth in range(int(draft.depths.max()) + 1)
    ]
    odds, family = list_share(lists, 0, int(draft.ranks[top]) - 1), draft.children[top]
    bonus, (depths, width) = record.verdict.bonus, lists.ids.shape
    last = record.verdict.path[-1]
    q = dict(pairs(record.candidates_after(last), width))[bonus]
    bare = not draft.children[last]
    place = int(draft.parents[last]) if bare and last else last  # whose children are compared
    beside = sorted(draft.children[place], key=lambda row: -draft.scores[row])
    drafted = {int(draft.tokens[row]) for row in family}
    missed = list(takewhile(lambda token: token not in drafted, lists.ids[0].tolist()))[:MISSED]
    ordered = sorted(nodes, key=lambda row: -draft.scores[row])
    term = float(draft.notes[TERM_NGRAM][top])
    shown = columns(*(bars(f"depth {d + 1}", words, pairs(lists, 6, d)) for d in range(3)))
    scenes = [
        scene("lists", tree("rivals?"), side=shown),
        scene("drafter", tree("rivals?", [0, *rows[1]], marks={top: HOT}, select=top),
              side=_terms(record, rows[1], ngram=False)),
        scene("counts", tree("rivals?", [0, *rows[1]], select=top), side=_terms(record, rows[1])),
        scene("weights", tree("rivals?", [0, *rows[1], *rows[2]]), side=_weights(options)),
        *(_level(record, rows, level) for level in range(1, len(rows))),
        scene("order", tree("rivals?"), side=_terms(record, ordered, whole=True)),
        scene("target", tree("rivals"), side=_terms(record, beside)),
    ]  # fmt: skip
    return chapter(
        "09-two-scores", scenes,
        depths=depths, width=width, beam=options["beam"], budget=m.budget, top=words.node(top),
        odds=_digits(odds), log=math.log(odds), count=int(draft.notes[COUNT][top]),
        both=draft.notes[CONTEXT][top] == 2, term=term,
        seen=_digits(math.exp(term / options["ngram_weight"])),  # the first level weighs 1
        counts=options["ngram_weight"], mark=f"n{int(draft.notes[CONTEXT][top])}",
        formula=["(l + 1)", {"sup": f"−{options['level_power']}"}],
        weights=tuple(f"{level_weight(level, options['level_power']):.2f}" for level in range(4)),
        decay=options["logit_decay"], accepted=record.accepted, wanted=words.token(bonus),
        q=math.exp(q), missed=series([words.token(token) for token in missed]),
        taken=words.nodes(record.verdict.path[1:], " and "), bare=bare, last=words.node(last),
        place=words.node(place), rank=beside.index(last) + 1 if bare and last else 0,
        beside=len(beside),
        lifted=words.nodes([row for row in draft.children[last] if draft.log_q[row] < q]),
    )  # fmt: skip


def _digits(odds: float) -> str:
    """So many digits that whoever takes the logarithm gets it."""
    return f"{100 * odds:.3g}%"


def _level(record: Round, rows: list[list[int]], level: int) -> ChapterStep:
    """One level of the beam, as far as its nodes came into the draft."""
    draft, own = record.draft, rows[level]
    best = max(own, key=lambda r: float(draft.scores[r]))
    shown = [0, *(row for each in rows[1 : level + 1] for row in each)]
    return scene(
        "level", tree("rivals?", shown, marks=dict.fromkeys(own, NEW), select=best),
        side=_terms(record, own, above=level > 1),
        level=level - 1, depth=level, first=level == 1, nodes=len(own),
        best=Wording.of(record).path(best), score=float(draft.scores[best]),
    )  # fmt: skip


def list_share(listed: Candidates, depth: int, rank: int) -> float:
    """q over the list only: what DART's search takes the logarithm of."""
    odds = np.exp(listed.log_q[depth].astype(np.float64))
    return float(odds[rank] / odds.sum())


def _terms(
    record: Round,
    rows: Iterable[int],
    *,
    ngram: bool = True,
    above: bool = False,
    whole: bool = False,
) -> Json:
    """Bars of each row's score: the parent's part, the drafter's term, the n-gram term."""
    draft, words = tree_of(record), Wording.of(record)
    items = []
    for row in rows:
        counted = float(draft.notes[TERM_NGRAM][row])
        items.append({
            "row": row,
            "label": plain([words.path(row) if above or whole else words.node(row)]),
            "above": round(float(draft.scores[int(draft.parents[row])]), 3),
            "q": round(float(draft.notes[TERM_Q][row]), 3),
            "ngram": round(counted, 3) if ngram and not math.isnan(counted) else 0.0,
        })  # fmt: skip
    return {"kind": "terms", "items": items, "ngram": ngram, "above": above or whole}


def _weights(options: Any) -> Json:
    """The weight of each level, and what it makes both terms count."""
    rows = []
    for level in range(5):
        weight = level_weight(level, options["level_power"])
        q, ngram = weight * options["logit_decay"] ** level, weight * options["ngram_weight"]
        row = {"weight": round(weight, 3), "q": round(q, 3), "ngram": round(ngram, 3)}
        rows.append({"label": f"level {level}", **row})
    return {"kind": "weights", "rows": rows}
