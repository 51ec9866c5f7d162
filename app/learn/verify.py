"""Chapters 4 to 6: one forward pass for the tree, the walk, and what stays in the cache."""

from __future__ import annotations

import math

from analysis.numbers import percent
from app.learn.material import Material
from app.learn.steps import Visit, mask, moves, noise, tree_of, visits
from app.learn.words import (
    CHOSEN,
    DIM,
    HOT,
    LOST,
    NEW,
    SEEN,
    Json,
    bars,
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
from core.rounds.round import OUTRANKED

TOP = 5
SEEDS = (9, 17, 12)  # seeds whose real runs take these very tokens


# ── 4 ────────────────────────────────────────────────────────────────────────────────────────────


def one_pass(material: Material) -> Json:
    """The whole tree in one forward: attention mask and position ids."""
    record, draft = material.record, material.record.draft
    count, deep = len(draft), record.verdict.path[-1]
    above = draft.path(deep)
    wrong = [row for row in range(deep) if row not in above]
    words = "".join(record.text(int(draft.tokens[row])) for row in range(deep + 1))
    longest = max(range(count), key=lambda row: int(draft.depths[row]))
    level = [row for row in range(count) if draft.depths[row] == draft.depths[deep]]
    numbered = {row: f"row {row}" for row in range(count)}
    steps = [
        step(
            para(
                "The target must say what it would write after each of these "
                "{value} tokens: the root and {budget} guesses.",
                value=count,
                budget=material.budget,
            ),
            para("One path after the other would cost many passes. We want *one*."),
            trees=[tree("ddtree?")],
            alt=f"The draft tree: {count} rows with the root.",
        ),
        step(
            para(
                "So we lay the tree flat: one token per *row*, the root first, then"
                " the nodes as they were popped."
            ),
            para("A parent always comes before its children. Rows count from 0."),
            trees=[_labelled(numbered)],
            side=_matrix(material, "none"),
            alt="Rows: "
            + ", ".join(f"{r} {visible(record.text(int(t)))}" for r, t in enumerate(draft.tokens)),
        ),
        step(
            para(
                "In a pass, tokens look at each other: *attention*. In ordinary "
                "text a token sees all that stand before it: the *causal mask*, a "
                "staircase."
            ),
            para(
                "For our tree that would be wrong. Row {deep}, {deep2}, would read "
                "“{flowing}”: rows {wrong} belong to other continuations.",
                deep=deep,
                deep2=node(record, deep),
                flowing={"token": flowing(words)},
                wrong=", ".join(map(str, wrong)),
            ),
            trees=[_labelled(numbered, select=deep, marks=dict.fromkeys(wrong, LOST))],
            side=_matrix(material, "causal", row=deep, lost=wrong),
            alt=f"A triangle of allowed cells; in row {deep} the cells {wrong} are wrong.",
        ),
        step(
            para(
                "In a *tree mask* a row sees its ancestors and itself, nobody else."
                " Row {deep} sees {above}: it reads “{deep2}”, as if it were alone.",
                deep=deep,
                above=", ".join(map(str, above)),
                deep2=path(record, draft, deep),
            ),
            para("All rows see the whole text before the root; that part is not drawn."),
            trees=[_labelled(numbered, select=deep)],
            side=_matrix(material, "tree", row=deep, shown=deep),
            alt=f"Row {deep} sees rows {', '.join(map(str, above))}.",
        ),
        step(
            para("It is made quickly: copy the parent's row, then add the row itself."),
            para(
                "Row {longest} ({longest2}) is row {longest3} ({longest4}) and one cell more.",
                longest=longest,
                longest2=node(record, longest),
                longest3=int(draft.parents[longest]),
                longest4=node(record, int(draft.parents[longest])),
            ),
            trees=[_labelled(numbered, select=longest, marks={int(draft.parents[longest]): HOT})],
            side=_matrix(material, "tree", row=longest, parent=int(draft.parents[longest])),
            alt=f"Row {longest} has the cells of row {int(draft.parents[longest])} and its own.",
        ),
        step(
            para("The whole mask. Point at a row, or at a node of the tree: each shows the other."),
            para(
                "Of {value} cells only {mask} are allowed. Branches are blind to each other.",
                value=count * count,
                mask=int(mask(draft).sum()),
            ),
            trees=[_labelled(numbered)],
            side=_matrix(material, "tree"),
            alt="The tree mask: " + _mask_words(material),
        ),
        step(
            para(
                "One thing more. A model also wants to know *where* a token stands:"
                " its position id. The root stands at {position}, a node of depth d"
                " at {position} + d.",
                position=record.position,
            ),
            para(
                "So the {level} nodes of depth {deep} all stand at {deep2}: they "
                "are rivals for one place. Taking the row number instead is a "
                "classic bug.",
                level=len(level),
                deep=int(draft.depths[deep]),
                deep2=record.position + int(draft.depths[deep]),
            ),
            trees=[
                _labelled(
                    {
                        row: f"pos {record.position + int(draft.depths[row])}"
                        for row in range(count)
                    },
                    marks=dict.fromkeys(level, HOT),
                )
            ],
            side=_matrix(material, "tree", positions=True),
            alt=f"All nodes of one depth share a position; depth {int(draft.depths[deep])} is at "
            f"{record.position + int(draft.depths[deep])}.",
        ),
        step(
            para(
                "One pass, and the target has said p after *every* row: {value} "
                "distributions, each as if its path had been the only text.",
                value=count,
            ),
            para("Now every node has its p beside q. The verdict can begin."),
            trees=[tree("ddtree", select=deep)],
            alt=f"The tree with p and q at every node; {plain([node(record, deep)])} "
            f"has p {_p(material, deep)}.",
        ),
    ]
    last = draft.path(longest)
    asked = quiz(
        f"Which rows does row {longest} see (besides the text before the root)?",
        (", ".join(map(str, last)), "Yes: the root, its ancestors, and itself."),
        (
            ", ".join(map(str, range(longest + 1))),
            "That is the causal mask: it would also read its rivals.",
        ),
        (str(longest), "Then it would not know what it continues."),
        answer=0,
    )
    return chapter(
        "One pass",
        "The whole tree in one forward pass",
        "How can one pass read many continuations?",
        steps,
        asked,
    )


def _labelled(labels: dict[int, str], **options: object) -> Json:
    """The undecided tree with a word in each box."""
    drawn = tree("ddtree?", **options)  # type: ignore[arg-type]
    return {**drawn, "labels": {str(row): word for row, word in labels.items()}}


def _matrix(
    material: Material,
    kind: str,
    *,
    row: int = -1,
    parent: int = -1,
    shown: int | None = None,
    lost: list[int] | None = None,
    positions: bool = False,
) -> Json:
    """The mask as rows of 0 and 1: "none", "causal" or "tree"; rows behind ``shown`` are blank."""
    record, draft = material.record, material.record.draft
    count = len(draft)
    cells = {
        "none": lambda r, c: r == c,
        "causal": lambda r, c: c <= r,
        "tree": lambda r, c: bool(mask(draft)[r, c]),
    }[kind]
    last = count - 1 if shown is None else shown
    return {
        "kind": "mask",
        "labels": [visible(record.text(int(t))) for t in draft.tokens],
        "rows": [
            "".join("01"[cells(r, c)] for c in range(count)) if r <= last else ""
            for r in range(count)
        ],
        "tree": kind == "tree",
        "row": row,
        "parent": parent,
        "lost": lost or [],
        "positions": [record.position + int(d) for d in draft.depths] if positions else [],
    }


def _mask_words(material: Material) -> str:
    allowed = mask(material.record.draft)
    seen = (f"{r} sees {', '.join(map(str, allowed[r].nonzero()[0]))}" for r in range(len(allowed)))
    return "; ".join(seen) + "."


def _p(material: Material, row: int) -> str:
    probs = material.record.target_probs
    assert probs is not None, "a shipped trace keeps p"
    return percent(math.exp(float(probs.log_p[row])))


# ── 5 ────────────────────────────────────────────────────────────────────────────────────────────


def the_walk(material: Material) -> Json:
    """The verifier's walk, the bonus token, losslessness."""
    record, draft = material.record, material.record.draft
    walked = visits(record)
    end, bonus = record.verdict.path[-1], token(record, record.verdict.bonus)
    status = record.status
    rejected = [r for r in range(1, len(draft)) if status[r] == "rejected"]
    unreached = [r for r in range(1, len(draft)) if status[r] == "unreached"]
    outranked = next(r for r in rejected if record.why(r) == OUTRANKED)
    steps = [_visit(material, number, visit) for number, visit in enumerate(walked)]
    steps += [
        step(
            para(
                "The round's harvest: {all}. {accepted} accepted nodes and the "
                "bonus token, {committed} tokens for one pass.",
                all=_all(material),
                accepted=record.accepted,
                committed=len(record.committed),
            ),
            para(
                "The bonus token is never wasted and never wrong: it is what plain "
                "decoding would have written here."
            ),
            trees=[tree("ddtree", marks={-1: NEW})],
            alt=f"Path {record.verdict.path}, then the bonus token {plain([bonus])}.",
        ),
        step(
            para(
                "Why did the others die? {outranked} and its kind were *rejected*: "
                "their parent was accepted, but the target wanted a sibling.",
                outranked=node(record, outranked),
            ),
            para(
                "{unreached} nodes were *unreached* (dotted): their parent was not "
                "accepted, so nobody ever asked about them. That is not a "
                "rejection, and counting it as one makes drafters look worse than "
                "they are.",
                unreached=len(unreached),
            ),
            trees=[
                tree(
                    "ddtree",
                    marks={**dict.fromkeys(rejected, HOT), **dict.fromkeys(unreached, DIM)},
                )
            ],
            alt=f"{len(rejected)} rejected and {len(unreached)} unreached nodes.",
        ),
        step(
            *_missing(material),
            trees=[tree("ddtree", select=end)],
            side=_offer(material, end),
            alt="The drafter's list at that depth, with what the target wanted marked.",
        ),
        step(
            para(
                "Look at what was written: at each place the target's own token, "
                "found on the way or added at the end. The tree only decides *how "
                "many* come out of one pass, never *which*."
            ),
            para(
                "That is why the text equals plain decoding token for token: the "
                "method is *lossless*."
            ),
            trees=[tree("ddtree")],
            side=_race(material),
            alt="The three methods and plain decoding all wrote the same text.",
        ),
        step(
            para(
                "So far the target took its most probable token. With a "
                "*temperature* it draws one at random. Is that lossless too?"
            ),
            para(
                "Yes, with a trick: add a random number g to each log p and take "
                "the largest sum. With g from the *Gumbel* distribution this draws "
                "exactly from p."
            ),
            para(
                "And g depends on the *seed and the position* alone, not on the "
                "tree. Whoever comes to position {position}, by any method, draws "
                "the same token.",
                position=record.position + 1,
            ),
            trees=[tree("ddtree", select=0)],
            side=_noise(material),
            alt="log p plus noise of the target's likeliest tokens after the root, three seeds.",
        ),
    ]
    asked = quiz(
        "We double the draft budget. What can change?",
        ("The text, a little.", "No: each token is the target's own choice at its place."),
        (
            "How many tokens a round adds, and how long a pass takes.",
            "Yes: that, and nothing else.",
        ),
        ("The probability of each token.", "No: p comes from the target, whatever was guessed."),
        answer=1,
    )
    return chapter(
        "The walk", "The verifier's walk", "What is accepted, and why is it exact?", steps, asked
    )


def _visit(material: Material, number: int, visit: Visit) -> Json:
    """One step of the walk: the target's list after a row, and where it leads."""
    record, draft = material.record, material.record.draft
    shown = [
        r for r in range(len(draft)) if int(draft.depths[r]) <= int(draft.depths[visit.row]) + 1
    ]
    wanted = token(record, visit.choice)
    begin = "We stand at the root, " if number == 0 else "Now we stand at "
    text = [
        para(
            "{begin}{visit}. The target's own token after it, its most "
            "probable, is {wanted}, with p = {visit2}.",
            begin=[begin],
            visit=node(record, visit.row),
            wanted=wanted,
            visit2=_choice_p(material, visit),
        )
    ]
    if visit.child is not None:
        rank = int(draft.ranks[visit.child])
        text.append(
            para(
                "Was it guessed? Yes: a child carries it, the drafter's number "
                "{rank}. We step to it. It is *accepted*.",
                rank=rank,
            )
        )
        if rank > 1:
            text.append(
                para(
                    "A single chain of best guesses would have ended here. The tree had"
                    " room for number {rank} as well.",
                    rank=rank,
                )
            )
    else:
        text.append(
            para(
                "Was it guessed? No child carries it. The walk *stops*. The token "
                "is still the target's own, so we keep it: the *bonus token*."
            )
        )
    passed = dict.fromkeys(record.verdict.path[: number + 1], CHOSEN)
    at = (
        [tree("ddtree", select=-1)]
        if visit.child is None
        else [tree("ddtree?", shown, marks={**passed, visit.child: NEW}, select=visit.child)]
    )
    return step(
        *text,
        trees=at,
        side=columns(_target_list(material, visit)),
        alt=f"At {plain([node(record, visit.row)])} the target wants {plain([wanted])}: "
        + ("not drafted." if visit.child is None else "a child carries it."),
    )


def _target_list(material: Material, visit: Visit) -> Json:
    """The target's list after a row; marked what was drafted there and what was chosen."""
    record, probs = material.record, material.record.target_probs
    assert probs is not None
    pairs = zip(probs.top_ids[visit.row][:TOP], probs.top_log_p[visit.row][:TOP], strict=True)
    items = [
        (
            visible(record.text(int(t))),
            math.exp(float(p)),
            CHOSEN
            if t == visit.choice
            else HOT
            if tree_of(record).child(visit.row, int(t)) is not None
            else SEEN,
        )
        for t, p in pairs
    ]
    here = plain([node(record, visit.row)])
    return bars(f"p after {here}", items, "◆ the target's own token; ▪ drafted here too")


def _choice_p(material: Material, visit: Visit) -> str:
    probs = material.record.target_probs
    assert probs is not None
    at = probs.top_ids[visit.row].tolist().index(visit.choice)
    return share(math.exp(float(probs.top_log_p[visit.row][at])))


def _all(material: Material) -> list:
    record = material.record
    return [s for t in record.committed for s in (" ", token(record, t))][1:]


def _missing(material: Material) -> list:
    """Why the bonus token was not drafted."""
    record = material.record
    end, bonus = record.verdict.path[-1], record.verdict.bonus
    listed = record.candidates_behind(end)
    place = listed.ids.tolist().index(bonus) if listed and bonus in listed.ids else None
    if listed is None or place is None:
        return [
            para(
                "Why was {bonus} not there? It was not among the drafter's "
                "candidates for this depth: *outside the candidates*.",
                bonus=token(record, bonus),
            )
        ]
    score = math.exp(float(record.draft.scores[end]) + float(listed.log_q[place]))
    least = math.exp(float(record.draft.scores[1:].min()))
    return [
        para(
            "And why was {bonus} not there? The drafter had it in its list, as "
            "number {place} with q = {place2}.",
            bonus=token(record, bonus),
            place=place + 1,
            place2=share(math.exp(float(listed.log_q[place]))),
        ),
        para(
            "But the whole path would have been only {score} probable, and the "
            "least of the drafted nodes has {least}: *pruned by the budget*. A "
            "larger B would have held it.",
            score=share(score),
            least=share(least),
        ),
    ]


def _offer(material: Material, row: int) -> Json:
    record, bonus = material.record, material.record.verdict.bonus
    listed = record.candidates_behind(row)
    assert listed is not None
    items = [
        (visible(record.text(int(t))), math.exp(float(q)), CHOSEN if t == bonus else SEEN)
        for t, q in zip(listed.ids[:6], listed.log_q[:6], strict=True)
    ]
    return columns(
        bars(f"q at depth {int(record.draft.depths[row]) + 1}", items, "◆ what the target wanted")
    )


def _race(material: Material) -> Json:
    """Every method's text with its rounds."""
    rows = []
    for name, run in material.traces.items():
        groups = [[flowing(r.text(t)) for t in r.committed] for r in run.rounds]
        rows.append({"name": name, "groups": groups, "count": len(groups)})
    first = material.record
    return {"kind": "race", "first": flowing(first.text(int(first.draft.tokens[0]))), "rows": rows}


def _noise(material: Material) -> Json:
    """log p + g of the target's likeliest tokens after the root, for some seeds."""
    record, probs = material.record, material.record.target_probs
    assert probs is not None
    ids = probs.top_ids[0][:TOP].tolist()
    logs = probs.top_log_p[0][:TOP].tolist()
    lists = []
    for seed in SEEDS:
        added = noise(seed, record.position + 1, ids)
        sums = [log + g for log, g in zip(logs, added, strict=True)]
        best = max(range(len(ids)), key=lambda i: sums[i])
        rows = [
            {
                "label": visible(record.text(t)),
                "terms": [round(log, 2), round(g, 2)],
                "sum": round(total, 2),
                "mark": CHOSEN if i == best else SEEN,
            }
            for i, (t, log, g, total) in enumerate(zip(ids, logs, added, sums, strict=True))
        ]
        lists.append({"title": f"seed {seed}", "rows": rows})
    note = (
        f"log p + g = sum, at position {record.position + 1}, for the {len(ids)} likeliest tokens; "
        "the program does it for the whole vocabulary."
    )
    return {"kind": "noise", "lists": lists, "note": note}


# ── 6 ────────────────────────────────────────────────────────────────────────────────────────────


def compaction(material: Material) -> Json:
    """Which cache rows are kept, and where they go."""
    record, draft = material.record, material.record.draft
    start, count, path_rows = record.position, len(draft), record.verdict.path
    shifted = [(a, b) for a, b in moves(record) if a != b]
    lost = [row for row in range(count) if row not in path_rows]
    naive = "".join(record.text(int(draft.tokens[row])) for row in range(len(path_rows)))
    right = "".join(record.text(int(draft.tokens[row])) for row in path_rows)
    steps = [
        step(
            para(
                "The target does not read the text afresh in every pass. For each "
                "token it keeps what later tokens need of it, its keys and values: "
                "the *KV cache*, one row per token."
            ),
            para(
                "Before this round it holds the prompt: {start} rows, 0 to {start2}.",
                start=start,
                start2=start - 1,
            ),
            trees=[tree("ddtree?", [0])],
            side=_cache(material, "prompt"),
            alt=f"A cache of {start} rows.",
        ),
        step(
            para(
                "The pass over the tree writes {value} rows behind it, one for each"
                " row of the tree, in the same order: *scratch* rows {start} to "
                "{start2}.",
                value=count,
                start=start,
                start2=start + count - 1,
            ),
            trees=[tree("ddtree?")],
            side=_cache(material, "scratch"),
            alt=f"{count} scratch rows behind the prompt, one per row of the tree.",
        ),
        step(
            para(
                "After the walk only root and accepted path belong to the text. The"
                " other {lost} rows are of continuations that never happened.",
                lost=len(lost),
            ),
            para(
                "And those that belong are *not neighbours*: they are the tree's rows {path_rows}.",
                path_rows=", ".join(map(str, path_rows)),
            ),
            trees=[tree("ddtree", marks=dict.fromkeys(lost, DIM))],
            side=_cache(material, "kept"),
            alt=f"Kept are tree rows {', '.join(map(str, path_rows))}.",
        ),
        step(
            para(
                "So we copy: {shifted}. The others stand right already. This is *KV compaction*.",
                shifted=_moved(material, shifted),
            ),
            trees=[tree("ddtree", marks={a: NEW for a, _ in shifted})],
            side=_cache(material, "moving"),
            alt="Copied: " + "; ".join(f"cache row {start + a} to {start + b}" for a, b in shifted),
        ),
        step(
            para(
                "The cache now ends behind row {start}. What lies behind is left as"
                " it is: the next round writes over it.",
                start=start + len(path_rows) - 1,
            ),
            trees=[tree("ddtree", list(path_rows))],
            side=_cache(material, "done"),
            alt=f"The cache has {start + len(path_rows)} rows.",
        ),
        step(
            para(
                "Does a copied row still fit? It was computed for *position* "
                "{start}, the place its depth gave it in chapter 4, and that is "
                "where it stands now. With row numbers for positions it would not "
                "fit.",
                start=start + int(draft.depths[path_rows[-1]]),
            ),
            trees=[
                _labelled(
                    {r: f"pos {start + int(draft.depths[r])}" for r in path_rows},
                    rows=list(path_rows),
                )
            ],
            side=_cache(material, "done"),
            alt="Every kept row stands at the position it was computed for.",
        ),
        step(
            para(
                "What if one forgets to copy, and simply keeps the first "
                "{path_rows} rows? The text would say “{flowing}”, but the cache "
                "would remember “{flowing2}”.",
                path_rows=len(path_rows),
                flowing={"token": flowing(right)},
                flowing2={"token": flowing(naive)},
            ),
            para("Nothing crashes. The model just grows strange. Such bugs are real."),
            trees=[
                tree("ddtree", marks={r: LOST for r in range(len(path_rows)) if r not in path_rows})
            ],
            side=_cache(material, "naive"),
            alt=f"Without copying, the cache would hold {visible(naive)}.",
        ),
        step(
            para(
                "The bonus token {bonus} has no row yet: the target has never read "
                "it. It is the next round's root, at position {start}, and its row "
                "comes with the next pass.",
                bonus=token(record, record.verdict.bonus),
                start=start + len(path_rows),
            ),
            trees=[tree("next", title="round 2")],
            side=_cache(material, "next"),
            alt="The next round's root is written right behind the kept rows.",
        ),
    ]
    asked = quiz(
        "A round accepts rows 1, 2 and 3. What must be copied?",
        (
            "Rows 1, 2 and 3.",
            "They already stand right behind the root: a copy would change nothing.",
        ),
        ("Nothing.", "Yes: with the root they are rows 0 to 3, and stand where they belong."),
        ("All rows of the tree.", "No: only root and accepted path stay."),
        answer=1,
    )
    return chapter(
        "The cache", "KV compaction", "What does the target keep of a round?", steps, asked
    )


def _moved(material: Material, shifted: list[tuple[int, int]]) -> list:
    """(from, to) in words; a path without gaps needs no copy."""
    record, start = material.record, material.record.position
    if not shifted:
        return ["nothing, this once"]
    spans = []
    for a, b in shifted:
        spans += [
            " and " if spans else "",
            node(record, a),
            " from cache row ",
            num(start + a),
            " to ",
            num(start + b),
        ]
    return spans


def _cache(material: Material, stage: str) -> Json:
    """The cache's last prompt rows and what stands behind them, at a stage of the round."""
    record, draft = material.record, material.record.draft
    start, path_rows = record.position, list(record.verdict.path)
    scratch = [0] if stage == "prompt" else list(range(len(draft)))
    cells = [
        {
            "row": start + row,
            "label": visible(record.text(int(draft.tokens[row]))),
            "tree": row,
            "mark": {"scratch": SEEN, "prompt": SEEN}.get(stage, HOT if row in path_rows else DIM),
        }
        for row in scratch
    ]
    if stage == "prompt":
        cells = []
    after: list[Json] = []
    if stage in ("done", "moving", "next", "naive"):
        source = list(range(len(path_rows))) if stage == "naive" else path_rows
        after = [
            {
                "row": start + place,
                "label": visible(record.text(int(draft.tokens[row]))),
                "tree": row,
                "mark": LOST if row not in path_rows else NEW if row != place else HOT,
            }
            for place, row in enumerate(source)
        ]
    if stage == "next":
        bonus = visible(record.text(record.verdict.bonus))
        after.append({"row": start + len(path_rows), "label": bonus, "tree": -1, "mark": CHOSEN})
    return {
        "kind": "cache",
        "prompt": start,
        "cells": cells,
        "after": after,
        "moves": [list(m) for m in moves(record)] if stage == "moving" else [],
    }


CHAPTERS = (one_pass, the_walk, compaction)
