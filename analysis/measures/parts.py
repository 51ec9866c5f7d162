"""Recorded rounds in columns: all that tables need of traces. Never torch.

A *part* holds the rounds of some runs in four tables. ``RecordedPart`` makes them of traces, each
when it is first read; ``run`` is a run's number within its part: names and labels follow from all
runs together (``analysis.measures.tables``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
import pandas as pd

from analysis import labels
from analysis.frames import COVERAGE, WIDEST, Frame
from analysis.measures import hindsight
from analysis.measures.observed import Observed, ObservedRows, ints, joined
from analysis.measures.strays import Judge, Strays
from analysis.measures.tokens import CLASSES, script, token_class
from core.rounds.causes import Cause
from core.rounds.draft import NOT_KNOWN, Array, Draft
from core.rounds.round import Round, new_tokens
from core.traces.schema import STAGES, Header, Trace

# of trees, in the order in which they are shown
CAUSES = tuple(
    cause.value
    for cause in Cause
    if cause not in (Cause.NOT_IN_GRAPH, Cause.BLOCK_DONE, Cause.SIDE)
)
UNTAGGED = "untagged"
TIE = 0.1  # nats: tokens of q that are as near may change places where precision is low

Name = Literal["rounds", "positions", "nodes", "hindsight"]


@dataclass(frozen=True, eq=False)
class RunFacts:
    """All that tables need of a trace beside its rounds.

    complete  whether it has a footer; ``mark``: its faults in one sentence (``Trace.mark``)
    tag       the source that the prompt's file named, the request's tag, or ``UNTAGGED``
    rounds    all of the trace, also those that no table counts
    tokens    new tokens of the text, the first (prefill's own) included
    wall_seconds  by the footer; NaN where it lacks that
    start     position of the first root; −1: no tree was drafted, or nothing written
    text      int64, the new tokens from there on; empty for a denoising run
    """

    header: Header
    complete: bool
    mark: str
    tag: str
    rounds: int
    tokens: int
    wall_seconds: float
    start: int
    text: Array

    @staticmethod
    def of(trace: Trace) -> RunFacts:
        writing = [record for record in trace.rounds if record.committed]
        if not all(map(is_tree, trace.rounds)):
            writing = []
        return RunFacts(
            header=trace.header,
            complete=trace.complete,
            mark=trace.mark,
            tag=_tag(trace),
            rounds=len(trace.rounds),
            tokens=_tokens(trace),
            wall_seconds=_wall_seconds(trace),
            start=writing[0].position if writing else -1,
            text=np.array(new_tokens(writing), np.int64),
        )


class RoundsPart(Protocol):
    """The rounds of some ``runs``, in columns."""

    @cached_property
    def runs(self) -> Sequence[RunFacts]: ...

    def frame(self, table: Name, columns: Sequence[str] | None = None) -> Frame:
        """These columns of a table, or all of them."""
        ...


def is_tree(record: Round) -> bool:
    """Whether a round drafted a tree, or nothing. The tables leave denoising rounds out: the nodes
    of a draft graph have no depth, rank or path in their sense."""
    return record.block is None and isinstance(record.draft, Draft)


def _tag(trace: Trace) -> str:
    """The source that a sweep keeps of the prompt's file in the footer; or the tag that a request
    was recorded with."""
    settings = trace.header.settings
    for found in ((trace.footer or {}).get("source"), settings.get("tag"), settings.get("source")):
        if isinstance(found, str) and found:
            return found[:60]
    return UNTAGGED


def _tokens(trace: Trace) -> int:
    first = any(is_tree(record) for record in trace.rounds[:1])  # prefill's own token
    return sum(len(r.committed) for r in trace.sound) + first


def _wall_seconds(trace: Trace) -> float:
    if trace.mark:  # seconds of what, is not known
        return np.nan
    seconds = (trace.footer or {}).get("wall_seconds")
    return max(0.0, labels.known_number(seconds)) or np.nan


@dataclass(frozen=True, eq=False)
class RecordedPart:
    """The part that some traces make."""

    traces: Sequence[Trace]

    @cached_property
    def runs(self) -> Sequence[RunFacts]:
        return [RunFacts.of(trace) for trace in self.traces]

    def frame(self, table: Name, columns: Sequence[str] | None = None) -> Frame:
        whole = self._made[table] if table in self._made else _MAKERS[table](self)
        self._made[table] = whole
        return whole if columns is None else whole[list(columns)]

    @cached_property
    def _made(self) -> dict[str, Frame]:
        return {}

    @cached_property
    def numbered(self) -> list[tuple[int, Round]]:
        """(number of the run, round) of every sound round that committed tokens with a tree."""
        return [
            (number, record)
            for number, trace in enumerate(self.traces)
            for record in trace.sound
            if record.committed and is_tree(record)
        ]

    @cached_property
    def records(self) -> list[Round]:
        return [record for _, record in self.numbered]

    @cached_property
    def run_numbers(self) -> Array:
        """The run of each of these rounds."""
        return np.array([number for number, _ in self.numbered], np.int64)

    @cached_property
    def rows(self) -> ObservedRows:
        return ObservedRows.of(self.records)


def _rounds(part: RecordedPart) -> Frame:
    """A line per round that committed tokens with a tree, or with nothing drafted."""
    records, rows = part.records, part.rows
    frame = pd.DataFrame({"run": part.run_numbers})
    frame["round"] = ints(r.number for r in records)
    frame["position"] = ints(r.position for r in records)
    frame["nodes"] = np.bincount(rows.owner, rows.drafted, len(records)).astype(np.int64)
    deepest = np.zeros(len(records), np.int64)
    np.maximum.at(deepest, rows.owner, np.where(rows.drafted, rows.depth, 0))
    last = ints(r.max_depth for r in records)
    frame["depths"] = np.maximum(last, deepest)
    frame["last_depth"] = np.where(last > 0, last, np.nan)
    frame["accepted"] = ints(r.accepted for r in records)
    frame["committed"] = ints(len(r.committed) for r in records)
    frame["cut"] = frame["accepted"] + 1 - frame["committed"]
    chances = np.where(rows.drafted, np.exp(np.minimum(_path_log_q(part), 0.0)), 0.0)
    frame["surrogate"] = np.bincount(rows.owner, chances, len(records))
    greedy = [labels.temperature(trace.header) == 0 for trace in part.traces]
    drawn = [_drawn(record, greedy[run]) for run, record in part.numbered]
    frame["drawn"] = np.array(drawn, np.bool_)
    judges = [Judge.of(trace.header) for trace in part.traces]
    found = [own.strays(r) if (own := judges[run]) else Strays() for run, r in part.numbered]
    frame["told"] = ints(each.told for each in found)
    frame["strays"] = ints(each.strays for each in found)
    frame["strays_allowed"] = np.array([each.allowed for each in found], float)
    stops = [r.stop_reason.value for r in records]
    frame["stop"] = pd.Categorical(stops, pd.Index(CAUSES, dtype=object))
    frame["stop_row"] = ints(r.verdict.path[-1] for r in records)
    bonus = ints(r.verdict.bonus for r in records)
    frame["token_class"] = _classes(part, bonus, np.arange(len(records)))
    timed = [r.times.recorded is not None for r in records]
    for stage in STAGES:
        seconds = np.array([getattr(r.times, stage) for r in records], float)
        frame[stage] = np.where(timed, seconds, np.nan)
    return frame


def _drawn(record: Round, greedy: bool) -> bool:
    """Whether the draft's tokens were drawn from q, or accepted by p and q, as far as it is seen: a
    bonus token was drawn, or a chain of a text that is not told to be greedy has a token that is
    not the best of q."""
    if record.verdict.bonus_token is not None:
        return True
    draft = record.draft
    assert isinstance(draft, Draft)
    chain = all(len(below) <= 1 for below in draft.children)
    return not greedy and chain and any(_behind(record, row) for row in range(1, len(draft)))


def _behind(record: Round, row: int) -> bool:
    """Whether q holds another token for more probable than the one of this row."""
    draft = record.draft
    listed = record.candidates_after(int(draft.parents[row]))
    if listed is None or not len(listed.log_q):
        return int(draft.ranks[row]) > 1
    return float(draft.log_q[row]) < float(listed.log_q.max()) - TIE


def _positions(part: RecordedPart) -> Frame:
    """A line per observed position of a round (its parent was accepted), never more.

    ``root``: the place of the round's root; ``drafting``: whether the round drafted anything.
    """
    rounds = part.frame("rounds")
    at = Observed.of(part.rows, rounds["depths"].to_numpy())
    tokens = at.target_tokens
    frame = pd.DataFrame({"run": part.run_numbers[at.owner]})
    for name, column in (("round", "round"), ("root", "position")):
        frame[name] = rounds[column].to_numpy()[at.owner]
    frame["drafting"] = rounds["nodes"].to_numpy()[at.owner] > 0
    frame["depth"] = at.depth
    frame["tested"] = part.rows.has_children[at.above]
    frame["accepted"] = at.accepted
    frame["in_text"] = at.depth <= rounds["committed"].to_numpy()[at.owner]
    frame["rank"], frame["outside"] = at.target_ranks
    frame["best"] = at.best
    frame["parent_rank"], frame["spine"] = at.ranks_above
    frame["tvd"] = at.probed(lambda probe: probe.tvd)
    frame["entropy_q"] = at.probed(lambda probe: probe.entropy_q)
    frame["token_class"] = _classes(part, tokens, at.owner)
    frame["script"] = _scripts(part, tokens, at.owner)
    covered = at.probed(lambda probe: probe.coverage[:, :WIDEST], WIDEST)
    return pd.concat([frame, pd.DataFrame(covered, columns=list(COVERAGE))], axis=1)


def _scripts(part: RecordedPart, tokens: Array, owner: Array) -> pd.Series:
    """The script of every token, by its text in the round that mentions it."""
    texts = [
        part.records[record].texts.get(token, "")
        for record, token in zip(owner.tolist(), tokens.tolist(), strict=True)
    ]
    scripts = {text: script(text) for text in set(texts)}
    return pd.Series([scripts[text] for text in texts], dtype=object)


def _nodes(part: RecordedPart) -> Frame:
    """A line per drafted node, without roots and rows that are never accepted."""
    records, rows = part.records, part.rows
    drafted, owner = rows.drafted, rows.owner[rows.drafted]
    columns = [record.nodes() for record in records]

    def of(name: str) -> Array:
        """A number of every drafted node."""
        return joined([getattr(nodes, name) for nodes in columns], float)[drafted]

    frame = pd.DataFrame({"run": part.run_numbers[owner]})
    frame["round"] = part.frame("rounds")["round"].to_numpy()[owner]
    frame["row"] = (np.arange(len(rows.owner)) - rows.start[rows.owner])[drafted]
    frame["depth"] = rows.depth[drafted]
    frame["rank"] = np.nan_to_num(of("rank"), nan=NOT_KNOWN).astype(np.int64)
    frame["q"] = of("q")
    frame["path_q"] = np.exp(np.minimum(_path_log_q(part), 0.0))[drafted]
    frame["p"] = of("p")
    frame["reached"] = rows.accepted[rows.parent][drafted]
    frame["accepted"] = rows.accepted[drafted]
    frame["cause"] = _causes(part)[drafted]
    frame["token_class"] = _classes(part, rows.tokens[drafted], owner)
    return frame


def _hindsight(part: RecordedPart) -> Frame:
    """A line per round that recorded lists (see ``analysis.measures.hindsight``)."""
    names = ("run", "round", "accepted", "marginal", "listed", "possible")
    lines = [
        {"run": run, "round": number, **vars(found)}
        for run, trace in enumerate(part.traces)
        for number, found in hindsight.of_trace(trace)
    ]
    frame: Frame = pd.DataFrame(lines, columns=list(names))
    return frame.astype(dict.fromkeys(names, np.int64) | {"marginal": float})


_MAKERS: Mapping[Name, Callable[[RecordedPart], Frame]] = {
    "rounds": _rounds,
    "positions": _positions,
    "nodes": _nodes,
    "hindsight": _hindsight,
}


def _causes(part: RecordedPart) -> pd.Categorical:
    """``Round.why`` of every row at once (a test holds them equal)."""
    rows, rounds = part.rows, part.frame("rounds")
    ends = rows.start + rounds["stop_row"].to_numpy()
    stop = rounds["stop"].cat.codes.to_numpy()[rows.owner]
    conditions = [rows.accepted, ~rows.accepted[rows.parent], rows.parent == ends[rows.owner]]
    codes = [CAUSES.index(Cause.ACCEPTED), CAUSES.index(Cause.UNREACHED), stop]
    found = np.select(conditions, codes, CAUSES.index(Cause.OUTRANKED))
    return pd.Categorical.from_codes(found, pd.Index(CAUSES, dtype=object))


def _path_log_q(part: RecordedPart) -> Array:
    """Σ log q from the root to every row, level by level; NaN where one is not a finite number."""
    rows, records = part.rows, part.records
    log_q = joined([r.draft.log_q for r in records], float)
    log_q[~np.isfinite(log_q)] = np.nan
    log_q[rows.start] = 0.0
    order = np.argsort(rows.depth, kind="stable")
    levels = np.flatnonzero(np.diff(rows.depth[order], append=-1)) + 1
    for low, high in pairwise(levels.tolist()):
        level = order[low:high]
        log_q[level] += log_q[rows.parent[level]]
    return log_q


def _classes(part: RecordedPart, tokens: Array, owner: Array) -> pd.Categorical:
    """The sort of every token, by its text in the round that mentions it (once per run)."""
    names = pd.Index(CLASSES, dtype=object)
    if not len(tokens):
        return pd.Categorical.from_codes([], names)
    runs = part.run_numbers[owner]
    _, first, place = np.unique((runs << 32) | tokens, return_index=True, return_inverse=True)
    texts = [part.records[owner[i]].texts.get(int(tokens[i])) for i in first]
    codes = np.array([CLASSES.index(token_class(text)) for text in texts])
    return pd.Categorical.from_codes(codes[place], names)
