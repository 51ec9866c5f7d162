"""What several commands share: model options, prompts, a loaded engine. No torch at the top."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.prompts import Prompt
from app.terminal import Progress
from core.errors import UserError
from core.methods.registry import RECIPES, Value, recipe
from core.models import presets
from core.models.embedded import NAME as EMBEDDED
from core.models.hub import Source
from core.train.texts import read_lines

if TYPE_CHECKING:
    from core.decoding.engine import Engine, RunRequest

LONGEST_PROMPT_FILE = 64 << 20  # bytes


def whole(text: str) -> int:
    """argparse type: a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def number(text: str) -> float:
    """argparse type: a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def method(text: str) -> str:
    """argparse type: a method's name, listed or "drafter+builder", or a method file's path."""
    recipe(text)
    return text


def add_method_options(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Which method, as a word or with --method, and its own options."""
    about = f"{', '.join(RECIPES)}, DRAFTER+BUILDER, or your own FILE.py"
    name, count = ("methods", "*") if several else ("method", "?")
    parser.add_argument(
        name, type=method, nargs=count, metavar="METHOD",
        help=about + (" (default: all that are listed)" if several else ""),
    )  # fmt: skip
    parser.add_argument(
        "--method", dest="named", type=method, action="append", default=[], metavar="METHOD",
        help="the same, for those who like options",
    )  # fmt: skip
    parser.add_argument(
        "--set", type=assignment, action="append", default=[], metavar="NAME=VALUE",
        help="an option of the method, such as candidates=8 (doctor lists them)",
    )  # fmt: skip


def assignment(text: str) -> tuple[str, str]:
    """argparse type: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def chosen_method(args: argparse.Namespace) -> str:
    """The one method asked for. Raises UserError when none or several are."""
    names = [*([args.method] if args.method else []), *args.named]
    if len(names) != 1:
        raise UserError(f"name one method: {', '.join(RECIPES)}, DRAFTER+BUILDER or FILE.py")
    return names[0]


def add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        default=EMBEDDED,
        metavar="NAME|PATH",
        help=f"target: {EMBEDDED} (embedded, the default), another preset (`doctor` lists them), "
        "a folder, a Hugging Face id (ID@REVISION), or your own preset FILE.toml",
    )
    group.add_argument(
        "--drafter",
        metavar="PATH|ID",
        help="the drafter's checkpoint (default: the preset's, or the one that ships)",
    )
    group.add_argument(
        "--template", type=assignment, action="append", default=[], metavar="NAME=VALUE",
        help="a variable of the chat template, such as enable_thinking=false",
    )  # fmt: skip
    group.add_argument(
        "--device",
        default="auto",
        help="auto (default), cpu, cuda, cuda:1, …, or split: over all GPUs",
    )


def add_sampling_options(
    parser: argparse.ArgumentParser, temperature: float, seeds: bool = False
) -> None:
    """The target's rule, with one seed or ``seeds``; the drafter never sees it."""
    group = parser.add_argument_group("sampling (the target's rule)")
    group.add_argument(
        "--temperature",
        type=number,
        default=temperature,
        metavar="T",
        help=f"0 is greedy (default {temperature:g})",
    )
    group.add_argument("--top-k", type=whole, default=0, metavar="K", help="0 is off (default)")
    group.add_argument("--top-p", type=number, default=1.0, metavar="P", help="1 is off (default)")
    if seeds:
        group.add_argument(
            "--seed", type=whole, nargs="+", default=[0], metavar="S",
            help="one or several; at temperature 0 the runs of several are repeats (default 0)",
        )  # fmt: skip
        return
    group.add_argument(
        "--seed", type=whole, default=0, metavar="S", help="same seed, same text (default 0)"
    )


def add_prompt_options(parser: argparse.ArgumentParser, required: bool) -> None:
    group = parser.add_argument_group("prompts")
    one = group.add_mutually_exclusive_group(required=required)
    one.add_argument("--prompt", metavar="TEXT", help="one prompt; - reads it from stdin")
    one.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help='many: .jsonl with a "prompt" field, or .txt with one prompt a line',
    )


