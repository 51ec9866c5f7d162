"""What shorter drafts than the recorded ones accept: chains of K places, or trees of B nodes.

Truncation is exact round by round. A chain that was recorded with more places accepts of its first
K what it accepted there; so does a tree whose builder is nested (``BuilderInfo.nested``) of its
first B rows. A drafter that ended early ends early again. Nothing follows for longer drafts. Only
where rounds begin differs: a shorter draft begins its rounds at other places of the text. Collected
texts are simulated instead, with their own rounds. Never torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.collected.collection import Collection
from analysis.collected.whatif import Simulation
from analysis.labels import method_labels, text_key
from analysis.measures.counts import Counts
from analysis.measures.tables import is_tree
from analysis.numbers import plural
from core.errors import UserError
from core.methods.method import Method, Options, find_drafter
from core.methods.names import DRAFTERS
from core.methods.registry import find
from core.rounds.draft import MAX_BUDGET, Array
from core.rounds.round import Round
from core.stats import FEW, TOO_FEW, resample, resample_columns
from core.traces.schema import Header, Trace

RECORDER = "draftscope-recorder"  # the creator of traces whose drafter has its engine's name
ALIKE = (
    "With another draft length rounds begin at other places of the text: their acceptance is taken "
    "to be like that of the recorded places."
)


@dataclass(frozen=True)
class Drafts:
    """What was recorded, before sizes are chosen. ``most``: places of its longest chain, or nodes
    of its largest tree; ``chain``: whether every draft is a chain."""

    chain: bool
    most: int


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
    method  whose drafts they are, where that is known; ``vllm``: what vLLM calls the drafter
    """

    name: str
    drafts: Drafts
    sizes: tuple[int, ...]
    tau: Array
    draws: Array
    paired: bool
    doubts: Mapping[int, str]
    notes: tuple[str, ...]
    method: str = ""
    vllm: str = ""


def drawn(sums: Array, counts: Array, times: Array | None = None) -> Array:
    """Bootstrap draws [D, S] of units [U, S], which stand there so often; none of too few."""
    units = len(sums) if times is None else times.sum()
    if units < FEW:
        return np.empty((0, sums.shape[1]))
    return resample_columns(sums, counts, times)


def few(texts: int, rounds: int) -> list[str]:
    """The sentence that there is no interval, where there is none: rounds of one text, or texts."""
    if texts > 1:
        return [TOO_FEW] if texts < FEW else []
    return [f"Fewer than {FEW} rounds give no interval."] if rounds < FEW else []


# ── of traces ────────────────────────────────────────────────────────────────────────────────────


def of_traces(traces: Mapping[str, Trace], choose: Choose) -> Shorter:
    """Raises UserError for several methods, for rounds without drafts, and for trees of which no
    smaller ones follow."""
    labels = list(dict.fromkeys(method_labels({n: t.header for n, t in traces.items()}).values()))
    if len(labels) > 1:
        raise UserError(f"these traces are of several settings ({', '.join(labels)}): name one's")
    header = next(iter(traces.values())).header
    texts: dict[str, list[Round]] = {}
    for trace in traces.values():
        some = [r for r in trace.sound if r.committed and is_tree(r)]
        texts.setdefault(text_key(trace.header), []).extend(some)
    texts = {key: some for key, some in texts.items() if some}
    rounds = [record for some in texts.values() for record in some]
    most = max((record.draft.nodes for record in rounds), default=0)
    if not most:
        raise UserError("no round of these traces drafted anything")
    chain = all(map(_is_chain, rounds))
    _check(header, chain)
    drafts = Drafts(chain, most)
    sizes = tuple(choose(drafts))
    if len(texts) > 1:
        sums = np.stack([_kept(some, sizes).sum(0) for some in texts.values()])
        counts = np.array([[len(some)] * len(sizes) for some in texts.values()], float)
    else:
        sums, counts = _kept(rounds, sizes), np.ones((len(rounds), len(sizes)))
    over = f"{plural(len(texts), 'text')}, " if len(texts) > 1 else ""
    notes = [f"Over {over}{plural(len(rounds), 'round')}.", ALIKE]
    if early := sum(record.draft.nodes < most for record in rounds):
        notes.append(
            f"In {plural(early, 'round')} less than {most} was drafted: such a draft counts as it "
            "was."
        )
    notes += few(len(texts), len(rounds))
    return Shorter(
        labels[0], drafts, sizes, sums.sum(0) / counts.sum(0), drawn(sums, counts), True, {},
        tuple(notes), header.method, _vllm_name(header),
    )  # fmt: skip


