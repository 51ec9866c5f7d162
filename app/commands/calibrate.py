"""``calibrate``: TVD and coverage against depth along the target's own continuations."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands import common
from app.terminal import Progress, console, say, table

if TYPE_CHECKING:
    import pandas as pd

DRAFTERS = ("dflash", "treeflash", "dart")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure how far drafters are from the target at every depth: N continuations from each\n"
        "anchor at temperature 1, q of DFlash and DART, q′ of TreeFlash behind true tokens, and\n"
        "as the reference the marginal: the mean of p over the continuations, all that could be\n"
        "known at the anchor (the best in KL and coverage; in TVD a sharper q may come nearer).\n"
        "Writes Parquet, CSV and figures; an interrupted measurement goes on where it was."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to")
    parser.add_argument(
        "--methods", type=common.method, nargs="+", default=list(DRAFTERS), metavar="METHOD",
        help="whose drafters (default: dflash treeflash dart)",
    )  # fmt: skip
    common.add_prompt_options(parser, required=False)
    group = parser.add_argument_group("how much")
    for name, default, about in (
        ("anchors", 64, "in all"),
        ("continuations", 16, "of each anchor"),
        ("seeds", 3, "the anchors are spread over"),
        ("max-new-tokens", 128, "of the texts the anchors lie in"),
    ):
        group.add_argument(
            f"--{name}", type=common.whole, default=default, metavar="N",
            help=f"{about} (default {default})",
        )  # fmt: skip
    group.add_argument(
        "--depths", type=common.whole, metavar="L", help="default: the deepest drafter's"
    )
    group.add_argument(
        "--set", type=common.assignment, action="append", default=[], metavar="NAME=VALUE",
        help="an option of a drafter, such as temperature=0.8",
    )  # fmt: skip
    common.add_model_options(parser)


def main(args: argparse.Namespace) -> int:
    from analysis.prompts import PROMPTS

    prompts = common.chosen_prompts(args, PROMPTS)
    engine = common.load_engine(args)
    from analysis.calibrate import Plan, calibrate
    from analysis.calibration import curves
    from analysis.collect import source_of

    plan = Plan(args.anchors, args.continuations, args.seeds, args.max_new_tokens, args.depths)
    plan.check(len(prompts))
    given = {k.replace("-", "_"): v for k, v in args.set}
    source = source_of(engine, args.methods, given)
    ids = [engine.prepare().encode_chat(prompt) for prompt in prompts]
    with Progress("calibrating") as progress:
        found = calibrate(source, ids, args.folder, plan, progress.at)
    _show(curves(found))
    say(f"{args.folder}: calibration and curves (.parquet, .csv), tvd.html and coverage.html")
    return 0


def _show(drawn: pd.DataFrame) -> None:
    rows = [
        (
            str(row.series), str(row.depth), f"{row.tvd:.3f}",
            f"[{row.tvd_low:.3f}, {row.tvd_high:.3f}]" if row.tvd_low == row.tvd_low else "–",
            f"{row.coverage_1:.3f}", f"{row.coverage_4:.3f}", f"{row.coverage_16:.3f}",
        )
        for row in drawn.itertuples()
    ]  # fmt: skip
    columns = ("", "depth", "TVD", "95 %", "top-1", "top-4", "top-16")
    console().print(table(columns, rows, left=("",)))
