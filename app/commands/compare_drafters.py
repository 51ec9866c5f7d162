"""``compare-drafters``: checkpoints of one drafter on the same prompts, paired by text."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands import arguments, common, sweep
from app.report.sections import CHECKPOINTS, PAIRED, Section
from app.report.shown import parts, show
from app.terminal import ProgressBar, console
from core.errors import UserError
from core.methods.registry import find, split

if TYPE_CHECKING:
    from analysis.experiments.sweep_folder import Folder
    from analysis.measures.tables import Tables

DEFAULT = "default"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Decode the same prompts with several checkpoints of one drafter (before and after a\n"
        "training, int8 and bf16) and print every number paired by text, with 95 % intervals: τ,\n"
        "and by depth acceptance, TVD, coverage and bias; then the rounds where one lives and the\n"
        "other dies. The first checkpoint is what the others are compared with. OUT is a sweep's\n"
        "folder: the same command continues, and `studio OUT` shows the rounds."
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="where the traces are kept")
    parser.add_argument("method", type=arguments.method, metavar="METHOD", help="such as ddtree")
    parser.add_argument(
        "checkpoints", nargs="+", metavar="CHECKPOINT",
        help=f"folders or hub ids; the word {DEFAULT} is the preset's, or the one that ships",
    )  # fmt: skip
    arguments.add_set(parser, "an option of the method, such as temperature=0.8")
    arguments.add_prompt_options(parser, required=False)
    group = parser.add_argument_group("decoding")
    arguments.add_number(group, "--budget", None, "drafted nodes a round; default: the method's")
    arguments.add_number(group, "--max-new-tokens", 128)
    arguments.add_sampling_options(parser, temperature=0.0, seeds=True)
    arguments.add_model_options(parser)
    parser.add_argument("--json", action="store_true", help="the tables as one JSON object")


def main(args: argparse.Namespace) -> int:
    if split(args.method)[1]:
        raise UserError("name the checkpoints after the method, not in it")
    names = list(dict.fromkeys(args.checkpoints))
    if len(names) < 2:
        raise UserError("name two checkpoints or more")
    methods = [args.method if c == DEFAULT else f"{args.method}@{c}" for c in names]
    for method in methods:
        find(method)
    budget = args.budget
    if budget is None:
        budget = common.request_of(_one_seed(args), args.method).resolved.settings.budget
    options = {"methods": methods, "named": [], "budget": [budget], "no_probe": False}
    place = {"ray": None, "workers": None}
    whole = argparse.Namespace(**{**vars(args), **options, **place})
    return sweep.carry_out(whole, lambda folder: _conclude(folder, args.json))


def _one_seed(args: argparse.Namespace) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(args), "seed": args.seed[0]})


def _conclude(folder: Folder, as_json: bool) -> int:
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
    if as_json:
        print(json.dumps(to_json(tables, chosen)))
    else:
        _show(tables, chosen)
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


def _show(tables: Tables, chosen: Sequence[tuple[str, str]]) -> None:
    taus = replace(PAIRED, title="τ on the same texts", below=Section.below)
    show(console(), parts((taus, *CHECKPOINTS), _frames(tables, chosen), tables))
