"""Chapter 10: Spiffy's graph, and a denoiser that drafts for the target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from analysis.numbers import percent
from app.learn.figures import CHOSEN, HOT, NAMES, NEW, tree
from app.learn.material import MAIN, OWN_GUESSES, Material, before
from app.learn.steps import no_verdict
from app.learn.words import ChapterStep, Json, Span, chapter, fill_each, scene
from core.diffusion.draft_graph import DraftGraph, draft_block
from core.diffusion.pace import ONE_BY_ONE
from core.diffusion.verify import draft_states, verify
from core.rounds.blocks import MASKED, BlockDraft, Ranking, Step
from core.rounds.draft import Array, Draft, DraftRows
from core.rounds.round import Round

# A worked example by hand, small enough to follow: tokens with odds at four masked positions, as
# the model's last call left them. The graph, its parents and the walk are the product's own.
TEXT = "Our farm sells"
BLOCK = (
    (("ripe", 0.30), ("fresh", 0.25)),
    (("red", 0.55), ("sweet", 0.30)),
    (("pears", 0.40), ("plums", 0.35)),
    (("daily", 0.90), ("today", 0.05)),
)
GRAPH = DraftGraph(
    (((1, 1),), ((2, 1),), ((1, 1), (2, 1)), ((1, 1), (3, 1)), ((1, 1), (2, 1), (3, 1)))
)
Edit = tuple[int, int]  # c_ij: the j-th best token of the i-th surest masked position, from 1
Order = tuple[Edit, ...]  # as the model unmasks them
MASKS = np.full(len(BLOCK), MASKED, np.int64)
USUAL = ((1, 1), (2, 1), (3, 1), (4, 1))
OTHER = ((2, 1), (1, 1), (3, 1), (4, 1))
LATE = ((1, 1), (4, 1))


@dataclass(frozen=True)
class Guess:
    """The guess c_ij: a position, the token there, and its probability."""

    position: int
    token: str
    odds: float

    @property
    def span(self) -> Span:
        return {"token": self.token}


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

    @cached_property
    def guesses(self) -> dict[Edit, Guess]:
        """Every c_ij (eqs. 10 to 13)."""
        return {
            (i + 1, j + 1): Guess(position, self.words[token], float(f"{self.left.p[i, j]:.4g}"))
            for i, position in enumerate(self.left.positions.tolist())
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
    sure, drafts = EXAMPLE.guesses[1, 1], GRAPH.formulas
    both = drafts.index(USUAL[:2]) + 1
    passed = EXAMPLE.accepted(USUAL)
    scenes = [
        scene("masks", side=_block()),
        scene("ranks", side=_block(ranks=True)),
        scene("one", tree("graph", [0, 1, 2], marks={1: NEW, 2: NEW}),
              side=_block(drafts[0], ranks=True)),
        scene("two", tree("graph", range(both + 1), marks={both: NEW}, select=both),
              side=_block(drafts[2], ranks=True)),
        scene("graph", tree("graph"), side=_block(drafts[4], ranks=True)),
        *(_acceptance(USUAL, count) for count in range(1, len(passed) + 1)),
        scene("stop", _walk(USUAL, len(passed)), side=_block(USUAL[: len(passed) + 1]),
              last=_formula(USUAL[len(passed) :][:1])),
        scene("other", _walk(OTHER, 3), side=_block(OTHER[:3])),
        scene("late", _walk(LATE, 1), side=_block(LATE)),
        scene("calibration", tree("graph", marks=dict.fromkeys(range(1, len(GRAPH) + 1), HOT))),
        _own_guesses(material),
    ]  # fmt: skip
    ranks = (
        f"{_name(edit)} is {g.token} ({percent(g.odds)})" for edit, g in EXAMPLE.guesses.items()
    )
    return chapter(
        "10-spiffys-graph", scenes, "other",
        text=TEXT, blanks=len(BLOCK), ranks=[", ".join(ranks)],
        sure=sure.span, p=sure.odds,
        first=_formula(drafts[0]), second=_formula(drafts[1]), both=_formula(drafts[2]),
        drafts=len(GRAPH), parents=[_graph_words()], passed=len(passed), tokens=len(passed) + 1,
        surest=_formula(OTHER[:1]), accepted=len(EXAMPLE.accepted(OTHER)),
        early=_formula(LATE[:1]), late=_formula(LATE[1:]), few=len(EXAMPLE.accepted(LATE)),
    )  # fmt: skip


def _own_guesses(m: Material) -> ChapterStep:
    """The target with a denoiser's weights as its own drafter, beside DDTree."""
    ours, theirs = m.first(OWN_GUESSES), m.record
    rounds = len(m.traces[OWN_GUESSES].rounds)
    return scene(
        "uno", *(tree(name, title=NAMES[name]) for name in (MAIN, OWN_GUESSES)),
        nodes=m.budget, own=ours.accepted, other=theirs.accepted,
        own_rounds=rounds, passes=2 * rounds, rounds=len(m.traces[MAIN].rounds),
    )  # fmt: skip


