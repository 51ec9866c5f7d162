"""Chapter 7: why DDTree's tree is nested and TreeFlash's is not."""

from __future__ import annotations

import math

from app.learn.material import Material
from app.learn.steps import first, tree_of, unnested
from app.learn.words import (
    CHOSEN,
    HOT,
    NEW,
    SEEN,
    Json,
    Span,
    bars,
    chapter,
    columns,
    node,
    nodes,
    para,
    path,
    plain,
    quiz,
    share,
    step,
    tree,
)
from app.view.text import visible
from core.methods.treeflash import MARGINAL
from core.rounds.round import Round

LISTED = 4  # tokens of a child order


def nested(material: Material) -> Json:
    """Why DDTree's tree is nested and TreeFlash's is not."""
    one, two = material.first("ddtree"), material.first("treeflash")
    family, other = _family(one), _family(two)
    better, worse = unnested(two.draft)[0]
    gained = two.verdict.path[-1]
    behind = int(two.draft.parents[gained])
    marginal = math.exp(float(tree_of(two).notes[MARGINAL][gained]))
    given_q = math.exp(float(two.draft.log_q[gained]))
    both = [tree("ddtree?", title="DDTree"), tree("treeflash?", title="TreeFlash")]
    kids = {r: one.draft.children[r] for r in family if one.draft.children[r]}
    small = min(kids, key=lambda r: (len(kids[r]), -int(one.draft.ranks[r])))
    steps = [
        step(
            para(
                "The same place in the same text, two drafts of {budget} nodes: "
                "DDTree's, which you know, and *TreeFlash*'s.",
                budget=material.budget,
            ),
            para(
                "Look at the third column, depth 2, and at what stands behind it. "
                "Do you see the difference?"
            ),
            trees=both,
            alt="Two trees with the same root, drafted by DDTree and by TreeFlash.",
        ),
        step(
            para(
                "DDTree first. Behind each of these siblings it would try the same "
                "tokens in the same order: there is just *one list per depth*."
            ),
            para(
                "Some get more of that list, some less, some nothing. The order is always the same."
            ),
            trees=[tree("ddtree?", marks=dict.fromkeys(family, HOT), title="DDTree")],
            side=_orders(one, family),
            alt="DDTree's child order behind " + _names(one, family) + " is the same list.",
        ),
        step(
            para(
                "So whatever stands behind {small} also stands behind its better "
                "sibling {family}. Such a tree is *nested*: each sibling's subtree "
                "fits into that of every better one.",
                small=node(one, small),
                family=node(one, family[0]),
            ),
            para(
                "Why must that be? All products behind a node share its own path "
                "probability. The better sibling's is larger, and the other factors"
                " are the same: what is good enough behind the worse is good enough"
                " behind the better."
            ),
            trees=[
                tree(
                    "ddtree?",
                    title="DDTree",
                    marks={
                        family[0]: HOT,
                        small: NEW,
                        **dict.fromkeys(one.draft.children[family[0]], HOT),
                        **dict.fromkeys(one.draft.children[small], NEW),
                    },
                )
            ],
            side=_orders(one, [family[0], small]),
            alt=f"Everything behind {plain([node(one, small)])} also stands behind "
            f"{plain([node(one, family[0])])}.",
        ),
        step(
            para(
                "Whether “{small}” makes sense was never asked. The drafter cannot "
                "ask: its lists are marginals.",
                small=path(one, one.draft, one.draft.children[small][0]),
            ),
            para(
                "TreeFlash adds a small network behind the drafter. It reads the "
                "*token before* and corrects the list: *q′*(next | token before). "
                "One list for each possible parent."
            ),
            trees=[tree("treeflash?", marks=dict.fromkeys(other, HOT), title="TreeFlash")],
            side=_orders(two, other),
            alt="TreeFlash's child orders behind " + _names(two, other) + " all differ.",
        ),
        step(
            para(
                "Look at {gained} behind {behind}. Plain q gives it {marginal}, an "
                "average over all parents. Given {behind} it gets {given_q}: "
                "{given_q2} times as much.",
                gained=node(two, gained),
                behind=node(two, behind),
                marginal=share(marginal),
                given_q=share(given_q),
                given_q2=f"{given_q / marginal:.0f}",
            ),
            para("The mark ▲ in a box says: at least twice its plain q."),
            trees=[tree("treeflash?", select=gained, title="TreeFlash")],
            side=_versus(two, gained),
            alt=f"q {share(marginal)} and q prime {share(given_q)} of "
            f"{plain([node(two, gained)])}.",
        ),
        step(
            para(
                "Now the tree is *not nested*. Behind {worse} stands {worse2}, and "
                "behind its better sibling {better} it does not.",
                worse=node(two, worse),
                worse2=nodes(two, two.draft.children[worse]),
                better=node(two, better),
            ),
            para("The search is the same best-first search. Only the lists have changed."),
            trees=[
                tree(
                    "treeflash?",
                    title="TreeFlash",
                    marks={
                        better: HOT,
                        worse: NEW,
                        **dict.fromkeys(two.draft.children[better], HOT),
                        **dict.fromkeys(two.draft.children[worse], NEW),
                    },
                )
            ],
            side=_orders(two, [better, worse]),
            alt=f"{plain([node(two, worse)])} has a child that "
            f"{plain([node(two, better)])} has not.",
        ),
        step(
            para(
                "And the target? DDTree's draft was accepted {accepted} deep, "
                "TreeFlash's {accepted2} deep: {accepted_words}.",
                accepted=one.accepted,
                accepted2=two.accepted,
                accepted_words=_accepted_words(two),
            ),
            para(
                "Over the whole answer: {rounds} rounds against {rounds2}. One "
                "answer proves nothing; it shows how.",
                rounds=len(material.traces["ddtree"].rounds),
                rounds2=len(material.traces["treeflash"].rounds),
            ),
            trees=[tree("ddtree", title="DDTree"), tree("treeflash", title="TreeFlash")],
            alt=f"DDTree accepted {one.accepted}, TreeFlash {two.accepted}.",
        ),
        step(
            para(
                "The price: a list for every possible parent. TreeFlash keeps the M"
                " = {width} best tokens per depth as parents and computes q′ behind"
                " those. A token outside of them can be a leaf, never a parent.",
                width=_width(material),
            ),
            para(
                "Here they come when the search first asks for them; a GPU would do"
                " all in one batch."
            ),
            trees=[tree("treeflash", title="TreeFlash")],
            alt="The TreeFlash tree with p and q.",
        ),
    ]
    asked = quiz(
        "In a DDTree draft, the worse of two siblings has a child X. What about the better one?",
        (
            "It also has a child X.",
            "Yes: X is as probable behind both, and the better path is the more probable.",
        ),
        (
            "It may or may not have it.",
            "That is TreeFlash: there X's q′ may differ behind the two.",
        ),
        (
            "It has a different child.",
            "No: there is one list per depth, and all siblings' children come from it.",
        ),
        answer=0,
    )
    return chapter(
        "Nested or not",
        "DDTree's tree is nested, TreeFlash's is not",
        "What changes when the drafter sees the token before?",
        steps,
        asked,
    )


