"""A trainer's accuracy by depth beside what serving shows of the same drafter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis.numbers import interval, number
from app.table_texts import TableForm
from app.terminal import FittingTable, ProgressBar, console, one_line, print_lines, say_left_out
from app.trace_files import read_tables
from core.errors import UserError
from core.lines import LIMITS, Limits


def show_trained(
    file: Path,
    served: Sequence[Path],
    as_json: bool = False,
    limits: Limits = LIMITS,
    form: TableForm | None = None,
) -> int:
    """Print the two curves, or one JSON object; returns the exit code. Raises UserError."""
    from analysis.drafters.trained import read_accuracy, sentences, trained_and_served
    from analysis.engines.served import read_served
    from analysis.frames import plain_rows
    from core.traces.reader import is_trace

    cut = list[str]()
    curves = read_accuracy(file, cut.append)
    traces = [path for path in served if path.is_dir() or is_trace(path)]
    others = [path for path in served if path not in traces]
    names = [path.name for path in others]
    counts = {
        path.name if names.count(path.name) == 1 else str(path): read_served(path)
        for path in others
    }
    for name, each in counts.items():
        if not each.by_depth:
            raise UserError(f"{name} tells no acceptance by place: nothing can be compared")
    with ProgressBar("reading traces", late=True) as progress:
        gone = list[str]()
        tables = read_tables(traces, progress.at, limits, gone) if traces else None
    found = trained_and_served(curves, tables, counts)
    left_out = [(file.name, cut), *((name, each.notes) for name, each in counts.items())]
    notes = [f"{name}: {note}" for name, told in left_out for note in told]
    said = [*notes, *sentences(found)]
    if as_json:
        print(json.dumps({"table": plain_rows(found), "sentences": said}))
        return say_left_out(gone)
    out = console(tables=form)
    heads = ("", "text", "measure", "depth", "share", "95 %", "over")
    out.print(FittingTable(heads, list(_rows(found)), left=heads[:3]))
    print_lines(out, said)
    return say_left_out(gone)


def _rows(found: Any) -> Iterator[tuple[str, ...]]:
    last: tuple[str, ...] = ()
    for row in found.to_dict("records"):
        names = tuple(one_line(str(row[name]), 60) for name in ("source", "text", "measure"))
        shown = names if names != last else ("", "", "")
        over = "" if row["over"] != row["over"] else str(int(row["over"]))
        cells = (str(row["depth"]), number(row["value"]), interval(row["low"], row["high"]), over)
        yield (*shown, *cells)
        last = names
