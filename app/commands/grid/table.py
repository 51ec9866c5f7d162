"""``grid table``: all methods on the same prompts, greedily and at T = 1, in one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.numbers import UNKNOWN, interval, number, ratio, tau
from app.command_line import option
from app.commands import common
from app.commands.grid.sweep import Grid, Sweep, plan_of
from app.commands.options import BUDGETS, POSITIVE, Printed
from app.commands.prompts import check_turns
from app.terminal import FittingTable, ProgressBar, console, one_line, say
from core import VERSION
from core.decoding.request import RunRequest
from core.files import replacing
from core.journal import alone
from core.methods.names import PLAIN
from core.progress import Steps
from core.ranges import Range

if TYPE_CHECKING:
    from analysis.experiments.family import Entry
    from analysis.experiments.sweep import Plan
    from analysis.experiments.tabulate import Tabulation

COLUMNS = ("", "T", "τ", "95 %", "texts", "TVD 1 2 3", "top 16", "of positions", "timed",
           "draft ms", "round", "× plain", "× generate")  # fmt: skip
LEGEND = (
    "TVD and top 16: means at depths 1, 2, 3, each of so many positions; methods reach different "
    "ones. round: its time ÷ that of plain decoding's. × plain, × generate: medians over the timed "
    "prompts. –: not known; τ of fewer than 5 prompts has no interval, plain decoding no draft."
)


@dataclass(frozen=True, kw_only=True)
class Options(Printed, Grid):
    """Measure methods on the same prompts in one table, each at --budget and at its own budget.

    The table has τ with its interval, TVD and top-16 coverage by depth, the cost of drafting and of
    a round, and the speed against plain decoding and transformers' generate(). Acceptance is
    computed from the target's texts on all prompts; methods that cannot be computed so are run.
    Times are from real runs on every n-th prompt, all methods in turn. table.json has every row,
    also by the prompts' sources. Repeat the command to continue where it was stopped; rows of new
    weights are made anew.
    """

    budget: tuple[int, ...] = option((16, 64), "drafted nodes; a chain has its own", BUDGETS)
    temperature: tuple[float, ...] = option((0.0, 1.0), "0 is greedy", Range(0))
    every: int = option(1, "take every n-th of the prompts", POSITIVE)
    time_every: int = option(10, "time every n-th of these; 0: none", Range(0))


def main(args: Options) -> int:
    plan = _plan(args)
    with alone(args.out, "table", resumes=True):
        engine = common.load_engine(args, [str(v.method) for v in plan.variants])
        check_turns(plan.prompts, engine.prepare())
        from analysis.experiments.family import ALL, entries
        from analysis.experiments.tabulate import Tabulation
        from app.sweep_runner import machine

        work = Tabulation(engine, plan, args.out, args.time_every, machine(engine))
        for method, why in work.run_anyway.items():
            say(f"{method} {why}: it is run on every prompt")
        try:  # drafting goes first: it is what most columns need
            what = "drafting on the target's texts"
            _each(work.draft, args.temperature, what, len(work.numbers))
            _each(work.time, args.temperature, "timing", len(work.timed) * len(work.rivals))
        finally:
            found = [each for t in args.temperature for each in entries(work.measured(t))]
            _write(args.out / "table.json", work, found)
    shown = [entry for entry in found if entry.source == ALL]
    out = console(tables=args.tables)
    out.print(FittingTable(COLUMNS, [_cells(entry) for entry in shown], left=("",)))
    say(LEGEND)
    say(f"{args.out / 'table.json'}: {len(found)} rows")
    exact = str(work.language.model.dtype) in ("torch.float32", "torch.float64")
    return _conclude(shown, exact)


def _plan(args: Options) -> Plan:
    """Raises UserError for a setting out of range, before anything is loaded."""
    given = {field.name: getattr(args, field.name) for field in fields(Grid)}
    if args.methods and PLAIN not in args.methods:
        given["methods"] = (PLAIN, *args.methods)
    plan = plan_of(Sweep(**given), own_budgets=True)
    return replace(plan, prompts=plan.prompts[:: args.every])


def _each(
    part: Callable[[float, Steps], None], temperatures: Sequence[float], what: str, steps: int
) -> None:
    """A part of the work at every temperature, with one bar."""
    with ProgressBar(what, steps * len(temperatures)) as progress:
        for index, temperature in enumerate(temperatures):

            def report(done: float, note: str, before: int = index * steps) -> None:
                progress.at(before + done, note)

            part(temperature, report)


def _write(path: Path, work: Tabulation, found: Sequence[Entry]) -> None:
    about = {
        "model": work.language.name, "version": VERSION, **work.machine,
        "max_new_tokens": work.plan.terms.max_new_tokens,
        "prompts": len(work.numbers), "timed": len(work.timed), "ran": work.run_anyway,
    }  # fmt: skip
    with replacing(path) as file:
        rows = [entry.to_json() for entry in found]
        file.write_text(
            json.dumps({**about, "rows": rows}, indent=1, allow_nan=False) + "\n", "utf-8"
        )


def _conclude(shown: Sequence[Entry], exact: bool) -> int:
    """Say what contradicts; the exit code. A timed run must take the rounds that its text foretells
    and, where its rule keeps it, write plain decoding's text: in numbers that are ``exact`` enough
    to tell (in bfloat16 two tokens may tie)."""
    from analysis.experiments.family import title

    wrong = [title(entry) for entry in shown if entry.same < entry.timed and _keeps_text(entry)]
    other = [
        title(entry) for entry in shown if entry.agree is not None and entry.agree < entry.timed
    ]
    if wrong:
        say(f"not plain decoding's tokens: {', '.join(wrong)}; `audit` shows where, and if a tie")
    if other:
        say(f"not the rounds that follow from the text: {', '.join(other)}")
    return int(exact and bool(wrong))


def _keeps_text(entry: Entry) -> bool:
    asked = RunRequest("", entry.method, options=tuple(entry.options.items()))
    return replace(asked, temperature=entry.temperature).keeps_text


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
        _first(entry.probed, str),
        str(entry.timed or "–"),
        number(entry.draft_ms, 1),
        ratio(round_ms / forward if round_ms and forward else None),
        ratio(entry.speed or None),
        ratio(entry.generate or None),
    )


def _first(values: Sequence[float], form: Callable[[Any], str] = number) -> str:
    return " ".join(map(form, values[:3])) or UNKNOWN
