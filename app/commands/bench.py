"""``bench``: methods × budgets against plain decoding and against transformers' ``generate``."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from app.commands import common
from app.terminal import Progress, console, say, table
from core.errors import UserError
from core.methods import RECIPES

if TYPE_CHECKING:
    from analysis.bench import Plan, Row
    from core.session import Engine

COLUMNS = ("", "τ", "s", "tokens/s", "× plain", "× generate", "tokens as plain")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Time methods and budgets end to end against plain decoding with the same engine and\n"
        "against transformers' generate(), without and with prompt lookup: the same prompts, one\n"
        "run, the order changing every time; medians over repeats, ratios by prompt.\n"
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
    from analysis.bench import bench, contestants, rows

    field = contestants([*args.methods, *args.named] or tuple(RECIPES), args.budget, dict(args.set))
    engine = common.load_engine(args, [c.method for c in field if c.method])
    for contestant in field:
        if contestant.method is not None:
            engine.method(contestant.method, dict(contestant.options))
    with Progress("timing", plan.repeats * len(plan.prompts) * len(field)) as progress:
        timings = bench(engine, plan, field, progress.at)
    found = rows(timings, field)
    if args.json:
        print(json.dumps(_facts(engine, plan) | {"rows": [asdict(row) for row in found]}))
    else:
        print_rows(engine, plan, found)
    return _conclude(found)


def _plan(args: argparse.Namespace) -> Plan:
    """Raises UserError for a setting out of range, before anything is loaded."""
    from analysis.bench import Plan
    from analysis.prompts import PROMPTS
    from core.session import RunRequest

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


def _conclude(found: list[Row]) -> int:
    """Exit code 1 when one of our methods wrote another text than plain decoding."""
    wrong = [row.name for row in found if row.method != "generate" and not row.identical]
    if wrong:
        say(f"not plain decoding's tokens: {', '.join(wrong)}; `audit` tells where, and if a tie")
    return 1 if wrong else 0
