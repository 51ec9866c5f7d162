"""``trace compare``: the same text by two engines, and the first difference."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from app.command_line import CommandOptions, option, words
from app.terminal import console, one_line


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Compare what two engines wrote on one prompt, token by token.

    Traces, or responses of vLLM (return_token_ids), SGLang (output_ids) or llama.cpp (tokens).
    Where no ids are told the words are compared. The first difference is shown with p of both
    tokens where a trace knows it. Exit code 1 if the texts differ.
    """

    one: Path = words("a trace, .json or .jsonl")
    other: Path = words("the same of the other engine")
    response: int = option(1, "which response of a file that holds several")
    json: bool = option(False, "the difference as JSON")


def main(args: Options) -> int:
    from analysis.engines.texts import first_difference, read_written, sentences

    one, other = (read_written(path, args.response) for path in (args.one, args.other))
    found = first_difference(one, other)
    if args.json:
        facts = None if found is None else asdict(found) | {"tied": found.tied}
        print(json.dumps({"same": found is None, "difference": facts}))
    else:
        if found is not None and found.before:
            console().print(f"… {one_line(found.before, 200)}", soft_wrap=True)
        for line in sentences(found, one, other):
            console().print(one_line(line, 400), soft_wrap=True)
    return 0 if found is None else 1
