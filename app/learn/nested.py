"""Chapter 7: why DDTree's tree is nested and TreeFlash's is not."""

from __future__ import annotations

import math
from collections.abc import Iterable

from app.learn.figures import CHOSEN, NAMES, bars, columns, marks_of, pairs, tree
from app.learn.material import MAIN, OTHER, PAIR, Material, on_path
from app.learn.predict import asked
from app.learn.steps import nesting_faults, tree_of
from app.learn.words import ChapterStep, Json, Wording, chapter, scene
from core.methods.treeflash import MARGINAL
from core.rounds.round import Round

LISTED = 4  # tokens of a child order


def nested(m: Material) -> Json:
    one, two = m.first(MAIN), m.first("treeflash")
    words, other = Wording.of(one), Wording.of(two)
    family = _family(one)
    others = [row for row in _family(two) if two.candidates_after(row) is not None]
    kids = {row: one.draft.children[row] for row in family if one.draft.children[row]}
    small = min(kids, key=lambda row: (len(kids[row]), -int(one.draft.ranks[row])))
    better, worse = nesting_faults(two.draft)[0]
    gained, below = two.verdict.path[-1], two.draft.children
    parent = int(two.draft.parents[gained])
    q, given = (
        math.exp(float(tree_of(two).notes[MARGINAL][gained])),
        math.exp(float(two.draft.log_q[gained])),
    )
    pair = _tree("treeflash", hot=[better, *below[better]], new=[worse, *below[worse]])
    scenes = [
        scene("two", _tree(MAIN), _tree("treeflash")),
        scene("order", _tree(MAIN, hot=family), side=_orders(one, family)),
        scene("nested", _tree(MAIN, hot=[family[0], *kids[family[0]]], new=[small, *kids[small]]),
              side=_orders(one, [family[0], small])),
        scene("before", _tree("treeflash", hot=others), side=_orders(two, others)),
        scene("gain", {**_tree("treeflash"), "select": gained}, side=_versus(two, gained)),
        scene("unnested", pair, side=_orders(two, [better, worse])),
        scene("accepted", *(tree(name, title=NAMES[name]) for name in (MAIN, "treeflash"))),
        *_elsewhere(m),
        scene("price", tree("treeflash", title=NAMES["treeflash"])),
    ]  # fmt: skip
    return chapter(
        "07-nested", scenes, "two",
        budget=m.budget, family=words.nodes(family), best=words.node(family[0]),
        small=words.node(small), odd=words.path(m.odd),
        others=other.nodes(others[:LISTED]), gained=other.node(gained), parent=other.node(parent),
        q=q, given=given, times=given / q,
        worse=other.node(worse), child=other.nodes(below[worse]), better=other.node(better),
        one=one.accepted, two=two.accepted, path=other.nodes(two.verdict.path[1:], " and "),
        rounds=len(m.traces[MAIN].rounds), rounds2=len(m.traces["treeflash"].rounds),
        differ=len(m.traces[MAIN].rounds) != len(m.traces["treeflash"].rounds),
        width=m.traces["treeflash"].header.settings["options"]["candidates"],
    )  # fmt: skip


def _elsewhere(m: Material) -> list[ChapterStep]:
    """The same at another text, where the two trees differ clearly."""
    one, two = (m.elsewhere[name] for name in PAIR)
    words, titles = Wording.of(two), [NAMES[name] for name in PAIR]
    faults = nesting_faults(tree_of(two))
    better, worse = on_path(two, faults)[0]
    below = two.draft.children
    marks = marks_of(hot=[better, *below[better]], new=[worse, *below[worse]])
    drafts = [OTHER + name + "?" for name in PAIR]
    return [
        scene("other", tree(drafts[0], title=titles[0]),
              tree(drafts[1], marks=marks, title=titles[1]),
              prompt=m.traces[OTHER + MAIN].header.prompt_text,
              faults=len(faults),
              better2=words.path(better), worse2=words.path(worse),
              children=words.nodes(below[worse], " and ")),
        asked("asked", two, OTHER + PAIR[1], titles[1]),
        scene("other-accepted", *(tree(OTHER + n, title=NAMES[n]) for n in PAIR),
              three=one.accepted, four=two.accepted, path2=words.text(two.verdict.path[1:])),
    ]  # fmt: skip


def _tree(method: str, **marks: Iterable[int]) -> Json:
    return tree(method + "?", marks=marks_of(**marks), title=NAMES[method])


def _family(record: Round) -> list[int]:
    """The siblings most of whom have children, best first."""
    draft = record.draft
    top = max(
        draft.children, key=lambda kids: (sum(bool(draft.children[k]) for k in kids), len(kids))
    )
    return sorted(top, key=lambda row: int(draft.ranks[row]))


def _orders(record: Round, rows: list[int]) -> Json:
    """Draw the drafter's lists after each of these rows; the drafted tokens are marked."""
    words, draft, lists = Wording.of(record), record.draft, []
    for row in rows[:LISTED]:
        drafted = dict.fromkeys((int(draft.tokens[c]) for c in draft.children[row]), CHOSEN)
        listed = pairs(record.candidates_after(row), LISTED)
        lists.append(bars("after " + words.name(row), words, listed, drafted))
    lists[-1]["note"] = "◆ drafted"
    return columns(*lists)


def _versus(record: Round, row: int) -> Json:
    """q and q′ of the tokens that q′ prefers after a row's parent."""
    words, parent, depth = (
        Wording.of(record),
        int(record.draft.parents[row]),
        int(record.draft.depths[row]),
    )
    own = {int(record.draft.tokens[row]): CHOSEN}
    listed, given = pairs(record.by_depth, 5, depth - 1), pairs(record.candidates_after(parent), 5)
    return columns(
        bars(f"plain q, depth {depth}", words, listed, own),
        bars(f"q′ after {words.name(parent)}", words, given, own, "◆ the node picked"),
    )