def _family(record: Round) -> list[int]:
    """The siblings most of whom have children, best first."""
    draft = record.draft
    top = max(
        draft.children, key=lambda kids: (sum(bool(draft.children[k]) for k in kids), len(kids))
    )
    return sorted(top, key=lambda row: int(draft.ranks[row]))


def _orders(record: Round, rows: list[int]) -> Json:
    """What the drafter offers behind each of these rows; marked what was drafted there."""
    draft = record.draft
    lists = []
    for row in rows[:LISTED]:
        mine = {int(draft.tokens[c]) for c in draft.children[row]}
        items = [
            (visible(record.text(t)), math.exp(q), CHOSEN if t in mine else SEEN)
            for t, q in first(record.candidates_behind(row), LISTED)
        ]
        lists.append(bars("behind " + plain([node(record, row)]), items))
    if lists:
        lists[-1]["note"] = "◆ drafted"
    return columns(*lists)


def _names(record: Round, rows: list[int]) -> str:
    return ", ".join(plain([node(record, row)]) for row in rows)


def _versus(record: Round, row: int) -> Json:
    """q and q′ of the tokens that q′ prefers behind a row's parent."""
    draft, parent = record.draft, int(record.draft.parents[row])
    lists, depth = record.by_depth, int(draft.depths[row]) - 1
    assert lists is not None
    by_depth = zip(lists.ids[depth].tolist(), lists.log_q[depth].tolist(), strict=True)
    here = visible(record.text(int(draft.tokens[parent])))
    own = int(draft.tokens[row])

    def items(pairs: list[tuple[int, float]]) -> list[tuple[str, float | None, str]]:
        return [
            (visible(record.text(t)), math.exp(q), CHOSEN if t == own else SEEN) for t, q in pairs
        ]

    listed, behind = list(by_depth)[:5], first(record.candidates_behind(parent), 5)
    return columns(
        bars(f"plain q, depth {depth + 1}", items(listed)),
        bars(f"q′ behind {here}", items(behind), "◆ the node picked"),
    )


def _accepted_words(record: Round) -> list[Span]:
    return [s for r in record.verdict.path[1:] for s in (" ", node(record, r))][1:]


def _width(material: Material) -> int:
    options = material.traces["treeflash"].header.settings["options"]
    return int(options["candidates"])
