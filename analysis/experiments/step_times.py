"""The time of an engine's step: by batch, by verified tokens and, where told, by context.

A table is CSV with a header, JSON (a list of such lines, or one a line), or a result of
``cost --json``. Light.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from analysis.experiments.cost import FORMAT, Cost, Stage, cost_from_json
from analysis.numbers import share
from core.declared import Count, Size, convert
from core.errors import UserError, WrongKind
from core.json_input import MAX_BYTES, parse_json, read_json
from core.methods.registry import find_method
from core.readers import csv_rows, read_lines

MOST = 100_000  # lines of a table
PLAIN = 1  # verified tokens of a step of plain decoding
Milliseconds = Annotated[float, Meta(gt=0, lt=1e9)]


class Line(Struct, forbid_unknown_fields=True):
    """One measured step.

    batch     sequences that decode together
    tokens    tokens that the target scores of each, the last committed one included: K + 1 for a
              chain of K, B + 1 for a tree of B nodes, 1 for plain decoding
    ms        milliseconds of the whole step, or of all but drafting where ``draft_ms`` is told
    context   tokens of the text so far, where times were taken at several
    """

    tokens: Size
    ms: Milliseconds
    batch: Size = 1
    draft_ms: Annotated[float, Meta(ge=0, lt=1e9)] = 0.0
    context: Count | None = None


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, and whether they were measured; else they lie between measured ones."""

    seconds: float
    measured: bool


Where = tuple[int | None, int]  # context and batch


@dataclass(frozen=True)
class StepTimes:
    """Seconds by (context, batch) and verified tokens.

    method  whose rounds were timed, where the table says so; ``notes``: sentences about the times
    means   whether a time is the mean over rounds with drafts of at most so many tokens, those that
            drafted less among them; else it is that of a step of exactly so many
    """

    cells: Mapping[Where, Mapping[int, float]]
    method: str = ""
    notes: tuple[str, ...] = ()
    means: bool = False

    @cached_property
    def contexts(self) -> tuple[int | None, ...]:
        return tuple(
            sorted({context for context, _ in self.cells}, key=lambda c: -1 if c is None else c)
        )

    def batches(self, context: int | None) -> list[int]:
        """In order; [] for a context that the table does not have."""
        return self._batches.get(context, [])

    @cached_property
    def _batches(self) -> dict[int | None, list[int]]:
        found: dict[int | None, list[int]] = {}
        for context, batch in self.cells:
            found.setdefault(context, []).append(batch)
        return {context: sorted(own) for context, own in found.items()}

    @cached_property
    def tokens(self) -> list[int]:
        """Verified tokens of any cell."""
        return sorted({n for row in self.cells.values() for n in row})

    def step(self, context: int | None, batch: int, tokens: int) -> StepTime | None:
        """A step, by straight lines between measured tokens and then between measured batches; None
        outside of what was measured."""
        if (row := self.cells.get((context, batch))) is not None:
            return _between(list(row), list(row.values()), tokens)
        known = self.batches(context)
        if not known or not known[0] < batch < known[-1]:
            return None
        above = bisect(known, batch)
        beside = known[above - 1 : above + 1]
        steps = [self.step(context, b, tokens) for b in beside]
        if None in steps:
            return None
        seconds = float(np.interp(batch, beside, [step.seconds for step in steps if step]))
        return StepTime(seconds, False)

    def most(self, context: int | None, batch: int) -> int:
        """The most verified tokens of which ``step`` knows a time; 0: it knows none."""
        return next((n for n in reversed(self.tokens) if self.step(context, batch, n)), 0)


def _between(at: Sequence[int], seconds: Sequence[float], tokens: int) -> StepTime | None:
    if not at[0] <= tokens <= at[-1]:
        return None
    return StepTime(float(np.interp(tokens, at, seconds)), tokens in at)


