"""``validate``: one sentence on whether a file is a readable trace. Exit code 2 when it is not."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.numbers import plural
from app.terminal import one_line
from core.traces.reader import read_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a trace")


def main(args: argparse.Namespace) -> int:
    trace = read_trace(args.file)
    state = "complete" if trace.complete else "interrupted"
    rounds = plural(len(trace.rounds), "round")
    method = one_line(trace.header.method, 40)
    print(f"{one_line(str(args.file), 200)} is a readable trace: {method}, {rounds}, {state}")
    return 0
