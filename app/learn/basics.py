"""Chapters 1 to 3: what a round is, what the drafter says, how the tree is chosen."""

from __future__ import annotations

import math
from typing import Any

from app.learn.material import MAIN, Material
from app.learn.steps import Pop
from app.learn.words import (
    CHOSEN,
    DIM,
    HOT,
    NEW,
    SEEN,
    WAITING,
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
    plain,
    quiz,
    share,
    step,
    token,
    tree,
)
from app.view.text import flowing, visible
from core.traces.schema import summary

SHOWN_DEPTHS, SHOWN_RANKS = 4, 6


# ── 1 ────────────────────────────────────────────────────────────────────────────────────────────


def one_round(material: Material) -> Json:
    """Why decoding is slow, and what a round is."""
    run, record = material.traces["ddtree"], material.record
    prompt = flowing(run.header.prompt_text)
    sums = summary(run.rounds)
    passes = sums["tokens"] - 1
    root, kept = node(record, 0), [token(record, t) for t in record.committed]
    bonus = token(record, record.verdict.bonus)
    followed = run.rounds[1]
    steps = [
        step(
            para("Our prompt, throughout this course: {prompt}", prompt={"token": prompt}),
            para(
                "A language model answers in *tokens*, pieces of words. It reads "
                "all there is so far, says how probable every possible next token "
                "is, one is taken, and it begins again. One reading by the model is"
                " a *forward pass*."
            ),
            para(
                "The pass over the prompt gives the first token, {root}. Every box "
                "is one more pass: {passes} passes for the next {passes} tokens.",
                root=root,
                passes=passes,
            ),
            trees=[tree("ddtree?", [0])],
            side=_lanes(material, plain=passes),
            alt=f"{passes} boxes in a row, one token each: plain decoding takes one pass a token.",
        ),
        step(
            para(
                "Why is that slow? For each pass the machine moves *every weight* "
                "of the model through its processor, only to get one token out."
            ),
            para(
                "Giving the model ten tokens to look at instead of one moves the "
                "weights just once. On a GPU such a pass takes hardly longer; on a "
                "laptop's CPU it does take longer, but far less than ten passes."
            ),
            para("So checking ten tokens is cheap. But which ten, if they are not written yet?"),
            trees=[tree("ddtree?", [0])],
            side=_lanes(material, plain=passes),
            alt="The same row of boxes: each of them moves all of the model's weights once.",
        ),
        step(
            para(
                "Somebody guesses. A small, quick network, the *drafter*, proposes "
                "what might come next. The large model, the *target*, checks all of"
                " it in one pass."
            ),
            para(
                "Right guesses are tokens for free. Wrong guesses are thrown away. "
                "This is *speculative decoding*."
            ),
            trees=[tree("ddtree?", marks={0: HOT})],
            alt=f"A tree of {material.budget} guessed tokens behind the root.",
        ),
        step(
            para(
                "This is the first draft of our run: a *draft tree*. Its *root* is "
                "the token we already have, {root}. Every other box is a guess, and"
                " every path from the root reads as a possible continuation.",
                root=root,
            ),
            para(
                "There are {budget} guesses: the *draft budget* B = {budget}. The "
                "root does not count. Under each token stands *q*, the drafter's "
                "probability for it.",
                budget=material.budget,
            ),
            trees=[tree("ddtree?")],
            alt=f"The draft tree: root {plain([root])} and {material.budget} nodes with q.",
        ),
        step(
            para(
                "The target looks at the whole tree at once. *p* is its "
                "probability. From the root we follow its own choices as long as "
                "somebody guessed them: {kept} were guessed. They are *accepted*.",
                kept=_listed(kept[:-1]),
            ),
            para(
                "Then it wants {bonus}, which nobody guessed (the dashed box). We "
                "keep that token too, for it is the target's own: the *bonus "
                "token*.",
                bonus=bonus,
            ),
            para("{kept} tokens for one pass of the target. That was one *round*.", kept=len(kept)),
            trees=[tree("ddtree")],
            alt=f"The same tree after the target's pass: {plain(_listed(kept[:-1]))} accepted, "
            f"bonus token {plain([bonus])}.",
        ),
        step(
            para(
                "The bonus token becomes the next round's root, and everything "
                "begins again. Round 2 accepts {accepted} and adds its own bonus "
                "token.",
                accepted=followed.accepted,
            ),
            para("Even a round that accepts nothing adds one token, as a plain pass would have."),
            trees=[tree("next", title="round 2")],
            side=_lanes(material, plain=passes, rounds=2),
            alt=f"The tree of round 2: its root is {plain([bonus])}, {followed.accepted} accepted.",
        ),
        step(
            para(
                "The whole run: {sums} rounds instead of {passes} passes, and "
                "exactly the same text.",
                sums=sums["rounds"],
                passes=passes,
            ),
            para(
                "Accepted tokens + 1, averaged over the rounds, is the measure of a"
                " method: *block efficiency τ*. Here τ = {sums}. Our model and "
                "drafter are tiny; large ones reach several times that.",
                sums=f"{sums['tau']:.2f}",
            ),
            trees=[tree("ddtree")],
            side=_lanes(material, plain=passes, rounds=len(run.rounds)),
            alt=f"Two rows: {passes} plain passes above, {sums['rounds']} rounds below, same text.",
        ),
    ]
    asked = quiz(
        "A round's guesses are all wrong. What happens to the text?",
        ("It gets a little worse.", "No: only the target's own tokens are ever written."),
        (
            "It grows by one token, the target's own.",
            "Yes. The walk stops at the root, and the target's token there is still written.",
        ),
        (
            "The round is repeated with new guesses.",
            "No: the pass has already told the target's token after the root. It is written.",
        ),
        answer=1,
    )
    return chapter(
        "A round",
        "One pass, several tokens",
        "Why is decoding slow, and what is a round?",
        steps,
        asked,
    )


