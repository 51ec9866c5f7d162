"""``report``: what traces show of a drafter, in the terminal and as files. Never imports torch.

Every number is a cell of a table of ``measures.metrics``; ``--out`` writes those tables whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from app.command_line import option, words
from app.commands.options import Large
from app.report.columns import show
from app.report.gates import GATED, Gate, gate
from app.report.notes import notes
from app.report.sections import sections
from app.report.trained import show_trained
from app.terminal import ProgressBar, console, one_line, say
from app.trace_files import read_all
from core.errors import UserError

if TYPE_CHECKING:
    from analysis.measures.tables import Tables

Form = Literal["csv", "parquet", "json"]


@dataclass(frozen=True, kw_only=True)
class Options(Large):
    """Say what traces show of a drafter, in the terminal and as files.

    With --trained FILE it puts what a trainer says of its drafter beside what serving shows, by
    depth: the best token right at all places and after a right prefix, on training and held-out
    text, and of traces, or of what another engine counted, acceptance and survival. Sentences say
    where the two part.
    """

    traces: tuple[Path, ...] = words("traces (.jsonl or .jsonl.gz), or folders of them")
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
    if args.trained is not None:
        if args.out is not None or args.gate:
            raise UserError("--trained compares two curves: leave --out and --gate out")
        show_trained(args.trained, args.traces, args.json, args.limits)
        return 0
    with ProgressBar("reading traces") as progress:
        traces = read_all(args.traces, progress.at, args.limits)
    from analysis.measures.tables import Tables

    tables = Tables.of(traces)
    if args.json:
        print(json.dumps(_to_json(tables)))
    else:
        _show(tables)
    if args.out is not None:
        _write(tables, args.out, args.to or ("csv",), args.html)
    missed = [line for each in args.gate for line in each.missed(tables)]
    for line in missed:
        say(line)
    return 1 if missed else 0


def _show(tables: Tables) -> None:
    out = console()
    show(out, sections(tables))
    for note in notes(tables):
        out.print(one_line(note, 400), soft_wrap=True)


def _to_json(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    from analysis.frames import plain_rows
    from analysis.measures.metrics import report

    return {name: plain_rows(frame) for name, frame in report(tables).items()}


def _write(tables: Tables, folder: Path, formats: Sequence[str], page: bool) -> None:
    from analysis.measures.metrics import report
    from app.export.report_page import html_page, write_table

    found = report(tables)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in found.items():
            for form in formats:
                write_table(frame, folder / f"{name}.{form}")
        if page:
            whole = html_page(tables, notes(tables))
            (folder / "report.html").write_text(whole, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from None
    more = " and report.html" if page else ""
    say(f"{len(found)} tables ({', '.join(formats)}){more} written to {folder}")
