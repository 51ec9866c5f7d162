"""Reading traces: a file's lines become rounds, every shape, range and reference checked.

Readers ignore fields they do not know, and open every older version.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from core.errors import UserError
from core.rounds.blocks import MASKED, Block, BlockDraft, Edit, Ranking, Step
from core.rounds.draft import NOT_ASKED, Array, Candidates, Draft, Proposal
from core.rounds.round import Probe, Round, TargetProbs, Times, Verdict
from core.traces.schema import (
    FORMAT,
    MAX_BLOCK,
    MAX_LINE,
    MAX_ROWS,
    MAX_STATES,
    VERSION,
    Header,
    Trace,
)


def read_trace(path: Path) -> Trace:
    """The whole trace. Raises UserError, with one sentence, for anything that is not one."""
    with _opened(path) as reader:
        return reader.trace()


def read_ends(path: Path) -> Trace:
    """The trace without its rounds, many times quicker. Raises UserError as ``read_trace`` does,
    but not for what a round holds."""
    with _opened(path) as reader:
        return reader.ends()


@contextmanager
def _opened(path: Path) -> Iterator[TraceReader]:
    try:
        with path.open("rb") as file:
            yield TraceReader(file, path.name)
    except OSError as error:
        raise UserError(f"the trace {path} cannot be read: {error.strerror or error}") from None


class TraceReader:
    """A trace being read from an open binary file, gzipped or not: its header at once, its rounds
    one by one as they are asked for, and after the last of them its footer, if it has one.

    ``name`` is for messages only. Raises UserError, with one sentence, for anything that is no
    trace, as soon as that is read.
    """

    def __init__(self, file: IO[bytes], name: str):
        self._name, self._lines = name, _lines(file, name)
        first = next(self._lines, None)
        if first is None:
            raise UserError(f"{name} is empty, not a trace")
        self.header = _header(_finite(first, name, 1), name)
        self.footer: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Round]:
        for number, line in self._rest():
            try:
                yield round_from_json(line)
            except _BadRound as why:
                raise UserError(f"{self._name}, line {number}: {why}") from None

    def _rest(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The rounds' lines with their numbers; the footer is kept on the way."""
        for number, line in enumerate(self._lines, 2):
            kind = line.get("kind")
            if kind == "footer":
                _finite(line, self._name, number)
                self.footer = {k: v for k, v in line.items() if k != "kind"}
            elif kind == "round":
                yield number, line

    def trace(self) -> Trace:
        """All of it."""
        rounds = tuple(self)
        return Trace(self.header, rounds, self.footer)

    def ends(self) -> Trace:
        """Header and footer alone; what the rounds hold is not looked at."""
        for _ in self._rest():
            pass
        return Trace(self.header, (), self.footer)


def _lines(file: IO[bytes], name: str) -> Iterator[dict[str, Any]]:
    """JSON objects line by line; an unfinished last line (a killed run) ends the file quietly."""
    magic = file.read(2)
    file.seek(0)
    # No BufferedReader around it: at a cut end that would drop whole lines it had read ahead.
    stream = gzip.GzipFile(fileobj=file) if magic == b"\x1f\x8b" else file  # type: ignore[arg-type]
    number = 0
    while True:
        try:
            line = stream.readline(MAX_LINE)
        except EOFError:
            return  # a gzip stream cut short: all whole lines have been given
        except (OSError, zlib.error):
            raise UserError(f"{name} is not a readable gzip file") from None
        number += 1
        if not line:
            return
        whole = line.endswith(b"\n")
        if not whole and len(line) >= MAX_LINE:
            raise UserError(f"{name}, line {number} is longer than a trace's lines can be")
        try:
            value = _value(line, exact=number == 1)
        except (ValueError, RecursionError):
            if not whole and number > 1:
                return
            raise UserError(f"{name}, line {number} is not JSON: not a trace") from None
        if not isinstance(value, dict):
            raise UserError(f"{name}, line {number} is not a JSON object: not a trace")
        yield value


