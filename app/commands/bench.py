"""``bench``: methods × budgets against plain decoding and against transformers' ``generate``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from analysis.numbers import milliseconds, number, rate, share, tau
from app.commands import arguments, common
from app.commands.prompts import prompts_of
from app.terminal import ProgressBar, console, say, table
from core.decoding.request import check_budget
from core.errors import UserError
from core.methods.names import PLAIN
from core.methods.registry import runnable

if TYPE_CHECKING:
    from analysis.experiments.bench import Plan, Result, Roof, Row
    from core.decoding.engine import Engine

COLUMNS = ("", "τ", "s", "tokens/s", "× plain", "× generate", "tokens as plain")
ROOFLINE = ("a round", "rows", "MB", "GFLOP", "floor ms", "bound", "ms", "reached", "whole run")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Time methods and budgets end to end against plain decoding with the same engine and\n"
        "against transformers' generate(), without and with prompt lookup: the same prompts, one\n"
        "run, the order changing every time; medians over repeats, ratios by prompt.\n"
        "Below it the roofline: what a round must at least move and compute (the drafter's pass\n"
        "included, activations left out), how long that takes at the copy bandwidth and matrix\n"
        "rate measured in the same run, and the share of it that was reached: in the rounds, and\n"
        "in the whole run, prefill included.\n"
        "Exit code 1 when a greedy or seeded text is not plain decoding's, token by token."
    )
    arguments.add_method_options(parser, several=True)
    arguments.add_prompt_options(parser, required=False)
    group = parser.add_argument_group("decoding")
    arguments.add_numbers(group, "--budget", (8, 16, 64), "one or several budgets")
    arguments.add_number(group, "--max-new-tokens", 64)
    arguments.add_number(group, "--repeats", 3)
    arguments.add_sampling_options(parser, temperature=0.0)
    arguments.add_model_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, no table")


def main(args: argparse.Namespace) -> int:
    plan = _plan(args)
    from analysis.experiments.bench import bench, roofs, rows, with_baselines

    methods = [*args.methods, *args.named] or runnable(args.model, args.drafter)
    variants = with_baselines(methods, args.budget, dict(args.set))
    engine = common.load_engine(args, [v.method for v in variants if v.method])
    for variant in variants:
        if variant.method is not None:
            engine.method(variant.method, dict(variant.options))
    with ProgressBar("timing", plan.repeats * len(plan.prompts) * len(variants)) as progress:
        result = bench(engine, plan, variants, progress.at)
    found, limits = rows(result.timings, variants), roofs(result, variants)
    facts = _facts(engine, plan)
    if args.json:
        facts |= {"rows": [asdict(row) for row in found], "machine": asdict(result.machine)}
        print(json.dumps(facts | {"roofline": [asdict(roof) for roof in limits]}))
    else:
        _print_rows(facts, plan, found)
        _print_roofs(result, limits)
    return _conclude(found, exact=facts["dtype"] in ("float32", "float64"))


def _plan(args: argparse.Namespace) -> Plan:
    """Raises UserError for a setting out of range, before anything is loaded."""
    from analysis.experiments.bench import Plan
    from analysis.experiments.prompts import PROMPTS

    if args.repeats < 1:
        raise UserError(f"the repeats must be at least 1, not {args.repeats}")
    for budget in args.budget:
        check_budget(budget)
    # each variant has its own options; whole decodings are compared, not their stages
    request = replace(common.request_of(args, PLAIN), options=(), timed=False)
    request.settings()
    return Plan(tuple(prompts_of(args, PROMPTS)), request, args.repeats)


def _print_rows(facts: dict[str, object], plan: Plan, found: Sequence[Row]) -> None:
    out, sampled = console(), plan.request.temperature > 0
    out.print(
        f"{facts['model']} · {facts['device']} · {facts['dtype']} · {facts['threads']} threads · "
        f"{len(plan.prompts)} prompts × {plan.repeats} repeats · "
        f"up to {plan.request.max_new_tokens} new tokens",
        soft_wrap=True,
    )
    out.print(table(COLUMNS, [_cells(row, sampled) for row in found], left=("",)))


def _cells(row: Row, sampled: bool) -> tuple[str, ...]:
    other_noise = sampled and row.method == "generate"  # it draws from another random stream
    return (
        row.name,
        tau(row.tau),
        number(row.seconds),
        rate(row.tokens_per_second),
        number(row.plain_ratio),
        number(row.generate_ratio),
        "–" if other_noise else f"{row.same} of {row.prompts}",
    )


def _print_roofs(result: Result, limits: Sequence[Roof]) -> None:
    machine, out = result.machine, console()
    out.print()
    out.print(
        f"roofline: copies {number(machine.bandwidth / 1e9, 1)} GB/s, "
        f"matrices {number(machine.rate / 1e9, 0)} GFLOP/s, measured between the turns",
        soft_wrap=True,
    )
    out.print(table(ROOFLINE, [_roof_cells(roof) for roof in limits], left=("a round", "bound")))


def _roof_cells(roof: Roof) -> tuple[str, ...]:
    return (
        roof.name,
        number(roof.rows, 1),
        number(roof.bytes / 1e6, 1),
        number(roof.flops / 1e9),
        milliseconds(roof.floor, 2).removesuffix(" ms"),
        roof.bound,
        milliseconds(roof.seconds, 2).removesuffix(" ms"),
        share(roof.reached, 0),
        share(roof.whole, 0),
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


def _conclude(found: Sequence[Row], exact: bool) -> int:
    """Exit code 1 when a method of ours wrote another text than plain decoding in numbers that are
    ``exact`` enough to tell: in bfloat16 two tokens may tie, and drafts round differently."""
    wrong = [row.name for row in found if row.method != "generate" and not row.identical]
    if wrong:
        say(f"not plain decoding's tokens: {', '.join(wrong)}; `audit` shows where, and if a tie")
    return int(exact and bool(wrong))
