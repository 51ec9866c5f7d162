"""``cost``: what a round costs on this machine, and which budget pays."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.numbers import milliseconds, number, rate, ratio, share
from app.commands import arguments, common
from app.terminal import ProgressBar, bar, console, say, table
from core.decoding.request import check_budget
from core.errors import UserError

if TYPE_CHECKING:
    from analysis.collected.collection import Collection
    from analysis.experiments.cost import Estimate, Fit, RealRun
    from core.decoding.engine import Engine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure verify time against rows on this machine, fit it, and combine it with a method's\n"
        "drafting and building and with the rounds simulated on a collected text (collect FILE):\n"
        "expected tokens/s by budget. --check decodes at the best one, at its neighbours and\n"
        "plainly, and reports what came out."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a collected text")
    arguments.add_method_options(parser)
    arguments.add_numbers(parser, "--budget", (1, 2, 4, 8, 12, 16, 24, 32, 64, 128, 256))
    arguments.add_number(parser, "--repeats", 7)
    parser.add_argument("--check", action="store_true", help="decode for real and compare")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object on stdout, no table; What-if opens it"
    )
    arguments.add_model_options(parser)


def main(args: argparse.Namespace) -> int:
    if args.repeats < 1:
        raise UserError(f"the repeats must be at least 1, not {args.repeats}")
    from analysis.collected.collection import Collection
    from analysis.collected.whatif import Simulation

    collection = Collection.load(args.file)
    simulation = Simulation(collection, arguments.one_method(args), arguments.option_values(args))
    budgets = sorted(set(args.budget))
    for budget in budgets:
        check_budget(budget)
    if args.check and collection.given:
        raise UserError(f"{args.file} holds a given text, which no run writes: leave --check out")
    engine = _engine(args, collection)
    from analysis.experiments.cost import (
        Cost,
        best,
        check,
        estimate,
        fit,
        sizes_up_to,
        stages,
        verify_times,
    )

    method = engine.method(simulation.method, simulation.options)
    target, positions = engine.target(method), collection.positions
    with ProgressBar("measuring") as progress:
        text = collection.tokens[: positions[len(positions) // 2]].tolist()
        sizes = sizes_up_to(max(budgets) + 1)
        points = verify_times(target, text, sizes, args.repeats, progress.at)
        verify = fit(points)
        progress.at(None, "draft, build and commit")
        timed = tuple(stages(simulation, method, target, budgets, args.repeats))
        found = estimate(verify, timed, simulation.curve(budgets))
        chosen, plain, real = best(found), 1 / points[0].seconds, list["RealRun"]()
        for budget in _neighbours(budgets, chosen.budget) if args.check else ():
            progress.at(None, f"decoding at budget {budget}")
            real.append(check(engine, simulation, budget))
    if args.json:
        cost = Cost(collection.header.name, simulation.method, verify, timed)
        rows = [asdict(e) | {"tokens_per_second": e.tokens_per_second} for e in found]
        facts = {"plain": plain, "best": chosen.budget, "points": [asdict(p) for p in points]}
        facts |= {"expected": rows, "checked": [asdict(run) for run in real]}
        print(json.dumps(cost.to_json() | facts))
    else:
        _show(verify, found, plain, real)
        _conclude(chosen, plain, real)
    return 1 if any(not run.rounds_equal for run in real) else 0


def _engine(args: argparse.Namespace, collection: Collection) -> Engine:
    engine = common.load_engine(args)
    if engine.prepare().name != collection.header.name:
        raise UserError(
            f"{args.file} was collected with {collection.header.name!r}: name it with --model"
        )
    return engine


def _neighbours(budgets: Sequence[int], budget: int) -> Sequence[int]:
    """The budget and those beside it."""
    at = budgets.index(budget)
    return budgets[max(0, at - 1) : at + 2]


def _show(verify: Fit, found: Sequence[Estimate], plain: float, real: Sequence[RealRun]) -> None:
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
    out.print(table(columns + (["real"] if real else []), rows, left=("",)))


def _conclude(chosen: Estimate, plain: float, real: Sequence[RealRun]) -> None:
    expected = chosen.tokens_per_second
    say(
        f"best budget: {chosen.budget}, {rate(expected)} tokens/s expected, "
        f"{ratio(expected / plain)} plain decoding"
        f"{'' if chosen.exact else ' (from rounds that are not exact)'}"
    )
    if not real:
        return
    rates = {run.budget: run.tokens_per_second for run in real}
    fastest, got = max(rates, key=rates.__getitem__), rates[chosen.budget]
    say(
        f"real runs: {rate(got)} tokens/s at {chosen.budget} ({share(got / expected, 0)} of what "
        f"was expected); fastest of {', '.join(map(str, rates))}: {fastest}"
    )
    wrong = [str(run.budget) for run in real if not run.rounds_equal]
    say(
        f"rounds other than simulated at budget {', '.join(wrong)}"
        if wrong
        else "every real run took exactly the simulated rounds"
    )
