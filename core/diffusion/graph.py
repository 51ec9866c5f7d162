"""Spiffy's draft graphs: formulas over the current ranking, and the drafts they stand for (§4.3).

A *formula* is a set of (i, j): "set the position of rank i to its token of rank j", both counted
from 1 in the ranking of the masked positions by the last distribution that is known. A *graph* is a
set of formulas and nothing else: levels and parents follow from how many positions each denoising
step unmasks. Node A is a parent of B when A's set lies in B's and B has exactly one step's more.
Light: numpy only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from core import ASSETS
from core.errors import UserError
from core.models import embedded
from core.rounds.blocks import BlockDraft, Edit, MASKED, Ranking
from core.rounds.draft import Array
from core.traces.schema import MAX_STATES

FORMAT = "draftscope-graph"
VERSION = 1
MAX_FORMULAS = MAX_STATES - 1
MAX_POSITION_RANK = 1 << 10
MAX_TOKEN_RANK = 64
MAX_FILE = 1 << 20  # bytes
PLAIN, SPIFFY = "denoise", "spiffy"  # the methods' names in a header

Formula = tuple[tuple[int, int], ...]  # sorted (i, j)


@dataclass(frozen=True)
class Pace:
    """How many positions one denoising step unmasks: ``tokens``, or as many as are sure enough.

    threshold  all positions with confidence ≥ threshold, at least one; then ``tokens`` is unused
    """

    tokens: int = 1
    threshold: float | None = None

    def check(self) -> None:
        """Raises UserError for a value that means nothing."""
        if self.threshold is None and not 1 <= self.tokens <= MAX_POSITION_RANK:
            raise UserError(f"tokens per step must be 1 to {MAX_POSITION_RANK}, not {self.tokens}")
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise UserError(f"the threshold must be above 0 and at most 1, not {self.threshold}")

    @property
    def name(self) -> str:
        return f"k{self.tokens}" if self.threshold is None else f"t{self.threshold:g}"

    def counts(self, block: int) -> tuple[int, ...]:
        """Positions each step unmasks in a block of this length; a remainder goes to the first
        steps: 8 positions, 3 a step: (3, 3, 2). For a fixed number per step only."""
        steps = math.ceil(block / self.tokens)
        return tuple(block // steps + (step < block % steps) for step in range(steps))

    def count(self, confidences: Array, block: int) -> int:
        """How many masked positions the next step takes; ``confidences`` of all, best first."""
        if self.threshold is not None:
            return max(1, int((confidences >= self.threshold).sum()))
        return self.ahead(len(confidences), block)[0]

    def ahead(self, masked: int, block: int) -> tuple[int, ...]:
        """The counts of the steps to come when ``masked`` positions are left."""
        counts = self.counts(block)
        done, at = block - masked, 0
        while done > 0:
            done -= counts[at]
            at += 1
        return counts[at:]

    def levels(self, masked: int, block: int) -> dict[int, int]:
        """Number of tokens a useful draft sets → its level, fixed numbers per step only.

        A draft that finishes the block is of no use: nobody needs its distribution.
        """
        sizes = np.cumsum(self.ahead(masked, block)).tolist()
        return {size: level for level, size in enumerate(sizes, 1) if size < masked}


ONE_BY_ONE = Pace()


@dataclass(frozen=True)
class DraftGraph:
    """Formulas, smaller ones first, with the pace they were made for and where they come from."""

    formulas: tuple[Formula, ...]
    pace: Pace = ONE_BY_ONE
    name: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.formulas)

    @cached_property
    def width(self) -> int:
        """Tokens that must be ranked at every position: the largest j."""
        return max((j for formula in self.formulas for _, j in formula), default=1)

    @cached_property
    def sets(self) -> tuple[frozenset[tuple[int, int]], ...]:
        return tuple(map(frozenset, self.formulas))

    def check(self) -> None:
        """Raises UserError unless this is a draft graph (Eq. 6–9) at its own pace."""
        self.pace.check()
        if not 1 <= len(self) <= MAX_FORMULAS:
            raise UserError(f"a draft graph has 1 to {MAX_FORMULAS} formulas, not {len(self)}")
        if len(set(self.sets)) != len(self):
            raise UserError("a draft graph names a formula twice")
        for formula in self.formulas:
            places = [i for i, _ in formula]
            if not formula or len(set(places)) != len(places):
                raise UserError(f"the formula {label(formula)} does not set distinct positions")
            if not all(
                1 <= i <= MAX_POSITION_RANK and 1 <= j <= MAX_TOKEN_RANK for i, j in formula
            ):
                raise UserError(
                    f"ranks in a formula go from 1 to {MAX_POSITION_RANK} (position) and "
                    f"{MAX_TOKEN_RANK} (token)"
                )
        drafted = len(self.outline()) - 1
        if drafted != len(self):
            raise UserError(
                f"{len(self) - drafted} of {len(self)} formulas cannot be reached: each must have "
                "one step's tokens, or a parent in the graph with one step's fewer"
            )

    def outline(self) -> BlockDraft:
        """The graph on its own, as the draft of a block in which every token's id is its rank."""
        widest = max(max(len(f), max(i for i, _ in f)) for f in self.formulas)
        step = self.pace.tokens if self.pace.threshold is None else 1
        block = step * (widest // step + 1)
        ids = np.tile(np.arange(1, self.width + 1, dtype=np.int64), (block, 1))
        ranking = Ranking(np.arange(block, dtype=np.int32), ids, np.ones(ids.shape, np.float32))
        return self.draft(np.full(block, MASKED, np.int64), ranking, self.pace, 0)

    def draft(self, state: Array, left: Ranking, pace: Pace, root: int) -> BlockDraft:
        """The drafts of block ``state`` [L]: the formulas read off ``left``.

        ``left`` ranks exactly the state's masked positions by the last known distribution; ``root``
        is the token id that stands for the current block. Left out are formulas that ask for ranks
        that are not there, for a number of tokens no step ends at, that finish the block, or that
        have no parent here.
        """
        masked, width = left.ids.shape
        levels = None if pace.threshold is not None else pace.levels(masked, len(state))
        rows = _Rows()
        for formula, own in zip(self.formulas, self.sets, strict=True):
            if formula[-1][0] > masked or max(j for _, j in formula) > width:
                continue
            if len(formula) >= masked or (levels is not None and len(formula) not in levels):
                continue
            rows.add(own, levels)
        return rows.as_draft(left, root)


class _Rows:
    """The rows of a draft as they are found: sets of (i, j), levels, and all parents of each."""

    def __init__(self) -> None:
        self.sets = [frozenset[tuple[int, int]]()]
        self.depths = [0]
        self.links: list[tuple[int, ...]] = [()]

    def add(self, own: frozenset[tuple[int, int]], levels: Mapping[int, int] | None) -> None:
        """Append a row if it has a parent. Without ``levels`` a step may unmask any number: every
        subset is a parent, and the level is the longest way from the root."""
        parents = [row for row, other in enumerate(self.sets) if other < own]
        if levels is None:
            depth = 1 + max(self.depths[row] for row in parents)
        else:
            depth = levels[len(own)]
            parents = [row for row in parents if self.depths[row] == depth - 1]
        if parents:
            self.sets.append(own)
            self.depths.append(depth)
            self.links.append(tuple(parents))

    def as_draft(self, left: Ranking, root: int) -> BlockDraft:
        count = len(self.sets)
        parents = np.full(count, -1, np.int32)
        tokens, ranks = np.full(count, root, np.int64), np.zeros(count, np.int32)
        log_q, scores = np.zeros(count, np.float32), np.zeros(count, np.float32)
        edits: list[tuple[Edit, ...]] = [()]
        for row in range(1, count):
            above = next(p for p in self.links[row] if self.depths[p] == self.depths[row] - 1)
            parents[row] = above
            edits.append(tuple(_edit(left, i, j) for i, j in sorted(self.sets[row])))
            new = min(self.sets[row] - self.sets[above])
            tokens[row], ranks[row] = left.ids[new[0] - 1, new[1] - 1], new[1]
            log_q[row] = _log_p(left, self.sets[row] - self.sets[above])
            scores[row] = _log_p(left, self.sets[row])
        depths = np.array(self.depths, np.int32)
        links, shown = tuple(self.links), tuple(edits)
        return BlockDraft(
            tokens=tokens, parents=parents, depths=depths, ranks=ranks, log_q=log_q,
            scores=scores, links=links, edits=shown,
        )  # fmt: skip


def _edit(left: Ranking, i: int, j: int) -> Edit:
    return Edit(int(left.positions[i - 1]), int(left.ids[i - 1, j - 1]), i, j)


def _log_p(left: Ranking, own: frozenset[tuple[int, int]]) -> float:
    odds = [float(left.p[i - 1, j - 1]) for i, j in own]
    return sum(math.log(p) if p > 0 else -math.inf for p in odds)


def label(formula: Sequence[tuple[int, int]]) -> str:
    """``c₁₁ c₂₁``; ranks above 9 are set apart: ``c₁₂,₁``."""
    return (
        " ".join(f"c{i}{',' if max(i, j) > 9 else ''}{j}".translate(_LOWERED) for i, j in formula)
        or "∅"
    )


_LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def make_graph(
    formulas: Sequence[Sequence[tuple[int, int]]], pace: Pace = ONE_BY_ONE, **more: Any
) -> DraftGraph:
    """A checked graph of these formulas, in their one canonical order: by size, then by ranks."""
    ordered = sorted((tuple(sorted(f)) for f in formulas), key=lambda f: (len(f), f))
    graph = DraftGraph(tuple(ordered), pace, **more)
    graph.check()
    return graph


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


def pace_to_json(pace: Pace) -> dict[str, Any]:
    if pace.threshold is not None:
        return {"threshold": pace.threshold}
    return {"tokens": pace.tokens}


def graph_to_json(graph: DraftGraph) -> dict[str, Any]:
    """What a header or a file says of a graph, short of its format and provenance."""
    formulas = [[list(c) for c in formula] for formula in graph.formulas]
    return {"name": graph.name, "pace": pace_to_json(graph.pace), "formulas": formulas}


def write_graph(path: Path, graph: DraftGraph) -> None:
    """A small file a person can read: one formula a line."""
    lines = ",\n".join(f"    {json.dumps([list(c) for c in f])}" for f in graph.formulas)
    provenance = json.dumps(dict(graph.provenance), indent=2).replace("\n", "\n  ")
    text = (
        f'{{\n  "format": "{FORMAT}",\n  "version": {VERSION},\n'
        f'  "pace": {json.dumps(pace_to_json(graph.pace))},\n  "formulas": [\n{lines}\n  ],\n'
        f'  "provenance": {provenance}\n}}\n'
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(f"the draft graph {path} cannot be written: {error.strerror}") from None


def read_graph(path: Path) -> DraftGraph:
    """Raises UserError, with one sentence, for anything that is no draft graph."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise UserError(f"{path} is too large for a draft graph")
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"the draft graph {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not JSON: not a draft graph") from None
    try:
        return graph_from_json(value, path.stem)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def graph_from_json(value: Any, name: str = "") -> DraftGraph:
    """Raises UserError for what is no draft graph of a version this Draftscope knows."""
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UserError("not a draft graph (no such format name)")
    if value.get("version") != VERSION or isinstance(value.get("version"), bool):
        raise UserError(f"not a draft graph of version {VERSION}")
    raw, provenance = value.get("formulas"), value.get("provenance", {})
    if not isinstance(raw, list) or not all(isinstance(f, list) for f in raw):
        raise UserError("a draft graph's formulas are lists of [i, j]")
    if not 1 <= len(raw) <= MAX_FORMULAS:
        raise UserError(f"a draft graph has 1 to {MAX_FORMULAS} formulas, not {len(raw)}")
    if not all(_is_pair(c) for f in raw for c in f):
        raise UserError("a draft graph's formulas are lists of [i, j]")
    if not isinstance(provenance, dict):
        raise UserError("a draft graph's provenance is an object")
    formulas = [[(i, j) for i, j in f] for f in raw]
    return make_graph(formulas, _pace(value.get("pace")), name=name, provenance=provenance)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)


def _pace(value: Any) -> Pace:
    if isinstance(value, dict) and len(value) == 1:
        tokens, threshold = value.get("tokens"), value.get("threshold")
        if type(tokens) is int:
            return Pace(tokens)
        if isinstance(threshold, (int, float)) and not isinstance(threshold, bool):
            return Pace(threshold=float(threshold))
    raise UserError('a draft graph\'s pace is {"tokens": k} or {"threshold": t}')


# ── graphs by name ───────────────────────────────────────────────────────────────────────────────


def graphs_folder(model: str) -> Path | None:
    """Where the calibrated graphs of a model ship: the embedded one's, and of models known by a
    hub id; a model in a folder of one's own has none."""
    if model == embedded.NAME:
        return ASSETS / "models" / model / "graphs"
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", model, re.ASCII):
        return ASSETS / "models" / "graphs" / model.replace("/", "--")
    return None


def find_graph(asked: str, model: str, pace: Pace) -> DraftGraph:
    """The graph in a file, or of D nodes as calibrated for the model: at this pace, else at one
    token a step (any pace can use it, paper §5.2). Raises UserError when there is none."""
    if not asked.isascii() or not asked.isdecimal():
        return read_graph(Path(asked).expanduser())
    if not 1 <= int(asked) <= MAX_FORMULAS:
        raise UserError(f"a draft graph has 1 to {MAX_FORMULAS} nodes, not {asked}")
    folder = graphs_folder(model)
    for name in dict.fromkeys((pace.name, "k1")):
        file = folder / f"{name}-d{int(asked)}.json" if folder else None
        if file is not None and file.is_file():
            return read_graph(file)
    raise UserError(
        f"no calibrated graph of {asked} nodes ships for {model!r}: make one with calibrate-graph "
        "and name its file"
    )
