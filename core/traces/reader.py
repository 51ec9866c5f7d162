"""Reading traces: a file's lines become rounds, every shape, range and reference checked.

Readers ignore fields they do not know, and open every older version. ``core.traces.fields``
declares the types of all fields; lengths and references are checked here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from msgspec.structs import astuple

from ..declared import BadField, convert, shown
from ..errors import UserError, WrongKind, reading
from ..files import by_name
from ..journal import FILE as JOURNAL
from ..json_input import MAX_BYTES, parse_json
from ..lines import LIMITS, Limits, lines, open_regular, size_of
from ..progress import At, silent
from ..rounds.blocks import MASKED, Block, BlockDraft, Edit, Ranking, Step
from ..rounds.draft import Array, Candidates, Draft, Proposal
from ..rounds.round import Probe, Round, TargetProbs, Times, Verdict, new_tokens
from .fields import (
    BlockLine,
    CountsLine,
    ListsLine,
    NodesLine,
    ProbeLine,
    PromptLine,
    RoundLine,
    StepLine,
    TimesLine,
    TopLine,
    numbers,
    read_line,
    table,
    whole,
    whole_table,
)
from .possible import faults_of
from .schema import (
    ENDINGS,
    FORMAT,
    MAX_BLOCK,
    MAX_ROWS,
    MAX_STATES,
    VERSION,
    Header,
    Totals,
    Trace,
)

TOLD_EVERY = 100  # rounds: how often it is told how far a file is read
AFTER = "after the footer: give each run its own file"

L = TypeVar("L", RoundLine, CountsLine)


def traces_in(folder: Path) -> list[Path]:
    """The files in a folder, at any depth, that are named like traces, in the order of their names:
    run-2 before run-10. Raises WrongKind when there is none."""
    found = named_like_traces(folder)
    found.sort(key=lambda file: by_name(file.relative_to(folder).as_posix()))
    if not found:
        raise WrongKind(f"the folder {folder} holds no trace (.jsonl or .jsonl.gz)", folder)
    return found


def named_like_traces(folder: Path) -> list[Path]:
    """A folder's files by their endings, but for the journal of a grid. Links to folders are not
    followed: they may be circles."""
    found = [
        Path(at) / name for at, _, names in os.walk(folder) for name in names if name != JOURNAL
    ]
    return [file for file in found if file.name.endswith(ENDINGS) and file.is_file()]


def is_trace(path: Path) -> bool:
    """Whether a file is named like a trace, and begins like one where that is quickly seen.

    Raises UserError for one that cannot be read.
    """
    if not path.name.endswith(ENDINGS) or path.name.endswith(".gz"):
        return path.name.endswith(ENDINGS)
    with reading(path), open_regular(path) as file:
        return FORMAT.encode() in file.readline(1 << 20)


def read_trace(path: Path, limits: Limits = LIMITS, at: At = silent) -> Trace:
    """The whole trace. ``at`` hears now and then which share of the file is read.

    Raises UserError, with one sentence, for anything that is not a trace.
    """
    with opened(path, limits) as reader:
        return reader.trace(at)


def read_ends(path: Path) -> Trace:
    """The trace without its rounds, many times faster. Raises UserError as ``read_trace`` does,
    but not for what a round holds."""
    with opened(path) as reader:
        return reader.ends()


def read_header(path: Path) -> Header:
    """The first line alone. Raises UserError for a file that is not a trace."""
    with opened(path) as reader:
        return reader.header


def new_text(trace: Trace, name: str) -> list[int]:
    """The token ids that a run wrote. Raises UserError, which names it, for a denoising run."""
    if any(record.block is not None for record in trace.rounds):
        raise UserError(f"{name} is a denoising run: its text is not written token by token")
    return new_tokens(trace.rounds)


@contextmanager
def opened(path: Path, limits: Limits = LIMITS) -> Iterator[TraceReader]:
    """The trace, whose rounds are read one by one. Raises UserError as ``read_trace`` does."""
    try:
        with reading(f"the trace {path}"), open_regular(path) as file:
            yield TraceReader(file, path.name, limits)
    except WrongKind as error:
        raise WrongKind(error, path) from None


class TraceReader:
    """Reads a trace from an open binary file, gzipped or not.

    Iterating reads the rounds one by one. ``header`` is read at once; ``footer`` is None until the
    last round has been read, and stays None when the run was interrupted. ``lies`` as in ``Trace``.

    name    for messages
    limits  what the file may unpack to, and how many of its lines may be unknown
    more    asked where what is there ends without a footer: whether to look again (``lines``)

    Raises UserError, with one sentence, as soon as it reads something that no trace of one run
    holds.
    """

    def __init__(
        self,
        file: IO[bytes],
        name: str,
        limits: Limits = LIMITS,
        more: Callable[[], bool] = lambda: False,
    ):
        self._file, self._name, self._limits = file, name, limits
        self._lines = enumerate(
            lines(file, name, limits, lambda: self.footer is None and more()), 1
        )
        self.footer: dict[str, Any] | None = None
        _, first = next(self._lines, (0, b""))
        if not first:
            raise UserError(f"{name} is empty, not a trace")
        self.header = _header(first, name)
        rule = self.header.settings.get("sampling")
        self._greedy = isinstance(rule, Mapping) and rule.get("temperature") == 0
        self._budget = self.header.stated("budget", int)
        self.lies: tuple[str, ...] = ()
        self._totals = Totals()

    def __iter__(self) -> Iterator[Round]:
        before = None
        for number, line in self._rounds(RoundLine):
            try:
                record = round_from_line(line, self._budget)
            except BadField as why:
                raise self._error(number, why) from None
            if self._greedy:
                record = _undrawn(record)
            if faults := faults_of(record, before):
                record = replace(record, faults=faults)
            self._totals.add_round(record)
            before = record
            yield record

    def _rounds(self, kind: type[L]) -> Iterator[tuple[int, L]]:
        """The rounds' lines with their numbers; keeps the footer on the way."""
        rounds, skipped = 0, 0
        for number, line in self._objects(kind):
            if isinstance(line, kind):
                if self.footer is not None:
                    raise self._error(
                        number, "a round after the footer: give each run its own file"
                    )
                if line.index != rounds:
                    raise self._error(
                        number, f"its index is not {rounds}: rounds are lost or repeated"
                    )
                rounds += 1
                yield number, line
            elif line.get("kind") == "header":
                # One header, rounds from 0 on, and one footer at the end: two runs are never one.
                raise self._error(number, "a second header: give each run a file of its own")
            elif line.get("kind") != "footer":
                skipped += 1
                if self._limits.skipped is not None and skipped > self._limits.skipped + rounds:
                    raise UserError(f"{self._name}: {skipped:,} lines are neither rounds nor ends")
            elif self.footer is not None:
                raise self._error(number, f"a footer {AFTER}")
            else:
                self._end(line)

    def _objects(self, kind: type[L]) -> Iterator[tuple[int, L | dict[str, Any]]]:
        """Numbers of lines, and what stands there: a round, or another JSON object; nothing in an
        empty line, as editors leave. A cut end (a killed run) ends the file quietly."""
        for number, line in self._lines:
            if line.isspace():
                yield number, {}
                continue
            try:
                yield number, read_line(line, kind, f"{self._name}, line {number}")
            except BadField as why:
                raise self._error(number, why) from None
            except UserError as error:
                if not line.endswith(b"\n") and len(line) <= MAX_BYTES:
                    return
                raise UserError(f"{error}: not a trace") from None

    def _error(self, number: int, why: object) -> UserError:
        return UserError(f"{self._name}, line {number}: {why}")

    def _end(self, line: Mapping[str, Any]) -> None:
        """Keep the footer. What it sums up is summed up again, for it may be of other rounds."""
        own = self._totals.summary()
        told = {k: value for k, value in own.items() if value is not None}  # τ of no rounds was 1
        self.lies = tuple(k for k, value in told.items() if not _agrees(line.get(k), value))
        self.footer = {k: v for k, v in line.items() if k != "kind"} | own

    def trace(self, at: At = silent) -> Trace:
        """All of it; ``at`` as in ``read_trace``."""
        return Trace(self.header, tuple(self.told(at)), self.footer, self.lies)

    def told(self, at: At) -> Iterator[Round]:
        """The rounds; ``at`` as in ``read_trace``."""
        for count, record in enumerate(self, 1):
            yield record
            if count % TOLD_EVERY == 0:
                at(self._file.tell() / max(size_of(self._file), 1))

    def ends(self) -> Trace:
        """Header and footer alone; what the rounds hold is counted, and not looked at."""
        for _, line in self._rounds(CountsLine):
            seconds = astuple(line.times or TimesLine())
            self._totals.add(len(line.committed), len(line.path), seconds, bool(line.block))
        return Trace(self.header, (), self.footer, self.lies)


