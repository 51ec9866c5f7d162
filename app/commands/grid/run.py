"""``grid run``: methods × budgets × prompts × seeds into a folder: a table, a trace per run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

from app.commands.grid.sweep import Sweep, carry_out, how_far
from app.report.scored import score_sheet
from app.terminal import console, one_line, say

if TYPE_CHECKING:
    from analysis.experiments.sweep_folder import Folder

FAILURES_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Options(Sweep):
    """Run methods × budgets × prompts × seeds and keep everything in one folder.

    results.parquet has a line per run: its settings, τ, seconds by stage, tokens, and whether they
    equal plain decoding's (if ar is among the methods). traces/ has a trace per run, for report and
    the studio. failures.json names runs that failed, each with its sentence.

    Repeat the command to continue where it was stopped or killed, and to try failed runs again.
    With more methods, budgets, prompts or seeds it runs what is new. An option that is given twice
    is run with both values. Exit code 1 if runs failed.
    """


def main(args: Options) -> int:
    return carry_out(args, _conclude)


def _conclude(folder: Folder) -> int:
    """Print the table, what stands out, and where everything is; the exit code."""
    from analysis.experiments.sweep import scores
    from analysis.measures.units import TOO_FEW

    rows = folder.rows()
    found = scores(folder.plan, rows)
    console().print(score_sheet(found))
    if any(score.tau is not None and isnan(score.low) for score in found):
        say(TOO_FEW)
    if wrong := [score.name for score in found if score.same < score.judged]:
        say(f"not plain decoding's tokens: {', '.join(wrong)}; `audit` shows where, and if a tie")
    places = {(row["device"], row["dtype"], row["hardware"], row["threads"]) for row in rows}
    if len({place for place in places if any(place)}) > 1:
        say("the runs are of different machines or devices: compare speeds within one of them")
    for what, count in _failed(folder).most_common(FAILURES_SHOWN):
        say(f"failed, {count} of the runs: {one_line(what, 200)}")
    say(f"{how_far(folder)}; `report {folder.path / 'traces'}` shows more")
    return 1 if folder.failures else 0


def _failed(folder: Folder) -> Counter[str]:
    """How many failures a variant had for a reason."""
    from analysis.experiments.sweep import variant_label

    names = {job.name: variant_label(job.variant) for job in folder.jobs}
    return Counter(f"{names[run]}: {why}" for run, why in folder.failures.items())
