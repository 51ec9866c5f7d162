"""``table``: all methods on the same prompts, greedily and at T = 1, in one table.

What a method accepts follows from the target's own texts and is computed for every prompt; times
are taken in real runs on some of them. One row for each method, budget, temperature and source.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.numbers import UNKNOWN, interval, number, ratio, tau
from app.commands import arguments, common, sweep
from app.terminal import ProgressBar, console, one_line, say, table
from core import VERSION
from core.decoding.request import RunRequest
from core.errors import UserError
from core.files import replacing
from core.journal import alone
from core.methods.names import PLAIN

if TYPE_CHECKING:
    from analysis.experiments.family import Entry
    from analysis.experiments.sweep import Plan
    from analysis.experiments.tabulate import Report, Tabulation

COLUMNS = ("", "T", "τ", "95 %", "texts", "TVD 1 2 3", "top 16", "timed", "draft ms", "round",
           "× plain", "× generate")  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "One table of methods on the same prompts, each at the budgets and at its own: τ with its\n"
        "interval, TVD and top-16 coverage by depth, what drafting and a round cost, and how fast\n"
        "it is against plain decoding and transformers' generate.\n"
        "What is accepted follows from the target's texts, on all prompts; methods for which it\n"
        "does not are run. Times are of real runs on every n-th prompt, all methods in turn.\n"
        "  OUT/table.json  every row, also by the prompts' sources\n"
        "The same command continues where it was stopped, and makes the rows of new weights anew."
    )
    sweep.add_grid_arguments(parser, budgets=(16, 64))
    group = parser.add_argument_group("prompts of the table")
    arguments.add_number(group, "--every", 1, "of the prompts take every n-th")
    arguments.add_number(group, "--time-every", 10, "of these time every n-th; 0: none")
    group = parser.add_argument_group("sampling (of the target)")
    arguments.add_numbers(
        group, "--temperatures", (0.0, 1.0), "0 is greedy", "T", arguments.decimal
    )
    parser.set_defaults(top_k=0, top_p=1.0, seed=(0,), no_probe=False, temperature=0.0)


def main(args: argparse.Namespace) -> int:
    plan = _plan(args)
    with alone(args.out, "table"):
        engine = common.load_engine(args, [str(v.method) for v in plan.variants])
        from analysis.experiments.tabulate import Tabulation
        from app.sweep_runner import machine

        work = Tabulation(engine, plan, args.out, args.time_every, machine(engine))
        for method, why in work.run_anyway.items():
            say(f"{method} {why}: it is run on every prompt")
        try:
            _work(work, args.temperatures)
        finally:
            found = _entries(work, args.temperatures)
            _write(args.out / "table.json", work, found)
    from analysis.experiments.family import ALL

    shown = [entry for entry in found if entry.source == ALL]
    console().print(table(COLUMNS, [_cells(entry) for entry in shown], left=("",)))
    say(f"{args.out / 'table.json'}: {len(found)} rows")
    return _conclude(shown)


def _plan(args: argparse.Namespace) -> Plan:
    """Raises UserError for a setting out of range, before anything is loaded."""
    if args.every < 1 or args.time_every < 0:
        raise UserError("--every must be at least 1, and --time-every at least 0")
    named = [*args.methods, *args.named]
    if named and PLAIN not in named:
        args.methods = [PLAIN, *args.methods]
    for temperature in args.temperatures:
        RunRequest("", PLAIN, temperature=temperature).check()
    plan = sweep.plan_of(args, own_budgets=True)
    return replace(plan, prompts=plan.prompts[:: args.every])


def _work(work: Tabulation, temperatures: Sequence[float]) -> None:
    """All drafting first: it is what most columns need."""
    _each(work.draft, temperatures, "drafting on the target's texts", len(work.numbers))
    _each(work.time, temperatures, "timing", len(work.timed) * len(work.rivals))


def _each(
    part: Callable[[float, Report], None], temperatures: Sequence[float], what: str, steps: int
) -> None:
    """A part of the work at every temperature, with one bar."""
    with ProgressBar(what, steps * len(temperatures)) as progress:
        for index, temperature in enumerate(temperatures):

            def report(done: float, note: str, before: int = index * steps) -> None:
                progress.at(before + done, note)

            part(temperature, report)


def _entries(work: Tabulation, temperatures: Sequence[float]) -> list[Entry]:
    from analysis.experiments.family import entries

    return [each for t in temperatures for each in entries(work.measured(t))]


def _write(path: Path, work: Tabulation, found: Sequence[Entry]) -> None:
    about = {
        "model": work.language.name, "version": VERSION, **work.machine,
        "max_new_tokens": work.plan.terms.max_new_tokens,
        "prompts": len(work.numbers), "timed": len(work.timed), "ran": work.run_anyway,
    }  # fmt: skip
    with replacing(path) as file:
        rows = [entry.to_json() for entry in found]
        file.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", "utf-8")


def _conclude(shown: Sequence[Entry]) -> int:
    """Say what contradicts; the exit code. A timed run must write plain decoding's text, and take
    the rounds that its text foretells."""
    from analysis.experiments.family import title

    wrong = [title(entry) for entry in shown if entry.same < entry.timed]
    other = [
        title(entry) for entry in shown if entry.agree is not None and entry.agree < entry.timed
    ]
    if wrong:
        say(f"not plain decoding's tokens: {', '.join(wrong)}; `audit` shows where, and if a tie")
    if other:
        say(f"not the rounds that follow from the text: {', '.join(other)}")
    return int(bool(wrong))


def _cells(entry: Entry) -> tuple[str, ...]:
    from analysis.experiments.family import title

    round_ms, forward = entry.round_ms, entry.forward_ms
    return (
        one_line(title(entry), 60),
        f"{entry.temperature:g}",
        tau(entry.tau),
        interval(entry.low, entry.high),
        f"{entry.texts} run" if entry.ran else str(entry.texts),
        _first(entry.tvd),
        _first(entry.coverage),
        str(entry.timed or "–"),
        number(entry.draft_ms, 1),
        ratio(round_ms / forward if round_ms and forward else None),
        ratio(entry.speed or None),
        ratio(entry.generate or None),
    )


def _first(values: Sequence[float]) -> str:
    return " ".join(map(number, values[:3])) or UNKNOWN