def _undrawn(record: Round) -> Round:
    """The round of a greedy run, which draws nothing: before 0.7.0 its rule for sampling called the
    target's own token drawn."""
    verdict = record.verdict
    if verdict.bonus_token is None or verdict.bonus != verdict.target_tokens[verdict.path[-1]]:
        return record
    return replace(record, verdict=replace(verdict, bonus_token=None))


def _agrees(claim: Any, own: Any) -> bool:
    """Whether a footer's number is that of its rounds, or is missing; fractions may be rounded."""
    if claim is None:
        return True
    if isinstance(own, dict):
        return isinstance(claim, dict) and all(_agrees(claim.get(k), own[k]) for k in own)
    if isinstance(own, float) and type(claim) is float:
        return math.isclose(claim, own, rel_tol=0.005, abs_tol=0.005)
    return type(claim) is not bool and claim == own


def _header(data: bytes, name: str) -> Header:
    try:
        line = parse_json(data, f"{name}, line 1")
    except UserError as error:
        raise WrongKind(f"{error}: not a trace") from None
    if not isinstance(line, dict) or line.get("format") != FORMAT:
        raise WrongKind(f"{name} is not a Draftscope trace (no such format name in line 1)")
    version = line.get("version")
    if type(version) is not int or version < 1:
        raise UserError(f"{name} has no valid trace version")
    if version > VERSION:
        raise UserError(
            f"{name} is a version {shown(version)} trace; this Draftscope reads up to {VERSION}"
        )
    convert(line, PromptLine, f"{name}, line 1")
    return convert({"settings": {}, "model": {}} | line, Header, f"{name}, line 1")


