"""``report``: what traces show of a drafter, in the terminal and as files. Never imports torch.

Every number is a cell of a table of ``analysis.metrics``; ``--out`` writes those tables whole.
"""

from __future__ import annotations

import argparse
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.numbers import interval, number, share, signed
from app.terminal import ProgressBar, bar, console, one_line, say, table
from app.view.comparison import cautions
from core.errors import UserError
from core.traces.reader import read_trace
from core.traces.schema import ENDINGS, Trace

if TYPE_CHECKING:
    from analysis.tables import Tables

FORMATS = ("csv", "parquet", "json")
BOUNDS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
GATED = (
    "tau", "low", "high", "committed_per_round", "nodes_per_round", "tokens_per_second",
    "round_pace", "rounds", "tokens",
)  # fmt: skip
MAX_CLASSES, MAX_RANK, MAX_DEPTHS = 6, 8, 32  # that the terminal shows


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


def main(args: argparse.Namespace) -> int:
    if args.out is None and (args.html or args.format):
        raise UserError("--format and --html write files: name a folder with --out")
    with ProgressBar("reading traces") as progress:
        traces = read_all(args.traces, progress)
    from analysis.tables import Tables

    tables = Tables.of(traces)
    out = console()
    for title, body in sections(tables):
        out.print(title, style="bold", soft_wrap=True)
        for part in body:
            if isinstance(part, str):
                out.print(one_line(part, 400), soft_wrap=True)
            else:
                out.print(part)
        out.print()
    for note in notes(tables):
        out.print(one_line(note, 400), soft_wrap=True)
    if args.out is not None:
        _write(tables, args.out, args.format or ("csv",), args.html)
    missed = [line for each in args.gate for line in each.missed(tables)]
    for line in missed:
        say(line)
    return 1 if missed else 0


@dataclass(frozen=True)
class Gate:
    """A bound on a column of the table of τ, which every method must keep."""

    name: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.bound:g}"

    def missed(self, tables: Tables) -> Iterator[str]:
        """A sentence for each method that misses it. A number that is not known misses it."""
        from analysis.acceptance import tau

        for row in tau(tables).to_dict("records"):
            value = row[self.name]
            if not BOUNDS[self.sign](value, self.bound):
                method = one_line(str(row["method"]), 60)
                yield f"gate missed: {method} has {self.name} {number(value, 3)}, not {self}"


def gate(text: str) -> Gate:
    """Read NAME>=NUMBER. Raises UserError."""
    found = re.fullmatch(r"(\w+)(>=|<=|>|<)(\S+)", text.replace(" ", ""))
    if not found or found[1] not in GATED:
        raise UserError(
            f"{text!r} is no gate: write one of {', '.join(GATED)}, then one of "
            f"{' '.join(BOUNDS)}, and a number, as in tau>=2.5"
        )
    try:
        bound = float(found[3])
    except ValueError:
        bound = math.nan
    if math.isnan(bound):
        raise UserError(f"{found[3]!r} in the gate {text!r} is no number")
    return Gate(found[1], found[2], bound)


def read_all(paths: Sequence[Path], progress: ProgressBar) -> dict[str, Trace]:
    """The traces by name: the file's, or its whole path where two files share one.

    Raises UserError for a path that is no trace, or a folder without any.
    """
    files: list[Path] = []
    for path in paths:
        found = [file for ending in ENDINGS for file in path.glob(f"*{ending}")]
        if path.is_dir() and not found:
            raise UserError(f"the folder {path} holds no trace (.jsonl or .jsonl.gz)")
        files += sorted(found) or [path]
    files = list(dict.fromkeys(files))
    names = [file.name for file in files]
    traces = {}
    for done, file in enumerate(files):
        if done:  # a single file is read before the bar is seen
            progress.at(done / len(files), file.name)
        traces[file.name if names.count(file.name) == 1 else str(file)] = read_trace(file)
    return traces


# ── the terminal ─────────────────────────────────────────────────────────────────────────────────

