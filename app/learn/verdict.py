"""Chapters 4 to 6: the target's one pass, the walk along its tokens, and what the cache keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from app.learn.figures import (
    CHOSEN,
    DIM,
    HOT,
    LOST,
    NEW,
    SEEN,
    bars,
    columns,
    marks_of,
    pairs,
    race,
    tree,
)  # fmt: skip
from app.learn.material import RACED, Material
from app.learn.steps import Visit, mask, moves, noise, tree_of, visits
from app.learn.words import ChapterStep, Json, chapter, fill_each, scene
from core.rounds.causes import Cause
from core.rounds.draft import Array
from core.rounds.round import REJECTED, UNREACHED

TOP = 5
SEEDS = (9, 17, 12)  # seeds whose real runs take these very tokens


# ── 4 ────────────────────────────────────────────────────────────────────────────────────────────


def one_pass(m: Material) -> Json:
    record, draft, words = m.record, m.record.draft, m.words
    count, deep, allowed = len(draft), record.verdict.path[-1], mask(draft)
    wrong = tuple(row for row in range(deep) if row not in draft.path(deep))
    longest = max(range(count), key=lambda row: int(draft.depths[row]))
    parent, depth = int(draft.parents[longest]), int(draft.depths[deep])
    level = [row for row in range(count) if draft.depths[row] == depth]
    flat = partial(tree, "ddtree?", labels={row: f"row {row}" for row in range(count)})
    causal = np.tril(np.ones_like(allowed))
    scenes = [
        scene("rows", tree("ddtree?")),
        scene("flat", flat(), side=_mask(m, np.eye(count, dtype=bool), tree=False)),
        scene("causal", flat(select=deep, marks=dict.fromkeys(wrong, LOST)),
              side=_mask(m, causal, tree=False, row=deep, lost=list(wrong))),
        scene("tree", flat(select=deep), side=_mask(m, allowed[: deep + 1], row=deep)),
        scene("copy", flat(select=longest, marks={parent: HOT}),
              side=_mask(m, allowed, row=longest, parent=parent)),
        scene("whole", flat(), side=_mask(m, allowed)),
        scene("positions", flat(labels=_positions(m, range(count)), marks=marks_of(hot=level)),
              side=_mask(m, allowed, positions=[record.position + int(d) for d in draft.depths])),
        scene("answer", tree("ddtree", select=deep)),
        m.ask("asked", m.surprises[2]),
    ]  # fmt: skip
    sees = (
        f"{row} sees {', '.join(map(str, line.nonzero()[0]))}" for row, line in enumerate(allowed)
    )
    assert record.target_probs is not None, "a shipped trace keeps p"
    return chapter(
        "04-one-pass", scenes, "flat",
        count=count, budget=m.budget, names=words.nodes(range(count)), cells=count * count,
        allowed=int(allowed.sum()), sees=[{"num": "; ".join(sees)}],
        deep=deep, deep_token=words.node(deep), above=draft.path(deep), path=words.path(deep),
        mixed=words.text(range(deep + 1)), wrong=wrong,
        p=math.exp(float(record.target_probs.log_p[deep])),
        longest=longest, longest_token=words.node(longest), parent=parent,
        parent_token=words.node(parent), own=draft.path(longest), all=tuple(range(longest + 1)),
        start=record.position, level=len(level), depth=depth, place=record.position + depth,
    )  # fmt: skip


def _positions(m: Material, rows: Iterable[int]) -> dict[int, str]:
    return {row: f"pos {m.record.position + int(m.record.draft.depths[row])}" for row in rows}


def _mask(m: Material, see: Array, **marks: object) -> Json:
    """The rows of a mask as 0 and 1; rows that are not given stay blank."""
    lines = ["".join("01"[int(cell)] for cell in line) for line in see]
    names = [m.words.name(row) for row in range(len(m.record.draft))]
    lines += [""] * (len(names) - len(lines))
    usual = {"tree": True, "row": -1, "parent": -1, "lost": [], "positions": []}
    return {"kind": "mask", "labels": names, "rows": lines, **usual, **marks}


# ── 5 ────────────────────────────────────────────────────────────────────────────────────────────


def the_walk(m: Material) -> Json:
    record, draft, words = m.record, m.record.draft, m.words
    end, bonus = record.verdict.path[-1], record.verdict.bonus
    rejected, unreached = (
        [row for row, status in enumerate(record.status) if status == wanted]
        for wanted in (REJECTED, UNREACHED)
    )
    listed = pairs(record.candidates_after(end), 16)
    rank = [token for token, _ in listed].index(bonus)
    score = float(draft.scores[end]) + listed[rank][1]
    offer = bars(f"q at depth {int(draft.depths[end]) + 1}", words, listed[:6], {bonus: CHOSEN},
                 "◆ what the target wanted")  # fmt: skip
    scenes = [
        *(_visit(m, visit) for visit in visits(record)),
        m.ask("asked", m.surprises[1]),
        m.ask("asked-again", m.empty),
        scene("harvest", tree("ddtree", marks={-1: NEW})),
        scene("died", tree("ddtree")),
        scene("missing", tree("ddtree", select=end), side=columns(offer)),
        scene("lossless", tree("ddtree"), side=race({name: m.traces[name] for name in RACED})),
        scene("noise", tree("ddtree", select=0), side=_noise(m)),
        m.walks.step(),
    ]
    # The one whose token stands nowhere else: an accepted node may carry the same one.
    outranked = min(
        (row for row in rejected if record.why(row) is Cause.OUTRANKED),
        key=lambda row: int(np.count_nonzero(draft.tokens == draft.tokens[row])),
    )
    return chapter(
        "05-the-walk", scenes,
        bonus=words.token(bonus), accepted=record.accepted, kept=len(record.committed),
        all=[span for t in record.committed for span in (" ", words.token(t))][1:],
        outranked=words.node(outranked), rejected=len(rejected), unreached=len(unreached),
        rank=rank + 1, q=math.exp(listed[rank][1]), odds=math.exp(score),
        least=math.exp(float(draft.scores[1:].min())), position=record.position + 1,
        so_far={"token": m.so_far(m.walks.record)},
    )  # fmt: skip


def _visit(m: Material, visit: Visit) -> ChapterStep:
    """One step of the walk: the target's list after a row, and where it leads."""
    record, draft, child = m.record, tree_of(m.record), visit.child
    assert record.target_probs is not None
    ids, logs = record.target_probs.top_ids[visit.row], record.target_probs.top_log_p[visit.row]
    listed = list(zip(ids.tolist(), logs.tolist(), strict=True))
    drafted = {int(draft.tokens[c]): HOT for c in draft.children[visit.row]}
    here = m.words.name(visit.row)
    others = {token for token, _ in listed[:TOP]} & drafted.keys() - {visit.choice}
    key = "◆ the target's own token" + ("; ▪ drafted here too" if others else "")
    marked = {**drafted, visit.choice: CHOSEN}
    side = columns(bars(f"p after {here}", m.words, listed[:TOP], marked, key))
    values = {"here": m.words.node(visit.row), "wanted": m.words.token(visit.choice),
              "p": math.exp(dict(listed)[visit.choice]), "first": visit.row == 0}  # fmt: skip
    if child is None:
        return scene("stop", tree("ddtree", select=-1), side=side, **values)
    shown = [r for r in range(len(draft)) if draft.depths[r] <= draft.depths[child]]
    marks = {**dict.fromkeys(draft.path(visit.row), CHOSEN), child: NEW}
    rank = int(draft.ranks[child])
    return scene(
        "visit", tree("ddtree?", shown, marks=marks, select=child), side=side,
        rank=rank, lower=rank > 1, **values,
    )  # fmt: skip


