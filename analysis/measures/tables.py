"""The base tables: what traces hold, as DataFrames every measure is computed from. Never torch.

One ``Tables`` reads one trace or many, once. Its four tables go from coarse to fine: ``runs``,
``rounds``, ``positions`` (what the target saw along its own text) and ``nodes`` (what was drafted).

Observed positions. A round observes depth d when the position's parent was accepted, d = 1 …
accepted + 1, at most L drafted depths. Everything deeper is unobserved and has no line: it is never
counted as rejected. The end of a text changes nothing in that: the target verified the whole
accepted path, so all of it counts, as it does in τ; what the text's end (a stop token, the token
limit) cut off is marked ``in_text`` False, to be left out by ``positions[positions.in_text]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis import labels
from analysis.frames import COVERAGE, WIDEST, Frame, declared
from analysis.measures.observed import Observed, Rows, ints, joined
from analysis.measures.tokens import CLASSES, script, token_class
from core.rounds.causes import Cause
from core.rounds.draft import Array, Draft
from core.rounds.round import Round
from core.traces.schema import STAGES, Trace

# of trees, in the order in which they are shown
CAUSES = tuple(
    cause.value
    for cause in Cause
    if cause not in (Cause.NOT_IN_GRAPH, Cause.BLOCK_DONE, Cause.SIDE)
)
STOPPED, LIMITED, INTERRUPTED = "stop token", "token limit", "interrupted"
_PROMPT = 80  # characters of a prompt's beginning


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of some traces, by name. Each is made when it is first read."""

    traces: Mapping[str, Trace]

    @staticmethod
    def of(traces: Trace | Sequence[Trace] | Mapping[str, Trace]) -> Tables:
        """From one trace, several ("run 1", "run 2" …) or several with names."""
        if isinstance(traces, Mapping):
            return Tables(dict(traces))
        some = [traces] if isinstance(traces, Trace) else list(traces)
        return Tables({f"run {number}": trace for number, trace in enumerate(some, 1)})

    @cached_property
    def labels(self) -> dict[str, str]:
        """Each run's label in tables over methods (see ``labels.method_labels``)."""
        return labels.method_labels({name: trace.header for name, trace in self.traces.items()})

    @cached_property
    def runs(self) -> Frame:
        return _runs(self)

    @cached_property
    def rounds(self) -> Frame:
        return _rounds(self)

    @cached_property
    def positions(self) -> Frame:
        return _positions(self)

    @cached_property
    def nodes(self) -> Frame:
        return _nodes(self)

    @cached_property
    def _numbered(self) -> list[tuple[int, Round]]:
        """(number of the run, round) of every sound round that committed tokens with a tree."""
        return [
            (number, record)
            for number, trace in enumerate(self.traces.values())
            for record in trace.sound
            if record.committed and is_tree(record)
        ]

    @cached_property
    def _records(self) -> list[Round]:
        return [record for _, record in self._numbered]

    @cached_property
    def _run_numbers(self) -> Array:
        return np.array([number for number, _ in self._numbered], np.int64)

    @cached_property
    def _rows(self) -> Rows:
        return Rows.of(self._records)

    def _frame(self, owner: Array | None = None) -> Frame:
        """A table with the columns run and method, for lines that belong to these rounds."""
        numbers = self._run_numbers if owner is None else self._run_numbers[owner]
        return self._frame_of_runs(numbers)

    def _frame_of_runs(self, numbers: Array) -> Frame:
        names, methods = list(self.traces), list(self.labels.values())
        kinds = list(dict.fromkeys(methods))
        codes = np.array([kinds.index(method) for method in methods], np.int64)
        columns = {"run": (numbers, names), "method": (codes[numbers], kinds)}
        return pd.DataFrame(
            {
                column: pd.Categorical.from_codes(values, pd.Index(known, dtype=object))
                for column, (values, known) in columns.items()
            }
        )


def is_tree(record: Round) -> bool:
    """Whether a round drafted a tree, or nothing. The tables leave denoising rounds out: the nodes
    of a draft graph have no depth, rank or path in their sense."""
    return record.block is None and isinstance(record.draft, Draft)


# ── runs and rounds ──────────────────────────────────────────────────────────────────────────────


