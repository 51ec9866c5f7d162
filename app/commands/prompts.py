"""The prompts of a command: one on the command line or stdin, or a file of them. Light."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.experiments.prompts import Prompt
from app.commands.options import Conversations, Prompts
from app.terminal import say
from core.errors import UserError
from core.samples import FIELDS, PARQUET, checked, read_samples, samples_of

if TYPE_CHECKING:
    from core.diffusion.models import DiffusionLanguage
    from core.models.language import Language

MAX_FILE = 64 << 20  # bytes


def prompts_of(args: Prompts, default: Sequence[str] | None = None) -> list[str]:
    """The prompts that the options name, else ``default``; of conversations their first turns.

    Raises UserError as ``conversations_of`` does.
    """
    return first_turns(_prompts(args, default))


def conversations_of(args: Conversations, default: Sequence[str] | None = None) -> list[Prompt]:
    """The prompts that the options name, else ``default``, with as many turns as they say.

    Raises UserError for none, both, or one that is not text.
    """
    found = _prompts(args, default)
    if args.turns is None:
        return found
    return [replace(prompt, more=prompt.more[: args.turns - 1]) for prompt in found]


def check_turns(prompts: Iterable[Prompt], language: Language | DiffusionLanguage) -> None:
    """Raises UserError where a target that has no chat template is to go on with a chat."""
    if any(prompt.more for prompt in prompts) and not language.tokenizer.chat_template:
        raise UserError(
            "the target has no chat template, so it is asked first turns alone: --turns 1"
        )


def _prompts(args: Prompts, default: Sequence[str] | None) -> list[Prompt]:
    if args.prompt is not None and args.prompts is not None:
        raise UserError("name either one prompt with --prompt or a file with --prompts")
    if args.prompts is not None:
        return read_prompt_file(args.prompts)
    if args.prompt is None:
        if default is None:
            raise UserError("name a prompt with --prompt, or a file of them with --prompts")
        return [Prompt(text) for text in default]
    if args.prompt == "-" and sys.stdin is None:  # the shell closed it
        raise UserError("there is no stdin to read the prompt from")
    try:
        text = sys.stdin.read() if args.prompt == "-" else args.prompt
    except UnicodeDecodeError:
        raise UserError("what stdin brings is not text in UTF-8") from None
    return [Prompt(checked(text, "the prompt"))]


def first_turns(prompts: Sequence[Prompt]) -> list[str]:
    """Their texts, with a line on what is left out."""
    if several := sum(bool(prompt.more) for prompt in prompts):
        say(f"{several} of {len(prompts)} prompts have further turns, which follow an answer: only "
            "the first is asked (`run`, `denoise` and `grid` ask all)")  # fmt: skip
    return [prompt.text for prompt in prompts]


def read_prompts(path: Path) -> list[str]:
    """The texts of ``read_prompt_file``; of conversations their first turns."""
    return first_turns(read_prompt_file(path))


def read_prompt_file(path: Path) -> list[Prompt]:
    """The prompts of a file, with their sources. Raises UserError as ``read_samples`` does."""
    if path.suffix == PARQUET:
        samples = samples_of(_parquet_rows(path), path)
    else:
        samples = read_samples(path, MAX_FILE)
    return [Prompt(sample.user, sample.source, sample.more) for sample in samples]


def _parquet_rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    from analysis.table_files import parquet_rows, reading_table

    with reading_table(path):
        rows = list(parquet_rows(path, set(FIELDS), "a file of prompts"))
    yield from ((row, f"{path}, row {n}") for n, row in enumerate(rows, 1))
