"""Acceptance of shorter drafts than the recorded ones: chains of K places, or trees of B nodes.

Truncation is exact round by round. A chain that was recorded with more places accepts of its first
K what it accepted there; so does a tree whose builder is nested (``BuilderInfo.nested``) of its
first B rows. A drafter that ended early ends early again. Nothing follows for longer drafts. Only
where rounds begin differs: a shorter draft begins its rounds at other places of the text. Collected
texts are simulated instead, with their own rounds. Never torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.collected.collection import Collection
from analysis.collected.whatif import SimulatedRun, Simulation
from analysis.experiments.serving import NOTHING, UNKNOWN, Serving, of_drafter, of_engine
from analysis.labels import SEVERAL, method_labels, prompt_keys, split_by, temperature
from analysis.measures.counts import Counts
from analysis.measures.outstanding import FLY, SIMULATED
from analysis.measures.parts import is_tree
from analysis.numbers import plural
from core.errors import UserError
from core.methods.method import Method, Options, find_drafter
from core.methods.names import DRAFTERS
from core.methods.registry import find_method
from core.rounds.draft import MAX_BUDGET, Array, Draft
from core.rounds.round import Round
from core.stats import FEW_SEEN, FEW_UNITS, resample_columns, too_few
from core.traces.schema import Header, Trace

RECORDER = "draftscope-recorder"  # the creator of traces whose drafter has its engine's name
ALIKE = (
    "With another draft length rounds begin at other places of the text: their acceptance is taken "
    "to be like that of the recorded places."
)


@dataclass(frozen=True)
class Drafts:
    """The recorded drafts, before sizes are chosen. ``most``: places of its longest chain, or nodes
    of its largest tree; ``chain``: whether every draft is a chain; ``whole``: why nothing follows
    for smaller drafts, where nothing does."""

    chain: bool
    most: int
    whole: str = ""


@dataclass(frozen=True, eq=False)
class DraftedShares:
    """How much the rounds drafted.

    drafts  [N]: nodes and side rows of a draft
    shares  float64 [N], of the rounds with such drafts; ``draws``: float64 [D, N], of τ's units
    """

    drafts: tuple[tuple[int, int], ...]
    shares: Array
    draws: Array

    def tokens(self, size: int) -> list[int]:
        """Verified tokens of each, cut to ``size`` nodes: [N]."""
        return [1 + min(nodes, size) + side for nodes, side in self.drafts]


Choose = Callable[[Drafts], Sequence[int]]  # the draft sizes to look at


@dataclass(frozen=True, eq=False)
class Shorter:
    """Tokens per round at each draft size: places K of a chain, or nodes B of a tree.

    name    the method, or the engine that counted
    sizes   [S]; ``tau``: float64 [S]
    draws   float64 [D, S], bootstrap draws of τ; D = 0 where there is no interval
    paired  whether a draw takes the same units at every size
    doubts  by size: why its rounds are not exact
    notes   sentences about all sizes
    drafted by size: of rounds with drafts that are cut to it; () where it is not known
    method  whose drafts they are, where that is known; ``serving``: how engines are told
    rounds  [S], that were recorded, or simulated at each size; () where they are not told
    """

    name: str
    drafts: Drafts
    sizes: tuple[int, ...]
    tau: Array
    draws: Array
    paired: bool
    doubts: Mapping[int, str]
    notes: tuple[str, ...]
    drafted: tuple[DraftedShares, ...] = ()
    method: str = ""
    serving: Serving = UNKNOWN
    rounds: tuple[int, ...] = ()

    @property
    def few(self) -> bool:
        """Whether nothing is concluded from so few rounds."""
        return min(self.rounds, default=FEW_SEEN) < FEW_SEEN


def drawn(sums: Array, counts: Array, times: Array | None = None) -> Array:
    """Bootstrap draws [D, S] of units [U, S], which stand there so often; none of too few."""
    units = len(sums) if times is None else times.sum()
    if units < FEW_UNITS:
        return np.empty((0, sums.shape[1]))
    return resample_columns(sums, counts, times)


@dataclass(frozen=True, eq=False)
class _Often:
    """How many of the rounds (int [U]) of each unit made such ``drafts``: float64 [U, N]."""

    drafts: Sequence[tuple[int, int]]
    often: Array
    rounds: Array


def _together(
    sums: Array, rounds: Array, counted: Sequence[_Often]
) -> tuple[Array, list[DraftedShares]]:
    """Draws of τ at each size, and how much was drafted, from the same draws of units.

    ``sums`` [U, S] are accepted + 1 of each unit's ``rounds`` [U, S].
    """
    columns = np.concatenate([sums, *(each.often for each in counted)], 1)
    whole = [np.broadcast_to(each.rounds[:, None], each.often.shape) for each in counted]
    draws = drawn(columns, np.concatenate([rounds, *whole], 1))
    at, found = sums.shape[1], list[DraftedShares]()
    for each in counted:
        shares, end = each.often.sum(0) / each.rounds.sum(), at + len(each.drafts)
        found.append(DraftedShares(tuple(each.drafts), shares, draws[:, at:end]))
        at = end
    return draws[:, : sums.shape[1]], found


def _counted(units: Sequence[Sequence[tuple[int, int]]]) -> _Often:
    """Units that tell the nodes and the side rows of each of their rounds."""
    drafts = sorted({draft for own in units for draft in own})
    often = np.array([[own.count(draft) for draft in drafts] for own in units], float)
    rounds = np.array([len(own) for own in units])
    return _Often(drafts, often.reshape(len(units), len(drafts)), rounds)


def few(units: int, rounds: int, name: str = "texts") -> list[str]:
    """The sentence that there is no interval, where there is none: of several units, or of the
    rounds of one."""
    few, what = (units < FEW_UNITS, name) if units > 1 else (rounds < FEW_UNITS, "rounds")
    return [too_few(what)] if few else []


# ── of traces ────────────────────────────────────────────────────────────────────────────────────


def of_traces(traces: Mapping[str, Trace], choose: Choose) -> Shorter:
    """Requests of one server that sampled otherwise count together. Raises UserError for several
    methods, for rounds without drafts, and for smaller drafts that do not follow."""
    labels = labels_of(traces)
    if len(labels) > 1:
        some = ", ".join(labels[:SEVERAL]) + (" …" if labels[SEVERAL:] else "")
        several = f"these traces are of several settings ({some}): give those of one"
        raise UserError("; ".join([several, *split_by({n: t.header for n, t in traces.items()})]))
    header = next(iter(traces.values())).header
    prompts: dict[str, list[Round]] = {}  # whose texts are alike: several seeds count together
    keys = prompt_keys(trace.header for trace in traces.values())
    for key, trace in zip(keys, traces.values(), strict=True):
        prompts.setdefault(key, []).extend(r for r in trace.sound if r.committed and is_tree(r))
    prompts = {key: some for key, some in prompts.items() if some}
    rounds = [record for some in prompts.values() for record in some]
    if marked := next((trace.mark for trace in traces.values() if trace.mark and not rounds), ""):
        raise UserError(f"no round of these traces counts: {marked}")
    most = max((record.draft.nodes for record in rounds), default=0)
    if not most:
        raise UserError("no round of these traces drafted anything")
    chain = all(map(_is_chain, rounds))
    whole = _only_whole(header, chain)
    drafts = Drafts(chain, most, whole)
    sizes = tuple(choose(drafts))
    if whole and sizes != (most,):
        raise UserError(f"{whole}; only the recorded size is told, {most}")
    units = list(prompts.values()) if len(prompts) > 1 else [[record] for record in rounds]
    sums = np.stack([_kept(some, sizes).sum(0) for some in units])
    counted = _counted([[_shape(record) for record in some] for some in units])
    counts = np.repeat(counted.rounds[:, None], len(sizes), 1)
    draws, drafted = _together(sums, counts, [counted])
    notes = [_over(len(prompts), len(rounds), len(draws) > 0), *_mixed(traces.values())]
    notes.append(f"Of the recorded size alone: {whole}." if whole else ALIKE)
    if early := sum(record.draft.nodes < most for record in rounds):
        notes.append(
            f"In {plural(early, 'round')} less than {most} was drafted: such a draft counts as it "
            "was."
        )
    notes += few(len(prompts), len(rounds), "prompts")
    return Shorter(
        labels[0], drafts, sizes, sums.sum(0) / len(rounds), draws, True, {}, tuple(notes),
        tuple(drafted) * len(sizes), header.method, _serving(header), (len(rounds),) * len(sizes),
    )  # fmt: skip


def _over(prompts: int, rounds: int, interval: bool) -> str:
    """Say what the numbers are of, and for which prompts their interval holds."""
    if prompts > 1:
        return f"Over {plural(prompts, 'prompt')}, {plural(rounds, 'round')}."
    alone = ": the interval holds for it alone" if interval else ""
    return f"Over {plural(rounds, 'round')} of one prompt{alone}."


def labels_of(traces: Mapping[str, Trace]) -> list[str]:
    """The labels of traces, each once, whatever sampling their requests asked for."""
    headers = {name: _unasked(trace.header) for name, trace in traces.items()}
    return list(dict.fromkeys(method_labels(headers).values()))


def _unasked(header: Header) -> Header:
    """The header without the sampling that its request asked for."""
    asked = {"sampling", "temperature", "top_k", "top_p"}
    return replace(header, settings={k: v for k, v in header.settings.items() if k not in asked})


def _mixed(traces: Iterable[Trace]) -> list[str]:
    """Name the temperatures where there are several, with the texts of each."""
    texts = Counter(temperature(trace.header) for trace in traces)
    if len(texts) < 2:
        return []
    told = ", ".join(
        f"{plural(n, 'text')} at {'a T that is not told' if t is None else f'T = {t:g}'}"
        for t, n in sorted(texts.items(), key=lambda item: (item[0] is None, item[0]))
    )
    return [f"All count together, as they were served: {told}. Another mix may need another size."]


def _shape(record: Round) -> tuple[int, int]:
    """Nodes and side rows of its draft."""
    side = len(record.draft.side) if isinstance(record.draft, Draft) else 0
    return record.draft.nodes, side


def _kept(rounds: Sequence[Round], sizes: Sequence[int]) -> Array:
    """Accepted + 1 of every round had it drafted its first rows alone: float64 [R, S]."""
    return np.array(
        [[1 + sum(row <= size for row in r.verdict.path[1:]) for size in sizes] for r in rounds],
        float,
    )


def _is_chain(record: Round) -> bool:
    parents = record.draft.parents[1 : record.draft.nodes + 1]
    return bool((parents == np.arange(len(parents))).all())


def _only_whole(header: Header, chain: bool) -> str:
    """Why shorter drafts do not follow from those recorded; empty where they do. Raises UserError
    where nothing follows."""
    known = _method(header)
    options = header.settings.get("options")
    rule = str(header.settings.get("rule", ""))
    if known is not None and not rule:
        rule = known.rule_for(known.resolve(options if isinstance(options, Mapping) else {}))
    if rule == SIMULATED:
        raise UserError("acceptance was simulated in these rounds: no advice follows from them")
    if "block" in rule.lower():
        return (
            "block verification judges a chain as a whole, so what a shorter chain accepts does "
            "not follow"
        )
    if rule == FLY:
        return (
            "FLy judges a token by those drafted after it, so what a shorter chain accepts does "
            "not follow"
        )
    info = known.builder_info if known is not None else None
    if chain or (info is not None and info.nested):
        return ""
    return (
        "a smaller tree is not known to be the beginning of a larger one of this builder, so what "
        "it accepts does not follow"
    )


def _method(header: Header) -> Method | None:
    """The listed method of a trace; None for another program's, or a file, which is never run."""
    if header.method.endswith(".py"):
        return None
    try:
        return find_method(header.method)
    except UserError:
        return None


