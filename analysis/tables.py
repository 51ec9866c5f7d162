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

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, wraps
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Literal, ParamSpec

import numpy as np
import pandas as pd

from analysis.tokens import CLASSES, token_class
from core.rounds.draft import Array
from core.rounds.round import (
    ACCEPTED,
    BEYOND,
    NO_DRAFT,
    OUTRANKED,
    OUTSIDE,
    PRUNED,
    UNREACHED,
    Probe,
    Round,
    Times,
)
from core.traces.schema import Header, Trace

By = Literal["method", "run"]
Frame = Any  # inside our functions: pandas has no types that a checker can follow
FATES = (ACCEPTED, OUTRANKED, PRUNED, OUTSIDE, BEYOND, NO_DRAFT, UNREACHED)
STAGES = tuple(f.name for f in fields(Times))
WIDEST = 16  # coverage C_K, K = 1 … 16
COVERAGE = tuple(f"coverage_{k}" for k in range(1, WIDEST + 1))
STOPPED, LIMITED, INTERRUPTED = "stop token", "token limit", "interrupted"
_LABEL, _PROMPT = 60, 80  # characters that a label takes, and a prompt's beginning

P = ParamSpec("P")


def documented(make: Callable[P, pd.DataFrame]) -> Callable[P, pd.DataFrame]:
    """Give a table its docstring along: ``attrs["about"]`` = {"table": …, "columns": {name: …}}.

    In the docstring a column is a line of its name, two blanks and its unit and meaning;
    ``method`` stands for ``run`` too, and ``coverage_K`` for all of them.
    """
    about, columns = _read(inspect.getdoc(make) or "")

    @wraps(make)
    def made(*args: P.args, **more: P.kwargs) -> pd.DataFrame:
        frame = make(*args, **more)
        told = {}
        for name in map(str, frame.columns):
            known = "coverage_K" if name in COVERAGE else name
            told[name] = columns.get(known, columns["method"] if name == "run" else "")
        frame.attrs = {"about": {"table": about, "columns": told}}
        return frame

    return made


def _read(doc: str) -> tuple[str, dict[str, str]]:
    """A docstring's prose, and its columns with what is said of them."""
    prose: list[str] = []
    columns: dict[str, str] = {}
    last = ""
    for line in doc.splitlines():
        found = re.match(r"([\w, ]*\w)  +(\S.*)", line)
        if found:
            last = found[1]
            columns |= dict.fromkeys(last.split(", "), found[2])
        elif last and line.startswith("    "):
            for name in last.split(", "):
                columns[name] += " " + line.strip()
        elif line.strip():
            last = ""
            prose.append(line.strip())
    return " ".join(prose), columns


def is_tree(record: Round) -> bool:
    """Whether a round drafted a tree. A denoising round's graph has several parents and edits a
    node: it has no depth, rank or path in the sense of these tables, which leave it out."""
    return record.block is None and not record.draft.links


