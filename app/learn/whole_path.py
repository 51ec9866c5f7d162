"""Chapter 8: drafters whose q depends on the whole path."""

from __future__ import annotations

import math
from collections.abc import Iterable

from analysis.numbers import percent
from app.learn.figures import CHOSEN, HOT, NAMES, NEW, bars, columns, marks_of, pairs, tree
from app.learn.material import MAIN, OWN_LAYER, PATHS, WHOLE_PATH, Material
from app.learn.measured import CourseMeasurements
from app.learn.predict import asked
from app.learn.steps import same_token
from app.learn.words import ChapterStep, Json, Wording, chapter, plain, scene
from core.rounds.round import Round

LISTED = 5  # tokens of a list


def whole_path(m: Material) -> Json:
    record, name = m.paths[WHOLE_PATH], PATHS + WHOLE_PATH
    draft, words = record.draft, Wording.of(record)
    options = m.traces[WHOLE_PATH].header.settings["options"]
    twins = same_token(record)
    kept = next(row for twin in twins for row in draft.children[twin])
    drafted, top = int(draft.parents[kept]), options["top_k"]
    token = int(draft.tokens[kept])
    odds = [
        span
        for twin in twins
        for span in (
            ", ",
            {"num": percent(_odds(record, twin, token))},
            " after ",
            words.path(twin),
        )
    ]
    levels = _level_marks(record)
    labels = {
        row: f"path {percent(math.exp(float(draft.log_q[list(draft.path(row))].sum())))}"
        for row in range(1, len(draft))
    }
    scenes = [
        scene("two", *_beside(MAIN, WHOLE_PATH, untold="?")),
        scene("same", tree(name + "?", marks=marks_of(hot=twins)),
              side=_after(record, twins, token)),
        scene("order", tree(name + "?", marks=marks_of(hot=twins, new=[kept]), select=kept)),
        scene("price", tree(name + "?", marks=levels)),
        scene("tree", tree(name + "?", labels=labels)),
        asked("asked", record, name),
        scene("target", tree(name)),
        _own_layer(m),
    ]  # fmt: skip
    return chapter(
        "08-the-whole-path", scenes, "",
        number=m.paths[MAIN].number, so_far={"token": m.so_far(m.paths[MAIN])},
        budget=m.budget, depth=int(draft.depths[twins[0]]), count=len(twins),
        token=words.node(twins[0]), next=words.token(token), kept=words.node(kept),
        odds=odds[1:],
        path=words.path(drafted), levels=options["depth"], passes=int(draft.depths.max()),
        top=top, looked=top + (options["depth"] - 1) * top * top,
        accepted=record.accepted, taken=words.nodes(record.verdict.path[1:], " and "),
        bonus=words.token(record.verdict.bonus),
        rounds=len(m.traces[WHOLE_PATH].rounds), rounds2=len(m.traces[MAIN].rounds),
        **_over_prompts(CourseMeasurements()),
    )  # fmt: skip


def _over_prompts(found: CourseMeasurements) -> dict[str, object]:
    """Tell τ of EAGLE-3, DDTree (their values end in 2) and the MTP head over many prompts."""
    own, other, head = (found.row(name) for name in (WHOLE_PATH, MAIN, OWN_LAYER))
    (near, _, far), (near2, _, far2) = (row["coverage"][:3] for row in (own, other))
    values: dict[str, object] = {
        "texts": own["texts"], "many": own["budget"], "own_tau": head["tau"],
        "alike": own["low"] <= other["high"] and other["low"] <= own["high"],
        "deeper": near < near2 and far > far2,
        "near": near, "far": far, "near2": near2, "far2": far2,
    }  # fmt: skip
    for name in ("tau", "low", "high"):
        values |= {name: own[name], f"{name}2": other[name]}
    return values


def _beside(*methods: str, untold: str = "") -> list[Json]:
    """The trees of methods beside each other; ``untold``: "?" before the target's answer."""
    return [tree(f"{PATHS}{each}{untold}", title=NAMES[each]) for each in methods]


def _own_layer(m: Material) -> ChapterStep:
    """A drafter of the target's own kind at the same place."""
    record, words = m.paths[OWN_LAYER], Wording.of(m.paths[OWN_LAYER])
    best = record.draft.children[0][0]
    return scene(
        "own", *_beside(WHOLE_PATH, OWN_LAYER),
        best=words.node(best), q=record.node(best).q, p=record.node(best).p,
        own=record.accepted, own_taken=words.nodes(record.verdict.path[1:], " and "),
        own_rounds=len(m.traces[OWN_LAYER].rounds),
    )  # fmt: skip


def _odds(record: Round, row: int, token: int) -> float:
    """q of a token after a row, whose list names it."""
    log_q = record.log_q_after(row, token)
    assert log_q is not None, "a shipped trace holds what was proposed"
    return math.exp(log_q)


def _after(record: Round, rows: Iterable[int], token: int) -> Json:
    """The drafter's list after each of these rows, a token marked."""
    words = Wording.of(record)
    lists = [
        bars(
            "after " + plain([words.path(row)]), words,
            pairs(record.candidates_after(row), LISTED), {token: CHOSEN},
        )
        for row in rows
    ]  # fmt: skip
    return columns(*lists)


def _level_marks(record: Round) -> dict[int, str]:
    """Every second level marked, so that levels can be told apart."""
    depths = record.draft.depths.tolist()
    return {row: HOT if depth % 2 else NEW for row, depth in enumerate(depths) if row}
