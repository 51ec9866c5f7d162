"""``grid compare``: checkpoints of one drafter on the same prompts, paired by text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis.numbers import plural
from app.command_line import option, words
from app.commands import common
from app.commands.grid.sweep import Sweep, carry_out
from app.commands.options import BUDGETS, Printed, method
from app.report.sections import CHECKPOINTS, PAIRED, doubts
from app.report.shown import parts, show
from app.terminal import ProgressBar, console, print_lines
from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods.registry import split

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.experiments.sweep_folder import Folder
    from analysis.frames import Frame
    from analysis.measures.tables import Tables


@dataclass(frozen=True, kw_only=True)
class Options(Printed, Sweep):
    """Compare checkpoints of one drafter on the same prompts, paired by text.

    The methods are one method with several checkpoints (before and after a training, int8 and
    bf16): METHOD@FOLDER or METHOD@ORG/NAME, and METHOD alone for the preset's, or the one that
    ships. The others are compared with the first. Every number is printed with a 95 % interval: τ,
    and by depth acceptance, TVD, coverage and bias. Then come the rounds where one lives and the
    other dies. The folder is one of `grid run`: repeat the command to continue, and `studio FOLDER`
    shows the rounds.
    """

    methods: tuple[str, ...] = words("two or more checkpoints of one method", read=method)
    budget: tuple[int, ...] = option((), "drafted nodes a round (default: the method's)", BUDGETS)
    json: bool = option(False, "the tables as one JSON object")


def main(args: Options) -> int:
    methods = tuple(dict.fromkeys(args.methods))
    names = dict.fromkeys(split(method)[0] for method in methods)
    if len(names) > 1:
        raise UserError(f"these are several methods, {', '.join(names)}: name checkpoints of one")
    if len(methods) < 2:
        raise UserError("name two checkpoints or more, as in ddtree ddtree@runs/mine")
    if len(args.budget) > 1:
        raise UserError("name one budget")
    if not (budget := args.budget):
        named = common.preset_budget(args.model, methods[0])
        own = RunRequest("", methods[0], named, options=args.set)
        budget = (own.resolved.settings.budget,)
    whole = replace(args, methods=methods, budget=budget)
    return carry_out(whole, lambda folder: _conclude(folder, args))


def _conclude(folder: Folder, args: Options) -> int:
    """Print what the finished runs show; the exit code."""
    from analysis.measures.tables import Tables
    from core.traces.reader import read_trace

    left = {job.name for job in folder.remaining()}
    traces = {}
    with ProgressBar("reading traces", len(folder.jobs)) as progress:
        for number, job in enumerate(job for job in folder.jobs if job.name not in left):
            progress.at(number)
            traces[job.file] = read_trace(folder.path / "traces" / job.file)
    tables = Tables.of(traces)
    first, *others = list(dict.fromkeys(tables.labels.values())) or [""]
    if not others:
        raise UserError("there are no finished runs of two checkpoints with different weights")
    chosen = [(other, first) for other in others]
    if args.json:
        print(json.dumps(to_json(tables, chosen)))
    else:
        _show(console(tables=args.tables), tables, chosen)
    return 1 if left else 0


def to_json(tables: Tables, chosen: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The tables as lists of rows; what is not known is null."""
    from analysis.frames import plain_rows

    taus, by_depth, stretches = map(plain_rows, _frames(tables, chosen).values())
    return {"tau": taus, "by_depth": by_depth, "stretches": stretches}


def _frames(tables: Tables, chosen: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The tables of a report that pair checkpoints, of these pairs alone."""
    from analysis.measures import checkpoints, comparison

    return {
        "paired": comparison.compare(tables, chosen),
        "checkpoints-by-depth": checkpoints.by_depth(tables, chosen),
        "checkpoints-stretches": checkpoints.stretches(tables, chosen),
    }


def _show(out: Console, tables: Tables, chosen: Sequence[tuple[str, str]]) -> None:
    taus = replace(PAIRED, title="τ on the same texts", below=doubts)
    frames = _frames(tables, chosen)
    show(out, parts((taus, *CHECKPOINTS), frames, tables))
    print_lines(out, alike_lines(tables, chosen, frames["checkpoints-stretches"]))


def alike_lines(
    tables: Tables, chosen: Sequence[tuple[str, str]], stretches: Frame
) -> Iterator[str]:
    """Say of each pair that no stretch of text sets apart how far it was alike."""
    from analysis.measures.checkpoints import alike

    apart = (
        set() if stretches.empty else set(zip(stretches["method"], stretches["other"], strict=True))
    )
    for one, other in chosen:
        if {(one, other), (other, one)} & apart:
            continue
        same, texts = alike(tables, one, other)
        if 0 < same == texts:
            whole = f"in every round of {plural(texts, 'text')}"
            yield f"{one} and {other} accepted the same tokens {whole}."
        elif texts:
            found = f"{one} and {other} accepted the same in {same} of {plural(texts, 'text')}"
            yield f"{found}; in none does one take in a round what costs the other several."