def _lanes(material: Material, plain: int, rounds: int = 0) -> Json:
    """The run's text, one box per pass above, one per round below."""
    run = material.traces["ddtree"]
    groups = [[flowing(r.text(t)) for t in r.committed] for r in run.rounds]
    flat = [piece for group in groups for piece in group]
    return {
        "kind": "lanes",
        "first": flowing(run.rounds[0].text(int(run.rounds[0].draft.tokens[0]))),
        "plain": flat[:plain],
        "rounds": groups[:rounds],
    }


def _listed(spans: list[Span]) -> list[Span]:
    """a, b and c."""
    out: list[Span] = []
    for place, span in enumerate(spans):
        out += [*(("",), (" and " if place == len(spans) - 1 else ", ",))[place > 0], span]
    return out


# ── 2 ────────────────────────────────────────────────────────────────────────────────────────────


def marginals(material: Material) -> Json:
    """What the drafter says: one list per depth."""
    record, draft = material.record, material.record.draft
    proposed = material.lists(MAIN)
    depths, width = proposed.ids.shape
    root = node(record, 0)
    best, second = draft.children[0][0], _child(material, draft.children[0][0], 0)
    accepted = record.verdict.path
    odd = next(r for r in range(1, len(draft)) if draft.tokens[r] == draft.tokens[draft.parents[r]])
    ocean = draft.children[0][1]
    behind = math.exp(float(draft.log_q[ocean]) + float(proposed.log_q[1, 0]))
    listed = _columns(material)
    steps = [
        step(
            para(
                "The drafter here is *DFlash*. It is given what the target has "
                "understood so far, the root {root}, and {value} blanks to fill, "
                "all in *one pass*.",
                root=root,
                value=depths,
            ),
            para(
                "For each blank it gives a probability for each of the vocabulary's"
                " tokens. Each blank is a *depth* of the tree."
            ),
            trees=[tree("ddtree?", [0])],
            side=listed({}),
            alt=f"The drafter's best tokens for the first {SHOWN_DEPTHS} of {depths} depths.",
        ),
        step(
            para(
                "Depth 1 is the token right behind {root}. The drafter's best guess"
                " is {best} with q = {best2}.",
                root=root,
                best=node(record, best),
                best2=chance(float(draft.log_q[best])),
            ),
            para("The list is sorted: a token's place in it is its *rank*."),
            trees=[tree("ddtree?", [0, *draft.children[0]], marks={best: HOT})],
            side=listed({(0, 0): HOT}, only=1),
            alt="Depth 1: " + _said(material, 0),
        ),
        step(
            para(
                "Depth 2 was filled in the same pass. So the drafter did *not know*"
                " which token depth 1 would get: its list is an average over all "
                "that might stand there."
            ),
            para(
                "Such a distribution is called a *marginal*. There is one list per "
                "depth, the same wherever we stand in the tree."
            ),
            trees=[tree("ddtree?", [0, *draft.children[0]])],
            side=listed({}, only=2),
            alt="Depth 2: " + _said(material, 1),
        ),
        step(
            para(
                "A path takes one token from each list. How probable is {second}? "
                "We multiply: that is the *path probability*.",
                second=path(record, draft, second),
            ),
            trees=[tree("ddtree?", [0, best, second], select=second)],
            side=listed(_taken(material, second), product=_product(material, second)),
            alt="Product: " + " ".join(_product(material, second)),
        ),
        step(
            para(
                "And {accepted}? {accepted2} is only the drafter's number "
                "{accepted3} at its depth, so the product is smaller.",
                accepted=path(record, draft, accepted[-1]),
                accepted2=node(record, accepted[-1]),
                accepted3=int(draft.ranks[accepted[-1]]),
            ),
            trees=[tree("ddtree?", list(accepted), select=accepted[-1])],
            side=listed(_taken(material, accepted[-1]), product=_product(material, accepted[-1])),
            alt="Product: " + " ".join(_product(material, accepted[-1])),
        ),
        step(
            para(
                "Now {odd}. The drafter finds it {odd2} probable, more than {accepted}!",
                odd=path(record, draft, odd),
                odd2=share(_path_odds(material, odd)),
                accepted=path(record, draft, accepted[-1]),
            ),
            para(
                "It cannot know better: each list is sensible, but depth 2 never "
                "saw what stands at depth 1. Keep this in mind; chapter 7 mends it."
            ),
            trees=[tree("ddtree?", [0, int(draft.parents[odd]), odd], select=odd)],
            side=listed(_taken(material, odd), product=_product(material, odd)),
            alt="Product: " + " ".join(_product(material, odd)),
        ),
        step(
            para(
                "{width} tokens a list and {value} lists make {width2} longest "
                "paths. We can afford B = {budget} nodes.",
                width=width,
                value=depths,
                width2=f"{width**depths:,}",
                budget=material.budget,
            ),
            para("Which ones? That is the next chapter."),
            trees=[tree("ddtree?")],
            side=listed({}),
            alt="All lists, and the tree that was chosen from them.",
        ),
    ]
    product = share(behind)
    asked = quiz(
        f"What is the path probability of {plain([node(record, ocean)])} followed by "
        f"{visible(record.text(int(proposed.ids[1, 0])))}?",
        (product, "Yes: the two q multiplied, whatever the two words are."),
        (
            chance(float(proposed.log_q[1, 0])),
            "That is q of the second token alone. The first one must come true as well.",
        ),
        (
            "It depends on how well the two words fit together.",
            "Not for this drafter: its lists do not know of each other. For a reader, it would.",
        ),
        answer=0,
    )
    return chapter("Marginals", "One list per depth", "What does the drafter say?", steps, asked)


