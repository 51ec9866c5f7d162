"""Reading traces: a file's lines become rounds, every shape, range and reference checked.

Readers ignore fields they do not know, and open every older version. The checks are by hand and not
msgspec's: decoding also reads traces, on machines without msgspec, so its types would be a second
copy of a third of these checks; the rest are lengths and references, which types cannot say.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from core.errors import UserError
from core.json_input import MAX_BYTES, parse_json
from core.rounds.blocks import MASKED, Block, BlockDraft, Edit, Ranking, Step
from core.rounds.draft import NOT_ASKED, Array, Candidates, Draft, Proposal
from core.rounds.round import Probe, Round, TargetProbs, Times, Verdict
from core.traces.fields import END, BadField, Fields
from core.traces.schema import FORMAT, MAX_BLOCK, MAX_ROWS, MAX_STATES, VERSION, Header, Trace


def read_trace(path: Path) -> Trace:
    """The whole trace. Raises UserError, with one sentence, for anything that is not one."""
    with _opened(path) as reader:
        return reader.trace()


def read_ends(path: Path) -> Trace:
    """The trace without its rounds, many times faster. Raises UserError as ``read_trace`` does,
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
    """Reads a trace from an open binary file, gzipped or not.

    Iterating reads the rounds one by one. ``header`` is read at once; ``footer`` is None until the
    last round has been read, and stays None when the run was interrupted.

    name   for messages
    limit  the most bytes that the file may unpack to; None: any number

    Raises UserError, with one sentence, as soon as it reads something that no trace holds.
    """

    def __init__(self, file: IO[bytes], name: str, limit: int | None = None):
        self._name, self._lines = name, _objects(_lines(file, name, limit), name)
        _, first = next(self._lines, (0, None))
        if first is None:
            raise UserError(f"{name} is empty, not a trace")
        self.header = _header(first, name)
        self.footer: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Round]:
        for number, line in self._rest():
            try:
                yield round_from_json(line)
            except BadField as why:
                raise UserError(f"{self._name}, line {number}: {why}") from None

    def _rest(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The rounds' lines with their numbers; keeps the footer on the way."""
        for number, line in self._lines:
            kind = line.get("kind")
            if kind == "footer":
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


def _lines(file: IO[bytes], name: str, limit: int | None) -> Iterator[bytes]:
    try:
        magic = file.read(2)
        file.seek(0)
        # No BufferedReader around it: at a cut end that would drop whole lines it had read ahead.
        stream = gzip.GzipFile(fileobj=file) if magic == b"\x1f\x8b" else file
        total = 0
        while line := stream.readline(MAX_BYTES + 1):
            total += len(line)
            if limit is not None and total > limit:
                raise UserError(f"{name} unpacks to more than {limit >> 20} MB")
            yield line
    except EOFError:
        return  # a gzip stream cut short: all whole lines have been given
    except (gzip.BadGzipFile, zlib.error):
        raise UserError(f"{name} is not a readable gzip file") from None


def _objects(lines: Iterator[bytes], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbers and JSON objects of lines; a cut last line (a killed run) ends the file quietly."""
    for number, line in enumerate(lines, 1):
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
        times=Times(**{f.name: times.seconds(f.name) for f in fields(Times)}),
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
    if parents[0] != -1 or ((above < 0) | (above >= np.arange(1, count))).any():
        raise BadField("a node's parent does not stand before it")
    depths = nodes.integers("depth", count, kind=np.int32)
    if depths[0] != 0 or (depths[1:] != depths[above] + 1).any():
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
    path = round_.whole("path")
    sources = draft.links if isinstance(draft, BlockDraft) else draft.parents[:, None]
    if path[:1] != (0,) or any(
        not 0 < row < len(draft) or above not in sources[row] for above, row in pairwise(path)
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