@declared("runs")
def _runs(tables: Tables) -> pd.DataFrame:
    """One line per run."""
    rounds, traces = tables.rounds, list(tables.traces.values())
    by = rounds.groupby("run", observed=False)
    frame = tables._frame_of_runs(np.arange(len(traces), dtype=np.int64))
    headers = [trace.header for trace in traces]
    rules = [labels.sampling(header) for header in headers]
    frame["text"] = _text([labels.text_key(header) for header in headers])
    frame["prompt"] = _text([header.prompt_text[:_PROMPT] for header in headers])
    frame["temperature"] = [rule.temperature for rule in rules]
    frame["seed"] = [rule.seed for rule in rules]
    frame["ended"] = _text([_ended(trace) for trace in traces])
    frame["rounds"] = by.size().to_numpy()
    frame["left_out"] = [len(trace.rounds) for trace in traces] - frame["rounds"]
    frame["tokens"] = [_tokens(trace) for trace in traces]
    for name in ("committed", "accepted"):
        frame[name] = by[name].sum().to_numpy()
    frame["cut"] = frame["accepted"] + frame["rounds"] - frame["committed"]
    count = frame["rounds"].where(frame["rounds"] > 0)
    frame["tau"] = (frame["accepted"] + count) / count
    frame["wall_seconds"] = [_wall_seconds(trace) for trace in traces]
    frame["stage_seconds"] = by[list(STAGES)].sum().sum(axis=1).to_numpy()
    frame["tokens_per_second"] = frame["tokens"] / frame["wall_seconds"]
    seconds = frame["stage_seconds"].where(frame["stage_seconds"] > 0)
    frame["round_pace"] = frame["committed"] / seconds
    kinds = {"temperature": float} | dict.fromkeys(("seed", "rounds", "left_out", "tokens"), int)
    return frame.astype(kinds)


def _tokens(trace: Trace) -> int:
    first = any(is_tree(record) for record in trace.rounds[:1])  # prefill's own token
    return sum(len(r.committed) for r in trace.sound) + first


def _ended(trace: Trace) -> str:
    if not trace.complete:
        return INTERRUPTED
    return LIMITED if _tokens(trace) == labels.token_limit(trace.header) else STOPPED


def _wall_seconds(trace: Trace) -> float:
    if trace.mark:  # seconds of what, is not known
        return np.nan
    seconds = (trace.footer or {}).get("wall_seconds")
    return max(0.0, labels.number(seconds)) or np.nan


@declared("rounds")
def _rounds(tables: Tables) -> pd.DataFrame:
    """One line per round that committed tokens with a tree, or with nothing drafted."""
    records, rows = tables._records, tables._rows
    frame = tables._frame()
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
    chances = np.where(rows.drafted, np.exp(np.minimum(_path_log_q(tables), 0.0)), 0.0)
    frame["surrogate"] = np.bincount(rows.owner, chances, len(records))
    stops = [r.stop_reason.value for r in records]
    frame["stop"] = pd.Categorical(stops, pd.Index(CAUSES, dtype=object))
    frame["stop_row"] = ints(r.verdict.path[-1] for r in records)
    bonus = ints(r.verdict.bonus for r in records)
    frame["token_class"] = _classes(tables, bonus, np.arange(len(records)))
    for stage in STAGES:
        frame[stage] = np.array([getattr(r.times, stage) for r in records], float)
    return frame


# ── positions and nodes ──────────────────────────────────────────────────────────────────────────


@declared("positions")
def _positions(tables: Tables) -> pd.DataFrame:
    """One line per observed position of a round (its parent was accepted), never more."""
    at = Observed.of(tables._rows, tables.rounds["depths"].to_numpy())
    tokens = at.target_tokens
    frame = tables._frame(at.owner)
    frame["round"] = tables.rounds["round"].to_numpy()[at.owner]
    frame["depth"] = at.depth
    frame["tested"] = tables._rows.has_children[at.above]
    frame["accepted"] = at.accepted
    frame["in_text"] = at.depth <= tables.rounds["committed"].to_numpy()[at.owner]
    frame["rank"], frame["outside"] = at.target_ranks
    frame["best"] = at.best
    frame["parent_rank"], frame["spine"] = at.ranks_above
    frame["tvd"] = at.probed(lambda probe: probe.tvd)
    frame["entropy_q"] = at.probed(lambda probe: probe.entropy_q)
    frame["token_class"] = _classes(tables, tokens, at.owner)
    frame["script"] = _scripts(tables, tokens, at.owner)
    covered = at.probed(lambda probe: probe.coverage[:, :WIDEST], WIDEST)
    return pd.concat([frame, pd.DataFrame(covered, columns=list(COVERAGE))], axis=1)