def _child(material: Material, row: int, place: int) -> int:
    draft = material.record.draft
    return sorted(draft.children[row], key=lambda child: int(draft.ranks[child]))[place]


def _path_odds(material: Material, row: int) -> float:
    return math.exp(float(material.record.draft.log_q[list(material.record.draft.path(row))].sum()))


def _columns(material: Material) -> Any:
    """Makes the lists of all depths, some tokens marked, from some depth on dimmed."""
    record, listed = material.record, material.lists(MAIN)

    def made(marks: dict[tuple[int, int], str], only: int = 0, product: Any = ()) -> Json:
        lists = []
        for depth in range(SHOWN_DEPTHS):
            here = only in (0, depth + 1)
            items = [
                (
                    visible(record.text(int(t))),
                    math.exp(float(q)),
                    marks.get((depth, rank), SEEN if here else DIM),
                )
                for rank, (t, q) in enumerate(
                    zip(
                        listed.ids[depth, :SHOWN_RANKS],
                        listed.log_q[depth, :SHOWN_RANKS],
                        strict=True,
                    )
                )
            ]
            lists.append(bars(f"depth {depth + 1}", items))
        return columns(*lists, product=product)

    return made


def _taken(material: Material, row: int) -> dict[tuple[int, int], str]:
    """The places in the lists that a path takes."""
    draft = material.record.draft
    rows = draft.path(row)[1:]
    return {(int(draft.depths[r]) - 1, int(draft.ranks[r]) - 1): HOT for r in rows}


def _product(material: Material, row: int) -> list[str]:
    draft = material.record.draft
    factors = [chance(float(draft.log_q[r])) for r in draft.path(row)[1:]]
    return [" × ".join(factors), "=", share(_path_odds(material, row))]


def _said(material: Material, depth: int) -> str:
    record, listed = material.record, material.lists(MAIN)
    pairs = zip(listed.ids[depth, :3], listed.log_q[depth, :3], strict=True)
    return ", ".join(f"{visible(record.text(int(t)))} {chance(float(q))}" for t, q in pairs)


# ── 3 ────────────────────────────────────────────────────────────────────────────────────────────


