"""Chapter 9: Spiffy's graph."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from app.learn.material import Material, before
from app.learn.steps import unjudged
from app.learn.words import (
    CHOSEN,
    HOT,
    NEW,
    Json,
    Span,
    chapter,
    num,
    para,
    quiz,
    share,
    step,
    tree,
)
from core.diffusion.draft_graph import DraftGraph, draft_block
from core.diffusion.pace import ONE_BY_ONE
from core.diffusion.verify import draft_states, verify
from core.rounds.blocks import MASKED, BlockDraft, Ranking, Step
from core.rounds.draft import Array, Draft, DraftRows
from core.rounds.round import Round

# A worked example by hand, small enough to follow: tokens with odds at four masked positions, as
# the model's last call left them. The graph, its parents and the walk are the product's own.
TEXT = "The sea is"
BLOCK = (
    (("deep", 0.30), ("vast", 0.25)),
    (("and", 0.55), (",", 0.30)),
    (("blue", 0.40), ("wide", 0.35)),
    ((".", 0.90), ("!", 0.05)),
)
GRAPH = DraftGraph(
    (((1, 1),), ((2, 1),), ((1, 1), (2, 1)), ((1, 1), (3, 1)), ((1, 1), (2, 1), (3, 1)))
)
Order = tuple[tuple[int, int], ...]  # c_ij as the model unmasks them
MASKS = np.full(len(BLOCK), MASKED, np.int64)
USUAL = ((1, 1), (2, 1), (3, 1), (4, 1))
OTHER = ((2, 1), (1, 1), (3, 1), (4, 1))
LATE = ((1, 1), (4, 1))


@dataclass(frozen=True)
class Guess:
    """c_ij: the j-th best token of the i-th surest masked position; both count from 1."""

    i: int
    j: int
    position: int
    token: str
    odds: float


@dataclass(frozen=True, eq=False)
class Example:
    """The worked example in the product's own words: token ids count ``words``."""

    words: tuple[str, ...]
    left: Ranking
    draft: BlockDraft

    @staticmethod
    def made() -> Example:
        words = tuple(token for tokens in BLOCK for token, _ in tokens)
        ids = np.arange(len(words), dtype=np.int64).reshape(len(BLOCK), -1)
        p = np.array([[odds for _, odds in tokens] for tokens in BLOCK], np.float32)
        order = np.argsort(-p[:, 0], kind="stable").astype(np.int32)
        left = Ranking(order, ids[order], p[order])
        return Example(words, left, draft_block(GRAPH, MASKS, left, ONE_BY_ONE, len(words)))

    @property
    def guesses(self) -> dict[tuple[int, int], Guess]:
        """Every c_ij (eqs. 10 to 13)."""
        return {
            (i + 1, j + 1): Guess(
                i + 1, j + 1, int(position), self.words[token], float(f"{self.left.p[i, j]:.4g}")
            )
            for i, position in enumerate(self.left.positions)
            for j, token in enumerate(self.left.ids[i].tolist())
        }

    def accepted(self, order: Order) -> tuple[int, ...]:
        """Rows the verifier passes when the model unmasks these guesses one after the other."""
        turns = iter(order)

        def decide(row: int, state: Array) -> Step:
            i, j = next(turns)
            own = slice(i - 1, i)
            ids, p = self.left.ids[own, j - 1 :], self.left.p[own, j - 1 :]
            return Step(Ranking(self.left.positions[own], ids, p), 1)

        return verify(draft_states(self.draft, MASKS), decide).path[1:]


EXAMPLE = Example.made()


