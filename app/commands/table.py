"""``table``: all methods on the same prompts, greedily and at T = 1, in one table.

A sweep for each temperature, so a killed call continues; then one row for each method, budget,
temperature and source of prompts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.numbers import interval, tau
from app.commands import arguments, sweep
from app.terminal import console, one_line, say, table
from core import VERSION
from core.files import replacing

if TYPE_CHECKING:
    from analysis.family import Entry

COLUMNS = ("", "T", "τ", "95 %", "texts", "TVD 1 2 3", "top 16", "draft ms", "round", "speed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "One table of methods on the same prompts: τ with its interval, TVD and the drafter's\n"
        "top-16 coverage by depth, what drafting and a whole round cost, and the speed against\n"
        "plain decoding. The runs are sweeps, OUT/T0 and OUT/T1: the same command continues.\n"
        "  OUT/table.json  every row, also by the prompts' sources"
    )
    sweep.add_grid_arguments(parser, budgets=(16, 64))
    group = parser.add_argument_group("sampling (of the target)")
    arguments.add_numbers(
        group, "--temperatures", (0.0, 1.0), "0 is greedy", "T", arguments.decimal
    )
    parser.set_defaults(top_k=0, top_p=1.0, seed=(0,), no_probe=False, ray=None, workers=None)


def main(args: argparse.Namespace) -> int:
    from analysis.family import ALL, entries

    out, code, found = args.out, 0, list["Entry"]()
    for temperature in args.temperatures:
        args.temperature, args.out = temperature, out / f"T{temperature:g}"
        code = max(code, sweep.main(args))
        folder = sweep.finished(args)
        found += entries(folder.plan, folder.rows(), folder.path / "traces")
    _write(out / "table.json", args, found)
    shown = [entry for entry in found if entry.source == ALL]
    console().print(table(COLUMNS, [_cells(entry) for entry in shown], left=("",)))
    say(f"{out / 'table.json'}: {len(found)} rows")
    return code


def _write(path: Path, args: argparse.Namespace, found: Sequence[Entry]) -> None:
    about = {"model": str(args.model), "max_new_tokens": args.max_new_tokens, "version": VERSION}
    rows = [entry.to_json() for entry in found]
    with replacing(path) as file:
        file.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", "utf-8")


def _cells(entry: Entry) -> tuple[str, ...]:
    from analysis.family import title

    forward = entry.forward_ms
    return (
        one_line(title(entry), 60),
        f"{entry.temperature:g}",
        tau(entry.tau),
        interval(entry.low, entry.high),
        str(entry.texts),
        _first(entry.tvd),
        _first(entry.coverage),
        f"{entry.draft_ms:.1f}",
        f"{entry.round_ms / forward:.2f}×" if forward else "–",
        f"{entry.speed:.2f}×" if entry.speed else "–",
    )


def _first(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values[:3]) or "–"
