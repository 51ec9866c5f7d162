"""``denoise``: write with a masked-diffusion model, plainly or with Spiffy's draft graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from analysis.experiments.prompts import count_turns
from analysis.numbers import number, plural, ratio, share
from app.command_line import CommandOptions, option
from app.commands.diffusion import Denoising, DiffusionModel, load, pace, request_of
from app.commands.options import Conversations, Logged
from app.commands.prompts import check_turns, conversations_of, first_turns
from app.decoding import DecodedPrompt, Decoding
from app.printed_texts import Found, Shown, decode_all, print_json, stage_rows
from app.terminal import FittingTable, ProgressBar, console
from app.trace_log import check_trace
from core.diffusion.draft_graph_search import BUDGETS
from core.diffusion.graph_files import load_graph
from core.diffusion.nfe import NfeCounts, count_nfe
from core.diffusion.request import DenoiseRequest, DenoiseSettings, Pace
from core.errors import UserError
from core.ranges import Range
from core.traces.schema import summary

if TYPE_CHECKING:
    from analysis.experiments.nfe import GraphResult
    from core.diffusion.models import DiffusionLanguage


@dataclass(frozen=True, kw_only=True)
class TableOptions(CommandOptions):
    """The graphs and paces that a table of speedups compares."""

    title: ClassVar[str] = "table of speedups over all prompts"
    table: bool = option(False, "compare graphs and paces")
    graphs: tuple[str, ...] = option(
        tuple(map(str, BUDGETS)), "files of graphs, or numbers of nodes", metavar="GRAPH|D"
    )
    paces: tuple[Pace, ...] = option(
        (Pace(1), Pace(2), Pace(threshold=0.9)),
        "k2: two tokens a step, t0.9: a threshold (default k1 k2 t0.9)",
        read=pace,
        metavar="PACE",
    )
    real: int | None = option(None, "prompts run with every graph (default: all)", Range(0))


@dataclass(frozen=True, kw_only=True)
class Options(Conversations, Denoising, DiffusionModel, TableOptions, Logged):
    """Write with a masked-diffusion model, with or without Spiffy's drafts.

    For one prompt it shows the text, then model calls (NFE) beside those of plain denoising,
    acceptance by level, speedup by block and stage times. --table compares graphs and paces over
    all prompts. It predicts the calls from one recorded plain run, makes real runs beside it, and
    compares each with plain denoising token by token.
    """

    spiffy: str | None = option(
        None, "draft with a graph: its file, or one of D nodes", metavar="GRAPH|D"
    )


def main(args: Options) -> int:
    prompts = conversations_of(args)
    if args.table and (args.trace is not None or args.spiffy):
        raise UserError("--table compares what --graphs names, and writes no trace")
    check_trace(args.trace, count_turns(prompts))
    request = request_of(args, args.spiffy)
    request.check(args.model)  # a typo must not cost the time a model takes to load
    language = load(args)
    settings = request.settings(language.block, language.ahead)
    if args.table:
        return _table(args, language, settings, first_turns(prompts))
    check_turns(prompts, language)
    from core.diffusion.run import start

    job = Decoding(lambda asked, _: start(language, asked), request, args.trace)
    stops = language.target.stop_ids
    shown = Shown(partial(_to_json, stops), partial(_report, stops), COLUMNS, _total)
    return decode_all(job, prompts, args.json, args.length, shown)


# ── texts ────────────────────────────────────────────────────────────────────────────────────────


def _to_json(stops: frozenset[int], result: DecodedPrompt[DenoiseRequest]) -> Found:
    settings = dict(result.header.settings)
    graph = settings.pop("graph")
    return {
        "prompt": result.request.prompt,
        **settings,
        "graph": graph and graph["formulas"],
        "token_ids": list(result.tokens),
        "text": result.text,
        **_nfe_to_json(count_nfe(result.rounds, stops)),
        "seconds": result.seconds,
        "stage_seconds": summary(result.rounds)["seconds"],
    }


COLUMNS: Mapping[str, Callable[[Found], str]] = {
    "calls": lambda found: str(found["nfe"]),
    "plain": lambda found: str(found["plain_nfe"]),
    "speedup": lambda found: ratio(found["nfe_speedup"]),
    "s": lambda found: number(found["seconds"]),
}


def _total(results: Sequence[Found]) -> str:
    calls, plain, seconds = (sum(r[n] for r in results) for n in ("nfe", "plain_nfe", "seconds"))
    return (
        f"{len(results)} prompts · {plural(calls, 'model call')} · {plain} plain · "
        f"NFE speedup {ratio(plain / calls if calls else None)} · {number(seconds, 1)} s"
    )


def _nfe_to_json(nfe: NfeCounts) -> dict[str, Any]:
    return {
        "nfe": nfe.calls,
        "plain_nfe": nfe.plain,
        "nfe_speedup": nfe.speedup,
        "levels": [{"drafted": x.drafted, "accepted": x.accepted} for x in nfe.levels],
        "blocks": [{"nfe": calls, "plain_nfe": plain} for calls, plain in nfe.blocks],
    }


def _report(stops: frozenset[int], result: DecodedPrompt[DenoiseRequest]) -> None:
    out, settings, nfe = console(), result.header.settings, count_nfe(result.rounds, stops)
    graph = settings["graph"]
    drafts = f"{len(graph['formulas'])} drafts ({graph['name']})" if graph else "none (plain)"
    facts = [
        ("drafts", drafts),
        ("block, pace", f"{settings['block']}, {result.request.pace.name}"),
        ("tokens", str(len(result.tokens))),
        ("model calls (NFE)", str(nfe.calls)),
        ("plain calls", str(nfe.plain)),
        ("NFE speedup", ratio(nfe.speedup)),
        ("seconds", number(result.seconds)),
    ]
    out.print(FittingTable(("", ""), facts, left=("",)))
    if nfe.levels:
        rows = [
            (str(n), str(x.drafted), str(x.accepted), share(x.rate, 0))
            for n, x in enumerate(nfe.levels, 1)
        ]
        out.print()
        out.print(FittingTable(("level", "calls that drafted it", "accepted", ""), rows))
    rows = [
        (str(n), str(calls), str(plain), ratio(plain / calls))
        for n, (calls, plain) in enumerate(nfe.blocks, 1)
    ]
    out.print()
    out.print(FittingTable(("block", "calls", "plain", "speedup"), rows))
    stages = summary(result.rounds)["seconds"]
    del stages["draft"]  # a draft graph drafts without the model
    out.print()
    rows = list(stage_rows(stages, len(result.rounds)))
    out.print(FittingTable(("stage", "s", "ms/call", "share"), rows, left=("stage",)))


# ── the table ────────────────────────────────────────────────────────────────────────────────────


def _table(
    args: Options,
    language: DiffusionLanguage,
    settings: DenoiseSettings,
    prompts: Sequence[str],
) -> int:
    """Print the table; exit code 1 when a real run of an exact target wrote another text."""
    from analysis.experiments.nfe import measure

    ids = [language.encode_chat(prompt) for prompt in prompts]
    jobs = [(replace(settings, pace=at), at) for at in args.paces]
    for own, _ in jobs:
        own.check()
    graphs = {at: [load_graph(name, args.model, at) for name in args.graphs] for at in args.paces}
    cells = list["GraphResult"]()
    with ProgressBar("measuring", len(prompts) * len(jobs)) as progress:
        for index, (own, at) in enumerate(jobs):

            def report(done: float, what: str, index: int = index, name: str = at.name) -> None:
                note = f"{name}, prompt {done + 1:.0f} of {len(prompts)}, {what}"
                progress.at(index * len(prompts) + done, note)

            cells += measure(language.target, ids, own, graphs[at], args.real, report)
    if args.json:
        print_json({"prompts": len(prompts), "cells": [_cell_to_json(cell) for cell in cells]})
    else:
        _print_cells(cells, language.target.exact)
    differs = any(not run.identical for cell in cells for run in cell.real)
    return 1 if differs and language.target.exact else 0


def _cell_to_json(cell: GraphResult) -> dict[str, Any]:
    spiffy, plain = cell.seconds
    return {
        "pace": cell.pace.name,
        "graph": cell.graph.name,
        "drafts": len(cell.graph),
        **_nfe_to_json(cell.saved),
        "really_run": len(cell.real),
        "identical": sum(bool(run.identical) for run in cell.real),
        "parted_tokens": sum(found.tokens for found in cell.divergences),
        "as_foretold": sum(bool(run.predicted) for run in cell.real),
        "seconds": spiffy,
        "plain_seconds": plain,
        "wall_speedup": cell.speedup,
    }


def _print_cells(cells: Sequence[GraphResult], exact: bool) -> None:
    out = console()
    columns = ("pace", "graph", "NFE", "plain", "NFE speedup", "s", "plain s", "wall speedup",
               "same text", "accepted by level")  # fmt: skip
    left = ("pace", "graph", "accepted by level")
    out.print(FittingTable(columns, [_row(cell) for cell in cells], left=left))
    if not exact:
        out.print("this target is not exact: a text may differ from plain denoising's")
    for cell in cells:
        name = f"{cell.pace.name} {cell.graph.name}"
        if cell.divergences:
            first = 1 + min(found.block for found in cell.divergences)
            tokens = sum(found.tokens for found in cell.divergences)
            out.print(
                f"{name}: {len(cell.divergences)} of {len(cell.real)} texts differ from plain "
                f"denoising's, in {tokens} tokens, the earliest in block {first}"
            )
        blocks = "  ".join(ratio(plain / calls) for calls, plain in cell.saved.blocks)
        out.print(f"{name}: speedup by block {blocks}")


def _row(cell: GraphResult) -> tuple[str, ...]:
    nfe, (spiffy, plain), real = cell.saved, cell.seconds, len(cell.real)
    same = sum(bool(run.identical) for run in cell.real)
    return (
        cell.pace.name,
        cell.graph.name,
        str(nfe.calls),
        str(nfe.plain),
        ratio(nfe.speedup),
        number(spiffy if real else None, 1),
        number(plain if real else None, 1),
        ratio(cell.speedup if real else None),
        f"{same} of {real}" if real else "–",
        " ".join(share(level.rate, 0) for level in nfe.levels),
    )