_ROWS = np.arange(MAX_ROWS, dtype=np.uint32)

# ── one round ─────────────────────────────────────────────────────────────────────────────────────


@np.errstate(over="raise")  # for numbers that no float32 can hold
def round_from_line(line: RoundLine, budget: int | None = None) -> Round:
    """The Round of a trace's line; ``budget`` is the run's. Raises BadField, the end of a sentence,
    if there is none."""
    nodes, block = line.nodes, None if line.block is None else _block(line.block)
    rows = _rows(nodes)
    draft = _tree(line, rows) if block is None else _graph(nodes, rows, block)
    count = len(draft)
    path = _path(line.path, draft)
    if block is not None and len(block.steps) != len(path):
        raise BadField(f"{len(block.steps)} denoising steps for {len(path)} accepted rows")
    return Round(
        index=line.index,
        position=line.position,
        draft=draft,
        verdict=Verdict(path, whole(nodes.choice, count, "nodes.choice"), line.drawn_bonus),
        committed=tuple(line.committed),
        target_probs=_target_probs(line.target_top, nodes, count),
        probe=_probe(line.probe),
        times=Times() if line.times is None else Times(*astuple(line.times)),
        texts=line.texts or {},
        block=block,
        budget=budget,
    )


def _rows(nodes: NodesLine) -> dict[str, Array]:
    """Return the arrays of ``DraftRows``. Each parent stands before its children, a level above."""
    parents = np.array(nodes.parents, np.int32)
    count = len(parents)
    if not 1 <= count <= MAX_ROWS:
        raise BadField(f"{count} nodes")
    above = parents[1:]
    # A negative one is huge without its sign.
    if parents[0] != -1 or np.count_nonzero(above.view(np.uint32) >= _ROWS[1:count]):
        raise BadField("a node's parent does not stand before it")
    depths = whole(nodes.depth, count, "nodes.depth", np.int32)
    if depths[0] != 0 or np.count_nonzero(depths[1:] != depths[above] + 1):
        raise BadField("a node's depth is not its parent's plus one")
    return {
        "tokens": whole(nodes.token, count, "nodes.token"),
        "parents": parents,
        "depths": depths,
        "ranks": whole(nodes.rank, count, "nodes.rank", np.int32),
        "log_q": numbers(nodes.log_q, count, "nodes.log_q"),
        "scores": numbers(nodes.score, count, "nodes.score"),
    }


def _path(rows: list[int], draft: Draft | BlockDraft) -> tuple[int, ...]:
    path, parents = tuple(rows), draft.parents
    links = draft.links if isinstance(draft, BlockDraft) else None
    if path[:1] != (0,) or any(
        not 0 < row < len(draft)
        or (parents[row] != above if links is None else above not in links[row])
        for above, row in pairwise(path)
    ):
        raise BadField("the accepted path is not a path from the root")
    if isinstance(draft, Draft) and not draft.side.isdisjoint(path):
        raise BadField("the accepted path holds a side row")
    return path


# ── trees ─────────────────────────────────────────────────────────────────────────────────────────


def _tree(line: RoundLine, rows: dict[str, Array]) -> Draft:
    count, notes = len(rows["tokens"]), line.notes or {}
    proposal = _proposal(line, rows["depths"])
    return Draft(
        **rows,
        notes={name: numbers(values, count, "a note") for name, values in notes.items()},
        side=_side(line.side, rows["parents"]) if line.side else frozenset(),
        proposal=proposal,
        last=(line.max_depth or 0) if proposal is None else 0,
    )


def _side(rows: list[int], parents: Array) -> frozenset[int]:
    side = frozenset(rows)
    if side and max(side) >= len(parents):
        raise BadField("a side row is not a node")
    if any(above in side and row not in side for row, above in enumerate(parents.tolist())):
        raise BadField("a node below a side row is not a side row")
    return side