Body = list[Any]  # tables and sentences, one below the other
Row = Mapping[Any, Any]
Column = tuple[str, Callable[[Row], str]]  # its title, and a row's cell


def sections(tables: Tables) -> Iterator[tuple[str, Body]]:
    """Title and contents of each part that has something to show."""
    from analysis.acceptance import tau

    yield "Block efficiency τ, tokens per round, with its 95 % interval", [_table(tau(tables), TAU)]
    yield from _if_any("What stands out", _findings(tables))
    yield from _if_any("The same by other names", _engines(tables))
    yield from _if_any("Methods on the same texts", _compared(tables))
    yield from checkpoint_sections(tables)
    yield from _depths(tables)
    yield from _if_any("Tokens per round, accepted + 1: share of rounds", _lengths(tables))
    yield from _if_any("Why branches ended", _causes(tables))
    yield from _if_any("By place in the text", _places(tables))
    yield from _kinds(tables)
    yield from _if_any("Against hindsight, accepted nodes per round", _oracle(tables))
    yield from _if_any("Where the target first left the drafter's best chain", _mismatches(tables))
    yield from _if_any("Is q a probability?", _reliability(tables))
    yield from _if_any("Where the time went, ms per round", _stages(tables))


def _if_any(title: str, body: Body) -> Iterator[tuple[str, Body]]:
    if body:
        yield title, body


def _table(frame: Any, columns: Sequence[Column]) -> Any:
    """A line per row; the columns that ``_text`` makes are left-aligned."""
    rows = [[cell(row) for _, cell in columns] for row in frame.to_dict("records")]
    left = [title for title, cell in columns if getattr(cell, "left", False)]
    return table([title for title, _ in columns], rows, left)


