"""Chapter 8: DART's two scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from app.learn.material import Material
from app.learn.steps import first, level_weight, tree_of
from app.learn.words import (
    HOT,
    NEW,
    SEEN,
    Json,
    Span,
    bars,
    chance,
    chapter,
    columns,
    node,
    nodes,
    num,
    para,
    path,
    plain,
    quiz,
    share,
    step,
    token,
    tree,
)
from app.view.text import visible
from core.methods.dart import CONTEXT, COUNT, TERM_NGRAM, TERM_Q
from core.rounds.draft import Candidates
from core.rounds.round import Round


def two_scores(material: Material) -> Json:
    """DART: the drafter's term and the n-gram model's, level by level."""
    record = material.first("dart")
    draft = record.draft
    options = material.traces["dart"].header.settings["options"]
    listed = material.lists("dart")
    depths, width = listed.ids.shape
    top = draft.children[0][0]
    levels = range(1, int(draft.depths.max()) + 1)
    rows = {
        level: [r for r in range(1, len(draft)) if draft.depths[r] == level] for level in levels
    }
    weights = [level_weight(level, options["level_power"]) for level in range(4)]
    said = material.first("dart").verdict.bonus
    wanted, there = token(record, said), record.candidates_behind(record.verdict.path[-1])
    q_wanted = dict(first(there, width)).get(said)
    family = list(draft.children[top])
    odds = _over_shown(listed, 0, int(draft.ranks[top]) - 1)
    decay = options["logit_decay"]
    steps = [
        step(
            para(
                "*DART* has a drafter of a single layer. Like DFlash it fills all "
                "depths in one pass, so its lists are marginals too: {value} lists,"
                " of which it looks at the {width} best tokens each.",
                value=depths,
                width=width,
            ),
            para(
                "It mends them in another way: with an *n-gram model*, a table that"
                " counts which tokens followed which in a lot of text."
            ),
            trees=[tree("dart?")],
            side=_dart_lists(record, listed),
            alt="DART's lists for the first depths, and the tree it drafted.",
        ),
        step(
            para(
                "A node's score is a sum of *two terms*. First the drafter's: log "
                "q, where q is taken over the {width} tokens of the list only. For "
                "{top}: ln {odds} = {odds2}.",
                width=width,
                top=node(record, top),
                odds=share(odds),
                odds2=_signed(math.log(odds)),
            ),
            para("All terms are logarithms, so they are negative: closer to 0 is better."),
            trees=[tree("dart?", [0, *rows[1]], marks={top: HOT}, select=top)],
            side=_terms(record, rows[1], ngram=False),
            alt="Bars of the drafter's term for the nodes of depth 1.",
        ),
        step(
            para(
                "Second the n-gram model's: how often did this token follow the two"
                " tokens before it? If that was never seen, the one token before it"
                " must do. The log of it counts {ngram_weight} times.",
                ngram_weight=options["ngram_weight"],
            ),
            para("{top}", top=_counted(record, top)),
            para(
                "The mark in a box, such as {n1}, says how many tokens before it the count knew.",
                n1=num("n1"),
            ),
            trees=[tree("dart?", [0, *rows[1]], select=top)],
            side=_terms(record, rows[1]),
            alt="Bars of both terms for the nodes of depth 1.",
        ),
        step(
            para(
                "Deeper levels count less: level l (from 0) weighs {num}, that is "
                "{w} …, and the drafter's term fades by another {decay} per level.",
                num={"num": f"(l + 1)^−{options['level_power']}"},
                w=", ".join(f"{w:.2f}" for w in weights),
                decay=decay,
            ),
            para("Far ahead, the drafter knows little; the table of counts then has more to say."),
            trees=[tree("dart?", sorted([0, *rows[1], *rows[2]]))],
            side=_weights(options),
            alt="Weights by level: " + ", ".join(f"{w:.2f}" for w in weights),
        ),
    ]
    shown: list[int] = [0]
    for level in levels:
        shown = sorted([*shown, *rows[level]])
        steps.append(_level(record, level, shown, rows[level], options))
    steps += [
        step(
            para(
                "From all levels together the {budget} best scores make the draft. "
                "Here they stand in order.",
                budget=material.budget,
            ),
            para(
                "The score is *no probability*: weighted logarithms of two "
                "different things. It orders nodes, that is all. So the tree still "
                "shows q, and the score only when you ask."
            ),
            trees=[tree("dart?")],
            side=_terms(record, list(range(1, len(draft))), ordered=True),
            alt="All nodes of the draft in the order of their scores.",
        ),
        step(
            para(
                "And the target? It accepts {accepted} and then wants {wanted}{family}",
                accepted=record.accepted,
                wanted=wanted,
                family=_lifted(record, family, q_wanted),
            ),
            para(
                "A table of counts helps where language is regular, and misleads "
                "where it is not. How much it helps one has to measure, on one's "
                "own text."
            ),
            trees=[tree("dart")],
            side=_terms(record, family),
            alt=f"After the walk: {record.accepted} accepted, the target wanted {plain([wanted])}.",
        ),
    ]
    asked = quiz(
        "Two nodes of one depth have the same q. When do their scores differ?",
        ("Never: the score is made of q.", "It is made of q and of counts."),
        (
            "When one was counted more often behind its context, or their parents' scores differ.",
            "Yes: score = the parent's + the q term + the n-gram term.",
        ),
        (
            "When one of them is the target's token.",
            "The target has not spoken yet when the tree is built.",
        ),
        answer=1,
    )
    return chapter(
        "Two scores",
        "DART weighs q against counts",
        "How can a table of counts choose the tree?",
        steps,
        asked,
    )


def _level(record: Round, level: int, shown: list[int], own: list[int], options: Any) -> Json:
    """One level of the beam, as far as its nodes came into the draft."""
    draft = record.draft
    best = max(own, key=lambda r: float(draft.scores[r]))
    text = [
        para(
            "Level {level}, depth {level2}. Each sequence kept so far is "
            "continued with each of the {width} tokens; the *beam* keeps the "
            "best {beam}{level3}",
            level=level - 1,
            level2=level,
            width=options["width"],
            beam=options["beam"],
            level3=[" of them for the next level." if level == 1 else " of them again."],
        ),
        para(
            "The best here: {best}, score {best2}{level}",
            best=path(record, draft, best),
            best2=_signed(float(draft.scores[best])),
            level=["." if level == 1 else ": its parent's score and its own two terms."],
        ),
    ]
    if level == 1:
        text.append(
            para(
                "Drawn are those that made it into the draft in the end; the others"
                " are not in the record."
            )
        )
    return step(
        *text,
        trees=[tree("dart?", shown, marks=dict.fromkeys(own, NEW), select=best)],
        side=_terms(record, own, above=level > 1),
        alt=f"Depth {level}: {len(own)} nodes of the draft with their terms.",
    )


def _lifted(record: Round, family: list[int], wanted: float | None) -> list[Span]:
    """What the counts put before the token that the target wanted."""
    if wanted is None:
        return [", which was not in the drafter's list."]
    less = tuple(row for row in family if float(record.draft.log_q[row]) < wanted)
    said: list[Span] = [", which the drafter's list had with ", num(chance(wanted)), "."]
    if less:
        said += [
            " The counts had put ",
            *nodes(record, less),
            " before it, though the drafter thought less of them.",
        ]
    return said


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+' if value > 0 else ''}{abs(value):.2f}"


def _over_shown(listed: Candidates, depth: int, rank: int) -> float:
    """q over the list only: what DART's search takes the logarithm of."""
    odds = np.exp(listed.log_q[depth].astype(np.float64))
    return float(odds[rank] / odds.sum())


