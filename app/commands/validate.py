"""``validate``: whether a file is a readable trace, and what in it cannot be.

Exit code 2 when it is not a trace, 1 when it holds what cannot be.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.numbers import plural
from app.commands.arguments import add_large, limits_of
from app.terminal import one_line
from core.traces.reader import read_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a trace")
    add_large(parser)


def main(args: argparse.Namespace) -> int:
    trace = read_trace(args.file, limits_of(args))
    state, faults = "complete" if trace.complete else "interrupted", trace.faults
    rounds = plural(len(trace.rounds), "round")
    method = one_line(trace.header.method, 40)
    found = f"; {plural(len(faults), 'fault')}" if faults else ""
    name = one_line(str(args.file), 200)
    print(f"{name} is a readable trace: {method}, {rounds}, {state}{found}")
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0
