"""``cost``: what a round costs on this machine, and which budget pays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.numbers import milliseconds, number, rate, ratio, share
from app.command_line import REQUIRED, option, words
from app.commands import common
from app.commands.options import BUDGETS, METHOD_HELP, POSITIVE, MethodOptions, Model, method
from app.object_stores import here
from app.terminal import FittingTable, ProgressBar, bar, console, say
from core.errors import UserError

if TYPE_CHECKING:
    from analysis.collected.collection import Collection
    from analysis.experiments.cost import Estimate, RealRun, VerifyFit
    from core.decoding.engine import Engine


@dataclass(frozen=True, kw_only=True)
class Options(MethodOptions, Model):
    """Measure what a round costs on this machine, and name the budget that pays.

    The command measures the time to verify by the number of rows, and fits it. It adds the time
    that the method drafts and builds, and simulates rounds on a collected text (`collect`). The
    result is the expected tokens/s by budget. --check decodes at the best budget, at its neighbours
    and plainly, and compares.
    """

    file: Path = words("a collected text", read=here)
    methods: tuple[str, ...] = option(
        REQUIRED, f"whose steps are timed: {METHOD_HELP}", read=method, metavar="METHOD"
    )
    budget: tuple[int, ...] = option(
        (1, 2, 4, 8, 12, 16, 24, 32, 64, 128, 256), "drafted nodes a round", BUDGETS
    )
    repeats: int = option(7, "how often each measurement is taken", POSITIVE)
    check: bool = option(False, "decode for real and compare")
    json: bool = option(False, "one JSON object on stdout, no table; What-if opens it")


def main(args: Options) -> int:
    from analysis.collected.collection import Collection
    from analysis.collected.whatif import Simulation

    collection = Collection.load(args.file)
    simulation = Simulation(collection, args.method, args.values)
    budgets = sorted(set(args.budget))
    if args.check and collection.given:
        raise UserError(f"{args.file} holds a given text, which no run writes: leave --check out")
    engine = _engine(args, collection)
    from analysis.experiments.cost import (
        Cost,
        best_budget,
        check_simulated,
        fit,
        sizes_up_to,
        speed_estimates,
        stages,
        verify_times,
    )

    decoder = engine.method(simulation.method, simulation.options)
    target, positions = engine.target(decoder), collection.positions
    with ProgressBar("measuring") as progress:
        text = collection.tokens[: positions[len(positions) // 2]].tolist()
        sizes = sizes_up_to(max(budgets) + 1)
        points = verify_times(target, text, sizes, args.repeats, progress.at)
        verify = fit(points)
        progress.at(None, "draft, build and commit")
        timed = tuple(stages(simulation, decoder, target, budgets, args.repeats))
        found = speed_estimates(verify, timed, simulation.curve(budgets))
        chosen, plain, real = best_budget(found), 1 / points[0].seconds, list["RealRun"]()
        for budget in _neighbours(budgets, chosen.budget) if args.check else ():
            progress.at(None, f"decoding at budget {budget}")
            real.append(check_simulated(engine, simulation, budget))
    if args.json:
        cost = Cost(collection.header.name, simulation.method, verify, timed)
        rows = [asdict(e) | {"tokens_per_second": e.tokens_per_second} for e in found]
        facts = {"plain": plain, "best": chosen.budget, "points": [asdict(p) for p in points]}
        facts |= {"expected": rows, "checked": [asdict(run) for run in real]}
        print(json.dumps(cost.to_json() | facts, allow_nan=False))
    else:
        _show(verify, found, plain, real)
        _conclude(chosen, plain, real)
    return 1 if any(not run.rounds_equal for run in real) else 0


def _engine(args: Options, collection: Collection) -> Engine:
    engine = common.load_engine(args)
    if engine.prepare().name != collection.header.name:
        raise UserError(
            f"{args.file} was collected with {collection.header.name!r}: name it with --model"
        )
    return engine


def _neighbours(budgets: Sequence[int], budget: int) -> Sequence[int]:
    at = budgets.index(budget)
    return budgets[max(0, at - 1) : at + 2]


def _show(
    verify: VerifyFit, found: Sequence[Estimate], plain: float, real: Sequence[RealRun]
) -> None:
    out, rates = console(), {run.budget: run.tokens_per_second for run in real}
    terms = [
        f"{t * 1e3:.3g} ms{p}" for t, p in zip(verify.terms, ("", "·n", "·n²"), strict=False) if t
    ]
    law = "" if verify.form == "piecewise" else f" = {' + '.join(terms)}"
    out.print(
        f"verify {verify.form}{law} · left-out points within {share(verify.residual)} (median), "
        f"{share(verify.worst)} (worst) · plain decoding {rate(plain)} tokens/s",
        soft_wrap=True,
    )
    most = max(e.tokens_per_second for e in found)
    columns = ["budget", "tokens/round", "draft", "build", "verify", "tokens/s", ""]
    rows = [
        (
            str(e.budget),
            number(e.tokens_per_round) + ("" if e.exact else " (not exact)"),
            milliseconds(e.draft, 1), milliseconds(e.build, 2), milliseconds(e.verify, 1),
            rate(e.tokens_per_second), bar(e.tokens_per_second, most),
            *([rate(rates[e.budget]) if e.budget in rates else ""] if real else []),
        )
        for e in found
    ]  # fmt: skip
    out.print(FittingTable(columns + (["real"] if real else []), rows, left=("",)))


def _conclude(chosen: Estimate, plain: float, real: Sequence[RealRun]) -> None:
    expected = chosen.tokens_per_second
    say(
        f"best budget: {chosen.budget}, {rate(expected)} tokens/s expected, "
        f"{ratio(expected / plain)} plain decoding"
        f"{'' if chosen.exact else ' (from rounds that are not exact)'}"
    )
    if not real:
        return
    rates = {run.budget: speed for run in real if (speed := run.tokens_per_second) is not None}
    if got := rates.get(chosen.budget):
        say(
            f"real runs: {rate(got)} tokens/s at {chosen.budget} ({share(got / expected, 0)} of "
            f"what was expected); fastest of {', '.join(map(str, rates))}: "
            f"{max(rates, key=rates.__getitem__)}"
        )
    else:
        say(f"the real run at {chosen.budget} took a single round, too few for tokens/s")
    wrong = [str(run.budget) for run in real if not run.rounds_equal]
    say(
        f"rounds other than simulated at budget {', '.join(wrong)}"
        if wrong
        else "every real run took exactly the simulated rounds"
    )
