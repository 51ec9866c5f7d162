"""``whatif``: what methods, budgets and options would do on a collected text, without the model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.numbers import tau
from app.commands import arguments
from app.terminal import bar, console, say, table
from core.errors import UserError

if TYPE_CHECKING:
    from analysis.collection import Collection
    from analysis.whatif import SimulatedRun, Simulation
    from core.methods.method import Options

COLUMNS = ("method", "budget", "τ", "rounds", "", "exact")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Simulate methods and budgets over a collected text (collect FILE): the rounds a real run\n"
        "would take, without the model. What is not exact says so."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a collected text")
    arguments.add_method_options(parser, several=True)
    arguments.add_numbers(parser, "--budget", (8, 16, 32, 64, 128, 256, 1024))
    arguments.add_number(parser, "--max-new-tokens", None, "default: the whole text")
    parser.add_argument("--json", action="store_true", help="one JSON object a run on stdout")


def main(args: argparse.Namespace) -> int:
    from analysis.collection import Collection

    collection = Collection.load(args.file)
    methods = [*args.methods, *args.named] or list(collection.methods)
    if not methods:
        raise UserError(f"{args.file} holds no listed drafter: name a method")
    simulations = _simulations(collection, methods, arguments.option_values(args))
    runs = [run for s in simulations for run in s.curve(args.budget, args.max_new_tokens)]
    if args.json:
        for run in runs:
            print(json.dumps(_facts(run)))
    else:
        _show(collection, runs)
    return 0


def _simulations(
    collection: Collection, methods: Sequence[str], values: Options
) -> list[Simulation]:
    """One a method, each with its own of the options. Raises UserError for an option of none."""
    from analysis.variants import variants_of
    from analysis.whatif import Simulation

    if len(methods) == 1:  # its own complaint names the options there are
        return [Simulation(collection, methods[0], values)]
    options = {v.method: dict(v.options) for v in variants_of(methods, (1,), values) if v.method}
    return [Simulation(collection, method, options[method]) for method in methods]


def _facts(run: SimulatedRun) -> dict[str, object]:
    return {
        "method": run.method, "budget": run.budget, "options": dict(run.options),
        "tau": run.tau, "rounds": run.rounds, "acceptance_lengths": run.lengths,
        "new_tokens": run.new_tokens, "exact": run.exact, "note": run.note,
    }  # fmt: skip


def _show(collection: Collection, runs: Sequence[SimulatedRun]) -> None:
    most = max(run.tau for run in runs)
    rows = [
        (
            run.method, str(run.budget), tau(run.tau), str(run.rounds), bar(run.tau, most),
            "yes" if run.exact else "no",
        )
        for run in runs
    ]  # fmt: skip
    out = console()
    count = collection.end - collection.answer
    out.print(f"{collection.header.name} · {count} new tokens", soft_wrap=True)
    out.print(table(COLUMNS, rows, left=("method", "")))
    for note in _notes(runs):
        say(note)


def _notes(runs: Sequence[SimulatedRun]) -> list[str]:
    """Each note once; those of rows that are not exact name their method and budgets."""
    rows: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        rows.setdefault((run.note, "" if run.exact else run.method), []).append(str(run.budget))
    return [
        f"{method}, budget {' '.join(budgets)}: {note}" if method else note
        for (note, method), budgets in rows.items()
    ]