def best_first(material: Material) -> Json:
    """DDTree's search, pop by pop, to the very tree of the round."""
    _record, found = material.record, material.found
    start = step(
        para(
            "We want the {budget} nodes that will most likely be accepted. A "
            "node counts only if its whole path comes true, so what matters is "
            "its path probability.",
            budget=material.budget,
        ),
        para(
            "A child is never more probable than its parent: it has one more "
            "factor. So we may take nodes *best first*, and none will ever be "
            "missing its parent."
        ),
        para(
            "For that we keep a *queue* that always knows its best entry (a "
            "*heap*). It begins with one: the best token of depth 1."
        ),
        trees=[tree("queue", [0, 1], marks={1: WAITING})],
        side=_queue(material, [0], ()),
        alt="The queue holds one entry: " + plain(_entry(material, 0)) + ".",
    )
    turns = [_turn(material, number, pop) for number, pop in enumerate(found.pops)]
    waiting = found.pops[-1].queue
    rows = [0, *(pop.entry + 1 for pop in found.pops)]
    whole = sum(math.exp(found.entries[pop.entry].score) for pop in found.pops)
    end = step(
        para(
            "The budget is spent. What still waits in the queue is *not "
            "drafted*: its best entry, {waiting}, just missed.",
            waiting=_entry(material, waiting[0]),
        ),
        para(
            "This is the very tree of our round, found by *DDTree*'s Algorithm "
            "1. No other tree of {budget} nodes has a larger sum of path "
            "probabilities: {whole} accepted tokens, if q were right.",
            budget=material.budget,
            whole=f"{whole:.2f}",
        ),
        trees=[
            tree(
                "queue", marks={n + 1: DIM for n in range(len(found.entries)) if n + 1 not in rows}
            )
        ],
        side=_queue(material, list(waiting), ()),
        alt=f"The finished tree of {material.budget} nodes; {len(waiting)} entries were left over.",
    )
    asked = quiz(
        "Three entries wait: 9% at depth 1, 15% at depth 2, 7% at depth 3. Which is popped next?",
        (
            "9%, it is nearest the root.",
            "No: depth does not count by itself. It is already in the product.",
        ),
        ("15%", "Yes: always the most probable path of all that wait."),
        ("7%, it reaches farthest.", "No: it would help most, but it comes true least often."),
        answer=1,
    )
    return chapter(
        "Best first",
        "Ten nodes, best first",
        f"Which {material.budget} nodes are drafted?",
        [start, *turns, end],
        asked,
    )


def _turn(material: Material, number: int, pop: Pop) -> Json:
    found, record = material.found, material.record
    popped = [p.entry for p in found.pops[: number + 1]]
    entry, queue = found.entries[pop.entry], list(pop.queue)
    text = [
        para(
            "Pop {number} of {budget}: {pop} is the best that waits. It enters the tree{number2}",
            number=number + 1,
            budget=material.budget,
            pop=_entry(material, pop.entry),
            number2=[f" at depth {entry.depth}." if number else ", and becomes the first node."],
        ),
        para("It brings in {pop}.", pop=_brought(material, pop)),
    ]
    if remark := _remark(material, number, pop):
        text.append(remark)
    rows = sorted([0, *(n + 1 for n in popped), *(n + 1 for n in queue)])
    marks = {n + 1: WAITING for n in queue} | {pop.entry + 1: NEW}
    gone = visible(record.text(int(material.queued.tokens[pop.entry + 1])))
    return step(
        *text,
        trees=[tree("queue", rows, marks=marks, select=pop.entry + 1)],
        side=_queue(material, queue, pop.pushed, popped=pop.entry),
        alt=f"Popped {gone} {chance(entry.score)}. Waiting, best first: "
        + ", ".join(plain(_entry(material, n)) for n in queue)
        + ".",
    )


def _brought(material: Material, pop: Pop) -> list[Span]:
    """What a pop pushes, in words."""
    words: list[Span] = []
    for new in pop.pushed:
        sibling = material.found.entries[new].parent == material.found.entries[pop.entry].parent
        words += [" and " if words else "", "its next sibling, " if sibling else "its best child, "]
        words += _entry(material, new)
    return words or ["nothing new"]


def _remark(material: Material, number: int, pop: Pop) -> list[Span] | None:
    """What a pop shows for the first time."""
    if number == 0:
        return para(
            "So much is enough: any other node comes behind a better sibling or its parent."
        )
    if number == 1:
        return para(
            "The number beside it is the whole path's: the factors from the root, multiplied."
        )
    accepted = material.record.verdict.path
    if number + 1 == accepted[-1]:
        return para("Remember this one: the target will want it.")
    if number == material.budget - 1:
        return para("That was the last one we can afford.")
    return None


def _entry(material: Material, number: int) -> list[Span]:
    """An entry's text and path probability."""
    written = path(material.record, material.queued, number + 1)
    return [written, " ", num(chance(material.found.entries[number].score))]


def _queue(material: Material, queue: list[int], pushed: tuple[int, ...], popped: int = -1) -> Json:
    """The queue beside the tree, best first."""

    def item(number: int, mark: str) -> Json:
        label = plain([path(material.record, material.queued, number + 1)])
        odds = math.exp(material.found.entries[number].score)
        return {"label": label, "odds": odds, "mark": mark, "row": number + 1}

    return {
        "kind": "queue",
        "popped": item(popped, CHOSEN) if popped >= 0 else None,
        "items": [item(n, NEW if n in pushed else SEEN) for n in queue],
    }


CHAPTERS = (one_round, marginals, best_first)
