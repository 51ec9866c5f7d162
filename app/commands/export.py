"""``export``: a trace as a file for elsewhere. Never imports torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.commands import arguments
from app.commands.replay import pick
from app.terminal import say
from core.errors import UserError
from core.traces.reader import read_trace
from core.traces.schema import Trace

TABLES = ("rounds", "nodes")


@dataclass(frozen=True)
class Form:
    """What an export writes. ``one_round``: it shows a single round, by default the first."""

    make: Callable[[list[Trace], argparse.Namespace], bytes]
    ending: str
    one_round: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a trace as a file for elsewhere:\n"
        "  html      one file that replays the run offline; of two traces, side by side\n"
        "  svg       one round's tree        dot, graphml   one round's draft as a graph\n"
        "  csv, parquet   a table: its rounds, or every node\n"
        "  perfetto  stage times and τ for ui.perfetto.dev or chrome://tracing"
    )
    parser.add_argument("file", type=Path, nargs="+", metavar="TRACE", help=".jsonl or .jsonl.gz")
    parser.add_argument("--to", required=True, choices=tuple(FORMS), help="what to write")
    rounds = (
        "the round, from 1, of a tree or graph, or that the html opens at (default 1); or the only "
        "one of a nodes table"
    )
    arguments.add_number(parser, "--round", None, rounds)
    parser.add_argument(
        "--table", choices=TABLES, default="rounds", help="for csv and parquet (default rounds)"
    )
    parser.add_argument("--dark", action="store_true", help="svg: on a dark ground")
    parser.add_argument(
        "--layout", choices=("folded", "tidy", "dot"), default="folded",
        help="svg: folded, with most rejected siblings as one chip (default); tidy, every node; or "
        "every node as graphviz's dot program lays them out",
    )  # fmt: skip
    parser.add_argument(
        "--plain", action="store_true", help="html: not compressed, for browsers of before 2023"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where to (default: beside the trace; -: stdout)"
    )
    arguments.add_large(parser)


def main(args: argparse.Namespace) -> int:
    form = FORMS[args.to]
    if len(args.file) > (2 if args.to == "html" else 1):
        raise UserError(
            f"--to {args.to} takes {'at most two traces' if args.to == 'html' else 'one trace'}"
        )
    traces = [read_trace(path, arguments.limits_of(args)) for path in args.file]
    data = form.make(traces, args)
    for path, trace in zip(args.file, traces, strict=True):
        if trace.mark:
            say(f"{path}: {trace.mark}")
    out = args.out or _beside(args.file[0], form, args)
    if str(out) == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return 0
    if any(out.exists() and path.samefile(out) for path in args.file):
        raise UserError(f"{out} is the trace itself: name another file with --out")
    try:
        out.write_bytes(data)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}") from None
    print(f"{out}: {len(data):,} bytes")
    return 0


def _beside(path: Path, form: Form, args: argparse.Namespace) -> Path:
    """run.jsonl.gz → run.html, run-round-3.svg, run-nodes.csv."""
    stem = path.name.removesuffix(".gz").removesuffix(".jsonl")
    part = f"-round-{args.round or 1}" if form.one_round else ""
    if args.to in ("csv", "parquet"):
        part = f"-{args.table}" + (f"-round-{args.round}" if args.round is not None else "")
    return path.with_name(f"{stem}{part}{form.ending}")


# ── what each writes; imports are made when needed: a CSV needs no networkx ──────────────────────


def _html(traces: list[Trace], args: argparse.Namespace) -> bytes:
    from app.export.offline import offline_page

    opens = traces[0].rounds.index(pick(traces[0], args.round))
    return offline_page(traces, args.plain, opens).encode()


def _svg(traces: list[Trace], args: argparse.Namespace) -> bytes:
    record = pick(traces[0], args.round)
    if args.layout == "dot":
        from app.export.graphs import dot_svg

        return dot_svg(record)
    from app.view.explanation import Explainer
    from app.view.tree import svg_tree

    opened = () if args.layout == "folded" else None
    return svg_tree(record, Explainer.of(traces[0].header), args.dark, opened).encode()


def _dot(traces: list[Trace], args: argparse.Namespace) -> bytes:
    from app.export.graphs import dot

    return dot(pick(traces[0], args.round)).encode()


def _graphml(traces: list[Trace], args: argparse.Namespace) -> bytes:
    from app.export.graphs import graphml

    return graphml(pick(traces[0], args.round))


def _table(traces: list[Trace], args: argparse.Namespace) -> bytes:
    from analysis.measures.rows import nodes_table, rounds_table
    from app.export.tables import table_bytes

    if args.table == "rounds":
        if args.round is not None:
            raise UserError("a table of rounds has them all: --round is for --table nodes")
        return table_bytes(rounds_table(traces[0]), args.to)
    chosen = traces[0].rounds if args.round is None else [pick(traces[0], args.round)]
    return table_bytes(nodes_table(chosen), args.to)


def _perfetto(traces: list[Trace], args: argparse.Namespace) -> bytes:
    from app.export.timeline import perfetto

    return perfetto(traces[0]).encode()


FORMS = {
    "html": Form(_html, ".html"),
    "svg": Form(_svg, ".svg", one_round=True),
    "dot": Form(_dot, ".dot", one_round=True),
    "graphml": Form(_graphml, ".graphml", one_round=True),
    "csv": Form(_table, ".csv"),
    "parquet": Form(_table, ".parquet"),
    "perfetto": Form(_perfetto, ".perfetto.json"),
}