@dataclass(frozen=True, eq=False)
class _Flat:
    """All rounds' drafts, row after row. ``start`` is each round's root among the rows."""

    start: Array  # int [R]
    owner: Array  # int [N] the round of each row
    parent: Array  # int [N] row of the parent; the root's is itself
    accepted: Array  # bool [N]
    path: Array  # int [P] rows of all accepted paths, roots included
    walker: Array  # int [P] the round of each of them


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of some traces, by the names they are called by. Each is made when first read."""

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
        """What each run is called in tables over methods (see ``method_labels``)."""
        return method_labels({name: trace.header for name, trace in self.traces.items()})

    @cached_property
    def _kept(self) -> list[tuple[int, Round]]:
        """(number of the run, round) of every round that decoded something with a tree."""
        return [
            (number, record)
            for number, trace in enumerate(self.traces.values())
            for record in trace.rounds
            if record.committed and is_tree(record)
        ]

    @cached_property
    def _flat(self) -> _Flat:
        drafts = [record.draft for _, record in self._kept]
        sizes = np.array([len(draft) for draft in drafts], np.int64)
        start = np.cumsum(sizes) - sizes
        owner = np.repeat(np.arange(len(drafts)), sizes)
        parent = _joined([d.parents for d in drafts], np.int64) + start[owner]
        parent[start] = start
        paths = [np.array(r.verdict.path, np.int64) for _, r in self._kept]
        walker = np.repeat(np.arange(len(paths)), np.array([len(p) for p in paths], np.int64))
        path = _joined(paths, np.int64) + start[walker]
        accepted = np.zeros(len(owner), bool)
        accepted[path] = True
        return _Flat(start, owner, parent, accepted, path, walker)

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

    def _named(self, numbers: Array) -> dict[str, pd.Categorical]:
        """The columns run and method of some lines, from the numbers of their runs."""
        labels = list(self.labels.values())
        kinds = list(dict.fromkeys(labels))
        codes = np.array([kinds.index(label) for label in labels], np.int64)
        return {
            "run": pd.Categorical.from_codes(numbers, pd.Index(list(self.traces), dtype=object)),
            "method": pd.Categorical.from_codes(
                codes[numbers] if len(numbers) else numbers, pd.Index(kinds, dtype=object)
            ),
        }


# ── runs and rounds ──────────────────────────────────────────────────────────────────────────────


def method_labels(headers: Mapping[str, Header]) -> dict[str, str]:
    """A label for each run: method and budget, and of the rest what its method's runs differ in.

    Runs with one label are put together by tables over methods; they differ in the prompt and seed.
    Labels that would be the same only because they are cut short are numbered.
    """
    told = {name: _setting(header) for name, header in headers.items()}
    shared: dict[str, set[tuple[str, str]]] = {}  # by method: what all of its runs have
    for setting in told.values():
        items, method = set(setting.items()), setting["method"]
        shared[method] = shared.get(method, items) & items
    labels = {}
    for name, setting in told.items():
        words = [setting["method"]]
        words += [f"B={setting['B']}"] if "B" in setting else []
        words += [
            f"{key}={value}" for key, value in setting.items()
            if key not in ("method", "B") and (key, value) not in shared[setting["method"]]
        ]  # fmt: skip
        labels[name] = " ".join(" ".join(words).split())
    short = _cut(dict.fromkeys(labels.values()))
    return {name: short[label] for name, label in labels.items()}


def _cut(labels: Iterable[str]) -> dict[str, str]:
    """Each label in at most ``_LABEL`` characters, and no two the same."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for label in sorted(labels, key=lambda label: len(label) > _LABEL):  # whole ones as they are
        short, number = label[:_LABEL].rstrip(), 1
        while short in taken:
            number += 1
            ending = f" #{number}"
            short = label[: _LABEL - len(ending)].rstrip() + ending
        taken.add(short)
        found[label] = short
    return found


def _setting(header: Header) -> dict[str, str]:
    """What makes two runs two methods, as text."""
    settings, method = header.settings, header.method
    found = {"method": PurePath(method).stem if method.endswith(".py") else method}
    if type(settings.get("budget")) is int and header.method != "ar":
        found["B"] = str(settings["budget"])
    options = settings.get("options")
    for key, value in options.items() if isinstance(options, dict) else ():
        found[str(key)] = str(value)
    rule = sampling(header)
    found["T"] = f"{rule['temperature']:g}"
    found |= {"target": str(header.model.get("name", "")), "top-k": str(rule["top_k"])}
    return found | {"top-p": str(rule["top_p"]), "drafter": str(header.drafter.get("sha256", ""))}


def sampling(header: Header) -> dict[str, Any]:
    """The rule for the target's own tokens: at temperature 0 nothing but that decides. A denoising
    run has it among its settings."""
    given = header.settings.get("sampling", header.settings)
    given = given if isinstance(given, Mapping) else {}
    warm = _number(given.get("temperature"))
    if not warm:
        return {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0}
    top_p = _number(given.get("top_p")) or 1.0
    seed = given.get("seed", header.seed)
    return {
        "temperature": warm, "top_k": int(_number(given.get("top_k"))), "top_p": top_p,
        "seed": seed if type(seed) is int else header.seed,
    }  # fmt: skip