def _value(line: bytes, exact: bool) -> Any:
    """A line's JSON: quickly, or with whole numbers of any size and halves of surrogate pairs."""
    if not exact:
        with suppress(ValueError, ImportError):
            import orjson  # quicker, and not needed: decoding runs where it is not installed

            return orjson.loads(line)
    return json.loads(line, parse_constant=_no_constant)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(line: dict[str, Any], name: str, number: int) -> dict[str, Any]:
    """The line, if all of it can be written again: 1e999 is JSON, but reads as infinity."""
    try:
        json.dumps(line, allow_nan=False)
    except (ValueError, RecursionError):
        raise UserError(f"{name}, line {number} holds a number beyond all range") from None
    return line


def _header(line: dict[str, Any], name: str) -> Header:
    if line.get("format") != FORMAT:
        raise UserError(f"{name} is not a Draftscope trace (no such format name in line 1)")
    version = line.get("version")
    if type(version) is not int or version < 1:
        raise UserError(f"{name} has no valid trace version")
    if version > VERSION:
        raise UserError(
            f"{name} is a version {version} trace; this Draftscope reads up to {VERSION}"
        )
    known: dict[str, Any] = {}
    for f in fields(Header):
        if f.name not in line:
            continue
        value, default = line[f.name], _HEADER_TYPES[f.name]
        if f.name == "prompt_ids":
            if not isinstance(value, list) or not all(_is_token(v) for v in value):
                raise UserError(f"{name}: the header's prompt_ids are not token ids")
            value = tuple(value)
        elif not isinstance(value, default) or isinstance(value, bool):
            raise UserError(f"{name}: the header's {f.name} is not a {default.__name__}")
        known[f.name] = value
    missing = [k for k in ("method", "prompt_text", "prompt_ids") if k not in known]
    if missing:
        raise UserError(f"{name}: the header has no {missing[0]}")
    known = {"settings": {}, "model": {}} | known
    return Header(**known)


_HEADER_TYPES: dict[str, type] = {
    "method": str, "settings": dict, "model": dict, "prompt_text": str, "prompt_ids": list,
    "seed": int, "drafter": dict, "tokenizer_hash": str, "dtype": str, "device": str,
    "created": str, "creator": dict, "libraries": dict, "metrics": dict,
}  # fmt: skip


# ── one round ───────────────────────────────────────────────────────────────────────────────────────


class _BadRound(Exception):
    """What is wrong with a round's line, as the end of a sentence."""


@np.errstate(over="ignore")  # a number beyond float32 is found where it reads as infinity
def round_from_json(line: Mapping[str, Any]) -> Round:
    """The Round of a trace line; every array's shape, range and reference is checked."""
    nodes = _mapping(line, "nodes")
    parents = _ints(nodes, "parents", None)
    count = len(parents)
    if not 1 <= count <= MAX_ROWS:
        raise _BadRound(f"{count} nodes")
    if parents[0] != -1 or any(not 0 <= p < row for row, p in enumerate(parents[1:], 1)):
        raise _BadRound("a node's parent does not stand before it")
    block = _block(line)
    depths = _ints(nodes, "depth", count)
    if depths[0] != 0 or any(
        d != depths[p] + 1 for d, p in zip(depths[1:], parents[1:], strict=True)
    ):
        raise _BadRound("a node's depth is not its parent's plus one")
    rows = {
        "tokens": np.array(_tokens(nodes, "token", count), np.int64),
        "parents": np.array(parents, np.int32),
        "depths": np.array(depths, np.int32),
        "ranks": np.array(_ints(nodes, "rank", count), np.int32),
        "log_q": _numbers(nodes, "log_q", (count,)),
        "scores": _numbers(nodes, "score", (count,)),
    }
    draft: Draft | BlockDraft
    if block is not None:
        links, edits = _graph(nodes, block)
        draft = BlockDraft(**rows, links=links, edits=edits)
    else:
        draft = Draft(
            **rows,
            notes={k: _numbers(line["notes"], k, (count,)) for k in _optional(line, "notes")},
            side=_side(line, parents),
            proposal=_proposal(line, rows["depths"]),
        )
    path = tuple(_ints(line, "path", None))
    if path[:1] != (0,) or any(
        not 0 < row < count or above not in draft.sources[row] for above, row in pairwise(path)
    ):
        raise _BadRound("the accepted path is no path from the root")
    if block is not None and len(block.steps) != len(path):
        raise _BadRound(f"{len(block.steps)} denoising steps for {len(path)} accepted rows")
    target_tokens = np.array(_ints(nodes, "choice", count), np.int64)
    drawn = _int(line, "drawn_bonus") if line.get("drawn_bonus") is not None else None
    return Round(
        index=_int(line, "index"),
        position=_int(line, "position"),
        draft=draft,
        verdict=Verdict(path, target_tokens, drawn),
        committed=tuple(_tokens(line, "committed", None)),
        target_probs=_target_probs(line, nodes, count),
        probe=_probe(line),
        times=_times(line),
        texts=_texts(line),
        block=block,
    )


