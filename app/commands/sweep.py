"""``sweep``: methods × budgets × prompts × seeds into one folder: a table, and a trace per run.

Resumable: what is on disk counts, and a killed call loses the runs it was in the middle of, no
more. A run that fails is listed and the others go on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands import common
from app.commands.run import unbroken
from app.terminal import Progress, console, one_line, say, table
from core.errors import UserError
from core.methods.registry import RECIPES

if TYPE_CHECKING:
    from analysis.contestants import Contestant
    from analysis.prompts import Prompt
    from analysis.sweep import Job, Plan, Score
    from analysis.sweep_folder import Folder
    from app.sweep_runner import Outcome, Report

COLUMNS = ("", "τ", "95 %", "texts", "runs", "failed", "tokens/s", "tokens as plain")
FRESH = 60.0  # seconds a table may lag behind the runs
TOLD = 8  # kinds of failures that are printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run methods × budgets × prompts × seeds and keep everything in one folder:\n"
        "  OUT/results.parquet  a line per run: its settings, τ, seconds by stage, tokens, and\n"
        "                       whether they are plain decoding's (where ar is in the sweep)\n"
        "  OUT/traces/          a trace per run, for report and the studio\n"
        "  OUT/failures.json    runs that failed, each with its sentence\n"
        "The same command goes on where it was stopped or killed, and tries failed runs again;\n"
        "with more methods, budgets, prompts or seeds it runs what is new. An option set twice\n"
        "has both values run. Exit code 1 if runs failed."
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="the sweep's folder")
    common.add_method_options(parser, several=True)
    common.add_prompt_options(parser, required=False)
    group = parser.add_argument_group("decoding")
    group.add_argument(
        "--budget", type=common.whole, nargs="+", default=[8, 16, 64], metavar="N",
        help="one or several budgets (default 8 16 64); a chain has its own",
    )  # fmt: skip
    group.add_argument(
        "--max-new-tokens", type=common.whole, default=128, metavar="N", help="default 128"
    )
    common.add_sampling_options(parser, temperature=0.0, seeds=True)
    common.add_model_options(parser)
    group = parser.add_argument_group("where it runs (default: in this process)")
    group.add_argument(
        "--ray", metavar="ADDRESS",
        help="on a Ray cluster: auto (the one this machine is in), HOST:PORT, or local (one "
        "started here for this sweep)",
    )  # fmt: skip
    group.add_argument(
        "--workers", type=common.whole, metavar="N",
        help="Ray workers, each with an engine (default: one per GPU, else one per node)",
    )  # fmt: skip
    parser.add_argument(
        "--no-probe", action="store_true", help="trace without the target's beliefs, TVD, coverage"
    )


def main(args: argparse.Namespace) -> int:
    from analysis.sweep_folder import opened

    _check_place(args)
    plan = _plan(args)
    with opened(args.out, plan) as folder:
        with Progress("reading what is there") as progress:
            folder.read(lambda done: progress.at(done) if done else None)
        try:
            _run(folder, args)
        except KeyboardInterrupt:
            say(f"{_done(folder)}; the same command goes on")
            raise
        finally:
            folder.write_table()
        return _conclude(folder)


def _check_place(args: argparse.Namespace) -> None:
    """Raises UserError for a place the sweep cannot run in."""
    if args.workers is not None and args.ray is None:
        raise UserError("--workers are Ray's: --ray local starts them on this machine")
    if args.workers is not None and args.workers < 1:
        raise UserError(f"the workers must be at least 1, not {args.workers}")
    common.checked_drafter(args.drafter)
    if args.ray is not None:
        from app.ray_workers import check

        check(args.device)


# ── the plan ─────────────────────────────────────────────────────────────────────────────────────


def _plan(args: argparse.Namespace) -> Plan:
    """Raises UserError for a setting out of range, before anything is loaded."""
    from analysis.sweep import Job, Plan, Terms, gridded
    from app.sweep_runner import request_of

    methods = [*args.methods, *args.named] or list(RECIPES)
    field = gridded(methods, args.budget, args.set)
    terms = Terms(
        model=_as_path(args.model),
        drafter=None if args.drafter is None else _as_path(args.drafter),
        template=common.template(args),
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        probe=not args.no_probe,
    )
    seeds = tuple(dict.fromkeys(args.seed))
    for number in (*seeds, args.max_new_tokens, args.top_k):
        if not -(1 << 63) <= number < 1 << 63:
            raise UserError(f"{number} does not fit in the 64 bits of a column")
    plan = Plan(terms, field, _prompts(args), seeds, tuple(_files(field, args)))
    for contestant in field:
        request_of(terms, Job(contestant, plan.prompts[0], 0, seeds[0])).settings()
    return plan


def _as_path(model: str) -> str:
    """A checkpoint's folder by its whole path: the plan may be looked at from elsewhere."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


def _prompts(args: argparse.Namespace) -> tuple[Prompt, ...]:
    """Each once: the same text is the same run."""
    from analysis.prompts import PROMPTS, Prompt

    if args.prompts is not None:
        found = common.read_sourced(args.prompts)
    else:
        found = [Prompt(text) for text in common.chosen_prompts(args, PROMPTS)]
    first: dict[str, Prompt] = {}
    for prompt in found:
        first.setdefault(prompt.text, prompt)
    return tuple(first.values())