def _acceptance(order: Order, count: int) -> ChapterStep:
    """A draft that the verifier passes."""
    draft = GRAPH.formulas[EXAMPLE.accepted(order)[count - 1] - 1]
    return scene(
        "passed", _walk(order, count), side=_block(order[:count]), begin=count == 1,
        edit=_formula(order[count - 1 : count]), draft=[_set_words(draft)],
    )  # fmt: skip


def _walk(order: Order, count: int) -> Json:
    rows = EXAMPLE.accepted(order)[:count]
    return tree("graph", marks=dict.fromkeys([0, *rows], CHOSEN), select=rows[-1])


def _formula(edits: Iterable[Edit]) -> list[Span]:
    """c₁₁ “daily” and c₂₁ “red”."""
    named = ({"c": _name(edit), "token": EXAMPLE.guesses[edit].span} for edit in sorted(edits))
    return fill_each("{c} {token}", named, " and ")


def _name(edit: Edit) -> str:
    return "c" + "".join(chr(0x2080 + digit) for digit in edit)


def _set_words(formula: Iterable[Edit]) -> str:
    return "{" + ", ".join(_name(edit) for edit in sorted(formula)) + "}"


def _graph_words() -> str:
    """Every draft with its parents."""
    names = ["the block", *map(_set_words, GRAPH.formulas)]
    lines = (
        f"{names[row]} from {' and '.join(names[p] for p in above)}"
        for row, above in enumerate(EXAMPLE.draft.links)
        if row
    )
    return "; ".join(lines)


def _block(filled: Order = (), ranks: bool = False) -> Json:
    """The text, the block with some masks filled, and under each mask what stands to choose."""
    found = EXAMPLE.guesses
    tokens: Mapping[int, str] = {found[edit].position: found[edit].token for edit in filled}
    cells = []
    for position in range(len(BLOCK)):
        own = sorted(edit for edit, guess in found.items() if guess.position == position)
        guesses = [
            {"name": _name(edit), "token": found[edit].token, "odds": found[edit].odds}
            for edit in own
        ]
        cells.append({"filled": tokens.get(position, ""), "i": own[0][0], "guesses": guesses})
    return {"kind": "block", "text": TEXT, "cells": cells, "ranks": ranks}


def view() -> Json:
    """The graph as the tree component draws it; in the boxes the tokens, as they stand."""
    draft, found = EXAMPLE.draft, EXAMPLE.guesses
    shared: Any = {f.name: getattr(draft, f.name) for f in fields(DraftRows)}
    plain = Draft(**shared | {"tokens": np.arange(len(draft))})
    names, words = {0: "the block"}, [""]
    for row, formula in enumerate(GRAPH.formulas, 1):
        names[row] = " ".join(map(_name, formula))
        standing = sorted(formula, key=lambda edit: found[edit].position)
        words.append(" ".join(found[edit].token for edit in standing))
    drawn = before(Round(0, 0, plain, no_verdict(plain), (), texts=names))
    return {**drawn, "words": words, "sources": list(map(list, draft.links)), "word": "level"}