def _block(line: Mapping[str, Any]) -> Block | None:
    """The block's state and steps; each step must stand on the state the steps before it left."""
    raw = _optional(line, "block")
    if not raw:
        return None
    state = np.array(_ints(raw, "state", None), np.int64)
    if not 1 <= len(state) <= MAX_BLOCK:
        raise _BadRound(f"a block of {len(state)} positions")
    listed = raw.get("steps")
    if not isinstance(listed, list) or not 1 <= len(listed) <= len(state):
        raise _BadRound("a block without denoising steps, or with more than positions")
    steps, after = [], state.copy()
    for value in listed:
        steps.append(_step(value, after))
        after[steps[-1].positions] = steps[-1].tokens
    return Block(_int(raw, "index"), _int(raw, "step"), state, tuple(steps))


def _step(value: Any, state: Array) -> Step:
    if not isinstance(value, dict):
        raise _BadRound("a denoising step is no object")
    positions = _ints(value, "position", None)
    if sorted(positions) != np.flatnonzero(state == MASKED).tolist():
        raise _BadRound("a denoising step does not rank the masked positions of its block")
    ids = _table(value, "token").astype(np.int64)
    if len(ids) != len(positions) or not ids.size:
        raise _BadRound("a denoising step has no tokens for its positions")
    count = _int(value, "count")
    if not 1 <= count <= len(positions):
        raise _BadRound(f"a denoising step unmasks {count} of {len(positions)} positions")
    ranking = Ranking(np.array(positions, np.int32), ids, _numbers(value, "p", ids.shape))
    return Step(ranking, count)


def _graph(
    nodes: Mapping[str, Any], block: Block
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[Edit, ...], ...]]:
    """A draft graph's links and edits: a row's edits hold all of each of its parents' edits."""
    raw_links, raw_edits = nodes.get("links"), nodes.get("edits")
    count = len(nodes["parents"])
    if not isinstance(raw_links, list) or not isinstance(raw_edits, list):
        raise _BadRound("a draft graph without links or edits")
    if len(raw_links) != count or len(raw_edits) != count or raw_links[0] or raw_edits[0]:
        raise _BadRound("links or edits do not fit the nodes")
    if count > MAX_STATES:
        raise _BadRound(f"a draft graph of {count} states")
    links: list[tuple[int, ...]] = [()]
    edits: list[tuple[Edit, ...]] = [()]
    sets = [frozenset[Edit]()]
    for row in range(1, count):
        parents = tuple(_ints({"links": raw_links[row]}, "links", None))
        if nodes["parents"][row] not in parents or not all(0 <= p < row for p in parents):
            raise _BadRound("a node's links do not stand before it")
        links.append(parents)
        edits.append(_edits(raw_edits[row], block))
        sets.append(frozenset(edits[row]))
        if len(set(parents)) != len(parents) or any(not sets[p] < sets[row] for p in parents):
            raise _BadRound("a node does not hold what its parents set")
    return tuple(links), tuple(edits)


