"""``trace check``: whether a file is a readable trace, and what in it cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.numbers import plural
from app.command_line import words
from app.commands.common import read_one
from app.commands.options import Large
from app.object_stores import here
from app.terminal import one_line


@dataclass(frozen=True, kw_only=True)
class Options(Large):
    """Say in one sentence whether a file is a readable trace, and name what in it cannot be.

    Exit code 2 when it is not a trace, 1 when it holds what cannot be.
    """

    file: Path = words("a trace", read=here)


def main(args: Options) -> int:
    trace = read_one(args.file, args.limits)
    state, faults = "complete" if trace.complete else "interrupted", trace.faults
    rounds = plural(len(trace.rounds), "round")
    method = one_line(trace.header.method, 40)
    found = f"; {plural(len(faults), 'fault')}" if faults else ""
    name = one_line(str(args.file), 200)
    print(f"{name} is a readable trace: {method}, {rounds}, {state}{found}")
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0
