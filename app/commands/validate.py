"""``validate``: one sentence on whether a file is a readable trace. Exit code 2 when it is not."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.terminal import one_line
from core.traces.reader import read_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="what should be a trace")


def main(args: argparse.Namespace) -> int:
    trace = read_trace(args.file)
    state = "complete" if trace.complete else "interrupted"
    count = len(trace.rounds)
    rounds = "1 round" if count == 1 else f"{count} rounds"
    method = one_line(trace.header.method, 40)
    print(f"{one_line(str(args.file), 200)} is a readable trace: {method}, {rounds}, {state}")
    return 0
