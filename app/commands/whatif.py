"""``whatif``: what methods, budgets and options would do on a collected text, without the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.numbers import interval, signed, tau
from app.command_line import option, words
from app.commands.common import collected_at
from app.commands.options import BUDGETS, METHOD_HELP, POSITIVE, Printed, Set, method
from app.object_stores import here
from app.terminal import FittingTable, bar, console, one_line, print_lines, say
from core.errors import UserError
from core.stats import FEW_UNITS, TOO_FEW

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.collected.collection import Collection
    from analysis.collected.whatif import SimulatedRun, Simulation
    from core.methods.method import Options as Values

COLUMNS = ("method", "budget", "τ", "rounds", "", "exact")


@dataclass(frozen=True, kw_only=True)
class Options(Printed, Set):
    """Simulate methods and budgets over collected texts, without the model.

    The rounds are those of a real run. What is not exact is marked. Rounds on a text that was
    served follow that text. Over several texts it shows the mean of each setting with an interval
    across texts, the difference from the best setting, paired by text, and the text that differs
    most.
    """

    files: tuple[Path, ...] = words("collected texts (`collect`), or folders of them", read=here)
    methods: tuple[str, ...] = option(
        (), f"{METHOD_HELP} (default: all that the texts hold)", read=method, metavar="METHOD"
    )
    budget: tuple[int, ...] = option(
        (8, 16, 32, 64, 128, 256, 1024), "drafted nodes a round", BUDGETS
    )
    max_new_tokens: int | None = option(None, "tokens of the text (default: all)", POSITIVE)
    json: bool = option(False, "one JSON object a run on stdout")


def main(args: Options) -> int:
    from analysis.collected.collection import Collection

    collections = [Collection.load(file) for file in collected_at(args.files)]
    collection, *others = collections
    held = [name for name in collection.methods if all(name in c.methods for c in others)]
    methods = list(args.methods) or held
    if not methods:
        raise UserError(f"{args.files[0]} holds no listed drafter: name a method")
    if others:
        return _several(collections, methods, args)
    runs = _runs(collection, methods, args)
    if args.json:
        for run in runs:
            print(json.dumps(_facts(run)))
    else:
        _show(console(tables=args.tables), collection, runs)
    return 0


def _runs(collection: Collection, methods: Sequence[str], args: Options) -> list[SimulatedRun]:
    simulations = _simulations(collection, methods, args.values)
    return [run for s in simulations for run in s.curve(args.budget, args.max_new_tokens)]


def _several(collections: Sequence[Collection], methods: Sequence[str], args: Options) -> int:
    """The same settings over several texts."""
    from analysis.collected.many_texts import departing, whatif_texts
    from analysis.frames import plain_rows

    if len({c.header.name for c in collections}) > 1:
        raise UserError("these texts are of several targets: simulate those of one at a time")
    found = whatif_texts({str(c.path): _runs(c, methods, args) for c in collections})
    if args.json:
        print(json.dumps(plain_rows(found)))
        return 0
    found["apart"] = [one_line(Path(name).name, 40) for name in found["apart"]]
    apart = departing(found, "tau", says="")
    rows = [
        (
            row["method"], str(row["budget"]), tau(row["tau"]), interval(row["low"], row["high"]),
            *_from_best(row),
            furthest, "yes" if row["exact"] else "no",
        )
        for row, furthest in zip(found.to_dict("records"), apart, strict=True)
    ]  # fmt: skip
    out = console(tables=args.tables)
    count = sum(c.end - c.answer for c in collections)
    name = one_line(collections[0].header.name, 60)
    out.print(f"{name} · {len(collections)} texts, {count} new tokens", soft_wrap=True)
    print_lines(out, filter(None, (each.given for each in collections)))
    columns = ("method", "budget", "τ", "95 %", "from the best", "95 %", "differs most", "exact")
    out.print(FittingTable(columns, rows, left=("method", "differs most")))
    if len(collections) < FEW_UNITS:
        out.print(TOO_FEW)
    return 0


def _from_best(row: Mapping[str, Any]) -> tuple[str, str]:
    """The difference from the best setting and its interval; the best itself has none."""
    low, high = row["difference_low"], row["difference_high"]
    if row["difference"] == 0 and not abs(low) + abs(high) > 0:
        return "none", ""
    return signed(row["difference"]), interval(low, high, sign=True)


def _simulations(
    collection: Collection, methods: Sequence[str], values: Values
) -> list[Simulation]:
    """One a method, each with its own of the options. Raises UserError for an option of none."""
    from analysis.collected.whatif import Simulation
    from analysis.experiments.variants import variants_of

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


def _show(out: Console, collection: Collection, runs: Sequence[SimulatedRun]) -> None:
    most = max(run.tau for run in runs)
    rows = [
        (
            run.method, str(run.budget), tau(run.tau), str(run.rounds), bar(run.tau, most),
            "yes" if run.exact else "no",
        )
        for run in runs
    ]  # fmt: skip
    count = collection.end - collection.answer
    out.print(f"{collection.header.name} · {count} new tokens", soft_wrap=True)
    print_lines(out, filter(None, [collection.given]))
    out.print(FittingTable(COLUMNS, rows, left=("method", "")))
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