def _number(value: Any) -> float:
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if known and abs(value) < 1e9 else 0.0


def text_key(header: Header) -> str:
    """Short name of the text a run writes, if nobody interrupts it: two runs with one key write the
    same text, however they draft. Target, tokenizer, prompt, how many tokens are wanted, and the
    sampling rule with its seed decide it; so does what they are computed in and on, for the two
    best tokens may nearly tie; and of a denoising run in which steps it goes."""
    settings = header.settings
    parts = [
        header.model.get("name"), header.model.get("revision"), header.tokenizer_hash,
        header.prompt_text, header.prompt_ids, sampling(header), _limit(header),
        header.dtype, header.device.partition(":")[0],
        [settings.get(name) for name in ("block", "pace", "go_on")],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12]


def _limit(header: Header) -> Any:
    """The most new tokens the text may have; a denoising run calls it the text's length."""
    return header.settings.get("max_new_tokens", header.settings.get("length"))


@documented
def _runs(tables: Tables) -> pd.DataFrame:
    """One line per run.

    run                the name it was given
    method             method, budget and what else tells these runs apart
    text               key of the text that a whole run writes: equal for runs of one target,
        prompt, token limit, sampling, seed, dtype and kind of device
    prompt             the prompt's first 80 characters
    temperature        of the target's rule; 0 is greedy
    seed               of the target's rule; 0 when greedy, where it decides nothing
    ended              by a stop token, the token limit, or interrupted (no footer)
    rounds             rounds that committed tokens and drafted a tree or nothing (plain decoding)
    left_out           rounds in no other table: denoising rounds, texts that ended at once
    tokens             new tokens of the text, the first (prefill's own) included
    committed          tokens committed by the rounds
    accepted           accepted drafted nodes
    cut                verified tokens beyond the text's end: Σ (accepted + 1) − committed
    tau                Σ (accepted + 1) ÷ rounds, tokens per round
    wall_seconds       s, prefill to the last token, as the footer says; NaN when it does not
    stage_seconds      s, Σ of all stages of all rounds, without prefill
    tokens_per_second  tokens ÷ wall_seconds, prefill included
    round_pace         committed ÷ stage_seconds in tokens/s, prefill left out
    """
    rounds = tables.rounds
    by = rounds.groupby("run", observed=False)
    names = list(tables.traces)
    frame: Frame = pd.DataFrame(tables._named(np.arange(len(names), dtype=np.int64)))
    headers = [trace.header for trace in tables.traces.values()]
    rules = [sampling(header) for header in headers]
    frame["text"] = _text([text_key(header) for header in headers])
    frame["prompt"] = _text([header.prompt_text[:_PROMPT] for header in headers])
    frame["temperature"] = [float(rule["temperature"]) for rule in rules]
    frame["seed"] = [int(rule["seed"]) for rule in rules]
    frame["ended"] = _text([_ended(trace) for trace in tables.traces.values()])
    frame["rounds"] = by.size().to_numpy()
    frame["left_out"] = [len(t.rounds) for t in tables.traces.values()] - frame["rounds"]
    frame["tokens"] = [_tokens(trace) for trace in tables.traces.values()]
    for name in ("committed", "accepted"):
        frame[name] = by[name].sum().to_numpy()
    frame["cut"] = frame["accepted"] + frame["rounds"] - frame["committed"]
    count = frame["rounds"].where(frame["rounds"] > 0)
    frame["tau"] = (frame["accepted"] + count) / count
    frame["wall_seconds"] = [_wall(trace) for trace in tables.traces.values()]
    frame["stage_seconds"] = by[list(STAGES)].sum().sum(axis=1).to_numpy()
    frame["tokens_per_second"] = frame["tokens"] / frame["wall_seconds"]
    seconds = frame["stage_seconds"].where(frame["stage_seconds"] > 0)
    frame["round_pace"] = frame["committed"] / seconds
    return frame.astype(dict.fromkeys(("rounds", "left_out", "tokens"), np.int64))


def _tokens(trace: Trace) -> int:
    first = any(is_tree(record) for record in trace.rounds[:1])  # prefill's own token
    return sum(len(r.committed) for r in trace.rounds) + first


