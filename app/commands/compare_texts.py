"""``compare-texts``: the same text by two engines, and the first difference."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from app.commands.arguments import add_number
from app.terminal import console, one_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare what two engines wrote on one prompt, token by token: traces, or responses of\n"
        "vLLM (return_token_ids), SGLang (output_ids) or llama.cpp (tokens). Where no ids are\n"
        "told the words are compared. The first difference is shown with p of both tokens where a\n"
        "trace knows it. Exit code 1 if the texts differ."
    )
    for name in ("one", "other"):
        parser.add_argument(name, type=Path, metavar=name.upper(), help="a trace, .json or .jsonl")
    add_number(parser, "--response", 1, "which response of a file that holds several")
    parser.add_argument("--json", action="store_true", help="the difference as JSON")


def main(args: argparse.Namespace) -> int:
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