def _terms(
    record: Round,
    rows: list[int],
    *,
    ngram: bool = True,
    above: bool = False,
    ordered: bool = False,
) -> Json:
    """Bars of each row's score: the parent's part, the drafter's term, the n-gram term."""
    draft = tree_of(record)
    if ordered:
        rows = sorted(rows, key=lambda r: -float(draft.scores[r]))
    items = []
    for row in rows:
        q, gram = (float(draft.notes[name][row]) for name in (TERM_Q, TERM_NGRAM))
        parent = float(draft.scores[int(draft.parents[row])])
        label = plain([path(record, draft, row) if above or ordered else node(record, row)])
        items.append(
            {
                "row": row,
                "label": label,
                "above": round(parent, 3),
                "q": round(q, 3),
                "ngram": round(0.0 if math.isnan(gram) or not ngram else gram, 3),
            }
        )
    return {"kind": "terms", "items": items, "ngram": ngram, "above": above or ordered}


def _dart_lists(record: Round, listed: Candidates) -> Json:
    lists = []
    for depth in range(3):
        pairs = zip(listed.ids[depth, :6], listed.log_q[depth, :6], strict=True)
        lists.append(
            bars(
                f"depth {depth + 1}",
                [(visible(record.text(int(t))), math.exp(float(q)), SEEN) for t, q in pairs],
            )
        )
    return columns(*lists)


def _counted(record: Round, row: int) -> list[Span]:
    draft = tree_of(record)
    context, count = (float(draft.notes[name][row]) for name in (CONTEXT, COUNT))
    gram = float(draft.notes[TERM_NGRAM][row])
    if math.isnan(context) or count <= 0:
        return ["The table has never seen ", node(record, row), " here: the term is at its floor."]
    behind = "token" if context == 1 else "two tokens"
    return [
        "The table has seen ",
        node(record, row),
        " ",
        num(int(count)),
        " time" + "s" * (count != 1),
        f" behind the {behind} before it. Its term: ",
        num(_signed(gram)),
        ".",
    ]


def _weights(options: Any) -> Json:
    """Both terms' weights by level."""
    rows = []
    for level in range(5):
        whole = level_weight(level, options["level_power"])
        rows.append(
            {
                "label": f"level {level}",
                "q": round(whole * options["logit_decay"] ** level, 3),
                "ngram": round(whole * options["ngram_weight"], 3),
            }
        )
    return {"kind": "weights", "rows": rows}