def _ended(trace: Trace) -> str:
    if not trace.complete:
        return INTERRUPTED
    return LIMITED if _tokens(trace) == _limit(trace.header) else STOPPED


def _wall(trace: Trace) -> float:
    seconds = (trace.footer or {}).get("wall_seconds")
    return max(0.0, _number(seconds)) or np.nan


@documented
def _rounds(tables: Tables) -> pd.DataFrame:
    """One line per round that committed tokens with a tree, or with nothing drafted.

    run           the run's name
    method        the run's label
    round         the round's number within the run, from 1
    position      absolute position of the root token, prompt included
    nodes         drafted nodes, the root left out
    depths        L, drafted depths: those proposed, or the tree's where the record does not say
    accepted      accepted drafted nodes
    committed     tokens added to the text: accepted + 1, or fewer where the text ended
    cut           accepted + 1 − committed
    surrogate     Σ of the path probabilities of all nodes: what q expected to be accepted
    stop          why the walk ended: the names of core.types
    stop_row      row of the draft where it ended (0 is the root)
    token_class   sort of the target's token there (see analysis.tokens)
    draft, build, verify, commit  s in that stage
    """
    kept, flat = [record for _, record in tables._kept], tables._flat
    frame: Frame = pd.DataFrame(tables._named(_numbers_of_runs(tables)))
    frame["round"] = _ints(r.number for r in kept)
    frame["position"] = _ints(r.position for r in kept)
    frame["nodes"] = _ints(r.draft.nodes for r in kept)
    frame["depths"] = _ints(drafted_depths(r) for r in kept)
    frame["accepted"] = _ints(r.accepted for r in kept)
    frame["committed"] = _ints(len(r.committed) for r in kept)
    frame["cut"] = frame["accepted"] + 1 - frame["committed"]
    chances = np.exp(np.minimum(_path_log_q(tables), 0.0))
    chances[flat.start] = 0.0
    frame["surrogate"] = np.bincount(flat.owner, chances, len(kept))
    frame["stop"] = _sorted([r.stop_reason for r in kept], FATES)
    frame["stop_row"] = _ints(r.verdict.path[-1] for r in kept)
    bonus = _ints(r.verdict.bonus for r in kept)
    frame["token_class"] = _classes(tables, bonus, np.arange(len(kept)))
    for stage in STAGES:
        frame[stage] = np.array([getattr(r.times, stage) for r in kept], float)
    return frame


def drafted_depths(record: Round) -> int:
    """L: the depths the drafter proposed; without that in the record, the tree's own."""
    proposed = 0 if record.candidates is None else len(record.candidates.ids)
    return max(proposed, int(record.draft.depths.max()))


# ── positions and nodes ──────────────────────────────────────────────────────────────────────────


