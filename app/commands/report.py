"""``report``: what traces tell of a drafter, in the terminal and as files. Never imports torch.

Every number is a cell of a table of ``analysis.metrics``; ``--out`` writes those tables whole.
"""

from __future__ import annotations

import argparse
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.terminal import Progress, bar, console, one_line, say, table
from app.view.comparison import cautions
from core.errors import UserError
from core.traces.reader import read_trace
from core.traces.schema import Trace

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.tables import Tables

FORMATS = ("csv", "parquet", "json")
MOST_CLASSES, MOST_RANKS, MOST_DEPTHS = 6, 8, 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", type=Path, nargs="+", metavar="TRACE",
        help="traces (.jsonl or .jsonl.gz), or folders of them",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write every table into this folder"
    )
    parser.add_argument(
        "--format", nargs="+", choices=FORMATS, default=None, metavar="FORMAT",
        help="csv (the default), parquet, json: what --out writes",
    )  # fmt: skip
    parser.add_argument(
        "--html", action="store_true", help="also write DIR/report.html, figures in one page"
    )


def main(args: argparse.Namespace) -> int:
    if args.out is None and (args.html or args.format):
        raise UserError("--format and --html write files: name a folder with --out")
    with Progress("reading traces") as progress:
        traces = read_all(args.traces, progress)
    from analysis.tables import Tables

    tables = Tables.of(traces)
    out = console()
    for title, body in sections(tables):
        out.print(title, style="bold", soft_wrap=True)
        _show(out, body)
        out.print()
    for note in notes(tables):
        out.print(one_line(note, 400), soft_wrap=True)
    if args.out is not None:
        _write(tables, args.out, args.format or ("csv",), args.html)
    return 0


