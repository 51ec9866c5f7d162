"""``trace export``: a trace as a file for elsewhere. Never imports torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from analysis.numbers import plural
from app.command_line import REQUIRED, option, words
from app.commands.common import pick
from app.commands.options import Large
from app.object_stores import here, is_copy
from app.terminal import ProgressBar, say, say_left_out
from app.trace_files import find_traces, read_all
from app.view.drawing import tree_drawing
from app.view.shapes import INCH, DrawnAs, Ground, Paper
from core.errors import UserError, writing
from core.files import replacing
from core.progress import At
from core.traces.reader import read_trace
from core.traces.schema import Trace

To = Literal[
    "html", "site", "svg", "pdf", "dot", "graphml", "csv", "parquet", "perfetto", "profile"
]
UNITS = {"in": INCH, "mm": INCH / 25.4, "cm": INCH / 2.54, "pt": 1.0}


def points(text: str) -> float:
    """A length, such as 3.25in, in points of 1/72 inch. Raises ValueError with what it must be."""
    number, unit = text[:-2], text[-2:]
    with suppress(ValueError):
        if unit in UNITS and 18 <= (length := float(number) * UNITS[unit]) <= 7200:
            return length
    raise ValueError("must be a length of 0.25in to 100in, in in, mm, cm or pt")


@dataclass(frozen=True)
class ExportFormat:
    """A file format.

    ending     of the file's name, or its whole name
    one_round  it shows a single round, by default the first
    most       how many traces it takes; None: any number, folders too
    """

    make: Callable[[list[Trace], Options, At], bytes]
    ending: str
    one_round: bool = False
    most: int | None = 1


@dataclass(frozen=True, kw_only=True)
class Options(Large):
    """Write a trace as a file for elsewhere.

    html: one file that replays the run offline, or two traces side by side.

    site: many runs, from files and folders, as one folder for any web host; it also opens from
    disk. It has a list, the viewer of each run, comparisons and the course.

    svg, pdf: one round's tree as a figure. The library librsvg draws pdf and --outlined.

    dot, graphml: one round's draft as a graph. csv, parquet: a table of rounds, or of all nodes.

    perfetto: stage times and τ, for ui.perfetto.dev or chrome://tracing. profile: acceptance by
    place over all runs of a drafter, as speculation_profile.json for a checkpoint's folder.
    """

    files: tuple[Path, ...] = words(
        "traces (.jsonl or .jsonl.gz); site, profile: also folders of them", read=here
    )
    to: To = option(REQUIRED, "what to write", metavar="FORMAT")
    round: int | None = option(
        None,
        "the round, from 1, to draw as a tree or graph, or to open the html at (default 1); for a "
        "nodes table, only this round",
    )
    table: Literal["rounds", "nodes"] = option("rounds", "for csv and parquet")
    dark: bool = option(False, "svg, pdf: colours for a dark background")
    ground: Ground = option("page", "svg, pdf: the background: the page's colour, white, or none")
    legend: bool = option(False, "svg, pdf: explain the signs below the tree")
    column: float | None = option(
        None,
        "svg, pdf: the whole figure's width, such as 3.25in, 82mm or 234pt",
        read=points,
        metavar="LENGTH",
    )
    outlined: bool = option(False, "svg: letters as outlines, the same on every machine")
    layout: Literal["folded", "tidy"] = option(
        "folded", "svg, pdf: folded, with most rejected siblings as one chip; or tidy, every node"
    )
    nodes: DrawnAs | None = option(
        None,
        "svg, pdf: boxes from left to right, or lines one below another (default: boxes, unless "
        "their text would be smaller than 6 pt at --column)",
    )
    plain: bool = option(False, "html, site: not compressed, for browsers of before 2023")
    out: Path | None = option(
        None,
        "where to write (default: beside the trace; -: stdout); site: a new folder, or an "
        "earlier site",
    )


def main(args: Options) -> int:
    if args.to == "site":
        return _site(args)
    form = FORMS[args.to]
    if form.most is not None:
        takes = f"--to {args.to} takes {'at most two traces' if form.most > 1 else 'one trace'}"
        if len(args.files) > form.most:
            raise UserError(takes)
        if folder := next((path for path in args.files if path.is_dir()), None):
            raise UserError(f"{folder} is a folder, and {takes}: `--to site` takes folders")
    left_out = list[str]()
    with ProgressBar(f"to {args.to}", late=True) as progress:
        if form.most is None:
            named = list(read_all(args.files, progress.at, args.limits, left_out).items())
        else:
            at = partial(progress.at, note="reading")
            named = [(str(path), read_trace(path, args.limits, at)) for path in args.files]
        making = partial(progress.at, note="making the file")
        making(None)
        data = form.make([trace for _, trace in named], args, making)
    for name, trace in named:
        if trace.mark:
            say(f"{name}: {trace.mark}")
    code = say_left_out(left_out)
    out = args.out or _beside(args.files[0], form, args)
    if str(out) == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return code
    if any(out.exists() and path.samefile(out) for path in args.files):
        raise UserError(f"{out} is the trace itself: name another file with --out")
    with writing(out), replacing(out) as file:
        file.write_bytes(data)
    print(f"{out}: {len(data):,} bytes")
    return code


def _beside(path: Path, form: ExportFormat, args: Options) -> Path:
    """run.jsonl.gz → run.html, run-round-3.svg, run-nodes.csv."""
    if is_copy(path):
        raise UserError("this trace is in a store: name the file to write with --out")
    stem = path.name.removesuffix(".gz").removesuffix(".jsonl")
    if not form.ending.startswith("."):  # a name that its readers look for
        return (path if path.is_dir() else path.parent) / form.ending
    part = f"-round-{args.round or 1}" if form.one_round else ""
    if args.to in ("csv", "parquet"):
        part = f"-{args.table}" + (f"-round-{args.round}" if args.round is not None else "")
    return path.with_name(f"{stem}{part}{form.ending}")


def _site(args: Options) -> int:
    from app.export.site import INDEX, write_site

    if args.out is None or str(args.out) == "-":
        raise UserError("a site is a folder: name it with --out")
    if args.round is not None:
        raise UserError("a site has all rounds: leave --round out, links name a round")
    found = find_traces(args.files)
    with ProgressBar("writing runs") as progress:
        written = write_site(args.out, found.files, args.limits, args.plain, progress.at)
    for sentence in (*written.copies, *filter(None, [found.note])):
        say(sentence)
    code = say_left_out(written.left_out)
    print(f"{args.out / INDEX}: {plural(written.runs, 'run')}, {written.size:,} bytes")
    return code


# ── what each writes; imports are made when needed: a CSV needs no networkx ──────────────────────


def _html(traces: list[Trace], args: Options, at: At) -> bytes:
    from app.export.offline import offline_page

    opens = traces[0].rounds.index(pick(traces[0], args.round))
    return offline_page(traces, args.plain, opens, at).encode()


def _figure(traces: list[Trace], args: Options, _: At) -> bytes:
    from app.export.figure import figure
    from app.view.explanation import Explainer
    from app.view.svg import svg

    record, form = pick(traces[0], args.round), "pdf" if args.to == "pdf" else "svg"
    if args.dark and args.ground == "white":
        raise UserError("--dark has light letters, which --ground white hides: leave one out")
    paper = Paper(args.dark, args.ground, args.column, args.nodes)
    opened = () if args.layout == "folded" else None
    drawing = tree_drawing(record, Explainer.of(traces[0].header), opened, args.legend, paper)
    if form == "pdf" or args.outlined:
        return figure(drawing, paper, form)
    return svg(drawing, paper).encode()


def _graph(traces: list[Trace], args: Options, _: At) -> bytes:
    from app.export.graphs import FORMS

    write, _kind = FORMS[args.to]
    return write(pick(traces[0], args.round))


def _table(traces: list[Trace], args: Options, _: At) -> bytes:
    from analysis.measures.rows import nodes_table, rounds_table
    from analysis.table_files import table_bytes

    if args.table == "rounds":
        if args.round is not None:
            raise UserError("a table of rounds has them all: --round is for --table nodes")
        return table_bytes(rounds_table(traces[0]), args.to)
    chosen = traces[0].rounds if args.round is None else [pick(traces[0], args.round)]
    return table_bytes(nodes_table(chosen), args.to)


def _perfetto(traces: list[Trace], args: Options, _: At) -> bytes:
    from app.export.timeline import perfetto

    return perfetto(traces[0]).encode()


def _profile(traces: list[Trace], args: Options, _: At) -> bytes:
    from analysis.engines.profile import profile_bytes

    if args.round is not None:
        raise UserError("a profile is of all rounds: leave --round out")
    return profile_bytes(traces)


FORMS = {
    "html": ExportFormat(_html, ".html", most=2),
    "svg": ExportFormat(_figure, ".svg", one_round=True),
    "pdf": ExportFormat(_figure, ".pdf", one_round=True),
    "dot": ExportFormat(_graph, ".dot", one_round=True),
    "graphml": ExportFormat(_graph, ".graphml", one_round=True),
    "csv": ExportFormat(_table, ".csv"),
    "parquet": ExportFormat(_table, ".parquet"),
    "perfetto": ExportFormat(_perfetto, ".perfetto.json"),
    "profile": ExportFormat(_profile, "speculation_profile.json", most=None),
}
