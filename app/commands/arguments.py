"""Arguments that several commands share: their types, and groups of options. Never torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from core.errors import UserError
from core.lines import LIMITS, UNLIMITED, Limits
from core.methods.method import BY_PATH, BY_RUN
from core.methods.names import METHODS
from core.methods.registry import find, listed
from core.models.embedded import NAME as EMBEDDED

Group = argparse._ArgumentGroup | argparse.ArgumentParser
METHOD_HELP = (
    f"{', '.join(METHODS)}, DRAFTER+BUILDER, either with its drafter's @CHECKPOINT, or your own "
    "FILE.py"
)


# ── types ────────────────────────────────────────────────────────────────────────────────────────


def whole(text: str) -> int:
    """argparse type: a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def decimal(text: str) -> float:
    """argparse type: a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def method(text: str) -> str:
    """argparse type: a method's name, listed or "drafter+builder", perhaps with "@checkpoint", or a
    method file's path."""
    find(text)
    return text


def assignment(text: str) -> tuple[str, str]:
    """argparse type: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


# ── single options ───────────────────────────────────────────────────────────────────────────────


def add_number(
    group: Group,
    name: str,
    default: float | None,
    help: str = "",
    metavar: str = "N",
    type: Callable[[str], float] = whole,
) -> None:
    """An option that is one number; its help ends with the default."""
    known = (
        [] if default is None else [f"(default {default:g})" if help else f"default {default:g}"]
    )
    words = " ".join([*([help] if help else []), *known])
    group.add_argument(name, type=type, default=default, metavar=metavar, help=words)


def add_numbers(
    group: Group,
    name: str,
    default: Sequence[float],
    help: str = "",
    metavar: str = "N",
    kind: Callable[[str], float] = whole,
) -> None:
    """An option that is one or several numbers; its help ends with the default."""
    words = " ".join(f"{each:g}" for each in default)
    words = f"{help} (default {words})" if help else f"default {words}"
    group.add_argument(
        name, type=kind, nargs="+", default=list(default), metavar=metavar, help=words
    )


def add_set(group: Group, help: str) -> None:
    group.add_argument(
        "--set", type=assignment, action="append", default=[], metavar="NAME=VALUE", help=help
    )


# ── groups ───────────────────────────────────────────────────────────────────────────────────────


def add_method_options(
    parser: argparse.ArgumentParser, several: bool = False, engines: Sequence[str] = ()
) -> None:
    """Which method, as a word or with --method, and its own options. Other ``engines`` may stand
    among several."""
    name, count = ("methods", "*") if several else ("method", "?")
    more = " (default: all that are listed)" if several else ""
    more += "".join(f"; {engine} decodes plainly beside them" for engine in engines)
    parser.add_argument(
        name,
        type=lambda text: text if text in engines else method(text),
        nargs=count,
        metavar="METHOD",
        help=METHOD_HELP + more,
    )
    parser.add_argument(
        "--method",
        dest="named",
        type=method,
        action="append",
        default=[],
        metavar="METHOD",
        help="the method, given as an option",
    )
    add_set(parser, "an option of the method, such as temperature=0.8 (doctor lists them)")


def one_method(args: argparse.Namespace) -> str:
    """The method that the arguments name. Raises UserError for none or several."""
    names = [*([args.method] if args.method else []), *args.named]
    if len(names) != 1:
        raise UserError(f"name one method: {METHOD_HELP}")
    return names[0]


def add_drafter_options(
    parser: argparse.ArgumentParser, listable: bool = False, set_help: str = ""
) -> None:
    """Whose drafters are run, by default every listed one, and the drafters' options.

    ``listable``: only those whose states a file can hold.
    """
    names: dict[str, str] = {}
    left_out = (BY_PATH, BY_RUN) if listable else (BY_RUN,)
    for name, found in listed().items():
        info = found.drafter_info
        if info is not None and info.states not in left_out:
            names.setdefault(info.name, name)
    default = list(names.values())
    parser.add_argument(
        "--methods", type=method, nargs="+", default=default, metavar="METHOD",
        help=f"whose drafters (default: {' '.join(default)})",
    )  # fmt: skip
    add_set(parser, set_help or "an option of a drafter, such as temperature=0.8")


def option_values(args: argparse.Namespace) -> dict[str, str]:
    """What --set names, by option."""
    return {name.replace("-", "_"): value for name, value in args.set}


def add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", default=EMBEDDED, metavar="NAME|PATH",
        help=f"target: {EMBEDDED} (embedded, the default), another preset (`doctor` lists them), "
        "a folder, a Hugging Face id (ID@REVISION), or your own preset FILE.toml",
    )  # fmt: skip
    group.add_argument(
        "--drafter", "--draft-model", metavar="PATH|ID",
        help="the drafter's checkpoint (default: the preset's, or the one that ships)",
    )  # fmt: skip
    group.add_argument(
        "--template", type=assignment, action="append", default=[], metavar="NAME=VALUE",
        help="a variable of the chat template, such as enable_thinking=false",
    )  # fmt: skip
    group.add_argument(
        "--device", default="auto",
        help="auto (default), cpu, cuda, cuda:1, …, or split: over all GPUs",
    )  # fmt: skip


def add_sampling_options(
    parser: argparse.ArgumentParser, temperature: float, seeds: bool = False
) -> None:
    """How the target samples, with one seed or ``seeds``."""
    group = parser.add_argument_group("sampling (of the target)")
    add_number(group, "--temperature", temperature, "0 is greedy", "T", decimal)
    add_number(group, "--top-k", 0, "0 is off", "K")
    add_number(group, "--top-p", 1.0, "1 is off", "P", decimal)
    if seeds:
        about = "one or several; at temperature 0 several seeds are repeats"
        add_numbers(group, "--seed", (0,), about, "S")
    else:
        add_number(group, "--seed", 0, "same seed, same text", "S")


def add_prompt_options(parser: argparse.ArgumentParser, required: bool) -> None:
    group = parser.add_argument_group("prompts").add_mutually_exclusive_group(required=required)
    group.add_argument("--prompt", metavar="TEXT", help="one prompt; - reads it from stdin")
    group.add_argument(
        "--prompts", type=Path, metavar="FILE",
        help='many: .jsonl with a "prompt" field, or .txt with one prompt a line',
    )  # fmt: skip


def add_large(parser: argparse.ArgumentParser) -> None:
    """``--large``: see ``limits_of``."""
    parser.add_argument(
        "--large", action="store_true",
        help="read a trace of any size (otherwise 2 GB unpacked, and 100 times a .gz file)",
    )  # fmt: skip


def limits_of(args: argparse.Namespace) -> Limits:
    """What the traces of a command may hold."""
    return UNLIMITED if args.large else LIMITS
