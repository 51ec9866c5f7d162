"""Reading traces: a file's lines become rounds, every shape, range and reference checked.

Readers ignore fields they do not know, and open every older version. The checks are by hand and not
msgspec's: decoding also reads traces, on machines without msgspec, so its types would be a second
copy of a third of these checks; the rest are lengths and references, which types cannot say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from core.errors import UserError
from core.json_input import MAX_BYTES, parse_json
from core.lines import LIMITS, Limits, lines, open_regular
from core.rounds.blocks import MASKED, Block, BlockDraft, Edit, Ranking, Step
from core.rounds.draft import NOT_ASKED, Array, Candidates, Draft, Proposal
from core.rounds.round import Probe, Round, TargetProbs, Times, Verdict
from core.traces.fields import END, BadField, Fields
from core.traces.possible import faults_of
from core.traces.schema import (
    FORMAT,
    MAX_BLOCK,
    MAX_ROWS,
    MAX_STATES,
    STAGES,
    VERSION,
    Header,
    Totals,
    Trace,
)


def read_trace(path: Path, limits: Limits = LIMITS) -> Trace:
    """The whole trace. Raises UserError, with one sentence, for anything that is not one."""
    with _opened(path, limits) as reader:
        return reader.trace()


def read_ends(path: Path, limits: Limits = LIMITS) -> Trace:
    """The trace without its rounds, many times faster. Raises UserError as ``read_trace`` does,
    but not for what a round holds."""
    with _opened(path, limits) as reader:
        return reader.ends()


def read_header(path: Path) -> Header:
    """The first line alone. Raises UserError for what is no trace."""
    with _opened(path) as reader:
        return reader.header


@contextmanager
def _opened(path: Path, limits: Limits = LIMITS) -> Iterator[TraceReader]:
    try:
        with open_regular(path) as file:
            yield TraceReader(file, path.name, limits)
    except OSError as error:
        raise UserError(f"the trace {path} cannot be read: {error.strerror or error}") from None


class TraceReader:
    """Reads a trace from an open binary file, gzipped or not.

    Iterating reads the rounds one by one. ``header`` is read at once; ``footer`` is None until the
    last round has been read, and stays None when the run was interrupted. ``lies`` as in ``Trace``.

    name    for messages
    limits  what the file may unpack to, and how many of its lines may be unknown

    Raises UserError, with one sentence, as soon as it reads something that no trace of one run
    holds.
    """

    def __init__(self, file: IO[bytes], name: str, limits: Limits = LIMITS):
        self._name, self._limits = name, limits
        self._lines = _objects(lines(file, name, limits), name)
        _, first = next(self._lines, (0, None))
        if first is None:
            raise UserError(f"{name} is empty, not a trace")
        self.header = _header(first, name)
        self.footer: dict[str, Any] | None = None
        self.lies: tuple[str, ...] = ()
        self._totals = Totals()

    def __iter__(self) -> Iterator[Round]:
        before = None
        for number, line in self._rest():
            try:
                record = round_from_json(line)
            except BadField as why:
                raise self._error(number, why) from None
            if faults := faults_of(record, before):
                record = replace(record, faults=faults)
            self._totals.add_round(record)
            before = record
            yield record

    def _rest(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The rounds' lines with their numbers; keeps the footer on the way."""
        rounds, skipped = 0, 0
        for number, line in self._lines:
            kind = line.get("kind")
            if kind not in ("round", "footer", "header"):
                skipped += 1
                if self._limits.skipped is not None and skipped > self._limits.skipped + rounds:
                    raise UserError(f"{self._name}: {skipped:,} lines are neither rounds nor ends")
                continue
            # One header, rounds from 0 on, and one footer at the end: two runs are never one.
            if kind == "header":
                raise self._error(number, "a second header: give each run a file of its own")
            if self.footer is not None:
                raise self._error(number, f"a {kind} after the footer: give each run its own file")
            if kind == "footer":
                self._end(line)
                continue
            if line.get("index") != rounds:
                raise self._error(number, f"its index is not {rounds}: rounds are lost or repeated")
            rounds += 1
            yield number, line

    def _error(self, number: int, why: object) -> UserError:
        return UserError(f"{self._name}, line {number}: {why}")

    def _end(self, line: Mapping[str, Any]) -> None:
        """Keep the footer. What it sums up is summed up again, for it may be of other rounds."""
        own = self._totals.summary()
        self.lies = tuple(k for k, value in own.items() if not _agrees(line.get(k), value))
        self.footer = {k: v for k, v in line.items() if k != "kind"} | own

    def trace(self) -> Trace:
        """All of it."""
        rounds = tuple(self)
        return Trace(self.header, rounds, self.footer, self.lies)

    def ends(self) -> Trace:
        """Header and footer alone; what the rounds hold is counted, and not looked at."""
        for _, line in self._rest():
            with suppress(BadField):
                _count(Fields(line), self._totals)
        return Trace(self.header, (), self.footer, self.lies)


