"""Chapters 7 to 9: nested trees and q′, DART's two scores, Spiffy's graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from app.drafted import CONTEXT, COUNT, MARGINAL, TERM_NGRAM, TERM_Q
from app.learn.course import Material, before
from app.learn.steps import (
    Formula,
    accepted,
    first,
    guesses,
    level_weight,
    parents_of,
    unjudged,
    unnested,
)
from app.learn.words import (
    CHOSEN,
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
    num,
    para,
    path,
    quiz,
    share,
    step,
    token,
    told,
    tree,
)
from app.visible import visible
from core.types import Candidates, Draft, Round

LISTED = 4  # tokens of a child order


def trees(given: Material) -> Json:
    """The trees of these chapters that are no method's own round."""
    return {"graph": _graph_view()}


# ── 7 ────────────────────────────────────────────────────────────────────────────────────────────


def nested(given: Material) -> Json:
    """Why DDTree's tree is nested and TreeFlash's is not."""
    one, two = given.first("ddtree"), given.first("treeflash")
    family, other = _family(one), _family(two)
    better, worse = unnested(two.draft)[0]
    gained = two.verdict.path[-1]
    behind = int(two.draft.parents[gained])
    marginal = math.exp(float(two.draft.notes[MARGINAL][gained]))
    given_q = math.exp(float(two.draft.log_q[gained]))
    both = [tree("ddtree?", title="DDTree"), tree("treeflash?", title="TreeFlash")]
    kids = {r: one.draft.children[r] for r in family if one.draft.children[r]}
    small = min(kids, key=lambda r: (len(kids[r]), -int(one.draft.ranks[r])))
    steps = [
        step(
            para(
                "The same place in the same text, two drafts of {budget} nodes: "
                "DDTree's, which you know, and *TreeFlash*'s.",
                budget=given.budget,
            ),
            para(
                "Look at the third column, depth 2, and at what stands behind it. "
                "Do you see the difference?",
            ),
            trees=both,
            alt="Two trees with the same root, drafted by DDTree and by TreeFlash.",
        ),
        step(
            para(
                "DDTree first. Behind each of these siblings it would try the same "
                "tokens in the same order: there is just *one list per depth*.",
            ),
            para(
                "Some get more of that list, some less, some nothing. The order is "
                "always the same.",
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
                " behind the better.",
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
            alt=f"Everything behind {told([node(one, small)])} also stands behind "
            f"{told([node(one, family[0])])}.",
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
                "One list for each possible parent.",
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
            para(
                "The mark ▲ in a box says: at least twice its plain q.",
            ),
            trees=[tree("treeflash?", select=gained, title="TreeFlash")],
            side=_versus(two, gained),
            alt=f"q {share(marginal)} and q prime {share(given_q)} of {told([node(two, gained)])}.",
        ),
        step(
            para(
                "Now the tree is *not nested*. Behind {worse} stands {worse2}, and "
                "behind its better sibling {better} it does not.",
                worse=node(two, worse),
                worse2=_tokens(two, two.draft.children[worse]),
                better=node(two, better),
            ),
            para(
                "The search is the same best-first search. Only the lists have changed.",
            ),
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
            alt=f"{told([node(two, worse)])} has a child that {told([node(two, better)])} has not.",
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
                rounds=len(given.traces["ddtree"].rounds),
                rounds2=len(given.traces["treeflash"].rounds),
            ),
            trees=[tree("ddtree", title="DDTree"), tree("treeflash", title="TreeFlash")],
            alt=f"DDTree accepted {one.accepted}, TreeFlash {two.accepted}.",
        ),
        step(
            para(
                "The price: a list for every possible parent. TreeFlash keeps the M"
                " = {width} best tokens per depth as parents and computes q′ behind"
                " those. A token outside of them can be a leaf, never a parent.",
                width=_width(given),
            ),
            para(
                "Here they come when the search first asks for them; a GPU would do"
                " all in one batch.",
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
            for t, q in first(record.offered(row), LISTED)
        ]
        lists.append(bars("behind " + told([node(record, row)]), items))
    if lists:
        lists[-1]["note"] = "◆ drafted"
    return columns(*lists)


def _names(record: Round, rows: list[int]) -> str:
    return ", ".join(told([node(record, row)]) for row in rows)


def _versus(record: Round, row: int) -> Json:
    """q and q′ of the tokens that q′ prefers behind a row's parent."""
    draft, parent = record.draft, int(record.draft.parents[row])
    candidates = record.candidates
    assert candidates is not None
    depth = int(draft.depths[row]) - 1
    plain = dict(zip(candidates.ids[depth].tolist(), candidates.log_q[depth].tolist(), strict=True))
    here = visible(record.text(int(draft.tokens[parent])))
    own = int(draft.tokens[row])

    def items(pairs: list[tuple[int, float]]) -> list[tuple[str, float | None, str]]:
        return [
            (visible(record.text(t)), math.exp(q), CHOSEN if t == own else SEEN) for t, q in pairs
        ]

    listed = list(plain.items())[:5]
    return columns(
        bars(f"plain q, depth {depth + 1}", items(listed)),
        bars(f"q′ behind {here}", items(first(record.offered(parent), 5)), "◆ the node picked"),
    )


def _tokens(record: Round, rows: tuple[int, ...]) -> list[Span]:
    return [s for r in rows for s in (", ", node(record, r))][1:]


def _accepted_words(record: Round) -> list[Span]:
    return [s for r in record.verdict.path[1:] for s in (" ", node(record, r))][1:]


def _width(given: Material) -> int:
    options = given.traces["treeflash"].header.settings["options"]
    return int(options["candidates"])


# ── 8 ────────────────────────────────────────────────────────────────────────────────────────────


def two_scores(given: Material) -> Json:
    """DART: the drafter's term and the n-gram model's, level by level."""
    record = given.first("dart")
    draft = record.draft
    options = given.traces["dart"].header.settings["options"]
    offered = record.candidates
    assert offered is not None
    depths, width = offered.ids.shape
    top = draft.children[0][0]
    levels = range(1, int(draft.depths.max()) + 1)
    rows = {
        level: [r for r in range(1, len(draft)) if draft.depths[r] == level] for level in levels
    }
    weights = [level_weight(level, options["level_power"]) for level in range(4)]
    said = given.first("dart").verdict.bonus
    wanted, there = token(record, said), record.offered(record.verdict.path[-1])
    q_wanted = dict(first(there, width)).get(said)
    family = list(draft.children[top])
    odds = _over_shown(offered, 0, int(draft.ranks[top]) - 1)
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
                " counts which tokens followed which in a lot of text.",
            ),
            trees=[tree("dart?")],
            side=_dart_lists(record),
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
            para(
                "All terms are logarithms, so they are negative: closer to 0 is better.",
            ),
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
            para(
                "{top}",
                top=_counted(record, top),
            ),
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
            para(
                "Far ahead, the drafter knows little; the table of counts then has more to say.",
            ),
            trees=[tree("dart?", [0, *rows[1], *rows[2]])],
            side=_weights(options),
            alt="Weights by level: " + ", ".join(f"{w:.2f}" for w in weights),
        ),
    ]
    shown: list[int] = [0]
    for level in levels:
        shown = [*shown, *rows[level]]
        steps.append(_level(record, level, shown, rows[level], options))
    steps += [
        step(
            para(
                "From all levels together the {budget} best scores make the draft. "
                "Here they stand in order.",
                budget=given.budget,
            ),
            para(
                "The score is *no probability*: weighted logarithms of two "
                "different things. It orders nodes, that is all. So the tree still "
                "shows q, and the score only when you ask.",
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
                "own text.",
            ),
            trees=[tree("dart")],
            side=_terms(record, family),
            alt=f"After the walk: {record.accepted} accepted, the target wanted {told([wanted])}.",
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
                " are not in the record.",
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
            *_tokens(record, less),
            " before it, though the drafter thought less of them.",
        ]
    return said


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+' if value > 0 else ''}{abs(value):.2f}"


def _over_shown(offered: Candidates, depth: int, rank: int) -> float:
    """q over the list only: what DART's search takes the logarithm of."""
    odds = np.exp(offered.log_q[depth].astype(np.float64))
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
    draft = record.draft
    if ordered:
        rows = sorted(rows, key=lambda r: -float(draft.scores[r]))
    items = []
    for row in rows:
        q, gram = (float(draft.notes[name][row]) for name in (TERM_Q, TERM_NGRAM))
        parent = float(draft.scores[int(draft.parents[row])])
        label = told([path(record, draft, row) if above or ordered else node(record, row)])
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


def _dart_lists(record: Round) -> Json:
    offered = record.candidates
    assert offered is not None
    lists = []
    for depth in range(3):
        pairs = zip(offered.ids[depth, :6], offered.log_q[depth, :6], strict=True)
        lists.append(
            bars(
                f"depth {depth + 1}",
                [(visible(record.text(int(t))), math.exp(float(q)), SEEN) for t, q in pairs],
            )
        )
    return columns(*lists)


def _counted(record: Round, row: int) -> list[Span]:
    draft = record.draft
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


# ── 9 ────────────────────────────────────────────────────────────────────────────────────────────

# A worked example by hand, small enough to follow: tokens with odds at four masked positions, as
# the model's last call left them, and the order in which the model then unmasks.
TEXT = "The sea is"
BLOCK = (
    (("deep", 0.30), ("vast", 0.25)),
    (("and", 0.55), (",", 0.30)),
    (("blue", 0.40), ("wide", 0.35)),
    ((".", 0.90), ("!", 0.05)),
)
GRAPH: tuple[Formula, ...] = (
    frozenset({(1, 1)}),
    frozenset({(2, 1)}),
    frozenset({(1, 1), (2, 1)}),
    frozenset({(1, 1), (3, 1)}),
    frozenset({(1, 1), (2, 1), (3, 1)}),
)
USUAL = ((1, 1), (2, 1), (3, 1), (4, 1))
OTHER = ((2, 1), (1, 1), (3, 1), (4, 1))
LATE = ((1, 1), (4, 1))


def spiffys_graph(given: Material) -> Json:
    """Drafts as sets of unmasked tokens, a graph with several parents."""
    found = guesses(BLOCK)
    sure = found[1, 1]
    whole = [number + 1 for number in range(len(GRAPH))]
    GRAPH.index(frozenset({(1, 1), (2, 1)})) + 1
    steps = [
        step(
            para(
                "Not all models write from left to right. A *masked diffusion "
                "model* begins with a block of blanks, masks, and fills them in any"
                " order: in each call it unmasks the token it is surest of.",
            ),
            para(
                "One call, one token: slow again. This last chapter uses a *small "
                "example made by hand*, not a recorded run.",
            ),
            trees=[tree("graph", [0])],
            side=_block({}),
            alt=f"The text {TEXT} and four masked positions.",
        ),
        step(
            para(
                "The model's last call has said how probable each token is at each "
                "mask. *Spiffy* needs no drafter: it *drafts from that*.",
            ),
            para(
                "Sort the masks by how sure their best token is: *i* counts them. "
                "At each mask sort the tokens: *j* counts those. So c₁₁ is the best"
                " token of the surest mask: {sure} with {sure2}.",
                sure={"token": sure.token},
                sure2=share(sure.odds),
            ),
            trees=[tree("graph", [0])],
            side=_block({}, ranks=True),
            alt="Ranks: "
            + ", ".join(f"c{g.i}{g.j} is {g.token} {share(g.odds)}" for g in found.values()),
        ),
        step(
            para(
                "A draft is the block with some of these filled in. Level 1 fills "
                "one: {formula}, or {formula2}.",
                formula=_formula(found, GRAPH[0]),
                formula2=_formula(found, GRAPH[1]),
            ),
            trees=[tree("graph", [0, 1, 2], marks={1: NEW, 2: NEW})],
            side=_block(_filled(GRAPH[0]), ranks=True),
            alt="Two drafts of level 1, each with one token unmasked.",
        ),
        step(
            para(
                "Level 2 fills two. Here is something no tree can do: the draft "
                "with both {formula} can be reached from either side. It has *two "
                "parents*.",
                formula=_formula(found, GRAPH[2]),
            ),
            para(
                "In a text from left to right, order is everything. In a block, "
                "what counts is the *set* of tokens filled in so far.",
            ),
            trees=[tree("graph", [0, 1, 2, 3, 4], marks={3: NEW, 4: NEW}, select=3)],
            side=_block(_filled(GRAPH[2]), ranks=True),
            alt="The draft {c11, c21} has two parents: {c11} and {c21}.",
        ),
        step(
            para(
                "The whole *draft graph*: {len} drafts on three levels. A parent "
                "lacks exactly one of its child's tokens.",
                len=len(GRAPH),
            ),
            para(
                "One call of the model scores the block as it is and all drafts: "
                "each draft sees the text and itself, not the other drafts.",
            ),
            trees=[tree("graph")],
            side=_block(_filled(GRAPH[4]), ranks=True),
            alt=_graph_words(),
        ),
        *_denoised(
            found, USUAL, "The call is made. From the block as it is, the model now unmasks "
        ),
        step(
            para(
                "Now suppose the model, having read the block once more, is surest "
                "of {formula} first. Another order, another way through the graph:",
                formula=_formula(found, frozenset({OTHER[0]})),
            ),
            para(
                "by {formula} it comes to the *same* draft with both tokens, and "
                "goes on as before. {accepted} drafts accepted, through another "
                "parent.",
                formula=_formula(found, frozenset({OTHER[0]})),
                accepted=len(accepted(GRAPH, OTHER)),
            ),
            trees=[_walked(OTHER, 3)],
            side=_block(_filled(frozenset(OTHER[:3]))),
            alt=f"Path {[n + 1 for n in accepted(GRAPH, OTHER)]} through the other parent.",
        ),
        step(
            para(
                "And if it unmasks something that is in no draft? Then the walk "
                "ends there. After {formula} the model takes {formula2}: {accepted}"
                " accepted, and that last step is kept as well, for it is the "
                "model's own.",
                formula=_formula(found, frozenset({LATE[0]})),
                formula2=_formula(found, frozenset({LATE[1]})),
                accepted=len(accepted(GRAPH, LATE)),
            ),
            para(
                "So nothing is lost: the block fills exactly as it would one call "
                "at a time, provided a draft's numbers equal those of the plain "
                "call. With masks that let the context see the block they do not "
                "quite; Draftscope says which mode is exact.",
            ),
            trees=[_walked(LATE, 1)],
            side=_block(_filled(frozenset(LATE))),
            alt="Only the first draft is accepted.",
        ),
        step(
            para(
                "Which sets to draft? Spiffy *calibrates*: it watches plain runs, "
                "counts which sets (i, j) came true one, two, three steps ahead, "
                "and keeps the graph of D drafts that collects the most.",
            ),
            para(
                "The graph is then fixed. Only the tokens behind the ranks change "
                "from call to call.",
            ),
            trees=[tree("graph", marks=dict.fromkeys(whole, HOT))],
            alt="The graph again: its shape stays, its tokens change.",
        ),
    ]
    asked = quiz(
        "Draft {c₁₁, c₂₁} was reached through {c₂₁}. Must {c₁₁} have been accepted too?",
        ("Yes, a node needs all its parents.", "No: a parent is a way in. One is enough."),
        (
            "No, any one parent is enough.",
            "Yes: all that counts is that the block now holds exactly these tokens.",
        ),
        ("Neither is needed.", "Some step must lead there: drafts are passed one level at a time."),
        answer=1,
    )
    return chapter(
        "Spiffy's graph",
        "Spiffy drafts a graph",
        "How does one draft for a model that fills blanks in any order?",
        steps,
        asked,
    )


def _denoised(found: Any, order: tuple, begin: str) -> list[Json]:
    """The verifier's walk through the graph, one step each."""
    path_rows = accepted(GRAPH, order)
    steps = []
    for number in range(len(path_rows)):
        edit = _formula(found, frozenset({order[number]}))
        text = para(
            "{begin}{edit}. A draft holds exactly that: *accepted*, and what "
            "the model would say next is already known.",
            begin=[begin if number == 0 else "From there the model unmasks "],
            edit=edit,
        )
        steps.append(
            step(
                text,
                trees=[_walked(order, number + 1)],
                side=_block(_filled(frozenset(order[: number + 1]))),
                alt=f"Accepted: {_set_words(GRAPH[path_rows[number]])}.",
            )
        )
    last = order[len(path_rows)]
    steps.append(
        step(
            para(
                "Next it unmasks {last}: no draft has that. The walk stops, the token is kept.",
                last=_formula(found, frozenset({last})),
            ),
            para(
                "{path_rows} tokens for one call of the model. Such calls are what "
                "one counts here: *NFEs*, function evaluations.",
                path_rows=len(path_rows) + 1,
            ),
            trees=[_walked(order, len(path_rows))],
            side=_block(_filled(frozenset(order[: len(path_rows) + 1]))),
            alt=f"{len(path_rows)} drafts accepted and one more token.",
        )
    )
    return steps


def _walked(order: tuple, count: int) -> Json:
    rows = [n + 1 for n in accepted(GRAPH, order)[:count]]
    return tree("graph", marks=dict.fromkeys([0, *rows], CHOSEN), select=rows[-1] if rows else None)


def _formula(found: Any, formula: Formula) -> list[Span]:
    """c₁₁ “.” and c₂₁ “and”."""
    spans: list[Span] = []
    for edit in sorted(formula):
        spans += [" and " if spans else "", num(_name(edit)), " ", {"token": found[edit].token}]
    return spans


def _name(edit: tuple[int, int]) -> str:
    return "c" + "".join(chr(0x2080 + digit) for digit in edit)


def _set_words(formula: Formula) -> str:
    return "{" + ", ".join(_name(edit) for edit in sorted(formula)) + "}"


def _filled(formula: Formula) -> dict[int, str]:
    found = guesses(BLOCK)
    return {found[edit].position: found[edit].token for edit in formula}


def _graph_words() -> str:
    """Every draft with its parents."""
    names = {-1: "the block", **{n: _set_words(f) for n, f in enumerate(GRAPH)}}
    lines = (
        f"{_set_words(formula)} from {' and '.join(names[p] for p in above)}"
        for formula, above in zip(GRAPH, parents_of(GRAPH), strict=True)
    )
    return "; ".join(lines) + "."


def _block(filled: dict[int, str], ranks: bool = False) -> Json:
    """The text, the block with some masks filled, and under each mask what stands to choose."""
    found = guesses(BLOCK)
    cells = []
    for position in range(len(BLOCK)):
        own = sorted((g for g in found.values() if g.position == position), key=lambda g: g.j)
        cells.append(
            {
                "filled": filled.get(position, ""),
                "i": own[0].i,
                "guesses": [
                    {"name": _name((g.i, g.j)), "token": g.token, "odds": g.odds} for g in own
                ],
            }
        )
    return {"kind": "block", "text": TEXT, "cells": cells, "ranks": ranks}


def _graph_view() -> Json:
    """The graph as the tree component draws it: a first parent each, further ones as links."""
    above = parents_of(GRAPH)
    found = guesses(BLOCK)
    rows = len(GRAPH) + 1
    draft = Draft(
        tokens=np.arange(rows, dtype=np.int64),
        parents=np.array([-1, *(places[0] + 1 for places in above)], np.int32),
        depths=np.array([0, *map(len, GRAPH)], np.int32),
        ranks=np.zeros(rows, np.int32),
        log_q=np.zeros(rows, np.float32),
        scores=np.zeros(rows, np.float32),
    )
    names = {
        0: "the block",
        **{n + 1: " ".join(map(_name, sorted(f))) for n, f in enumerate(GRAPH)},
    }
    view = before(Round(0, 0, draft, unjudged(draft), (), texts=names))
    words = [
        "",
        *(
            " ".join(found[e].token for e in sorted(f, key=lambda e: found[e].position))
            for f in GRAPH
        ),
    ]
    links = [[p + 1, n + 1] for n, places in enumerate(above) for p in places[1:]]
    return {**view, "words": words, "links": links}


CHAPTERS = (nested, two_scores, spiffys_graph)
