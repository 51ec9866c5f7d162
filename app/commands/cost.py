"""``cost``: what a round costs on this machine, and which budget pays."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands import common
from app.terminal import Progress, bar, console, say, table
from core.errors import UserError

if TYPE_CHECKING:
    from analysis.collected import Collected
    from analysis.cost import Checked, Expected, Fit
    from core.decoding.engine import Engine

BUDGETS = (1, 2, 4, 8, 12, 16, 24, 32, 64, 128, 256)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure verify time against rows on this machine, fit it, and put it together with a\n"
        "method's drafting and building and with the rounds simulated on a collected text\n"
        "(collect FILE): expected tokens/s by budget. --check decodes at the best one, at its\n"
        "neighbours and plainly, and says what came out."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a collected text")
    common.add_method_options(parser)
    parser.add_argument(
        "--budget", type=common.whole, nargs="+", default=list(BUDGETS), metavar="N",
        help="default " + " ".join(map(str, BUDGETS)),
    )  # fmt: skip
    parser.add_argument("--repeats", type=common.whole, default=7, metavar="N", help="default 7")
    parser.add_argument("--check", action="store_true", help="decode for real and compare")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object on stdout, no table; What-if opens it"
    )
    common.add_model_options(parser)


def main(args: argparse.Namespace) -> int:
    if args.repeats < 1:
        raise UserError(f"the repeats must be at least 1, not {args.repeats}")
    from analysis.collected import Collected
    from analysis.whatif import Simulation, check_budget

    collected = Collected.load(args.file)
    simulation = Simulation(collected, common.chosen_method(args), dict(args.set))
    budgets = sorted(set(args.budget))
    for budget in budgets:
        check_budget(budget)
    engine = _engine(args, collected)
    from analysis.cost import Cost, best, check, expected, fit, sizes_up_to, stages, verify_times

    method = engine.method(simulation.method, simulation.options)
    target, positions = engine.target(method), collected.positions
    with Progress("measuring") as progress:
        text = collected.tokens[: positions[len(positions) // 2]].tolist()
        sizes = sizes_up_to(max(budgets) + 1)
        points = verify_times(target, text, sizes, args.repeats, progress.at)
        cost = fit(points)
        progress.at(None, "draft, build and commit")
        staged = list(stages(simulation, method, target, budgets, args.repeats))
        found = expected(cost, staged, simulation.curve(budgets))
        named, plain, checks = best(found), 1 / points[0].seconds, []
        if args.check:
            for budget in _neighbours(budgets, named.budget):
                progress.at(None, f"decoding at budget {budget}")
                checks.append(check(engine, simulation, budget))
    kept = Cost(collected.header.name, simulation.method, cost, tuple(staged))
    facts = {**kept.to_json(), "plain": plain, "best": named.budget,
             "points": [asdict(p) for p in points],
             "expected": [asdict(e) | {"tokens_per_second": e.tokens_per_second} for e in found],
             "checked": [asdict(c) for c in checks]}  # fmt: skip
    if args.json:
        print(json.dumps(facts))
    else:
        _show(cost, found, plain, {c.budget: c for c in checks})
        _conclude(named, plain, checks)
    return 1 if any(not c.rounds_equal for c in checks) else 0


def _engine(args: argparse.Namespace, collected: Collected) -> Engine:
    engine = common.load_engine(args)
    if engine.prepare().name != collected.header.name:
        raise UserError(
            f"{args.file} was collected with {collected.header.name!r}: name it with --model"
        )
    return engine


def _neighbours(budgets: list[int], named: int) -> list[int]:
    """The budget and those beside it."""
    at = budgets.index(named)
    return budgets[max(0, at - 1) : at + 2]


def _show(cost: Fit, found: list[Expected], plain: float, checked: dict[int, Checked]) -> None:
    out = console()
    terms = "" if cost.form == "piecewise" else " = " + " + ".join(
        f"{t * 1e3:.3g} ms{p}" for t, p in zip(cost.terms, ("", "·n", "·n²"), strict=True) if t
    )  # fmt: skip
    out.print(
        f"verify {cost.form}{terms} · left-out points within {cost.residual:.1%} (median), "
        f"{cost.worst:.1%} (worst) · plain decoding {plain:.1f} tokens/s",
        soft_wrap=True,
    )
    most = max(e.tokens_per_second for e in found)
    columns = ["budget", "tokens/round", "draft", "build", "verify", "tokens/s", ""]
    rows = []
    for e in found:
        real = checked.get(e.budget)
        rows.append([
            str(e.budget), f"{e.tokens_per_round:.2f}" + ("" if e.exact else " (not exact)"),
            f"{e.draft * 1e3:.1f} ms", f"{e.build * 1e3:.2f} ms", f"{e.verify * 1e3:.1f} ms",
            f"{e.tokens_per_second:.1f}", bar(e.tokens_per_second, most),
            *([f"{real.tokens_per_second:.1f}" if real else ""] if checked else []),
        ])  # fmt: skip
    out.print(table(columns + (["real"] if checked else []), rows, left=("",)))


def _conclude(named: Expected, plain: float, checks: list[Checked]) -> None:
    say(
        f"best budget: {named.budget}, {named.tokens_per_second:.1f} tokens/s expected, "
        f"{named.tokens_per_second / plain:.2f} × plain decoding"
    )
    if not checks:
        return
    real = {c.budget: c.tokens_per_second for c in checks}
    fastest = max(real, key=real.__getitem__)
    off = real[named.budget] / named.tokens_per_second - 1
    say(
        f"real runs: {real[named.budget]:.1f} tokens/s at {named.budget} ({off:+.0%} of what was "
        f"expected); fastest of {', '.join(map(str, real))}: {fastest}"
    )
    wrong = [c.budget for c in checks if not c.rounds_equal]
    say(
        f"rounds other than simulated at budget {', '.join(map(str, wrong))}"
        if wrong
        else "every real run took exactly the simulated rounds"
    )
