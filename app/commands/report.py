"""``report``: what traces show of a drafter, in the terminal and as files. Never imports torch.

Every number is a cell of a table of ``measures.metrics``; ``--out`` writes those tables whole.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from analysis.numbers import plural
from app.command_line import option, words
from app.commands.options import Large, Printed
from app.object_stores import here
from app.report.gates import GATED, Gate, gate
from app.report.sections import REPORT, cautions, notes
from app.report.shown import ReportPart, parts, show
from app.report.trained import show_trained
from app.terminal import ProgressBar, console, one_line, print_lines, say, say_left_out
from app.trace_files import read_tables
from core.errors import UserError, writing
from core.files import replacing
from core.journal import alone

if TYPE_CHECKING:
    import pandas as pd

    from analysis.measures.metrics import Report

Form = Literal["csv", "parquet", "json"]


AT_ONCE = 10_000  # lines of a table that become JSON together


@dataclass(frozen=True, kw_only=True)
class Options(Large, Printed):
    """Say what traces show of a drafter, in the terminal and as files.

    With --trained FILE it compares, by depth, what a trainer reports with what serving shows. The
    trainer's side is how often the best token is right, at all places and after a right prefix, on
    training and held-out text. The served side is acceptance and survival, from traces or from the
    counts of another engine. Sentences say where the two differ.
    """

    traces: tuple[Path, ...] = words(
        "traces (.jsonl or .jsonl.gz), folders of them, or packs; also in an object store "
        "(s3://…, hf://…)",
        read=here,
    )
    out: Path | None = option(None, "write every table into this folder", metavar="FOLDER")
    to: tuple[Form, ...] = option((), "what --out writes (default csv)", metavar="FORMAT")
    html: bool = option(False, "also write report.html there, figures in one page")
    gate: tuple[Gate, ...] = option(
        (),
        f"such as tau>=2.5: exit code 1 when a method misses it; numbers: {', '.join(GATED)}",
        read=gate,
        metavar="GATE",
    )
    trained: Path | None = option(
        None,
        "accuracy.json of our training, or a log with acc_0, full_acc_0, cond_acc_0, … as .json, "
        ".jsonl or .csv; the traces may then also be what `trace import` reads",
        metavar="FILE",
    )
    json: bool = option(False, "one JSON object on stdout")


def main(args: Options) -> int:
    if args.out is None and (args.html or args.to):
        raise UserError("--to and --html write files: name a folder with --out")
    _say_changed(args.traces)
    if args.trained is not None:
        if args.out is not None or args.gate:
            raise UserError("--trained compares two curves: leave --out and --gate out")
        return show_trained(args.trained, args.traces, args.json, args.limits, args.tables)
    with ProgressBar("reading traces", late=True) as progress:
        left_out = list[str]()
        tables = read_tables(args.traces, progress.at, args.limits, left_out)
    code = say_left_out(left_out)
    from analysis.measures import metrics

    with ProgressBar("making tables", len(metrics.TABLES), late=True) as progress:
        found, sections = metrics.Report(tables, progress.at), list[ReportPart]()
        if args.json:
            for text in _as_json(found):
                sys.stdout.write(text)
        if not args.json or args.html:
            sections = list(parts(REPORT, found, tables))
        if not args.json:
            out = console(tables=args.tables)
            print_lines(out, cautions(tables))
            show(out, sections)
            print_lines(out, notes(tables))
        if args.out is not None:
            from app.export.report_page import html_page

            told = sections, cautions(tables), notes(tables)
            page = html_page(tables, *told) if args.html else None
            _write(found, args.out, args.to or ("csv",), page, progress)
    missed = [line for each in args.gate for line in each.missed(tables)]
    for line in missed:
        say(line)
    return 1 if missed else code


def _say_changed(paths: Sequence[Path]) -> None:
    from analysis.measures.packed import changed_traces, is_pack

    for path in filter(is_pack, paths):
        if count := changed_traces(path):
            name = one_line(str(path), 200)
            say(f"{name}: {plural(count, 'trace')} changed since: pack again to count that")


def _as_json(found: Report) -> Iterator[str]:
    """The text of an object of all tables, piece by piece: some are very long."""
    from analysis.frames import plain_rows

    for number, name in enumerate(found):
        yield f"{', ' if number else '{'}{json.dumps(name)}: ["
        between = ""
        for piece in found.pieces(name):
            for first in range(0, len(piece), AT_ONCE):
                rows = json.dumps(plain_rows(piece[first : first + AT_ONCE]))[1:-1]
                yield f"{between}{rows}"
                between = ", "
        yield "]"
    yield "}\n"


def _write(
    found: Mapping[str, pd.DataFrame],
    folder: Path,
    formats: Sequence[str],
    page: str | None,
    progress: ProgressBar,
) -> None:
    """A table without lines is not written, and one of an earlier report is removed then."""
    from app.export.report_page import write_table

    empty = list[str]()
    with alone(folder, "report"), writing(folder):
        for number, (name, frame) in enumerate(found.items()):
            progress.at(number, f"writing {name}")
            if frame.empty:
                empty.append(name)
            for form in formats:
                path = folder / f"{name}.{form}"
                if frame.empty:
                    path.unlink(missing_ok=True)
                else:
                    write_table(frame, path)
        if page is not None:
            with replacing(folder / "report.html") as file:
                file.write_text(page, encoding="utf-8")
    more = " and report.html" if page is not None else ""
    written = plural(len(found) - len(empty), "table")
    none = f"; these traces give no line of {', '.join(empty)}" if empty else ""
    say(f"{written} ({', '.join(formats)}){more} written to {folder}{none}")