def _files(field: tuple[Contestant, ...], args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The user's own files that decide runs, as they are named, with their SHA-256."""
    named = {str(c.method) for c in field if str(c.method).endswith(".py")}
    named |= {value for c in field for _, value in c.options if isinstance(value, str) and value}
    files = {name: Path(name).expanduser() for name in sorted(named)}
    presets = args.model.partition("#")[0]
    if presets.endswith(".toml"):
        files[presets] = Path(presets).expanduser()
    if args.drafter is not None and (folder := Path(args.drafter).expanduser()).is_dir():
        weights = sorted({*folder.glob("*.safetensors"), *folder.glob("*.json")})
        files |= {f"drafter: {file.name}": file for file in weights}
    for name, file in files.items():
        if not file.is_file():
            continue
        try:
            with file.open("rb") as data:
                yield name, hashlib.file_digest(data, "sha256").hexdigest()
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror or error}") from None


# ── the runs ─────────────────────────────────────────────────────────────────────────────────────


def _run(folder: Folder, args: argparse.Namespace) -> None:
    """All that is left to do, kept one by one as it is done."""
    left, everything = folder.left(), len(folder.jobs)
    if not left:
        return
    if len(left) < everything:
        say(f"{everything - len(left)} of {everything} runs are there already")
    written = time.monotonic()
    progress, begun = Progress("sweeping", everything), everything - len(left)

    def report(note: str) -> None:
        progress.at(begun, note)

    outcomes = _outcomes(folder, left, args, report)  # loads the engine, under a bar of its own
    with progress, closing(outcomes):
        for outcome in outcomes:
            begun += 1
            _settle(folder, outcome)
            if time.monotonic() - written > FRESH:
                folder.write_table()
                written = time.monotonic()


def _outcomes(
    folder: Folder, left: list[Job], args: argparse.Namespace, report: Report
) -> Iterator[Outcome]:
    from app.sweep_runner import Runner, run_here

    terms = folder.plan.terms
    if args.ray is None:
        engine = common.load_engine(args, [str(c.method) for c in folder.plan.field])
        return run_here(Runner(engine, terms), left, folder.unfinished, report)
    from app.ray_workers import Spec, run_on_ray

    spec = Spec(args.model, args.device, args.drafter, terms, os.getcwd())
    return run_on_ray(args.ray, args.workers, spec, left, folder.unfinished, report)


def _settle(folder: Folder, outcome: Outcome) -> None:
    """Ctrl-C waits for it: what has a name on disk is also in the table."""
    if outcome.error:
        say(f"failed: {outcome.job.title}: {one_line(outcome.error, 200)}")
    with unbroken():
        if outcome.error:
            folder.fail(outcome.job, outcome.error)
        else:
            folder.keep(outcome.job)


# ── what it says ─────────────────────────────────────────────────────────────────────────────────


def _conclude(folder: Folder) -> int:
    """Print the table, what stands out, and where all is; the exit code."""
    from analysis.sweep import scores

    rows = folder.rows()
    found = scores(folder.plan, rows)
    plain = any(score.judged for score in found)
    shown = COLUMNS if plain else COLUMNS[:-1]
    console().print(table(shown, [_cells(score)[: len(shown)] for score in found], left=("",)))
    if wrong := [score.name for score in found if score.same < score.judged]:
        say(f"not plain decoding's tokens: {', '.join(wrong)}; `audit` tells where, and if a tie")
    places = {(row["device"], row["dtype"], row["hardware"], row["threads"]) for row in rows}
    if len({place for place in places if any(place)}) > 1:
        say("the runs are of different machines or devices: compare speeds within one of them")
    for what, number in _failed(folder).most_common(TOLD):
        say(f"failed, {number} of the runs: {one_line(what, 200)}")
    say(f"{_done(folder)}; `report {folder.path / 'traces'}` tells more")
    return 1 if folder.failures else 0


def _failed(folder: Folder) -> Counter[str]:
    """How many failures a contestant had for a reason."""
    from analysis.sweep import label

    names = {job.name: label(job.contestant) for job in folder.jobs}
    return Counter(f"{names[run]}: {why}" for run, why in folder.failures.items())


def _done(folder: Folder) -> str:
    everything, left = len(folder.jobs), len(folder.left())
    failed = f", {len(folder.failures)} failed" if folder.failures else ""
    return f"{everything - left} of {everything} runs are done{failed}: {folder.path}"


def _cells(score: Score) -> tuple[str, ...]:
    known = score.low == score.low
    return (
        one_line(score.name, 60),
        "–" if score.tau is None else f"{score.tau:.2f}",
        f"[{score.low:.2f}, {score.high:.2f}]" if known else "–",
        str(score.texts),
        str(score.runs),
        str(score.failed or "–"),
        "–" if score.tokens_per_second is None else f"{score.tokens_per_second:.1f}",
        f"{score.same} of {score.judged}" if score.judged else "–",
    )
