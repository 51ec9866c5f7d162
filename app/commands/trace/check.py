"""``trace check``: whether a file is a readable trace, and its faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.numbers import plural
from app.command_line import words
from app.commands.common import reading_bar
from app.commands.options import Large
from app.object_stores import here
from app.terminal import one_line, say
from app.trace_files import trace_paths
from core.errors import UserError
from core.lines import Limits
from core.traces.reader import opened
from core.traces.schema import footer_faults, round_faults

ENDS = ("without a fault", "with faults", "not a trace")  # by exit code


@dataclass(frozen=True, kw_only=True)
class Options(Large):
    """Say in one sentence whether a file is a readable trace, and name its faults.

    Exit code 2 when one is not a trace, 1 when one has faults.
    """

    files: tuple[Path, ...] = words("traces, or folders of them", read=here)


def main(args: Options) -> int:
    files = list(trace_paths(args.files))
    if len(files) == 1:
        return _check(files[0], args.limits)
    codes = [_whatever(file, args.limits) for file in files]
    found = [f"{codes.count(code)} {words}" for code, words in enumerate(ENDS) if code in codes]
    print(f"{len(files)} files: {', '.join(found)}")
    return max(codes)


def _whatever(file: Path, limits: Limits) -> int:
    """As ``_check``, but a file that is not a trace is reported, so that the others are checked."""
    try:
        return _check(file, limits)
    except UserError as error:
        say(str(error))
        return 2


def _check(file: Path, limits: Limits) -> int:
    """No round is kept: a trace may be longer than memory."""
    rounds, faults = 0, list[str]()
    with reading_bar(file) as progress, opened(file, limits) as trace:
        for record in trace.told(progress.at):
            rounds += 1
            faults += round_faults([record])
    faults += footer_faults(trace.lies)
    state = "interrupted" if trace.footer is None else "complete"
    method = one_line(trace.header.method, 40)
    found = f"; {plural(len(faults), 'fault')}" if faults else ""
    name = one_line(str(file), 200)
    print(f"{name} is a readable trace: {method}, {plural(rounds, 'round')}, {state}{found}")
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0