def _edits(value: Any, block: Block) -> tuple[Edit, ...]:
    if not isinstance(value, list):
        raise _BadRound("edits are no list")
    edits = tuple(Edit(*_ints({"edits": edit}, "edits", 4)) for edit in value)
    positions = [edit.position for edit in edits]
    if len(set(positions)) != len(positions) or any(
        not 0 <= p < len(block.state) or block.state[p] != MASKED for p in positions
    ):
        raise _BadRound("a draft sets positions that are not masked in its block")
    if any(min(edit.token, edit.position_rank - 1, edit.token_rank - 1) < 0 for edit in edits):
        raise _BadRound("an edit holds a rank or token that cannot be")
    return edits


def _side(line: Mapping[str, Any], parents: list[int]) -> frozenset[int]:
    """Side rows; what hangs below one is one too."""
    if line.get("side") is None:
        return frozenset()
    side = frozenset(_ints(line, "side", None))
    if any(not 0 < row < len(parents) for row in side):
        raise _BadRound("a side row is no node")
    if any(parents[row] in side and row not in side for row in range(1, len(parents))):
        raise _BadRound("a node below a side row is no side row")
    return side


def _proposal(line: Mapping[str, Any], depths: Array) -> Proposal | None:
    by_depth, read = _by_depth(line)
    raw = _optional(line, "offers")
    if not raw:
        return None if by_depth is None else Proposal.factorised(by_depth, depths, read)
    lists = _lists(raw)
    after = np.array(_ints(raw, "after", len(depths), least=NOT_ASKED), np.int32)
    if after.size and after.max() >= len(lists.ids):
        raise _BadRound("a node's offers are not among those of the round")
    last = _int(line, "max_depth") if by_depth is None else len(by_depth.ids)
    return Proposal(lists, after, last, by_depth, read)


def _by_depth(line: Mapping[str, Any]) -> tuple[Candidates | None, int | None]:
    raw = _optional(line, "candidates")
    if not raw:
        return None, None
    read = raw.get("read")
    if not (read is None or (type(read) is int and read > 0)):
        raise _BadRound("read is no number of candidates")
    return _lists(raw), read


def _lists(raw: Mapping[str, Any]) -> Candidates:
    ids = _table(raw, "token").astype(np.int64)
    return Candidates(ids, _numbers(raw, "log_q", ids.shape))


def _target_probs(
    line: Mapping[str, Any], nodes: Mapping[str, Any], count: int
) -> TargetProbs | None:
    raw = _optional(line, "target_top")
    if not raw:
        return None
    ids = _table(raw, "token").astype(np.int64)
    if len(ids) != count:
        raise _BadRound(f"target_top has {len(ids)} rows for {count} nodes")
    return TargetProbs(
        log_p=_numbers(nodes, "log_p", (count,)),
        rank=np.array(_ints(nodes, "rank_p", count), np.int32),
        top_ids=ids,
        top_log_p=_numbers(raw, "log_p", ids.shape),
        entropy=_numbers(nodes, "entropy", (count,)),
    )


def _probe(line: Mapping[str, Any]) -> Probe | None:
    raw = _optional(line, "probe")
    if not raw:
        return None
    ranks = np.array(_ints(raw, "rank_q", None), np.int32)
    depths = len(ranks)
    coverage = raw.get("coverage")
    width = (
        len(coverage[0])
        if isinstance(coverage, list) and depths and coverage and isinstance(coverage[0], list)
        else 0
    )
    return Probe(
        tvd=_numbers(raw, "tvd", (depths,)),
        coverage=_numbers(raw, "coverage", (depths, width)),
        entropy_q=_numbers(raw, "entropy_q", (depths,)),
        rank_q=ranks,
    )