def read_step_times(path: Path) -> StepTimes:
    """The table in a file. Raises UserError, one sentence, for what is none."""
    table = path.suffix == ".csv"
    try:
        value = csv_rows(path, MAX_BYTES) if table else _json(path)
    except WrongKind:
        value = None
    if isinstance(value, dict) and value.get("format") == FORMAT:
        return of_cost(cost_from_json(value))
    if not isinstance(value, list) or (value and not _tells_a_step(value[0])):
        raise WrongKind(
            f"{path} is not a table of step times (a .csv or JSON with tokens, ms and batch of "
            "each, or a result of `cost --json`)",
            path,
        )
    return _of_lines(value, f"{path}", lax=table)


def _json(path: Path) -> Any:
    """One value, or a list of those that stand a line each, whatever the file's name is."""
    if path.suffix != ".jsonl":
        with suppress(WrongKind):
            return read_json(path)
    return [parse_json(line, f"{path}, line {n}") for n, line in read_lines(path, MAX_BYTES)]


def _tells_a_step(value: Any) -> bool:
    return isinstance(value, dict) and bool({"tokens", "ms"} & value.keys())


def _of_lines(lines: Sequence[Any], name: str, *, lax: bool = False) -> StepTimes:
    if not 0 < len(lines) <= MOST:
        raise UserError(f"{name} holds {len(lines)} lines: 1 to {MOST} are read")
    cells: dict[Where, dict[int, float]] = {}
    for number, raw in enumerate(lines, 1):
        line: Line = convert(raw, Line, f"{name}, entry {number}", lax=lax)
        row = cells.setdefault((line.context, line.batch), {})
        if line.tokens in row:
            raise UserError(
                f"{name}, entry {number}: batch {line.batch} with {line.tokens} tokens stands "
                "there twice"
            )
        row[line.tokens] = (line.ms + line.draft_ms) / 1e3
    if len({context is None for context, _ in cells}) > 1:
        raise UserError(f"{name} tells the context of some steps and not of others")
    for (context, batch), row in cells.items():
        at = "" if context is None else f" and context {context}"
        if list(row) == [PLAIN]:
            raise UserError(f"{name} has no step with a draft for batch {batch}{at}")
        if PLAIN not in row:
            raise UserError(
                f"{name} has no step of plain decoding (tokens = {PLAIN}) for batch {batch}{at}: "
                "there is nothing to compare with"
            )
    return StepTimes({where: dict(sorted(row.items())) for where, row in cells.items()})


def of_cost(cost: Cost) -> StepTimes:
    """The steps that ``cost`` timed: one sequence, verification by the law that it fitted.

    A budget's time stands at budget + 1 tokens, however many rows its drafts had in the mean; at
    its own rows where the drafter's depth ends all of its chains alike.
    """
    row = {PLAIN: cost.verify.seconds(PLAIN)}
    for stage in cost.stages:
        tokens = round(stage.rows) if _ended_by_depth(cost, stage) else stage.budget + 1
        row.setdefault(tokens, stage.seconds + cost.verify.seconds(stage.rows))
    note = (
        f"Times are those of `cost` for {cost.method} on {cost.model}, batch 1. Verification "
        "is that of their mean rows by its fitted law, which predicts left-out points within "
        f"{share(cost.verify.residual)}."
    )
    means = (
        "They are means over its rounds, those that drafted less among them: the lengths of the "
        "recorded drafts do not correct them again."
    )
    return StepTimes({(None, 1): dict(sorted(row.items()))}, cost.method, (note, means), means=True)


def _ended_by_depth(cost: Cost, stage: Stage) -> bool:
    """Whether all drafts of a budget were chains as long as the drafter is deep. A drafter without
    weights copies from the text, and ends where there is nothing to copy."""
    try:
        method = find_method(cost.method)
    except UserError:
        return False
    drafter = method.drafter_info
    if not method.is_chain or drafter is None or drafter.checkpoint is None:
        return False
    return stage.rows == round(stage.rows)
