"""``collect``: run the drafters once at every token of one text, for what-if without the model."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.commands import common
from app.terminal import Progress, say
from core.errors import UserError

DRAFTERS = ("dflash", "treeflash", "dart")
WIDEST = {"candidates": 32, "siblings": 32}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write the target's text on one prompt, and what the drafters say at every token of it,\n"
        "into one file. Any builder, budget and option is then simulated without the model:\n"
        "whatif FILE. An interrupted collection goes on where it was."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="where to, such as sky.safetensors")
    parser.add_argument(
        "--methods", type=common.method, nargs="+", default=list(DRAFTERS), metavar="METHOD",
        help="whose drafters (default: dflash treeflash dart)",
    )  # fmt: skip
    common.add_prompt_options(parser, required=True)
    group = parser.add_argument_group("what is kept")
    group.add_argument(
        "--max-new-tokens", type=common.whole, default=256, metavar="N", help="default 256"
    )
    group.add_argument(
        "--kept", type=common.whole, default=1024, metavar="K",
        help="tokens per depth (default 1024: exact at every budget)",
    )  # fmt: skip
    group.add_argument(
        "--no-marginals", action="store_true",
        help="leave out plain q beside TreeFlash's q′: a third smaller",
    )  # fmt: skip
    group.add_argument(
        "--set", type=common.assignment, action="append", default=[], metavar="NAME=VALUE",
        help="an option of a drafter (default candidates=32 siblings=32: the largest that can be "
        "simulated)",
    )  # fmt: skip
    common.add_sampling_options(parser, temperature=0.0)
    common.add_model_options(parser)


def main(args: argparse.Namespace) -> int:
    prompts = common.chosen_prompts(args)
    if len(prompts) != 1:
        raise UserError(f"a collected file holds one text, not {len(prompts)}")
    _check_file(args.file)
    from core.types import Sampling

    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.seed)
    engine = common.load_engine(args)
    from analysis.collect import Plan, collect, source_of

    plan = Plan(args.max_new_tokens, args.kept, sampling, not args.no_marginals)
    plan.check()
    given = {k.replace("-", "_"): v for k, v in args.set}
    default = WIDEST if "treeflash" in " ".join(args.methods) else {}
    source = source_of(engine, args.methods, default | given)
    ids = engine.prepare().encode_chat(prompts[0])
    with Progress("collecting") as progress:
        made = collect(source, ids, args.file, plan, prompts[0], progress.at)
    size = args.file.stat().st_size / 1e6
    say(
        f"{args.file}: {made.end - made.answer} new tokens, {', '.join(made.drafters)}, "
        f"{size:.1f} MB; whatif {args.file} shows what methods and budgets would do"
    )
    return 0


def _check_file(path: Path) -> None:
    """An existing file is only replaced by its like, so that a slip costs no model and no text."""
    from analysis.collected import Collected

    if not path.absolute().parent.is_dir():
        raise UserError(f"there is no folder {path.absolute().parent}")
    if path.exists():
        try:
            Collected.load(path)
        except UserError:
            raise UserError(f"{path} exists and is no collected text") from None