@documented
def _positions(tables: Tables) -> pd.DataFrame:
    """One line per observed position of a round (its parent was accepted), never more.

    run           the run's name
    method        the run's label
    round         the round's number within the run, from 1
    depth         1 … L
    tested        whether anything was drafted there, so that it could be accepted
    accepted      whether the target's token there was drafted, hence accepted
    in_text       whether that token stands in the text, not beyond its end
    rank          of the target's token among the drafter's, 1 = best: the drafted node's, else its
        place among the candidates, else the probe's over the vocabulary; NaN: not recorded
    outside       whether the token was none of the candidates
    parent_rank   rank of the accepted node above; 1 at depth 1, whose parent is the root
    spine         whether all accepted nodes above are the drafter's best: its rank-1 chain
    tvd           ½ Σ_v |q − p| over the vocabulary; NaN without probe
    entropy_q     entropy of q, nats; NaN without probe
    coverage_K    C_K, p of the drafter's K best tokens; NaN without probe
    """
    kept, flat, rounds = [r for _, r in tables._kept], tables._flat, tables.rounds
    accepted = rounds["accepted"].to_numpy()
    seen = np.minimum(accepted + 1, rounds["depths"].to_numpy())
    first = np.cumsum(accepted + 1) - accepted - 1  # each round's root among the paths' rows
    depth = np.arange(len(flat.path)) - first[flat.walker] + 1  # of the place behind each row
    there = depth <= seen[flat.walker]
    owner, depth, above = flat.walker[there], depth[there], flat.path[there]
    frame: Frame = pd.DataFrame(tables._named(_numbers_of_runs(tables)[owner]))
    frame["round"] = rounds["round"].to_numpy()[owner]
    frame["depth"] = depth
    parents = np.zeros(len(flat.owner), bool)
    parents[flat.parent[_behind(tables)]] = True
    frame["tested"] = parents[above]
    frame["accepted"] = depth <= accepted[owner]
    frame["in_text"] = depth <= rounds["committed"].to_numpy()[owner]
    ranks = _joined([r.draft.ranks for r in kept], np.int64)[flat.path]
    wanted, outside = _wanted(kept)
    frame["rank"] = np.where(
        depth <= accepted[owner], np.append(ranks[1:], 0)[there], wanted[owner]
    )
    frame["outside"] = (depth > accepted[owner]) & outside[owner]
    ranks[first] = 1
    left = np.cumsum(ranks != 1)  # siblings taken so far; the root is none
    frame["parent_rank"] = ranks[there]
    frame["spine"] = (left - left[first][flat.walker])[there] == 0
    frame["tvd"] = _probed(kept, seen, lambda probe: probe.tvd)
    frame["entropy_q"] = _probed(kept, seen, lambda probe: probe.entropy_q)
    covered = _probed(kept, seen, lambda probe: probe.coverage[:, :WIDEST], WIDEST)
    return pd.concat([frame, pd.DataFrame(covered, columns=list(COVERAGE))], axis=1)


def _wanted(kept: Sequence[Round]) -> tuple[Array, Array]:
    """Of the target's token where each round's walk ended: its rank, NaN if it is not recorded, and
    whether it was none of the candidates."""
    rank, outside = np.full(len(kept), np.nan), np.zeros(len(kept), bool)
    for at, record in enumerate(kept):
        offered = record.offered(record.verdict.path[-1])
        ids = np.empty(0) if offered is None else offered.ids
        found = np.flatnonzero(ids == record.verdict.bonus)
        outside[at] = offered is not None and not len(found)
        if len(found):
            rank[at] = found[0] + 1
        elif record.probe is not None and len(record.probe.rank_q) > record.accepted:
            rank[at] = record.probe.rank_q[record.accepted]
    return rank, outside


@documented
def _nodes(tables: Tables) -> pd.DataFrame:
    """One line per drafted node; roots are left out.

    run          the run's name
    method       the run's label
    round        the round's number within the run, from 1
    row          of the draft, 1 … B
    depth        1 … L
    rank         the drafter's rank of the token at that place, 1 = best
    q            the drafter's probability of the token at that place (TreeFlash: q′)
    path_q       product of q along the path; never the builder's score. NaN where a q is unknown
    p            the target's probability of the token given its path; NaN without beliefs
    reached      whether the parent was accepted: only then is the node observed
    accepted     whether the target's own text runs through it
    fate         why its branch lived or died: the names of core.types
    token_class  sort of the node's token (see analysis.tokens)
    """
    kept, flat = [record for _, record in tables._kept], tables._flat
    behind = _behind(tables)
    owner = flat.owner[behind]
    frame: Frame = pd.DataFrame(tables._named(_numbers_of_runs(tables)[owner]))
    frame["round"] = tables.rounds["round"].to_numpy()[owner]
    frame["row"] = (np.arange(len(flat.owner)) - flat.start[flat.owner])[behind]
    frame["depth"] = _joined([r.draft.depths for r in kept], np.int64)[behind]
    frame["rank"] = _joined([r.draft.ranks for r in kept], np.int64)[behind]
    log_q = _joined([r.draft.log_q for r in kept], float)[behind]
    frame["q"] = np.exp(np.minimum(log_q, 0.0))
    frame["path_q"] = np.exp(np.minimum(_path_log_q(tables), 0.0))[behind]
    nothing = np.full(max((len(r.draft) for r in kept), default=0), np.nan)
    log_p = [r.target_probs.log_p if r.target_probs else nothing[: len(r.draft)] for r in kept]
    frame["p"] = np.exp(_joined(log_p, float)[behind])
    frame["reached"] = flat.accepted[flat.parent][behind]
    frame["accepted"] = flat.accepted[behind]
    frame["fate"] = _fates(tables)[behind]
    tokens = _joined([r.draft.tokens for r in kept], np.int64)[behind]
    frame["token_class"] = _classes(tables, tokens, owner)
    return frame