def _count(round_: Fields, totals: Totals) -> None:
    times = round_.object("times")
    seconds = [times.seconds(stage) for stage in STAGES]
    committed, path = round_.entries("committed"), round_.entries("path")
    totals.add(len(committed), len(path), seconds, bool(round_.object("block")))


def _agrees(claim: Any, own: Any) -> bool:
    """Whether a footer's number is that of its rounds, or is missing; fractions may be rounded."""
    if claim is None:
        return True
    if isinstance(own, dict):
        return isinstance(claim, dict) and all(_agrees(claim.get(k), own[k]) for k in own)
    if isinstance(own, float) and type(claim) is float:
        return math.isclose(claim, own, rel_tol=0.005, abs_tol=0.005)
    return type(claim) is not bool and claim == own


def _objects(read: Iterator[bytes], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbers and JSON objects of lines; a cut end (a killed run) ends the file quietly."""
    for number, line in enumerate(read, 1):
        place = f"{name}, line {number}"
        try:
            value = parse_json(line, place, fast=number > 1)
            if not isinstance(value, dict):
                raise UserError(f"{place} is not a JSON object")
            # Of a round only known fields are taken, of a footer everything.
            yield number, parse_json(line, place) if value.get("kind") == "footer" else value
        except UserError as error:
            if number > 1 and not line.endswith(b"\n") and len(line) <= MAX_BYTES:
                return
            raise UserError(f"{error}: not a trace") from None


def _header(line: Mapping[str, Any], name: str) -> Header:
    if line.get("format") != FORMAT:
        raise UserError(f"{name} is not a Draftscope trace (no such format name in line 1)")
    version = line.get("version")
    if type(version) is not int or version < 1:
        raise UserError(f"{name} has no valid trace version")
    if version > VERSION:
        raise UserError(
            f"{name} is a version {version} trace; this Draftscope reads up to {VERSION}"
        )
    known: dict[str, Any] = {"settings": {}, "model": {}}
    for f in fields(Header):
        if f.name in line:
            value, kind = line[f.name], _KINDS.get(str(f.type), dict)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise UserError(f"{name}: the header's {f.name} is not a {kind.__name__}")
            known[f.name] = value
    for key in ("method", "prompt_text", "prompt_ids"):
        if key not in known:
            raise UserError(f"{name}: the header has no {key}")
    known["prompt_ids"] = tuple(known["prompt_ids"])
    if not all(type(token) is int and 0 <= token < END for token in known["prompt_ids"]):
        raise UserError(f"{name}: the header's prompt_ids are not token ids")
    return Header(**known)


_KINDS = {"str": str, "int": int, "tuple[int, ...]": list}  # all other fields are objects


_ROWS = np.arange(MAX_ROWS, dtype=np.uint32)

# ── one round ─────────────────────────────────────────────────────────────────────────────────────


@np.errstate(over="raise")  # for numbers that no float32 can hold
def round_from_json(line: Mapping[str, Any]) -> Round:
    """The Round of a trace's line. Raises BadField, the end of a sentence, if it is none."""
    round_ = Fields(line)
    nodes, block = round_.object("nodes"), _block(round_.object("block"))
    rows = _rows(nodes)
    draft = _tree(round_, rows) if block is None else _graph(nodes, rows, block)
    count = len(draft)
    path = _path(round_, draft)
    if block is not None and len(block.steps) != len(path):
        raise BadField(f"{len(block.steps)} denoising steps for {len(path)} accepted rows")
    times = round_.object("times")
    return Round(
        index=round_.integer("index"),
        position=round_.integer("position"),
        draft=draft,
        verdict=Verdict(path, nodes.integers("choice", count), round_.optional("drawn_bonus")),
        committed=round_.whole("committed", least=0),
        target_probs=_target_probs(round_.object("target_top"), nodes, count),
        probe=_probe(round_.object("probe")),
        times=Times(*map(times.seconds, STAGES)),
        texts=round_.texts("texts"),
        block=block,
    )


def _rows(nodes: Fields) -> dict[str, Array]:
    """What every draft has. Each parent stands before its children, one level above them."""
    parents = nodes.integers("parents", None, kind=np.int32)
    count = len(parents)
    if not 1 <= count <= MAX_ROWS:
        raise BadField(f"{count} nodes")
    above = parents[1:]
    # A negative one is huge without its sign.
    if parents[0] != -1 or np.count_nonzero(above.view(np.uint32) >= _ROWS[1:count]):
        raise BadField("a node's parent does not stand before it")
    depths = nodes.integers("depth", count, kind=np.int32)
    if depths[0] != 0 or np.count_nonzero(depths[1:] != depths[above] + 1):
        raise BadField("a node's depth is not its parent's plus one")
    return {
        "tokens": nodes.integers("token", count, least=0),
        "parents": parents,
        "depths": depths,
        "ranks": nodes.integers("rank", count, kind=np.int32),
        "log_q": nodes.floats("log_q", count),
        "scores": nodes.floats("score", count),
    }


def _path(round_: Fields, draft: Draft | BlockDraft) -> tuple[int, ...]:
    path, parents = round_.whole("path"), draft.parents
    links = draft.links if isinstance(draft, BlockDraft) else None
    if path[:1] != (0,) or any(
        not 0 < row < len(draft)
        or (parents[row] != above if links is None else above not in links[row])
        for above, row in pairwise(path)
    ):
        raise BadField("the accepted path is no path from the root")
    if isinstance(draft, Draft) and not draft.side.isdisjoint(path):
        raise BadField("the accepted path holds a side row")
    return path


# ── trees ─────────────────────────────────────────────────────────────────────────────────────────


def _tree(round_: Fields, rows: dict[str, Array]) -> Draft:
    notes = round_.object("notes")
    return Draft(
        **rows,
        notes={name: notes.floats(name, len(rows["tokens"])) for name in notes},
        side=_side(round_, rows["parents"]) if "side" in round_ else frozenset(),
        proposal=_proposal(round_, rows["depths"]),
    )


def _side(round_: Fields, parents: Array) -> frozenset[int]:
    side = frozenset(round_.whole("side", least=1))
    if side and max(side) >= len(parents):
        raise BadField("a side row is no node")
    if any(above in side and row not in side for row, above in enumerate(parents.tolist())):
        raise BadField("a node below a side row is no side row")
    return side


def _proposal(round_: Fields, depths: Array) -> Proposal | None:
    candidates, offers = round_.object("candidates"), round_.object("offers")
    by_depth = _lists(candidates) if candidates else None
    read = (candidates or offers).optional("read", least=1)
    max_depth = round_.optional("max_depth")
    if not offers:
        return None if by_depth is None else Proposal.factorised(by_depth, depths, read)
    lists = _lists(offers)
    after = offers.integers("after", len(depths), least=NOT_ASKED, kind=np.int32)
    if after.max() >= len(lists.ids):
        raise BadField("a node's offers are not among those of the round")
    last = max_depth or 0 if by_depth is None else len(by_depth.ids)
    return Proposal(lists, after, last, by_depth, read)


def _lists(raw: Fields) -> Candidates:
    ids = raw.integers("token", None, None, least=0)
    return Candidates(ids, raw.floats("log_q", *ids.shape))


# ── block drafts ──────────────────────────────────────────────────────────────────────────────────


def _block(raw: Fields) -> Block | None:
    """The block's state and steps; each step must stand on the state that those before it left."""
    if not raw:
        return None
    state = raw.integers("state", None)
    listed = raw.entries("steps")
    if not 1 <= len(listed) <= len(state) <= MAX_BLOCK:
        raise BadField(f"a block of {len(state)} positions in {len(listed)} denoising steps")
    steps, after = [], state.copy()
    for each in listed:
        steps.append(_step(Fields(each, "a denoising step"), after))
        after[steps[-1].positions] = steps[-1].tokens
    return Block(raw.integer("index"), raw.integer("step"), state, tuple(steps))


def _step(raw: Fields, state: Array) -> Step:
    positions = raw.integers("position", None, kind=np.int32)
    if not np.array_equal(np.sort(positions), np.flatnonzero(state == MASKED)):
        raise BadField("a denoising step does not rank the masked positions of its block")
    ids = raw.integers("token", len(positions), None, least=0)
    count = raw.integer("count", least=1)
    if not ids.size or count > len(positions):
        raise BadField(f"a denoising step unmasks {count} of {len(positions)} positions")
    return Step(Ranking(positions, ids, raw.floats("p", *ids.shape)), count)


def _graph(nodes: Fields, rows: dict[str, Array], block: Block) -> BlockDraft:
    """A draft graph. A row's edits hold all of each of its parents' edits, and more."""
    count = len(rows["parents"])
    if count > MAX_STATES:
        raise BadField(f"a draft graph of {count} states")
    links = [Fields({"links": each}).whole("links") for each in nodes.entries("links")]
    edits = [_edits(Fields({"edits": each}), block) for each in nodes.entries("edits")]
    if not len(links) == len(edits) == count or links[0] or edits[0]:
        raise BadField("links or edits do not fit the nodes")
    sets = list(map(frozenset, edits))
    for row in range(1, count):
        parents = set(links[row])
        if rows["parents"][row] not in parents or not 0 <= min(parents) <= max(parents) < row:
            raise BadField("a node's links do not stand before it")
        if len(parents) < len(links[row]) or any(not sets[p] < sets[row] for p in parents):
            raise BadField("a node does not hold what its parents set")
    return BlockDraft(**rows, links=tuple(links), edits=tuple(edits))


def _edits(raw: Fields, block: Block) -> tuple[Edit, ...]:
    if raw.entries("edits") == []:
        return ()
    edits = tuple(Edit(*each) for each in raw.integers("edits", None, 4, least=0).tolist())
    positions = {edit.position for edit in edits}
    if len(positions) < len(edits) or max(positions) >= len(block.state):
        raise BadField("a draft sets a position twice, or none of its block")
    if any(block.state[p] != MASKED for p in positions):
        raise BadField("a draft sets positions that are not masked in its block")
    if any(min(edit.position_rank, edit.token_rank) < 1 for edit in edits):
        raise BadField("an edit holds a rank that cannot be")
    return edits


# ── measurements ──────────────────────────────────────────────────────────────────────────────────


def _target_probs(raw: Fields, nodes: Fields, count: int) -> TargetProbs | None:
    if not raw:
        return None
    ids = raw.integers("token", count, None, least=0)
    return TargetProbs(
        log_p=nodes.floats("log_p", count),
        rank=nodes.integers("rank_p", count, kind=np.int32),
        top_ids=ids,
        top_log_p=raw.floats("log_p", *ids.shape),
        entropy=nodes.floats("entropy", count),
    )


def _probe(raw: Fields) -> Probe | None:
    if not raw:
        return None
    ranks = raw.integers("rank_q", None, kind=np.int32)
    return Probe(
        tvd=raw.floats("tvd", len(ranks)),
        coverage=raw.floats("coverage", len(ranks), None),
        entropy_q=raw.floats("entropy_q", len(ranks)),
        rank_q=ranks,
        vocabulary=raw.optional("vocabulary", least=1),
    )