def _text(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        return one_line(str(row[name]), 60)

    cell.left = True  # type: ignore[attr-defined]
    return cell


def _count(name: str) -> Callable[[Row], str]:
    return lambda row: str(row[name])


def _number(name: str, digits: int = 2) -> Callable[[Row], str]:
    return lambda row: number(row[name], digits)


def _signed(name: str, digits: int = 2) -> Callable[[Row], str]:
    return lambda row: signed(row[name], digits)


def _interval(stem: str = "", sign: bool = False) -> Callable[[Row], str]:
    return lambda row: interval(row[f"{stem}low"], row[f"{stem}high"], sign=sign)


TAU: tuple[Column, ...] = (
    ("", _text("method")), ("τ", _number("tau")), ("95 %", _interval()), ("over", _text("over")),
    ("texts", _count("texts")), ("rounds", _count("rounds")), ("tokens", _count("tokens")),
    ("nodes/round", _number("nodes_per_round", 1)),
    ("in text/round", _number("committed_per_round")),
    ("tokens/s", _number("tokens_per_second", 1)),
)  # fmt: skip
PAIRED: tuple[Column, ...] = (
    ("", _text("method")), ("against", _text("other")), ("texts", _count("texts")),
    ("τ", _number("tau")), ("its τ", _number("other_tau")), ("difference", _signed("difference")),
    ("95 %", _interval(sign=True)), ("better on", lambda row: share(row["better"], 0)),
)  # fmt: skip
CHECKPOINTS: tuple[Column, ...] = (
    ("measure", _text("measure")), ("depth", _count("depth")), ("texts", _count("texts")),
    ("value", _number("value", 3)), ("against", _number("other_value", 3)),
    ("difference", _signed("difference", 3)), ("95 %", _interval(sign=True)),
)  # fmt: skip
DEPTHS: tuple[Column, ...] = (
    ("depth", _count("depth")), ("observed", _count("observed")), ("tested", _count("tested")),
    ("accepted", _count("accepted")), ("acceptance", _number("acceptance")),
    ("95 %", _interval("acceptance_")), ("of tested", _number("tested_acceptance")),
    ("of rounds", _number("marginal")), ("best right", _number("top1")), ("TVD", _number("tvd")),
    ("95 %", _interval("tvd_")), ("C₁", _number("coverage_1")), ("C₄", _number("coverage_4")),
    ("C₁₆", _number("coverage_16")),
)  # fmt: skip
SIBLINGS: tuple[Column, ...] = (
    ("", _text("method")), ("the next place", _text("context")), ("observed", _count("observed")),
    ("accepted", _number("acceptance")), ("95 %", _interval()), ("best right", _number("top1")),
    ("95 %", _interval("top1_")), ("TVD", _number("tvd")),
)  # fmt: skip
ERRORS: tuple[Column, ...] = (
    ("", _text("method")), ("event", _text("event")), ("nodes", _count("nodes")),
    ("mean q", _number("mean_q", 3)), ("came true", _number("share", 3)),
    ("bias", _signed("bias", 3)), ("ECE (mass)", _number("ece_mass", 3)),
    ("ECE (width)", _number("ece_width", 3)), ("Brier", _number("brier", 3)),
)  # fmt: skip
RATES: tuple[Column, ...] = (
    ("observed", _count("observed")), ("acceptance", _number("acceptance")),
    ("95 %", _interval("acceptance_")), ("TVD", _number("tvd")), ("95 %", _interval("tvd_")),
)  # fmt: skip
PLACES: tuple[Column, ...] = (
    ("", _text("method")), ("from token", _count("place")), ("rounds", _count("rounds")),
    ("τ", _number("tau")), ("95 %", _interval()), *RATES,
)  # fmt: skip
ORACLE: tuple[Column, ...] = (
    ("", _text("method")), ("rounds", _count("rounds")), ("accepted", _number("accepted")),
    ("best-first on q", _number("marginal")), ("hindsight", _number("listed")),
    ("possible", _number("possible")), ("builder loses", _number("builder_loses")),
    ("order loses", _number("order_loses")), ("lists lose", _number("lists_lose")),
    ("tree's share", lambda row: share(row["tree_share"], 0)),
    ("drafter's", lambda row: share(row["lists_share"], 0)),
)  # fmt: skip
SUMS: tuple[Column, ...] = (
    ("", _text("method")), ("rounds", _count("rounds")), ("Σq", _number("expected")),
    ("accepted", _number("accepted")), ("bias", _signed("bias")),
    ("95 %", _interval("bias_", sign=True)), ("correlation", _number("correlation")),
)  # fmt: skip


def _compared(tables: Tables) -> Body:
    from analysis.comparison import compare, incomparable

    found: Any = compare(tables)
    body: Body = [paired_table(found)] if len(found) else []
    if (found["texts"] == 1).any():
        body.append("One text gives a difference but no interval: run both on more prompts.")
    for one, other in incomparable(tables):
        body.append(f"{one} and {other} cannot be compared: {_why_not(tables, one, other)}.")
    return body


def paired_table(found: Any) -> Any:
    """What ``analysis.comparison.compare`` found."""
    return _table(found, PAIRED)


def checkpoint_sections(
    tables: Tables, chosen: Sequence[tuple[str, str]] | None = None
) -> Iterator[tuple[str, Body]]:
    """Two checkpoints of one drafter, paired by text; all pairs of them where none are chosen."""
    from analysis.checkpoints import by_depth, pairs, stretches

    for one, other in pairs(tables) if chosen is None else chosen:
        some: Any = by_depth(tables, [(one, other)])
        if some.empty:
            continue
        title = one_line(f"{one} against {other}", 120)
        parts = some.groupby("measure", sort=False)
        tops = [part.head(MAX_DEPTHS) for _, part in parts]
        body: Body = [part for each in tops for part in ("", _table(each, CHECKPOINTS))]
        yield f"By depth, paired by text: {title}", body[1:]
        found = stretches(tables, [(one, other)])
        yield from _if_any(
            f"Where one lives and the other dies: {title}",
            [_lives(row) for row in found.to_dict("records")],
        )


def _lives(row: Row) -> str:
    return (
        f"{row['method']} takes the {row['tokens']} tokens from {row['position']} in one round "
        f"({row['run']}, round {row['round']}); {row['other']} needs {row['other_rounds']} "
        f"({row['other_run']}, from round {row['other_round']})."
    )


def _why_not(tables: Tables, one: str, other: str) -> str:
    """What the first runs of two methods do not share."""
    first = {label: tables.traces[run].header for run, label in reversed(tables.labels.items())}
    found = cautions(first[one], first[other])
    return found[0] if found else "they share no text (token limits, dtypes or devices may differ)"


def _engines(tables: Tables) -> Body:
    """A line per metric, a column per method."""
    from analysis.engines import METRICS, engine_metrics

    values = [[metric.engine, metric.name, metric.formula] for metric in METRICS]
    titles = ["engine", "metric", "formula"]
    for method, part in _by_method(engine_metrics(tables)):
        titles.append(method)
        for row, value in zip(values, part["value"], strict=True):
            row.append(number(value))
    return [table(titles, values, left=titles[:3])] if len(titles) > 3 else []


def _depths(tables: Tables) -> Iterator[tuple[str, Body]]:
    from analysis.acceptance import per_depth

    for method, part in _by_method(per_depth(tables)):
        yield f"By depth: {method}", [_table(part.head(MAX_DEPTHS), DEPTHS)]


def _by_method(frame: Any) -> Iterator[tuple[str, Any]]:
    for method, part in frame.groupby("method", observed=True, sort=False):
        yield one_line(str(method), 60), part


def _lengths(tables: Tables) -> Body:
    from analysis.acceptance import acceptance_histogram

    found: Any = acceptance_histogram(tables)
    most, rows = found["share"].max(), []
    for method, part in _by_method(found):
        for n, row in enumerate(part.to_dict("records")):
            rows.append((
                method if n == 0 else "", str(row["length"]), str(row["rounds"]),
                share(row["share"]), bar(row["share"], most),
            ))  # fmt: skip
    return [table(("", "tokens", "rounds", "share", " "), rows, left=("", " "))] if rows else []


def _causes(tables: Tables) -> Body:
    from analysis.causes import cause_shares

    nodes, ends = cause_shares(tables), cause_shares(tables, "stops")
    if nodes.empty and ends.empty:
        return []
    return [
        "What became of drafted nodes whose parent was accepted; the others are unreached. "
        "Of a rejected node the reason says why the wanted token was not there.",
        _shares(nodes, "depth"),
        "",
        "Why the walks ended, by the depth of the target's token, which was not drafted there.",
        _shares(ends, "depth"),
        "",
        "Why the walks ended, by the sort of token that the target wanted there.",
        _shares(cause_shares(tables, "stops", "token_class"), "token_class"),
    ]


def _shares(causes: Any, over: str) -> Any:
    """A line per method and place that was observed, a column per cause."""
    from analysis.tables import FATES

    causes = causes[causes["observed_share"].notna()]
    names = [c for c in FATES if c in set(causes["cause"])]
    rows = []
    for method, part in _by_method(causes):
        counts = part.groupby(over, observed=True)["count"].sum()
        by_depth = over == "depth"
        shown = counts.index[:MAX_DEPTHS] if by_depth else counts.nlargest(MAX_CLASSES).index
        for n, place in enumerate(shown):
            some = part[part[over] == place].set_index("cause")
            shares, at = some["observed_share"].to_dict(), some.loc[some["count"].idxmax()]
            where = f"{at['example_run']}, round {at['example_round']}, row {at['example_row']}"
            rows.append((
                method if n == 0 else "", str(place), str(counts[place]),
                *(number(shares.get(c, 0.0)) for c in names), one_line(where, 60),
            ))  # fmt: skip
    titles = [name.removeprefix("not drafted: ") for name in names]
    last = "an example of the commonest"
    columns = ("", "depth" if over == "depth" else "token", "observed", *titles, last)
    return table(columns, rows, left=("", "token", last))


def _findings(tables: Tables) -> Body:
    """A sentence each, with a round to look at."""
    from analysis.places import findings

    return [
        f"{row['method']}: {row['sentence']} ({row['run']}, round {row['round']})."
        for row in findings(tables).to_dict("records")
    ]


def _places(tables: Tables) -> Body:
    """Only where there is more than one bin to compare."""
    from analysis.places import by_place

    found: Any = by_place(tables)
    return [_table(found, PLACES)] if len(found) and found["place"].nunique() > 1 else []


def _kinds(tables: Tables) -> Iterator[tuple[str, Body]]:
    from analysis.places import KINDS, by_kind

    titles = (
        "By the sort of the target's token", "By the script of the target's token",
        "By the prompts' tag",
    )  # fmt: skip
    for over, title in zip(KINDS, titles, strict=True):
        found: Any = by_kind(tables, over)
        if len(found) and (over == "token_class" or found[over].nunique() > 1):
            columns = (("", _text("method")), (over.replace("_", " "), _text(over)), *RATES)
            yield title, [_table(found, columns)]


def _oracle(tables: Tables) -> Body:
    from analysis.oracle import oracle

    found: Any = oracle(tables)
    if found.empty:
        return []
    return [
        "Hindsight drafts the text itself, as far as the drafter lists its tokens and the budget "
        "reaches. What is missing there the drafter lost, the rest the tree.",
        _table(found, ORACLE),
    ]


def _mismatches(tables: Tables) -> Body:
    from analysis.causes import after_sibling, first_mismatches

    found = first_mismatches(tables)
    if found.empty:
        return []
    rows, ranks = [], range(2, MAX_RANK + 1)
    for method, part in _by_method(found):
        total, ranked = part["count"].sum(), part[part["rank"].notna()]
        near = ranked.groupby("rank")["count"].sum() / total
        outside = part.loc[part["outside"], "count"].sum() / total
        shares = [*(near.get(rank, 0.0) for rank in ranks), outside, part["drafted"].sum() / total]
        rows.append((method, str(total), *map(number, shares)))
    columns = ("", "rounds", *(f"rank {rank}" for rank in ranks), "outside", "was drafted")
    body: Body = [table(columns, rows, left=("",))]
    after = after_sibling(tables)
    return [*body, "", _table(after, SIBLINGS)] if len(after) else body


def _reliability(tables: Tables) -> Body:
    from analysis.reliability import calibration_error, surrogate

    errors = calibration_error(tables)
    return [_table(errors, ERRORS), "", _table(surrogate(tables), SUMS)] if len(errors) else []


def _stages(tables: Tables) -> Body:
    from analysis.acceptance import stages
    from analysis.tables import STAGES

    found: Any = stages(tables)
    rows = []
    for method, part in _by_method(found):
        own = {row["stage"]: row for row in part.to_dict("records")}
        cells = [f"{number(own[s]['ms_per_round'])} ({share(own[s]['share'], 0)})" for s in STAGES]
        rows.append((method, *cells))
    return [table(("", *STAGES), rows, left=("",))] if found["seconds"].sum() > 0 else []


def notes(tables: Tables) -> Iterator[str]:
    """What the numbers count and leave out."""
    from analysis.tables import INTERRUPTED

    runs = tables.runs
    yield (
        "Observed: the parent was accepted; deeper positions count nowhere. Tested: something was "
        "drafted there. τ counts whole accepted paths."
    )
    if cut := int(runs["cut"].sum()):
        yield (
            f"{cut} verified tokens are beyond the end of a text (stop token or token limit): "
            "they count above, and not in the column in text/round."
        )
    if broken := int((runs["ended"] == INTERRUPTED).sum()):
        yield (
            f"{broken} of {len(runs)} runs were interrupted: their whole rounds count, "
            "and they are compared with none."
        )
    if left_out := int(runs["left_out"].sum()):
        yield f"{left_out} rounds are left out: denoising rounds, or texts that ended at once."
    if len(tables.rounds) and tables.positions["tvd"].isna().all():
        yield "No trace holds probe numbers: TVD and coverage are not known."


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def _write(tables: Tables, folder: Path, formats: Sequence[str], page: bool) -> None:
    from analysis.metrics import report
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