def _kept(rounds: Sequence[Round], sizes: Sequence[int]) -> Array:
    """Accepted + 1 of every round had it drafted its first rows alone: float64 [R, S]."""
    return np.array(
        [[1 + sum(row <= size for row in r.verdict.path[1:]) for size in sizes] for r in rounds],
        float,
    )


def _is_chain(record: Round) -> bool:
    parents = record.draft.parents[1 : record.draft.nodes + 1]
    return bool((parents == np.arange(len(parents))).all())


def _check(header: Header, chain: bool) -> None:
    """Raises UserError where shorter drafts do not follow from those recorded."""
    known = _method(header)
    options = header.settings.get("options")
    rule = str(header.settings.get("rule", ""))
    if known is not None and not rule:
        rule = known.rule_for(known.resolve(options if isinstance(options, Mapping) else {}))
    if "block" in rule.lower():
        raise UserError(
            "block verification judges a chain as a whole: what a shorter chain accepts does not "
            "follow from these rounds"
        )
    if chain:
        return
    info = known.builder_info if known is not None else None
    if info is None or not info.nested:
        raise UserError(
            "these drafts are trees, and a smaller tree of this builder is not the beginning of a "
            "larger one: what it accepts does not follow (record it with that budget)"
        )


def _method(header: Header) -> Method | None:
    """The listed method of a trace; None for another program's, or a file, which is never run."""
    if header.method.endswith(".py"):
        return None
    try:
        return find(header.method)
    except UserError:
        return None


def _vllm_name(header: Header) -> str:
    kind = header.drafter.get("kind")
    if not isinstance(kind, str):
        return ""
    if header.creator.get("name") == RECORDER:
        return kind
    return find_drafter(kind).vllm if kind in DRAFTERS else ""


# ── of counts and of collected texts ─────────────────────────────────────────────────────────────


def of_counts(counts: Counts, choose: Choose) -> Shorter:
    """Of what an engine counted by place, as chains. Raises UserError for counts without places."""
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
    if counts.rounds is not None and not counts.fits and places[0].accepted is not None:
        # rounds that accepted n places and no more, n = 0, 1, …
        kept = [counts.rounds, *(each.accepted or 0 for each in places), 0]
        lengths = np.arange(len(kept) - 1.0)
        sums = 1 + np.minimum(lengths[:, None], np.array(sizes))
        draws = drawn(sums, np.ones(sums.shape), -np.diff(kept).astype(float))
        over = f"Over {plural(counts.rounds, 'round')}"
    said = "" if len(draws) else ": there is no interval"
    notes = (f"{over}{said}.", ALIKE, "Drafts are taken to be chains: counts do not tell trees.")
    doubts = {}
    if counts.full is not True and not counts.exact:
        doubts = dict.fromkeys(
            (size for size in sizes if size > 1), "drafts may have been shorter: at least this"
        )
    return Shorter(counts.engine, drafts, sizes, tau, draws, True, doubts, notes)


def of_texts(
    collections: Sequence[Collection], method: str, options: Options, choose: Choose
) -> Shorter:
    """Simulated on collected texts: every size with its own rounds, so nothing is assumed."""
    simulations = [Simulation(each, method, options) for each in collections]
    chosen = find(method)
    chain = chosen.builder_info is not None and chosen.builder_info.chain
    deepest = max(each.limits.max_depth for each in simulations)
    drafts = Drafts(chain, deepest if chain else MAX_BUDGET)
    sizes = tuple(choose(drafts))
    curves = [each.curve(sizes) for each in simulations]
    sums = np.array([[sum(run.lengths) for run in curve] for curve in curves], float)
    counts = np.array([[run.rounds for run in curve] for curve in curves], float)
    rounds = int(counts.min())
    if len(curves) > 1:
        draws = drawn(sums, counts)
    else:  # rounds of a size are not those of another
        columns = [resample(run.lengths, np.ones(run.rounds)) for run in curves[0]]
        draws = np.stack(columns, 1) if rounds >= FEW else np.empty((0, len(sizes)))
    doubts = {
        size: run.note for curve in curves for size, run in zip(sizes, curve, strict=True)
        if not run.exact
    }  # fmt: skip
    texts = plural(len(curves), "text")
    notes = (f"Simulated on {texts}, each size with its own rounds.", *few(len(curves), rounds))
    vllm = chosen.drafter_info.vllm if chosen.drafter_info is not None else ""
    return Shorter(
        method, drafts, sizes, sums.sum(0) / counts.sum(0), draws, len(curves) > 1, doubts, notes,
        method, vllm,
    )  # fmt: skip
