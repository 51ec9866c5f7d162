"""Chapters 1 to 3: a round, the drafter's lists, best-first search."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from analysis.numbers import percent, percent_of_log, size
from app.learn.figures import (
    CHOSEN,
    DIM,
    HOT,
    NEW,
    SEEN,
    WAITING,
    bars,
    clock,
    columns,
    lanes,
    pairs,
    tree,
)  # fmt: skip
from app.learn.material import GROWN, MAIN, Material
from app.learn.steps import Pop
from app.learn.words import (
    ChapterStep,
    Json,
    Slider,
    Span,
    Wording,
    chapter,
    fill_each,
    moved,
    plain,
    scene,
    series,
)
from core.models import presets
from core.rounds.round import Round
from core.traces.schema import Trace, summary
from core.visible import flowing

SHOWN_DEPTHS, SHOWN_RANKS = 4, 6


# ── 1 ────────────────────────────────────────────────────────────────────────────────────────────


def a_round(m: Material) -> Json:
    run, words = m.traces[MAIN], m.words
    sums = summary(run.rounds)
    kept = [words.token(token) for token in m.record.committed]
    undecided = tree("ddtree?")
    passes, weights = sums["tokens"] - 1, _weights(run)
    second = run.rounds[1]
    plain_run, drafted = m.timed
    seconds = [sum(r.times.total for r in each.rounds) for each in m.timed]
    scenes = [
        scene(
            "race",
            side=clock({"plain": plain_run, "with a tree": drafted}),
            raced={"token": flowing(drafted.header.prompt_text)},
            size=drafted.rounds[0].draft.nodes,
            slow=seconds[0],
            quick=seconds[1],
            times=seconds[0] / seconds[1],
            passes=len(plain_run.rounds),
            rounds=len(drafted.rounds),
        ),
        scene("pass", side=lanes(run, weights=weights)),
        scene("weights", side=lanes(run, weights=weights)),
        scene("guess", tree("ddtree?", marks={0: HOT})),
        scene("draft", undecided),
        scene("verdict", tree("ddtree")),
        scene("next", tree("next", title="round 2"), side=lanes(run, 2)),
        scene("whole", tree("ddtree"), side=lanes(run, len(run.rounds))),
    ]
    return chapter(
        "01-a-round", scenes,
        prompt={"token": flowing(run.header.prompt_text)},
        root=words.node(0), budget=m.budget, passes=passes,
        parameters=round((_preset(run).parameters or 0) / 1e6),
        load=size(weights), loaded=size(passes * weights),
        accepted=series(kept[:-1]), bonus=kept[-1], kept=len(kept),
        next=second.accepted, then=Wording.of(second).token(second.verdict.bonus),
        rounds=sums["rounds"], tau=sums["tau"],
    )  # fmt: skip


def _preset(run: Trace) -> presets.Preset:
    return presets.preset_of(run.header.model["name"])


def _weights(run: Trace) -> int:
    """Bytes of the target's weights, as the run had them."""
    return (_preset(run).parameters or 0) * {"float32": 4}.get(run.header.dtype, 2)


# ── 2 ────────────────────────────────────────────────────────────────────────────────────────────


def marginals(m: Material) -> Json:
    draft, words, lists = m.record.draft, m.words, m.lists()
    depths, width = lists.ids.shape
    best, second = draft.children[0][:2]
    deep, after = m.record.verdict.path[-1], draft.children[best][0]
    start = draft.path(deep)[1]
    scenes = [
        scene("blanks", side=_lists(m)),
        scene("rank", tree("ddtree?", [0, *draft.children[0]], marks={best: HOT}),
              side=_lists(m, best, only=1), best=words.node(best), q=_path_q(m, best)),
        m.ask("asked", m.surprises[0]),
        scene("marginal", tree("ddtree?", [0, *draft.children[0]]), side=_lists(m, only=2)),
        _product(m, "product", after),
        _product(m, "smaller", deep, token=words.node(start), rank=int(draft.ranks[start])),
        _product(m, "odd", m.odd, likely=words.path(deep)),
        scene("many", tree("ddtree?"), side=_lists(m)),
    ]  # fmt: skip
    next_q = math.exp(float(lists.log_q[1, 0]))
    return chapter(
        "02-marginals", scenes,
        root=words.node(0), depths=depths, width=width, shown=SHOWN_DEPTHS, budget=m.budget,
        paths=f"{width**depths:,}", one=_top(m, 0), two=_top(m, 1),
        first=words.node(second), then=words.token(lists.ids[1, 0]),
        both=_path_q(m, second) * next_q, next_q=next_q,
    )  # fmt: skip


def _product(m: Material, section: str, row: int, **values: object) -> ChapterStep:
    """A path, its tokens in the lists, and its probability written out."""
    side, rows = _lists(m, row), m.record.draft.path(row)
    values |= {"path": m.words.path(row), "odds": _path_q(m, row)}
    product = " ".join(side["product"])
    return scene(section, tree("ddtree?", rows, select=row), side=side, product=product, **values)


def _path_q(m: Material, row: int) -> float:
    return math.exp(float(m.record.draft.log_q[list(m.record.draft.path(row))].sum()))


