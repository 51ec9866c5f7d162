"""``bench``: methods × budgets against plain decoding and against transformers' ``generate``."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from app.commands import common
from app.terminal import Progress, console, say, table
from core.errors import UserError
from core.methods.registry import RECIPES

if TYPE_CHECKING:
    from analysis.bench import Benched, Plan, Roof, Row
    from core.decoding.engine import Engine

COLUMNS = ("", "τ", "s", "tokens/s", "× plain", "× generate", "tokens as plain")
ROOFLINE = ("a round", "rows", "MB", "GFLOP", "floor ms", "bound", "ms", "reached", "whole run")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Time methods and budgets end to end against plain decoding with the same engine and\n"
        "against transformers' generate(), without and with prompt lookup: the same prompts, one\n"
        "run, the order changing every time; medians over repeats, ratios by prompt.\n"
        "Below it the roofline: what a round must at least move and compute (the drafter's pass\n"
        "included; activations left out), the time that takes at the copy bandwidth and matrix\n"
        "rate measured in the same run, and which share of it was reached: in the rounds, and in\n"
        "the whole run, prefill included.\n"
        "Exit code 1 when a greedy or seeded text is not plain decoding's, token by token."
    )
    common.add_method_options(parser, several=True)
    common.add_prompt_options(parser, required=False)
    group = parser.add_argument_group("decoding")
    group.add_argument(
        "--budget",
        type=common.whole,
        nargs="+",
        default=[8, 16, 64],
        metavar="N",
        help="one or several budgets (default 8 16 64)",
    )
    group.add_argument(
        "--max-new-tokens", type=common.whole, default=64, metavar="N", help="default 64"
    )
    group.add_argument("--repeats", type=common.whole, default=3, metavar="N", help="default 3")
    common.add_sampling_options(parser, temperature=0.0)
    common.add_model_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, no table")


def main(args: argparse.Namespace) -> int:
    if args.repeats < 1:
        raise UserError(f"the repeats must be at least 1, not {args.repeats}")
    plan = _plan(args)
    from analysis.bench import bench, contestants, roofs, rows

    field = contestants([*args.methods, *args.named] or tuple(RECIPES), args.budget, dict(args.set))
    engine = common.load_engine(args, [c.method for c in field if c.method])
    for contestant in field:
        if contestant.method is not None:
            engine.method(contestant.method, dict(contestant.options))
    with Progress("timing", plan.repeats * len(plan.prompts) * len(field)) as progress:
        benched = bench(engine, plan, field, progress.at)
    found, beside = rows(benched.timings, field), roofs(benched, field)
    if args.json:
        facts = {"rows": [asdict(row) for row in found], "machine": asdict(benched.machine)}
        facts |= {"roofline": [asdict(roof) for roof in beside]}
        print(json.dumps(_facts(engine, plan) | facts))
    else:
        print_rows(engine, plan, found)
        print_roofs(benched, beside)
    return _conclude(found, exact=str(_facts(engine, plan)["dtype"]) in ("float32", "float64"))


def _plan(args: argparse.Namespace) -> Plan:
    """Raises UserError for a setting out of range, before anything is loaded."""
    from analysis.bench import Plan
    from analysis.prompts import PROMPTS
    from core.decoding.engine import RunRequest

    request = replace(common.asked(args, "ar"), options=())  # each contestant has its own
    for budget in args.budget:
        RunRequest(prompt="", budget=budget).settings()
    request.settings()
    return Plan(tuple(common.chosen_prompts(args, PROMPTS)), request, args.repeats)


def print_rows(engine: Engine, plan: Plan, found: list[Row]) -> None:
    facts, out = _facts(engine, plan), console()
    out.print(
        f"{facts['model']} · {facts['device']} · {facts['dtype']} · {facts['threads']} threads · "
        f"{len(plan.prompts)} prompts × {plan.repeats} repeats · "
        f"up to {plan.request.max_new_tokens} new tokens",
        soft_wrap=True,
    )
    sampled = plan.request.temperature > 0
    out.print(table(COLUMNS, [_cells(row, sampled) for row in found], left=("",)))


def _cells(row: Row, sampled: bool) -> tuple[str, ...]:
    own_noise = sampled and row.method == "generate"  # it draws from another random stream
    return (
        row.name,
        "–" if row.tau is None else f"{row.tau:.2f}",
        f"{row.seconds:.2f}",
        f"{row.tokens_per_second:.1f}",
        f"{row.plain_ratio:.2f}",
        f"{row.generate_ratio:.2f}",
        "–" if own_noise else f"{row.same} of {row.prompts}",
    )


def print_roofs(benched: Benched, beside: list[Roof]) -> None:
    machine, out = benched.machine, console()
    out.print()
    out.print(
        f"roofline: copies {machine.bandwidth / 1e9:.1f} GB/s, "
        f"matrices {machine.rate / 1e9:.0f} GFLOP/s, measured between the turns",
        soft_wrap=True,
    )
    out.print(table(ROOFLINE, [_roof_cells(roof) for roof in beside], left=("a round", "bound")))


def _roof_cells(roof: Roof) -> tuple[str, ...]:
    return (
        roof.name,
        f"{roof.rows:.1f}",
        f"{roof.bytes / 1e6:.1f}",
        f"{roof.flops / 1e9:.2f}",
        f"{roof.floor * 1e3:.2f}",
        roof.bound,
        "–" if roof.seconds is None else f"{roof.seconds * 1e3:.2f}",
        "–" if roof.reached is None else f"{roof.reached:.0%}",
        f"{roof.whole:.0%}",
    )


def _facts(engine: Engine, plan: Plan) -> dict[str, object]:
    import torch

    language = engine.prepare()
    settings = asdict(plan.request)
    del settings["prompt"], settings["method"], settings["budget"]
    return {
        "model": language.name,
        "device": str(language.device),
        "dtype": str(language.model.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "repeats": plan.repeats,
        "settings": settings,
        "prompts": list(plan.prompts),
    }


def _conclude(found: list[Row], exact: bool) -> int:
    """Exit code 1 when one of our methods wrote another text than plain decoding and numbers were
    ``exact`` enough to tell: in bfloat16 two tokens may tie, and drafts round otherwise."""
    wrong = [row.name for row in found if row.method != "generate" and not row.identical]
    if wrong:
        say(f"not plain decoding's tokens: {', '.join(wrong)}; `audit` tells where, and if a tie")
    return int(exact and bool(wrong))