def _proposal(line: RoundLine, depths: Array) -> Proposal | None:
    candidates, offers = line.candidates, line.offers
    by_depth = None if candidates is None else _lists(candidates, "candidates")
    if offers is None:
        if candidates is None or by_depth is None:
            return None
        return _limited(Proposal.factorised(by_depth, depths), candidates)
    lists = _lists(offers, "offers")
    after = whole(offers.after, len(depths), "offers.after", np.int32)
    if after.max() >= len(lists.ids):
        raise BadField("a node's offers are not among those of the round")
    last = line.max_depth or 0 if by_depth is None else len(by_depth.ids)
    return _limited(Proposal(lists, after, last, by_depth), candidates or offers)


def _limited(proposal: Proposal, raw: ListsLine) -> Proposal:
    return replace(proposal, read=raw.read, beam=raw.beam, least=raw.least)


def _lists(raw: ListsLine, name: str) -> Candidates:
    ids = whole_table(raw.token, (None, None), f"{name}.token")
    return Candidates(ids, table(raw.log_q, ids.shape, f"{name}.log_q"))


# ── block drafts ──────────────────────────────────────────────────────────────────────────────────


def _block(raw: BlockLine) -> Block:
    """The block's state and steps; each step must stand on the state that those before it left."""
    state, listed = np.array(raw.state, np.int64), raw.steps
    if not 1 <= len(listed) <= len(state) <= MAX_BLOCK:
        raise BadField(f"a block of {len(state)} positions in {len(listed)} denoising steps")
    steps, after = [], state.copy()
    for each in listed:
        steps.append(_step(each, after))
        after[steps[-1].positions] = steps[-1].tokens
    return Block(raw.index, raw.step, state, tuple(steps))


def _step(raw: StepLine, state: Array) -> Step:
    positions, count = np.array(raw.position, np.int32), raw.count
    if not np.array_equal(np.sort(positions), np.flatnonzero(state == MASKED)):
        raise BadField("a denoising step does not rank the masked positions of its block")
    ids = whole_table(raw.token, (len(positions), None), "a step's token")
    if not ids.size or count > len(positions):
        raise BadField(f"a denoising step unmasks {count} of {len(positions)} positions")
    return Step(Ranking(positions, ids, table(raw.p, ids.shape, "a step's p")), count)


def _graph(nodes: NodesLine, rows: dict[str, Array], block: Block) -> BlockDraft:
    """A draft graph. A row's edits hold all of each of its parents' edits, and more."""
    count = len(rows["parents"])
    if count > MAX_STATES:
        raise BadField(f"a draft graph of {count} states")
    links = [tuple(each) for each in nodes.links or ()]
    edits = [_edits(each, block) for each in nodes.edits or ()]
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


def _edits(raw: list[list[int]], block: Block) -> tuple[Edit, ...]:
    if not raw:
        return ()
    if any(len(each) != 4 for each in raw):
        raise BadField("an edit does not have 4 numbers")
    edits = tuple(Edit(*each) for each in raw)
    positions = {edit.position for edit in edits}
    if len(positions) < len(edits) or max(positions) >= len(block.state):
        raise BadField("a draft sets a position twice, or none of its block")
    if any(block.state[p] != MASKED for p in positions):
        raise BadField("a draft sets positions that are not masked in its block")
    if any(min(edit.position_rank, edit.token_rank) < 1 for edit in edits):
        raise BadField("an edit holds a rank that cannot be")
    return edits


# ── measurements ──────────────────────────────────────────────────────────────────────────────────


def _target_probs(raw: TopLine | None, nodes: NodesLine, count: int) -> TargetProbs | None:
    if raw is None:
        return None
    ids = whole_table(raw.token, (count, None), "target_top.token")
    return TargetProbs(
        log_p=numbers(nodes.log_p, count, "nodes.log_p"),
        rank=whole(nodes.rank_p, count, "nodes.rank_p", np.int32),
        top_ids=ids,
        top_log_p=table(raw.log_p, ids.shape, "target_top.log_p"),
        entropy=numbers(nodes.entropy, count, "nodes.entropy"),
    )


def _probe(raw: ProbeLine | None) -> Probe | None:
    if raw is None:
        return None
    ranks = np.array(raw.rank_q, np.int32)
    return Probe(
        tvd=numbers(raw.tvd, len(ranks), "probe.tvd"),
        coverage=table(raw.coverage, (len(ranks), None), "probe.coverage"),
        entropy_q=numbers(raw.entropy_q, len(ranks), "probe.entropy_q"),
        rank_q=ranks,
        vocabulary=raw.vocabulary,
    )