def _noise(m: Material) -> Json:
    """log p + g of the target's likeliest tokens after the root, for some seeds."""
    record, probs = m.record, m.record.target_probs
    assert probs is not None
    ids, logs = probs.top_ids[0][:TOP].tolist(), probs.top_log_p[0][:TOP].tolist()
    lists = []
    for seed in SEEDS:
        added = noise(seed, record.position + 1, ids)
        sums = [log + g for log, g in zip(logs, added, strict=True)]
        rows = [
            {
                "label": m.words.label(token), "terms": [round(log, 2), round(g, 2)],
                "sum": round(total, 2), "mark": CHOSEN if total == max(sums) else SEEN,
            }
            for token, log, g, total in zip(ids, logs, added, sums, strict=True)
        ]  # fmt: skip
        lists.append({"title": f"seed {seed}", "rows": rows})
    note = (
        f"log p + g = sum, rounded, at position {record.position + 1}, for the {len(ids)} "
        "likeliest tokens; the program does it for the whole vocabulary."
    )
    return {"kind": "noise", "lists": lists, "note": note}


# ── 6 ────────────────────────────────────────────────────────────────────────────────────────────


def the_cache(m: Material) -> Json:
    record, words = m.record, m.words
    start, path, count = record.position, record.verdict.path, len(record.draft)
    shifted, first = [(a, b) for a, b in moves(record) if a != b], range(len(path))
    lost = [row for row in range(count) if row not in path]
    scratch = _cells(m, range(count), lambda row, place: SEEN)
    written = _cells(m, range(count), lambda row, place: HOT if row in path else DIM)
    kept = _cells(m, path, lambda row, place: HOT if row == place else NEW)
    naive = _cells(m, first, lambda row, place: HOT if row in path else LOST)
    bonus = {
        "row": start + len(path),
        "label": words.label(record.verdict.bonus),
        "tree": -1,
        "mark": CHOSEN,
    }
    swapped = [row for row in first if row not in path]
    scenes = [
        scene("cache", side={**_cache(m), "open": True}),
        scene("scratch", tree("ddtree?"), side=_cache(m, scratch)),
        scene("kept", tree("ddtree", marks=dict.fromkeys(lost, DIM)), side=_cache(m, written)),
        scene("copy", tree("ddtree", marks={a: NEW for a, _ in shifted}),
              side=_cache(m, written, kept, [list(move) for move in moves(record)])),
        scene("end", tree("ddtree", path), side=_cache(m, written, kept)),
        scene("positions", tree("ddtree?", path, labels=_positions(m, path)),
              side=_cache(m, written, kept)),
        scene("naive", tree("ddtree", marks=dict.fromkeys(swapped, LOST)),
              side=_cache(m, written, naive)),
        scene("next", tree("next", title="round 2"), side=_cache(m, written, [*kept, bonus])),
        m.ask("asked", m.surprises[4]),
    ]  # fmt: skip
    copies = fill_each(
        "{0} from row {1} to row {2}",
        ({"0": words.node(a), "1": start + a, "2": start + b} for a, b in shifted),
    )
    return chapter(
        "06-the-cache", scenes, "copy",
        start=start, before=start - 1, count=count, last=start + count - 1, lost=len(lost),
        rows=path, copies=copies, kept=len(path),
        total=start + len(path), end=start + len(path) - 1,
        right=words.text(path), naive=words.text(first), bonus=words.token(record.verdict.bonus),
        place=start + int(record.draft.depths[path[-1]]),
    )  # fmt: skip


def _cells(m: Material, rows: Iterable[int], mark: Callable[[int, int], str]) -> list[Json]:
    """Tree rows in the cache, one after the other; ``mark`` of (tree row, place)."""
    return [
        {
            "row": m.record.position + place,
            "label": m.words.name(row),
            "tree": row,
            "mark": mark(row, place),
        }
        for place, row in enumerate(rows)
    ]


def _cache(
    m: Material,
    cells: Sequence[Json] = (),
    after: Sequence[Json] = (),
    moved: Sequence[object] = (),
) -> Json:
    """The cache: the prompt's rows, what the pass wrote, and what stays."""
    prompt = m.record.position
    return {
        "kind": "cache",
        "prompt": prompt,
        "cells": list(cells),
        "after": list(after),
        "moves": list(moved),
    }
