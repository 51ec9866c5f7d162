"""``import``: what another engine reported of a served text, or DDTree's saved trees."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.numbers import UNKNOWN, number, share
from app.terminal import bar, console, one_line, say, table
from core.errors import UserError
from core.traces.schema import ENDINGS

STRIP = 240  # rounds that the terminal shows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Read the responses of vLLM (--per-request-spec-decode-metrics), SGLang (meta_info) or\n"
        "llama.cpp (timings): a .json file, or .jsonl with one response a line. They are counts\n"
        "without trees: τ, histogram and acceptance by depth, as far as each engine tells.\n"
        "DDTree's saved trees become a trace: name it with --out. docs/record.md has the files."
    )
    parser.add_argument("file", type=Path, help=".json or .jsonl")
    parser.add_argument("--json", action="store_true", help="the counts as JSON")
    parser.add_argument("--out", type=Path, metavar="TRACE", help="the trace of saved trees")


def main(args: argparse.Namespace) -> int:
    from analysis.engines.served import is_trees, read_served, summary, write_trees

    if is_trees(args.file):
        if args.out is None or not args.out.name.endswith(ENDINGS):
            raise UserError("these are trees: name a trace for them, --out FILE.jsonl.gz")
        say(f"{args.out}: {write_trees(args.file, args.out)} rounds, without q and p")
        return 0
    if args.out is not None:
        raise UserError(f"{args.file} holds counts without trees: no trace can be made of them")
    found = summary(read_served(args.file))
    if args.json:
        print(json.dumps(found))
    else:
        _show(found)
    return 0


def _show(found: dict[str, Any]) -> None:
    from analysis.engines.served import strip

    out, counts = console(), ("rounds", "drafted", "accepted", "tokens")
    out.print(f"{found['engine']}, {found['source']}", style="bold")
    names = ("responses", *counts, "τ", "accepted ÷ drafted")
    plain = [UNKNOWN if found[name] is None else str(found[name]) for name in counts]
    values = [str(found["responses"]), *plain, number(found["tau"])]
    out.print(table(names, [[*values, number(found["accepted_of_drafted"])]]))
    if found["histogram"]:
        _histogram(found["histogram"])
        rows = [
            (
                str(d["depth"]), str(d["tested"]), str(d["accepted"]),
                number(d["conditional"]), number(d["marginal"]),
            )
            for d in found["by_depth"]
        ]  # fmt: skip
        out.print("\nBy depth, of chains", style="bold")
        out.print(table(("depth", "tested", "accepted", "acceptance", "of rounds"), rows))
    for order in [order for order in found["order"] if order][:1]:
        out.print("\nShare of each round's draft that was accepted, in order", style="bold")
        out.print(one_line(strip(order), STRIP), soft_wrap=True)


def _histogram(counts: Sequence[int]) -> None:
    total, most = sum(counts), max(counts)
    rows = [
        (str(n), str(count), share(count / total if total else 0.0), bar(count, most or 1))
        for n, count in enumerate(counts)
    ]
    console().print("\nAccepted tokens per round", style="bold")
    console().print(table(("accepted", "rounds", "share", " "), rows, left=(" ",)))