def _serving(header: Header) -> Serving:
    kind, options = header.drafter.get("kind"), header.settings.get("options")
    if not isinstance(kind, str):
        return UNKNOWN
    if header.creator.get("name") == RECORDER:
        return of_engine(header.method.partition(" ")[0], kind)
    if kind not in DRAFTERS:
        return UNKNOWN
    return of_drafter(find_drafter(kind), options if isinstance(options, Mapping) else {})


# ── of counts and of collected texts ─────────────────────────────────────────────────────────────


def of_counts(counts: Counts, choose: Choose) -> Shorter:
    """Shorter chains, by what an engine counted at each place. Raises UserError for counts without
    places."""
    places = counts.by_depth
    if not places:
        raise UserError(
            f"these counts of {counts.engine} do not tell acceptance by place: no shorter draft "
            "follows from τ alone"
        )
    drafts = Drafts(True, len(places))
    sizes = tuple(choose(drafts))
    tau = np.array([places[size - 1].tau for size in sizes])
    draws, over = np.empty((0, len(sizes))), "The engine does not tell its rounds exactly"
    drafted: tuple[DraftedShares, ...] = ()
    if counts.exact:
        pairs = [pair for each in counts.order for pair in each or ()]
        sums = 1.0 + np.minimum([[accepted] for accepted, _ in pairs], np.array(sizes))
        counted = _counted([[(count, 0)] for _, count in pairs])
        draws, known = _together(sums, np.ones(sums.shape), [counted])
        drafted, over = tuple(known) * len(sizes), f"Over {plural(len(pairs), 'round')}"
    elif counts.rounds is not None and not counts.fits and places[0].accepted is not None:
        # rounds that accepted n places and no more, n = 0, 1, …
        kept = [counts.rounds, *(each.accepted or 0 for each in places), 0]
        lengths = np.arange(len(kept) - 1.0)
        sums = 1 + np.minimum(lengths[:, None], np.array(sizes))
        draws = drawn(sums, np.ones(sums.shape), -np.diff(kept).astype(float))
        over = f"Over {plural(counts.rounds, 'round')}"
    if counts.full and not counts.exact:
        whole = DraftedShares(((len(places), 0),), np.ones(1), np.ones((len(draws), 1)))
        drafted = (whole,) * len(sizes)
    said = "" if len(draws) else ": there is no interval"
    notes = (f"{over}{said}.", ALIKE, "Drafts are taken to be chains: counts do not tell trees.")
    doubts = {}
    if not drafted:
        why = (
            "drafts may have been shorter, and every step is taken to be that of a whole one: the "
            "speed is at least this"
        )
        doubts = dict.fromkeys((size for size in sizes if size > 1 or counts.undrafted), why)
    serving = UNKNOWN if counts.engine == "vLLM" else NOTHING
    return Shorter(
        counts.engine, drafts, sizes, tau, draws, True, doubts, notes, drafted, serving=serving,
        rounds=() if counts.rounds is None else (counts.rounds,) * len(sizes),
    )  # fmt: skip