def read_all(paths: Sequence[Path], progress: Progress) -> dict[str, Trace]:
    """The traces by name: the file's, or its whole path where two files share one.

    Raises UserError for a path that is no trace, or a folder without any.
    """
    files: list[Path] = []
    for path in paths:
        found = sorted({*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")}) if path.is_dir() else []
        if path.is_dir() and not found:
            raise UserError(f"the folder {path} holds no trace (.jsonl or .jsonl.gz)")
        files += found or [path]
    files = list(dict.fromkeys(files))
    names = [file.name for file in files]
    traces = {}
    for done, file in enumerate(files):
        if done:  # one file is read before anybody looks
            progress.at(done / len(files), file.name)
        traces[file.name if names.count(file.name) == 1 else str(file)] = read_trace(file)
    return traces


# ── the terminal ─────────────────────────────────────────────────────────────────────────────────

Body = list[Any]  # tables and sentences, one below the other


def _show(out: Console, body: Body) -> None:
    for part in body:
        if isinstance(part, str):
            out.print(one_line(part, 400), soft_wrap=True)
        else:
            out.print(part)


def sections(tables: Tables) -> Iterator[tuple[str, Body]]:
    """Title and contents of each part that has something to say."""
    yield "Block efficiency τ, tokens per round, with its 95 % interval", [_tau(tables)]
    if compared := _compared(tables):
        yield "Methods on the same texts", compared
    yield from _depths(tables)
    if len(lengths := _lengths(tables)) > 0:
        yield "Tokens per round, accepted + 1: share of rounds", lengths
    if died := _causes(tables):
        yield "Causes of death", died
    if mismatched := _mismatches(tables):
        yield "Where the target first left the drafter's best chain", mismatched
    if judged := _reliability(tables):
        yield "Is q a probability?", judged
    if spent := _stages(tables):
        yield "Where the time went, ms per round", spent


def _tau(tables: Tables) -> Any:
    from analysis.online import tau

    columns = ("", "τ", "95 %", "over", "texts", "rounds", "tokens", "nodes/round",
               "in text/round", "tokens/s")  # fmt: skip
    rows = [
        (
            _name(r.method), _number(r.tau), _range(r.low, r.high), r.over, str(r.texts),
            str(r.rounds), str(r.tokens), _number(r.nodes_per_round, 1),
            _number(r.committed_per_round), _number(r.tokens_per_second, 1),
        )
        for r in tau(tables).itertuples()
    ]  # fmt: skip
    return table(columns, rows, left=("", "over"))


def _compared(tables: Tables) -> Body:
    from analysis.paired import incomparable, paired

    found = paired(tables)
    rows = [
        (
            _name(r.method), _name(r.other), str(r.texts), _number(r.tau), _number(r.other_tau),
            f"{r.difference:+.2f}", _range(r.low, r.high, "+.2f"), f"{r.better:.0%}",
        )
        for r in found.itertuples()
    ]  # fmt: skip
    columns = ("", "against", "texts", "τ", "its τ", "difference", "95 %", "better on")
    body: Body = [table(columns, rows, left=("", "against"))] if rows else []
    if (found["texts"] == 1).any():
        body.append("One text gives a difference but no interval: run both on more prompts.")
    for one, other in incomparable(tables):
        body.append(f"{one} and {other} cannot be compared: {_why_not(tables, one, other)}.")
    return body


def _why_not(tables: Tables, one: str, other: str) -> str:
    """What the first runs of two methods do not share."""
    first = {label: tables.traces[run].header for run, label in reversed(tables.labels.items())}
    found = cautions(first[one], first[other])
    return found[0] if found else "they share no text (token limits, dtypes or devices may differ)"


def _depths(tables: Tables) -> Iterator[tuple[str, Body]]:
    from analysis.online import per_depth

    columns = ("depth", "observed", "tested", "accepted", "acceptance", "95 %", "of tested",
               "of rounds", "best right", "TVD", "95 %", "C₁", "C₄", "C₁₆")  # fmt: skip
    for method, part in per_depth(tables).groupby("method", observed=True, sort=False):
        rows = [
            (
                str(r.depth), str(r.observed), str(r.tested), str(r.accepted),
                _number(r.acceptance), _range(r.acceptance_low, r.acceptance_high),
                _number(r.tested_acceptance), _number(r.marginal), _number(r.top1),
                _number(r.tvd), _range(r.tvd_low, r.tvd_high), _number(r.coverage_1),
                _number(r.coverage_4), _number(r.coverage_16),
            )
            for r in part.head(MOST_DEPTHS).itertuples()
        ]  # fmt: skip
        yield f"By depth: {_name(method)}", [table(columns, rows)]


def _lengths(tables: Tables) -> Body:
    from analysis.online import acceptance_histogram

    found = acceptance_histogram(tables)
    most = found["share"].max()
    rows = []
    for method, part in found.groupby("method", observed=True, sort=False):
        for n, r in enumerate(part.itertuples()):
            name = _name(method) if n == 0 else ""
            rows.append((name, str(r.length), str(r.rounds), f"{r.share:.1%}", bar(r.share, most)))
    return [table(("", "tokens", "rounds", "share", " "), rows, left=("", " "))] if rows else []


def _causes(tables: Tables) -> Body:
    from analysis.deaths import causes

    by_depth, by_token = causes(tables), causes(tables, "stops", "token_class")
    if by_depth.empty:
        return []
    told = (
        "Drafted nodes whose parent was accepted; the others are unreached. Where the walk ended, "
        "the target's token was not drafted: pruned by budget, outside the candidates, or beyond."
    )
    body: Body = [told, _shares(by_depth, "depth", MOST_DEPTHS)]
    body += ["", "Why the walks ended, by the sort of token that the target wanted there."]
    return [*body, _shares(by_token, "token_class", MOST_CLASSES)]


def _shares(causes: Any, over: str, most: int) -> Any:
    """A line per method and place that was observed, a column per cause."""
    from analysis.tables import FATES

    causes = causes[causes["observed_share"].notna()]
    names = [c for c in FATES if c in set(causes["cause"])]
    rows = []
    for method, part in causes.groupby("method", observed=True, sort=False):
        counts = part.groupby(over, observed=True)["count"].sum()
        kept = counts.index[:most] if over == "depth" else counts.nlargest(most).index
        for n, place in enumerate(kept):
            some = part[part[over] == place].set_index("cause")
            share, at = some["observed_share"].to_dict(), some.loc[some["count"].idxmax()]
            where = f"{at['example_run']}, round {at['example_round'] + 1}, row {at['example_row']}"
            rows.append((
                _name(method) if n == 0 else "", str(place), str(counts[place]),
                *(_number(share.get(c, 0.0)) for c in names), one_line(where, 60),
            ))  # fmt: skip
    titles = [name.removeprefix("not drafted: ") for name in names]
    last = "an example of the commonest"
    columns = ("", "depth" if over == "depth" else "token", "observed", *titles, last)
    return table(columns, rows, left=("", "token", last))


def _mismatches(tables: Tables) -> Body:
    from analysis.deaths import after_sibling, first_mismatches

    found = first_mismatches(tables)
    if found.empty:
        return []
    rows = []
    for method, part in found.groupby("method", observed=True, sort=False):
        total, ranked = part["count"].sum(), part[part["rank"].notna()]
        share = ranked.groupby("rank")["count"].sum() / total
        near = [share.get(rank, 0.0) for rank in range(2, MOST_RANKS + 1)]
        outside = part.loc[part["outside"], "count"].sum() / total
        drafted = part["drafted"].sum() / total
        rows.append((_name(method), str(total), *map(_number, near), _number(outside),
                     _number(drafted)))  # fmt: skip
    ranks = [f"rank {rank}" for rank in range(2, MOST_RANKS + 1)]
    body: Body = [table(("", "rounds", *ranks, "outside", "was drafted"), rows, left=("",))]
    after = [
        (
            _name(r.method), r.context, str(r.observed), _number(r.acceptance),
            _range(r.low, r.high), _number(r.top1), _range(r.top1_low, r.top1_high), _number(r.tvd),
        )
        for r in after_sibling(tables).itertuples()
    ]  # fmt: skip
    columns = ("", "the next place", "observed", "accepted", "95 %", "best right", "95 %", "TVD")
    return [*body, "", table(columns, after, left=("", columns[1]))] if after else body


def _reliability(tables: Tables) -> Body:
    from analysis.reliability import calibration_error, surrogate

    errors = [
        (
            _name(r.method), r.event, str(r.nodes), _number(r.mean_q, 3), _number(r.share, 3),
            f"{r.bias:+.3f}", _number(r.ece_mass, 3), _number(r.ece_width, 3), _number(r.brier, 3),
        )
        for r in calibration_error(tables).itertuples()
    ]  # fmt: skip
    if not errors:
        return []
    columns = ("", "event", "nodes", "mean q", "came true", "bias", "ECE (mass)", "ECE (width)",
               "Brier")  # fmt: skip
    sums = [
        (
            _name(r.method), str(r.rounds), _number(r.expected), _number(r.accepted),
            f"{r.bias:+.2f}", _range(r.bias_low, r.bias_high, "+.2f"), _number(r.correlation),
        )
        for r in surrogate(tables).itertuples()
    ]  # fmt: skip
    told = ("", "rounds", "Σq", "accepted", "bias", "95 %", "correlation")
    return [table(columns, errors, left=("", "event")), "", table(told, sums, left=("",))]


def _stages(tables: Tables) -> Body:
    from analysis.online import stages
    from analysis.tables import STAGES

    found = stages(tables)
    rows = []
    for method, part in found.groupby("method", observed=True, sort=False):
        own = part.set_index("stage")
        cells = [f"{own['ms_per_round'][s]:.2f} ({own['share'][s]:.0%})" for s in STAGES]
        rows.append((_name(method), *cells))
    return [table(("", *STAGES), rows, left=("",))] if found["seconds"].sum() > 0 else []


def notes(tables: Tables) -> Iterator[str]:
    """What the numbers leave out or count, said plainly."""
    from analysis.tables import INTERRUPTED

    runs = tables.runs
    yield (
        "Observed: the parent was accepted; deeper positions count nowhere. Tested: something was "
        "drafted there. τ counts whole accepted paths."
    )
    if cut := int(runs["cut"].sum()):
        yield (
            f"{cut} verified tokens lie beyond the end of a text (stop token or token limit): "
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


def _name(label: object) -> str:
    return one_line(str(label), 60)


def _number(value: float, digits: int = 2) -> str:
    return "–" if value != value else f"{value:.{digits}f}"


def _range(low: float, high: float, form: str = ".2f") -> str:
    return "–" if low != low else f"[{low:{form}}, {high:{form}}]"


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def _write(tables: Tables, folder: Path, formats: Sequence[str], page: bool) -> None:
    from analysis.metrics import report

    found = report(tables)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in found.items():
            for form in formats:
                write_table(frame, folder / f"{name}.{form}")
        if page:
            (folder / "report.html").write_text(html_page(tables), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from None
    more = " and report.html" if page else ""
    say(f"{len(found)} tables ({', '.join(formats)}){more} written to {folder}")


def write_table(frame: Any, path: Path) -> None:
    """One table as CSV, Parquet or JSON, by the file's ending; the latter two tell its columns."""
    form = path.suffix[1:]
    if form == "parquet":
        frame.to_parquet(path, index=False)
    elif form == "json":
        rows = json.loads(frame.to_json(orient="records", double_precision=15))
        made = {**frame.attrs.get("about", {}), "rows": rows}
        path.write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8")
    else:
        from app.export.tables import table_csv

        path.write_bytes(table_csv(frame))


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Draftscope report</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; --ink: #1f2328; --paper: #ffffff; --line: #e3e6ea }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6e6e6; --paper: #14171c; --line: #3a3f47 }} }}
body {{ font: 15px system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 1.5rem auto; max-width: 1400px; padding: 0 1rem }}
.figures {{ display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)) }}
.figures > div {{ height: 420px; min-width: 0 }}
.scroll {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line) }}
th:first-child, td:first-child {{ text-align: left }}
</style></head><body>
<h1>Draftscope report</h1>
<div class="scroll">{tau}</div>
{notes}
<div class="figures">{figures}</div>
<script>
const looks = {looks};
const dark = matchMedia("(prefers-color-scheme: dark)");
function dress() {{
  for (const plot of document.querySelectorAll(".plotly-graph-div"))
    Plotly.relayout(plot, looks[dark.matches ? "dark" : "light"]);
}}
dress();
dark.addEventListener("change", dress);
</script></body></html>
"""


def html_page(tables: Tables) -> str:
    """All figures in one page that needs nothing else; plotly's script stands in it once."""
    from analysis.figures import FIGURES, colours
    from analysis.online import tau

    made = []
    for n, draw in enumerate(FIGURES.values()):
        figure = draw(tables, "light")
        made.append(figure.to_html(
            full_html=False, include_plotlyjs=n == 0, config={"responsive": True},
            default_height="420px",
        ))  # fmt: skip
    columns = {"method": "", "tau": "τ", "low": "95 % from", "high": "to", "over": "drawn over",
               "texts": "texts", "rounds": "rounds"}  # fmt: skip
    return _PAGE.format(
        tau=_html_table(tau(tables), columns),
        notes="".join(f"<p>{html.escape(note)}</p>" for note in notes(tables)),
        figures="".join(f"<div>{figure}</div>" for figure in made),
        looks=json.dumps({theme: _relayout(colours(theme)) for theme in ("light", "dark")}),
    )


def _relayout(colours: Mapping[str, str]) -> dict[str, str]:
    """plotly.py joins names by "_", plotly.js by "."."""
    return {key.replace("_", ".", 1) if key[:4] in ("font", "xaxi", "yaxi") else key: value
            for key, value in colours.items()}  # fmt: skip


def _html_table(frame: Any, columns: Mapping[str, str]) -> str:
    cells = [
        "".join(f"<td>{html.escape(_cell(row[name]))}</td>" for name in columns)
        for row in frame.to_dict("records")
    ]
    head = "".join(f"<th>{html.escape(title)}</th>" for title in columns.values())
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _cell(value: object) -> str:
    return _number(value, 3) if isinstance(value, float) else one_line(str(value), 60)
