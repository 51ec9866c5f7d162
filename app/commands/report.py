"""``report``: what traces show of a drafter, in the terminal and as files. Never imports torch.

Every number is a cell of a table of ``measures.metrics``; ``--out`` writes those tables whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.arguments import add_large, limits_of
from app.export.report_page import html_page, write_table
from app.report.gates import GATED, gate
from app.report.sections import REPORT, notes
from app.report.shown import parts, show
from app.terminal import ProgressBar, console, one_line, say
from app.trace_files import read_all
from core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "parquet", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", type=Path, nargs="+", metavar="TRACE",
        help="traces (.jsonl or .jsonl.gz), or folders of them",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write every table into this folder"
    )
    parser.add_argument(
        "--format", nargs="+", choices=FORMATS, metavar="FORMAT",
        help="csv (the default), parquet, json: what --out writes",
    )  # fmt: skip
    parser.add_argument(
        "--html", action="store_true", help="also write DIR/report.html, figures in one page"
    )
    parser.add_argument(
        "--gate", nargs="+", type=gate, default=[], metavar="GATE",
        help="such as tau>=2.5: exit code 1 when a method misses it; "
        f"numbers: {', '.join(GATED)}",
    )  # fmt: skip
    add_large(parser)


def main(args: argparse.Namespace) -> int:
    if args.out is None and (args.html or args.format):
        raise UserError("--format and --html write files: name a folder with --out")
    with ProgressBar("reading traces") as progress:
        traces = read_all(args.traces, progress.at, limits_of(args))
    from analysis.measures.metrics import Report
    from analysis.measures.tables import Tables

    tables = Tables.of(traces)
    found, out = Report(tables), console()
    sections = list(parts(REPORT, found, tables))
    show(out, sections)
    for note in notes(tables):
        out.print(one_line(note, 400), soft_wrap=True)
    if args.out is not None:
        page = html_page(tables, sections, notes(tables)) if args.html else None
        _write(found, args.out, args.format or ("csv",), page)
    missed = [line for each in args.gate for line in each.missed(tables)]
    for line in missed:
        say(line)
    return 1 if missed else 0


def _write(
    found: Mapping[str, pd.DataFrame], folder: Path, formats: Sequence[str], page: str | None
) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in found.items():
            for form in formats:
                write_table(frame, folder / f"{name}.{form}")
        if page is not None:
            (folder / "report.html").write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from None
    more = " and report.html" if page is not None else ""
    say(f"{len(found)} tables ({', '.join(formats)}){more} written to {folder}")
