"""The prompts of a command: one on the command line or stdin, or a file of them. Light."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.experiments.prompts import Prompt
from app.commands.options import Prompts
from core.errors import UserError
from core.json_input import parse_json
from core.samples import read_lines

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
    return [_checked(text, "the prompt")]


def read_prompts(path: Path) -> list[str]:
    """The texts of ``read_prompt_file``."""
    return [prompt.text for prompt in read_prompt_file(path)]


def read_prompt_file(path: Path) -> list[Prompt]:
    """Prompts of a .jsonl file (field "prompt", and "source" where it has one) or of a text file,
    one a line; blank lines are left out.

    Raises UserError naming the file and the line.
    """
    lines = read_lines(path, MAX_FILE)
    if not lines:
        raise UserError(f"{path} holds no prompt")
    if path.suffix != ".jsonl":
        return [Prompt(_checked(line, f"{path}, line {n}")) for n, line in lines]
    return [_json_prompt(line, f"{path}, line {n}") for n, line in lines]


def _json_prompt(line: str, where: str) -> Prompt:
    value = parse_json(line, where)
    prompt = value.get("prompt") if isinstance(value, dict) else None
    if not isinstance(prompt, str):
        raise UserError(f'{where} has no text in a field "prompt"')
    source = value.get("source")
    source = source.encode("utf-8", "replace").decode() if isinstance(source, str) else ""
    return Prompt(_checked(prompt, where), source)


def _checked(text: str, where: str) -> str:
    """Raises UserError for a prompt that is empty or holds bytes that are not text."""
    if not text.strip():
        raise UserError(f"{where} is empty")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{where} is not valid Unicode text") from None
    return text