def spiffys_graph(material: Material) -> Json:
    """Drafts as sets of unmasked tokens, a graph with several parents."""
    found = EXAMPLE.guesses
    sure = found[1, 1]
    whole = [number + 1 for number in range(len(GRAPH))]
    both = GRAPH.formulas.index(USUAL[:2]) + 1
    steps = [
        step(
            para(
                "Not all models write from left to right. A *masked diffusion "
                "model* begins with a block of blanks, masks, and fills them in any"
                " order: in each call it unmasks the token it is surest of."
            ),
            para(
                "One call, one token: slow again. This chapter uses a *small example "
                "made by hand*, not a recorded run."
            ),
            trees=[tree("graph", [0])],
            side=_block({}),
            alt=f"The text {TEXT} and four masked positions.",
        ),
        step(
            para(
                "The model's last call has said how probable each token is at each "
                "mask. *Spiffy* needs no drafter: it *drafts from that*."
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
                formula=_formula(found, GRAPH.formulas[0]),
                formula2=_formula(found, GRAPH.formulas[1]),
            ),
            trees=[tree("graph", [0, 1, 2], marks={1: NEW, 2: NEW})],
            side=_block(_filled(GRAPH.formulas[0]), ranks=True),
            alt="Two drafts of level 1, each with one token unmasked.",
        ),
        step(
            para(
                "Level 2 fills two. Here is something no tree can do: the draft "
                "with both {formula} can be reached from either side. It has *two "
                "parents*.",
                formula=_formula(found, GRAPH.formulas[2]),
            ),
            para(
                "In a text from left to right, order is everything. In a block, "
                "what counts is the *set* of tokens filled in so far."
            ),
            trees=[tree("graph", [0, 1, 2, 3, 4], marks={3: NEW, 4: NEW}, select=both)],
            side=_block(_filled(GRAPH.formulas[2]), ranks=True),
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
                "each draft sees the text and itself, not the other drafts."
            ),
            trees=[tree("graph")],
            side=_block(_filled(GRAPH.formulas[4]), ranks=True),
            alt=_graph_words(),
        ),
        *_denoised(
            found, USUAL, "The call is made. From the block as it is, the model now unmasks "
        ),
        step(
            para(
                "Now suppose the model, having read the block once more, is surest "
                "of {formula} first. Another order, another way through the graph:",
                formula=_formula(found, (OTHER[0],)),
            ),
            para(
                "by {formula} it comes to the *same* draft with both tokens, and "
                "goes on as before. {accepted} drafts accepted, through another "
                "parent.",
                formula=_formula(found, (OTHER[0],)),
                accepted=len(EXAMPLE.accepted(OTHER)),
            ),
            trees=[_walked(OTHER, 3)],
            side=_block(_filled(OTHER[:3])),
            alt=f"Path {list(EXAMPLE.accepted(OTHER))} through the other parent.",
        ),
        step(
            para(
                "And if it unmasks something that is in no draft? Then the walk "
                "ends there. After {formula} the model takes {formula2}: {accepted}"
                " accepted, and that last step is kept as well, for it is the "
                "model's own.",
                formula=_formula(found, (LATE[0],)),
                formula2=_formula(found, (LATE[1],)),
                accepted=len(EXAMPLE.accepted(LATE)),
            ),
            para(
                "So nothing is lost: the block fills exactly as it would one call "
                "at a time, provided a draft's numbers equal those of the plain "
                "call. With masks that let the context see the block they do not "
                "quite; Draftscope says which mode is exact."
            ),
            trees=[_walked(LATE, 1)],
            side=_block(_filled(LATE)),
            alt="Only the first draft is accepted.",
        ),
        step(
            para(
                "Which sets to draft? Spiffy *calibrates*: it watches plain runs, "
                "counts which sets (i, j) came true one, two, three steps ahead, "
                "and keeps the graph of D drafts that collects the most."
            ),
            para(
                "The graph is then fixed. Only the tokens behind the ranks change "
                "from call to call."
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


def _denoised(found: Any, order: Order, begin: str) -> list[Json]:
    """The verifier's walk through the graph, one step each."""
    path_rows = EXAMPLE.accepted(order)
    steps = []
    for number in range(len(path_rows)):
        edit = _formula(found, (order[number],))
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
                side=_block(_filled(order[: number + 1])),
                alt=f"Accepted: {_set_words(GRAPH.formulas[path_rows[number] - 1])}.",
            )
        )
    last = order[len(path_rows)]
    steps.append(
        step(
            para(
                "Next it unmasks {last}: no draft has that. The walk stops, the token is kept.",
                last=_formula(found, (last,)),
            ),
            para(
                "{path_rows} tokens for one call of the model. Such calls are what "
                "one counts here: *NFEs*, function evaluations.",
                path_rows=len(path_rows) + 1,
            ),
            trees=[_walked(order, len(path_rows))],
            side=_block(_filled(order[: len(path_rows) + 1])),
            alt=f"{len(path_rows)} drafts accepted and one more token.",
        )
    )
    return steps


def _walked(order: Order, count: int) -> Json:
    rows = EXAMPLE.accepted(order)[:count]
    return tree("graph", marks=dict.fromkeys([0, *rows], CHOSEN), select=rows[-1] if rows else None)


def _formula(found: Any, formula: Order) -> list[Span]:
    """c₁₁ “.” and c₂₁ “and”."""
    spans: list[Span] = []
    for edit in sorted(formula):
        spans += [" and " if spans else "", num(_name(edit)), " ", {"token": found[edit].token}]
    return spans


def _name(edit: tuple[int, int]) -> str:
    return "c" + "".join(chr(0x2080 + digit) for digit in edit)


def _set_words(formula: Order) -> str:
    return "{" + ", ".join(_name(edit) for edit in sorted(formula)) + "}"


def _filled(formula: Order) -> dict[int, str]:
    found = EXAMPLE.guesses
    return {found[edit].position: found[edit].token for edit in formula}


def _graph_words() -> str:
    """Every draft with its parents."""
    names = ["the block", *map(_set_words, GRAPH.formulas)]
    lines = (
        f"{names[row]} from {' and '.join(names[p] for p in above)}"
        for row, above in enumerate(EXAMPLE.draft.links)
        if row
    )
    return "; ".join(lines) + "."


def _block(filled: dict[int, str], ranks: bool = False) -> Json:
    """The text, the block with some masks filled, and under each mask what stands to choose."""
    found = EXAMPLE.guesses
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


def view() -> Json:
    """The graph as the tree component draws it; in the boxes the tokens, as they stand."""
    draft, found = EXAMPLE.draft, EXAMPLE.guesses
    shared: Any = {f.name: getattr(draft, f.name) for f in fields(DraftRows)}
    plain = Draft(**shared | {"tokens": np.arange(len(draft))})
    names = {0: "the block"}
    words = [""]
    for row, formula in enumerate(GRAPH.formulas, 1):
        names[row] = " ".join(map(_name, formula))
        standing = sorted(formula, key=lambda edit: found[edit].position)
        words.append(" ".join(found[edit].token for edit in standing))
    drawn = before(Round(0, 0, plain, unjudged(plain), (), texts=names))
    return {**drawn, "words": words, "sources": list(map(list, draft.links)), "word": "level"}
