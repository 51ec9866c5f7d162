"""The prompts of a command: one on the command line or stdin, or a file of them. Light."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis.experiments.prompts import Prompt
from app.commands.options import Prompts
from app.terminal import say
from core.errors import UserError
from core.samples import FIELDS, PARQUET, checked, read_samples, samples_of

MAX_FILE = 64 << 20  # bytes


def prompts_of(args: Prompts, default: Sequence[str] | None = None) -> list[str]:
    """The prompts that the options name, else ``default``.

    Raises UserError for none, both, or one that is not text.
    """
    if args.prompt is not None and args.prompts is not None:
        raise UserError("name either one prompt with --prompt or a file with --prompts")
    if args.prompts is not None:
        return read_prompts(args.prompts)
    if args.prompt is None:
        if default is None:
            raise UserError("name a prompt with --prompt, or a file of them with --prompts")
        return list(default)
    if args.prompt == "-" and sys.stdin is None:  # the shell closed it
        raise UserError("there is no stdin to read the prompt from")
    try:
        text = sys.stdin.read() if args.prompt == "-" else args.prompt
    except UnicodeDecodeError:
        raise UserError("what stdin brings is not text in UTF-8") from None
    return [checked(text, "the prompt")]


def read_prompts(path: Path) -> list[str]:
    """The texts of ``read_prompt_file``."""
    return [prompt.text for prompt in read_prompt_file(path)]


def read_prompt_file(path: Path) -> list[Prompt]:
    """The prompts of a file, with their sources. Raises UserError as ``read_samples`` does."""
    if path.suffix == PARQUET:
        samples = samples_of(_parquet_rows(path), path, say)
    else:
        samples = read_samples(path, MAX_FILE, say)
    return [Prompt(sample.user, sample.source) for sample in samples]


def _parquet_rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    from analysis.table_files import parquet_rows, reading_table

    with reading_table(path):
        rows = list(parquet_rows(path, set(FIELDS), "a file of prompts"))
    yield from ((row, f"{path}, row {n}") for n, row in enumerate(rows, 1))
