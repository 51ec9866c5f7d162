"""``collect``: run the drafters once at every token of one text, for what-if without the model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands import common
from app.terminal import Progress, say
from core.errors import UserError
from core.rounds.round import Sampling

if TYPE_CHECKING:
    from analysis.collected import Collected
    from core.methods.registry import Value

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
    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.seed)
    default = WIDEST if "treeflash" in " ".join(args.methods) else {}
    given = default | {k.replace("-", "_"): v for k, v in args.set}
    older = _older(args.file)
    if older and (other := _other(older, args, prompts[0], sampling, given)):
        raise _finished(args.file, other)
    engine = common.load_engine(args)
    from analysis.collect import Plan, collect, source_of

    plan = Plan(args.max_new_tokens, args.kept, sampling, not args.no_marginals)
    plan.check()
    source = source_of(engine, args.methods, given)
    if older and older.header.name != source.facts.name:
        raise _finished(args.file, f"target, {older.header.name}")
    ids = engine.prepare().encode_chat(prompts[0])
    with Progress("collecting") as progress:
        made = collect(source, ids, args.file, plan, prompts[0], progress.at)
    size = args.file.stat().st_size / 1e6
    say(
        f"{args.file}: {made.end - made.answer} new tokens, {', '.join(made.drafters)}, "
        f"{size:.1f} MB; whatif {args.file} shows what methods and budgets would do"
    )
    return 0


def _older(path: Path) -> Collected | None:
    """The finished collection at ``path``, if there is one. An existing file is only replaced by
    its like, so that a slip costs no model and no text."""
    from analysis.collected import Collected

    if not path.absolute().parent.is_dir():
        raise UserError(f"there is no folder {path.absolute().parent}")
    if not path.exists():
        return None
    try:
        return Collected.load(path)
    except UserError:
        raise UserError(f"{path} exists and is no collected text") from None


def _finished(path: Path, other: str) -> UserError:
    return UserError(
        f"{path} is a finished collection of another {other}: choose another name, or remove it"
    )


def _other(
    older: Collected,
    args: argparse.Namespace,
    prompt: str,
    sampling: Sampling,
    given: Mapping[str, Value],
) -> str | None:
    """What an older collection has that is not asked for now; None: it is the same again."""
    from analysis.collected import drafter_key

    header = older.header
    methods = {drafter_key(method): method for method in args.methods}
    if header.prompt_text != prompt:
        return "prompt"
    if Sampling(**header.sampling) != sampling:
        return "sampling"
    if set(header.drafters) != set(methods):
        return f"set of drafters, {', '.join(header.drafters)}"
    count = older.end - older.answer
    ended = int(older.tokens[older.end - 1]) in header.stop_ids
    if count > args.max_new_tokens or (count < args.max_new_tokens and not ended):
        return f"number of new tokens, {count}"
    for name, limits in header.drafters.items():
        if limits.kept != args.kept and not (limits.complete and limits.kept < args.kept):
            return f"number of tokens per depth, {limits.kept}"
        if limits.candidates and (f"{name}.next_marginal" in older.arrays) == args.no_marginals:
            return "choice of --no-marginals"
        for option, value in _options(methods[name], given, header.vocabulary).items():
            held = (
                getattr(limits, option) if option in WIDEST else limits.options.get(option, value)
            )
            if held != value:
                return f"{option}, {held}"
    return None


def _options(method: str, given: Mapping[str, Value], vocabulary: int) -> dict[str, Value]:
    """The options of a method's drafter as a file says them: no list is longer than all tokens."""
    from core.methods.registry import recipe, settle

    names = recipe(method).drafter_options
    settled = settle(method, {k: v for k, v in given.items() if k in names})
    return {k: min(int(settled[k]), vocabulary) if k in WIDEST else settled[k] for k in names}