def _fates(tables: Tables) -> pd.Categorical:
    """``Round.why`` of every row at once (a test holds them equal)."""
    flat = tables._flat
    ends = flat.start + tables.rounds["stop_row"].to_numpy()
    stop = tables.rounds["stop"].cat.codes.to_numpy()[flat.owner]
    conditions = [flat.accepted, ~flat.accepted[flat.parent], flat.parent == ends[flat.owner]]
    codes = [FATES.index(ACCEPTED), FATES.index(UNREACHED), stop]
    found = np.select(conditions, codes, FATES.index(OUTRANKED))
    return pd.Categorical.from_codes(found, pd.Index(FATES, dtype=object))


def _path_log_q(tables: Tables) -> Array:
    """Σ log q from the root to every row, level by level; NaN where one is not a finite number."""
    flat, kept = tables._flat, [record for _, record in tables._kept]
    log_q = _joined([r.draft.log_q for r in kept], float)
    log_q[~np.isfinite(log_q)] = np.nan
    log_q[flat.start] = 0.0
    depths = _joined([r.draft.depths for r in kept], np.int64)
    order = np.argsort(depths, kind="stable")
    levels = np.flatnonzero(np.diff(depths[order], append=-1)) + 1
    for low, high in pairwise(levels.tolist()):
        rows = order[low:high]
        log_q[rows] += log_q[flat.parent[rows]]
    return log_q


# ── small things ─────────────────────────────────────────────────────────────────────────────────


def _behind(tables: Tables) -> Array:
    """bool [N]: which rows are drafted nodes, not roots."""
    drafted = np.ones(len(tables._flat.owner), bool)
    drafted[tables._flat.start] = False
    return drafted


def _numbers_of_runs(tables: Tables) -> Array:
    return np.array([number for number, _ in tables._kept], np.int64)


def _classes(tables: Tables, tokens: Array, owner: Array) -> pd.Categorical:
    """The sort of every token, its text asked of the round that mentions it (once per run)."""
    names = pd.Index(CLASSES, dtype=object)
    if not len(tokens):
        return pd.Categorical.from_codes([], names)
    runs = _numbers_of_runs(tables)[owner]
    _, first, place = np.unique((runs << 32) | tokens, return_index=True, return_inverse=True)
    texts = [tables._kept[owner[i]][1].texts.get(int(tokens[i])) for i in first]
    codes = np.array([CLASSES.index(token_class(text)) for text in texts])
    return pd.Categorical.from_codes(codes[place], names)


def _probed(
    kept: Sequence[Round], seen: Array, read: Callable[[Probe], Array], width: int = 0
) -> Array:
    """A probe's numbers at the observed positions [P] or [P, width]; NaN where there are none."""
    found = np.full((int(seen.sum()), width) if width else int(seen.sum()), np.nan)
    at = 0
    for record, count in _pairs(kept, seen):
        if record.probe is not None:
            values = read(record.probe)[:count]
            found[(slice(at, at + len(values)), *(slice(n) for n in values.shape[1:]))] = values
        at += count
    return found


def _pairs(kept: Sequence[Round], seen: Array) -> zip:  # type: ignore[type-arg]
    return zip(kept, seen.tolist(), strict=True)


def _joined(parts: Sequence[Array], dtype: Any) -> Array:
    return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)


def _ints(values: Any) -> Array:
    return np.fromiter(values, np.int64)


def _text(values: list[str]) -> pd.Series:
    return pd.Series(values, dtype=object)


def _sorted(values: Sequence[str], names: Sequence[str]) -> pd.Categorical:
    return pd.Categorical(list(values), pd.Index(names, dtype=object))