def of_texts(
    collections: Sequence[Collection], method: str, options: Options, choose: Choose
) -> Shorter:
    """Simulated on collected texts: every size with its own rounds, so nothing is assumed."""
    simulations = [Simulation(each, method, options) for each in collections]
    chosen = find_method(method)
    chain = chosen.is_chain
    deepest = max(each.limits.max_depth for each in simulations)
    drafts = Drafts(chain, deepest if chain else MAX_BUDGET)
    sizes = tuple(choose(drafts))
    curves = [each.curve(sizes) for each in simulations]
    sums = np.array([[sum(run.lengths) for run in curve] for curve in curves], float)
    counts = np.array([[run.rounds for run in curve] for curve in curves])
    rounds = tuple(counts.sum(0).tolist())
    shapes = [
        [[(n, 0) for n in of.drafted(run)] for of, run in zip(simulations, runs, strict=True)]
        for runs in zip(*curves, strict=True)
    ]
    if len(curves) > 1:
        draws, drafted = _together(sums, counts, [_counted(own) for own in shapes])
    else:
        draws, drafted = _size_by_size(curves[0], [own for (own,) in shapes])
    doubts = {
        size: run.note for curve in curves for size, run in zip(sizes, curve, strict=True)
        if not run.exact
    }  # fmt: skip
    texts = plural(len(curves), "text")
    alone = " The interval holds for it alone." if len(curves) == 1 and len(draws) else ""
    notes = (
        f"Simulated on {texts}, each size with its own rounds.{alone}",
        *few(len(curves), min(rounds)),
    )  # fmt: skip
    info = chosen.drafter_info
    serving = NOTHING if info is None else of_drafter(info, chosen.resolve(options))
    return Shorter(
        method, drafts, sizes, sums.sum(0) / counts.sum(0), draws, len(curves) > 1, doubts, notes,
        tuple(drafted), method, serving, rounds,
    )  # fmt: skip


def _size_by_size(
    runs: Sequence[SimulatedRun], shapes: Sequence[Sequence[tuple[int, int]]]
) -> tuple[Array, list[DraftedShares]]:
    """The draws of one text: rounds of a size are not those of another."""
    found = [
        _together(
            np.array(run.lengths, float)[:, None], np.ones((run.rounds, 1)),
            [_counted([[draft] for draft in own])],
        )
        for run, own in zip(runs, shapes, strict=True)
    ]  # fmt: skip
    least = min(len(draws) for draws, _ in found)  # none where a size has too few rounds
    draws = np.stack([draws[:least, 0] for draws, _ in found], 1)
    return draws, [replace(own, draws=own.draws[:least]) for _, (own,) in found]