def _times(line: Mapping[str, Any]) -> Times:
    raw = _optional(line, "times")
    known = {f.name: raw.get(f.name, 0.0) for f in fields(Times)}
    if not all(_is_number(v) and v >= 0 for v in known.values()):
        raise _BadRound("times are not seconds")
    return Times(**{k: float(v) for k, v in known.items()})


def _texts(line: Mapping[str, Any]) -> dict[int, str]:
    raw = _optional(line, "texts")
    texts = {}
    for key, text in raw.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10 and isinstance(text, str)):
            raise _BadRound("texts do not map token ids to text")
        texts[int(key)] = text
    return texts


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _is_token(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _mapping(line: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = line.get(key)
    if not isinstance(value, dict):
        raise _BadRound(f"{key} is missing or no object")
    return value


def _optional(line: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return {} if line.get(key) is None else _mapping(line, key)


def _int(line: Mapping[str, Any], key: str) -> int:
    value = line.get(key)
    if not _is_token(value):
        raise _BadRound(f"{key} is no count")
    return value  # type: ignore[return-value]


def _ints(line: Mapping[str, Any], key: str, count: int | None, least: int = -1) -> list[int]:
    value = line.get(key)
    if not isinstance(value, list) or not _WHOLE.issuperset(map(type, value)):
        raise _BadRound(f"{key} is missing or no list of whole numbers")
    if value and (min(value) < least or max(value) >= 1 << 31):
        raise _BadRound(f"{key} is missing or no list of whole numbers")
    if count is not None and len(value) != count:
        raise _BadRound(f"{key} has {len(value)} entries, expected {count}")
    return value


def _tokens(line: Mapping[str, Any], key: str, count: int | None) -> list[int]:
    value = _ints(line, key, count)
    if any(v < 0 for v in value):
        raise _BadRound(f"{key} holds a negative token id")
    return value


def _table(line: Mapping[str, Any], key: str) -> Array:
    """Token ids in rows of one length, [R, C]."""
    rows = line.get(key)
    if not isinstance(rows, list) or not _LISTS.issuperset(map(type, rows)):
        raise _BadRound(f"{key} is missing or no table")
    if len(set(map(len, rows))) > 1:
        raise _BadRound(f"{key} has rows of different lengths")
    flat = list(chain.from_iterable(rows))
    if flat and not (_WHOLE.issuperset(map(type, flat)) and 0 <= min(flat) <= max(flat) < 1 << 31):
        raise _BadRound(f"{key} holds something that is no token id")
    return np.array(flat, np.int64).reshape(len(rows), -1 if rows and rows[0] else 0)


def _numbers(line: Mapping[str, Any], key: str, shape: tuple[int, ...]) -> Array:
    """float32 array of exactly this shape; null reads as NaN."""
    flat: list[Any] = [line.get(key)]
    for length in shape:
        if not _LISTS.issuperset(map(type, flat)) or {length} != {*map(len, flat)} | {length}:
            raise _BadRound(f"{key} is missing or not of shape {shape}")
        flat = list(chain.from_iterable(flat))
    try:
        if not _NUMBERS.issuperset(map(type, flat)):
            raise OverflowError
        values = np.array(flat, np.float32)
        finite = np.isfinite(values)
        if not finite.all() and finite.sum() + flat.count(None) < len(flat):
            raise OverflowError
    except OverflowError:  # numpy's own, for a whole number that no float can hold
        raise _BadRound(f"{key} holds something that is no number") from None
    return values.reshape(shape)


# What JSON's values are in Python; checked a column at a time, for a long trace holds millions.
_WHOLE, _LISTS, _NUMBERS = frozenset({int}), frozenset({list}), frozenset({int, float, type(None)})
