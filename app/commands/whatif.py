"""``whatif``: what methods, budgets and options would do on a collected text, without the model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands import common
from app.terminal import bar, console, say, table
from core.errors import UserError

if TYPE_CHECKING:
    from analysis.collected import Collected
    from analysis.whatif import Simulation, WhatIf
    from core.methods.registry import Options

BUDGETS = (8, 16, 32, 64, 128, 256, 1024)
COLUMNS = ("method", "budget", "τ", "rounds", "", "exact")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Simulate methods and budgets over a text that was collected (collect FILE): the rounds a\n"
        "real run would take, without the model. What is not exact says so."
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    common.add_method_options(parser, several=True)
    parser.add_argument(
        "--budget", type=common.whole, nargs="+", default=list(BUDGETS), metavar="N",
        help="default " + " ".join(map(str, BUDGETS)),
    )  # fmt: skip
    parser.add_argument(
        "--max-new-tokens", type=common.whole, metavar="N", help="default: the whole text"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a run on stdout")


def main(args: argparse.Namespace) -> int:
    from analysis.collected import Collected

    collected = Collected.load(args.file)
    methods = [*args.methods, *args.named] or list(collected.methods)
    if not methods:
        raise UserError(f"{args.file} holds no listed drafter: name a method")
    simulations = _simulations(collected, methods, dict(args.set))
    found = [run for s in simulations for run in s.curve(args.budget, args.max_new_tokens)]
    if args.json:
        for run in found:
            print(json.dumps(_facts(run)))
        return 0
    _show(collected, found)
    return 0


def _simulations(collected: Collected, methods: Sequence[str], given: Options) -> list[Simulation]:
    """One a method. Each takes those of the options that it has; none that nobody has is left."""
    from analysis.contestants import field_of
    from analysis.whatif import Simulation

    if len(methods) == 1:  # its own complaint names the options there are
        return [Simulation(collected, methods[0], given)]
    own = {c.method: dict(c.options) for c in field_of(methods, (1,), given) if c.method}
    return [Simulation(collected, method, own[method]) for method in methods]


def _facts(run: WhatIf) -> dict[str, object]:
    return {
        "method": run.method, "budget": run.budget, "options": dict(run.options),
        "tau": run.tau, "rounds": run.rounds, "acceptance_lengths": run.lengths,
        "new_tokens": run.new_tokens, "exact": run.exact, "note": run.note,
    }  # fmt: skip


def _show(collected: Collected, found: list[WhatIf]) -> None:
    most = max(run.tau for run in found)
    rows = [
        (
            run.method, str(run.budget), f"{run.tau:.2f}", str(run.rounds),
            bar(run.tau, most), "yes" if run.exact else "no",
        )
        for run in found
    ]  # fmt: skip
    out = console()
    header = collected.header
    out.print(f"{header.name} · {collected.end - collected.answer} new tokens", soft_wrap=True)
    out.print(table(COLUMNS, rows, left=("method", "")))
    for note in _notes(found):
        say(note)


def _notes(found: Sequence[WhatIf]) -> list[str]:
    """Each note once, with the rows it is about unless they are the exact ones, as the table has
    it."""
    rows: dict[str, dict[str, list[str]]] = {}
    for run in found:
        method = "" if run.exact else run.method
        rows.setdefault(run.note, {}).setdefault(method, []).append(str(run.budget))
    return [
        f"{method}, budget {' '.join(budgets)}: {note}" if method else note
        for note, methods in rows.items()
        for method, budgets in methods.items()
    ]