def _scripts(tables: Tables, tokens: Array, owner: Array) -> pd.Series:
    """The script of every token, by its text in the round that mentions it."""
    texts = [
        tables._records[record].texts.get(token, "")
        for record, token in zip(owner.tolist(), tokens.tolist(), strict=True)
    ]
    scripts = {text: script(text) for text in set(texts)}
    return _text([scripts[text] for text in texts])


@declared("nodes")
def _nodes(tables: Tables) -> pd.DataFrame:
    """One line per drafted node, without roots and rows that are never accepted."""
    records, rows = tables._records, tables._rows
    drafted, owner = rows.drafted, rows.owner[rows.drafted]

    columns = [record.nodes() for record in records]

    def of(name: str) -> Array:
        """A number of every drafted node."""
        return joined([getattr(nodes, name) for nodes in columns], float)[drafted]

    frame = tables._frame(owner)
    frame["round"] = tables.rounds["round"].to_numpy()[owner]
    frame["row"] = (np.arange(len(rows.owner)) - rows.start[rows.owner])[drafted]
    frame["depth"] = rows.depth[drafted]
    frame["rank"] = of("rank").astype(np.int64)
    frame["q"] = of("q")
    frame["path_q"] = np.exp(np.minimum(_path_log_q(tables), 0.0))[drafted]
    frame["p"] = of("p")
    frame["reached"] = rows.accepted[rows.parent][drafted]
    frame["accepted"] = rows.accepted[drafted]
    frame["cause"] = _causes(tables)[drafted]
    frame["token_class"] = _classes(tables, rows.tokens[drafted], owner)
    return frame


def _causes(tables: Tables) -> pd.Categorical:
    """``Round.why`` of every row at once (a test holds them equal)."""
    rows = tables._rows
    ends = rows.start + tables.rounds["stop_row"].to_numpy()
    stop = tables.rounds["stop"].cat.codes.to_numpy()[rows.owner]
    conditions = [rows.accepted, ~rows.accepted[rows.parent], rows.parent == ends[rows.owner]]
    codes = [CAUSES.index(Cause.ACCEPTED), CAUSES.index(Cause.UNREACHED), stop]
    found = np.select(conditions, codes, CAUSES.index(Cause.OUTRANKED))
    return pd.Categorical.from_codes(found, pd.Index(CAUSES, dtype=object))


def _path_log_q(tables: Tables) -> Array:
    """Σ log q from the root to every row, level by level; NaN where one is not a finite number."""
    rows, records = tables._rows, tables._records
    log_q = joined([r.draft.log_q for r in records], float)
    log_q[~np.isfinite(log_q)] = np.nan
    log_q[rows.start] = 0.0
    order = np.argsort(rows.depth, kind="stable")
    levels = np.flatnonzero(np.diff(rows.depth[order], append=-1)) + 1
    for low, high in pairwise(levels.tolist()):
        level = order[low:high]
        log_q[level] += log_q[rows.parent[level]]
    return log_q


def _classes(tables: Tables, tokens: Array, owner: Array) -> pd.Categorical:
    """The sort of every token, by its text in the round that mentions it (once per run)."""
    names = pd.Index(CLASSES, dtype=object)
    if not len(tokens):
        return pd.Categorical.from_codes([], names)
    runs = tables._run_numbers[owner]
    _, first, place = np.unique((runs << 32) | tokens, return_index=True, return_inverse=True)
    texts = [tables._records[owner[i]].texts.get(int(tokens[i])) for i in first]
    codes = np.array([CLASSES.index(token_class(text)) for text in texts])
    return pd.Categorical.from_codes(codes[place], names)


def _text(values: list[str]) -> pd.Series:
    return pd.Series(values, dtype=object)