def _lists(m: Material, row: int = 0, only: int = 0) -> Json:
    """The lists of the first depths: a path's tokens marked, all but one list dimmed, or the path's
    product below."""
    draft, lists = m.record.draft, []
    rows = draft.path(row)[1:]
    for depth in range(SHOWN_DEPTHS):
        marks = {int(draft.tokens[r]): HOT for r in rows if draft.depths[r] == depth + 1}
        usual = SEEN if only in (0, depth + 1) else DIM
        listed = pairs(m.lists(), SHOWN_RANKS, depth)
        lists.append(bars(f"depth {depth + 1}", m.words, listed, marks, usual=usual))
    factors = " × ".join(percent_of_log(float(draft.log_q[r])) for r in rows)
    if not only and not row:
        depths, width = m.lists().ids.shape
        lists[-1]["note"] = f"{SHOWN_RANKS} of {width} tokens, {SHOWN_DEPTHS} of {depths} depths"
    product = [] if only or not row else [factors, "=", percent(_path_q(m, row))]
    return columns(*lists, product=product)


def _top(m: Material, depth: int) -> str:
    """The best tokens of a depth, in words."""
    listed = pairs(m.lists(), 3, depth)
    return ", ".join(f"{m.words.label(token)} {percent_of_log(log)}" for token, log in listed)


# ── 3 ────────────────────────────────────────────────────────────────────────────────────────────


def best_first(m: Material) -> Json:
    found = m.found
    waiting, drafted = found.pops[-1].queue, {pop.entry for pop in found.pops}
    scores = {n: math.exp(entry.score) for n, entry in enumerate(found.entries)}
    left = {n + 1: DIM for n in scores if n not in drafted}
    end = tree("queue", marks=left, labels=_labels(m, scores))
    scenes = [
        scene("start", tree("queue", [0, 1], marks={1: WAITING}, labels=_labels(m, [0])),
              side=_queue(m, (0,)), entry=_entry(m, 0)),
        *(_turn(m, number, pop) for number, pop in enumerate(found.pops)),
        scene("end", end, side=_queue(m, waiting), entry=_entry(m, waiting[0]),
              left=len(waiting), sum=sum(scores[n] for n in drafted)),
        m.ask("asked", m.surprises[3]),
        _budgets(m),
    ]  # fmt: skip
    return chapter("03-best-first", scenes, budget=m.budget)


def _budgets(m: Material) -> ChapterStep:
    """The tree and its verdict at every draft budget."""
    accepted = {nodes: record.accepted for nodes, record in m.grown.items()}
    gains = [n for n in accepted if accepted[n] > accepted.get(n - 1, 0)]
    told = fill_each(
        "{accepted} from B = {nodes} on",
        ({"accepted": accepted[nodes], "nodes": nodes} for nodes in gains),
    )
    slider = Slider("draft budget B", tuple(map(str, accepted)), list(accepted).index(m.budget))
    dear = gains[-1] - (gains[-2] if len(gains) > 1 else 0)
    states = [_budget(record) for record in m.grown.values()]
    return moved("grow", [slider], states, most=max(accepted), gains=told, dear=dear)


def _budget(record: Round) -> ChapterStep:
    draft, words = record.draft, Wording.of(record)
    scores = draft.scores[1:].astype(float)
    return scene(
        "grown", tree(f"{GROWN}-{draft.nodes}"),
        nodes=draft.nodes, accepted=record.accepted, any=record.accepted > 0,
        taken=words.nodes(record.verdict.path[1:], " and "), kept=len(record.committed),
        bonus=words.token(record.verdict.bonus), sum=float(np.exp(scores).sum()),
    )  # fmt: skip


def _turn(m: Material, number: int, pop: Pop) -> ChapterStep:
    """One turn of the search. In the shipped run no list ends, so each pop adds two entries."""
    popped = {p.entry for p in m.found.pops[: number + 1]}
    entries = sorted(popped | set(pop.queue))
    marks = {n + 1: WAITING for n in pop.queue} | {pop.entry + 1: NEW}
    sibling, child = pop.pushed
    waiting = series([{"num": plain(_entry(m, n))} for n in pop.queue], ", ")
    shown = tree(
        "queue", [0, *(n + 1 for n in entries)], marks=marks, select=pop.entry + 1,
        labels=_labels(m, entries),
    )  # fmt: skip
    return scene(
        "turn", shown, side=_queue(m, pop.queue, pop.pushed, pop.entry),
        number=number + 1, entry=_entry(m, pop.entry), depth=m.found.entries[pop.entry].depth,
        sibling=_entry(m, sibling), child=_entry(m, child), waiting=waiting,
        first=number == 0, second=number == 1,
        wanted=number + 1 == m.record.verdict.path[-1], last=number + 1 == m.budget,
    )  # fmt: skip


def _entry(m: Material, number: int) -> list[Span]:
    """An entry's text and path probability."""
    odds = percent_of_log(m.found.entries[number].score)
    return [Wording(m.record, m.queued).path(number + 1), " ", {"num": odds}]


def _labels(m: Material, entries: Iterable[int]) -> dict[int, str]:
    """Path probabilities in place of q: the queue orders by them."""
    return {n + 1: f"path {percent_of_log(m.found.entries[n].score)}" for n in entries}


def _queue(
    m: Material, queue: tuple[int, ...], pushed: tuple[int, ...] = (), popped: int | None = None
) -> Json:
    """The queue beside the tree, best first."""

    def item(number: int, mark: str) -> Json:
        label, odds = plain(_entry(m, number)[:1]), math.exp(m.found.entries[number].score)
        return {"label": label, "odds": odds, "mark": mark, "row": number + 1}

    return {
        "kind": "queue",
        "popped": None if popped is None else item(popped, CHOSEN),
        "items": [item(n, NEW if n in pushed else SEEN) for n in queue],
    }
