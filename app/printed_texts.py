"""Decoding the prompts of a command, and printing their texts: of trees or of blocks.

One prompt streams its text and ends with a table; several print a line each and a total; as JSON
stdout carries one object per prompt and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

from analysis.experiments.prompts import Prompt, count_turns
from analysis.numbers import milliseconds, number, share
from app.decoding import Asked, DecodedPrompt, Decoding, decode_prompt
from app.terminal import GrowingText, ProgressBar, one_line, say
from app.trace_log import nth_path
from core.errors import UserError

Found = dict[str, Any]  # what is found of a prompt, as JSON


@dataclass(frozen=True)
class Shown(Generic[Asked]):
    """How a command shows the texts it writes. The JSON of a prompt is all that stays of it.

    report   prints the tables below the text of a single prompt
    columns  of the lines of several prompts, each cell read off the prompt's JSON
    total    of all of them
    """

    to_json: Callable[[DecodedPrompt[Asked]], Found]
    report: Callable[[DecodedPrompt[Asked]], None]
    columns: Mapping[str, Callable[[Found], str]]
    total: Callable[[Sequence[Found]], str]


def decode_all(
    job: Decoding[Asked],
    prompts: Sequence[Prompt],
    as_json: bool,
    length: int,
    shown: Shown[Asked],
) -> int:
    """Write the text of every turn of every prompt, of at most ``length`` tokens; returns the exit
    code."""
    if count_turns(prompts) > 1:
        return _several(job, prompts, as_json, shown)
    only = prompts[0].text
    if as_json:
        with ProgressBar("decoding", length) as progress:
            result = decode_prompt(job, only, lambda it: progress.at(len(it.tokens)))
        print_json(shown.to_json(result))
    else:
        text = GrowingText(sys.stdout)
        try:
            result = decode_prompt(job, only, lambda it: text.show(it.text))
        except KeyboardInterrupt:
            print(flush=True)  # the shell's prompt does not continue the model's line
            raise
        text.show(result.text, final=True)
        print("\n")
        shown.report(result)
    if job.trace is not None:
        say(f"trace written to {job.trace}")
    return 0


def _several(
    job: Decoding[Asked], prompts: Sequence[Prompt], as_json: bool, shown: Shown[Asked]
) -> int:
    """One prompt after the other. One that fails is reported, the others continue; then exit 2."""
    results, turns = list[Found](), count_turns(prompts)
    if not as_json:
        print(_line("prompt", shown.columns, "text"))
    with ProgressBar("decoding", turns) as progress:
        for index, prompt, found in _each(job, prompts, progress):
            if isinstance(found, UserError):
                say(f"prompt {index}: {found}")
                if as_json:
                    print_json({"prompt": prompt, "error": str(found)})
                continue
            results.append(result := shown.to_json(found))
            if as_json:
                print_json(result)
            else:
                cells = [cell(result) for cell in shown.columns.values()]
                print(_line(str(index), cells, one_line(result["text"], 60)), flush=True)
    print(shown.total(results), file=sys.stderr if as_json else sys.stdout, flush=True)
    if failed := turns - len(results):
        raise UserError(f"{failed} of {turns} prompts could not be decoded")
    return 0


def _each(
    job: Decoding[Asked], prompts: Sequence[Prompt], progress: ProgressBar
) -> Iterator[tuple[int, str, DecodedPrompt[Asked] | UserError]]:
    """Every turn of every prompt: its number, from 1, its text, and what came of it. What follows
    a turn that fails has no answer to follow, and is left out."""
    turns, end = count_turns(prompts), 0
    for prompt in prompts:
        begin, end = end, end + 1 + len(prompt.more)
        for index in range(begin + 1, end + 1):
            progress.at(index - 1, f"prompt {index} of {turns}")
            own = replace(job, trace=nth_path(job.trace, index))
            try:
                found = decode_prompt(own, prompt.text)
            except UserError as error:
                yield index, prompt.text, error
                break
            yield index, prompt.text, found
            if prompt.more:
                prompt = prompt.answered(found.text)


def _line(prompt: str, cells: Iterable[str], text: str) -> str:
    return f"{prompt:>8} {' '.join(f'{cell:>8}' for cell in cells)}  {text}"


def print_json(value: Found) -> None:
    print(json.dumps(value), flush=True)


def stage_rows(stages: Mapping[str, float], rounds: int) -> Iterator[tuple[str, ...]]:
    """Each stage's seconds in all, ms per round, and share of the rounds; prefill is in none."""
    total = sum(stages.values()) - stages.get("prefill", 0.0)
    for name, seconds in stages.items():
        per_round = None if name == "prefill" else seconds / rounds
        part = None if name == "prefill" or not total else seconds / total
        ms = milliseconds(per_round, 2).removesuffix(" ms")
        yield name, number(seconds, 3), ms, share(part)