def chosen_prompts(args: argparse.Namespace, default: tuple[str, ...] = ()) -> list[str]:
    """The prompts the options name. Raises UserError when there is none or one is not text."""
    if args.prompts is not None:
        return read_prompts(args.prompts)
    if args.prompt is None:
        return list(default)
    if args.prompt == "-" and sys.stdin is None:  # the shell closed it
        raise UserError("there is no stdin to read the prompt from")
    try:
        text = sys.stdin.read() if args.prompt == "-" else args.prompt
    except UnicodeDecodeError:
        raise UserError("what stdin brings is no text in UTF-8") from None
    return [checked_prompt(text, "the prompt")]


def read_prompts(path: Path) -> list[str]:
    """The prompts of a file, without their sources (``read_sourced``)."""
    return [prompt.text for prompt in read_sourced(path)]


def read_sourced(path: Path) -> list[Prompt]:
    """Prompts of a .jsonl file (field "prompt", and "source" where it has one) or of a text file,
    one a line, blank ones left out.

    Raises UserError naming the file and the line.
    """
    numbered = read_lines(path, LONGEST_PROMPT_FILE)
    if not numbered:
        raise UserError(f"{path} holds no prompt")
    if path.suffix != ".jsonl":
        return [Prompt(checked_prompt(line, f"{path}, line {n}")) for n, line in numbered]
    return [_json_prompt(line, f"{path}, line {n}") for n, line in numbered]


def _json_prompt(line: str, where: str) -> Prompt:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise UserError(f"{where} is not JSON") from None
    prompt = value.get("prompt") if isinstance(value, dict) else None
    if not isinstance(prompt, str):
        raise UserError(f'{where} has no text in a field "prompt"')
    source = value.get("source")
    told = source.encode("utf-8", "replace").decode() if isinstance(source, str) else ""
    return Prompt(checked_prompt(prompt, where), told)


def checked_prompt(text: str, where: str) -> str:
    """Raises UserError for a prompt that is empty or holds bytes that are no text."""
    if not text.strip():
        raise UserError(f"{where} is empty")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{where} is not valid Unicode text") from None
    return text


def asked(args: argparse.Namespace, method: str, budget: int | None = None) -> RunRequest:
    """The request the options describe, its prompt still to come."""
    from core.decoding.engine import RunRequest

    if budget is None:
        budget = presets.find(args.model).budgets.get(method)
    return RunRequest(
        prompt="",
        method=method,
        budget=budget,
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        seed=args.seed,
        options=tuple(args.set),
    )


def template(args: argparse.Namespace) -> dict[str, Value]:
    """The chat template's variables that were given: yes and no as such, all else as text."""
    words = {"true": True, "yes": True, "false": False, "no": False}
    return {name: words.get(value.lower(), value) for name, value in args.template}


def checked_drafter(named: str | None) -> str | None:
    """A drafter's folder or hub id. Raises UserError for what can be neither."""
    if named is not None and not there_or_on_hub(Source.typed(named)):
        raise UserError(f"there is no drafter folder {named}")
    return named


def there_or_on_hub(source: Source) -> bool:
    """Whether it is a folder here or ORG/NAME; a bare word is neither, though the hub has some."""
    return source.folder is not None or "/" in source.name


def named_preset(name: str) -> presets.Preset:
    """What a command about a preset is asked about. Raises UserError for what is none, nor a model:
    a folder without one, or a bare word."""
    preset = presets.find(name)
    target, folder = preset.target, preset.target.folder
    if preset == presets.Preset(name, target) and not there_or_on_hub(target):
        raise UserError(
            f"there is no preset, folder or model {name!r} "
            f"(presets: {', '.join(presets.shipped())}; a model of the hub is ORG/NAME)"
        )
    if target.name != EMBEDDED and folder and not (folder / "config.json").is_file():
        raise UserError(f"the folder {target.name} holds no model: it has no config.json")
    return preset


def load_engine(args: argparse.Namespace, methods: Sequence[str] = ()) -> Engine:
    """The engine with its target loaded, progress shown. The first time, that takes a minute.

    The drafters of ``methods`` are compared with the target before anything heavy is loaded.
    """
    drafter = checked_drafter(args.drafter)
    with Progress("preparing " + args.model) as progress:
        progress.at(None, "loading libraries")
        quiet_libraries()
        from core.decoding.engine import Engine

        engine = Engine(args.model, args.device, drafter, template(args))
        engine.check(*methods)
        engine.prepare(lambda step: progress.at(step.fraction, step.stage))
    return engine


def quiet_libraries() -> None:
    """No chatter of transformers and the hub on our output; a download's bar only on a terminal."""
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    hub_logging.set_verbosity_error()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
